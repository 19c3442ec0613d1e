//! Allocators that state a limit, or what the driver has left: MPS, Paddle, CuPy, RMM, ONNX Runtime.
//!
//! | rule | verdict |
//! |---|---|
//! | a figure that no card can have | `unknown`: a counter wrapped, or the device is in an error |
//! | MPS: allocated + other + request against the watermark | `shortage`, a limit; `other` is this process's too |
//! | Paddle: request above what the driver (or the flag's limit) has left | `shortage`; the split of what is taken into live and idle is not stated |
//! | Paddle: request not above it | `unknown` |
//! | CuPy with a limit: taken + request above it | `shortage`, a limit; what is taken may be idle |
//! | RMM: maximum pool size | `shortage`, a limit |
//! | RMM, ONNX Runtime, CuPy: the driver refused, without figures of the card | `unknown` if the request is not stated, else `shortage` |
//! | ONNX Runtime: available below request | `shortage`, a limit |

use super::rough::Rough;
use super::{CARD_BYTES_MAX, Confidence, Finding, Limit, Verdict};
use crate::explain::message::{Kind, Message, shown};

use Confidence::{High, Low, Medium};

fn size(message: &Message, name: &str) -> Option<Rough> {
    message.figures.size(name).map(Rough::from)
}

/// A figure that no card can have.
fn impossible(message: &Message) -> Option<Finding> {
    let figure = message.figures.iter().find_map(|(name, _)| {
        let bytes = message.figures.bytes(name)?;
        (name != "limit_bytes" && bytes > CARD_BYTES_MAX).then_some((name, bytes))
    })?;
    let name = figure.0.trim_end_matches("_bytes").replace('_', " ");
    let text = format!(
        "the figure for {name} ({}) is beyond any card: a counter has wrapped, a size was computed wrongly, or the device is in an error",
        shown(figure.1)
    );
    Some(Finding::new(Verdict::Unknown, Low, text))
}

fn cut(words: &str) -> Finding {
    let text = format!("the message is cut: it does not say {words}");
    Finding::new(Verdict::Unknown, Low, text)
}

pub(super) fn mps(message: &Message) -> Finding {
    let [Some(allocated), Some(other), Some(most)] =
        ["allocated_bytes", "other_bytes", "max_allowed_bytes"].map(|name| size(message, name))
    else {
        return Finding { limit: Some(Limit::Watermark), ..cut("what is allocated and allowed") };
    };
    let Some(tried) = size(message, "tried_bytes") else {
        return Finding { limit: Some(Limit::Watermark), ..cut("how much was asked for") };
    };
    let sum = allocated + other + tried;
    let over = sum - most;
    let at_it = sum.near(most);
    let sure = if at_it { Medium } else { High };
    let text = match (sum.reaches(most), at_it) {
        (_, true) => format!(
            "allocated, other and request together are at the watermark of {}, as exactly as the figures are printed",
            most.shown()
        ),
        (true, _) => format!(
            "allocated, other and request together pass the watermark of {} by {}",
            most.shown(),
            over.shown()
        ),
        (false, _) => format!(
            "allocated, other and request together stay below the watermark of {}: the figures do not explain the failure",
            most.shown()
        ),
    };
    let verdict = if sum.reaches(most) || at_it { Verdict::Shortage } else { Verdict::Unknown };
    let mut finding = Finding::new(verdict, sure, text);
    finding.limit = Some(Limit::Watermark);
    finding.sums.push(format!(
        "allocated {} + other {} + asked {} = {}; allowed {}: {} over",
        allocated.shown(),
        other.shown(),
        tried.shown(),
        sum.shown(),
        most.shown(),
        over.shown()
    ));
    finding.derive("shortfall_bytes", over.bytes.max(0));
    if other.bytes * 2 > most.bytes {
        finding.notes.push(format!(
            "{} are held by this process outside of PyTorch's allocator (compiled graphs, other libraries on Metal)",
            other.shown()
        ));
    }
    finding
}

pub(super) fn paddle(message: &Message) -> Finding {
    if let Some(finding) = impossible(message) {
        return finding;
    }
    let (Some(tried), Some(left)) =
        (size(message, "tried_bytes"), size(message, "available_bytes"))
    else {
        return cut("how much was asked for and how much was left");
    };
    let missing = tried - left;
    let mut finding = if left.reaches(tried) {
        let text = format!(
            "the message has {} left for a request of {}: the figure was taken after memory came back",
            left.shown(),
            tried.shown()
        );
        Finding::new(Verdict::Unknown, Low, text)
    } else {
        let text = format!(
            "Paddle asked the driver for {} and {} were left, {} too few; how much of what Paddle holds lies idle is not stated",
            tried.shown(),
            left.shown(),
            missing.shown()
        );
        Finding::new(Verdict::Shortage, Medium, text)
    };
    finding.sums.push(format!(
        "asked {} - available {} = {} missing",
        tried.shown(),
        left.shown(),
        missing.shown()
    ));
    finding.derive("shortfall_bytes", missing.bytes.max(0));
    if let Some(allocated) = size(message, "allocated_bytes") {
        let seen = allocated + left;
        finding.sums.push(format!(
            "taken by this process {} + available {} = {}: the rest of the card is outside of Paddle",
            allocated.shown(),
            left.shown(),
            seen.shown()
        ));
        finding.derive("seen_bytes", seen.bytes);
        if left.bytes == 0 && allocated.bytes % (256 << 20) == 0 {
            finding.limit = Some(Limit::Flag);
            finding.notes.push(format!(
                "taken are exactly {} and nothing is left, which is what a limit looks like",
                allocated.shown()
            ));
        }
    } else {
        finding.confidence = Low;
    }
    finding
}

pub(super) fn cupy(message: &Message) -> Finding {
    if let Some(finding) = impossible(message) {
        return finding;
    }
    let Some(tried) = size(message, "tried_bytes") else { return cut("how much was asked for") };
    let with_request = size(message, "with_request_bytes").map(|total| total - tried);
    let taken = size(message, "allocated_bytes").or(with_request);
    let (Some(taken), Some(limit)) = (taken, size(message, "limit_bytes")) else {
        let text = match taken {
            Some(taken) => format!(
                "the device refused {} while the pool had taken {}; how much of that lies idle, and how large the card is, is not stated",
                tried.shown(),
                taken.shown()
            ),
            None => format!("the device refused {}", tried.shown()),
        };
        return Finding::new(Verdict::Shortage, Low, text);
    };
    let sum = taken + tried;
    let text = format!(
        "the pool had taken {} and may take {}: {} more do not fit below its limit; blocks that lie idle count as taken",
        taken.shown(),
        limit.shown(),
        tried.shown()
    );
    let (verdict, sure) = match sum.bytes > limit.bytes {
        true => (Verdict::Shortage, Medium),
        false => (Verdict::Unknown, Low),
    };
    let mut finding = Finding::new(verdict, sure, text);
    finding.limit = Some(Limit::Pool);
    let over = sum - limit;
    finding.sums.push(format!(
        "taken {} + asked {} = {}; limit {}: {} over",
        taken.shown(),
        tried.shown(),
        sum.shown(),
        limit.shown(),
        over.shown()
    ));
    finding.derive("shortfall_bytes", over.bytes.max(0));
    finding
}

pub(super) fn rmm(message: &Message) -> Finding {
    if let Some(finding) = impossible(message) {
        return finding;
    }
    let asked = size(message, "tried_bytes").or(size(message, "upstream_bytes"));
    let words = asked.map_or_else(|| "a request".to_owned(), |asked| asked.shown());
    let mut finding = match message.kind {
        Kind::PoolLimit => {
            let text = format!(
                "the pool is at its maximum size and has no free piece for {words}; what is free of it may be scattered"
            );
            Finding { limit: Some(Limit::Pool), ..Finding::new(Verdict::Shortage, Low, text) }
        }
        Kind::Growth => {
            let text = format!("the pool could not grow for {words}");
            Finding { limit: Some(Limit::Pool), ..Finding::new(Verdict::Shortage, Medium, text) }
        }
        _ if asked.is_some() => {
            let text = format!("the driver refused {words}; what the card has left is not stated");
            Finding::new(Verdict::Shortage, Low, text)
        }
        _ => {
            let text = "the driver refused what RMM asked for; the message has no figures";
            Finding::new(Verdict::Unknown, Low, text)
        }
    };
    if let [Some(pool), Some(limit), Some(growth)] =
        ["pool_bytes", "limit_bytes", "growth_bytes"].map(|name| size(message, name))
    {
        let after = pool + growth;
        finding.sums.push(format!(
            "pool {} + growth {} = {}; maximum {}",
            pool.shown(),
            growth.shown(),
            after.shown(),
            limit.shown()
        ));
        finding.derive("shortfall_bytes", (after - limit).bytes.max(0));
    }
    finding
}

pub(super) fn onnxruntime(message: &Message) -> Finding {
    if let Some(finding) = impossible(message) {
        return finding;
    }
    let Some(tried) = size(message, "tried_bytes") else {
        let text = "the driver itself refused memory; the message has no figures";
        return Finding::new(Verdict::Unknown, Low, text);
    };
    let Some(left) = size(message, "available_bytes") else {
        let text = format!(
            "the device gave no region for {}; what it has left is not stated",
            tried.shown()
        );
        return Finding::new(Verdict::Shortage, Low, text);
    };
    let missing = tried - left;
    let text = format!(
        "below the arena's limit {} are left, {} too few for the {} that were asked for",
        left.shown(),
        missing.shown(),
        tried.shown()
    );
    let mut finding = Finding::new(Verdict::Shortage, High, text);
    finding.limit = Some(Limit::Pool);
    finding.sums.push(format!(
        "asked {} - available {} = {} missing",
        tried.shown(),
        left.shown(),
        missing.shown()
    ));
    finding.derive("shortfall_bytes", missing.bytes.max(0));
    finding
}
