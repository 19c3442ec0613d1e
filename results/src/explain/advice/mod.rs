//! What to try next: tables of advice, each piece with its condition and its source.
//!
//! A table is in order of what helps most for the least work; the first [`NEXT_MAX`] pieces whose condition holds are given. A condition sees the message, what it
//! means, and what the log tells of settings, versions and platform. So nothing is advised that is switched on already, that changes nothing for these figures, or
//! that this version or platform lacks; where the version is not known, the text says from which on it holds.

mod apple;
mod arrays;
mod conf;
mod paddle;
mod pools;
mod serving;
mod tensorflow;
mod torch;

use super::environment::Environment;
use super::judge::{Finding, Verdict};
use super::message::{Framework, Message, Version, Versions, shown};

/// Pieces of advice that are given.
pub const NEXT_MAX: usize = 3;

/// A piece of advice.
pub struct Advice {
    /// Does it help here?
    when: fn(&Case<'_>) -> bool,
    /// What to do, and why.
    text: fn(&Case<'_>) -> String,
    /// Where it is said, or since when it is there.
    source: &'static str,
}

const fn advice(
    when: fn(&Case<'_>) -> bool,
    text: fn(&Case<'_>) -> String,
    source: &'static str,
) -> Advice {
    Advice { when, text, source }
}

/// What a condition sees.
pub struct Case<'a> {
    /// The message.
    pub message: &'a Message,
    /// What it means.
    pub finding: &'a Finding,
    /// The rest of the log.
    pub environment: &'a Environment,
    /// Is there a climb from message to message?
    pub climbs: bool,
}

/// A piece of advice as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// What to do, and why.
    pub text: String,
    /// Where it is said.
    pub source: &'static str,
}

/// What to try, in order.
pub fn next(case: &Case<'_>) -> Vec<Next> {
    let table = match case.message.framework {
        Framework::Pytorch | Framework::PytorchRocm | Framework::PytorchXpu => torch::ADVICE,
        Framework::PytorchMps => apple::ADVICE,
        Framework::Paddle => paddle::ADVICE,
        Framework::Tensorflow => tensorflow::ADVICE,
        Framework::Jax => arrays::ADVICE,
        Framework::Vllm => serving::ADVICE,
        Framework::Rmm => pools::RMM,
        Framework::Cupy => pools::CUPY,
        Framework::OnnxRuntime => pools::ONNX_RUNTIME,
    };
    let holds = table.iter().filter(|advice| (advice.when)(case));
    let given = holds.map(|advice| Next { text: (advice.text)(case), source: advice.source });
    given.take(NEXT_MAX).collect()
}

impl Case<'_> {
    fn is(&self, verdict: Verdict) -> bool {
        self.finding.verdict == verdict
    }

    fn any(&self, verdicts: &[Verdict]) -> bool {
        verdicts.contains(&self.finding.verdict)
    }

    /// A stated size (B).
    fn bytes(&self, name: &str) -> Option<u64> {
        self.message.figures.bytes(name)
    }

    /// What follows from the figures (B).
    fn derived(&self, name: &str) -> u64 {
        self.finding.derived.bytes(name).unwrap_or(0)
    }

    /// How much is missing, in words.
    fn missing(&self) -> String {
        match self.derived("shortfall_bytes") {
            0 => "the request".to_owned(),
            bytes => shown(bytes),
        }
    }

    /// Least version that it can be, and the first that it cannot: of a package that the log names, or by the phrasing.
    fn versions(&self, package: &str) -> Versions {
        match self.environment.version(package) {
            Some((major, minor)) => (Some((major, minor)), Some((major, minor.saturating_add(1)))),
            None => self.message.versions,
        }
    }

    /// Is it surely this version or a later one?
    fn has(&self, package: &str, since: Version) -> bool {
        self.versions(package).0.is_some_and(|least| least >= since)
    }

    /// Can it be this version or a later one?
    fn may_have(&self, package: &str, since: Version) -> bool {
        self.versions(package).1.is_none_or(|end| end > since)
    }
}

/// The tool that lists who holds a card.
fn lists_processes(framework: Framework) -> &'static str {
    match framework {
        Framework::PytorchRocm => "rocm-smi --showpids",
        Framework::PytorchXpu => "xpu-smi ps",
        _ => "nvidia-smi",
    }
}
