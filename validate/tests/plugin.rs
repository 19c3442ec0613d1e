//! `replay --plugin`: allocator libraries for PyTorch, driven without a GPU.
#![cfg(target_os = "linux")]

mod support;

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use support::{Ended, Fake, library};

/// The C library of this kind, linked with the stand-in for the runtime.
fn compiled(fake: &Fake, which: u32) -> Option<String> {
    let define = format!("-DWHICH={which}");
    let folder = format!("-L{}", fake.path(""));
    let name = format!("allocator{which}.so");
    let more = ["-shared", "-fPIC", &define, &folder, "-l:libcudart.so.13"];
    // what nobody has is found out when it is loaded
    fake.compile("allocators.c", &name, &more).map(|path| path.display().to_string())
}

fn row(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    serde_json::from_str(&ended.out).expect("one JSON object")
}

const WORKLOAD: [&str; 7] = ["churn", "--set", "allocs=400", "--format", "json", "--limit", "8GiB"];

#[test]
fn a_library_over_the_runtime_gives_what_the_strategy_of_the_same_rules_gives() {
    let fake = Fake::with_runtime().set("DEVICE", "generic").set("CAPACITY", "8GiB");
    let Some(so) = compiled(&fake, 0) else { return };
    let plugged = row(&fake.run(&[&["replay", "--plugin", &so][..], &WORKLOAD].concat()));
    let own = row(&fake.run(&[&["replay", "--strategy", "cuda.malloc"][..], &WORKLOAD].concat()));
    assert!(plugged["peak_reserved"].as_u64() > Some(0), "{plugged}");
    for figure in ["peak_reserved", "live_floor", "ops", "ooms"] {
        assert_eq!(plugged[figure], own[figure], "{figure}: {plugged}");
    }
    assert_eq!(plugged["driver_calls"]["cudaMalloc"], own["driver_calls"]["cudaMalloc"]);
    assert_eq!(plugged["driver_calls"]["cudaFree"], own["driver_calls"]["cudaFree"]);
    assert_eq!(plugged["strategy"], "plugin allocator0.so");
}

#[test]
fn our_own_library_gives_what_its_strategy_gives() {
    for strategy in ["torch.caching", "torch.caching:expandable_segments=true", "rmm.pool"] {
        let fake = Fake::new().set("DEVICE", "generic").set("CAPACITY", "8GiB");
        let fake = fake.env("VRAMLAB_STRATEGY", strategy).env("VRAMLAB_LIMIT", "8GiB");
        let so = library("vramlab_torch").display().to_string();
        let plugged = row(&fake.run(&[&["replay", "--plugin", &so][..], &WORKLOAD].concat()));
        let own = row(&fake.run(&[&["replay", "--strategy", strategy][..], &WORKLOAD].concat()));
        for figure in ["live_floor", "ops", "ooms", "peak_reserved"] {
            assert_eq!(plugged[figure], own[figure], "{strategy}: {figure}: {plugged}");
        }
        for call in ["cudaMalloc", "cuMemCreate", "cuMemMap"] {
            let of = |row: &Value| row["driver_calls"][call].clone();
            assert_eq!(of(&plugged), of(&own), "{strategy}: {call}");
        }
    }
}

#[test]
fn streams_and_out_of_memory_reach_the_library() {
    let fake = Fake::new().env("VRAMLAB_STRATEGY", "torch.caching");
    let so = library("vramlab_torch").display().to_string();
    let trace = fake.file(
        "t.jsonl",
        "{\"op\":\"alloc\",\"id\":1,\"size\":5000,\"stream\":3}\n{\"op\":\"record_stream\",\"id\":1,\"stream\":4}\n{\"op\":\"work\",\"stream\":4,\"dur\":1000,\"reads\":[1]}\n{\"op\":\"alloc\",\"id\":2,\"size\":99000000000}\n{\"op\":\"free\",\"id\":1}\n{\"op\":\"empty_cache\"}\n{\"op\":\"kv_new\",\"seq\":1,\"tokens\":100}\n{\"op\":\"kv_free\",\"seq\":1}\n",
    );
    let args = ["replay", "--plugin", &so, "--trace", &trace, "--format", "json", "--with-work"];
    let row = row(&fake.run(&args));
    assert_eq!((row["outcome"].as_str(), row["ooms"].as_u64()), (Some("oom"), Some(1)), "{row}");
    assert!(row["driver_calls"]["cudaEventRecord"].as_u64() > Some(0), "record_stream: {row}");
}

#[test]
fn a_broken_library_is_told_what_is_wrong_with_it() {
    let fake = Fake::with_runtime();
    let refused = |path: &str, more: &[&str], code: i32, parts: &[&str]| {
        let ended = fake.run(&[&["replay", "churn", "--plugin", path][..], more].concat());
        assert_eq!(ended.code, code, "{path}: {}{}", ended.out, ended.err);
        for part in parts.iter().chain([&path]) {
            assert!(ended.err.contains(part), "{path}: no {part:?} in {}", ended.err);
        }
    };
    refused(&fake.path("nowhere.so"), &[], 3, &["cannot be opened"]);
    refused(&fake.file("text.so", "no library at all"), &[], 3, &["found no shared library"]);
    refused(&fake.file("short.so", "\x7fELF"), &[], 3, &["found no shared library"]);
    let own = std::fs::read(library("vramlab_torch")).expect("it can be read");
    let with = |name: &str, at: usize, byte: u8| {
        let mut bytes = own.clone();
        bytes[at] = byte;
        fake.file(name, bytes)
    };
    refused(&with("32.so", 4, 1), &[], 3, &["32 bits"]);
    refused(&with("object.so", 16, 1), &[], 3, &["link it with -shared"]);
    let other = if cfg!(target_arch = "aarch64") { 62 } else { 183 };
    refused(&with("other.so", 18, other), &[], 3, &["found a library for", "expected one for"]);
    refused(&fake.file("cut.so", &own[..5000]), &[], 3, &["found 5000 bytes", "was cut off"]);
    refused(&fake.file("head.so", &own[..100]), &[], 3, &["cut off or damaged"]);
    // its first page is there, the rest is noise: the loader itself may die of that
    let mut noise = vec![0_u8; own.len()];
    noise[..4096].copy_from_slice(&own[..4096]);
    let ended = fake.run(&["replay", "churn", "--plugin", &fake.file("noise.so", noise)]);
    assert!(matches!(ended.code, 3 | 4), "{}", ended.err);
    let told = ["the loader refuses it", "while the library was loaded"];
    assert!(told.iter().any(|part| ended.err.contains(part)), "{}", ended.err);

    // no functions, or none of these names
    let driver = support::fake_driver().display().to_string();
    refused(&driver, &[], 3, &["none of the usual functions", "--alloc-fn", "extern \"C\""]);
    let Some(other) = compiled(&fake, 3) else { return };
    let named = ["--alloc-fn", "other_malloc", "--free-fn", "other_free"];
    let ended = fake.run(&[&["replay", "churn", "--plugin", &other][..], &named].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    refused(
        &other,
        &["--alloc-fn", "my_malloc", "--free-fn", "my_free"],
        3,
        &["no functions my_malloc"],
    );
    refused(
        &other,
        &[&named[..], &["--empty-cache-fn", "gone"]].concat(),
        3,
        &["no function gone"],
    );

    let missing = compiled(&fake, 2).expect("a compiler, as before");
    refused(&missing, &[], 3, &["the loader refuses it", "vramlab_nobody_has_this"]);
    let crashes = compiled(&fake, 1).expect("a compiler, as before");
    refused(&crashes, &[], 4, &["signal 11", "not the process's"]);
}

#[test]
fn what_does_not_go_with_a_library_is_refused() {
    let fake = Fake::new();
    let so = library("vramlab_torch").display().to_string();
    let ended = fake.run(&["replay", "churn", "varlen", "--plugin", &so]);
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(ended.err.contains("found 2 inputs, expected one"), "{}", ended.err);
    for more in [&["--strategy", "cuda.malloc"][..], &["--alloc-fn", "only_this"]] {
        let ended = fake.run(&[&["replay", "churn", "--plugin", &so][..], more].concat());
        assert_eq!(ended.code, 2, "{}", ended.err);
    }
}

#[test]
fn who_is_asked_to_stop_asks_the_other_process() {
    let fake = Fake::new();
    let so = library("vramlab_torch").display().to_string();
    let args = ["replay", "churn", "--set", "allocs=1000000", "--plugin", &so];
    let child = fake
        .command(env!("CARGO_BIN_EXE_vramlab-validate"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // it is in the run by then, or not: both must end well
    std::thread::sleep(Duration::from_millis(1500));
    let stop = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(stop.expect("kill starts").success());
    let ended = fake.ended(&child.wait_with_output().expect("it ends"));
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("stopped; everything was given back"), "{}", ended.err);
    assert!(ended.out.contains("stopped"), "{}", ended.out);
}

#[test]
fn valgrind_finds_nothing_in_a_run_through_a_library() {
    let fake = Fake::with_runtime();
    let Some(so) = compiled(&fake, 0) else { return };
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_vramlab-validate"));
    let args = ["replay", "churn", "--set", "allocs=50", "--plugin", &so];
    if let Some(ended) = fake.valgrind(program, &args) {
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
        assert!(ended.out.contains("plugin allocator0.so"), "{}", ended.out);
    }
}
