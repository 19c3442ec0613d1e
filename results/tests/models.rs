//! Models on the command line: `compare --passes`, `inspect MODEL`, `measured`.

mod support;

use support::{Folder, call, example, rows};

const SMALL: &str =
    "batch=4,seq=64,layers=4,hidden=64,heads=4,ffn=128,vocabulary=200,attention=eager";

#[test]
fn passes_are_rows_with_what_they_saved() {
    let passes = "checkpoint,amp=bf16+checkpoint=every:2";
    let (rows, _) = rows(0, &["-q", "compare", "bert", "--set", SMALL, "--passes", passes]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["passes"].as_str()).collect();
    assert_eq!(names, ["none", "checkpoint", "amp=bf16+checkpoint=every:2"]);
    let figure = |i: usize, key: &str| rows[i][key].as_f64().expect(key);
    assert!(figure(1, "saved") > 0.0 && figure(1, "slower") > 0.0);
    let wanted = 1.0 - figure(2, "peak_requested") / figure(0, "peak_requested");
    assert!((figure(2, "saved") - wanted).abs() < 1e-12);
    assert_eq!(rows[2]["changed"].as_array().map(Vec::len), Some(2));
    let (code, out, _) =
        call(&["-q", "compare", "bert", "--set", SMALL, "--passes", "none,fusion"]);
    assert!(code == 0 && out.contains("ms/step") && out.contains("4 attentions"), "{out}");
}

#[test]
fn a_model_is_inspected_by_operator() {
    let args = ["-q", "inspect", "bert", "--set", SMALL, "--passes", "fusion=attention"];
    let (rows, _) = rows(0, &args);
    let kernels = |passes: &str, phase: &str, operator: &str| {
        let found = rows.iter().find(|row| {
            row["passes"] == passes && row["phase"] == phase && row["operator"] == operator
        });
        found.and_then(|row| row["kernels"].as_u64()).unwrap_or(0)
    };
    assert_eq!(kernels("none", "forward", "softmax"), 4);
    assert_eq!(kernels("fusion=attention", "forward", "softmax"), 0);
    assert_eq!(kernels("fusion=attention", "forward", "attention.efficient"), 4);
    let (code, out, _) = call(&[&args[..], &["--each"]].concat());
    assert!(code == 0 && out.contains("layer.3.attention"), "{out}");
}

#[test]
fn what_is_no_model_no_pass_or_no_set_up_is_told() {
    let folder = Folder::new();
    let other = folder.file("other.json", "{\"model\": \"unknown\"}");
    let recording = example("bert_b8_s128_fp32_python_stacks.pickle.gz");
    let bad = folder.file("bad.json", "{");
    for (code, args, part) in [
        (2, vec!["compare", "churn", "--passes", "amp"], "churn has no graph"),
        (2, vec!["compare", "bert", "--passes", "apm"], "unknown pass \"apm\""),
        (2, vec!["compare", "bert", "--passes", "amp", "--seeds", "2"], "--seeds"),
        (2, vec!["compare", "bert", "--passes", "amp", "--set", "heads=7"], "heads"),
        (2, vec!["inspect", "bert", "--passes", "amp=x"], "expected fp16"),
        (2, vec!["inspect", "churn"], "churn has no graph"),
        (2, vec!["inspect", recording.as_str(), "--each"], "of models"),
        (
            3,
            vec!["compare", "bert", "--passes", "amp", "--strategy", "serving.paged"],
            "is a cache",
        ),
        (3, vec!["measured", other.as_str()], "no set-up"),
        (3, vec!["measured", "/dev/zero"], "no regular file"),
        (3, vec!["measured", bad.as_str()], "bad.json"),
        (3, vec!["measured", "nowhere.json"], "nowhere.json"),
    ] {
        let (found, out, err) = call(&args);
        assert_eq!(found, code, "{args:?}: {out}{err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
}

/// A pass that does not fit is a row with its reason, and the others run.
#[test]
fn a_pass_that_does_not_fit_leaves_the_others() {
    let set = "depth=18,batch=2,size=32,steps=1";
    let args = ["-q", "compare", "resnet", "--set", set, "--passes", "fold,checkpoint"];
    let (code, out, err) = call(&args);
    assert_eq!(code, 4, "{out}{err}");
    assert!(
        out.contains("fold was refused: ") && out.contains("inference, where statistics"),
        "{out}"
    );
    let (rows, _) = rows(4, &args);
    let told: Vec<_> =
        rows.iter().map(|row| (row["passes"].as_str(), row["outcome"].as_str())).collect();
    let expected = [("none", "ok"), ("fold", "refused"), ("checkpoint", "ok")];
    assert_eq!(told, expected.map(|(a, b)| (Some(a), Some(b))));
    assert!(rows[1]["step_ns"].is_null() && rows[2]["saved"].is_number());
}

/// A run that did not fit has no figures to compare, and the device is told.
#[test]
fn a_run_out_of_memory_has_dashes() {
    let set = "batch=8,seq=128,layers=2,steps=1";
    let args =
        ["-q", "compare", "bert", "--set", set, "--passes", "checkpoint", "--capacity", "700MiB"];
    let (code, out, _) = call(&args);
    assert!(code == 0 && out.contains("on a100-80gb of 700 MiB"), "{out}");
    let (rows, _) = rows(0, &args);
    assert_eq!(rows[0]["outcome"], "oom");
    for key in ["peak_requested", "peak_reserved", "step_ns", "saved", "slower"] {
        assert!(rows[0][key].is_null(), "{key}");
    }
}

/// What a decoder takes for a token does not depend on `steps`, nor on how its weights came.
#[test]
fn decoding_is_timed_by_the_token_after_loading() {
    let set =
        "phase=decode,prompts=16,new_tokens=7,layers=2,hidden=64,heads=4,vocabulary=100,batch=2";
    let ns = |more: &str| {
        let set = format!("{set}{more}");
        let (rows, _) = rows(0, &["-q", "compare", "gpt2", "--set", &set, "--passes", "amp"]);
        assert_eq!(rows[1]["per"], "token");
        rows[0]["step_ns"].as_u64().expect("a time")
    };
    assert_eq!(ns(""), ns(",steps=30"));
    assert_eq!(ns(""), ns(",load=mapped"));
    let (_, out, _) = call(&["-q", "compare", "gpt2", "--set", set, "--passes", "amp"]);
    assert!(out.contains("ms/token") && out.contains("a token is one for every sequence"), "{out}");
}

#[test]
fn rows_of_several_devices_say_how_many_and_what_passes_between_them() {
    let folder = Folder::new();
    let to = folder.path("out");
    let passes = "zero=2/devices:4,allreduce=devices:4";
    let args = ["-q", "compare", "bert", "--set", SMALL, "--passes", passes, "--out", to.as_str()];
    let (code, out, err) = call(&args);
    assert_eq!(code, 0, "{err}");
    for part in [
        "one of 4 devices, which hears",
        "GB/s",
        "plain data parallelism is allreduce=devices:4",
        "a lower bound",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    for name in ["json", "csv", "md"] {
        let text = std::fs::read_to_string(format!("{to}/compare.{name}")).expect(name);
        assert!(text.contains("zero=2/devices:4"), "{name}: {text}");
    }
    let (rows, _) = rows(0, &[&args[..7], &["--min-capacity"]].concat());
    assert!(rows.iter().all(|row| row["min_capacity"].is_number()));
}

/// Rows of several seeds are followed by what they agree on, in text only: data stays one object a run.
#[test]
fn several_seeds_give_intervals() {
    let args =
        ["compare", "ocr", "--set", "pages=3", "--seeds", "3", "--strategy", "torch.caching"];
    let (code, out, err) = call(&args);
    assert_eq!(code, 0, "{err}");
    let (_, table) =
        out.split_once("ocr, 3 seeds: means with 95 % confidence intervals").expect(&out);
    assert!(table.contains(" ± ") && table.contains("request ms P50"), "{out}");
    let (_, json, _) = call(&[&args[..], &["--format", "json"]].concat());
    assert_eq!(json.lines().count(), 3, "{json}");
}
