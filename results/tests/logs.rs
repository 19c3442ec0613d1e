//! Logs of other programs on the command line: told by their content, replayed, inspected, listed; and what is refused.
#![forbid(unsafe_code)]

mod support;

use support::{Folder, call, example, rows};

const PLAN: &str = "id,lower,upper,size,offset\nb1,0,3,4096,8192\nb2,3,9,4096,8192\nb3,0,9,4096,4096\nb4,9,21,4096,4096\nb5,0,21,4096,0\n";
const RMM: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
    1,15:47:02.841961,allocate,0x10012400000,1048576,0x0\n\
    1,15:47:02.841977,allocate,0x10012500000,2097152,0x2\n\
    1,15:47:02.841987,free,0x10012400000,1048576,0x0\n";
const PROFILE: &str = "ts_us,device_type,device_id,addr,bytes,total_allocated,total_reserved\n\
    10,1,1,4096,1024,5120,8192\n11,1,1,8192,1024,6144,8192\n12,1,1,4096,-1024,5120,8192\n";
const BFC: &str = "x bfc_allocator.cc:627] Bin (256): \tTotal Chunks: 4, Chunks in use: 3. 1.0KiB allocated for chunks. 768B in use in bin. 520B client-requested in use in bin.\nLimit: 1048576\nFree at 0x100 of size 524288\n";

#[test]
fn a_snapshot_is_told_beside_them() {
    let (records, _) = rows(0, &["inspect", &example("bert_b64_s512_fp32_oom_16gb.pickle.gz")]);
    assert!(records[0]["torch"].is_string() && records[0]["planned_bytes"].is_null());
}

/// `live_floor` of a replay of one file.
fn floor(path: &str) -> u64 {
    let (rows, _) = rows(0, &["replay", path, "--strategy", "torch.caching"]);
    assert_eq!(rows.len(), 1);
    rows[0]["live_floor"].as_u64().expect("a figure")
}

#[test]
fn each_log_is_replayed() {
    let folder = Folder::new();
    assert_eq!(floor(&folder.file("a.csv", PLAN)), 12_288);
    assert_eq!(floor(&folder.file("b.txt", RMM)), 3_145_728);
    // 4096 bytes were there before the first event.
    assert_eq!(floor(&folder.file("c", PROFILE)), 6144);
    assert_eq!(floor(&folder.file("d.log", "0 3 100\n1 2 50\n")), 150);
}

#[test]
fn planners_reach_the_bound_of_a_plan() {
    let folder = Folder::new();
    let path = folder.file("plan.csv", PLAN);
    let strategies = ["--strategy", "bound.best_static", "--strategy", "bound.live_floor"];
    let (rows, _) = rows(0, &[&["replay", &path], &strategies[..]].concat());
    let peaks: Vec<_> = rows.iter().map(|row| row["peak_reserved"].as_u64()).collect();
    assert_eq!(peaks, [Some(12_288), Some(12_288)]);
}

#[test]
fn times_are_kept_on_demand() {
    let folder = Folder::new();
    let log = folder.file("rmm.csv", RMM);
    let (kept, _) = rows(0, &["replay", &log, "--keep-times"]);
    assert_eq!(kept[0]["times"], "recorded");
    let plan = folder.file("plan.csv", PLAN);
    let (code, _, err) = call(&["replay", &plan, "--keep-times"]);
    assert!(
        code == 0 && err.contains("--keep-times changes nothing: the recording has no times"),
        "{err}"
    );
}

#[test]
fn logs_become_json_lines_of_the_same_ops() {
    let folder = Folder::new();
    for (name, content) in [("plan.csv", PLAN), ("rmm.csv", RMM), ("profile.csv", PROFILE)] {
        let (from, to) = (folder.file(name, content), folder.path("out.jsonl"));
        let (code, _, err) = call(&["convert", &from, &to, "--keep-times"]);
        assert_eq!(code, 0, "{name}: {err}");
        assert_eq!(floor(&to), floor(&from), "{name}");
    }
}

#[test]
fn inspect_shows_what_is_in_it() {
    let folder = Folder::new();
    let shown = |name: &str, content: &str| {
        let (code, out, err) = call(&["inspect", &folder.file(name, content)]);
        assert_eq!(code, 0, "{name}: {err}");
        out
    };
    let plan = shown("plan.csv", PLAN);
    assert!(
        plan.contains("its own placement needs 0.0 MiB") && plan.contains("5 requests, 5 frees"),
        "{plan}"
    );
    let profile = shown("profile.csv", PROFILE);
    assert!(profile.contains("0 buffers live before the first op, 2 at the end"), "{profile}");
    let bfc = shown("log.txt", BFC);
    assert!(
        bfc.contains("log.txt: TensorFlow BFC dump") && bfc.contains("largest free chunk"),
        "{bfc}"
    );
    let requests = shown("r.jsonl", "{\"input_toks\": 7, \"output_toks\": 2}\n");
    assert!(requests.contains("longest prompt"), "{requests}");
    let sizes = shown("s.csv", "width,height\n5,6\n");
    assert!(sizes.contains("greatest height"), "{sizes}");
    let timeline = shown("t.json", "[[1, 2, 1048576, 4]]");
    assert!(timeline.contains("activation") && timeline.contains("1.0"), "{timeline}");
    let (records, _) = rows(0, &["inspect", &folder.file("log.txt", BFC)]);
    let limit = &records[0]["figures"][0];
    assert_eq!((limit["name"].as_str(), limit["value"].as_u64()), (Some("limit"), Some(1_048_576)));
}

#[test]
fn what_cannot_be_replayed_is_told() {
    let folder = Folder::new();
    let error = |name: &str, content: &str| {
        let (code, _, err) = call(&["replay", &folder.file(name, content)]);
        assert_eq!(code, 3, "{name}: {err}");
        err
    };
    let requests =
        error("r.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n");
    assert!(
        requests.contains(
            "r.csv: found LLM requests, CSV or JSON Lines, expected requests and frees to replay"
        ),
        "{requests}"
    );
    let bad = error("rmm.csv", &RMM.replace("2097152", "-4"));
    assert!(
        bad.contains("rmm.csv: line 3: column Size: found \"-4\", expected a whole number"),
        "{bad}"
    );
    let twice = error("rmm.csv", &RMM.replace("0x10012500000", "0x10012400000"));
    assert!(twice.contains("rmm.csv: line 3: allocate of pointer"), "{twice}");
    let host = error("p.csv", "ts_us,device_type,device_id,bytes\n1,0,-1,8\n");
    assert!(host.contains("found 1 memory events of the host and none of a device"), "{host}");
    let other = error("hello.txt", "hello");
    assert!(
        other.contains("found text that begins with \"hello\", expected a recording"),
        "{other}"
    );
    let verify = call(&["replay", "--verify", &folder.file("plan.csv", PLAN)]);
    assert!(verify.0 == 3 && verify.2.contains("no PyTorch snapshot"), "{verify:?}");
}

#[test]
fn every_format_is_listed() {
    let (records, _) = rows(0, &["list", "formats"]);
    assert_eq!(records.len(), 13);
    assert!(
        records.iter().all(|record| record["carries"].is_string() && record["summary"].is_string())
    );
}
