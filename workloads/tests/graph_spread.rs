//! What passes over devices and host change, against the arithmetic of the papers that they are from.

use vramlab_sim::device::profile::device;
use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::Nanos;
use vramlab_workloads::graph::models::mlp::Mlp;
use vramlab_workloads::graph::models::resnet::ResNet;
use vramlab_workloads::graph::op::F;
use vramlab_workloads::graph::plan::{Optimizer, Rule, Run, Way};
use vramlab_workloads::graph::{DType, Graph, Plan, Player, listing, passes};
use vramlab_workloads::live::{LivePeak, live_peak};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;

const STEPS: u64 = 3;

/// Sixteen layers of equal width, in 16 bits; each size divides by 8.
fn layers(batch: u64) -> Graph {
    let widths = vec![1024; 17];
    Mlp { batch, widths, activation: F::Relu, dtype: DType::F16, train: true }.graph().unwrap()
}

fn player(graph: &Graph, run: &Run, text: &str) -> Player {
    let mut plan = Plan { graph: graph.clone(), run: run.clone() };
    passes::apply(&mut plan, &passes::parse(text).unwrap()).unwrap();
    Player::of(plan, STEPS, Rates::of(&device("a100-80gb").unwrap())).unwrap()
}

fn seen(graph: &Graph, run: &Run, text: &str) -> LivePeak {
    live_peak(&mut player(graph, run, text)).unwrap()
}

/// Bytes of all transfers in a direction, after loading.
fn carried(graph: &Graph, run: &Run, text: &str, wanted: Direction) -> u64 {
    let mut player = player(graph, run, text);
    let (mut all, mut marks) = (0, 0);
    loop {
        match player.next(Nanos(0), Answered::Done).unwrap() {
            Step::Op(Op::Mark { .. }) => marks += 1,
            Step::Op(Op::Copy { direction, bytes, .. }) if direction == wanted && marks > 1 => {
                all += bytes;
            }
            Step::End => return all,
            _ => {}
        }
    }
}

/// Rajbhandari et al. 2020, figure 1: mixed-precision Adam keeps 12 bytes of state for each 16-bit weight.
#[test]
fn zero_keeps_what_its_formulas_say() {
    let graph = layers(32);
    let weights = graph.state_bytes() / 2;
    let run = Run { master: true, set_to_none: false, ..Run::default() };
    let kept = |text: &str| seen(&graph, &run, text).bytes_at_end;
    let rest = kept("none") - 16 * weights;
    for n in [2, 8] {
        let stage = |stage: u64| kept(&format!("zero={stage}/devices:{n}")) - rest;
        assert_eq!(stage(1), 4 * weights + 12 * weights / n);
        assert_eq!(stage(2), 2 * weights + 14 * weights / n);
        assert_eq!(stage(3), 16 * weights / n);
    }
}

/// The same, section 7: stages 1 and 2 exchange as much as plain data parallelism, 2Ψ; stage 3 half as much again.
#[test]
fn zero_exchanges_what_its_analysis_says() {
    let graph = layers(32);
    let run = Run { master: true, ..Run::default() };
    let bytes = graph.state_bytes();
    let sent = |text: &str| carried(&graph, &run, text, Direction::PeerToPeer);
    let part = |times: u64| STEPS * times * bytes / 8 * 7;
    assert_eq!(sent("allreduce=devices:8"), part(2));
    assert_eq!(sent("allreduce=devices:8/sync"), part(2));
    assert_eq!(sent("allreduce=devices:8/view"), part(2));
    assert_eq!(sent("zero=1/devices:8"), part(2));
    assert_eq!(sent("zero=1/devices:8/bucket:4MiB"), part(2));
    assert_eq!(sent("zero=2/devices:8"), part(2));
    assert_eq!(sent("zero=3/devices:8"), part(3));
}

/// PyTorch's reducer keeps its buckets, as large as all gradients together; as views of them gradients take no room of their own (pytorch/pytorch#41954).
#[test]
fn buckets_stay_beside_gradients_or_hold_them() {
    let graph = layers(32);
    let weights = graph.state_bytes();
    let seen = |set_to_none, text: &str| {
        let run = Run { set_to_none, ..without_optimizer() };
        let seen = seen(&graph, &run, text);
        (seen.bytes, seen.bytes_at_end)
    };
    for set_to_none in [true, false] {
        let none = seen(set_to_none, "none");
        let bucketed = seen(set_to_none, "allreduce=devices:4");
        assert_eq!(bucketed.1, none.1 + weights, "{set_to_none}");
        assert!(bucketed.0 >= none.0 + weights, "{set_to_none}: {bucketed:?} {none:?}");
        let gradients = if set_to_none { weights } else { 0 };
        let view = seen(set_to_none, "allreduce=devices:4/view");
        assert_eq!(view.1, none.1 + gradients, "{set_to_none}");
        assert!(view.0 < bucketed.0, "{set_to_none}: {view:?} {bucketed:?}");
        assert_eq!(seen(set_to_none, "allreduce=devices:4/sync").1, none.1, "{set_to_none}");
    }
}

/// Huang et al. 2019, section 2.3, and Narayanan et al. 2021, section 2.2.
#[test]
fn a_pipeline_holds_the_activations_of_what_is_in_flight() {
    const BATCH: u64 = 4096;
    let graph = layers(BATCH);
    let run = without_optimizer();
    let peak = |stage: u64, micro: u64, schedule: &str| {
        let text = format!("pipeline=stages:4/stage:{stage}/micro:{micro}/schedule:{schedule}");
        seen(&graph, &run, &text).bytes
    };
    for stage in [0, 1] {
        let one = (peak(stage, 16, "gpipe") - peak(stage, 8, "gpipe")) / 8;
        // four layers keep what they read; the first is given its input, the last sends its output
        assert_eq!(one, 5 * BATCH * 1024 * 2);
        assert_eq!(peak(stage, 12, "gpipe") - peak(stage, 8, "gpipe"), 4 * one);
        assert_eq!(peak(stage, 16, "1f1b"), peak(stage, 8, "1f1b"));
        // 1F1B has gradients of weights beside the activations when it holds most of them
        let fewer = (8 - (4 - stage)) * one;
        let saved = peak(stage, 8, "gpipe") - peak(stage, 8, "1f1b");
        assert!(saved <= fewer && saved + graph.state_bytes() / 4 >= fewer, "{saved} {fewer}");
    }
}

/// All stages do what one device would do, in micro-batches of the same batch, and wait for each other (S − 1)/(M + S − 1) of a step (Narayanan et al. 2021,
/// section 2.2.1).
#[test]
fn a_pipeline_splits_the_batch_and_waits_for_its_stages() {
    let rates = Rates::of(&device("a100-80gb").unwrap());
    let gpt2 = find("gpt2").unwrap();
    let lines = |passes: &str| {
        let text =
            format!("batch=16,seq=64,layers=4,hidden=64,heads=4,vocabulary=100,passes={passes}");
        let given = gpt2.params_from(&text).unwrap();
        let (plan, _) = gpt2.plan.unwrap()(&given).unwrap();
        listing::lines(&plan, &rates).unwrap()
    };
    let flops = |lines: &[listing::Line]| lines.iter().map(|line| line.flops).sum::<f64>();
    let whole = flops(&lines("none"));
    for (stages, micro, schedule) in
        [(2, 4, "gpipe"), (4, 8, "1f1b"), (4, 16, "gpipe"), (1, 8, "1f1b")]
    {
        let of = |stage: u64| {
            lines(&format!(
                "pipeline=stages:{stages}/stage:{stage}/micro:{micro}/schedule:{schedule}"
            ))
        };
        let all: f64 = (0..stages).map(|stage| flops(&of(stage))).sum();
        assert!((all / whole - 1.0).abs() < 1e-9, "{stages} {micro}: {all} {whole}");
        for stage in 0..stages {
            let lines = of(stage);
            let waits = |line: &&listing::Line| line.name == "wait for stages";
            let wait: u64 = lines.iter().filter(waits).map(|line| line.ns).sum();
            let busy: u64 = lines
                .iter()
                .filter(|l| !waits(l) && l.phase.contains("stage"))
                .map(|line| line.ns)
                .sum();
            assert_eq!(wait, busy * (stages - 1) / micro);
        }
    }
    // one hidden state comes back as a gradient, of every token once
    let text = "batch=16,seq=64,layers=4,hidden=64,heads=4,vocabulary=100,passes=pipeline=stages:2";
    let (plan, _) = gpt2.plan.unwrap()(&gpt2.params_from(text).unwrap()).unwrap();
    assert_eq!(listing::exchanged(&plan).unwrap(), 16 * 64 * 64 * 4);
    let given = gpt2.params_from("batch=8,passes=pipeline=stages:2/micro:3").unwrap();
    let told = gpt2.plan.unwrap()(&given).unwrap_err().to_string();
    assert!(
        told.contains("pass pipeline: found \"3 parts\", expected parts that divide batch=8"),
        "{told}"
    );
}

fn without_optimizer() -> Run {
    let optimizer = Optimizer { rule: Rule::None, way: Way::ForEach, decay: false };
    Run { optimizer, ..Run::default() }
}

#[test]
fn stages_have_all_weights_between_them() {
    let graph = ResNet::of_depth(50, 4, DType::F32).unwrap().graph().unwrap();
    let weights: u64 = (0..4)
        .map(|stage| {
            let mut plan = Plan { graph: graph.clone(), run: Run::default() };
            let text = format!("pipeline=stages:4/stage:{stage}");
            passes::apply(&mut plan, &passes::parse(&text).unwrap()).unwrap();
            plan.graph.state_bytes()
        })
        .sum();
    assert_eq!(weights, graph.state_bytes());
}

/// Ren et al. 2021, section 4.1: of mixed-precision Adam's 16 bytes for a weight, 2 stay on the device.
#[test]
fn an_offloaded_optimizer_leaves_the_weights() {
    let graph = layers(32);
    let run = Run { master: true, set_to_none: false, ..Run::default() };
    let weights = graph.state_bytes() / 2;
    let rest = seen(&graph, &run, "none").bytes_at_end - 16 * weights;
    assert_eq!(seen(&graph, &run, "offload=optimizer").bytes_at_end, 2 * weights + rest);
    assert_eq!(seen(&graph, &run, "offload=weights").bytes_at_end, rest);
    let moved = |text: &str, way| carried(&graph, &run, text, way);
    assert_eq!(moved("offload=optimizer", Direction::DeviceToHost), STEPS * 2 * weights);
    let batches = STEPS * (32 * 1024 * 2 + 32 * 8);
    assert_eq!(moved("offload=optimizer", Direction::HostToDevice), STEPS * 2 * weights + batches);
    // forward and backward; all weights are in blocks
    assert_eq!(moved("offload=weights", Direction::HostToDevice), STEPS * 4 * weights + batches);
}

#[test]
fn fetched_weights_are_on_the_device_for_a_few_blocks_only() {
    let graph = layers(32);
    let run = Run::default();
    let peak = |text: &str| seen(&graph, &run, text).bytes;
    let layer = graph.state_bytes() / 16;
    let ahead = |k: u64| peak(&format!("offload=weights/ahead:{k}"));
    assert!(ahead(1) < peak("offload=optimizer") - 12 * layer);
    assert!(ahead(4) >= ahead(1) + 2 * layer);
}

#[test]
fn activations_come_back_as_they_went() {
    let graph = ResNet::of_depth(50, 8, DType::F32).unwrap().graph().unwrap();
    let run = without_optimizer();
    let moved = |way| carried(&graph, &run, "offload=activations", way);
    let batches = STEPS * (8 * 3 * 224 * 224 * 4 + 8 * 8);
    assert_eq!(moved(Direction::DeviceToHost), moved(Direction::HostToDevice) - batches);
    let [plain, offloaded] =
        ["none", "offload=activations"].map(|text| seen(&graph, &run, text).bytes);
    // beside weights and gradients, less than half
    let stays = 2 * graph.state_bytes();
    assert!(2 * (offloaded - stays) < plain - stays, "{offloaded} of {plain}");
}

#[test]
fn a_prefetched_batch_is_there_beside_the_one_at_hand() {
    let graph = layers(32);
    let run = Run::default();
    let end = |text: &str| seen(&graph, &run, text).bytes_at_end;
    assert_eq!(end("prefetch") - end("none"), 32 * 1024 * 2 + 32 * 8);
    assert_eq!(end("prefetch=host/workers:4/ms:20"), end("none"));
}

#[test]
fn augmentation_takes_what_its_tensors_take() {
    let net = ResNet::of_depth(18, 64, DType::F32).unwrap();
    let (graph, run) = (net.graph().unwrap(), Run { train: false, ..Run::default() });
    let mut plan = Plan { graph, run };
    let reports = passes::apply(&mut plan, &passes::parse("augment=margin:32").unwrap()).unwrap();
    assert_eq!(
        reports[0].changed,
        "images come as bytes of 256x256, and pass through four tensors to 224x224"
    );
    let allocs = |plan: Plan| {
        let mut player = Player::of(plan, 1, Rates::of(&device("a100-80gb").unwrap())).unwrap();
        let mut sizes = Vec::new();
        loop {
            match player.next(Nanos(0), Answered::Done).unwrap() {
                Step::Op(Op::Alloc { size, .. }) => sizes.push(size),
                Step::End => return sizes,
                _ => {}
            }
        }
    };
    let sizes = allocs(plan);
    let (raw, cut) = (64 * 3 * 256 * 256, 64 * 3 * 224 * 224 * 4);
    for (size, times) in [(raw, 1), (raw * 4, 1), (cut, 3)] {
        assert_eq!(sizes.iter().filter(|s| **s == size).count(), times, "{size}");
    }
}

/// Any two of them, in either order, run to their end: what is freed was live, and nothing is freed twice.
#[test]
fn passes_go_together_in_any_order_or_say_why_not() {
    let all = [
        "zero=1",
        "zero=2",
        "zero=3",
        "allreduce",
        "allreduce=sync",
        "offload=optimizer",
        "offload=weights",
        "offload=activations",
        "prefetch",
        "pipeline=stages:2",
        "augment",
        "amp",
        "checkpoint=sqrt",
        "accumulate=2",
        "release=end",
    ];
    let rates = Rates::of(&device("a100-80gb").unwrap());
    let mut ran = 0;
    for first in all {
        for second in all.iter().filter(|second| **second != first) {
            let text = format!("depth=18,size=64,batch=4,steps=2,passes={first}+{second}");
            let source = find("resnet").unwrap().source(&text, 0, &rates);
            match source {
                Ok(mut source) => {
                    live_peak(&mut *source).unwrap_or_else(|e| panic!("{text}: {e}"));
                    ran += 1;
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("expected"), "{text}: {error}");
                    assert!(!error.contains("found no loss"), "{text}: {error}");
                }
            }
        }
    }
    assert!(ran > 120, "{ran}");
}

/// Each part of a batch began with gradients of zero.
#[test]
fn a_pipelines_gradients_add_up_over_the_parts_of_a_batch() {
    let peak = |zero_grad: &str| {
        let passes = "accumulate=2+pipeline=stages:2/micro:2";
        let text = format!("steps=3,zero_grad={zero_grad},passes={passes}");
        let rates = Rates::of(&device("a100-80gb").unwrap());
        let mut source = find("mlp").unwrap().source(&text, 0, &rates).unwrap();
        live_peak(&mut *source).unwrap().bytes
    };
    assert_eq!(peak("first"), peak("last"));
}
