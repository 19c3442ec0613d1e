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
mod table;

pub(crate) use case::Case;
pub(crate) use ops::{TraceOp, read_trace};
pub(crate) use rows::{CallRow, FNV_START, StepResult, StepStats, fnv, step_row};
pub(crate) use runner::{CaseReport, Difference, GoldenSubject, Totals, UNDEFINED, compare};
pub(crate) use table::{State, TableBlock, TableSegment, digest_text};

use std::path::{Path, PathBuf};

/// The cases of one system in one place.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) root: PathBuf,
}

/// The committed choice for a system.
pub(crate) fn committed(system: &str) -> Place {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(system);
    Place { name: "committed", root }
}

/// The set in the shared folder: `VRAMLAB_SHARED`, else `shared` beside the repository. An error says why there is none;
/// it is fatal if `VRAMLAB_REQUIRE_SHARED` is 1.
pub(crate) fn shared(system: &str) -> Result<Place, String> {
    let folder = match std::env::var_os("VRAMLAB_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    let root = folder.join("golden").join(system);
    if root.is_dir() {
        return Ok(Place { name: "shared", root });
    }
    assert!(
        std::env::var("VRAMLAB_REQUIRE_SHARED").as_deref() != Ok("1"),
        "expected the golden set {system} in the shared folder, found none"
    );
    Err("no shared folder".into())
}
