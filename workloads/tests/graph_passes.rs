//! Passes over graphs: each does what it says, in any order, and leaves nothing behind.

use vramlab_sim::device::profile::device;
use vramlab_workloads::graph::listing::{Line, lines};
use vramlab_workloads::graph::models::mlp::Mlp;
use vramlab_workloads::graph::op::F;
use vramlab_workloads::graph::plan::{Optimizer, Rule, Way};
use vramlab_workloads::graph::{DType, Graph, Plan, Run};
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
        ("checkpoint=budget:1B", "every group's input"),
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

/// Passes over what only training has say so, instead of telling of states that do not exist.
#[test]
fn what_training_needs_is_refused_in_inference() {
    for pass in [
        "accumulate=2",
        "checkpoint",
        "checkpoint=sqrt",
        "allreduce",
        "zero=1",
        "zero=2",
        "offload",
        "offload=activations",
    ] {
        for (model, phase) in [("resnet", "inference"), ("bert", "inference"), ("gpt2", "decode")] {
            let text = format!("phase={phase},passes={pass}");
            let workload = find(model).expect("a workload");
            let error = workload.source(&text, 0, &Rates::free()).err().expect(&text).to_string();
            let name = pass.split('=').next().unwrap_or(pass);
            assert!(error.contains(name) && error.contains("training"), "{model} {text}: {error}");
        }
    }
}

/// The kernels of a model's step.
fn kernels(model: &str, text: &str) -> Vec<Line> {
    let workload = find(model).expect("a workload");
    let given = workload.params_from(text).expect(text);
    let (plan, _) = workload.plan.expect("a model")(&given).expect(text);
    lines(&plan, &Rates::free()).expect(text)
}

fn moved(lines: &[Line], phase: &str, name: &str) -> u64 {
    let mine = lines.iter().filter(|line| line.phase.ends_with(phase) && line.name == name);
    mine.map(|line| line.moved_bytes).max().unwrap_or_else(|| panic!("no {name} in {phase}"))
}

fn dense(run: Run) -> (Vec<Line>, u64, u64) {
    let widths = vec![256; 5];
    let model = Mlp { batch: 8, widths, activation: F::Relu, dtype: DType::F32, train: true };
    let graph: Graph = model.graph().unwrap();
    let (bytes, weights) = (graph.state_bytes(), 8);
    (lines(&Plan { graph, run }, &Rates::free()).unwrap(), bytes, weights)
}

/// What is changed in place is read and written: `_fused_adam` of PyTorch 2.15 reads weight, gradient and two moments, and writes all but the gradient.
#[test]
fn an_update_moves_what_its_formula_says() {
    let run = |rule, way, decay| Run {
        optimizer: Optimizer { rule, way, decay },
        clip: true,
        ..Run::default()
    };
    let update = |rule, way, decay| {
        let (lines, bytes, weights) = dense(run(rule, way, decay));
        (moved(&lines, "optimizer", "update"), bytes, weights)
    };
    let adamw = Rule::Adam { decoupled: true };
    let (fused, bytes, weights) = update(adamw, Way::Fused, true);
    // and a counter of 4 B of each weight
    assert_eq!(fused, 7 * bytes + 2 * 4 * weights);
    // a root of the second moment beside them
    assert_eq!(update(adamw, Way::ForEach, true).0, 8 * bytes);
    let sgd = |momentum| update(Rule::Sgd { momentum }, Way::Fused, false).0;
    assert_eq!((sgd(false), sgd(true)), (3 * bytes, 5 * bytes));
    let (lines, bytes, _) = dense(run(adamw, Way::Fused, true));
    assert_eq!(moved(&lines, "optimizer", "clip"), 2 * bytes + 4);
}

#[test]
fn scaling_and_adding_gradients_move_them_twice_and_thrice() {
    let run = Run { scaled: true, accumulation: 2, ..Run::default() };
    let (lines, bytes, _) = dense(run);
    assert_eq!(moved(&lines, "optimizer", "unscale"), 2 * bytes + 8);
    let adds = lines.iter().filter(|line| line.phase == "micro 1 backward" && line.name == "add");
    assert_eq!(adds.map(|line| line.moved_bytes).sum::<u64>(), 3 * bytes);
}

/// Queries, keys and values are thirds of one storage, and are read as such.
#[test]
fn a_view_of_a_part_moves_that_part() {
    let lines = kernels("gpt2", "batch=8,seq=1024,layers=1,precision=bf16,phase=inference");
    let rows = 8 * 1024 * 768 * 2;
    let sums = 8 * 12 * 1024 * 4;
    let generator = 16 + 8;
    assert_eq!(moved(&lines, "forward", "attention.flash"), 4 * rows + sums + generator);
}

/// Transformers adds the mask's bias to the scores before the softmax; a padded batch is not that of a full one.
#[test]
fn eager_attention_adds_its_mask_and_fusion_takes_it_along() {
    let text = "batch=2,seq=16,layers=2,hidden=32,heads=2,ffn=64,vocabulary=50,attention=eager";
    let count = |text: &str, name: &str| {
        kernels("bert", text)
            .iter()
            .filter(|l| l.phase == "forward" && l.name == name && l.scope.contains("attention"))
            .count()
    };
    let ragged = format!("{text},mask=ragged");
    assert_eq!(count(&ragged, "add"), count(text, "add") + 2);
    let fused = format!("{ragged},passes=fusion=attention");
    // a bias for the kernel, then the kernel, in each layer
    assert_eq!((count(&fused, "attention.efficient"), count(&fused, "softmax")), (4, 0));
    assert_eq!(count(&format!("{text},passes=fusion=attention"), "attention.efficient"), 2);
}

#[test]
fn eager_attention_of_decoders_is_fused_to_what_they_run_otherwise() {
    for (model, more) in [
        ("gpt2", ""),
        ("llama", ",kv_heads=2,ffn=64"),
        ("llama", ",kv_heads=4,ffn=64,precision=fp32"),
    ] {
        let text = format!("batch=2,seq=16,layers=2,hidden=32,heads=4,vocabulary=50{more}");
        let seen = |more: &str| {
            let lines = kernels(model, &format!("{text}{more}"));
            let of = |name: &str| {
                lines.iter().filter(|l| l.phase == "forward" && l.name == name).count()
            };
            let flops: f64 = lines.iter().map(|line| line.flops).sum();
            (of("softmax"), of("attention.efficient") + of("attention.flash"), of("causal"), flops)
        };
        let (plain, eager) = (seen(""), seen(",attention=eager"));
        assert_eq!((eager.0, eager.1, eager.2), (2, 0, 1), "{model}{more}");
        assert!(eager.3 > plain.3, "{model}{more}: {eager:?} {plain:?}");
        assert_eq!(seen(",attention=eager,passes=fusion=attention"), plain, "{model}{more}");
    }
}

/// Scores of l² numbers are what memory-efficient attention saves.
#[test]
fn eager_attention_keeps_its_scores() {
    let peak = |text: &str| {
        let text =
            format!("batch=2,seq=512,layers=2,hidden=64,heads=4,vocabulary=50,steps=1{text}");
        let mut source = find("gpt2").unwrap().source(&text, 0, &Rates::free()).unwrap();
        live_peak(&mut *source).unwrap().bytes
    };
    let scores = 2 * 4 * 512 * 512;
    // softmax, its dropped copy and the mask of that, in each layer
    assert!(peak(",attention=eager") > peak("") + 2 * scores * (4 + 4 + 1));
}

/// A fused sum and ReLU once had a result of its own where its parts wrote in place, so that fusion raised the peak of residual networks.
#[test]
fn fusion_raises_no_peak() {
    let rates = Rates::of(&device("a100-80gb").expect("built in"));
    let small = "batch=4,seq=32,layers=2,hidden=64,heads=2,vocabulary=50,steps=2";
    let models = [
        ("bert", format!("{small},ffn=128,attention=eager")),
        ("bert", format!("{small},ffn=128,phase=inference")),
        ("gpt2", format!("{small},attention=eager")),
        ("gpt2", format!("{small},phase=inference")),
        ("llama", format!("{small},ffn=128,kv_heads=2,attention=eager")),
        ("llama", format!("{small},ffn=128,kv_heads=2,phase=inference")),
        ("mlp", "batch=4,steps=2".to_owned()),
        ("resnet", "batch=4,steps=2".to_owned()),
        ("resnet", "batch=4,depth=18,steps=2".to_owned()),
        ("resnet", "batch=4,phase=inference,steps=2".to_owned()),
        ("detector", "batch=2,size=128,steps=2".to_owned()),
        ("detector", "batch=2,size=128,phase=inference,steps=2".to_owned()),
        ("recogniser", "batch=4,width=64,classes=20,symbols=4,steps=2".to_owned()),
        ("recogniser", "batch=4,width=64,classes=20,phase=inference,steps=2".to_owned()),
    ];
    let mut higher = Vec::new();
    for (model, text) in models {
        let peak = |passes: &str| {
            let text = format!("{text},passes={passes}");
            let made = find(model).expect("a workload").source(&text, 0, &rates);
            live_peak(&mut *made.unwrap_or_else(|e| panic!("{model} {text}: {e}")))
                .expect(&text)
                .bytes
        };
        let plain = peak("none");
        for passes in ["fusion", "fusion=pointwise", "fusion=bias", "fusion=attention"] {
            if peak(passes) > plain {
                higher.push(format!(
                    "{model} {text} {passes}: {} B, without {plain} B",
                    peak(passes)
                ));
            }
        }
    }
    assert!(higher.is_empty(), "{}", higher.join("\n"));
}
