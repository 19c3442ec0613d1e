//! What comparisons say of services: who is answered, turned away or refused and why, latencies of a steady state, what times rest on.

mod support;

use std::fmt::Write as _;

use support::{Folder, call, rows};

/// Requests 0.2 s apart, of lengths without order; says how many of the prompts are long, 3,000 tokens or more.
fn trace(folder: &Folder, requests: u64) -> (String, u64) {
    let mut text = "arrived_at,num_prefill_tokens,num_decode_tokens\n".to_owned();
    let mut long = 0;
    for number in 0..requests {
        let chance = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) >> 40;
        let is_long = chance % 7 == 0;
        long += u64::from(is_long);
        let prompt = if is_long { 3000 + chance % 997 } else { 100 + chance % 1201 };
        let (s, tenths, answer) = (number / 5, number % 5 * 2, 5 + chance % 23);
        let _ = writeln!(text, "{s}.{tenths},{prompt},{answer}");
    }
    (folder.file("trace.csv", text), long)
}

/// The first refusal of memory ended the run: "buffer …, which is live already".
#[test]
fn a_page_service_that_sheds_or_retries_survives_refusals() {
    for on_oom in ["shed", "retry"] {
        let set = format!("pages=8,burst_rate=400,on_oom={on_oom}");
        let place = ["--device", "t4-16gb", "--capacity", "650MiB"];
        for strategy in ["torch.caching", "classic.best_fit"] {
            let args = ["-q", "compare", "ocr", "--set", &set, "--strategy", strategy];
            let (found, _) = rows(0, &[&args[..], &place].concat());
            let (row, answers) = (&found[0], &found[0]["answers"]);
            assert!(row["ooms"].as_u64() > Some(0), "{row}");
            assert_eq!((&answers["requests"], &answers["answered"]), (&8.into(), &8.into()));
            assert!(answers["shed"].as_u64() < Some(8), "{answers}");
        }
    }
}

#[test]
fn pages_that_a_full_queue_turns_away_are_counted() {
    let args = ["-q", "compare", "ocr", "--set", "pages=12,arrivals=poisson,rate=900,queue=2"];
    let args = [&args[..], &["--strategy", "torch.caching"]].concat();
    let (found, _) = rows(0, &args);
    let count = |key: &str| found[0]["answers"][key].as_u64().expect("a number");
    assert!(count("turned_away") > 2 && count("answered") + count("turned_away") == 12);
    let (_, table, _) = call(&args);
    let title = table.lines().nth(1).expect("titles");
    assert!(title.contains("answered") && title.contains("turned"), "{table}");
    let (_, csv, _) = call(&[&args[..], &["--format", "csv"]].concat());
    assert!(csv.contains("answers.turned_away"), "{csv}");
}

#[test]
fn one_run_over_a_trace_has_intervals_and_seeds_make_no_difference() {
    let folder = Folder::new();
    let (trace, _) = trace(&folder, 1200);
    let args = ["compare", "llm", "--trace", &trace, "--strategy", "serving.paged"];
    let (found, _) = rows(0, &args);
    let steady = &found[0]["steady"];
    assert_eq!(steady["requests"], 1200);
    for latency in ["ttft", "tpot", "e2e"] {
        for figure in ["mean", "p50", "p90", "p99"] {
            assert!(steady[latency][figure]["half"].as_f64() > Some(0.0), "{steady}");
        }
    }
    let (code, table, _) = call(&args);
    assert!(code == 0 && table.contains(" of 1200") && table.contains('±'), "{table}");
    let (_, table, err) = call(&[&args[..], &["--seeds", "3"]].concat());
    assert_eq!(err.matches("no seed makes a difference").count(), 1, "{err}");
    assert!(!table.contains("± 0.000") && table.matches("serving.paged").count() == 4, "{table}");
    let with = |warm_up: &str| {
        let (found, _) = rows(0, &[&args[..], &["--warm-up", warm_up]].concat());
        found[0]["steady"]["warm_up"].as_u64().expect("a number")
    };
    assert_eq!((with("none"), with("70")), (0, 70));
    let (code, _, err) = call(&[&args[..], &["--warm-up", "some"]].concat());
    assert!(code == 2 && err.contains("auto, none, or a number"), "{err}");
}

#[test]
fn who_is_over_a_limit_is_not_out_of_memory() {
    let folder = Folder::new();
    let (trace, long) = trace(&folder, 70);
    let run = |more: &[&str]| {
        let (found, _) = rows(0, &[&["compare", "llm", "--trace", &trace][..], more].concat());
        let counts = ["refused_limit", "refused_memory", "finished"];
        let counts = counts.map(|key| found[0]["served"][key].as_u64().expect("a number"));
        (counts, found[0]["outcome"].as_str().expect("a word").to_owned(), found[0].clone())
    };
    // long prompts are longer than a slot, and than what the server takes
    let (counts, outcome, row) = run(&["--strategy", "serving.contiguous_max:max_model_len=2048"]);
    let over = [long, 0, 70 - long];
    assert!(long > 3);
    assert_eq!((counts, outcome.as_str(), &row["ooms"]), (over, "ok", &0.into()));
    let unchunked =
        ["--strategy", "serving.paged", "--set", "enable_chunked_prefill=false,max_model_len=2048"];
    let (counts, outcome, _) = run(&unchunked);
    assert_eq!((counts, outcome.as_str()), (over, "ok"));
    // the weights alone are over the cache's share
    let small =
        ["--strategy", "serving.paged:gpu_memory_utilization=0.5", "--device", "rtx4090-24gb"];
    let (counts, outcome, row) = run(&small);
    assert_eq!((counts, outcome.as_str()), ([0, 70, 0], "oom"));
    let note = row["notes"][0].as_str().expect("a note");
    assert!(
        note.starts_with("nobody is served: weights and activations (")
            && note.contains("gpu_memory_utilization"),
        "{note}"
    );
    let (_, table, _) = call(&[&["compare", "llm", "--trace", &trace][..], &small].concat());
    assert!(table.contains("limit") && table.contains("memory"), "{table}");
}

#[test]
fn times_that_are_not_measured_say_what_they_rest_on() {
    let args = ["compare", "llm", "--set", "requests=3", "--strategy", "serving.paged"];
    let (_, table, _) = call(&args);
    assert_eq!(
        table.matches("times: a step takes the time that the full rates").count(),
        1,
        "{table}"
    );
    let (_, table, _) = call(&[&args[..], &["--set", "step=2e7/1e5/100"]].concat());
    assert!(!table.contains("times: "), "{table}");
}

#[test]
fn a_set_up_that_no_workload_has_is_told_with_the_reason() {
    let folder = Folder::new();
    folder.file("odd.json", r#"{"model":"ResNet-50 of torch.nn modules","precision":"int4"}"#);
    let (code, _, err) = call(&["measured", &folder.path("")]);
    assert!(code == 3 && err.contains("odd: precision: found \"int4\", expected fp32"), "{err}");
    let good = r#"{"model":"ResNet-18 of torch.nn modules","precision":"fp32","batch":1,"size":32,"steps":1,
        "last_batch":0,"optimizer":"SGD momentum 0.9 foreach (default)",
        "device":{"capacity_bytes":8589934592,"conv_workspace_model":"none"}}"#;
    folder.file("plain.json", good);
    let (code, out, err) = call(&["measured", &folder.path("")]);
    assert!(code == 0 && out.contains("plain"), "{code} {out}");
    assert!(err.contains("left out: odd: precision"), "{err}");
}

#[test]
fn files_of_no_format_are_told_by_what_is_in_them() {
    let folder = Folder::new();
    let messages =
        folder.file("m.jsonl", "{\"message\":\"a\",\"source\":\"b\"}\n{\"message\":\"c\"}\n");
    let times = folder.file("RTX4090_x_timeseries.csv", "t,running,kv_cache_pct\n1.0,5,2\n");
    let requests = folder.file(
        "RTX4090_x_requests.jsonl",
        "{\"arrival_time\":1.5,\"input_toks\":3,\"output_toks\":2}\n",
    );
    for command in ["inspect", "replay"] {
        let (code, _, err) = call(&[command, &messages]);
        assert!(code == 3 && err.contains("JSON Lines with the fields message, source"), "{err}");
        assert!(err.contains("vramlab list formats"), "{err}");
        let (code, _, err) = call(&[command, &times]);
        assert!(code == 3 && err.contains("columns t, running, kv_cache_pct"), "{err}");
        assert!(err.contains("vramlab measured takes the folder"), "{err}");
    }
    // a run's own file of requests stands for the run
    let (code, _, err) = call(&["measured", &requests]);
    assert!(code == 3 && err.contains("RTX4090_x_meta.json"), "{err}");
}
