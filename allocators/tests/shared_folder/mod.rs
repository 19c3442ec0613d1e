//! Where golden sets and recordings are, and their text, which may be gzipped.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A folder of the shared folder, such as `golden/bfc`: that of `VRAMLAB_SHARED`, else `shared` beside the repository. `None` if it is not
/// there, which is a failure if `VRAMLAB_REQUIRE_SHARED` is 1.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("VRAMLAB_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    let found = Some(folder.join(name)).filter(|folder| folder.is_dir());
    assert!(
        found.is_some() || std::env::var("VRAMLAB_REQUIRE_SHARED").as_deref() != Ok("1"),
        "expected {name} in the shared folder, found none"
    );
    found
}

/// Leaves what a golden test found for `vramlab tables measured_golden`: `NAME.json` in the folder `VRAMLAB_GOLDEN`, or in `target/tmp`.
pub(crate) fn keep(name: &str, cases: usize, equal: usize, ops: usize, differences: usize) {
    let name = name.replace(" (committed)", "_committed");
    let folder = std::env::var_os("VRAMLAB_GOLDEN").map(PathBuf::from);
    let Some(folder) = folder.or_else(|| option_env!("CARGO_TARGET_TMPDIR").map(PathBuf::from))
    else {
        return;
    };
    let text = format!(
        "{{\"cases\":{cases},\"equal\":{equal},\"ops\":{ops},\"differences\":{differences}}}\n"
    );
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join(format!("{name}.json")), text));
    written.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
}

/// The committed choice of a golden set.
pub(crate) fn committed(system: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(system)
}

/// The text of a file, whether that is gzipped or not.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let read = || {
        let bytes = std::fs::read(path)?;
        let mut text = String::new();
        match bytes.starts_with(&[0x1f, 0x8b]) {
            true => flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text)?,
            false => (&*bytes).read_to_string(&mut text)?,
        };
        Ok::<_, std::io::Error>(text)
    };
    read().map_err(|error| format!("{}: {error}", path.display()))
}
