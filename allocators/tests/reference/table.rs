//! The block table: what is where, as the allocator's own snapshot tells it.

use super::{Reference, State};

/// One segment, or one run of neighbouring mapped blocks of an expandable range.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) label: String,
    pub(crate) offset: u64,
    pub(crate) stream: u64,
    pub(crate) small: bool,
    pub(crate) expandable: bool,
    pub(crate) private_pool: u64,
    pub(crate) registration: u64,
    /// Size, requested size (0 if inactive) and state of each block. The real snapshot has a field for the garbage-collection
    /// age too, but leaves it 0.
    pub(crate) blocks: Vec<(u64, u64, &'static str)>,
}

impl Reference {
    /// In the order of device addresses.
    pub(super) fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        // Where the run under way ends, and its segment.
        let mut end = None;
        for (at, block) in &self.blocks {
            let state = match block.state {
                State::Allocated => "allocated",
                State::Pending => "pending",
                State::Free => "inactive",
                State::Unmapped => continue,
            };
            if end != Some((*at, block.segment)) {
                let (label, offset) = self.device.label(*at);
                runs.push(Run {
                    label,
                    offset,
                    stream: block.stream,
                    small: block.pool.small,
                    expandable: block.expandable,
                    private_pool: block.pool.owner,
                    registration: block.segment,
                    blocks: Vec::new(),
                });
            }
            end = Some((at + block.size, block.segment));
            let requested = if block.state == State::Free { 0 } else { block.requested };
            runs.last_mut().expect("just pushed").blocks.push((block.size, requested, state));
        }
        runs
    }
}
