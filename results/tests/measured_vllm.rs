//! Our server beside measured runs of vLLM.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use vramlab::measured::recorded::runs;
use vramlab::measured::table::{Line, capacity_and_curve};

/// The folder of measured runs, if there is one.
fn folder() -> Option<PathBuf> {
    let shared = std::env::var_os("VRAMLAB_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let folder = shared.join("traces/vllm_measured");
    let found = folder.is_dir();
    assert!(
        found || std::env::var("VRAMLAB_REQUIRE_SHARED").as_deref() != Ok("1"),
        "expected measured runs in the shared folder, found none"
    );
    found.then_some(folder)
}
