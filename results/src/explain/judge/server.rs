//! vLLM: what its share of the card leaves for keys and values.
//!
//! ```text
//! cache = gpu_memory_utilization × card − weights and activations (peak of PyTorch) − what is outside of PyTorch
//! tokens = cache / bytes of a token, in whole blocks
//! ```

use super::rough::Rough;
use super::{Confidence, Finding, Limit, Verdict};
use crate::explain::message::{Kind, Message, Value, shown};

use Confidence::{High, Low, Medium};

pub(super) fn vllm(message: &Message) -> Finding {
    let mut finding = decide(message);
    if message.kind != Kind::NotFree {
        finding.limit = Some(Limit::Utilization);
    }
    sums(message, &mut finding);
    finding
}

fn decide(message: &Message) -> Finding {
    let count = |name: &str| message.figures.count(name);
    let size = |name: &str| message.figures.size(name).map(Rough::from);
    match message.kind {
        Kind::CacheTooSmall => {
            let text = match (
                count("max_model_len"),
                count("kv_tokens"),
                size("needed_bytes"),
                size("available_bytes"),
            ) {
                (Some(length), Some(tokens), ..) => format!(
                    "one request of {length} tokens needs more than the cache of {tokens} tokens that is left beside the model"
                ),
                (Some(length), _, Some(needed), Some(left)) => format!(
                    "one request of {length} tokens needs a cache of {}, and {} are left beside the model",
                    needed.shown(),
                    left.shown()
                ),
                _ => "one request of full length needs more cache than is left beside the model"
                    .to_owned(),
            };
            Finding::new(Verdict::Shortage, High, text)
        }
        Kind::NoCache => {
            let text = "weights and the peak of activations already fill the server's share of the card: nothing is left for keys and values";
            Finding::new(Verdict::Shortage, High, text)
        }
        Kind::NotFree => {
            let text = match (size("free_bytes"), size("total_bytes"), size("desired_bytes")) {
                (Some(free), Some(total), Some(desired)) => format!(
                    "when the server began, {} of {} were free and it wants {}: others hold the rest",
                    free.shown(),
                    total.shown(),
                    desired.shown()
                ),
                _ => "less of the card was free when the server began than its share".to_owned(),
            };
            Finding::new(Verdict::OtherProcess, High, text)
        }
        Kind::Preempted => {
            let text = "running requests lost their cache to others: together they need more tokens than the cache has";
            Finding::new(Verdict::Shortage, Medium, text)
        }
        _ => Finding::new(
            Verdict::Unknown,
            Low,
            "the text has a server's start-up figures and no failure",
        ),
    }
}

fn sums(message: &Message, finding: &mut Finding) {
    let count = |name: &str| message.figures.count(name);
    let size = |name: &str| message.figures.size(name).map(Rough::from);
    let mut sums = Vec::new();
    if let (Some(total), Some(share), Some(rest)) =
        (size("total_bytes"), message.figures.ratio("utilization"), size("non_torch_bytes"))
    {
        let budget = share_of(total, share);
        let torch = size("peak_torch_bytes")
            .or_else(|| Some(size("weights_bytes")? + size("activation_bytes")?));
        if let Some(torch) = torch {
            sums.push(format!(
                "{} × {share} - PyTorch {} - others {} = {} for keys and values",
                total.shown(),
                torch.shown(),
                rest.shown(),
                (budget - torch - rest).shown()
            ));
        }
        finding.derive("budget_bytes", budget.bytes);
    }
    if let (Some(blocks), Some(size)) = (count("gpu_blocks"), count("block_size")) {
        sums.push(format!(
            "{blocks} blocks × {size} tokens = {} tokens",
            blocks.saturating_mul(size)
        ));
    }
    if let (Some(length), Some(tokens)) = (count("max_model_len"), count("kv_tokens")) {
        sums.push(match length.checked_sub(tokens) {
            Some(missing) => {
                format!("asked {length} tokens - {tokens} in the cache = {missing} missing")
            }
            None => format!(
                "{tokens} tokens hold {:.2} requests of {length}",
                tokens as f64 / length.max(1) as f64
            ),
        });
    }
    if let (Some(needed), Some(left), Some(length)) =
        (size("needed_bytes"), size("available_bytes"), count("max_model_len"))
    {
        let token = u64::try_from(needed.bytes).unwrap_or(0) / length.max(1);
        let fits = u64::try_from(left.bytes).unwrap_or(0) / token.max(1);
        sums.push(format!(
            "{} / {length} tokens = {} a token; {} / {} = {fits} tokens",
            needed.shown(),
            shown(token),
            left.shown(),
            shown(token)
        ));
        finding.derive("token_bytes", token.into());
        finding.derive("shortfall_bytes", (needed - left).bytes.max(0));
        finding.derived.keep("fitting_tokens", Value::Count(fits));
    }
    if let (Some(free), Some(desired)) = (size("free_bytes"), size("desired_bytes")) {
        let missing = desired - free;
        sums.push(format!(
            "wanted {} - free {} = {} missing",
            desired.shown(),
            free.shown(),
            missing.shown()
        ));
        finding.derive("shortfall_bytes", missing.bytes.max(0));
        if let Some(total) = size("total_bytes") {
            finding.derive("others_bytes", (total - free).bytes);
        }
    }
    finding.sums = sums;
}

/// A share with few digits of a size.
pub(super) fn share_of(total: Rough, share: f64) -> Rough {
    let millionths = (share.clamp(0.0, 1.0) * 1e6).round() as i128;
    Rough { bytes: total.bytes * millionths / 1_000_000, off: total.off }
}
