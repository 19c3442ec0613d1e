//! Passes over graphs: each does what it says, in any order, and leaves nothing behind.

use vramlab_sim::device::profile::device;
use vramlab_workloads::live::{LivePeak, live_peak};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;

const SMALL: &str = "batch=4,seq=128,layers=6,hidden=128,heads=4,ffn=512,vocabulary=500,steps=3";

fn seen(text: &str) -> LivePeak {
    let rates = Rates::of(&device("a100-80gb").expect("built in"));
    let workload = find("bert").expect("a workload");
    let mut source = workload.source(&format!("{SMALL},{text}"), 0, &rates).expect(text);
    live_peak(&mut *source).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn each_pass_alone_lowers_the_peak_or_the_number_of_requests() {
    let plain = seen("attention=eager");
    for pass in [
        "checkpoint",
        "checkpoint=sqrt",
        "checkpoint=every:3",
        "checkpoint=first:2",
        "amp",
        "fusion=attention",
        "accumulate=2",
    ] {
        let with = seen(&format!("attention=eager,passes={pass}"));
        assert!(with.bytes < plain.bytes, "{pass}: {} B, without {} B", with.bytes, plain.bytes);
    }
    for pass in ["fusion=pointwise", "inplace"] {
        let with = seen(&format!("attention=eager,passes={pass}"));
        assert!(with.allocs < plain.allocs && with.bytes <= plain.bytes, "{pass}");
    }
    assert_eq!(seen("attention=eager,passes=none"), plain);
}

#[test]
fn late_release_raises_the_peak_and_planning_makes_fewer_requests() {
    let plain = seen("");
    let end = seen("passes=release=end");
    let delayed = seen("passes=release=delayed:4MiB");
    assert!(plain.bytes < delayed.bytes && delayed.bytes < end.bytes);
    assert_eq!(seen("passes=release=delayed:0B").bytes, plain.bytes);
    let planned = seen("passes=release=planned");
    assert!(planned.allocs < plain.allocs, "{planned:?} {plain:?}");
    assert!(planned.bytes < end.bytes, "{planned:?} {end:?}");
}

/// What stays after a run is weights, gradients' absence, moments, the last batch and results: no pass leaks or frees too much.
#[test]
fn passes_in_any_order_leave_what_a_run_leaves() {
    let passes = ["amp=bf16", "checkpoint=every:2", "fusion", "cse", "inplace", "accumulate=2"];
    let mut ends = Vec::new();
    for first in 0..passes.len() {
        let order: Vec<&str> =
            (0..passes.len()).map(|i| passes[(first + i) % passes.len()]).collect();
        let mut back = order.clone();
        back.reverse();
        for order in [order, back] {
            let text = format!("attention=eager,passes={}", order.join("+"));
            ends.push((seen(&text).bytes_at_end, text));
        }
    }
    for (bytes, text) in &ends {
        assert_eq!(*bytes, ends[0].0, "{text}");
    }
}

#[test]
fn half_weights_have_masters_and_a_third_more_state_than_half() {
    let full = seen("").bytes_at_end;
    let half = seen("passes=amp=half_bf16").bytes_at_end;
    // 4 + 8 bytes a number against 2 + 4 + 8
    assert!(half > full && half < full * 14 / 12 + 100_000, "{half} {full}");
}

#[test]
fn bad_passes_are_refused_by_name() {
    let rates = Rates::free();
    let bert = find("bert").expect("a workload");
    for (passes, part) in [
        ("amq", "did you mean amp"),
        ("amp=fp8", "expected fp16, bf16"),
        ("checkpoint=every:0", "every:K"),
        ("checkpoint=some", "sqrt"),
        ("release=delayed:much", "delayed:SIZE"),
        ("accumulate=3", "divide batch=32"),
        ("accumulate=x", "a whole number"),
        ("cse=1", "no option"),
        ("fusion=conv", "pointwise"),
    ] {
        let error = bert.source(&format!("passes={passes}"), 0, &rates).err().expect(passes);
        assert!(error.to_string().contains(part), "{passes}: {error}");
    }
}
