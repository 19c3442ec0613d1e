//! The parameters of workloads on BERT, and the plan that they ask for.
//!
//! Defaults are BERT-base fine-tuning: 12 layers, width 768, 12 heads, inner width 3,072, 30,522 words, AdamW.

use super::{Attend, Bert, Head, Loss};
use crate::graph::models::params::SIZE_MAX;
use crate::graph::models::params::{RUN, chosen_passes, join, run};
use crate::graph::passes::{self, Chosen, PassError, Report};
use crate::graph::plan::{Plan, Run};
use crate::graph::tensor::DType;
use crate::params::{ParamDoc, ParamError, Params, doc};

/// Longest sequence that any workload offers (tokens).
pub const LEN_MAX: u64 = 1 << 16;
/// Largest batch that any workload offers (sequences).
pub const BATCH_MAX: u64 = 1 << 16;

/// BERT's own.
const BERT: [ParamDoc; 15] = [
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
    doc("labels", "2", "classes", "classes of head=classify").only("head", &["classify"]),
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
    doc("mask", "ones", "-", "ones (dropped by the model) or ragged (kept: a bias of the scores)"),
    doc("inputs", "full", "-", "full (words, types, mask) or words (one type for all, no mask)"),
    doc(
        "checkpoint",
        "none",
        "-",
        "none, all, or how many first layers are recomputed in backward",
    ),
];

/// Those of every workload on BERT.
pub const SHARED: [ParamDoc; 26] = join(BERT, RUN);

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
        let parts = passes::batches(&passes, batch)?;
        let bert = bert(p, batch / parts, positions)?;
        let mut run = run(p)?;
        run.train = bert.train;
        Ok(Self { bert, run, passes })
    }

    /// The plan for batches of this length.
    ///
    /// # Errors
    /// When shapes do not fit, or a pass is refused.
    pub fn plan(&self, seq: u64, label: String) -> Result<(Plan, Vec<Report>), PassError> {
        let graph = Bert { seq, ..self.bert.clone() }.graph()?;
        let mut plan = Plan { graph, run: Run { label, ..self.run.clone() } };
        let reports = passes::apply(&mut plan, &self.passes)?;
        Ok((plan, reports))
    }
}

/// The passes that are asked for by name, or by a parameter that means one.
fn passes(p: &Params) -> Result<Vec<Chosen>, ParamError> {
    let precision = match p.text("precision") {
        "amp16" => "amp=fp16",
        "amp_bf16" => "amp=bf16",
        _ => "none",
    };
    let checkpoint = match p.text("checkpoint") {
        "none" | "0" => "none".to_owned(),
        "all" => "checkpoint=all".to_owned(),
        _ => {
            let expected = "none, all, or 0 to 1024";
            let first =
                p.count("checkpoint", 0..=1024).map_err(|_| p.bad("checkpoint", expected))?;
            format!("checkpoint=first:{first}")
        }
    };
    let mut chosen = passes::parse(precision)?;
    chosen.extend(passes::parse(&checkpoint)?);
    chosen.extend(chosen_passes(p)?);
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
        bare: p.choice("inputs", &[("full", false), ("words", !ragged)])?,
    })
}
