//! Uses of buffers: work and touches are announced to the strategy before and after.

use super::buffers::State;
use super::{Engine, Outcome, RunError};
use crate::allocator::{AllocError, Use};
use crate::driver::Address;
use crate::machine::{Memory, Toucher};
use crate::op::Op;
use crate::source::Source;
use crate::units::{BufferId, StreamId};

impl Engine<'_> {
    pub(super) fn work(
        &mut self,
        op: &Op,
        source: &dyn Source,
        stream: StreamId,
        duration: u64,
    ) -> Result<Outcome, RunError> {
        let listed = source.uses();
        if listed.is_empty() {
            return self
                .machine
                .launch(stream, duration)
                .map_err(|e| self.driver(op, e))
                .map(|()| Outcome::Done);
        }
        self.buffers.watch_races();
        let mut uses = std::mem::take(&mut self.uses);
        uses.clear();
        for used in listed {
            if let Some(buffer) = self.block(op, source, used.id)? {
                let (block, address, size) = (buffer.block, buffer.address, buffer.size);
                uses.push(Use { block, address, size, write: used.write });
            }
        }
        let announced = self.announce(stream, &mut uses);
        let outcome = match announced {
            Ok(()) => {
                self.touch_managed(op, stream, &uses)?;
                self.machine.launch(stream, duration).map_err(|e| self.driver(op, e))?;
                self.on(|strategy, machine| strategy.after_work(machine, stream, &uses))
                    .map_err(|e| self.strategy(op, e))?;
                Outcome::Done
            }
            Err(error) => self.not_resident(op, error)?,
        };
        let mut moved = uses.iter();
        for used in listed {
            let at = (self.index, source.name(used.id));
            if self.buffers.peek(used.id).is_some_and(|buffer| buffer.state == State::Live) {
                if let Some(now) = moved.next() {
                    self.moved(at, used.id, stream, now.address);
                }
                if outcome == Outcome::Done {
                    self.note_used(at, used.id, stream);
                }
            }
        }
        self.uses = uses;
        self.account();
        Ok(outcome)
    }

    /// Work touches what it uses of managed memory.
    fn touch_managed(&mut self, op: &Op, stream: StreamId, uses: &[Use]) -> Result<(), RunError> {
        if self.memory == Memory::Managed {
            for used in uses.iter().filter(|used| used.size > 0) {
                let by = Toucher::Device(stream);
                let touched = self.machine.touch(used.address, used.size, used.write, by);
                touched.map_err(|e| self.driver(op, e))?;
            }
        }
        Ok(())
    }

    /// Tells the strategy what work on `stream` will use. Host time that it takes to have it there is lost to memory.
    fn announce(&mut self, stream: StreamId, uses: &mut [Use]) -> Result<(), AllocError> {
        let start = self.machine.now();
        let announced = self.on(|strategy, machine| strategy.before_work(machine, stream, uses));
        let took = self.machine.now().0 - start.0;
        if took > 0 {
            self.tally.stalled(took);
        }
        announced
    }

    /// The buffer is here now. If that is news, its uses were of other bytes; what these bytes saw before is ordered before `stream`, or a race.
    fn moved(&mut self, at: (u64, u64), id: BufferId, stream: StreamId, address: Address) {
        if let Some(buffer) = self.buffers.get(id)
            && buffer.address != address
        {
            buffer.address = address;
            let size = buffer.size;
            let history = self.buffers.races.placed(self.machine, at, stream, address, size);
            self.buffers.put_history(id, history);
        }
    }

    fn note_used(&mut self, at: (u64, u64), id: BufferId, stream: StreamId) {
        let mut history = self.buffers.take_history(id).unwrap_or_default();
        self.buffers.races.used(self.machine, &mut history, at, stream);
        self.buffers.put_history(id, history);
    }

    pub(super) fn touch(
        &mut self,
        op: &Op,
        source: &dyn Source,
        id: BufferId,
    ) -> Result<Outcome, RunError> {
        let range = source.touch();
        let Some(buffer) = self.block(op, source, id)? else { return Ok(Outcome::Skipped) };
        let (block, address, size) = (buffer.block, buffer.address, buffer.size);
        let requested = buffer.requested;
        let mut uses = [Use { block, address, size, write: range.write }];
        let by = if range.by_host { Toucher::Host } else { Toucher::Device(range.stream) };
        if let Toucher::Device(stream) = by {
            self.buffers.watch_races();
            if let Err(error) = self.announce(stream, &mut uses) {
                return self.not_resident(op, error);
            }
            self.moved((self.index, source.name(id)), id, stream, uses[0].address);
        }
        let address = uses[0].address;
        let offset = range.offset.min(requested);
        let rest = requested - offset;
        let bytes = if range.bytes == 0 { rest } else { range.bytes.min(rest) };
        self.machine
            .touch(address + offset, bytes, range.write, by)
            .map_err(|e| self.driver(op, e))?;
        if let Toucher::Device(stream) = by {
            self.on(|strategy, machine| strategy.after_work(machine, stream, &uses))
                .map_err(|e| self.strategy(op, e))?;
            self.note_used((self.index, source.name(id)), id, stream);
            self.account();
        }
        Ok(Outcome::Done)
    }

    /// What is used cannot be where it is used: out of memory is an answer.
    fn not_resident(&mut self, op: &Op, error: AllocError) -> Result<Outcome, RunError> {
        if !matches!(error, AllocError::OutOfMemory(_)) {
            return Err(self.strategy(op, error));
        }
        self.tally.refused(self.index, self.device, &error);
        Ok(Outcome::Refused(error))
    }
}
