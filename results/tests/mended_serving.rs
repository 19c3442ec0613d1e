//! What a new user met with servers and readers, held as tests.

mod support;

use support::pickle::Pickle;
use support::{Folder, call, rows};

/// The caches kept limits of their own, and the latencies of one were those of short requests only.
#[test]
fn caches_of_one_table_serve_the_same_requests_unless_a_spec_says_otherwise() {
    let set = ["--set", "requests=5,prompt_median=5000,prompt_sigma=0,output_median=20"];
    let (found, _) = rows(0, &[&["compare", "llm"][..], &set].concat());
    for row in &found {
        assert_eq!(row["served"]["finished"], 5, "{}: {}", row["strategy"], row["served"]);
    }
    let short = "serving.contiguous_max:max_model_len=2048";
    let args = [&["compare", "llm", "--strategy", "serving.paged", "--strategy", short], &set[..]];
    let (code, out, _) = call(&args.concat());
    let note = format!(
        "not the same for all strategies (who is over a limit is mostly long): serving.paged 5 of 5, {short} 0 of 5"
    );
    assert!(code == 0 && out.contains(&note), "{out}");
}

/// Its geometry was that of 32 layers, and the driver refused a map behind the addresses.
#[test]
fn caches_take_their_geometry_from_the_model() {
    for model in ["llama-2-13b", "qwen3-30b-a3b", "llama-2-7b"] {
        let set = format!("model={model},requests=3,max_model_len=4096");
        let (found, _) = rows(0, &["compare", "llm", "--set", &set]);
        for row in &found {
            assert_eq!(row["served"]["finished"], 3, "{model}, {}: {row}", row["strategy"]);
        }
    }
    let spec = "serving.paged:token_bytes=65536";
    let (found, _) = rows(0, &["compare", "llm", "--set", "requests=3", "--strategy", spec]);
    let note = "keys and values of a token take 65536 B in the cache (token_bytes), 131072 B as the workload says";
    assert_eq!(found[0]["notes"][0], note, "{}", found[0]["notes"]);
}

/// Two seeds gave 169 ± 376 ms.
#[test]
fn too_few_seeds_give_no_interval_and_say_so() {
    let args = ["compare", "ocr", "--set", "pages=3", "--strategy", "torch.caching", "--seeds"];
    let (code, out, _) = call(&[&args[..], &["2"]].concat());
    let (_, table) = out.split_once("ocr, 2 seeds").expect(&out);
    assert!(code == 0 && !table.contains('±'), "{out}");
    assert!(table.contains("too few seeds for one: fewer than 3"), "{out}");
}

/// A request that failed was counted as a free too.
#[test]
fn a_request_that_failed_is_no_free() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n\
        1,00:00:01.0,allocate,0x10,1024,0\n\
        1,00:00:01.5,allocate failure,0x0,99999,0\n\
        1,00:00:01.2,free,0x10,1024,0\n";
    let folder = Folder::new();
    let (code, out, err) = call(&["inspect", &folder.file("rmm.csv", log)]);
    assert!(code == 0 && out.contains("2 requests, 1 frees;"), "{out}{err}");
    assert!(out.contains("line 4 is 300.000 ms before the line above it"), "{out}{err}");
}

/// `replay` took it for a program that had asked for nothing, and `inspect` for bad input.
#[test]
fn an_empty_snapshot_is_no_bad_input() {
    let folder = Folder::new();
    let mut empty = Pickle::new();
    empty.dict(|snapshot| {
        snapshot.text("segments");
        snapshot.list(|_| ());
        snapshot.text("device_traces");
        snapshot.list(|devices| devices.list(|_| ()));
    });
    let file = folder.file("empty.pickle", empty.finish());
    for command in ["replay", "inspect"] {
        let (code, _, err) = call(&[command, &file]);
        assert!(code == 0 && err.contains("no history"), "{command}: {err}");
    }
    assert_eq!(call(&["inspect", &file, "--diff", &file]).0, 3);
}

#[test]
fn requests_without_times_say_that_arrivals_are_drawn_and_lengths_have_quantiles() {
    let lines: Vec<String> =
        (1..=100).map(|n| format!("{{\"input_toks\": {n}, \"output_toks\": {}}}", 2 * n)).collect();
    let folder = Folder::new();
    let file = folder.file("r.jsonl", lines.join("\n") + "\n");
    let args = ["compare", "llm", "--trace", &file, "--strategy", "serving.paged"];
    let (code, _, err) = call(&args);
    assert!(
        code == 0
            && err.contains(
                "no times of arrival: they are drawn (arrivals=poisson, rate=3 requests/s)"
            ),
        "{err}"
    );
    let (records, _) = rows(0, &["inspect", &file]);
    let figures = records[0]["figures"].as_array().expect("figures");
    let of = |name: &str| figures.iter().find(|f| f["name"] == name).map(|f| f["value"].clone());
    assert_eq!(of("median prompt"), Some(50.into()));
    assert_eq!(of("P95 of prompts"), Some(95.into()));
    assert_eq!(of("P95 of outputs"), Some(190.into()));
    let timed = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-16 18:15:46,374,44\n2023-11-16 19:45:46,396,109\n";
    let (_, out, _) = call(&["inspect", &folder.file("azure.csv", timed)]);
    let last = out.lines().find(|line| line.trim_start().starts_with("last arrival")).expect(&out);
    assert!(last.contains("5400.000") && last.trim_end().ends_with('s'), "{last}");
}

/// Dumps of older versions have no lines of regions, and 0 of them were told.
#[test]
fn regions_of_an_old_dump_are_the_chunks_that_touch() {
    let dump = "W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_0_bfc) ran out of memory trying to allocate 74.16MiB.  Current allocation summary follows.\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:661] Chunk at 0x1000 of size 1280\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:670] Free at 0x1500 of size 256\n\
        I tensorflow/core/common_runtime/bfc_allocator.cc:661] Chunk at 0x9000 of size 256\n";
    let folder = Folder::new();
    let (records, _) = rows(0, &["inspect", &folder.file("log.txt", dump)]);
    let figures = records[0]["figures"].as_array().expect("figures");
    let regions: Vec<_> = figures
        .iter()
        .filter(|f| f["name"].as_str().is_some_and(|name| name.starts_with("regions")))
        .collect();
    assert_eq!(regions.len(), 1, "{regions:?}");
    assert_eq!(
        (regions[0]["name"].as_str(), &regions[0]["value"]),
        (Some("regions, by chunks that touch"), &2.into())
    );
}
