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
        "checkpoint=budget:12MiB",
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
fn bias_and_activation_are_one_kernel() {
    let (plain, fused) = (seen(""), seen("passes=fusion=bias"));
    // a kernel less in each layer and step, and in the pooler
    assert!(fused.ops < plain.ops && fused.bytes <= plain.bytes, "{fused:?} {plain:?}");
    assert_eq!(fused.bytes_at_end, plain.bytes_at_end);
}

#[test]
fn eight_bit_weights_are_a_quarter_and_are_quantised_one_by_one() {
    let text = "phase=inference,batch=1,seq=8,layers=2,hidden=256,heads=4,vocabulary=100";
    let state = |more: &str| {
        let rates = Rates::free();
        let gpt2 = find("gpt2").expect("a workload");
        let mut source = gpt2.source(&format!("{text},{more}"), 0, &rates).expect(more);
        live_peak(&mut *source).unwrap_or_else(|error| panic!("{more}: {error}"))
    };
    let (full, small) = (state("steps=1"), state("steps=1,passes=int8"));
    let dense = 2 * 12 * 256 * 256;
    let scales = 2 * (3 + 1 + 4 + 1) * 256 * 4;
    assert_eq!(full.bytes_at_end - small.bytes_at_end, dense * 3 - scales);
    let loaded = state("steps=1,passes=int8,load=quantised");
    assert_eq!(loaded.bytes_at_end, small.bytes_at_end);
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
        ("checkpoint=budget:1B", "largest block"),
        ("int8", "inference"),
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
