//! Texts and what the compiled libraries of 2.15.0 and 2.9.1 answered.

use super::super::settings::{Settings, Version};

/// The error of a text given at the start; empty if it is accepted.
fn error(version: Version, text: &str) -> String {
    Settings::new(version).with_text(text, true).err().unwrap_or_default()
}

#[test]
fn texts_of_2_15() {
    for (text, want) in [
        ("", ""),
        ("max_split_size_mb : 64", ""),
        ("max_split_size_mb:128,", ""),
        ("max_split_size_mb,100", ""),
        ("max_split_size_mb:128.5", ""),
        ("max_split_size_mb:-1", ""),
        (
            "max_split_size_mb:10",
            "CachingAllocator option max_split_size_mb too small, must be >= 20",
        ),
        ("max_split_size_mb:20", ""),
        (
            "max_split_size_mb:32,large_segment_size_mb:64",
            "CachingAllocator option max_split_size_mb too small, must be >= 64",
        ),
        ("max_split_size_mb:abc", "stoull"),
        ("max_split_size_mb:99999999999999999999", "stoull"),
        ("max_split_size_mb", "Index out of bounds in ConfigTokenizer"),
        ("max_split_size_mb=128", "Index out of bounds in ConfigTokenizer"),
        (
            "max_split_size_mb:128,,expandable_segments:True",
            "Unrecognized key ',' in CUDA allocator config.",
        ),
        ("foo:1,max_split_size_mb:10", "Unrecognized key 'foo' in CUDA allocator config."),
        ("foo:[1", "Expected closing bracket ']' in ConfigTokenizer but reached end of config"),
        (
            "max_non_split_rounding_mb:10",
            "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20",
        ),
        ("roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2 "),
        (
            "roundup_power2_divisions:[64:8,100:4]",
            "For roundups, the intervals have to be power of 2 ",
        ),
        (
            "roundup_power2_divisions:[64:8,128:3]",
            "For roundups, the divisions has to be power of 2 or 0 to disable roundup ",
        ),
        ("roundup_power2_divisions:[]", ""),
        ("roundup_power2_divisions:[>:4]", ""),
        (
            "garbage_collection_threshold:1",
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)",
        ),
        ("garbage_collection_threshold:x", "stod"),
        ("garbage_collection_threshold:0.5x", ""),
        (
            "expandable_segments:true",
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'",
        ),
        (
            "large_segment_size_mb:10",
            "CachingAllocator option large_segment_size_mb must be > 10 MB",
        ),
        (
            "per_process_memory_fraction:1.5",
            "per_process_memory_fraction is invalid, set it in [0.0, 1.0]",
        ),
        ("expandable_segments_reserve:abc", ""),
        ("backend:native", ""),
        ("backend:foo", "Unknown allocator backend, options are native and cudaMallocAsync"),
        ("backend:cudaMallocAsync", ""),
        (
            "backend:cudaMallocAsync,backend:native",
            "Allocator backend parsed at runtime != allocator backend parsed at load time, native != cudaMallocAsync",
        ),
        ("pinned_num_register_threads:3", "Number of register threads has to be power of 2, got 3"),
        (
            "pinned_num_register_threads:256",
            "Number of register threads should be less than or equal to 128, got 256",
        ),
    ] {
        let found = error(Version::V2_15, text);
        assert!(found.starts_with(want) && found.is_empty() == want.is_empty(), "{text}: {found}");
    }
}

#[test]
fn texts_of_2_15_while_running() {
    for (text, want) in [
        ("foo", "Unrecognized key 'foo' in Accelerator allocator config."),
        (
            "max_split_size_mb:10,backend:foo",
            "CachingAllocator option max_split_size_mb too small, must be >= 20",
        ),
        (
            "max_split_size_mb:10,large_segment_size_mb:5",
            "CachingAllocator option large_segment_size_mb must be > 10 MB",
        ),
        (
            "backend:cudaMallocAsync",
            "Allocator backend parsed at runtime != allocator backend parsed at load time, cudaMallocAsync != native",
        ),
    ] {
        let found = Settings::new(Version::V2_15).with_text(text, false).expect_err(text);
        assert_eq!(found, want, "{text}");
    }
}

#[test]
fn texts_of_2_9() {
    for (text, want) in [
        (
            "max_split_size_mb:20",
            "CachingAllocator option max_split_size_mb too small, must be > 20",
        ),
        ("max_split_size_mb:21", ""),
        ("max_split_size_mb", "Error parsing CachingAllocator settings, expected :"),
        ("max_split_size_mb:", "Error, expecting max_split_size_mb value"),
        (
            "max_split_size_mb:64;expandable_segments:True",
            "Error parsing CachingAllocator settings, expected ,",
        ),
        ("max_split_size_mb:2147483648", "stoi"),
        ("large_segment_size_mb:32", "Unrecognized CachingAllocator option: large_segment_size_mb"),
        ("garbage_collection_threshold:0", "garbage_collect_threshold too small, set it 0.0~1.0"),
        ("garbage_collection_threshold:1", "garbage_collect_threshold too big, set it 0.0~1.0"),
        (
            "expandable_segments:true",
            "Expected a single True/False argument for expandable_segments",
        ),
        (
            "release_lock_on_hipmalloc:x",
            "Expected a single True/False argument for release_lock_on_cudamalloc",
        ),
        ("backend:cudaMallocAsync", ""),
        (
            "backend:native,backend:cudaMallocAsync",
            "Allocator backend parsed at runtime != allocator backend parsed at load time, cudaMallocAsync != native",
        ),
        ("roundup_power2_divisions:[64:8,", ""),
        ("roundup_power2_divisions:[64:", "Error parsing roundup_power2_divisions value"),
        ("roundup_power2_divisions:[x:4]", "stoul"),
    ] {
        let found = error(Version::V2_9, text);
        assert!(found.starts_with(want) && found.is_empty() == want.is_empty(), "{text}: {found}");
    }
}

#[test]
fn cryptic_errors_are_explained() {
    let found = error(Version::V2_15, "max_split_size_mb:abc");
    assert_eq!(found, "stoull (max_split_size_mb:abc: expected a whole number)");
    let found = error(Version::V2_15, "max_split_size_mb");
    assert!(found.contains("the text ends after \"max_split_size_mb\""), "{found}");
}
