//! Requests of memory: what an alloc, a free and their kin do.

use super::buffers::{Buffer, State};
use super::{Engine, Outcome, RunError};
use crate::allocator::{AllocError, Notice, Reply, Request};
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
        let start = self.machine.now();
        self.lock(stream);
        let answer = self.strategies[usize::from(device.0)].alloc(self.machine, &request);
        self.spend();
        self.unlock(stream);
        self.tally.alloc_took(self.machine.now().0 - start.0);
        let outcome = match answer {
            Ok(placement) => {
                let mut buffer = Buffer::live(device, stream, size, placement);
                if self.buffers.races_watched() {
                    let at = (self.index, source.name(id));
                    buffer.history = self
                        .buffers
                        .races
                        .placed(self.machine, at, stream, placement.address, placement.size)
                        .into();
                }
                self.buffers.put(id, buffer);
                self.tally.requested(device, size);
                Outcome::Placed(placement)
            }
            Err(AllocError::Driver(error)) => {
                return Err(RunError::Driver { op: self.index, what: "alloc", error });
            }
            Err(error @ (AllocError::OutOfMemory(_) | AllocError::InvalidSize { .. })) => {
                let wanted = if matches!(error, AllocError::OutOfMemory(_)) { size } else { 0 };
                self.buffers.put(id, Buffer::failed(device, wanted));
                self.tally.wanted(device, wanted);
                self.tally.refused(self.index, &error);
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
            let wanted = self.buffers.take(id).map_or(0, |buffer| buffer.requested);
            self.tally.given_up(self.device, wanted);
            return Ok(Outcome::Skipped);
        };
        let (block, device, home) = (buffer.block, buffer.device, buffer.stream);
        if self.buffers.races_watched() {
            self.note_freed(source, id);
        }
        let start = self.machine.now();
        self.lock(home);
        self.on(|strategy, machine| strategy.free(machine, block, stream))
            .map_err(|e| self.strategy(op, e))?;
        self.spend();
        self.unlock(home);
        self.tally.free_took(self.machine.now().0 - start.0);
        let size = self.buffers.take(id).map_or(0, |b| b.requested);
        self.tally.released(device, size);
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
            let wanted =
                self.buffers.get(id).map_or(0, |buffer| std::mem::take(&mut buffer.requested));
            self.tally.given_up(self.device, wanted);
            return Ok(Outcome::Skipped);
        };
        let (block, device, size) = (buffer.block, buffer.device, buffer.requested);
        self.note_freed(source, id);
        let reply =
            self.on(|strategy, machine| strategy.notice(machine, Notice::FreeDeferred { block }));
        let reply = reply.map_err(|e| self.strategy(op, e))?;
        self.spend();
        let state = if reply == Reply::Unsupported { State::HeldBack } else { State::Deferred };
        if let Some(buffer) = self.buffers.get(id) {
            buffer.state = state;
        }
        self.tally.released(device, size);
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
        let (block, state) = (buffer.block, buffer.state);
        if state == State::Live {
            return Err(self.not_live(op, source, id));
        }
        let wanted = self.buffers.take(id).map_or(0, |buffer| buffer.requested);
        let done = match state {
            State::Failed | State::Live => {
                self.tally.given_up(self.device, wanted);
                return Ok(Outcome::Skipped);
            }
            State::HeldBack => self.on(|strategy, machine| strategy.free(machine, block, None)),
            State::Deferred => self
                .on(|strategy, machine| strategy.notice(machine, Notice::Completed { block }))
                .map(|_reply| ()),
        };
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
        let Some(buffer) = self.block(op, source, id)? else { return Ok(Outcome::Skipped) };
        let (block, device, old) = (buffer.block, buffer.device, buffer.requested);
        let stream = buffer.stream;
        let answer =
            self.on(|strategy, machine| strategy.notice(machine, Notice::Resize { block, size }));
        let outcome = match answer {
            Ok(Reply::Placed(placement)) => {
                self.buffers.put(id, Buffer::live(device, stream, size, placement));
                self.tally.released(device, old);
                self.tally.requested(device, size);
                Outcome::Placed(placement)
            }
            Ok(_) => {
                self.tally.unsupported(op.name());
                Outcome::Skipped
            }
            Err(error @ AllocError::OutOfMemory(_)) => {
                self.tally.refused(self.index, &error);
                Outcome::Refused(error)
            }
            Err(error) => return Err(self.strategy(op, error)),
        };
        self.spend();
        self.account();
        Ok(outcome)
    }

    fn note_freed(&mut self, source: &dyn Source, id: BufferId) {
        let name = source.name(id);
        if let Some(buffer) = self.buffers.get(id)
            && let Some(history) = buffer.history.take()
        {
            let (address, size) = (buffer.address, buffer.size);
            self.buffers.races.freed(self.machine, history, name, address, size);
        }
    }
}
