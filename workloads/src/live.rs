//! The sum of live requests of a source: its peak is the floor under anything that keeps buffers on one device.
//!
//! No allocator and no device: every op is answered "done", and only `alloc`, `free` and `realloc` are looked at. Waits pass at once.

use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};

/// What [`live_peak`] saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LivePeak {
    /// Highest sum of live request sizes (B), cut at 2^64 − 1.
    pub bytes: u64,
    /// The op at which it was first reached, counted from 0.
    pub op: u64,
    /// Sum of live request sizes at the end (B).
    pub bytes_at_end: u64,
    /// Most buffers live at once.
    pub buffers: u64,
    /// Allocations in all.
    pub allocs: u64,
    /// Ops in all.
    pub ops: u64,
}

/// Walks a source to its end.
///
/// # Errors
/// When the source's input is bad, or an op frees what is not live.
pub fn live_peak(source: &mut dyn Source) -> Result<LivePeak, SourceError> {
    let mut seen = LivePeak::default();
    let mut sizes: Vec<Option<u64>> = Vec::new();
    let (mut now, mut live, mut buffers) = (Nanos(0), 0_u64, 0_u64);
    loop {
        match source.next(now, Answered::Done)? {
            Step::End => {
                seen.bytes_at_end = live;
                return Ok(seen);
            }
            Step::WaitUntil(time) => now = now.max(time),
            Step::Op(op) => {
                let place = |what: String| SourceError { place: format!("op {}", seen.ops), what };
                match op {
                    Op::Alloc { id, size, .. } => {
                        let slot = slot(&mut sizes, id);
                        if slot.replace(size).is_some() {
                            return Err(place(format!("alloc of buffer {id}, which is live")));
                        }
                        live = live.saturating_add(size);
                        buffers += 1;
                        seen.allocs += 1;
                    }
                    Op::Free { id, .. } | Op::FreeDeferred { id } => {
                        let Some(size) = slot(&mut sizes, id).take() else {
                            return Err(place(format!("free of buffer {id}, which is not live")));
                        };
                        live = live.saturating_sub(size);
                        buffers -= 1;
                    }
                    Op::Realloc { id, size } => {
                        let Some(old) = slot(&mut sizes, id).replace(size) else {
                            return Err(place(format!(
                                "realloc of buffer {id}, which is not live"
                            )));
                        };
                        live = live.saturating_sub(old).saturating_add(size);
                    }
                    _ => {}
                }
                if live > seen.bytes {
                    (seen.bytes, seen.op) = (live, seen.ops);
                }
                seen.buffers = seen.buffers.max(buffers);
                seen.ops += 1;
            }
        }
    }
}

fn slot(sizes: &mut Vec<Option<u64>>, id: BufferId) -> &mut Option<u64> {
    let index = id.0 as usize;
    if index >= sizes.len() {
        sizes.resize(index + 1, None);
    }
    &mut sizes[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::Rates;
    use crate::registry::WORKLOADS;

    #[test]
    fn every_workload_frees_only_what_is_live() {
        for workload in WORKLOADS {
            let mut source = workload.source("", 0, &Rates::free()).unwrap();
            let seen = live_peak(&mut *source).unwrap_or_else(|e| panic!("{}: {e}", workload.name));
            assert!(seen.bytes > 0 && seen.ops > seen.allocs, "{}: {seen:?}", workload.name);
        }
    }
}
