//! Tiered strategies end to end: a model that does not fit the device is trained on it, and what that costs is plausible.

use std::process::Command;

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

/// Runs `vramlab compare`; a row for each strategy.
fn compare(workload: &str, set: &str, capacity: &str, strategies: &[&str]) -> Vec<Value> {
    let mut command = Command::cargo_bin("vramlab").expect("it is built");
    command.args(["compare", workload, "--set", set, "--capacity", capacity, "--format", "json"]);
    strategies.iter().for_each(|strategy| {
        command.args(["--strategy", strategy]);
    });
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn number(row: &Value, path: &str) -> u64 {
    row.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {row}"))
}

fn moved(row: &Value) -> u64 {
    number(row, "/counters/bytes_to_host") + number(row, "/counters/bytes_to_device")
}

/// Fine-tuning of BERT-base at batch 32 needs 11.7 GB; the device has 4 GiB.
#[test]
fn bert_is_trained_on_a_third_of_the_memory_it_needs() {
    let strategies = [
        "torch.caching",
        "tiered.lru",
        "tiered.next_use",
        "tiered.predicted",
        "tiered.predicted:predictor=stride",
        "tiered.adaptive",
    ];
    let rows = compare("bert", "steps=3", "4GiB", &strategies);
    assert_eq!(rows[0]["outcome"], "oom");
    let tiered = &rows[1..];
    for row in tiered {
        let name = &row["strategy"];
        assert_eq!((&row["outcome"], &row["races"]), (&"ok".into(), &0.into()), "{name}");
        let (peak, resident) = (number(row, "/peak_reserved"), number(row, "/peak_resident"));
        assert!(resident <= peak && peak <= 4 << 30, "{name}: {resident} of {peak}");
        // what is beyond the device must leave it, and come back, in each step; of the last, not all comes back
        let beyond = number(row, "/live_floor") - peak;
        let bytes = number(row, "/counters/bytes_to_host");
        assert!((2 * beyond..6 * beyond).contains(&bytes), "{name}: {bytes} for {beyond}");
        // 25 GB/s each way: the run takes no less than the copies one way
        let (time, wait) = (number(row, "/time_ns"), number(row, "/counters/wait_ns"));
        assert!(time > bytes / 25 && wait < time, "{name}: {time} ns, waits {wait} ns");
    }
    let oracle = &tiered[1];
    assert!(tiered.iter().all(|row| moved(row) >= moved(oracle)), "the oracle moves least");
    let least = tiered.iter().map(|row| number(row, "/time_ns")).min();
    assert_eq!(least, Some(number(oracle, "/time_ns")), "and is first");
}

/// Weights that are read in turn: LRU drops each just before it is used again.
#[test]
fn inference_over_weights_that_do_not_fit_wants_another_policy_than_lru() {
    let set = "phase=inference,steps=8,layers=48,hidden=1024,ffn=4096,heads=16,batch=4,seq=128";
    let oracle = "tiered.next_use:prefetch_lead=0";
    let strategies = ["tiered.lru", oracle, "tiered.predicted", "tiered.adaptive"];
    let rows = compare("bert", set, "2GiB", &strategies);
    // what an oracle makes least is what comes back
    let [lru, oracle, predicted, adaptive] =
        [0, 1, 2, 3].map(|at| number(&rows[at], "/counters/bytes_to_device"));
    assert!(oracle < adaptive && oracle < predicted, "{oracle} {adaptive} {predicted}");
    assert!(5 * adaptive < 2 * lru && predicted < lru, "{adaptive} {predicted} {lru}");
    assert!(number(&rows[3], "/counters/works_inference") > 0);
    assert!(number(&rows[2], "/counters/predictor_accuracy_permille") > 800);
}
