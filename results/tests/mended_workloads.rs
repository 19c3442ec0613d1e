//! What a tester found workloads, their parameters and readers to do wrong, each with the story of what it did.

mod support;

use std::io::Write;

use support::{Folder, call, rows};

const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
    1,10:00:00.000001,allocate,0x7f0000000000,1048576,0x0\n\
    1,10:00:00.000002,allocate failure,(nil),100000000000,0x0\n\
    1,10:00:00.000003,free,0x7f0000000000,1048576,0x0\n";

/// A request that failed counted as a buffer: a log of 1 MiB had its peak at 95367 MiB, and was replayed on a device of 96 GiB.
#[test]
fn a_request_that_failed_when_recorded_is_never_live() {
    let folder = Folder::new();
    let log = folder.file("rmm.csv", RMM);
    let (found, _) = rows(0, &["inspect", &log]);
    let peak = &found[0]["peak"];
    assert_eq!((&peak["peak_bytes"], &peak["allocs"]), (&1_048_576.into(), &2.into()), "{peak}");
    assert_eq!(
        (&peak["failed"], &peak["failed_largest_bytes"]),
        (&1.into(), &100_000_000_000_u64.into())
    );
    let (_, out, _) = call(&["inspect", &log]);
    assert!(
        out.contains(
            "failed when this was recorded: 1 of the requests, the largest of 95367.4 MiB"
        ),
        "{out}"
    );
    let (found, err) = rows(0, &["replay", &log, "--strategy", "cuda.malloc"]);
    assert_eq!((&found[0]["capacity"], &found[0]["ooms"]), (&(24_u64 << 30).into(), &1.into()));
    assert!(err.contains("live requests sum up to 1 MiB at most"), "{err}");
    let roomy = ["replay", &log, "--strategy", "cuda.malloc", "--capacity", "200GiB"];
    assert_eq!(rows(0, &roomy).0[0]["reserved"], 0, "served here, and given back at once");
}

/// Overheads below 1 were printed of runs that did not serve what the floor counts.
#[test]
fn a_run_that_refused_something_has_no_overhead() {
    let folder = Folder::new();
    let ops = "{\"op\":\"alloc\",\"id\":1,\"size\":100000000}\n{\"op\":\"alloc\",\"id\":2,\"size\":900000000}\n";
    let trace = folder.file("t.jsonl", ops);
    let overhead = |capacity: &str| {
        let args = ["replay", &trace, "--strategy", "cuda.malloc", "--capacity", capacity];
        rows(0, &args).0[0]["overhead"].clone()
    };
    assert!(overhead("512MiB").is_null());
    assert!(overhead("2GiB").as_f64().is_some_and(|ratio| ratio >= 1.0));
}

/// Values of other modes were never looked at: `speed=abc` ran.
#[test]
fn every_given_parameter_is_checked_and_one_without_effect_is_named() {
    for (workload, set, part) in [
        ("gpt2", "new_tokens=NaN", "parameter new_tokens: found \"NaN\""),
        ("gpt2", "interleaved=maybe", "parameter interleaved: found \"maybe\""),
        ("llm", "speed=abc", "parameter speed: found \"abc\""),
        ("llm", "burst=-1", "parameter burst: found \"-1\""),
        ("llm", "swing=inf", "parameter swing: found \"inf\""),
        ("llm", "swap_space=big", "parameter swap_space: found \"big\""),
        ("ocr", "speed=abc", "parameter speed: found \"abc\""),
        ("llama", "steps=none,phase=decode", "parameter steps: found \"none\""),
    ] {
        let args = ["compare", workload, "--set", set, "--strategy", "cuda.malloc"];
        let (code, _, err) = call(&args);
        assert!(code == 2 && err.contains(part), "{workload} {set}: {code}: {err}");
    }
    let small = "layers=1,hidden=64,heads=1,vocabulary=100,seq=16,batch=2,new_tokens=5";
    let args = ["compare", "gpt2", "--set", small, "--strategy", "cuda.malloc"];
    let (code, _, err) = call(&args);
    let said = "parameter new_tokens does nothing with phase=train; only with phase=decode";
    assert!(code == 0 && err.contains(said), "{err}");
    let quiet = call(&[&args[..], &["--quiet"]].concat());
    assert!(!quiet.2.contains("does nothing"), "{}", quiet.2);
    let accumulation =
        ["compare", "mlp", "--set", "phase=inference,accumulation=4", "--strategy", "cuda.malloc"];
    assert!(
        call(&accumulation).2.contains("parameter accumulation does nothing with phase=inference")
    );
}

/// `--passes ++` ran as none, `checkpoint=` as its default, and `inspect` did as if `--set passes=` were not there.
#[test]
fn passes_with_holes_and_passes_that_would_be_ignored_are_refused() {
    for (args, part) in [
        (["compare", "mlp", "--passes", "++"], "unknown pass \"\""),
        (["compare", "mlp", "--passes", "checkpoint="], "pass checkpoint: found \"=\""),
        (["inspect", "mlp", "--set", "passes=amp"], "passes are given with --passes here"),
    ] {
        let (code, _, err) = call(&args);
        assert!(code == 2 && err.contains(part), "{args:?}: {code}: {err}");
    }
    let (code, ..) = call(&["compare", "mlp", "--set", "passes=amp", "--strategy", "cuda.malloc"]);
    assert_eq!(code, 0);
}

/// Parts that do not divide the batch, or that only training has, are refused on every model; `zero=1` said that states are in parts where there are none.
#[test]
fn passes_that_cannot_do_anything_are_refused_on_every_model() {
    let refused = |model: &str, set: &str, passes: &str| {
        let args =
            ["compare", model, "--set", set, "--passes", passes, "--strategy", "cuda.malloc"];
        let (code, out, err) = call(&args);
        assert_eq!(code, 4, "{args:?}: {out}{err}");
        out
    };
    let decoder = "layers=1,hidden=64,heads=1,vocabulary=100,seq=16";
    let llama = "layers=1,hidden=64,heads=4,kv_heads=2,ffn=64,vocabulary=100,seq=16";
    let bert = "layers=1,hidden=64,heads=1,ffn=64,vocabulary=100,seq=16";
    let small = [
        ("mlp", "widths=8x8"),
        ("resnet", "depth=18,size=32"),
        ("detector", "size=64"),
        ("recogniser", "width=64,classes=10,symbols=2"),
        ("bert", bert),
        ("gpt2", decoder),
        ("llama", llama),
    ];
    for (model, set) in small {
        let out = refused(model, &format!("{set},batch=3"), "accumulate=2");
        assert!(out.contains("found \"2 parts\", expected parts that divide batch=3"), "{out}");
        let out = refused(model, &format!("{set},batch=4,phase=inference"), "accumulate=2");
        assert!(out.contains("expected training, which has gradients to add up"), "{out}");
        let out = refused(model, &format!("{set},batch=4,optimizer=sgd"), "zero=1");
        assert!(out.contains("found \"an optimizer without states\""), "{out}");
        let out = refused(model, &format!("{set},batch=4,optimizer=none"), "offload=optimizer");
        assert!(out.contains("found \"no optimizer\""), "{out}");
    }
    for (model, set) in [small[4], small[5], small[6], small[0]] {
        let out = refused(model, set, "augment");
        assert!(out.contains("expected one whose input is images"), "{out}");
    }
    let (code, _, err) = call(&[
        "compare",
        "resnet",
        "--set",
        "depth=18,size=32,batch=4,last_batch=3,passes=accumulate=2",
        "--strategy",
        "cuda.malloc",
    ]);
    assert!(
        code == 2 && err.contains("parameter last_batch: found \"3\", expected a multiple of 2"),
        "{err}"
    );
}

/// `amp+int8` quantised nothing, and `int8+amp` made weights wide twice.
#[test]
fn amp_and_int8_give_the_same_in_either_order() {
    let set =
        "phase=decode,prompts=16,new_tokens=2,batch=1,layers=2,hidden=64,heads=2,vocabulary=100";
    let passes = "amp+int8,int8+amp,int8,amp=half_fp16+int8,int8+amp=half_fp16";
    let args = ["compare", "gpt2", "--set", set, "--passes", passes, "--strategy", "cuda.malloc"];
    let (found, _) = rows(0, &args);
    let figures = |at: usize| {
        ["peak_requested", "peak_reserved", "step_ns"].map(|key| found[at][key].clone())
    };
    assert_eq!(found.len(), 6);
    assert_eq!(figures(1), figures(2));
    assert_eq!(figures(4), figures(5));
    assert_ne!(figures(1), figures(3));
    let changed = found[1]["changed"].to_string();
    assert!(changed.contains("int8: 8 weights in int8"), "{changed}");
}

/// A log that was cut read as a smaller state.
#[test]
fn a_state_that_ends_early_says_what_is_missing() {
    let folder = Folder::new();
    let summary = "|===|\n|   PyTorch CUDA memory summary, device ID 0   |\n|---|\n\
        | CUDA OOMs: 0 | cudaMalloc retries: 0 |\n|===|\n\
        | Metric | Cur Usage | Peak Usage | Tot Alloc | Tot Freed |\n|---|\n\
        | Allocated memory | 10 KiB | 10 KiB | 10 KiB | 0 B |\n| from large po";
    for (name, text, missing) in [
        ("summary.txt", summary, "missing: Active memory, GPU reserved memory"),
        (
            "bfc.log",
            "x bfc_allocator.cc:1] Bin (256): Total Chunks: 4, Chunks in use: 3. 1.0KiB allocated for chunks. 768B in use in bin. 520B client-requested in use in bin.\n",
            "missing: 4 of the 4 chunks that its bins count; the statistics Limit",
        ),
        (
            "timeline.raw.json",
            "[[7, 2, 1, 0], [8, 2, 5, 1], [9",
            "missing: what came after these times",
        ),
    ] {
        let (code, out, err) = call(&["inspect", &folder.file(name, text)]);
        assert!(code == 0 && out.contains(missing), "{name}: {code}: {out}{err}");
        assert!(out.contains("incomplete: it ends early"), "{out}");
    }
}

/// One string of a GB in a file of a MB took a GB; messages of damaged files had no place.
#[test]
fn bad_files_are_told_with_place_and_expectation() {
    let folder = Folder::new();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"{\"segments\": [], \"device_traces\": [], \"x\": \"").expect("in memory");
    for _ in 0..20 {
        packed.write_all(&vec![b'a'; 1 << 20]).expect("in memory");
    }
    let long = folder.file("long.json.gz", packed.finish().expect("in memory"));
    let (code, _, err) = call(&["inspect", &long]);
    assert!(code == 3 && err.contains("a string or number of over 16777216 bytes"), "{err}");
    assert!(err.contains("long.json.gz") && err.contains("byte 1677"), "{err}");

    let whole = std::fs::read(support::example("resnet50_b32_fp32.pickle.gz")).expect("there");
    let cut = folder.file("cut.pickle.gz", &whole[..whole.len() / 2]);
    let (code, _, err) = call(&["inspect", &cut]);
    assert!(
        code == 3 && err.contains("after byte ") && err.contains("expected whole gzip data"),
        "{err}"
    );

    let setup = folder.file("setup.json", b"{\"model\": \"\xff\"}");
    let (code, _, err) = call(&["measured", &setup]);
    assert!(code == 3 && err.contains("byte 11: found bytes that are no UTF-8"), "{err}");

    let (code, _, err) =
        call(&["compare", "ocr", "--set", "sizes=nosuch", "--strategy", "cuda.malloc"]);
    assert_eq!((code, err.matches("nosuch").count()), (3, 1), "{err}");
}

/// A folder without set-ups was passed over in silence.
#[test]
fn measured_goes_on_behind_an_empty_folder_and_says_so() {
    let folder = Folder::new();
    let empty = folder.path("empty");
    std::fs::create_dir(&empty).expect("made");
    let setup = r#"{"model": "ResNet-18", "batch": 1, "size": 32, "steps": 1, "last_batch": 0, "precision": "fp32",
        "optimizer": "SGD momentum 0.9 foreach", "device": {"capability": "8.0", "capacity_bytes": 8589934592,
        "conv_workspace_model": "none"}, "max_memory_allocated": 1}"#;
    let good = folder.file("good.json", setup);
    let (code, out, err) = call(&["measured", &empty, &good]);
    assert_eq!(code, 4, "{out}{err}");
    assert!(
        out.contains("good") && err.contains("empty: no set-up that a workload can express"),
        "{out}{err}"
    );
    assert_eq!(call(&["measured", &empty]).0, 3);
}
