//! Golden cases of PyTorch's caching allocator as plain structs, and the comparison of any allocator with them.
//!
//! | file | is |
//! |---|---|
//! | `ops` | operations of a trace, read and written |
//! | `rows` | rows of `steps.csv` and `calls.csv`, the FNV-1a digest, those files as tables |
//! | `table` | the block table, its digest text, its JSON |
//! | `case` | a case folder, loaded |
//! | `runner` | `GoldenSubject`, the comparison, the first difference |
//!
//! Fields and columns that are not known here are ignored; a known one that is absent is not compared.
#![allow(
    dead_code,
    unused_imports,
    reason = "shared by several programs, each of which uses a part"
)]

mod case;
mod ops;
mod rows;
mod runner;
#[path = "../shared_folder/mod.rs"]
pub(crate) mod shared_folder;
mod table;

pub(crate) use case::Case;
pub(crate) use ops::{TraceOp, read_trace};
pub(crate) use rows::{CallRow, FNV_START, StepResult, StepStats, fnv, step_row};
pub(crate) use runner::{CaseReport, Difference, GoldenSubject, Totals, UNDEFINED, compare};
pub(crate) use table::{State, TableBlock, TableSegment, digest_text};

use std::path::Path;

/// Runs the committed cases, and the shared set (or says why not). `make` gives the subject of a case, or why its settings were refused.
///
/// Prints `<name>: N of N cases, M ops, 0 differences`.
pub(crate) fn golden(name: &str, make: impl Fn(&Case) -> Result<Box<dyn GoldenSubject>, String>) {
    run(&format!("{name} (committed)"), &shared_folder::committed("pytorch"), &make);
    match shared_folder::shared("golden/pytorch") {
        Some(folder) => run(name, &folder, &make),
        None => println!("{name}: skipped, no shared folder"),
    }
}

fn run(name: &str, root: &Path, make: &impl Fn(&Case) -> Result<Box<dyn GoldenSubject>, String>) {
    let mut totals = Totals::default();
    for folder in Case::folders(root) {
        let case =
            Case::load(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        totals.add(compare(&case, make(&case)));
    }
    shared_folder::keep(name, totals.cases, totals.equal, totals.ops, totals.differences);
    println!("{name}: {totals}");
    for first in &totals.firsts {
        println!("{first}");
    }
    assert!(totals.cases > 0, "expected cases in {}, found none", root.display());
    assert_eq!(totals.differences, 0, "expected no difference, found {}", totals.differences);
}
