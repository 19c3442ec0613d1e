//! What a strict reader found the command to do wrong, each with the story of what it did. More of it is in `mended_inputs.rs`.

use std::path::Path;

use serde_json::Value;

mod support;

use support::{Folder, call, example, rows};

const OOM: &str = "bert_b64_s512_fp32_oom_16gb.pickle.gz";
const FITS: &str = "resnet50_b32_fp32.pickle.gz";
const TRACE: &str = "{\"op\":\"alloc\",\"id\":1,\"size\":5000000}\n{\"op\":\"free\",\"id\":1}\n";

/// It advised a setting under which the same request failed, since less had been reserved by then.
#[test]
fn advise_promises_nothing_while_requests_fail() {
    let (code, out, err) = call(&["advise", &example(OOM)]);
    assert_eq!(code, 0, "{err}");
    // two settings serve it, and leave 6 MiB: that is said, and that nobody knows what would have come next
    assert!(out.contains("advice: PYTORCH_CUDA_ALLOC_CONF=large_segment_size_mb:512"), "{out}");
    assert!(out.contains("next to nothing: take it for exhaustion"), "{out}");
    let (rows, _) = rows(0, &["advise", &example(OOM)]);
    assert!(rows.iter().all(|row| row["verdict"] != "helps" || row["ooms"] == 0));
}

/// Recordings were replayed on 24 GiB: those of a larger device failed thousands of times, and a recorded failure was none.
#[test]
fn a_recording_is_replayed_on_the_device_that_it_tells_of() {
    let (own, err) = rows(0, &["replay", &example(OOM)]);
    assert!(own[0]["ooms"].as_u64() >= Some(1), "{}", own[0]);
    let capacity = own[0]["capacity"].as_u64().expect("bytes");
    assert!(
        capacity < 17 << 30 && err.contains("recorded allocator could get"),
        "{capacity} {err}"
    );
    // The same after conversion, by the header.
    let folder = Folder::new();
    let converted = folder.path("t.jsonl");
    assert_eq!(call(&["convert", &example(OOM), &converted]).0, 0);
    let (same, _) = rows(0, &["replay", &converted, "--strategy", "torch.caching:version=2.15"]);
    assert_eq!((&same[0]["capacity"], &same[0]["ooms"]), (&own[0]["capacity"], &own[0]["ooms"]));
    // And an advice is about the same device.
    let (advice, _) = rows(0, &["advise", &example(OOM)]);
    assert_eq!(advice[0]["capacity"], capacity);

    let (fits, err) = rows(0, &["replay", &example(FITS)]);
    assert_eq!(fits[0]["capacity"], 24_u64 << 30);
    assert!(err.contains("24 GiB: the generic one; no capacity is recorded"), "{err}");
    let large = folder.file("l.jsonl", "{\"op\":\"alloc\",\"id\":1,\"size\":32212254720}\n");
    let (large_rows, err) = rows(0, &["replay", &large]);
    assert_eq!(
        (&large_rows[0]["ooms"], &large_rows[0]["capacity"]),
        (&0.into(), &(32_u64 << 30).into())
    );
    assert!(err.contains("32 GiB: the next usual size; no capacity is recorded"), "{err}");
    assert_eq!(rows(0, &["replay", &large, "--capacity", "24GiB"]).0[0]["ooms"], 1);
    assert_eq!(rows(0, &["replay", &large, "--quiet"]).1, "");
}

/// One bad file discarded the results of all others.
#[test]
fn a_bad_input_does_not_stop_the_others() {
    let folder = Folder::new();
    let good = folder.file("good.jsonl", TRACE);
    let bad = folder.file("bad.jsonl", format!("{TRACE}{{\"op\":\"free\",\"id\":9}}\n"));
    let none = folder.file("none.pickle", "\u{1}\u{2}");
    let (found, err) = rows(4, &["replay", &bad, &good, &none]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["input"], "good.jsonl");
    assert!(
        err.contains(&format!("{bad}: line 3: free of buffer 9")) && err.contains(&none),
        "{err}"
    );
    let (found, err) = rows(3, &["replay", &bad, &none]);
    assert!(found.is_empty() && err.contains(&bad) && err.contains(&none), "{err}");
    let (found, _) =
        rows(4, &["compare", "--trace", &good, "--trace", &none, "--strategy", "cuda.malloc"]);
    assert_eq!(found.len(), 1);
    let (found, err) = rows(4, &["replay", "--verify", &example(FITS), &good, &none]);
    assert_eq!(found.len(), 1);
    assert!(err.contains("no PyTorch snapshot") && err.contains(&none), "{err}");
}

/// A strategy that ended a run was said to be bad input.
#[test]
fn a_run_that_the_strategy_ends_is_a_row() {
    let folder = Folder::new();
    let text =
        format!("{TRACE}{{\"op\":\"set\",\"key\":\"conf\",\"value\":\"no_such_thing:1\"}}\n");
    let trace = folder.file("set.jsonl", text);
    let both = ["replay", &trace, "--strategy", "torch.caching", "--strategy", "cuda.malloc"];
    let (found, _) = rows(4, &both);
    assert_eq!(
        (&found[0]["outcome"], &found[1]["outcome"]),
        (&"driver_error".into(), &"ok".into())
    );
    assert!(
        found[0]["reason"].as_str().is_some_and(|r| r.contains("no_such_thing")),
        "{}",
        found[0]
    );
    let (_, out, _) = call(&both);
    assert!(out.contains("ended early: torch.caching: op 2 (set)"), "{out}");
}

/// Errors of a run named the file without its folder, and no line.
#[test]
fn a_run_error_names_path_and_line() {
    let folder = Folder::new();
    let text = format!("\n{TRACE}{{\"op\":\"alloc\",\"id\":1,\"size\":1,\"device\":99}}\n");
    let trace = folder.file("device.jsonl", text);
    let (code, _, err) = call(&["replay", &trace]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains(&format!("{trace}: line 4: op 2: device 99 does not exist")), "{err}");
}

/// The table said "ok" of ops that no strategy did.
#[test]
fn ops_that_did_nothing_are_noted() {
    let folder = Folder::new();
    let text =
        "{\"op\":\"alloc\",\"id\":1,\"size\":500}\n{\"op\":\"realloc\",\"id\":1,\"size\":900}\n";
    let trace = folder.file("realloc.jsonl", text);
    let (code, out, err) = call(&["replay", &trace, "--strategy", "classic.buddy"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("note: classic.buddy: 1 realloc ops did nothing: the strategy has none"),
        "{out}"
    );
    let (_, out, _) = call(&["inspect", &trace]);
    assert!(out.contains("512 B to 1 KiB"), "{out}");
}

/// Figures at marks were kept by nobody and shown nowhere.
#[test]
fn figures_at_marks_are_in_the_row_and_shown_on_request() {
    let folder = Folder::new();
    let alloc = |id: u32| format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":1048576}}\n");
    let mark = |name: &str| format!("{{\"op\":\"mark\",\"name\":\"{name}\"}}\n");
    let text = [alloc(1), mark("first"), alloc(2), mark("second")].concat();
    let trace = folder.file("marks.jsonl", text);
    let (found, _) = rows(0, &["replay", &trace, "--strategy", "cuda.malloc"]);
    let at: Vec<(&str, u64, u64)> = found[0]["marks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|m| {
            (
                m["name"].as_str().expect("a name"),
                m["op"].as_u64().expect("op"),
                m["requested"].as_u64().expect("bytes"),
            )
        })
        .collect();
    assert_eq!(at, [("first", 1, 1 << 20), ("second", 3, 2 << 20)]);
    let shown =
        |more: &[&str]| call(&[&["replay", &trace, "--strategy", "cuda.malloc"], more].concat()).1;
    assert!(!shown(&[]).contains("second") && shown(&["--marks"]).contains("second"));
    assert!(!shown(&["--format", "csv"]).contains("second"));

    let many: String = (0..1001).map(|n| mark(&format!("m{n}"))).collect();
    let trace = folder.file("many.jsonl", many);
    let (found, _) = rows(0, &["replay", &trace]);
    assert_eq!(found[0]["marks"].as_array().map(Vec::len), Some(1000));
    assert!(
        found[0]["notes"].to_string().contains("the first 1000 of 1001 marks"),
        "{}",
        found[0]["notes"]
    );
}

/// No field said what became of a recording's gaps, and the flag for them was ignored for JSON Lines.
#[test]
fn a_row_says_what_became_of_the_times() {
    let recording = example(FITS);
    assert_eq!(rows(0, &["replay", &recording]).0[0]["times"], "none");
    assert_eq!(rows(0, &["replay", &recording, "--keep-times"]).0[0]["times"], "recorded");
    let folder = Folder::new();
    let trace = folder.file("t.jsonl", TRACE);
    let (found, err) = rows(0, &["replay", &trace, "--keep-times"]);
    assert_eq!(found[0]["times"], "as given");
    assert!(
        err.contains("--keep-times changes nothing: the times (t) of JSON Lines always hold"),
        "{err}"
    );
    let (_, _, err) = call(&["convert", &trace, &folder.path("u.jsonl"), "--keep-times"]);
    assert!(err.contains("--keep-times changes nothing"), "{err}");
}

/// `vramlab --format json replay F` was a usage error.
#[test]
fn options_of_every_command_may_stand_before_it() {
    let folder = Folder::new();
    let trace = folder.file("t.jsonl", TRACE);
    let (code, out, err) = call(&["--format", "json", "--quiet", "replay", &trace]);
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str::<Value>(&out).expect("JSON");
    let (code, _, err) = call(&["--out", "x", "replay", &trace]);
    assert_eq!(code, 2);
    assert!(err.contains("--out x stands before the command"), "{err}");
}

/// `--verify` took these options and did nothing with them.
#[test]
fn verify_refuses_options_that_it_would_ignore() {
    let recording = example(FITS);
    for option in
        [&["--device", "generic"][..], &["--keep-times"], &["--fail-on-oom"], &["--marks"]]
    {
        let (code, _, err) = call(&[&["replay", &recording, "--verify"], option].concat());
        assert_eq!(code, 2, "{option:?}: {err}");
        assert!(err.contains("cannot be used with") && err.contains(option[0]), "{err}");
    }
}

/// A failure to write lines per op named an option that the command lacks.
#[test]
fn a_place_that_cannot_be_written_names_the_option_that_chose_it() {
    let folder = Folder::new();
    let trace = folder.file("t.jsonl", TRACE);
    let (code, _, err) = call(&["replay", &trace, "--per-op", &folder.path("no/such/ops.jsonl")]);
    assert_eq!(code, 7, "{err}");
    assert!(err.contains("choose another place with --per-op") && !err.contains("--out"), "{err}");
}

/// `convert x.zst` wrote plain text under that name, and any other name too.
#[test]
fn convert_packs_as_the_name_says_and_refuses_names_that_it_does_not_know() {
    let folder = Folder::new();
    let trace = folder.file("t.jsonl", TRACE.repeat(100));
    let lines = |name: &str| {
        let (code, _, err) = call(&["convert", &trace, &folder.path(name)]);
        assert_eq!(code, 0, "{name}: {err}");
        std::fs::read(folder.path(name)).expect("written")
    };
    let plain = lines("plain.jsonl");
    assert!(lines("a.jsonl.zst").starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
    assert!(lines("a.jsonl.gz").starts_with(&[0x1f, 0x8b]));
    for packed in ["a.jsonl.zst", "a.jsonl.gz"] {
        let (code, _, err) = call(&["convert", &folder.path(packed), &folder.path("back.jsonl")]);
        assert_eq!(code, 0, "{err}");
        let back = std::fs::read(folder.path("back.jsonl")).expect("written");
        let ops = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).expect("text");
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(ops(&back), ops(&plain), "{packed}");
    }
    let (code, _, err) = call(&["convert", &trace, &folder.path("a.jsonl.bz2")]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("found the ending .bz2, expected .jsonl"), "{err}");
    assert!(!Path::new(&folder.path("a.jsonl.bz2")).exists());
}

#[test]
fn messages_say_what_was_found_in_a_users_words() {
    let folder = Folder::new();
    let trace = folder.file("t.jsonl", TRACE);
    let wide: Vec<u8> = TRACE.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf16 = folder.file("utf16.jsonl", [&[0xff, 0xfe], &wide[..]].concat());
    let unit =
        folder.file("unit.jsonl", format!("{{\"vramlab_trace\":1,\"unit\":\"MiB\"}}\n{TRACE}"));
    let text = folder.file("text.jsonl", "{\"op\":\"alloc\",\"id\":1,\"size\":\"big\"}\n");
    let all = ["replay", &trace, "--strategy", "all:x=1"];
    for (code, args, want) in [
        (
            2,
            &all[..],
            "--strategy all stands for every strategy and takes no options, found \"x=1\"",
        ),
        (2, &["replay", &trace, "--capacity", "-1"], "a size cannot be negative"),
        (3, &["replay", &utf16], "found UTF-16 text"),
        (3, &["replay", &unit], "unit is \"MiB\"; expected bytes"),
        (3, &["replay", &text], "line 1: size: found \"big\", expected a whole number"),
    ] {
        let (found, _, err) = call(args);
        assert_eq!(found, code, "{args:?}: {err}");
        assert!(err.contains(want), "{args:?}: {err}");
    }
    let marked = folder.file("bom.jsonl", format!("\u{feff}{TRACE}"));
    assert_eq!(rows(0, &["replay", &marked]).0[0]["ops"], 2);
}

/// The sum of live requests stopped at 2^64 without a word.
#[test]
fn a_sum_beyond_2_to_64_is_noted() {
    let folder = Folder::new();
    let half = |id: u32| format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":9223372036854775808}}\n");
    let trace = folder.file("huge.jsonl", [half(1), half(2)].concat());
    let (_, out, _) = call(&["inspect", &trace]);
    assert!(out.contains("passed 2^64 bytes"), "{out}");
    let (_, out, _) = call(&["replay", &trace, "--strategy", "cuda.malloc"]);
    assert!(out.contains("note: cuda.malloc: the sum of live requests passed 2^64 bytes"), "{out}");
}

/// A message said that `--device` takes a file's path, and it did not.
#[test]
fn a_device_may_be_a_file() {
    let folder = Folder::new();
    let input = folder.file("trace.jsonl", TRACE);
    let text = "name = \"mine\"\ntitle = \"Mine\"\nbased_on = \"generic\"\n[memory]\ncapacity = { value = 3, unit = \"GiB\", source = \"ours\", date = \"2026-11-30\", trust = \"M\" }\n";
    let device = folder.file("mine.toml", text);
    let (found, err) = rows(0, &["replay", &input, "--device", &device]);
    assert!(found.iter().all(|row| row["device"] == "mine"), "{err}");
    assert!(found.iter().all(|row| row["capacity"] == 3_u64 << 30), "{err}");
    let cases = [
        (folder.file("bad.toml", "name = 3"), "bad device file"),
        (
            folder.file("vast.toml", text.replace("value = 3,", "value = 1e30,")),
            "memory.capacity: found 1",
        ),
        (folder.file("far.toml", "x".repeat(2 << 20)), "found more than 1 MiB"),
        (folder.path("absent.toml"), "No such file"),
        (folder.path("."), "expected a device's TOML file"),
    ];
    for (device, expected) in cases {
        let (code, out, err) = call(&["replay", &input, "--device", &device]);
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains(&device) && err.contains(expected), "{err}");
    }
}
