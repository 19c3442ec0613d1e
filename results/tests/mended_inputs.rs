//! What a strict reader found the command to do wrong with devices, names and counts, each with the story of what it did.

mod shared;
mod support;

use support::{Folder, call, example, rows};

const FITS: &str = "resnet50_b32_fp32.pickle.gz";
const OOM: &str = "bert_b64_s512_fp32_oom_16gb.pickle.gz";
const MIB: u64 = 1 << 20;

fn alloc(id: u64, size: u64, device: u64) -> String {
    format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":{size},\"device\":{device}}}\n")
}

/// The search never looked below the live floor, which a strategy that keeps buffers elsewhere does not need: it said 2048 MiB.
#[test]
fn min_capacity_goes_below_the_live_floor() {
    let folder = Folder::new();
    let work = |id: u64| format!("{{\"op\":\"work\",\"dur\":9,\"writes\":[{id}]}}\n");
    let text: String = (0..8).map(|id| alloc(id, 256 * MIB, 0) + &work(id)).collect();
    let trace = folder.file("t.jsonl", text);
    let least = |strategy: &str| {
        let args = ["replay", &trace, "--strategy", strategy, "--min-capacity"];
        rows(0, &args).0[0]["min_capacity"].as_u64().expect("bytes")
    };
    assert_eq!(least("tiered.lru"), 256 * MIB);
    assert_eq!(least("planned.greedy_by_size:release=last_use"), 256 * MIB);
    assert!(least("cuda.managed") < 256 * MIB);
    assert_eq!(least("cuda.malloc"), 2048 * MIB);
}

/// Sums over all devices were held against the capacity of one: "192 GiB" for 20 GiB on each of eight, and exhaustion where none was.
#[test]
fn a_capacity_is_that_of_each_device() {
    let folder = Folder::new();
    let eight: String = (0..8).map(|device| alloc(device, 20 << 30, device)).collect();
    let (found, err) =
        rows(0, &["replay", &folder.file("eight.jsonl", eight), "--strategy", "cuda.malloc"]);
    assert_eq!((&found[0]["capacity"], &found[0]["ooms"]), (&(24_u64 << 30).into(), &0.into()));
    assert!(err.contains("live requests sum up to 20 GiB at most"), "{err}");
    assert_eq!(found[0]["live_floor_of_one"], 20_u64 << 30);
    assert_eq!(found[0]["live_floor"], 160_u64 << 30);

    let two = [alloc(1, 200 * MIB, 0), alloc(2, 120 * MIB, 1)].concat();
    let two = folder.file("two.jsonl", two);
    let args = ["replay", &two, "--strategy", "cuda.malloc", "--min-capacity"];
    assert_eq!(rows(0, &args).0[0]["min_capacity"], 200 * MIB);

    // The small request takes a segment of 2 MiB whatever the settings, and then the large one does not fit.
    let near = [alloc(1, 512, 0), alloc(2, 299 * MIB, 0), alloc(3, 200 * MIB, 1)].concat();
    let near = folder.file("near.jsonl", near);
    let (_, out, _) = call(&["advise", &near, "--capacity", "300MiB"]);
    assert!(out.contains("requests fail with every setting tried"), "{out}");
    let far = folder.file("far.jsonl", [alloc(1, 200 * MIB, 0), alloc(2, 301 * MIB, 1)].concat());
    let (_, out, _) = call(&["advise", &far, "--capacity", "300MiB"]);
    assert!(out.contains("the live buffers alone reach 301.0 MiB"), "{out}");
}

/// A converted recording was replayed with the newest rules and default settings, whatever it had been made with.
#[test]
fn a_converted_recording_is_replayed_as_the_original_is() {
    let folder = Folder::new();
    let converted = folder.path("t.jsonl");
    assert_eq!(call(&["convert", &example(FITS), &converted]).0, 0);
    let (own, _) = rows(0, &["replay", &example(FITS)]);
    let (same, _) = rows(0, &["replay", &converted]);
    for field in ["strategy", "options", "peak_reserved", "ooms", "driver_calls"] {
        assert_eq!(same[0][field], own[0][field], "{field}");
    }
    assert_eq!(own[0]["options"]["version"], "2.15");

    let header = |more: &str| {
        format!("{{\"vramlab_trace\":1,\"name\":\"x\",\"unit\":\"bytes, ns\"{more}}}\n")
            + &alloc(1, 5 * MIB, 0)
    };
    let set = header(",\"torch_version\":\"2.9\",\"conf\":\"max_split_size_mb:64\"");
    let set = folder.file("set.jsonl", set);
    let again = folder.path("again.jsonl.gz");
    assert_eq!(call(&["convert", &set, &again]).0, 0);
    for file in [&set, &again] {
        let options = rows(0, &["replay", file]).0[0]["options"].clone();
        assert_eq!(options["version"], "2.9");
        assert_eq!(options["conf"], "max_split_size_mb:64");
        let (_, out, _) = call(&["inspect", file]);
        assert!(out.contains("rules of PyTorch 2.9, settings: max_split_size_mb:64"), "{out}");
        let (advice, _) = rows(0, &["advise", file]);
        assert!(advice.iter().any(|row| row["conf"] == "max_split_size_mb:64"
            && row["verdict"] == "recorded"
            && row["options"]["version"] == "2.9"));
    }
    let options = &rows(0, &["replay", &set, "--torch-version", "2.15"]).0[0]["options"];
    assert_eq!(options["version"], "2.15");
    let old = folder.file("old.jsonl", header(",\"torch_version\":\"0.1\""));
    let (code, _, err) = call(&["replay", &old]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains(&format!("{old}: recorded torch_version 0.1")), "{err}");
}

/// The same for one device of a shared recording with settings: converted, two requests failed in it instead of one.
#[test]
fn a_converted_device_fails_where_the_recording_does() {
    let Some(traces) = shared::folder("traces/pytorch") else { return };
    let recording = traces.join("expandable_oom_4gpu.pickle.gz").display().to_string();
    let folder = Folder::new();
    let converted = folder.path("t.jsonl");
    assert_eq!(call(&["convert", &recording, &converted, "--device", "1"]).0, 0);
    let (own, _) = rows(0, &["replay", &recording]);
    let (same, _) = rows(0, &["replay", &converted]);
    let own = own.iter().find(|row| row["input"].to_string().contains("device 1"));
    let own = own.expect("the device has a history");
    for field in ["options", "capacity", "peak_reserved", "ooms", "first_oom_op"] {
        assert_eq!(same[0][field], own[field], "{field}");
    }
    assert_eq!(own["ooms"], 1);
    assert!(own["options"]["conf"].to_string().contains("expandable_segments:True"), "{own}");
}

/// Three commands took `--min-capacity` and did nothing with it.
#[test]
fn min_capacity_is_refused_where_nothing_is_searched() {
    let folder = Folder::new();
    let trace = folder.file("t.jsonl", alloc(1, MIB, 0));
    let per_op = folder.path("ops.jsonl");
    for args in [
        &["advise", &trace][..],
        &["replay", &trace, "--per-op", &per_op],
        &["replay", &example(FITS), "--verify"],
    ] {
        let (code, _, err) = call(&[args, &["--min-capacity"]].concat());
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains("--min-capacity"), "{err}");
    }
}

/// `compare --trace` ran recordings on the device of the workloads, where a failure that was recorded was none.
#[test]
fn compare_runs_a_recording_where_replay_does() {
    let file = example(OOM);
    let (own, _) = rows(0, &["replay", &file, "--strategy", "cuda.malloc"]);
    let args = ["compare", "fragment", "--set", "rounds=5", "--strategy", "cuda.malloc", "--trace"];
    let (both, err) = rows(0, &[&args[..], &[&file]].concat());
    assert_eq!(both[0]["device"], "a100-80gb");
    for field in ["device", "capacity", "ooms", "peak_reserved", "time_ns"] {
        assert_eq!(both[1][field], own[0][field], "{field}");
    }
    assert!(own[0]["ooms"].as_u64() >= Some(1), "{}", own[0]);
    assert!(err.contains("recorded allocator could get"), "{err}");
    let (named, _) = rows(0, &[&args[..], &[&file, "--device", "a100-80gb"]].concat());
    assert_eq!((&named[1]["device"], &named[1]["ooms"]), (&"a100-80gb".into(), &0.into()));
    assert_eq!(named[1]["capacity"], named[0]["capacity"]);
}

/// Two files of one name were one table, with the ops and the floor of the first.
#[test]
fn inputs_of_one_name_are_told_apart_by_their_paths() {
    let folder = Folder::new();
    for part in ["x", "y"] {
        std::fs::create_dir(folder.path(part)).expect("a folder");
    }
    let x = folder.file("x/a.jsonl", alloc(1, MIB, 0));
    let y = folder.file("y/a.jsonl", alloc(1, 2 * MIB, 0) + &alloc(2, MIB, 0));
    let other = folder.file("b.jsonl", alloc(1, MIB, 0));
    let (_, out, _) = call(&["replay", &x, &y, &other, "--strategy", "cuda.malloc"]);
    for heading in [format!("{x}: 1 ops"), format!("{y}: 2 ops"), "\nb.jsonl: 1 ops".to_owned()] {
        assert!(out.contains(&heading), "{heading}: {out}");
    }
    let args = ["compare", "--trace", &x, "--trace", &y, "--strategy", "cuda.malloc"];
    let (found, _) = rows(0, &args);
    assert_eq!((&found[0]["input"], &found[1]["input"]), (&x.clone().into(), &y.into()));
    let copies = ["x/r.pickle.gz", "y/r.pickle.gz"]
        .map(|name| folder.file(name, std::fs::read(example(FITS)).expect("a recording")));
    let (found, _) = rows(0, &["replay", "--verify", &copies[0], &copies[1]]);
    assert_eq!(found[0]["file"], copies[0]);
    assert_eq!(found[1]["file"], copies[1]);
}

/// A trace of sequences was "0.0 MiB at its peak", and a device was chosen for its buffers alone.
#[test]
fn sequences_are_inspected_and_find_room() {
    let folder = Folder::new();
    let new = |seq: u64| {
        format!("{{\"op\":\"kv_new\",\"seq\":{seq},\"tokens\":1024,\"token_bytes\":1048576}}\n")
    };
    let more = "{\"op\":\"kv_more\",\"seq\":0,\"tokens\":1024}\n".to_owned();
    let small = folder.file("small.jsonl", [alloc(1, MIB, 0), new(0), more].concat());
    let (seen, _) = rows(0, &["inspect", &small]);
    let (ran, _) = rows(0, &["replay", &small, "--strategy", "cuda.malloc"]);
    assert_eq!(seen[0]["peak"]["peak_bytes"], ran[0]["live_floor"]);
    assert_eq!(seen[0]["peak"]["peak_bytes"], 2049 * MIB);
    let (_, out, _) = call(&["inspect", &small]);
    assert!(out.contains("1 sequences, 1 live at the end, 1048576 B a token"), "{out}");
    assert!(out.contains("(sequences)"), "{out}");
    let many: String = (0..30).map(new).collect();
    let many = folder.file("many.jsonl", many);
    let (ran, _) = rows(0, &["replay", &many, "--strategy", "serving.paged"]);
    assert_eq!(ran[0]["capacity"], 32_u64 << 30);
}

/// A change of device or thread was an op to `inspect` and `convert`, and none to the engine.
#[test]
fn all_commands_count_the_same_ops() {
    let folder = Folder::new();
    let thread = "{\"op\":\"mark\",\"name\":\"m\",\"thread\":1}\n";
    let text = [&alloc(1, MIB, 0), &alloc(2, 2 * MIB, 1), thread, &alloc(3, 9 * MIB, 2)].concat();
    let trace = folder.file("t.jsonl", text);
    let (ran, _) = rows(0, &["replay", &trace, "--strategy", "cuda.malloc"]);
    let (seen, _) = rows(0, &["inspect", &trace]);
    assert_eq!((&ran[0]["ops"], &seen[0]["peak"]["ops"]), (&4.into(), &4.into()));
    assert_eq!(seen[0]["peak"]["peak_op"], 3);
    assert_eq!(seen[0]["peak"]["growth"][0]["op"], ran[0]["marks"][0]["op"]);
    let (_, _, err) = call(&["convert", &trace, &folder.path("u.jsonl")]);
    assert!(err.contains("4 ops written"), "{err}");
}

/// The column of driver calls counted the workload's own waits and copies: 2179 of 2207 were no call of the allocator.
#[test]
fn waits_and_copies_of_a_workload_are_no_memory_calls() {
    let folder = Folder::new();
    let others = [
        "{\"op\":\"sync\",\"stream\":0}\n",
        "{\"op\":\"sync\"}\n",
        "{\"op\":\"copy\",\"bytes\":9,\"dir\":\"h2d\"}\n",
        "{\"op\":\"event\",\"event\":1}\n",
        "{\"op\":\"wait\",\"event\":1,\"stream\":1}\n",
    ];
    let trace = folder.file("t.jsonl", alloc(1, 5 * MIB, 0) + &others.concat());
    // Markdown has each line of a table in one line.
    let cell = |args: &[&str], line: &str| {
        let (_, out, err) = call(&[args, &["--format", "markdown"]].concat());
        let cells = |of: &str| {
            let found = out.lines().find(|line| line.starts_with('|') && line.contains(of));
            let found = found.unwrap_or_else(|| panic!("{of} in {out}{err}"));
            found.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        let column = cells("driver calls").iter().position(|title| title == "driver calls");
        cells(line)[column.expect("the column")].clone()
    };
    assert_eq!(cell(&["replay", &trace, "--strategy", "cuda.malloc"], "cuda.malloc"), "1");
    assert_eq!(cell(&["advise", &trace], "(defaults)"), "1");
}

/// An advice gave sums of all devices, a peak that no device had, and did not say on which a request failed.
#[test]
fn advice_on_several_devices_says_of_which_each_figure_is() {
    let folder = Folder::new();
    let both = [alloc(1, 40 * MIB, 0), alloc(2, 100 * MIB, 1)].concat();
    let both = folder.file("both.jsonl", &both);
    let (_, out, _) = call(&["advise", &both]);
    assert!(
        out.contains(
            "both.jsonl on 2 devices of 24 GiB each; of all together: live floor 140.0 MiB"
        ),
        "{out}"
    );
    for (number, mib) in [(0, "40.0"), (1, "100.0")] {
        let line = format!("device {number}: live floor {mib} MiB, peak reserved {mib} MiB");
        assert!(out.contains(&line), "{line}: {out}");
    }
    let (found, _) = rows(0, &["replay", &both, "--strategy", "cuda.malloc"]);
    assert_eq!(found[0]["devices"]["0"]["peak_reserved"], 40 * MIB);
    assert_eq!(found[0]["devices"]["1"]["live_floor"], 100 * MIB);
    let (_, csv, _) = call(&["advise", &both, "--format", "csv"]);
    assert!(csv.contains("devices.1.live_floor"), "{csv}");
    let (_, out, _) = call(&["advise", &both, "--capacity", "90MiB"]);
    assert!(out.contains("reach 100.0 MiB on device 1 of 90.0 MiB: it is exhaustion"), "{out}");

    let near = [alloc(1, 512, 1), alloc(2, 299 * MIB, 1), alloc(3, 200 * MIB, 0)].concat();
    let near = folder.file("near.jsonl", near);
    let (_, out, _) = call(&["advise", &near, "--capacity", "300MiB"]);
    assert!(out.contains("the first, on device 1: out of device memory"), "{out}");

    let one = folder.file("one.jsonl", alloc(1, 40 * MIB, 3));
    let (found, _) = rows(0, &["replay", &one, "--strategy", "cuda.malloc"]);
    assert_eq!(found[0].get("devices"), None);
    let (_, out, _) = call(&["advise", &one]);
    assert!(out.contains("one.jsonl on 24 GiB of device memory, live floor 40.0 MiB"), "{out}");
}

/// Tables of long settings, of many columns and of long sites were up to 200 columns wide.
#[test]
fn tables_are_no_wider_than_160_columns() {
    let folder = Folder::new();
    let site = ["a/folder/of/some/project/a_module.py:100:some_function"; 3].join(" < ");
    let text = format!("{{\"op\":\"alloc\",\"id\":1,\"size\":9,\"site\":\"{site}\"}}\n");
    let trace = folder.file("t.jsonl", text);
    let long = "torch.caching:max_split_size_mb=256,garbage_collection_threshold=0.8,per_process_memory_fraction=0.95";
    for args in [
        &["advise", &trace][..],
        &["inspect", &trace],
        &["replay", &trace, "--strategy", long, "--min-capacity"],
    ] {
        let (code, out, err) = call(args);
        assert_eq!(code, 0, "{err}");
        let table = out.lines().filter(|line| line.contains("  "));
        let widest = table.max_by_key(|line| line.chars().count()).unwrap_or_default();
        assert!(widest.chars().count() <= 160, "{args:?}: {widest}");
        assert!(
            call(&[args, &["--format", "markdown"]].concat())
                .1
                .lines()
                .any(|line| line.len() > 160)
        );
    }
}

/// Rows that were left out are all alike, and so seeds were said to make no difference.
#[test]
fn seeds_are_judged_by_what_ran() {
    let none = "no seed makes a difference";
    let of =
        |args: &[&str]| call(&[args, &["--seeds", "2", "--strategy", "serving.paged"]].concat()).2;
    assert!(!of(&["compare", "churn", "--set", "allocs=50"]).contains(none));
    let also = ["--strategy", "cuda.malloc"];
    let fragment = ["compare", "fragment", "--set", "rounds=5"];
    assert!(of(&[&fragment[..], &also].concat()).contains(none));
    assert!(!of(&[&["compare", "churn", "--set", "allocs=50"][..], &also].concat()).contains(none));
}

/// "known: ", and nothing behind it.
#[test]
fn parameters_without_a_workload_are_refused_with_the_reason() {
    let folder = Folder::new();
    let trace = folder.file("t.jsonl", alloc(1, MIB, 0));
    let (code, _, err) = call(&["compare", "--trace", &trace, "--set", "steps=3"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("name a workload beside --trace") && !err.contains("known: "), "{err}");
}
