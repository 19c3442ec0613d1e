//! The stand-in driver through its C functions: what it finds wrong, and that valgrind finds nothing wrong with it.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};

use support::{Ended, Fake};

fn wrong<'a>(ended: &'a Ended, word: &str) -> Vec<&'a str> {
    ended.report.lines().filter(|line| line.starts_with(word)).collect()
}

#[test]
fn misuses_and_leaks_are_told() {
    let fake = Fake::new();
    let Some(program) = fake.compile("misuse.c", "misuse", &[]) else { return };
    let ended = fake.run_as(program, &[]);
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

#[test]
fn valgrind_finds_nothing_in_the_driver() {
    let fake = Fake::new();
    let Some(program) = fake.compile("misuse.c", "misuse", &[]) else { return };
    if let Some(ended) = fake.valgrind(&program, &[]) {
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
    if let Some(ended) = fake.valgrind(program, &args) {
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
        assert!(ended.out.contains("5 pairs: 5 equal"), "{}", ended.out);
        ended.clean();
    }
}

/// Builds the program that uses the stand-in for the runtime.
fn on_the_runtime(fake: &Fake) -> Option<PathBuf> {
    let folder = format!("-L{}", fake.path(""));
    fake.compile("runtime.c", "runtime", &[&folder, "-l:libcudart.so.13"])
}

#[test]
fn the_runtime_keeps_the_books_of_the_driver() {
    let fake = Fake::with_runtime();
    let Some(program) = on_the_runtime(&fake) else { return };
    let ended = fake.run_as(&program, &[]);
    assert_eq!((ended.code, ended.out.trim()), (0, "done"), "{}{}", ended.out, ended.err);
    assert!(ended.report.contains("called cuMemAllocHost_v2 1"), "{}", ended.report);
    assert_eq!(wrong(&ended, "leak").len(), 0, "{}", ended.report);
    let misuses = wrong(&ended, "misuse");
    assert_eq!(misuses.len(), 1, "{misuses:?}");
    assert!(misuses[0].contains("was given back twice"), "{misuses:?}");
    // capacity and faults are the driver's
    let fake = fake.set("FAIL", "cuMemAlloc_v2#1=out_of_memory");
    let ended = fake.run_as(&program, &[]);
    assert!(ended.out.contains("cudaMalloc(&one, 10 << 20) gave 2"), "{}", ended.out);
    // without a driver: each call says so
    let bare = Fake::with_runtime();
    let Some(program) = on_the_runtime(&bare) else { return };
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::remove_file(bare.path(name)).expect("removed");
    }
    let ended = bare.run_as(&program, &[]);
    assert!(ended.out.contains("cudaGetDeviceCount(&count) gave 35"), "{}", ended.out);
}

#[test]
fn valgrind_finds_nothing_in_the_runtime() {
    let fake = Fake::with_runtime();
    let Some(program) = on_the_runtime(&fake) else { return };
    if let Some(ended) = fake.valgrind(&program, &[]) {
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    }
}
