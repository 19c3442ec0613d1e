//! Work beside the computation: transfers on a stream of their own, ordered by events.
//!
//! Stream 0 computes. Stream 1 carries weights, gradients and activations, stream 2 batches; stream 3 is where the host waits for an
//! event, since it can wait for a stream only. Stream 4 is no stream of the device: on it the host's
//! workers make one batch after the other.

use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::units::{EventId, StreamId};

use super::Lower;
use crate::graph::program::{Step, StorageId};

/// Where kernels run.
pub(super) const COMPUTE: StreamId = StreamId(0);
/// Where weights, gradients and activations travel.
pub(super) const CARRY: StreamId = StreamId(1);
/// Where the host's workers make batches.
pub(super) const WORKERS: StreamId = StreamId(4);
/// Where batches come in.
pub(super) const LOAD: StreamId = StreamId(2);
const WAIT: StreamId = StreamId(3);

/// The host's workers have made the next batch: the one event that outlives a program.
pub(super) const BATCH_MADE: EventId = EventId(0);
/// Events of a program are numbered from here.
pub(super) const EVENTS_FIRST: u32 = 1;

/// Bytes that a device receives when `bytes`, of which it has its part, are gathered from (or summed over) `devices`.
pub(super) fn exchanged(bytes: u64, devices: u64) -> u64 {
    let part = bytes.div_ceil(devices.max(1));
    part.saturating_mul(devices.saturating_sub(1))
}

impl Lower<'_> {
    /// What is queued on `after` from here on waits for all that is queued on `first`.
    pub(super) fn order(&mut self, first: StreamId, after: StreamId) {
        let event = self.event(first);
        self.program.steps.push(Step::Op(Op::Wait { event, stream: after }));
    }

    pub(super) fn event(&mut self, stream: StreamId) -> EventId {
        let event = EventId(self.events);
        self.events += 1;
        self.program.steps.push(Step::Op(Op::Event { event, stream }));
        event
    }

    /// A point that the computation passes later.
    pub(super) fn milestone(&mut self) -> EventId {
        self.event(COMPUTE)
    }

    /// The host waits until the computation has passed it.
    pub(super) fn host_waits_for(&mut self, event: EventId) {
        self.program.steps.push(Step::Op(Op::Wait { event, stream: WAIT }));
        self.program.steps.push(Step::Op(Op::Sync { stream: Some(WAIT) }));
    }

    /// A transfer into a storage, or out of one, or both.
    pub(super) fn carry_over(
        &mut self,
        [from, to]: [Option<StorageId>; 2],
        bytes: u64,
        direction: Direction,
        stream: StreamId,
    ) {
        self.program.steps.push(Step::Copy { from, to, bytes, direction, stream });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of N devices receives (N − 1)/N of what is gathered (Rajbhandari et al. 2020, section 7).
    #[test]
    fn a_gather_brings_what_the_others_have() {
        assert_eq!(exchanged(800, 8), 700);
        assert_eq!(exchanged(801, 8), 707);
        assert_eq!(exchanged(800, 1), 0);
    }
}
