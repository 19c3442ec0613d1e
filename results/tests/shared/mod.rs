//! Where the bigger sets of recordings and cases lie: `$VRAMLAB_SHARED`, or `../shared` beside the repository.

use std::path::{Path, PathBuf};

/// The folder `name` of the shared sets. Without it: a line, and a failure if `VRAMLAB_REQUIRE_SHARED=1`.
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VRAMLAB_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var("VRAMLAB_REQUIRE_SHARED").is_ok_and(|v| v == "1");
    assert!(!required, "{name}: no folder {}, and VRAMLAB_REQUIRE_SHARED=1", folder.display());
    println!("{name}: skipped, no shared folder");
    None
}
