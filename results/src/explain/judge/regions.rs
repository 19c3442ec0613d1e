//! TensorFlow's and XLA's regions: free bytes against the request, in one piece or in several.
//!
//! | rule, the first that holds | verdict |
//! |---|---|
//! | TensorFlow: free bytes < request | `shortage`, `other_process` if the card was more than half taken when the process began |
//! | free bytes ≥ request > largest free piece | `fragmentation` |
//! | free bytes ≥ request, pieces not stated | `fragmentation`, less sure |
//! | request not stated, the regions fill the limit and at least half of them is idle | `fragmentation` |
//! | request not stated, the limit leaves room that the driver did not give | `shortage` |
//! | only the request is stated | `shortage`, `low` |
//! | JAX: the largest piece is stated, and free ≥ request | `fragmentation` |
//! | JAX: request and program are small beside any card | `other_process`, `low`: other arrays or processes hold the pool |
//! | JAX: else | `shortage` |

use super::rough::Rough;
use super::{Confidence, Finding, Limit, Verdict};
use crate::explain::message::Message;

use Confidence::{High, Low, Medium};

/// A program of less than this needs next to nothing of a card (B).
const SMALL_PROGRAM: i128 = 256 << 20;

/// What is known of the regions.
struct Regions {
    tried: Option<Rough>,
    limit: Option<Rough>,
    in_use: Option<Rough>,
    /// Held from the device.
    held: Option<Rough>,
    free: Option<Rough>,
    largest: Option<Rough>,
}

impl Regions {
    fn of(message: &Message) -> Self {
        let size = |name: &str| message.figures.size(name).map(Rough::from);
        let limit = size("limit_bytes");
        let in_use = size("in_use_bytes").or(size("in_use_chunks_bytes"));
        let held = size("pool_bytes").or(size("region_bytes"));
        let free = size("chunks_free_bytes").or_else(|| Some(held.or(limit)? - in_use?));
        Self {
            tried: size("rounded_bytes").or(size("tried_bytes")),
            limit,
            in_use,
            held,
            free,
            largest: size("largest_free_bytes"),
        }
    }
}

pub(super) fn tensorflow(message: &Message) -> Finding {
    let regions = Regions::of(message);
    let mut finding = decide(message, &regions);
    if regions.limit.is_some() {
        finding.limit = Some(Limit::Pool);
    }
    let Regions { tried, limit, in_use, held, free, largest } = regions;
    let mut sum = |line: String| finding.sums.push(line);
    if let (Some(whole), Some(in_use), Some(free)) = (held.or(limit), in_use, free) {
        let what = if held.is_some() { "regions" } else { "limit" };
        sum(format!(
            "{what} {} - in use {} = {} free",
            whole.shown(),
            in_use.shown(),
            free.shown()
        ));
    }
    if let (Some(free), Some(largest)) = (free, largest) {
        let pieces = message.figures.count("free_pieces");
        let pieces = pieces.map(|n| format!("in {n} pieces, ")).unwrap_or_default();
        sum(format!("free {} {pieces}the largest {}", free.shown(), largest.shown()));
    }
    if let (Some(tried), Some(free)) = (tried, free) {
        let missing = tried - free;
        sum(format!("asked {} - free {} = {}", tried.shown(), free.shown(), missing.shown()));
        finding.derive("shortfall_bytes", missing.bytes.max(0));
    }
    if let Some(free) = free {
        finding.derive("free_in_regions_bytes", free.bytes);
    }
    if let (Some(in_use), Some(held)) = (in_use, held)
        && held.bytes > 0
    {
        let percent = in_use.bytes * 100 / held.bytes;
        finding.notes.push(format!("{percent} % of the regions are in use"));
    }
    finding
}

fn decide(message: &Message, regions: &Regions) -> Finding {
    let Some(tried) = regions.tried else { return without_request(message, regions) };
    let Some(free) = regions.free else {
        let text = format!(
            "{} were asked for; the dump that shows the state of memory is not in the text",
            tried.shown()
        );
        return Finding::new(Verdict::Shortage, Low, text);
    };
    if !free.reaches(tried) {
        if let Some(found) = taken_at_start(message) {
            return found;
        }
        let text = format!(
            "all free bytes together ({}) are fewer than the {} that were asked for",
            free.shown(),
            tried.shown()
        );
        return Finding::new(Verdict::Shortage, if free.near(tried) { Medium } else { High }, text);
    }
    match regions.largest {
        Some(largest) if largest.reaches(tried) && !largest.near(tried) => {
            let text = format!(
                "a free piece of {} is there for a request of {}: the figures contradict each other",
                largest.shown(),
                tried.shown()
            );
            Finding::new(Verdict::Unknown, Low, text)
        }
        Some(largest) => {
            let text = format!(
                "{} are free, but the largest piece has {}, and {} were asked for",
                free.shown(),
                largest.shown(),
                tried.shown()
            );
            Finding::new(Verdict::Fragmentation, High, text)
        }
        None => {
            let text = format!(
                "{} are free for a request of {}: in pieces, though the text does not show them",
                free.shown(),
                tried.shown()
            );
            Finding::new(Verdict::Fragmentation, Medium, text)
        }
    }
}

/// The card was largely taken before this process began.
fn taken_at_start(message: &Message) -> Option<Finding> {
    let size = |name: &str| message.figures.size(name).map(Rough::from);
    let (card, free) = (size("capacity_bytes")?, size("free_at_start_bytes")?);
    let text = format!(
        "when this process began, {} of the card's {} were free: others held the rest, and the limit was made from what was left",
        free.shown(),
        card.shown()
    );
    (free.bytes * 2 < card.bytes).then(|| Finding::new(Verdict::OtherProcess, High, text))
}

fn without_request(message: &Message, regions: &Regions) -> Finding {
    let (Some(limit), Some(in_use)) = (regions.limit, regions.in_use) else {
        return Finding::new(
            Verdict::Unknown,
            Low,
            "the text shows neither the request nor the limit and what is in use",
        );
    };
    let room = message.figures.size("available_bytes").map(Rough::from);
    let room = room.or_else(|| Some(limit - regions.held?));
    if let Some(room) = room.filter(|room| room.bytes > 0) {
        let text = format!(
            "the limit leaves {} that the regions do not have: the driver did not give the next region, so the card itself is full",
            room.shown()
        );
        return Finding::new(Verdict::Shortage, Medium, text);
    }
    let free = regions.free.unwrap_or(limit - in_use);
    if free.bytes * 2 >= limit.bytes {
        let mut text = format!(
            "{} of {} lie idle in regions that cannot grow: live chunks split them into pieces",
            free.shown(),
            limit.shown()
        );
        if let Some(most) = message.figures.bytes("max_alloc_bytes") {
            text += &format!(
                "; the largest request so far was {}",
                crate::explain::message::shown(most)
            );
        }
        return Finding::new(Verdict::Fragmentation, Medium, text);
    }
    let text = format!(
        "{} of {} are in use; the request is not in the text",
        in_use.shown(),
        limit.shown()
    );
    Finding::new(Verdict::Shortage, Low, text)
}

pub(super) fn jax(message: &Message) -> Finding {
    let size = |name: &str| message.figures.size(name).map(Rough::from);
    let total = size("total_bytes");
    let mut sums = Vec::new();
    let parts: Vec<String> = [
        ("parameters", "parameter_bytes"),
        ("constants", "constant_bytes"),
        ("results", "live_out_bytes"),
        ("temporary", "temp_bytes"),
    ]
    .iter()
    .filter_map(|(name, figure)| Some(format!("{name} {}", size(figure)?.shown())))
    .collect();
    if let Some(total) = total.filter(|_| !parts.is_empty()) {
        sums.push(format!("program: {}; {} in all", parts.join(", "), total.shown()));
    }
    let tried = size("tried_bytes");
    if let (Some(tried), Some(total)) = (tried, total) {
        let share = tried.bytes * 100 / total.bytes.max(1);
        sums.push(format!("the request of {} is {share} % of the program", tried.shown()));
    }
    let mut finding = decide_jax(message, tried, total);
    finding.sums = sums;
    if let (Some(tried), Some(temp)) = (tried, size("temp_bytes"))
        && temp.bytes > 0
        && (tried.bytes - temp.bytes).abs() * 100 <= temp.bytes
    {
        finding.notes.push("the request is the program's block of temporaries".to_owned());
    }
    if let Some(over) = size("exceeded_bytes") {
        finding.derive("shortfall_bytes", over.bytes);
    }
    finding
}

fn decide_jax(message: &Message, tried: Option<Rough>, total: Option<Rough>) -> Finding {
    let size = |name: &str| message.figures.size(name).map(Rough::from);
    if let (Some(total), Some(card)) = (total, size("capacity_bytes")) {
        let text =
            format!("the program needs {} and the device has {}", total.shown(), card.shown());
        return Finding::new(Verdict::Shortage, High, text);
    }
    let Some(tried) = tried else {
        return Finding::new(
            Verdict::Unknown,
            Low,
            "the message does not say how much was asked for",
        );
    };
    if let (Some(free), Some(largest)) = (size("free_bytes"), size("largest_free_bytes")) {
        if free.reaches(tried) && !largest.reaches(tried) {
            let text = format!(
                "{} are free, but the largest piece has {}, and {} were asked for",
                free.shown(),
                largest.shown(),
                tried.shown()
            );
            return Finding::new(Verdict::Fragmentation, High, text);
        }
        let text = format!("{} are free for a request of {}", free.shown(), tried.shown());
        return Finding::new(Verdict::Shortage, Medium, text);
    }
    let small = |size: Rough| size.bytes < SMALL_PROGRAM;
    match total {
        Some(total) if small(total) && small(tried) => {
            let text = format!(
                "the whole program needs {}: it is not what fills the device; other processes, or arrays that are still referenced, hold the pool",
                total.shown()
            );
            Finding::new(Verdict::OtherProcess, Low, text)
        }
        Some(total) => {
            let text = format!(
                "the program needs {} in all, and the pool has no {} left",
                total.shown(),
                tried.shown()
            );
            Finding::new(Verdict::Shortage, Medium, text)
        }
        None => {
            let text = format!(
                "the pool has no {} left; how large it is, and what holds it, is not stated",
                tried.shown()
            );
            Finding::new(Verdict::Shortage, Low, text)
        }
    }
}
