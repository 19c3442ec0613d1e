//! Requests of memory: what an alloc, a free and their kin do.

use super::buffers::{Buffer, State};
use super::{Engine, Outcome, RunError};
use crate::allocator::{AllocError, Notice, Placement, Reply, Request};
use crate::op::Op;
use crate::source::Source;
use crate::units::{BufferId, StreamId};

impl Engine<'_> {
    pub(super) fn alloc(
        &mut self,
        source: &dyn Source,
        id: BufferId,
        stream: StreamId,
        size: u64,
    ) -> Result<Outcome, RunError> {
        let device = self.device;
        if !self.buffers.is_empty(id) {
            return Err(RunError::TwiceLive { op: self.index, name: source.name(id) });
        }
        let request = Request { size, stream, ordinal: self.ordinals[usize::from(device.0)] };
        self.ordinals[usize::from(device.0)] += 1;
        let start = self.enter(stream);
        let answer = self.on(|strategy, machine| strategy.alloc(machine, &request));
        self.spend();
        let took = self.leave(stream, start);
        self.tally.alloc_took(took);
        let outcome = match answer {
            Ok(placement) => {
                self.buffers.put(id, Buffer::live(device, stream, size, placement));
                self.watch_placement(source, id, stream, &placement);
                self.tally.requested(device, size);
                Outcome::Placed(placement)
            }
            Err(AllocError::Driver(error)) => {
                return Err(RunError::Driver { op: self.index, what: "alloc", error });
            }
            Err(error @ (AllocError::OutOfMemory(_) | AllocError::InvalidSize { .. })) => {
                let wanted = if matches!(error, AllocError::OutOfMemory(_)) { size } else { 0 };
                self.buffers.put(id, Buffer::failed(device));
                self.buffers.refuse(id, wanted);
                self.tally.wanted(device, wanted);
                self.tally.refused(self.index, self.device, &error);
                Outcome::Refused(error)
            }
            Err(error) => return Err(RunError::Strategy { op: self.index, what: "alloc", error }),
        };
        self.account();
        Ok(outcome)
    }

    /// The live buffer of an op; `None` if its request had failed.
    pub(super) fn block(
        &self,
        op: &Op,
        source: &dyn Source,
        id: BufferId,
    ) -> Result<Option<&Buffer>, RunError> {
        let buffer = self.own(op, source, id)?;
        match buffer.state {
            State::Live => Ok(Some(buffer)),
            State::Failed => Ok(None),
            State::Deferred | State::HeldBack => Err(self.not_live(op, source, id)),
        }
    }

    /// The buffer of an op, which is on the op's device.
    fn own(&self, op: &Op, source: &dyn Source, id: BufferId) -> Result<&Buffer, RunError> {
        let buffer = self.buffers.peek(id).ok_or_else(|| self.not_live(op, source, id))?;
        if buffer.device == self.device {
            return Ok(buffer);
        }
        Err(RunError::OtherDevice {
            op: self.index,
            what: op.name(),
            name: source.name(id),
            device: self.device,
            home: buffer.device,
        })
    }

    fn not_live(&self, op: &Op, source: &dyn Source, id: BufferId) -> RunError {
        RunError::NotLive { op: self.index, what: op.name(), name: source.name(id) }
    }

    pub(super) fn free(
        &mut self,
        op: &Op,
        source: &dyn Source,
        id: BufferId,
        stream: Option<StreamId>,
    ) -> Result<Outcome, RunError> {
        let Some(buffer) = self.block(op, source, id)? else {
            self.buffers.take(id);
            self.give_up(id);
            return Ok(Outcome::Skipped);
        };
        let (block, device, home) = (buffer.block, buffer.device, buffer.stream);
        if self.buffers.races_watched() {
            self.note_freed(source, id);
        }
        let start = self.enter(home);
        let freed = self.on(|strategy, machine| strategy.free(machine, block, stream));
        self.spend();
        let took = self.leave(home, start);
        freed.map_err(|e| self.strategy(op, e))?;
        self.tally.free_took(took);
        if let Some(buffer) = self.buffers.take(id) {
            self.tally.released(device, buffer.requested);
            self.give_up(id);
        }
        self.account();
        Ok(Outcome::Done)
    }

    pub(super) fn free_deferred(
        &mut self,
        op: &Op,
        source: &dyn Source,
        id: BufferId,
    ) -> Result<Outcome, RunError> {
        let Some(buffer) = self.block(op, source, id)? else {
            self.give_up(id);
            return Ok(Outcome::Skipped);
        };
        let (block, device, home) = (buffer.block, buffer.device, buffer.stream);
        let size = buffer.requested;
        self.note_freed(source, id);
        let start = self.enter(home);
        let notice = Notice::FreeDeferred { block };
        let reply = self.on(|strategy, machine| strategy.notice(machine, notice));
        self.spend();
        let took = self.leave(home, start);
        let reply = reply.map_err(|e| self.strategy(op, e))?;
        self.tally.free_took(took);
        let state = if reply == Reply::Unsupported { State::HeldBack } else { State::Deferred };
        if let Some(buffer) = self.buffers.get(id) {
            buffer.state = state;
        }
        self.tally.released(device, size);
        self.give_up(id);
        self.account();
        Ok(Outcome::Done)
    }

    pub(super) fn free_completed(
        &mut self,
        op: &Op,
        source: &dyn Source,
        id: BufferId,
    ) -> Result<Outcome, RunError> {
        let buffer = self.own(op, source, id)?;
        let (block, state, home) = (buffer.block, buffer.state, buffer.stream);
        let deferred = match state {
            State::Live => return Err(self.not_live(op, source, id)),
            State::Failed => {
                self.buffers.take(id);
                self.give_up(id);
                return Ok(Outcome::Skipped);
            }
            State::HeldBack => false,
            State::Deferred => true,
        };
        self.buffers.take(id);
        let start = self.enter(home);
        let done = self.on(|strategy, machine| {
            if deferred {
                strategy.notice(machine, Notice::Completed { block }).map(|_reply| ())
            } else {
                strategy.free(machine, block, None)
            }
        });
        let took = self.leave(home, start);
        self.tally.stalled(took);
        done.map_err(|e| self.strategy(op, e))?;
        self.account();
        Ok(Outcome::Done)
    }

    pub(super) fn realloc(
        &mut self,
        op: &Op,
        source: &dyn Source,
        id: BufferId,
        size: u64,
    ) -> Result<Outcome, RunError> {
        let Some(buffer) = self.block(op, source, id)? else {
            self.want_instead(id, size);
            return Ok(Outcome::Skipped);
        };
        let (block, device, stream) = (buffer.block, buffer.device, buffer.stream);
        let (old, address) = (buffer.requested, buffer.address);
        let start = self.enter(stream);
        let notice = Notice::Resize { block, size };
        let answer = self.on(|strategy, machine| strategy.notice(machine, notice));
        self.spend();
        let took = self.leave(stream, start);
        self.tally.free_took(took);
        let outcome = match answer {
            Ok(Reply::Placed(placement)) => {
                if placement.address != address && self.buffers.races_watched() {
                    self.note_freed(source, id);
                }
                self.buffers.put(id, Buffer::live(device, stream, size, placement));
                if !self.buffers.has_history(id) {
                    self.watch_placement(source, id, stream, &placement);
                }
                self.tally.released(device, old);
                self.give_up(id);
                self.tally.requested(device, size);
                Outcome::Placed(placement)
            }
            Ok(_) => {
                self.tally.unsupported(op.name());
                self.want_instead(id, size.saturating_sub(old));
                Outcome::Skipped
            }
            Err(error @ AllocError::OutOfMemory(_)) => {
                self.want_instead(id, size.saturating_sub(old));
                self.tally.refused(self.index, self.device, &error);
                Outcome::Refused(error)
            }
            Err(error) => return Err(self.strategy(op, error)),
        };
        self.account();
        Ok(outcome)
    }

    /// Nobody waits any more for the bytes that the buffer was refused.
    #[inline]
    fn give_up(&mut self, id: BufferId) {
        let refused = self.buffers.take_refused(id);
        self.tally.given_up(self.device, refused);
    }

    /// So many bytes are wanted and not had beyond what the buffer has, instead of those before.
    fn want_instead(&mut self, id: BufferId, bytes: u64) {
        self.give_up(id);
        self.buffers.refuse(id, bytes);
        self.tally.wanted(self.device, bytes);
    }

    /// The buffer has new bytes: what was there before is ordered before its stream, or a race.
    #[inline]
    fn watch_placement(
        &mut self,
        source: &dyn Source,
        id: BufferId,
        stream: StreamId,
        placement: &Placement,
    ) {
        if self.buffers.races_watched() {
            let at = (self.index, source.name(id));
            let Placement { address, size, .. } = *placement;
            let history = self.buffers.races.placed(self.machine, at, stream, address, size);
            self.buffers.put_history(id, history);
        }
    }

    fn note_freed(&mut self, source: &dyn Source, id: BufferId) {
        if let Some(history) = self.buffers.take_history(id)
            && let Some(buffer) = self.buffers.peek(id)
        {
            let (address, size, name) = (buffer.address, buffer.size, source.name(id));
            self.buffers.races.freed(self.machine, history, name, address, size);
        }
    }
}
