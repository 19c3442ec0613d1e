//! The parameters that every model has which is trained: optimizer, batches, workspaces, passes.

use std::str::FromStr;

use vramlab_sim::units::Bytes;

use crate::graph::kernels::Multiprocessors;
use crate::graph::passes::{self, Chosen, PassError};
use crate::graph::plan::{Load, Optimizer, Rule, Run, Way, Workspace};
use crate::params::{ParamDoc, ParamError, Params, doc};

/// Bounds that keep every size below 2^63 and every FLOP count exact.
pub(super) const SIZE_MAX: u64 = 1 << 20;

/// How a model is run.
pub const RUN: [ParamDoc; 11] = [
    doc(
        "load",
        "to_device",
        "-",
        "how weights come: to_device, copy, assign, shards:SIZE, mapped or quantised",
    ),
    doc(
        "optimizer",
        "adamw_foreach",
        "-",
        "none, sgd, momentum, adam or adamw, with _foreach (default), _fused or _single",
    )
    .only("phase", &["train"]),
    doc("clip", "true", "-", "clip the gradient norm before the optimiser")
        .only("phase", &["train"]),
    doc("accumulation", "1", "batches", "batches per optimiser step").only("phase", &["train"]),
    doc("set_to_none", "true", "-", "zero_grad frees gradients instead of zeroing them")
        .only("phase", &["train"]),
    doc(
        "output",
        "held",
        "-",
        "held: scores live until the next step's replace them; dropped: until backward ends",
    ),
    doc("workspace", "call", "-", "cuBLAS workspace per call, cached, or none"),
    doc(
        "empty_cache",
        "0",
        "steps",
        "empty the allocator's cache after every so many steps; 0: never",
    ),
    doc("sms", "108", "multiprocessors", "of the device; decides how sums are split"),
    doc("sm_threads", "2048", "threads", "per multiprocessor"),
    doc("passes", "none", "-", "passes over the graph, such as amp+checkpoint=sqrt"),
];

/// Two tables of parameters as one.
pub const fn join<const A: usize, const B: usize, const ALL: usize>(
    first: [ParamDoc; A],
    second: [ParamDoc; B],
) -> [ParamDoc; ALL] {
    assert!(A + B == ALL, "the table is as long as its parts");
    let mut all = [first[0]; ALL];
    let mut i = 0;
    while i < ALL {
        all[i] = if i < A { first[i] } else { second[i - A] };
        i += 1;
    }
    all
}

/// A table of parameters in which the one of this name has another default.
pub const fn with_default<const N: usize>(
    mut table: [ParamDoc; N],
    name: &str,
    default: &'static str,
) -> [ParamDoc; N] {
    let mut i = 0;
    while !equal(table[i].name.as_bytes(), name.as_bytes()) {
        i += 1;
        assert!(i < N, "the table has the parameter");
    }
    table[i].default = default;
    table
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// The passes of the parameter of this name.
///
/// # Errors
/// When there is no such pass.
pub fn chosen_passes(p: &Params) -> Result<Vec<Chosen>, PassError> {
    passes::parse(p.text("passes"))
}

/// How it is run, but for the phase.
///
/// # Errors
/// When a value is refused.
pub fn run(p: &Params) -> Result<Run, ParamError> {
    Ok(Run {
        accumulation: p.count("accumulation", 1..=SIZE_MAX)?,
        optimizer: optimizer(p)?,
        clip: p.flag("clip")?,
        set_to_none: p.flag("set_to_none")?,
        results_held: p.choice("output", &[("held", true), ("dropped", false)])?,
        load: load(p)?,
        workspace: p.choice(
            "workspace",
            &[("call", Workspace::Call), ("cached", Workspace::Cached), ("none", Workspace::None)],
        )?,
        empty_cache: p.count("empty_cache", 0..=u64::MAX)?,
        device: Multiprocessors {
            count: p.count("sms", 1..=SIZE_MAX)?,
            threads: p.count("sm_threads", 1024..=4096)?,
        },
        ..Run::default()
    })
}

fn load(p: &Params) -> Result<Load, ParamError> {
    let refused = || p.bad("load", "to_device, copy, assign, shards:SIZE, mapped or quantised");
    match p.text("load").split_once(':').unwrap_or((p.text("load"), "")) {
        ("to_device", "") => Ok(Load::ToDevice),
        ("copy", "") => Ok(Load::Copy),
        ("assign", "") => Ok(Load::Assign),
        ("mapped", "") => Ok(Load::Mapped),
        ("quantised", "") => Ok(Load::Quantised),
        ("shards", size) => {
            Bytes::from_str(size).map(|bytes| Load::Shards(bytes.0)).map_err(|_| refused())
        }
        _ => Err(refused()),
    }
}

/// The optimizer of the parameter of this name.
///
/// # Errors
/// When it is none.
pub fn optimizer(p: &Params) -> Result<Optimizer, ParamError> {
    let text = p.text("optimizer");
    let (rule, way) = text.split_once('_').unwrap_or((text, "foreach"));
    let rule = match rule {
        "none" => Some((Rule::None, false)),
        "sgd" => Some((Rule::Sgd { momentum: false }, false)),
        "momentum" => Some((Rule::Sgd { momentum: true }, false)),
        "adam" => Some((Rule::Adam { decoupled: false }, false)),
        "adamw" => Some((Rule::Adam { decoupled: true }, true)),
        _ => None,
    };
    let way = match way {
        "foreach" => Some(Way::ForEach),
        "fused" => Some(Way::Fused),
        "single" => Some(Way::Single),
        _ => None,
    };
    match (rule, way) {
        (Some((rule, decay)), Some(way)) => Ok(Optimizer { rule, way, decay }),
        _ => Err(p.bad(
            "optimizer",
            "none, sgd, momentum, adam or adamw, alone or with _foreach, _fused or _single",
        )),
    }
}
