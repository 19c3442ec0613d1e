//! `inspect` and `fit` on the command line: windows, cut-out traces, differences, states, and inputs that are odd or bad.
#![forbid(unsafe_code)]

mod support;

use serde_json::Value;
use support::{Folder, call, example, rows};

const OOM: &str = "bert_b64_s512_fp32_oom_16gb.pickle.gz";
const STACKS: &str = "bert_b8_s128_fp32_python_stacks.pickle.gz";
const FITS: &str = "resnet50_b32_fp32.pickle.gz";

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no bytes: {value}"))
}

/// Shares, categories and causes of the built-in recordings add up to what they are of.
#[test]
fn what_is_told_adds_up() {
    for name in [OOM, STACKS, FITS] {
        let (seen, _) = rows(0, &["inspect", &example(name), "--top", "1000"]);
        let (ran, _) = rows(0, &["replay", &example(name)]);
        let one = &seen[0];
        let peak = &one["peak"];
        for by in ["by_site", "by_category", "by_size"] {
            let sum: u64 =
                peak[by].as_array().expect("a list").iter().map(|s| bytes(&s["bytes"])).sum();
            assert_eq!(sum, bytes(&peak["peak_bytes"]), "{name} {by}");
        }
        let state = &one["fragmentation"];
        let causes: u64 = state["causes"].as_object().expect("causes").values().map(bytes).sum();
        assert_eq!(causes, bytes(&state["reserved"]) - bytes(&state["requested"]), "{name}");
        assert_eq!(state["causes"]["outside"], 0, "{name}");
        if ran[0]["ooms"] == 0 {
            assert_eq!(state["reserved"], ran[0]["peak_reserved"], "{name}");
        } else {
            assert_eq!(state["op"], ran[0]["first_oom_op"], "{name}");
            assert_eq!(state["wanted"]["failed"], true, "{name}");
        }
        assert_eq!(one["end"]["causes"]["outside"], 0, "{name}: the file's own state adds up");
    }
}

/// A recording that is replayed as recorded ends in the state that the file has: both ways to judge it agree.
#[test]
fn a_replay_ends_as_the_file_does() {
    for name in [STACKS, FITS] {
        let (seen, _) = rows(0, &["inspect", &example(name), "--at", "end"]);
        let (ours, file) = (&seen[0]["fragmentation"], &seen[0]["end"]);
        for figure in ["reserved", "requested", "segments", "largest_free"] {
            assert_eq!(ours[figure], file[figure], "{name} {figure}");
        }
        for cause in ["rounding", "unsplit_remainder", "waiting"] {
            assert_eq!(ours["causes"][cause], file["causes"][cause], "{name} {cause}");
        }
    }
}

#[test]
fn stacks_and_phases_say_what_buffers_are_for() {
    for (name, least) in [(STACKS, 0.5), (OOM, 0.9)] {
        let (seen, _) = rows(0, &["inspect", &example(name)]);
        let list = seen[0]["peak"]["by_category"].as_array().expect("a list").clone();
        let sum = |field: &str| -> u64 { list.iter().map(|share| bytes(&share[field])).sum() };
        let stated = (sum("bytes") - sum("derived_bytes")) as f64 / sum("bytes") as f64;
        assert!(stated > least, "{name}: {stated}");
        let parameters = list.iter().find(|share| share["category"] == "parameters");
        // the weights of BERT-base
        let mib = bytes(&parameters.expect("there are")["bytes"]) >> 20;
        assert!((410..425).contains(&mib), "{name}: {mib} MiB");
        let (_, out, _) = call(&["inspect", &example(name)]);
        assert_eq!(out.contains("uncertain: of "), sum("derived_bytes") > 0, "{out}");
    }
}

#[test]
fn a_window_is_cut_out_and_can_be_replayed() {
    let folder = Folder::new();
    let (part, example) = (folder.path("part.jsonl.gz"), example(FITS));
    let (whole, _) = rows(0, &["inspect", &example]);
    let args = ["inspect", &example, "--around", "peak", "--span", "100", "--export", &part];
    let (seen, err) = rows(0, &args);
    assert!(err.contains("ops written to"), "{err}");
    assert_eq!(seen[0]["peak"]["peak_bytes"], whole[0]["peak"]["peak_bytes"]);
    let window = &seen[0]["window"];
    assert_eq!(bytes(&window["to"]) - bytes(&window["from"]), 200);
    let (ran, _) = rows(0, &["replay", &part]);
    assert_eq!(ran[0]["live_floor"], whole[0]["peak"]["peak_bytes"]);
    assert_eq!(ran[0]["options"]["version"], "2.15", "the header says whose rules they are");
    let all = folder.path("all.jsonl");
    assert_eq!(call(&["inspect", &example, "--export", &all]).0, 0);
    let (again, _) = rows(0, &["inspect", &all]);
    assert_eq!(again[0]["peak"]["peak_op"], whole[0]["peak"]["peak_op"]);
    let (ours, theirs) =
        (&again[0]["fragmentation"]["causes"], &whole[0]["fragmentation"]["causes"]);
    assert_eq!(ours, theirs);
}

#[test]
fn windows_that_make_no_sense_are_refused_in_words() {
    let folder = Folder::new();
    let bad = folder.path("no/such/folder/x.jsonl");
    for (args, code, want) in [
        (vec!["--from", "99999999"], 2, "has ops 0 to"),
        (vec!["--from", "9", "--to", "3"], 2, "found a window from op 9 to op 3"),
        (vec!["--around", "oom"], 2, "no request of resnet50_b32_fp32.pickle.gz fails"),
        (vec!["--at", "oom"], 2, "give a smaller --capacity"),
        (vec!["--at", "noon"], 2, "expected peak, oom, end or the number of an op"),
        (vec!["--around", "peak", "--from", "3"], 2, "cannot be used with"),
        (vec!["--export", &bad], 7, "choose another place with --export"),
        (vec!["--export", "x.zip"], 2, ".zip"),
    ] {
        let (found, out, err) = call(&[&["inspect", &example(FITS)][..], &args].concat());
        assert_eq!(found, code, "{args:?}: {out}{err}");
        assert!(err.contains(want), "{args:?}: {err}");
    }
    let (seen, _) = rows(0, &["inspect", &example(FITS), "--around", "oom", "--capacity", "2GiB"]);
    assert_eq!(seen[0]["fragmentation"]["wanted"]["failed"], true);
}

#[test]
fn a_difference_is_what_was_added() {
    let folder = Folder::new();
    let alloc = |id: u32, mib: u64, site: &str| {
        format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":{},\"site\":\"{site}\"}}\n", mib << 20)
    };
    let a = folder.file("a.jsonl", [alloc(1, 5, "x"), alloc(2, 7, "y")].concat());
    let b = folder.file("b.jsonl", [alloc(1, 5, "x"), alloc(2, 9, "y"), alloc(3, 1, "z")].concat());
    let (lines, _) = rows(0, &["inspect", &a, "--diff", &b]);
    let of = |group: &str, what: &str| {
        let found = lines.iter().find(|line| line["group"] == group && line["what"] == what);
        found.unwrap_or_else(|| panic!("no {group} {what}"))["difference"].clone()
    };
    assert_eq!(
        (of("site", "y"), of("site", "z"), of("site", "x")),
        ((2 << 20).into(), (1 << 20).into(), 0.into())
    );
    assert_eq!(of("figure", "requested at the peak"), 3 << 20);
    let (_, out, _) = call(&["inspect", &a, "--diff", &b]);
    assert!(out.contains("A is a.jsonl, B is b.jsonl") && out.contains("+2.0"), "{out}");
    let (same, _) = rows(0, &["inspect", &a, "--diff", &a]);
    assert!(same.iter().all(|line| line["difference"] == 0));
}

#[test]
fn a_model_is_inspected_as_a_recording_is() {
    let small = "layers=2,hidden=128,heads=2,batch=2,seq=64,steps=2";
    let args = ["inspect", "bert", "--set", small, "--memory"];
    let (seen, _) = rows(0, &args);
    let categories = seen[0]["peak"]["by_category"].as_array().expect("a list");
    let told: Vec<&str> = categories.iter().filter_map(|c| c["category"].as_str()).collect();
    for wanted in ["parameters", "activations"] {
        assert!(told.contains(&wanted), "{told:?}");
    }
    let (code, out, err) =
        call(&["inspect", "bert", "--set", small, "--memory", "--passes", "checkpoint"]);
    assert!(code == 0 && out.contains("growth by phase"), "{out}{err}");
    let (code, _, err) = call(&["inspect", &example(FITS), "--memory"]);
    assert!(code == 2 && err.contains("are of models"), "{err}");
}

/// Names with control characters move no cursor; recordings without frames, sites, times; buffers of several devices and streams.
#[test]
fn odd_inputs_are_told_plainly() {
    let folder = Folder::new();
    let evil = "{\"op\":\"alloc\",\"id\":1,\"size\":9000000,\"site\":\"a\\u001b[31m<b>\\r\\n\"}\n{\"op\":\"mark\",\"name\":\"m\\u0007\"}\n{\"op\":\"alloc\",\"id\":2,\"size\":512,\"stream\":3,\"device\":2}\n";
    let file = folder.file("e\u{1b}vil.jsonl", evil);
    for command in [
        vec!["inspect", &file],
        vec!["advise", &file, "--explain"],
        vec!["fit", &file, "--devices", "zero"],
    ] {
        let (code, out, err) = call(&command);
        assert_eq!(code, 0, "{command:?}: {err}");
        let bad = |c: char| c.is_control() && c != '\n';
        assert!(!out.contains(bad), "{command:?}: {out:?}");
    }
    let (seen, _) = rows(0, &["inspect", &file]);
    assert_eq!(seen[0]["peak"]["streams"].as_array().map(Vec::len), Some(2));
}

/// States without a history: their causes, as far as they tell.
#[test]
fn states_are_told_by_cause() {
    let folder = Folder::new();
    let dump = "x bfc_allocator.cc:627] Bin (256): \tTotal Chunks: 2, Chunks in use: 1. 1.0KiB allocated for chunks. 768B in use in bin. 520B client-requested in use in bin.\nInUse at 0x100 of size 768\nFree at 0x400 of size 256\nFree at 0x100000 of size 4096\n";
    let (seen, _) = rows(0, &["inspect", &folder.file("bfc.txt", dump)]);
    let of = |name: &str| {
        let figures = seen[0]["figures"].as_array().expect("figures");
        figures.iter().find(|f| f["name"] == name).map(|f| f["value"].clone())
    };
    assert_eq!(of("in use beyond what was asked for"), Some(248.into()));
    assert_eq!(of("free beside what lives in its region"), Some(256.into()));
}

#[test]
fn a_small_model_fits_a_card_and_its_largest_batch_is_found() {
    let set = "layers=2,hidden=256,heads=4,seq=128,steps=2,batch=2";
    let args = ["fit", "bert", "--set", set, "--devices", "t4-16gb,a100-80gb", "--seeds", "2"];
    let strategy = ["--strategy", "torch.caching"];
    let (fits, _) = rows(0, &[&args[..], &strategy].concat());
    assert_eq!(fits.len(), 2);
    let batch = |row: &Value| row["largest_batch"].as_u64().expect("a batch");
    assert!(fits.iter().all(|row| row["verdict"] == "fits" && batch(row) > 2));
    assert!(batch(&fits[1]) > batch(&fits[0]), "{fits:?}");
    let one_more = |more: u64| {
        let set = format!("{set},batch={}", batch(&fits[0]) + more);
        let args = ["fit", "bert", "--set", &set, "--devices", "t4-16gb", "--seeds", "1"];
        rows(0, &[&args[..], &strategy].concat()).0[0]["verdict"].clone()
    };
    assert_eq!((one_more(0), one_more(1)), ("fits".into(), "does not fit".into()));
    let (recorded, _) = rows(0, &["fit", &example(FITS), "--devices", "t4-16gb"]);
    assert!(recorded.len() == 4 && recorded[0]["verdict"] == "fits");
    for (args, want) in [
        (["fit", &example(FITS), "--set", "batch=3"], "are of models"),
        (["fit", "bert", "--devices", "t5"], "t4-16gb"),
        (["fit", "bert", "--set", "batches=3"], "batch"),
    ] {
        let (code, _, err) = call(&args);
        assert!(code == 2 && err.contains(want), "{args:?}: {err}");
    }
}

/// Pools that take a share of the device took one of the 16 TiB on which a peak is looked for; one that failed there had a peak of 0.
#[test]
fn a_pool_that_takes_a_share_takes_it_of_the_device() {
    let mut args = vec!["fit".to_owned(), example(FITS), "--devices".into(), "a100-80gb".into()];
    for name in ["tensorflow.xla", "tensorflow.bfc", "rmm.pool"] {
        args.extend(["--strategy".to_owned(), name.to_owned()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    for row in rows(0, &args).0 {
        let (floor, peak) = (bytes(&row["live_floor"]), bytes(&row["peak_reserved_most"]));
        assert!(row["verdict"] == "fits" && floor > 0 && floor <= peak, "{row}");
        assert!(bytes(&row["needs"]) <= bytes(&row["capacity"]), "{row}");
    }
    let folder = Folder::new();
    let huge = folder.file("t.jsonl", "{\"op\":\"alloc\",\"id\":1,\"size\":2000000000000000000}\n");
    let args = ["fit", &huge, "--devices", "a100-80gb", "--strategy", "torch.caching"];
    let row = &rows(0, &args).0[0];
    assert_eq!((&row["verdict"], bytes(&row["needs"])), (&"skipped".into(), 0), "{row}");
    assert_eq!(row["remark"], "requests fail even on 16 TiB");
}

/// Both were passed over in silence.
#[test]
fn what_cannot_be_done_is_refused() {
    let folder = Folder::new();
    let line = "{\"arrival_time\":1.5,\"input_toks\":3,\"output_toks\":2}\n";
    let requests = folder.file("RTX4090_x_requests.jsonl", line);
    let out = folder.path("out.jsonl");
    for option in [
        ["--export", &out],
        ["--at", "oom"],
        ["--from", "3"],
        ["--around", "peak"],
        ["--strategy", "cuda.malloc"],
    ] {
        let (code, _, err) = call(&[&["inspect", &requests], &option[..]].concat());
        assert!(code == 2 && err.contains(option[0]), "{option:?}: {code} {err}");
    }
    assert!(!std::path::Path::new(&out).exists());
    assert_eq!(call(&["inspect", &requests]).0, 0);
    let trace = "{\"op\":\"alloc\",\"id\":1,\"size\":9}\n{\"op\":\"free\",\"id\":1}\n";
    let trace = folder.file("t.jsonl", trace);
    assert_eq!(call(&["inspect", &trace, "--at", "1"]).0, 0);
    let (code, _, err) = call(&["inspect", &trace, "--at", "2"]);
    assert!(code == 2 && err.contains("--at 2: t.jsonl has ops 0 to 1"), "{err}");
}

/// The first 200 phases were kept, whatever their peaks, and streams filled pages.
#[test]
fn of_many_phases_and_streams_those_with_the_highest_peaks_are_shown() {
    let folder = Folder::new();
    let of = |n: u64| {
        format!(
            "{{\"op\":\"mark\",\"name\":\"step {n}\"}}\n{{\"op\":\"alloc\",\"id\":1,\"size\":{},\"stream\":{n}}}\n{{\"op\":\"free\",\"id\":1}}\n",
            n << 20
        )
    };
    let file = folder.file("t.jsonl", (1..=250).map(of).collect::<String>());
    let args = ["inspect", &file, "--strategy", "bound.live_floor"];
    let (seen, _) = rows(0, &args);
    let peak = &seen[0]["peak"];
    let growth = peak["growth"].as_array().expect("phases");
    assert_eq!((growth.len(), &peak["phases"]), (200, &250.into()));
    assert_eq!((&growth[0]["name"], &growth[199]["name"]), (&"step 51".into(), &"step 250".into()));
    let (_, out, _) = call(&[&args[..], &["--top", "2"]].concat());
    assert!(out.contains("(246 phases with lower peaks; --top shows more)"), "{out}");
    assert!(out.contains("(248 others)") && out.contains("\n          250 "), "{out}");
    let (_, out, _) = call(&[&args[..], &["--top", "18446744073709551615"]].concat());
    assert!(out.contains("(50 phases with lower peaks)\n"), "{out}");
}
