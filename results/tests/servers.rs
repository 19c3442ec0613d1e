//! The command on servers of language models.

mod support;

use support::{Folder, call, rows};

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
    2023-11-16 18:15:46.6805900,374,44\n\
    2023-11-16 18:15:50.9951690,396,109\n\
    2023-11-16 18:15:51.2225670,879,55\n";

#[test]
fn compare_llm_says_what_users_waited_for() {
    let folder = Folder::new();
    let trace = folder.file("azure.csv", AZURE);
    let args = ["compare", "llm", "--trace", &trace, "--strategy", "serving.paged"];
    let (found, _) = rows(0, &args);
    let row = &found[0];
    assert_eq!((&row["input"], &row["outcome"]), (&"llm, azure.csv".into(), &"ok".into()));
    let served = &row["served"];
    let counts = ["requests", "finished", "refused", "output_tokens"].map(|key| &served[key]);
    assert_eq!(counts, [3, 3, 0, 208]);
    for latency in ["ttft", "tpot", "e2e"] {
        let of = |key: &str| served[latency][key].as_u64().expect("ns");
        assert!(of("p50") <= of("p90") && of("p90") <= of("p99") && of("mean") > 0, "{served}");
        assert_eq!(of("count"), 3);
    }
    let (code, table, _) = call(&args);
    assert!(code == 0 && table.contains("TTFT s P50/90/99"), "{table}");
}

#[test]
fn a_server_is_compared_over_the_caches_unless_strategies_are_named() {
    let set = ["--set", "requests=3"];
    let (found, _) = rows(0, &[&["compare", "llm"][..], &set].concat());
    let names: Vec<&str> = found.iter().filter_map(|row| row["strategy"].as_str()).collect();
    assert!(names.len() > 3 && names.iter().all(|name| name.starts_with("serving.")), "{names:?}");
    let named = ["compare", "llm", "--strategy", "torch.caching"];
    let (found, _) = rows(0, &[&named[..], &set].concat());
    assert_eq!(found[0]["served"]["finished"], 3);
}

/// It served requests without a model.
#[test]
fn a_model_of_an_impossible_size_serves_nobody() {
    let set = ["--set", "requests=2,weights=18446744073709551615", "--strategy", "torch.caching"];
    let (found, _) = rows(0, &[&["compare", "llm"], &set[..]].concat());
    assert_eq!(found[0]["served"]["finished"], 0, "{}", found[0]);
}

#[test]
fn a_server_computes_at_the_rates_of_the_device() {
    let of = |device: &str| {
        let args = ["compare", "llm", "--set", "requests=3", "--strategy", "serving.paged"];
        let (found, _) = rows(0, &[&args[..], &["--device", device]].concat());
        found[0]["served"]["e2e"]["mean"].as_u64().expect("ns")
    };
    assert!(of("h100-80gb") * 10 < of("a100-80gb") * 8);
}

#[test]
fn a_bad_trace_is_told_with_its_line() {
    let folder = Folder::new();
    let bad = folder.file("bad.csv", AZURE.replace("396", "many"));
    let (code, _, err) = call(&["compare", "llm", "--trace", &bad]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("bad.csv") && err.contains("line 3") && err.contains("many"), "{err}");
    // the first row counts like any other, and no other requests are served instead
    let first = folder.file("first.csv", AZURE.replace("374", "many"));
    for trace in [first.as_str(), "/nowhere.csv"] {
        let (code, out, err) = call(&["compare", "llm", "--trace", trace]);
        assert!(code == 3 && out.is_empty() && err.contains(trace), "{code}: {out}{err}");
    }
    let (code, _, err) = call(&["compare", "llm", "--set", "trace=/nowhere.csv"]);
    assert!(code == 3 && err.contains("/nowhere.csv"), "{code}: {err}");
    let (code, _, err) = call(&["compare", "llm", "--set", "step=1/2"]);
    assert!(code == 2 && err.contains("three numbers"), "{code}: {err}");
}

#[test]
fn measured_wants_runs_with_what_was_measured() {
    let folder = Folder::new();
    folder.file(
        "RTX4090_x_requests.jsonl",
        "{\"arrival_time\":1.5,\"input_toks\":3,\"output_toks\":2}\n",
    );
    let (code, _, err) = call(&["measured", &folder.path("")]);
    assert!(code == 3 && err.contains("RTX4090_x_meta.json"), "{code}: {err}");
    let meta = r#"{"model":"meta-llama/Llama-3.1-8B","engine_kwargs":{"max_num_seqs":8,"max_num_batched_tokens":64}}"#;
    folder.file("RTX4090_x_meta.json", meta);
    let (code, _, err) = call(&["measured", &folder.path("")]);
    assert!(code == 3 && err.contains("request 0: found no measured times"), "{code}: {err}");
    folder.file("RTX4090_x_meta.json", meta.replace("Llama", "Camel"));
    let (code, _, err) = call(&["measured", &folder.path("")]);
    assert!(code == 3 && err.contains("Camel") && err.contains("llama-3.1-8b"), "{code}: {err}");
}
