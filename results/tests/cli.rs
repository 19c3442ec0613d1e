//! The command as a person in trouble meets it: exit codes, messages, nothing half-written.

use std::path::Path;

use assert_cmd::Command;

fn vramlab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vramlab"))
}

/// Runs and gives (exit code, standard output, standard error).
fn call(args: &[&str]) -> (i32, String, String) {
    let output = vramlab().args(args).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("an exit code"), text(output.stdout), text(output.stderr))
}

/// A folder with these files.
fn files(list: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in list {
        std::fs::write(folder.path().join(name), content).expect("written");
    }
    folder
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

const TRACE: &str = "{\"op\":\"alloc\",\"id\":1,\"size\":5000000}\n{\"op\":\"alloc\",\"id\":2,\"size\":300}\n{\"op\":\"free\",\"id\":1}\n";

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../workloads/examples")
        .join(name)
        .display()
        .to_string()
}

#[test]
fn unknown_names_offer_the_nearest_and_exit_2() {
    let folder = files(&[("t.jsonl", TRACE.as_bytes())]);
    let trace = path(&folder, "t.jsonl");
    for (args, want) in [
        (vec!["replay", &trace, "--strategy", "torch.cachin"], "did you mean torch.caching?"),
        (
            vec!["replay", &trace, "--strategy", "torch.caching:max_split_size=1"],
            "max_split_size_mb",
        ),
        (vec!["compare", "varlenn"], "did you mean varlen"),
        (vec!["compare", "varlen", "--set", "stepz=3"], "steps"),
        (vec!["compare", "varlen", "--set", "steps=many"], "many"),
        (vec!["compare", "varlen", "--device", "a100-80g"], "a100-80gb"),
        (vec!["compare", "varlen", "--capacity", "lots"], "not a size"),
        (vec!["compare", "varlen", "--capacity", "0"], "leaves nothing"),
        (vec!["replay"], "FILE"),
        (
            vec!["replay", &trace, "--strategy", "torch.caching:conf='max_split_size_mb:5'"],
            "max_split_size_mb",
        ),
    ] {
        let (code, _, err) = call(&args);
        assert_eq!(code, 2, "{args:?}: {err}");
        assert!(err.contains(want), "{args:?}: {err}");
    }
}

#[test]
fn bad_input_names_the_file_and_exits_3() {
    let cases: [(&str, &[u8], &str); 9] = [
        ("empty.pickle", b"", "the file is empty"),
        ("text.txt", b"hello there\n", "text.txt"),
        ("cut.pickle", b"\x80\x04}", "cut.pickle"),
        ("call.pickle", b"\x80\x04cos\nsystem\n.", "call.pickle"),
        (
            "bad.jsonl",
            b"{\"op\":\"alloc\",\"id\":1,\"size\":1}\n{\"op\":\"alloc\",\"id\":2}\n",
            "bad.jsonl: line 2",
        ),
        (
            "free.jsonl",
            b"{\"op\":\"alloc\",\"id\":1,\"size\":1}\n{\"op\":\"free\",\"id\":9}\n",
            "free of buffer 9, which is not live",
        ),
        ("neg.jsonl", b"{\"op\":\"alloc\",\"id\":1,\"size\":-1}\n", "line 1"),
        ("unknown.jsonl", b"{\"op\":\"dance\"}\n", "unknown op \"dance\""),
        ("cut.json.gz", b"\x1f\x8b\x08\x00\x00", "cut.json.gz"),
    ];
    for (name, content, want) in cases {
        let folder = files(&[(name, content)]);
        let file = path(&folder, name);
        for command in [vec!["replay", &file], vec!["inspect", &file], vec!["advise", &file]] {
            let (code, out, err) = call(&command);
            assert_eq!(code, 3, "{command:?}: {out}{err}");
            assert!(err.contains(want) && err.contains(name), "{command:?}: {err}");
        }
    }
    let (code, _, err) = call(&["replay", "no/such/file.pickle"]);
    assert_eq!(code, 3);
    assert!(err.contains("no/such/file.pickle"), "{err}");
}

#[test]
fn sizes_at_the_edge_are_answers_not_crashes() {
    let lines: String = [
        "0",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551104",
    ]
    .iter()
    .enumerate()
    .map(|(id, size)| {
        format!(
            "{{\"op\":\"alloc\",\"id\":{id},\"size\":{size}}}\n{{\"op\":\"free\",\"id\":{id}}}\n"
        )
    })
    .collect();
    let folder = files(&[("edge.jsonl", lines.as_bytes())]);
    let (code, out, err) =
        call(&["replay", &path(&folder, "edge.jsonl"), "--strategy", "all", "--format", "json"]);
    assert_eq!(code, 0, "{err}");
    for line in out.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if row["outcome"] == "skipped" {
            continue;
        }
        let failed = row["ooms"].as_u64().unwrap_or(0) + row["invalid_sizes"].as_u64().unwrap_or(0);
        // CPython asks for 1 byte where 0 are wanted
        let least = u64::from(row["strategy"] == "host.pymalloc");
        assert_eq!((failed, row["peak_allocated"].as_u64()), (3, Some(least)), "{line}");
    }
}

/// Two conversations with the same beginning, and one that is too long for anyone.
const SEQUENCES: &str = "\
{\"op\":\"kv_new\",\"seq\":7,\"tokens\":40,\"keys\":[[1,0,32],[7,0,8]]}
{\"op\":\"kv_more\",\"seq\":7,\"tokens\":4,\"keys\":[[7,8,4]]}
{\"op\":\"mark\",\"name\":\"step\"}
{\"op\":\"kv_new\",\"seq\":8,\"tokens\":40,\"keys\":[[1,0,32],[8,0,8]]}
{\"op\":\"kv_new\",\"seq\":9,\"tokens\":9000000}
{\"op\":\"kv_more\",\"seq\":9,\"tokens\":1}
{\"op\":\"kv_free\",\"seq\":9}
{\"op\":\"kv_fork\",\"seq\":10,\"from\":8}
{\"op\":\"kv_free\",\"seq\":7}
";

#[test]
fn sequences_go_through_caches_and_through_any_allocator() {
    let folder = files(&[("kv.jsonl", SEQUENCES.as_bytes()), ("t.jsonl", TRACE.as_bytes())]);
    let trace = path(&folder, "kv.jsonl");
    // Without a capacity the device would be large enough for all of it.
    let on_24 = ["replay", &trace, "--capacity", "24GiB"];
    let all = ["--strategy", "all", "--format", "json"];
    let (code, out, err) = call(&[&on_24[..], &all].concat());
    assert_eq!(code, 0, "{err}");
    for line in out.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let name = row["strategy"].as_str().expect("a name");
        if row["outcome"] == "skipped" {
            let reason = row["reason"].as_str().expect("a reason");
            assert!(reason.contains("plans ahead") || reason.contains("which work"), "{line}");
            continue;
        }
        let told = row["notes"].to_string().contains("serving.contiguous_pow2");
        assert_eq!(told, !name.starts_with("serving."), "{line}");
        let number = |key: &str| row["kv"][key].as_u64();
        if !name.starts_with("serving.") && name != "torch.caching" {
            // some take no buffer as large as a sequence, and the host's has no end
            assert!(row["kv"].is_object(), "{line}");
            continue;
        }
        let counts = (number("refused_sequences"), number("peak_sequences"));
        assert_eq!(counts, (Some(1), Some(3)), "{line}");
        let found = matches!(name, "serving.paged" | "serving.radix" | "serving.elastic_pages");
        assert_eq!(number("hit"), Some(if found { 32 } else { 0 }), "{line}");
        // longer than a slot of contiguous_max, whatever the memory; the others have no room
        let refusals = ["ooms", "invalid_sizes"].map(|key| row[key].as_u64().expect("a number"));
        assert_eq!((refusals[0] + refusals[1], row["ops"].as_u64()), (1, Some(9)), "{line}");
        let limited = matches!(name, "serving.contiguous_max" | "serving.vattention");
        assert!(limited || refusals[0] == 1, "{line}");
    }
    let (_, table, _) =
        call(&[&["compare", "--trace"], &on_24[1..], &["--strategy", "serving.paged"]].concat());
    assert!(table.contains("hit rate") && table.contains("40.0 %"), "{table}");
    let lines = path(&folder, "lines.jsonl");
    let strategy = ["--strategy", "serving.paged", "--per-op", &lines];
    call(&[&on_24[..], &strategy].concat());
    let lines = std::fs::read_to_string(lines).expect("written");
    let line = lines.lines().nth(3).expect("the fourth op");
    assert!(line.contains("\"hit\":32") && line.contains("\"seq\":8"), "{line}");
    assert!(lines.lines().nth(4).is_some_and(|line| line.contains("no room in the cache")));
    let other = path(&folder, "t.jsonl");
    let (code, out, _) = call(&["replay", &other, "--strategy", "serving.radix"]);
    assert!(code == 0 && out.contains("this input has no sequences"), "{out}");
}

#[test]
fn gaps_at_the_start_of_a_truncated_trace_are_counted() {
    let text = format!("{{\"op\":\"free\",\"id\":77}}\n{TRACE}");
    let folder = files(&[("gap.jsonl", text.as_bytes())]);
    let (code, out, _) = call(&["replay", &path(&folder, "gap.jsonl"), "--format", "json"]);
    let row: serde_json::Value = serde_json::from_str(out.trim()).expect("one object");
    assert_eq!(
        (code, row["trace_gaps"].as_u64(), row["outcome"].as_str()),
        (0, Some(1), Some("ok"))
    );
}

#[test]
fn an_output_that_cannot_be_written_exits_7_before_the_work() {
    let folder = files(&[("file", b"not a folder")]);
    let out = format!("{}/inside", path(&folder, "file"));
    let (code, _, err) = call(&["compare", "varlen", "--out", &out]);
    assert_eq!(code, 7, "{err}");
    assert!(err.contains("cannot write") && err.contains("--out"), "{err}");
    let trace = files(&[("t.jsonl", TRACE.as_bytes())]);
    let (code, _, err) = call(&["convert", &path(&trace, "t.jsonl"), &format!("{out}/x.jsonl")]);
    assert_eq!(code, 7, "{err}");
}

#[test]
fn oom_is_a_result_unless_asked_otherwise() {
    let folder = files(&[("t.jsonl", TRACE.as_bytes())]);
    let trace = path(&folder, "t.jsonl");
    let (code, out, _) = call(&["replay", &trace, "--capacity", "4MiB", "--format", "json"]);
    let row: serde_json::Value = serde_json::from_str(out.trim()).expect("one object");
    assert_eq!(
        (code, row["outcome"].as_str(), row["first_oom_op"].as_u64()),
        (0, Some("oom"), Some(0))
    );
    let (code, _, _) = call(&["replay", &trace, "--capacity", "4MiB", "--fail-on-oom"]);
    assert_eq!(code, 5);
}

#[test]
fn per_op_lines_say_where_things_are() {
    let folder = files(&[("t.jsonl", TRACE.as_bytes())]);
    let out = path(&folder, "ops.jsonl");
    let (code, _, err) = call(&["replay", &path(&folder, "t.jsonl"), "--per-op", &out]);
    assert_eq!(code, 0, "{err}");
    let text = std::fs::read_to_string(&out).expect("written");
    let first: serde_json::Value =
        serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let want = serde_json::json!({"i": 0, "op": "alloc", "id": 1, "ok": true, "kind": "m", "segment": 0, "offset": 0,
        "block": 5_000_192, "allocated": 5_000_192, "active": 5_000_192, "reserved": 20_971_520});
    assert_eq!(first, want);
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn convert_and_replay_give_the_same_figures() {
    let folder = files(&[]);
    let out = path(&folder, "r.jsonl.gz");
    let from = example("bert_b64_s512_fp32_oom_16gb.pickle.gz");
    let (code, _, err) = call(&["convert", &from, &out]);
    assert_eq!(code, 0, "{err}");
    let figures = |file: &str| {
        let (_, out, err) = call(&[
            "replay",
            file,
            "--strategy",
            "torch.caching",
            "--capacity",
            "16GiB",
            "--format",
            "json",
        ]);
        let row: serde_json::Value =
            serde_json::from_str(out.trim()).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
        (row["peak_reserved"].clone(), row["ops"].clone(), row["ooms"].clone())
    };
    assert_eq!(figures(&from), figures(&out));
}

#[test]
fn verify_exits_1_when_our_rules_are_not_the_recorded_ones() {
    let recording = example("resnet50_b32_fp32.pickle.gz");
    let (code, out, err) = call(&["replay", &recording, "--verify"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("0 mismatches"), "{out}");
    let (code, out, _) = call(&["replay", &recording, "--verify", "--torch-version", "legacy"]);
    assert_eq!(code, 1, "{out}");
}

#[test]
fn advise_ranks_settings_and_names_those_that_do_nothing() {
    let (code, out, err) =
        call(&["advise", &example("bert_b64_s512_fp32_oom_16gb.pickle.gz"), "--format", "json"]);
    assert_eq!(code, 0, "{err}");
    let rows: Vec<serde_json::Value> =
        out.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert!(rows.len() >= 20, "{} settings", rows.len());
    let inert = rows.iter().find(|r| r["conf"] == "roundup_power2_divisions:1").expect("tried");
    assert_eq!(inert["verdict"], "does nothing here");
    assert!(
        inert["notes"][0].as_str().is_some_and(|n| n.contains("roundup_power2_divisions")),
        "{inert}"
    );
}

#[test]
fn every_format_of_list_and_compare_works() {
    for format in ["table", "json", "csv", "markdown"] {
        let (code, out, err) = call(&["list", "--format", format]);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("torch.caching") && out.contains("varlen"), "{out}");
    }
    let folder = files(&[]);
    let dir = path(&folder, "out");
    let args = [
        "compare",
        "varlen",
        "--set",
        "steps=2",
        "--strategy",
        "torch.caching",
        "--strategy",
        "cuda.malloc",
        "--seeds",
        "2",
    ];
    let (code, out, err) = call(&[&args[..], &["--format", "csv", "--out", &dir]].concat());
    assert_eq!((code, out.lines().count()), (0, 5), "{err}");
    for file in ["compare.json", "compare.csv", "compare.md"] {
        assert!(folder.path().join("out").join(file).is_file(), "{file}");
    }
}

/// Same inputs, same bytes out.
#[test]
fn results_do_not_change_from_run_to_run() {
    let args = ["compare", "ocr", "--set", "requests=20", "--format", "json", "--quiet"];
    assert_eq!(call(&args), call(&args));
}

#[test]
fn completions_are_printed() {
    let (code, out, _) = call(&["completions", "bash"]);
    assert_eq!(code, 0);
    assert!(out.contains("_vramlab"), "{out}");
}

/// On the found capacity the run ends well; on a granule less it does not.
#[test]
fn min_capacity_is_the_least_that_does() {
    let file = example("bert_b64_s512_fp32_oom_16gb.pickle.gz");
    let row = |more: &[&str]| {
        let args = [&["replay", &file, "--format", "json", "--quiet"], more].concat();
        let (code, out, err) = call(&args);
        assert_eq!(code, 0, "{err}");
        let rows: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        rows.get(0).cloned().unwrap_or(rows)
    };
    let found = row(&["--min-capacity"]);
    let least = found["min_capacity"].as_u64().expect("a number");
    assert_eq!((found["outcome"].as_str(), least % (2 << 20)), (Some("oom"), 0));
    assert!(least >= found["live_floor"].as_u64().expect("a number"));
    let outcome = |bytes: u64| row(&["--capacity", &bytes.to_string()])["outcome"].clone();
    assert_eq!((outcome(least), outcome(least - (2 << 20))), ("ok".into(), "oom".into()));
}
