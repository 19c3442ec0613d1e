//! The parameters of workloads on BERT, and the plan that they ask for.
//!
//! Defaults are BERT-base fine-tuning: 12 layers, width 768, 12 heads, inner width 3,072, 30,522 words, AdamW.

use super::{Attend, Bert, Head, Loss};
use crate::graph::kernels::Multiprocessors;
use crate::graph::network::GraphError;
use crate::graph::passes::{self, Chosen};
use crate::graph::plan::{Optimizer, Plan, Rule, Run, Way, Workspace};
use crate::graph::tensor::DType;
use crate::params::{ParamDoc, ParamError, Params, doc};

/// Longest sequence that any workload offers (tokens).
pub const LEN_MAX: u64 = 1 << 16;
/// Largest batch that any workload offers (sequences).
pub const BATCH_MAX: u64 = 1 << 16;
const SIZE_MAX: u64 = 1 << 20;

/// Shared parameters.
pub const SHARED: [ParamDoc; 24] = [
    doc("phase", "train", "-", "train or inference"),
    doc("size", "base", "-", "base or large: what layers, hidden, heads and ffn mean by auto"),
    doc("layers", "auto", "layers", "transformer layers; auto: 12 or 24"),
    doc("hidden", "auto", "numbers", "width of the model; auto: 768 or 1024"),
    doc("heads", "auto", "heads", "attention heads; they divide the width; auto: 12 or 16"),
    doc("ffn", "auto", "numbers", "inner width of the feed-forward part; auto: 3072 or 4096"),
    doc("vocabulary", "30522", "words", "words in the embedding"),
    doc(
        "head",
        "classify",
        "-",
        "classify (pooler and classifier) or mlm (word scores at every token)",
    ),
    doc("labels", "2", "classes", "classes of head=classify"),
    doc(
        "loss",
        "cross_entropy",
        "-",
        "cross_entropy, or sum of the scores (a measuring script's stand-in)",
    ),
    doc(
        "precision",
        "fp32",
        "-",
        "fp32; amp16 or amp_bf16 (autocast to fp16 or bf16, fp32 weights); fp16 or bf16 (16-bit weights)",
    ),
    doc(
        "attention",
        "sdpa",
        "-",
        "eager; sdpa (flash below fp32 without mask, else efficient); flash; efficient",
    ),
    doc("mask", "ones", "-", "ones (dropped by the model) or ragged (kept, one bias per layer)"),
    doc(
        "checkpoint",
        "none",
        "-",
        "none, all, or how many first layers are recomputed in backward",
    ),
    doc(
        "optimizer",
        "adamw_foreach",
        "-",
        "none, sgd, momentum, adam or adamw, with _foreach (default), _fused or _single",
    ),
    doc("clip", "true", "-", "clip the gradient norm before the optimiser"),
    doc("accumulation", "1", "batches", "batches per optimiser step"),
    doc("set_to_none", "true", "-", "zero_grad frees gradients instead of zeroing them"),
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

/// Puts a workload's own parameters before the shared ones.
pub const fn with_shared<const OWN: usize, const ALL: usize>(
    own: [ParamDoc; OWN],
) -> [ParamDoc; ALL] {
    assert!(OWN + SHARED.len() == ALL, "the table is as long as its parts");
    let mut all = [own[0]; ALL];
    let mut i = 0;
    while i < ALL {
        all[i] = if i < OWN { own[i] } else { SHARED[i - OWN] };
        i += 1;
    }
    all
}

/// BERT as the parameters ask for it, at any length.
#[derive(Clone, Debug)]
pub struct Asked {
    bert: Bert,
    run: Run,
    passes: Vec<Chosen>,
}

impl Asked {
    /// Reads the shared parameters; `batch` and `positions` come from the workload's own.
    ///
    /// # Errors
    /// When a value is refused.
    pub fn read(p: &Params, batch: u64, positions: u64) -> Result<Self, ParamError> {
        let passes = passes(p)?;
        let parts = passes::batches(&passes).map_err(|error| p.bad("passes", error))?;
        if !batch.is_multiple_of(parts) {
            return Err(p.bad("passes", format_args!("parts that divide batch={batch}")));
        }
        let bert = bert(p, batch / parts, positions)?;
        let mut run = run(p)?;
        run.train = bert.train;
        Ok(Self { bert, run, passes })
    }

    /// The plan for batches of this length.
    ///
    /// # Errors
    /// When shapes do not fit, or a pass is refused.
    pub fn plan(&self, seq: u64, label: String) -> Result<Plan, GraphError> {
        let graph = Bert { seq, ..self.bert.clone() }.graph()?;
        let mut plan = Plan { graph, run: Run { label, ..self.run.clone() } };
        passes::apply(&mut plan, &self.passes)
            .map_err(|error| plan.graph.error(error.to_string()))?;
        Ok(plan)
    }
}

/// The passes that are asked for by name, or by a parameter that means one.
fn passes(p: &Params) -> Result<Vec<Chosen>, ParamError> {
    let mut text = match p.text("precision") {
        "amp16" => "amp=fp16".to_owned(),
        "amp_bf16" => "amp=bf16".to_owned(),
        _ => String::new(),
    };
    text += match p.text("checkpoint") {
        "none" | "0" => "",
        "all" => "+checkpoint=all",
        _ => {
            p.count("checkpoint", 0..=1024)
                .map_err(|_| p.bad("checkpoint", "none, all, or 0 to 1024"))?;
            "+checkpoint=first:"
        }
    };
    if text.ends_with(':') {
        text += p.text("checkpoint");
    }
    let mut chosen = passes::parse(&text).map_err(|error| p.bad("passes", error))?;
    chosen.extend(passes::parse(p.text("passes")).map_err(|error| p.bad("passes", error))?);
    Ok(chosen)
}

fn bert(p: &Params, batch: u64, positions: u64) -> Result<Bert, ParamError> {
    let large = p.choice("size", &[("base", false), ("large", true)])?;
    let auto = |key, base: u64, big: u64, most: u64| match p.text(key) {
        "auto" => Ok(if large { big } else { base }),
        _ => p.count(key, 1..=most),
    };
    let hidden = auto("hidden", 768, 1024, SIZE_MAX)?;
    let heads = auto("heads", 12, 16, 1024)?;
    if !hidden.is_multiple_of(heads) {
        return Err(p.bad("heads", format_args!("a divisor of hidden={hidden}")));
    }
    let dtype = p.choice(
        "precision",
        &[
            ("fp32", DType::F32),
            ("amp16", DType::F32),
            ("amp_bf16", DType::F32),
            ("fp16", DType::F16),
            ("bf16", DType::BF16),
        ],
    )?;
    let ragged = p.choice("mask", &[("ones", false), ("ragged", true)])?;
    let attention = p.choice(
        "attention",
        &[
            ("eager", Attend::Eager),
            ("sdpa", Attend::Chosen),
            ("flash", Attend::Flash),
            ("efficient", Attend::Efficient),
        ],
    )?;
    if attention == Attend::Flash && (ragged || p.text("precision") == "fp32") {
        return Err(p.bad("attention", "eager, sdpa or efficient (flash takes 16 bits, no mask)"));
    }
    Ok(Bert {
        train: p.choice("phase", &[("train", true), ("inference", false)])?,
        batch,
        seq: 1,
        layers: auto("layers", 12, 24, 1024)?,
        hidden,
        heads,
        ffn: auto("ffn", 3072, 4096, SIZE_MAX)?,
        vocabulary: p.count("vocabulary", 1..=SIZE_MAX)?,
        positions,
        head: p.choice("head", &[("classify", Head::Classify), ("mlm", Head::MaskedLm)])?,
        labels: p.count("labels", 1..=SIZE_MAX)?,
        loss: p.choice("loss", &[("cross_entropy", Loss::CrossEntropy), ("sum", Loss::Sum)])?,
        dtype,
        attention,
        ragged,
    })
}

/// How it is run, but for the phase.
fn run(p: &Params) -> Result<Run, ParamError> {
    Ok(Run {
        accumulation: p.count("accumulation", 1..=SIZE_MAX)?,
        optimizer: optimizer(p)?,
        clip: p.flag("clip")?,
        set_to_none: p.flag("set_to_none")?,
        results_held: p.choice("output", &[("held", true), ("dropped", false)])?,
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
