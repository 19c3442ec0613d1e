//! `memory_summary()`: a state, with how often it failed so far.
//!
//! | rule | verdict |
//! |---|---|
//! | no request failed so far | `unknown`: the table shows what is held, not why something failed |
//! | idle ≥ a quarter of what is reserved | `fragmentation` |
//! | else | `shortage` |
//!
//! What `empty_cache()` can give back is what is reserved, less what is active, less what is non-releasable (free pieces beside live blocks).

use super::rough::Rough;
use super::{Confidence, Finding, Verdict};
use crate::explain::message::Message;

pub(super) fn judge(message: &Message) -> Finding {
    let size = |name| message.figures.size(name).map(Rough::from);
    let zero = Rough::default();
    let reserved = size("reserved_current_bytes").unwrap_or(zero);
    let allocated = size("allocated_current_bytes").unwrap_or(zero);
    let active = size("active_current_bytes").unwrap_or(allocated);
    let pinned = size("inactive_split_current_bytes").unwrap_or(zero);
    let idle = reserved - allocated;
    let whole = reserved - active - pinned;
    let ooms = message.figures.count("ooms").unwrap_or(0);
    let held = format!(
        "{} are reserved while {} are live; of the {} idle, {} lie in pieces beside live blocks and cannot be given back",
        reserved.shown(),
        allocated.shown(),
        idle.shown(),
        pinned.shown()
    );
    let mut finding = if ooms == 0 {
        let text = format!("nothing failed up to this table: {held}");
        Finding::new(Verdict::Unknown, Confidence::Low, text)
    } else if idle.bytes * 4 >= reserved.bytes {
        Finding::new(Verdict::Fragmentation, Confidence::Medium, held)
    } else {
        Finding::new(Verdict::Shortage, Confidence::Medium, held)
    };
    finding.sums.push(format!(
        "reserved {} - allocated {} = {} idle",
        reserved.shown(),
        allocated.shown(),
        idle.shown()
    ));
    finding.sums.push(format!(
        "reserved {} - active {} - non-releasable {} = {} that empty_cache() can give back",
        reserved.shown(),
        active.shown(),
        pinned.shown(),
        whole.shown()
    ));
    finding.derive("reserved_unallocated_bytes", idle.bytes);
    finding.derive("releasable_bytes", whole.bytes);
    if let (Some(peak), Some(most)) = (size("allocated_peak_bytes"), size("reserved_peak_bytes")) {
        finding.notes.push(format!(
            "at its peak {} were live and {} reserved: {} more than any moment needed",
            peak.shown(),
            most.shown(),
            (most - peak).shown()
        ));
    }
    if let Some(retries) = message.figures.count("cudamalloc_retries").filter(|n| *n > 0) {
        finding.notes.push(format!(
            "{retries} times the cache was given back to serve a request: each such moment waits for the device"
        ));
    }
    finding
}
