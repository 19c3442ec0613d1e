//! The stand-in driver through its C functions: what it finds wrong, and that valgrind finds nothing wrong with it.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Ended, Fake};

/// Builds the C program beside the driver.
fn program(fake: &Fake) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ffi/misuse.c");
    let program = PathBuf::from(fake.path("misuse"));
    let built =
        Command::new("cc").arg("-g").arg(source).arg("-o").arg(&program).arg("-ldl").status();
    assert!(built.expect("a C compiler, as Rust's linker needs one").success());
    program
}

fn wrong<'a>(ended: &'a Ended, word: &str) -> Vec<&'a str> {
    ended.report.lines().filter(|line| line.starts_with(word)).collect()
}

#[test]
fn misuses_and_leaks_are_told() {
    let fake = Fake::new();
    let ended = fake.run_as(program(&fake), &[]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("Fake GPU A"), "{}", ended.out);
    let misuses = wrong(&ended, "misuse").join("\n");
    for part in [
        "cuMemFree_v2: Memory 0x700000200000 was given back twice",
        "cuMemFree_v2: Memory 0x1234000 was never given out",
        "stream 0x4d is none",
        "was given back twice",
        "has no context",
    ] {
        assert!(misuses.contains(part), "no {part:?} in {misuses}");
    }
    let leaks = wrong(&ended, "leak");
    assert_eq!(leaks.len(), 2, "{leaks:?}");
    assert!(leaks.iter().any(|leak| leak.contains("8192 bytes")), "{leaks:?}");
}

/// Runs under valgrind; `None` without one.
fn valgrind(fake: &Fake, program: &Path, args: &[&str]) -> Option<Ended> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("valgrind: skipped, none here");
        return None;
    }
    let program = program.display().to_string();
    let own = [
        "--error-exitcode=99",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        "-q",
        &program,
    ];
    Some(fake.run_as("valgrind", &[&own[..], args].concat()))
}

#[test]
fn valgrind_finds_nothing_in_the_driver() {
    let fake = Fake::new();
    let program = program(&fake);
    if let Some(ended) = valgrind(&fake, &program, &[]) {
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    }
}

#[test]
fn valgrind_finds_nothing_in_a_run_on_it() {
    let fake = Fake::new();
    let trace = fake.file(
        "t.jsonl",
        "{\"op\":\"alloc\",\"id\":1,\"size\":5000}\n{\"op\":\"work\",\"stream\":0,\"dur\":1000,\"reads\":[1]}\n{\"op\":\"touch\",\"id\":1,\"by\":\"device\",\"write\":true}\n{\"op\":\"copy\",\"stream\":1,\"bytes\":5000,\"dir\":\"d2h\"}\n{\"op\":\"free\",\"id\":1}\n{\"op\":\"alloc\",\"id\":2,\"size\":50000000}\n{\"op\":\"sync\"}\n",
    );
    let args = [
        "compare",
        "--trace",
        &trace,
        "--with-work",
        "--device",
        "zero",
        "--strategy",
        "cuda.malloc",
        "--strategy",
        "cuda.async_pool",
        "--strategy",
        "cuda.managed",
        "--strategy",
        "torch.caching:expandable_segments=true",
        "--strategy",
        "tiered.lru",
    ];
    let program = Path::new(env!("CARGO_BIN_EXE_vramlab-validate"));
    if let Some(ended) = valgrind(&fake, program, &args) {
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
        assert!(ended.out.contains("5 pairs: 5 equal"), "{}", ended.out);
        ended.clean();
    }
}
