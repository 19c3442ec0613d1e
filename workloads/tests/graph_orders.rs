//! Any two passes in either order over every model: what comes out can be run on real memory, or is refused with a reason.

use vramlab_workloads::graph::op::Kind;
use vramlab_workloads::graph::passes::PASSES;
use vramlab_workloads::graph::tensor::{Role, TensorId};
use vramlab_workloads::graph::{Graph, Plan};
use vramlab_workloads::live::live_peak;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::{WORKLOADS, find};

/// Parameters under which each model is small; one line for each way in which it is run. A model that is not here runs with its defaults.
const SMALL: &[(&str, &str)] = &[
    (
        "bert",
        "batch=4,seq=16,layers=2,hidden=32,heads=2,ffn=64,vocabulary=50,steps=2,attention=eager,mask=ragged",
    ),
    (
        "bert",
        "batch=4,seq=16,layers=2,hidden=32,heads=2,ffn=64,vocabulary=50,steps=2,phase=inference",
    ),
    ("gpt2", "batch=4,seq=16,layers=2,hidden=32,heads=2,vocabulary=50,steps=2"),
    ("gpt2", "batch=4,seq=16,layers=2,hidden=32,heads=2,vocabulary=50,steps=2,attention=eager"),
    (
        "gpt2",
        "batch=4,phase=decode,prompts=8/5,new_tokens=2,layers=2,hidden=32,heads=2,vocabulary=50",
    ),
    (
        "llama",
        "batch=4,seq=16,layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocabulary=50,steps=2,experts=2,active=1",
    ),
    (
        "llama",
        "batch=4,seq=16,layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocabulary=50,steps=2,attention=eager,precision=fp32",
    ),
    (
        "llama",
        "batch=4,phase=decode,prompts=8,new_tokens=2,layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocabulary=50,precision=fp32,attention=eager",
    ),
    (
        "llama",
        "batch=4,seq=8,phase=inference,layers=2,hidden=32,heads=4,kv_heads=2,ffn=64,vocabulary=50,steps=2",
    ),
    ("mlp", "batch=4,steps=2"),
    ("resnet", "batch=4,depth=18,size=32,steps=2"),
    ("resnet", "batch=4,depth=18,size=32,steps=2,phase=inference"),
    ("detector", "batch=4,size=64,steps=1"),
    ("recogniser", "batch=4,width=64,classes=20,symbols=4,steps=1"),
];

/// Passes with options that change what they do to a graph; those without stand for themselves.
const OPTIONS: &[(&str, &[&str])] = &[
    ("accumulate", &["2"]),
    ("allreduce", &["", "devices:2/bucket:1KiB/view"]),
    ("amp", &["fp16", "half_bf16"]),
    ("checkpoint", &["all", "sqrt"]),
    ("offload", &["optimizer", "activations"]),
    ("pipeline", &["stages:2/stage:0/micro:2", "stages:2/stage:1/micro:2"]),
    ("prefetch", &["device", "host/workers:2/ms:1"]),
    ("release", &["end", "planned"]),
    ("zero", &["1", "2", "3"]),
];

fn all_passes() -> Vec<String> {
    let mut all = Vec::new();
    for pass in PASSES {
        let options = OPTIONS.iter().find(|(name, _)| *name == pass.name);
        for option in options.map_or(&[""][..], |(_, options)| options) {
            all.push(match *option {
                "" => pass.name.to_owned(),
                option => format!("{}={option}", pass.name),
            });
        }
    }
    all
}

/// Runs each pair whose first pass's place in the list leaves this remainder, so that tests share the work.
fn pairs_of(model: &str, params: &str, first: impl Fn(usize) -> bool) -> usize {
    let workload = find(model).expect("a workload");
    let passes = all_passes();
    let mut ran = 0;
    for (i, a) in passes.iter().enumerate().filter(|(i, _)| first(*i)) {
        for b in &passes {
            let text = match passes.iter().position(|pass| pass == b) {
                Some(same) if same == i => format!("{params},passes={a}"),
                _ => format!("{params},passes={a}+{b}"),
            };
            let given = workload.params_from(&text).expect(&text);
            let make = workload.plan.expect("a model");
            let told = match make(&given) {
                Ok((plan, _)) => {
                    check(&plan, &format!("{model} {text}"));
                    let mut source = workload
                        .source(&text, 0, &Rates::free())
                        .unwrap_or_else(|e| panic!("{model} {text}: {e}"));
                    live_peak(&mut *source).unwrap_or_else(|e| panic!("{model} {text}: {e}"));
                    ran += 1;
                    continue;
                }
                Err(error) => error.to_string(),
            };
            let name = |pass: &str| format!("pass {}", pass.split('=').next().unwrap_or_default());
            let named = told.contains(&name(a)) || told.contains(&name(b));
            assert!(named && told.contains("expected"), "{model} {text}: {told}");
        }
    }
    ran
}

/// What a tensor holds is what it was made with whenever it is read, in forward and backward; and each fits into its storage.
fn check(plan: &Plan, text: &str) {
    let graph = &plan.graph;
    let count = graph.tensors().count();
    let place = |id: TensorId| id.0 as usize;
    // by storage: how often it was written; by tensor: when it was made
    let (mut written, mut made) = (vec![0_u32; count], vec![0_u32; count]);
    let at = |graph: &Graph, node: &vramlab_workloads::graph::Node| {
        format!("{text}: {} ({})", graph.scope_text(node.scope), node.kind.operator().name())
    };
    for node in graph.nodes() {
        let is_view = node.kind.operator().is_view();
        for id in node.inputs.iter().filter(|_| !matches!(node.kind, Kind::Hold(_))) {
            let now = written[place(graph.storage(*id))];
            assert_eq!(made[place(*id)], now, "{}: reads what was written over", at(graph, node));
        }
        for (i, id) in node.outputs.iter().enumerate() {
            let storage = graph.storage(*id);
            let room = graph.get(storage).bytes();
            assert!(
                graph.get(*id).bytes() <= room,
                "{}: a result of {} B in {room} B",
                at(graph, node),
                graph.get(*id).bytes()
            );
            if let Some(over) = node.over.filter(|_| i == 0) {
                assert_eq!(storage, graph.storage(node.inputs[over]), "{}", at(graph, node));
                assert!(
                    matches!(graph.get(storage).role, Role::Activation | Role::Received),
                    "{}",
                    at(graph, node)
                );
                assert_eq!(
                    graph.get(*id).dtype,
                    graph.get(node.inputs[over]).dtype,
                    "{}",
                    at(graph, node)
                );
                written[place(storage)] += 1;
            } else if !is_view {
                assert_eq!(storage, *id, "{}: a result without room", at(graph, node));
            }
            made[place(*id)] = written[place(storage)];
        }
    }
    let holds = |id: TensorId| made[place(id)] == written[place(graph.storage(id))];
    let ends = graph.results().iter().chain(graph.sent()).copied().chain(graph.loss());
    let carried = graph.carries().iter().map(|carry| carry.new);
    assert!(ends.chain(carried).all(holds), "{text}: a result was written over");
    if !plan.run.train {
        return;
    }
    for node in graph.nodes() {
        if !node.outputs.iter().any(|id| graph.get(*id).gradient) {
            continue;
        }
        let saves = node.kind.operator().saves();
        let inputs = saves.inputs.iter().map(|i| node.inputs[*i]);
        let outputs = saves.outputs.iter().map(|i| node.outputs[*i]);
        assert!(
            inputs.chain(outputs).all(holds),
            "{}: saved what was written over",
            at(graph, node)
        );
    }
    for range in &plan.run.again {
        let inside: Vec<TensorId> =
            graph.nodes()[range.clone()].iter().flat_map(|n| n.outputs.clone()).collect();
        for node in &graph.nodes()[range.clone()] {
            let outer = node.inputs.iter().filter(|id| !inside.contains(&graph.storage(**id)));
            let reads = !matches!(node.kind, Kind::Hold(_));
            for id in outer.filter(|_| reads) {
                let told = at(graph, node);
                assert!(holds(*id), "{told}: is computed again from what was written over");
            }
        }
    }
}

fn every_model(first: impl Fn(usize) -> bool) {
    for workload in WORKLOADS.iter().filter(|workload| workload.plan.is_some()) {
        let mut ran = 0;
        let ways: Vec<&str> =
            SMALL.iter().filter(|(name, _)| *name == workload.name).map(|(_, p)| *p).collect();
        for params in if ways.is_empty() { vec!["steps=1"] } else { ways } {
            ran += pairs_of(workload.name, params, &first);
        }
        println!("{}: {ran} pairs ran", workload.name);
        assert!(ran > 0, "{}", workload.name);
    }
}

#[test]
fn pairs_of_passes_leave_memory_that_can_be_even() {
    every_model(|i| i % 2 == 0);
}

#[test]
fn pairs_of_passes_leave_memory_that_can_be_odd() {
    every_model(|i| i % 2 == 1);
}
