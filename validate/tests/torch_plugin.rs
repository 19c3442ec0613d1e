//! `libvramlab_torch.so` as PyTorch uses it, by a C program over the stand-ins for driver and runtime.
#![cfg(target_os = "linux")]

mod support;

use serde_json::Value;
use support::{Ended, Fake, library};

/// Runs the C program with a strategy; `None` without a C compiler.
fn serve(strategy: &str, more: impl FnOnce(Fake) -> Fake) -> Option<(Fake, Ended)> {
    let fake = Fake::with_runtime();
    let (trace, summary) = (fake.path("trace.jsonl"), fake.path("summary.json"));
    let fake = fake
        .set("DEVICE", "zero")
        .set("CAPACITY", "2GiB")
        .env("VRAMLAB_STRATEGY", strategy)
        .env("VRAMLAB_TRACE", trace)
        .env("VRAMLAB_SUMMARY", summary);
    let fake = more(fake);
    let program = fake.compile("plugin.c", "plugin", &[])?;
    let so = library("vramlab_torch").display().to_string();
    let ended = fake.run_as(program, &[&so]);
    assert_eq!(ended.code, 0, "{strategy}: {}{}", ended.out, ended.err);
    Some((fake, ended))
}

fn read(fake: &Fake, name: &str) -> String {
    std::fs::read_to_string(fake.path(name)).expect("it was written")
}

#[test]
fn strategies_serve_sizes_streams_threads_and_hooks() {
    for strategy in [
        "torch.caching",
        "torch.caching:expandable_segments=true",
        "torch.caching:version=2.9",
        "cuda.malloc",
        "cuda.async_pool",
        "cuda.managed",
        "classic.tlsf",
        "rmm.pool",
        "stitch.gmlake",
        "tensorflow.bfc",
        "paddle.auto_growth+stream_safe",
    ] {
        let Some((fake, ended)) = serve(strategy, |fake| fake) else { return };
        assert!(ended.out.contains("served"), "{strategy}: {}", ended.out);
        assert!(!ended.report.contains("misuse"), "{strategy}: {}", ended.report);
        // each request is served in relaxed capture mode, and the former one put back: the program itself asked twice
        let line = ended
            .report
            .lines()
            .find_map(|line| line.strip_prefix("called cuThreadExchangeStreamCaptureMode "));
        let exchanges: u64 = line.and_then(|count| count.parse().ok()).unwrap_or(0);
        assert!(exchanges >= 2 * (64 + 1600 + 4) && exchanges.is_multiple_of(2), "{exchanges}");
        // each kind of trouble is said once
        for part in [
            "gets a null pointer: out of device memory: asked",
            "gets a null pointer: the CUDA driver refused cuDeviceGet: CUDA_ERROR_INVALID_DEVICE",
            "found record_stream of 0x1234500",
            "found a free of",
            "found a request of -5 bytes",
        ] {
            assert_eq!(ended.err.matches(part).count(), 1, "{strategy}: {part}: {}", ended.err);
        }
        let summary: Value = serde_json::from_str(&read(&fake, "summary.json")).expect("JSON");
        assert_eq!(summary["requested"], 0, "all was freed");
        assert_eq!(summary["allocs"].as_u64(), Some(64 + 1600 + 4), "{summary}");
        assert_eq!(summary["frees"].as_u64(), Some(64 + 1600 + 2), "{summary}");
        assert_eq!(summary["ooms"], 2, "{summary}");
        assert!(summary["peak_reserved"].as_u64() >= summary["peak_requested"].as_u64());

        // what it logged is a trace that the same strategy replays
        let trace = read(&fake, "trace.jsonl");
        let count = |op: &str| trace.matches(&format!("\"op\":\"{op}\"")).count();
        // a request that got nothing is a buffer that is dropped at once
        assert_eq!((count("alloc"), count("free")), (64 + 1600 + 4, 64 + 1600 + 4));
        assert_eq!((count("record_stream"), count("empty_cache"), count("set")), (1, 1, 1));
        let file = fake.path("trace.jsonl");
        let replay = ["replay", "--format", "json", "--strategy", strategy, "--trace", &file];
        let ended = fake.run(&replay);
        assert_eq!(ended.code, 0, "{strategy}: {}{}", ended.out, ended.err);
        let row: Value = serde_json::from_str(&ended.out).expect("JSON");
        assert_eq!(row["peak_reserved"], summary["peak_reserved"], "{strategy}");
        assert_eq!(row["ooms"], 2, "{strategy}: {}", ended.out);
    }
}

#[test]
fn strategies_that_cannot_serve_are_refused_with_the_reason() {
    for (strategy, why) in [
        ("planned.best_gap", "plans ahead"),
        ("tiered.lru", "which work uses which buffer"),
        ("serving.paged", "caches keys and values"),
        ("torch.caching:max_split_size_mb=1", "max_split_size"),
        ("torch.cachin", "torch.caching"),
    ] {
        let Some((_, ended)) = serve(strategy, |fake| fake) else { return };
        let refused = ended.out.lines().find(|line| line.starts_with("refused: "));
        assert!(refused.is_some_and(|line| line.contains(why)), "{strategy}: {}", ended.out);
        assert_eq!(ended.err.matches("gets a null pointer").count(), 1, "{}", ended.err);
    }
}

#[test]
fn no_driver_and_faults_are_told_and_never_unwind() {
    let Some((_, ended)) = serve("torch.caching", |fake| fake.set("", "no_device")) else { return };
    assert!(ended.out.contains("refused: "), "{}", ended.out);
    // a driver that refuses the first malloc in another way than for want of memory
    let cue = "cuMemAlloc_v2#1=invalid_value";
    let fake = Fake::with_runtime().set("DEVICE", "zero").set("FAIL", cue);
    let Some(program) = fake.compile("plugin.c", "plugin", &[]) else { return };
    let ended = fake.run_as(program, &[&library("vramlab_torch").display().to_string()]);
    assert_eq!(ended.code, 1, "{}", ended.out);
    assert!(ended.err.contains("CUDA_ERROR_INVALID_VALUE"), "{}", ended.err);
}

#[test]
fn valgrind_finds_nothing_in_the_plugin() {
    let fake = Fake::with_runtime().set("DEVICE", "zero").set("CAPACITY", "2GiB");
    let trace = fake.path("trace.jsonl.gz");
    let fake = fake.env("VRAMLAB_TRACE", trace);
    let Some(program) = fake.compile("plugin.c", "plugin", &[]) else { return };
    let so = library("vramlab_torch").display().to_string();
    if let Some(ended) = fake.valgrind(&program, &[&so]) {
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    }
    let packed = std::fs::read(fake.path("trace.jsonl.gz")).unwrap_or_default();
    let mut text = String::new();
    let mut unpacked = flate2::read::GzDecoder::new(&*packed);
    std::io::Read::read_to_string(&mut unpacked, &mut text).expect("it was ended");
    assert!(text.lines().count() > 100, "{text}");
}

#[test]
fn python_loads_it_as_pytorch_does() {
    let fake = Fake::with_runtime().set("DEVICE", "zero");
    let so = library("vramlab_torch").display().to_string();
    // what torch.cuda.memory.CUDAPluggableAllocator does with the file
    let script = "import ctypes, sys\nlib = ctypes.CDLL(sys.argv[1])\nassert ctypes.cast(lib.vramlab_alloc, ctypes.c_void_p).value\nalloc = lib.vramlab_alloc\nalloc.restype = ctypes.c_void_p\nalloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)\nassert alloc(4096, 0, None)\nprint('loaded')\n";
    let script = fake.file("load.py", script);
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        println!("python: skipped, none here");
        return;
    }
    let ended = fake.run_as("python3", &[&script, &so]);
    assert!(ended.out.contains("loaded"), "{}{}", ended.out, ended.err);
}
