//! Calls of the command, for tests.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

pub(crate) mod pickle;

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// Runs and gives (exit code, standard output, standard error).
pub(crate) fn call(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab")).args(args).output();
    let output = output.expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

/// Rows of a call with `--format json`, which must end with `code`.
pub(crate) fn rows(code: i32, args: &[&str]) -> (Vec<Value>, String) {
    let (found, out, err) = call(&[args, &["--format", "json"]].concat());
    assert_eq!(found, code, "{args:?}: {out}{err}");
    (out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect(), err)
}

/// Of rows those of this kind.
pub(crate) fn of_kind(rows: Vec<Value>, kind: &str) -> Vec<Value> {
    rows.into_iter().filter(|row| row["kind"] == kind).collect()
}

/// A folder for the files of a test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), content).expect("written");
        self.path(name)
    }
}

/// Path of a recording in the repository.
pub(crate) fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/examples");
    folder.join(name).display().to_string()
}
