//! `vramlab validate` and `replay --plugin`, which start another program: with a stand-in for that, and without it.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A folder with this program, and a script in place of the other that prints its arguments and ends with a code.
fn folder(script: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(env!("CARGO_BIN_EXE_vramlab"), folder.path().join("vramlab")).expect("copied");
    if let Some(script) = script {
        let path = folder.path().join("vramlab-validate");
        std::fs::write(&path, script).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    }
    folder
}

fn run(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(folder.join("vramlab")).args(args).env("PATH", "/nowhere").output();
    let output = output.expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn validate_hands_its_arguments_on_and_ends_as_the_other_does() {
    let folder = folder(Some("#!/bin/sh\necho \"$@\"\nexit 6\n"));
    let (code, out, _) = run(folder.path(), &["validate", "probe", "--format", "json", "--help"]);
    assert_eq!((code, out.trim()), (Some(6), "probe --format json --help"));
    let (code, ..) = run(folder.path(), &["validate"]);
    assert_eq!(code, Some(6));
}

#[test]
fn a_plugin_is_driven_by_the_other_program() {
    let folder = folder(Some("#!/bin/sh\necho \"$@\"\n"));
    let file = folder.path().join("t.jsonl").display().to_string();
    std::fs::write(&file, "").expect("written");
    let args = ["replay", &file, "--plugin", "lib.so", "--capacity", "1KiB", "--plugin-fns", "a,f"];
    let (code, out, err) = run(folder.path(), &[&args[..], &["--format", "json"]].concat());
    let expected = format!(
        "replay --plugin lib.so --alloc-fn a --free-fn f --limit 1024 --format json --trace {file}"
    );
    assert_eq!((code, out.trim()), (Some(0), expected.as_str()), "{err}");
    let (_, out, _) =
        run(folder.path(), &["replay", "churn", "--plugin", "lib.so", "--device", "zero"]);
    assert_eq!(out.trim(), "replay --plugin lib.so --device zero churn");
    for wrong in [
        &["--verify"][..],
        &["--strategy", "cuda.malloc"],
        &["--plugin-fns", "a"],
        &["--format", "csv"],
    ] {
        let (code, _, err) =
            run(folder.path(), &[&["replay", "churn", "--plugin", "lib.so"], wrong].concat());
        assert_eq!(code, Some(2), "{wrong:?}: {err}");
    }
}

#[test]
fn without_the_other_program_it_says_how_to_make_it() {
    let folder = folder(None);
    let (code, _, err) = run(folder.path(), &["validate", "probe"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("cargo build -p vramlab-validate"), "{err}");
    let folder = self::folder(Some("#!/bin/sh\nkill -9 $$\n"));
    let (code, _, err) = run(folder.path(), &["validate", "probe"]);
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("ended by a signal"), "{err}");
}
