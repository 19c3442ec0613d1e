//! `explain`: an out-of-memory message, or a summary, in plain words.
//!
//! | module | holds |
//! |---|---|
//! | [`log`] | a log, line by line: where messages begin and end |
//! | [`clean`], [`tokens`] | plain text; words, numbers and sizes |
//! | [`frameworks`] | how each program says it: one file a program |
//! | [`message`] | a message and its figures |
//! | [`environment`] | settings, versions and platform that the log names |
//! | [`mod@judge`] | what happened: the verdict, and the arithmetic |
//! | [`advice`] | what to try next, with conditions and sources |
//! | [`page`] | for people |

pub mod advice;
pub mod clean;
pub mod environment;
pub mod frameworks;
pub mod judge;
pub mod log;
pub mod message;
pub mod page;
pub mod tokens;

use std::io::{self, BufRead};

use serde::{Serialize, Serializer};

use self::advice::{Case, Next, next};
use self::judge::{Confidence, Finding, Verdict, climbs, judge};
use self::log::{Seen, Told};
use self::message::{Figures, Message};

/// Version of the record's shape.
pub const SCHEMA: u32 = 1;

/// What is looked for, for the message that nothing was found.
pub const LOOKED_FOR: &str = "PyTorch (CUDA, ROCm, XPU: \"out of memory. Tried to allocate …\"; MPS; memory_summary() tables), PaddlePaddle (\"Cannot allocate …\"), TensorFlow (\"ran out of memory trying to allocate\", BFC dumps, \"OOM when allocating tensor\"), JAX (\"RESOURCE_EXHAUSTED\"), vLLM (\"max seq len\", \"KV cache\", \"cache blocks\"), RMM (\"bad_alloc\", \"Maximum pool size exceeded\"), CuPy (\"Out of memory allocating\"), ONNX Runtime (\"BFCArena\")";

/// A message, explained.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// Version of this record's shape.
    pub schema: u32,
    /// Of this program.
    pub vramlab: &'static str,
    /// The file.
    pub input: String,
    /// Line on which the message begins, from 1.
    pub line: u64,
    /// How often the same message came.
    pub times: u64,
    /// Line on which it came last.
    pub last_line: u64,
    /// Who printed it.
    pub framework: &'static str,
    /// Phrasing, and the versions that have it.
    pub era: &'static str,
    /// What happened, in a word.
    pub verdict: Verdict,
    /// How sure.
    pub confidence: Confidence,
    /// In a sentence.
    pub summary: String,
    /// A limit below what the card has.
    pub limit: Option<&'static str>,
    /// A climb from message to message.
    pub climb: Option<String>,
    /// As stated (sizes in B).
    pub numbers: Figures,
    /// What follows from them (B).
    pub derived: Figures,
    /// The arithmetic, line by line.
    pub sums: Vec<String>,
    /// What else the figures show.
    pub notes: Vec<String>,
    /// What to try, in order.
    #[serde(serialize_with = "texts")]
    pub next: Vec<Next>,
    /// Where each piece of advice comes from.
    pub sources: Vec<&'static str>,
    /// The message itself.
    #[serde(skip)]
    pub message: Message,
}

fn texts<S: Serializer>(next: &[Next], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(next.iter().map(|next| &next.text))
}

/// What a log says.
#[derive(Debug)]
pub struct Explanation {
    /// Every message that differs from those before it.
    pub messages: Vec<Explained>,
    /// Messages beyond those that are kept.
    pub beyond: u64,
    /// Lines of the log.
    pub lines: u64,
    /// Settings that the log names.
    pub settings: Vec<(String, String)>,
}

/// Reads a log to its end and explains each message; `input` names it.
///
/// # Errors
/// It cannot be read.
pub fn explain(log: impl BufRead, input: &str) -> io::Result<Explanation> {
    let told = log::read(log)?;
    let climbs = climbs(&told.messages);
    let settings = told.environment.settings().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let all = told.messages.iter().zip(climbs);
    let messages = all.map(|(seen, climb)| one(seen, climb, &told, input)).collect();
    Ok(Explanation { messages, beyond: told.beyond, lines: told.lines, settings })
}

fn one(seen: &Seen, climb: Option<String>, told: &Told, input: &str) -> Explained {
    let message = &seen.message;
    let finding = judge(message);
    let case = Case {
        message,
        finding: &finding,
        environment: &told.environment,
        climbs: climb.is_some(),
    };
    let next = next(&case);
    let Finding { verdict, confidence, summary, limit, sums, derived, notes } = finding;
    Explained {
        schema: SCHEMA,
        vramlab: env!("CARGO_PKG_VERSION"),
        input: input.to_owned(),
        line: message.line,
        times: seen.times,
        last_line: seen.last_line,
        framework: message.framework.name(),
        era: message.era,
        verdict,
        confidence,
        summary,
        limit: limit.map(judge::Limit::words),
        climb,
        numbers: message.figures.clone(),
        derived,
        sums,
        notes,
        sources: next.iter().map(|next| next.source).collect(),
        next,
        message: message.clone(),
    }
}
