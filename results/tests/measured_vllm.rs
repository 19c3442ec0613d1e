//! Our server beside measured runs of vLLM: the size of its cache, how full it is, and what users waited for.
#![forbid(unsafe_code)]

mod shared;

use vramlab::serving::recorded::{Run, runs};
use vramlab::serving::table::{ANSWERED, CAPACITY, Line, lines};

/// The target, as a share of what was measured.
const ERROR_MAX: f64 = 0.05;

fn line<'a>(lines: &'a [Line], quantity: &str) -> &'a Line {
    let found = lines.iter().find(|line| line.quantity == quantity);
    found.unwrap_or_else(|| panic!("expected a line {quantity:?}"))
}

/// Figures that miss the target.
fn missed(lines: &[Line]) -> Vec<String> {
    let of = |line: &&Line| {
        line.measured.is_some_and(|measured| measured != 0.0)
            && line.fitted_error.is_none_or(|error| error.abs() > ERROR_MAX)
    };
    let text = |line: &Line| format!("{}: error {:?}", line.quantity, line.fitted_error);
    lines.iter().filter(of).map(text).collect()
}

fn check(run: &Run, lines: &[Line]) {
    let blocks: Vec<&Line> =
        lines.iter().filter(|line| line.quantity.starts_with(CAPACITY)).collect();
    let [least, most] = [blocks[0], blocks[1]].map(|line| line.fitted.expect("blocks"));
    // 10 MB of blocks on each card, and one for each buffer that is rounded up to the device's granule
    let block_bytes = (16 * run.model.token_bytes()) as f64;
    let rounding = 10e6 * run.copies as f64 / block_bytes + 2.0;
    assert!(least < most && most - least <= rounding, "{least} {most}");
    let bytes = run.model.weight_bytes_of(run.copies) + run.copies * 1_240_000_000;
    let share = run.capacity as f64 * run.utilization * run.copies as f64;
    let middle = (share - bytes as f64) / block_bytes;
    assert!((least - 2.0..=most + 2.0).contains(&middle), "{least} {middle} {most}");
    let answered = line(lines, ANSWERED);
    for ours in [answered.fitted, answered.longer, answered.roofline] {
        assert_eq!(ours, answered.measured, "{}: requests answered", run.name);
    }
    assert!(answered.carried.is_none_or(|ours| Some(ours) == answered.measured), "{}", run.name);
    if let Some(measured) = blocks[0].measured {
        assert!((least..=most).contains(&measured), "{}: {least} {most} {measured}", run.name);
    }
    if !run.curve.is_empty() {
        let far = line(lines, "KV use, mean distance by second").fitted;
        assert!(far.is_some_and(|far| far < ERROR_MAX), "{}: KV use is {far:?} away", run.name);
        let error = line(lines, "KV use, mean").fitted_error;
        assert!(error.is_some_and(|e| e.abs() < ERROR_MAX), "{}: mean KV use {error:?}", run.name);
    }
    let missed = missed(lines);
    assert!(missed.is_empty(), "{}: {}", run.name, missed.join(", "));
}

#[test]
fn recorded_vllm() {
    let Some(folder) = shared::folder("traces/vllm_measured") else { return };
    let runs = runs(&folder).unwrap_or_else(|error| panic!("{error}"));
    let all = lines(&runs).unwrap_or_else(|error| panic!("{error}"));
    for run in &runs {
        let own: Vec<Line> = all.iter().filter(|line| line.run == run.name).cloned().collect();
        check(run, &own);
    }
    println!("recorded_vllm: {} runs, all figures within 5 %", runs.len());
}
