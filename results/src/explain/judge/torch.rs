//! PyTorch's caching allocator: who holds the card.
//!
//! ```text
//! card = allocated + idle in the cache + free + others (contexts, other libraries, other processes)
//! ```
//!
//! | rule, the first that holds | verdict |
//! |---|---|
//! | reserved > card | `over_capacity` |
//! | free ≥ request, and no limit of this process | `unknown`: the request should have been served |
//! | idle is not stated | `unknown` (`other_process` if a named process holds over half of the card) |
//! | idle ≥ request | `fragmentation` |
//! | others > half of the card | `other_process` |
//! | idle + free ≥ request | `combined` |
//! | others > 15 % of the card, and they are as much as is missing | `other_process` |
//! | else | `shortage` |
//!
//! `others` is what is stated of other processes; or the card less this process less free; or the card less reserved less free, which has this process's context
//! in it. Where a limit is stated (`… allowed`), free is no more than what the limit leaves. The allocator has released every whole idle segment and tried again
//! before it says that it failed, so what is idle then lies beside live blocks, or in other pools (`c10/cuda/CUDACachingAllocator.cpp`, `malloc`).

use super::rough::Rough;
use super::{Confidence, Finding, Limit, Verdict};
use crate::explain::message::{Kind, Message, shown};

/// Others are a large part from here on, in percent of the card: contexts and libraries of one process stay below.
const LARGE_PART: i128 = 15;

/// What is known of the card.
struct Card {
    tried: Option<Rough>,
    capacity: Option<Rough>,
    allocated: Option<Rough>,
    free: Option<Rough>,
    idle: Option<Rough>,
    reserved: Option<Rough>,
    process: Option<Rough>,
    named_others: Option<Rough>,
    allowed: Option<Rough>,
}

impl Card {
    fn of(message: &Message) -> Self {
        let size = |name| message.figures.size(name).map(Rough::from);
        let allocated = size("allocated_bytes");
        let total = size("reserved_bytes");
        let idle = size("reserved_unallocated_bytes").or(size("cached_bytes"));
        let idle = idle.or_else(|| Some(total? - allocated?));
        let reserved = total.or_else(|| Some(allocated? + idle?));
        Self {
            tried: size("tried_bytes"),
            capacity: size("capacity_bytes"),
            allocated,
            free: size("free_bytes"),
            idle,
            reserved,
            process: size("process_bytes"),
            named_others: size("other_process_bytes"),
            allowed: size("allowed_bytes"),
        }
    }

    /// What is not this allocator's, and whether it is stated.
    fn others(&self) -> Option<(Rough, bool)> {
        if let Some(named) = self.named_others {
            return Some((named, true));
        }
        let rest = self.capacity? - self.free?;
        match self.process {
            Some(process) => Some((rest - process, true)),
            None => Some((rest - self.reserved?, false)),
        }
    }

    /// What the limit leaves, if there is one.
    fn room(&self) -> Option<Rough> {
        Some(self.allowed? - self.reserved?)
    }
}

pub(super) fn judge(message: &Message) -> Finding {
    let card = Card::of(message);
    let mut finding = decide(message, &card);
    finding.sums = sums(&card);
    if card.allowed.is_some() {
        finding.limit = Some(Limit::Fraction);
    }
    derive(&mut finding, &card);
    notes(&mut finding, &card);
    finding
}

fn decide(message: &Message, card: &Card) -> Finding {
    use Confidence::{High, Low, Medium};
    if message.kind == Kind::Driver {
        let text = "the driver itself refused memory outside of PyTorch's cache (a context, a library's workspace); it gives no figures";
        return Finding::new(Verdict::Unknown, Low, text);
    }
    if let (Some(reserved), Some(capacity)) = (card.reserved, card.capacity)
        && reserved.bytes > capacity.bytes
        && !reserved.near(capacity)
    {
        let text = format!(
            "{} are reserved on a card of {}: the driver backs the rest with host memory, and no setting of the allocator helps",
            reserved.shown(),
            capacity.shown()
        );
        return Finding::new(Verdict::OverCapacity, High, text);
    }
    let Some(tried) = card.tried else {
        return Finding::new(
            Verdict::Unknown,
            Low,
            "the message does not say how much was asked for",
        );
    };
    if let Some(found) = not_refused_for_want(card, tried) {
        return found;
    }
    let Some(idle) = card.idle else { return split_unknown(card, tried) };
    if idle.reaches(tried) {
        let text = format!(
            "{} lie idle in PyTorch's own cache, more than the {} that were asked for, but in pieces that are too small or in other pools",
            idle.shown(),
            tried.shown()
        );
        let sure = if idle.near(tried) { Medium } else { High };
        return Finding::new(Verdict::Fragmentation, sure, text);
    }
    let free = free_within_limit(card);
    if let Some((others, stated, capacity)) = large_others(card, 50) {
        let sure = if stated { High } else { Medium };
        return Finding::new(Verdict::OtherProcess, sure, others_text(others, capacity, stated));
    }
    let Some(free) = free else { return split_unknown(card, tried) };
    let could = idle + free;
    if could.reaches(tried) {
        let text = format!(
            "idle cache and free memory together ({}) would hold the {} that were asked for, but they are not one piece",
            could.shown(),
            tried.shown()
        );
        let sure = if could.near(tried) { Low } else { Medium };
        return Finding::new(Verdict::Combined, sure, text);
    }
    let missing = tried - could;
    if let Some((others, stated, capacity)) = large_others(card, LARGE_PART)
        && others.reaches(missing)
        && card.allowed.is_none()
    {
        let sure = if stated { High } else { Medium };
        return Finding::new(Verdict::OtherProcess, sure, others_text(others, capacity, stated));
    }
    let text = format!(
        "even with all idle and free memory in one piece, {} are missing for the {} that were asked for",
        missing.shown(),
        tried.shown()
    );
    let sure = if could.near(tried) { Medium } else { High };
    Finding::new(Verdict::Shortage, sure, text)
}

/// Free memory, or what a limit leaves of it.
fn free_within_limit(card: &Card) -> Option<Rough> {
    match (card.free, card.room()) {
        (Some(free), Some(room)) if room.bytes < free.bytes => {
            Some(Rough { bytes: room.bytes.max(0), ..room })
        }
        (free, room) => free.or(room),
    }
}

/// More is free than was asked for.
fn not_refused_for_want(card: &Card, tried: Rough) -> Option<Finding> {
    let free = card.free?;
    if !free.reaches(tried) {
        return None;
    }
    if let Some(room) = card.room() {
        // the limit explains it, unless it leaves clearly more than was asked for
        if !room.reaches(tried) || room.near(tried) {
            return None;
        }
    }
    let text = format!(
        "the driver reports {} free, more than the {} that were asked for: the figure was taken after others gave memory back, a limit that the text does not show is in force, or the driver had no memory of the kind that was needed",
        free.shown(),
        tried.shown()
    );
    Some(Finding::new(Verdict::Unknown, Confidence::Low, text))
}

/// The message does not say how much of what is held lies idle.
fn split_unknown(card: &Card, tried: Rough) -> Finding {
    if let Some((others, _, capacity)) = large_others(card, 50) {
        let text = others_text(others, capacity, true);
        return Finding::new(Verdict::OtherProcess, Confidence::Medium, text);
    }
    let mut text = format!(
        "{} were asked for; the message is cut before it says how much of PyTorch's memory lies idle",
        tried.shown()
    );
    if let (Some(capacity), Some(allocated)) = (card.capacity, card.allocated)
        && !(capacity - allocated).reaches(tried)
    {
        let rest = capacity - allocated;
        text = format!(
            "{} were asked for, and beside the {} of live tensors the card has only {}: it cannot fit, whatever lies idle",
            tried.shown(),
            allocated.shown(),
            rest.shown()
        );
    }
    Finding::new(Verdict::Unknown, Confidence::Low, text)
}

/// Others, if they hold more than such a part of the card: with whether they are stated, and the card.
fn large_others(card: &Card, percent: i128) -> Option<(Rough, bool, Rough)> {
    let (others, stated) = card.others()?;
    let capacity = card.capacity?;
    (others.bytes * 100 > capacity.bytes * percent).then_some((others, stated, capacity))
}

fn others_text(others: Rough, capacity: Rough, stated: bool) -> String {
    let who = if stated { "other processes" } else { "other processes, contexts and libraries" };
    format!(
        "{} of the card's {} are outside of this allocator, held by {who}",
        others.shown(),
        capacity.shown()
    )
}

/// The arithmetic, as far as the text has the figures.
fn sums(card: &Card) -> Vec<String> {
    let mut sums = Vec::new();
    if let (Some(reserved), Some(allocated), Some(idle)) =
        (card.reserved, card.allocated, card.idle)
    {
        sums.push(format!(
            "reserved {} - allocated {} = {} idle in the cache",
            reserved.shown(),
            allocated.shown(),
            idle.shown()
        ));
    }
    if let (Some((others, _)), Some(capacity), Some(free)) =
        (card.others(), card.capacity, card.free)
    {
        let beyond = u64::try_from(-others.bytes).unwrap_or(0);
        sums.push(match (card.named_others, card.process, card.reserved) {
            (Some(named), ..) => format!("other processes, as stated: {}", named.shown()),
            (_, Some(ours), _) | (_, _, Some(ours)) if beyond > 0 => format!(
                "this process {} + free {} - card {} = {} more than the card has",
                ours.shown(),
                free.shown(),
                capacity.shown(),
                shown(beyond)
            ),
            (_, Some(process), _) => format!(
                "card {} - this process {} - free {} = {} of others",
                capacity.shown(),
                process.shown(),
                free.shown(),
                others.shown()
            ),
            (_, _, Some(reserved)) => format!(
                "card {} - reserved {} - free {} = {} outside of this allocator",
                capacity.shown(),
                reserved.shown(),
                free.shown(),
                others.shown()
            ),
            _ => String::new(),
        });
    }
    if let (Some(allowed), Some(reserved), Some(room)) = (card.allowed, card.reserved, card.room())
    {
        sums.push(format!(
            "allowed {} - reserved {} = {} left below the limit",
            allowed.shown(),
            reserved.shown(),
            room.shown()
        ));
    }
    if let (Some(idle), Some(free), Some(tried)) = (card.idle, free_within_limit(card), card.tried)
    {
        let could = idle + free;
        let left = could - tried;
        sums.push(format!(
            "idle {} + free {} = {}; asked {}: {}",
            idle.shown(),
            free.shown(),
            could.shown(),
            tried.shown(),
            match left.bytes {
                0.. => format!("{} to spare, if it were one piece", left.shown()),
                _ => format!("{} missing", (tried - could).shown()),
            }
        ));
    }
    sums.retain(|line| !line.is_empty());
    sums
}

fn derive(finding: &mut Finding, card: &Card) {
    if let Some(idle) = card.idle {
        finding.derive("reserved_unallocated_bytes", idle.bytes);
    }
    if let Some((others, _)) = card.others() {
        finding.derive("others_bytes", others.bytes);
    }
    if let (Some(idle), Some(free)) = (card.idle, free_within_limit(card)) {
        let could = idle + free;
        finding.derive("available_if_compacted_bytes", could.bytes);
        if let Some(tried) = card.tried {
            finding.derive("shortfall_bytes", (tried - could).bytes.max(0));
        }
    }
}

/// What else is worth saying.
fn notes(finding: &mut Finding, card: &Card) {
    let mut note = |text: String| finding.notes.push(text);
    let (Some(tried), Some(capacity)) = (card.tried, card.capacity) else { return };
    if tried.bytes > capacity.bytes {
        note(format!(
            "the request alone ({}) is larger than the card ({}): look for a wrong shape, index or dtype first",
            tried.shown(),
            capacity.shown()
        ));
    }
    for (segment, requests) in [(2, "up to 1 MiB"), (20, "from 1 to 10 MiB")] {
        if tried.bytes == segment << 20 {
            note(format!(
                "{segment} MiB is what PyTorch takes from the driver at once: the tensor itself was {requests}"
            ));
        }
    }
    if let (Some(idle), Some(free), Some((others, ..))) =
        (card.idle, card.free, large_others(card, 50))
        && finding.verdict == Verdict::OtherProcess
        && (idle + free).reaches(tried)
    {
        note(format!(
            "idle cache and free memory ({}) would just hold the request in one piece, but what presses is the {} of others",
            (idle + free).shown(),
            others.shown()
        ));
    }
}
