//! `vramlab validate` starts another program, or says how to get it.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Runs a copy of the command in a folder of its own, with nothing on the path but a shell.
fn run(folder: &std::path::Path, args: &[&str]) -> Output {
    let program = folder.join("vramlab");
    std::fs::copy(env!("CARGO_BIN_EXE_vramlab"), &program).expect("copied");
    Command::new(program).args(args).env("PATH", folder).output().expect("it starts")
}

#[test]
fn without_the_program_it_says_how_to_build_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(folder.path(), &["validate", "probe"]);
    assert_eq!(ended.status.code(), Some(2));
    let err = String::from_utf8_lossy(&ended.stderr);
    assert!(err.contains("cargo build --release -p vramlab-validate"), "{err}");
}

#[test]
fn with_it_arguments_and_exit_codes_pass() {
    let folder = tempfile::tempdir().expect("a folder");
    let stub = folder.path().join("vramlab-validate");
    std::fs::write(&stub, "#!/bin/sh\necho \"$@\"\nexit 6\n").expect("written");
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755))
        .expect("made a program");
    let ended = run(folder.path(), &["validate", "measure", "--limit", "1GiB", "--format", "json"]);
    assert_eq!(ended.status.code(), Some(6));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "measure --limit 1GiB --format json\n");
}

#[test]
fn replay_with_a_plugin_is_its_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let stub = folder.path().join("vramlab-validate");
    std::fs::write(&stub, "#!/bin/sh\necho \"$@\"\n").expect("written");
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755))
        .expect("made a program");
    let file = folder.path().join("t.jsonl").display().to_string();
    std::fs::write(&file, "").expect("written");
    let printed = |args: &[&str]| {
        let ended = run(folder.path(), args);
        (ended.status.code(), String::from_utf8_lossy(&ended.stdout).trim().to_owned())
    };
    let args = ["replay", &file, "--plugin", "lib.so", "--capacity", "1KiB", "--plugin-fns", "a,f"];
    let expected = format!(
        "replay --plugin lib.so --alloc-fn a --free-fn f --limit 1024 --format json --trace {file}"
    );
    assert_eq!(printed(&[&args[..], &["--format", "json"]].concat()), (Some(0), expected));
    let expected = "replay --plugin lib.so --device zero churn".to_owned();
    let args = ["replay", "churn", "--plugin", "lib.so", "--device", "zero"];
    assert_eq!(printed(&args), (Some(0), expected));
    for wrong in [
        &["--verify"][..],
        &["--strategy", "cuda.malloc"],
        &["--plugin-fns", "a"],
        &["--format", "csv"],
    ] {
        let args = [&["replay", "churn", "--plugin", "lib.so"], wrong].concat();
        assert_eq!(printed(&args), (Some(2), String::new()), "{wrong:?}");
    }
}
