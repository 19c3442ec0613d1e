//! Settings that can have no effect as given, and why: sentences for someone whose run is in trouble.

use crate::options::Options;

use super::settings::{Backend, LARGE_SEGMENT_SIZE, MIB, OPTIONS, Settings, Version};

/// One sentence for each setting that does nothing here. A spec that is refused has none.
pub(super) fn inert(options: &Options) -> Vec<String> {
    let Ok(settings) = Settings::from_options(options) else { return Vec::new() };
    if settings.version == Version::Legacy {
        return Vec::new();
    }
    let text = options.get("conf").unwrap_or_default();
    let named = |key: &str| options.get(key).is_some() || words(text).any(|word| word == key);
    let mut found = Vec::new();
    if settings.backend == Backend::CudaMallocAsync {
        asynchronous(&named, &mut found);
        return found;
    }
    collection(&settings, &named, &mut found);
    splitting(&settings, &named, &mut found);
    expandable(&settings, &named, &mut found);
    others(&settings, &named, &mut found);
    found
}

/// With the other backend (`CUDAAllocatorConfig::parseArgs` warns of some).
fn asynchronous(named: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    if named("per_process_memory_fraction") {
        found.push("per_process_memory_fraction is not read by backend:cudaMallocAsync: call set_per_process_memory_fraction".into());
    }
    let caching = OPTIONS.iter().map(|option| option.name).filter(|name| {
        !matches!(*name, "version" | "conf" | "backend" | "per_process_memory_fraction")
    });
    let others = [
        "expandable_segments_reserve_by_class",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "graph_capture_record_stream_reuse",
    ];
    for name in caching.chain(others).filter(|name| named(name)) {
        found.push(format!("{name} is ignored by backend:cudaMallocAsync: it is about the caching allocator, which is not in use"));
    }
    host(named, found);
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ':', '[', ']']).map(str::trim)
}

fn collection(settings: &Settings, named: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    if !named("garbage_collection_threshold") {
        return;
    }
    if settings.fraction >= 1.0 {
        let how = if settings.version == Version::V2_15 {
            "set per_process_memory_fraction below 1, or call set_per_process_memory_fraction"
        } else {
            "call set_per_process_memory_fraction"
        };
        found.push(format!(
            "garbage_collection_threshold does nothing without a memory limit: its threshold is a share of that limit; {how}"
        ));
    } else if settings.expandable {
        found.push(
            "garbage_collection_threshold does nothing with expandable_segments on: blocks of expandable segments are never collected".into(),
        );
    }
}

fn splitting(settings: &Settings, named: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    if named("max_non_split_rounding_mb") && settings.max_split.is_none() {
        found.push(
            "max_non_split_rounding_mb does nothing without max_split_size_mb: without a limit every block may be split".into(),
        );
    }
    if settings.expandable && named("max_split_size_mb") {
        found.push(
            "max_split_size_mb does not stop splitting with expandable_segments on: their blocks are split at any size; it only keeps requests below it away from free blocks above it".into(),
        );
    }
    if named("roundup_power2_divisions") && settings.divisions.iter().all(|n| *n <= 1) {
        found.push(
            "roundup_power2_divisions of 1 or 0 rounds nothing up: only 2 and more divisions do"
                .into(),
        );
    }
    if named("large_segment_size_mb") && settings.large_segment == LARGE_SEGMENT_SIZE {
        found.push(format!(
            "large_segment_size_mb is at its default of {}: nothing changes",
            LARGE_SEGMENT_SIZE / MIB
        ));
    }
}

fn expandable(settings: &Settings, named: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    if settings.expandable {
        if named("expandable_segments_reserve") && settings.expandable_reserve.is_none() {
            found.push(
                "expandable_segments_reserve is ignored by PyTorch: expected a positive fraction such as 0.5, or a size such as 40G".into(),
            );
        }
    } else {
        if named("expandable_segments_reserve") {
            found.push(
                "expandable_segments_reserve does nothing without expandable_segments".into(),
            );
        }
        if named("expandable_segments") {
            found.push("expandable_segments is off, which is the default: nothing changes".into());
        }
    }
    if named("expandable_segments_reserve_by_class") {
        found.push("expandable_segments_reserve_by_class does nothing here: it is for streams that a program put into classes".into());
    }
}

fn others(settings: &Settings, named: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    if named("per_process_memory_fraction") && settings.fraction >= 1.0 {
        found.push("per_process_memory_fraction of 1 means no limit at all, and so no garbage collection: nothing changes".into());
    }
    if named("throw_on_cudamalloc_oom") && !settings.throw_on_oom {
        found.push("throw_on_cudamalloc_oom is off, which is the default: nothing changes".into());
    }
    host(named, found);
    for key in ["release_lock_on_cudamalloc", "release_lock_on_hipmalloc"]
        .into_iter()
        .filter(|key| named(key))
    {
        found.push(format!("{key} lets other threads go on during an allocation: what is placed where does not change"));
    }
    if named("graph_capture_record_stream_reuse") {
        found.push("graph_capture_record_stream_reuse is accepted, and its effect on captures is not modelled".into());
    }
    if named("backend") {
        found.push("backend:native is the default: nothing changes".into());
    }
}

/// Settings of pinned host memory.
fn host(named: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
    let keys = [
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "pinned_num_register_threads",
        "pinned_use_background_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_free_catch_all",
        "pinned_max_round_threshold_mb",
        "pinned_max_cached_size_mb",
    ];
    for key in keys.into_iter().filter(|key| named(key)) {
        found.push(format!(
            "{key} is about pinned host memory (torch.pinned_host): device memory is not touched by it"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> String {
        inert(&Options::from_pairs(pairs.iter().copied())).join("; ")
    }

    #[test]
    fn each_idle_setting_is_named_with_its_reason() {
        for (pairs, want) in [
            (&[("garbage_collection_threshold", "0.8")][..], "without a memory limit"),
            (&[("conf", "garbage_collection_threshold:0.8")][..], "without a memory limit"),
            (
                &[
                    ("garbage_collection_threshold", "0.8"),
                    ("per_process_memory_fraction", "0.5"),
                    ("expandable_segments", "true"),
                ][..],
                "never collected",
            ),
            (&[("roundup_power2_divisions", "1")][..], "rounds nothing up"),
            (&[("max_non_split_rounding_mb", "64")][..], "without max_split_size_mb"),
            (&[("expandable_segments_reserve", "0.5")][..], "without expandable_segments"),
            (&[("per_process_memory_fraction", "1.0")][..], "no limit at all"),
            (&[("throw_on_cudamalloc_oom", "false")][..], "is off"),
            (&[("large_segment_size_mb", "20")][..], "default of 20"),
            (&[("conf", "pinned_use_cuda_host_register:True")][..], "pinned host memory"),
            (
                &[("conf", "backend:cudaMallocAsync,max_split_size_mb:128")][..],
                "max_split_size_mb is ignored by backend:cudaMallocAsync",
            ),
            (
                &[("backend", "cudaMallocAsync"), ("per_process_memory_fraction", "0.5")][..],
                "call set_per_process_memory_fraction",
            ),
        ] {
            assert!(of(pairs).contains(want), "{pairs:?}: {}", of(pairs));
        }
    }

    #[test]
    fn settings_that_act_are_not_named() {
        for pairs in [
            &[][..],
            &[("max_split_size_mb", "128")][..],
            &[("backend", "cudaMallocAsync")][..],
            &[("garbage_collection_threshold", "0.8"), ("per_process_memory_fraction", "0.5")][..],
            &[("expandable_segments", "true"), ("expandable_segments_reserve", "0.5")][..],
            &[("max_split_size_mb", "128"), ("max_non_split_rounding_mb", "64")][..],
        ] {
            assert_eq!(of(pairs), "", "{pairs:?}");
        }
    }
}
