//! Which settings texts the real allocator takes: answers recorded from torch 2.15.0 and 2.9.1, and what the reference says.
#![forbid(unsafe_code)]

mod golden_format;
mod reference;

use reference::{Reference, Version};

/// A settings text, whether 2.15.0 takes it, whether 2.9.1 does.
const TEXTS: &[(&str, bool, bool)] = &[
    ("max_split_size_mb:19", false, false),
    ("max_split_size_mb:20", true, false),
    ("max_split_size_mb:21", true, true),
    ("max_split_size_mb:-1", true, true),
    ("max_split_size_mb:", false, false),
    ("max_split_size_mb", false, false),
    ("max_split_size_mb:32abc", true, true),
    ("max_split_size_mb:32.7", true, true),
    ("max_split_size_mb:1e2", false, false),
    ("max_split_size_mb:99999999999999999999", false, false),
    ("max_split_size_mb:18446744073709551615", true, false),
    ("max_split_size_mb: 32 ", true, true),
    ("max_split_size_mb:+32", true, true),
    ("max_split_size_mb:0x20", false, false),
    ("max_split_size_mb:0", false, false),
    ("max_non_split_rounding_mb:20", true, false),
    ("max_non_split_rounding_mb:21", true, true),
    ("max_non_split_rounding_mb:5", false, false),
    ("garbage_collection_threshold:0", false, false),
    ("garbage_collection_threshold:1", false, false),
    ("garbage_collection_threshold:1.0", false, false),
    ("garbage_collection_threshold:0.5x", true, true),
    ("garbage_collection_threshold:nan", false, false),
    ("garbage_collection_threshold:.5", true, true),
    ("garbage_collection_threshold:5e-1", true, true),
    ("roundup_power2_divisions:0", false, false),
    ("roundup_power2_divisions:3", false, false),
    ("roundup_power2_divisions:4", true, true),
    ("roundup_power2_divisions:[]", true, true),
    ("roundup_power2_divisions:[4:0]", true, true),
    ("roundup_power2_divisions:[3:4]", false, false),
    ("roundup_power2_divisions:[4:3]", false, false),
    ("roundup_power2_divisions:[0:4]", false, false),
    ("roundup_power2_divisions:[4:2,", false, true),
    ("roundup_power2_divisions:[4:2", false, false),
    ("roundup_power2_divisions:[4:2,]", true, true),
    ("roundup_power2_divisions:[>:2]", true, true),
    ("roundup_power2_divisions:[>:2,4:8]", true, true),
    ("roundup_power2_divisions:[4:2 8:2]", false, false),
    ("roundup_power2_divisions:[131072:4]", true, true),
    ("roundup_power2_divisions:[4:2][8:4]", false, false),
    ("roundup_power2_divisions:[64:8,4:2]", true, true),
    ("roundup_power2_divisions:1024", true, true),
    ("roundup_power2_divisions:[4,2]", true, false),
    ("expandable_segments:true", false, false),
    ("expandable_segments:True", true, true),
    ("expandable_segments:1", false, false),
    ("expandable_segments:TRUE", false, false),
    ("expandable_segments:", false, false),
    ("expandable_segments", false, false),
    ("backend:native", true, true),
    ("backend:foo", false, false),
    ("foo:1", false, false),
    ("foo", false, false),
    ("", true, true),
    (",", false, false),
    (",,", false, false),
    ("max_split_size_mb:32,", true, true),
    ("max_split_size_mb:32,,expandable_segments:True", false, false),
    (",max_split_size_mb:32", false, false),
    ("max_split_size_mb:32 expandable_segments:True", false, false),
    ("max_split_size_mb:32;expandable_segments:True", false, false),
    ("max_split_size_mb=32", false, false),
    ("Max_split_size_mb:32", false, false),
    ("max_split_size_mb:32,max_split_size_mb:64", true, true),
    ("max_split_size_mb:10,max_split_size_mb:64", false, false),
    ("large_segment_size_mb:10", false, false),
    ("large_segment_size_mb:11", true, false),
    ("large_segment_size_mb:0", false, false),
    ("large_segment_size_mb:40,max_split_size_mb:30", false, false),
    ("max_split_size_mb:30,large_segment_size_mb:40", false, false),
    ("max_split_size_mb:40,large_segment_size_mb:40", true, false),
    ("max_non_split_rounding_mb:30,large_segment_size_mb:40", false, false),
    ("large_segment_size_mb:12,max_split_size_mb:15", true, false),
    ("per_process_memory_fraction:1.1", false, false),
    ("per_process_memory_fraction:-0.1", false, false),
    ("per_process_memory_fraction:0", true, false),
    ("per_process_memory_fraction:1", true, false),
    ("throw_on_cudamalloc_oom:1", false, false),
    ("throw_on_cudamalloc_oom:True", true, false),
    ("release_lock_on_cudamalloc:True", true, true),
    ("release_lock_on_hipmalloc:True", true, true),
    ("release_lock_on_cudamalloc:1", false, false),
    ("pinned_use_cuda_host_register:True", true, true),
    ("pinned_use_hip_host_register:True", true, true),
    ("pinned_num_register_threads:8", true, true),
    ("pinned_num_register_threads:3", false, false),
    ("pinned_num_register_threads:0", false, false),
    ("pinned_num_register_threads:1024", false, false),
    ("pinned_reserve_segment_size_mb:64", true, false),
    ("pinned_reserve_segment_size_mb:0", false, false),
    ("pinned_use_background_threads:True", true, true),
    ("pinned_max_round_threshold_mb:64", true, false),
    ("pinned_max_cached_size_mb:64", true, false),
    ("pinned_free_catch_all:True", true, false),
    ("graph_capture_record_stream_reuse:True", true, true),
    ("per_process_memory_fraction:nan", false, false),
    ("expandable_segments_handle_type:posix_fd", false, false),
    ("pinned_max_power2_size_mb:64", false, false),
];

#[test]
fn settings_are_taken_and_refused_as_by_the_real_one() {
    let mut wrong = Vec::new();
    for (text, newer, older) in TEXTS {
        for (version, expected) in [(Version::V2_15, *newer), (Version::V2_9, *older)] {
            let found = Reference::new(version, text, 1 << 30);
            if found.is_ok() != expected {
                let taken = |is: bool| if is { "taken" } else { "refused" };
                wrong.push(format!(
                    "{version:?}, {text}: expected {}, found {} ({:?})",
                    taken(expected),
                    taken(found.is_ok()),
                    found.err()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
