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
