//! What happened, from the figures of a message.
//!
//! | verdict | what it says |
//! |---|---|
//! | `other_process` | memory outside of this allocator is what is missing: other processes, contexts, other libraries |
//! | `fragmentation` | the allocator's own idle memory would have been enough, but it is in pieces |
//! | `shortage` | not even all idle and free memory together would have been enough |
//! | `combined` | idle and free memory together would have been enough, neither alone |
//! | `over_capacity` | more is reserved than the card has: the driver pages to host memory |
//! | `unknown` | the figures contradict each other, or say too little |
//!
//! A limit (memory fraction, pool, watermark) and a climb from message to message are named beside the verdict. Confidence: `high` where the text states what
//! decides and rounding cannot turn it, `low` where the verdict is only what is usual.

mod climb;
mod pools;
mod regions;
mod rough;
mod server;
mod summary;
mod torch;

use serde::Serialize;

pub use self::climb::climbs;
use super::message::{Figures, Framework, Kind, Message, Value};

/// Words of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Verdict {
    OtherProcess,
    Fragmentation,
    Shortage,
    Combined,
    OverCapacity,
    Unknown,
}

impl Verdict {
    /// As records have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherProcess => "other_process",
            Self::Fragmentation => "fragmentation",
            Self::Shortage => "shortage",
            Self::Combined => "combined",
            Self::OverCapacity => "over_capacity",
            Self::Unknown => "unknown",
        }
    }
}

/// How far a verdict is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Confidence {
    High,
    Medium,
    Low,
}

impl Confidence {
    /// As records have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// A limit that the text shows, below what the card has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// PyTorch's memory fraction of a process.
    Fraction,
    /// A pool's own limit.
    Pool,
    /// The high watermark of Apple's devices.
    Watermark,
    /// The share of the card that a server may use.
    Utilization,
    /// The figures look like Paddle's limit of a process.
    Flag,
}

impl Limit {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Fraction => "a memory fraction is set for this process",
            Self::Pool => "the pool has a limit of its own",
            Self::Watermark => "the high watermark of MPS",
            Self::Flag => "the figures look like a limit (FLAGS_gpu_memory_limit_mb)",
            Self::Utilization => "the server's share of the card (gpu_memory_utilization)",
        }
    }
}

/// What a message means.
#[derive(Clone, Debug)]
pub struct Finding {
    /// In a word.
    pub verdict: Verdict,
    /// How sure.
    pub confidence: Confidence,
    /// In a sentence or two.
    pub summary: String,
    /// A limit below the card.
    pub limit: Option<Limit>,
    /// The arithmetic, line by line.
    pub sums: Vec<String>,
    /// What follows from the figures.
    pub derived: Figures,
    /// What else the figures show.
    pub notes: Vec<String>,
}

impl Finding {
    fn new(verdict: Verdict, confidence: Confidence, summary: impl Into<String>) -> Self {
        Self {
            verdict,
            confidence,
            summary: summary.into(),
            limit: None,
            sums: Vec::new(),
            derived: Figures::default(),
            notes: Vec::new(),
        }
    }

    /// So many bytes follow.
    fn derive(&mut self, name: &'static str, bytes: i128) {
        if let Ok(bytes) = u64::try_from(bytes) {
            self.derived.keep(name, Value::bytes(bytes));
        }
    }
}

/// More than any card has (B): a figure above it is wrong.
pub(super) const CARD_BYTES_MAX: u64 = 4 << 40;

/// What a message means.
pub fn judge(message: &Message) -> Finding {
    match (message.framework, message.kind) {
        (framework, Kind::State) if framework.is_torch() => summary::judge(message),
        (framework, _) if framework.is_torch() => torch::judge(message),
        (Framework::PytorchMps, _) => pools::mps(message),
        (Framework::Paddle, _) => pools::paddle(message),
        (Framework::Cupy, _) => pools::cupy(message),
        (Framework::Rmm, _) => pools::rmm(message),
        (Framework::OnnxRuntime, _) => pools::onnxruntime(message),
        (Framework::Tensorflow, _) => regions::tensorflow(message),
        (Framework::Jax, _) => regions::jax(message),
        (_, _) => server::vllm(message),
    }
}
