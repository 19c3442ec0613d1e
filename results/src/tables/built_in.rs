//! Experiments that are built into the program: the files of `results/experiments`.

use std::path::Path;

use vramlab_allocators::options::nearest;
use vramlab_sim::units::Bytes;

use super::experiment::{Experiment, Source};
use crate::failure::Failure;
use crate::inputs::small_text;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../experiments/", $name, ".toml")))),*]
    };
}

/// Name and text of each, in the order in which tables are printed.
pub const ALL: &[(&str, &str)] = files![
    "s01_bert_peak",
    "s02_bert_throughput",
    "s03_ocr_latency",
    "s04_fusion",
    "s05_checkpointing",
    "s06_offload",
    "s07_batch_size",
    "s08_dynamic_batching",
    "s09_prefetch_accuracy",
    "s10_precision",
    "s11_cpython",
    "s12_fragmentation_loop",
    "s13_deletion_threshold",
    "s14_serving_memory",
    "s15_loading",
    "s16_accumulation",
    "s17_paddle_settings",
    "s18_mixed_precision",
    "r01_cache_blocks",
    "r02_counted_memory",
    "r03_growing_logits",
    "r04_rounding",
    "r06_segments",
    "r07_pages",
    "r09_idle_pages",
    "r11_arena_policies",
    "r12_paddle_merging",
    "r13_idle_regions",
    "r14_run_ahead",
    "r15_static_plan",
    "r17_cache_of_a_4090",
    "h01_gmlake",
    "h04_stalloc",
    "h05_static_order",
    "h06_serving_layouts",
    "h09_shared_processes",
    "h10_estimates",
    "d_static_plans",
    "matrix_strategies",
    "measured_golden",
    "measured_models",
    "measured_placement",
    "measured_servers",
];

/// Most bytes of an experiment's file.
const FILE_MAX: Bytes = Bytes::mib(1);

/// The built-in experiment of this name, or the file of this path.
///
/// # Errors
/// No such experiment, or a file that is none.
pub fn find(name: &str) -> Result<Experiment, Failure> {
    if let Some((name, text)) = ALL.iter().find(|(known, _)| *known == name) {
        return Experiment::parse(Source {
            name: (*name).to_owned(),
            path: format!("results/experiments/{name}.toml"),
            text: (*text).to_owned(),
        });
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "toml") {
        let hint = nearest(name, ALL.iter().map(|(known, _)| *known));
        return Err(Failure::usage(format!(
            "no table is called {name:?}; {hint}; or give the path of a file that ends in .toml"
        )));
    }
    let text = small_text(path, FILE_MAX, "an experiment's TOML file")?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Experiment::parse(Source { name: stem, path: name.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::make::cells_of;

    #[test]
    fn every_file_of_the_folder_is_there_and_is_an_experiment() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("folder")
            .map(|entry| entry.expect("entry").path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
            .map(|path| path.file_stem().expect("name").to_string_lossy().into_owned())
            .collect();
        files.sort();
        let mut names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
        for name in names {
            let experiment = find(name).unwrap_or_else(|e| panic!("{e}"));
            for quick in [false, true] {
                cells_of(&experiment, quick).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}
