//! The host tier: pinned memory that is taken in chunks, kept, and handed out by best fit.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `pinned_pool` | pinning is slow (2 ms and more a call), so chunks of `host_chunk` or more are kept until the cache is emptied; where the host has no room for one, what is needed is asked for | ZeRO-Infinity (SC 2021) 6.3: a pinned memory management layer that uses a small supply again |
//! | `best_fit` | the smallest free piece that is large enough, in pages of 4 KiB | - |
//! | `leaving` | a block that a queued copy still reads or writes comes back later, oldest first, before memory is added; its next user comes after those copies | - |

use std::collections::VecDeque;

use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};

use super::lines::{LineId, Lines};
use crate::parts::pieces::{Pieces, Segment};
use crate::parts::size_order::SizeOrder;

/// Blocks are multiples of this.
const PAGE: u64 = 4096;

/// What was queued on a line: a block's last user there.
pub(super) type User = (LineId, u64);

/// A block of host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostBlock {
    slot: u32,
    pub(super) address: Address,
    /// Bytes of it that count against the limit.
    pub(super) size: u64,
}

/// The host tier.
pub(super) struct Host {
    pieces: Pieces,
    order: SizeOrder,
    limit: u64,
    chunk: u64,
    held: u64,
    leaving: VecDeque<(u32, Vec<User>)>,
    /// The last users, by line, of what came back so far.
    came_back: Vec<u64>,
}

impl Host {
    pub(super) fn new(limit: u64, chunk: u64) -> Self {
        let pieces = Pieces::new(PAGE);
        // a chunk is a piece at first
        let most = pieces.bytes(u32::MAX);
        Self {
            chunk: chunk.min(most).next_multiple_of(PAGE),
            pieces,
            order: SizeOrder::new(),
            limit: limit / PAGE * PAGE,
            held: 0,
            leaving: VecDeque::new(),
            came_back: Vec::new(),
        }
    }

    /// A block of `size` (1 or more) bytes that `user` may write to next; `None` if there is no room.
    pub(super) fn take(
        &mut self,
        driver: &mut dyn Driver,
        lines: &mut Lines,
        size: u64,
        user: LineId,
    ) -> Result<Option<HostBlock>, DriverError> {
        let Some(units) = self.pieces.units(size) else { return Ok(None) };
        if self.pieces.bytes(units) > self.limit {
            return Ok(None);
        }
        let slot = loop {
            if let Some(slot) = self.order.smallest_from(&self.pieces, units) {
                break slot;
            }
            match self.leaving.pop_front() {
                Some((slot, users)) => self.come_back(slot, &users),
                None if self.grow(driver, self.pieces.bytes(units))? => {}
                None => return Ok(None),
            }
        };
        for (line, count) in self.came_back.iter().enumerate() {
            lines.follow(driver, user, line, *count)?;
        }
        Ok(Some(self.cut(slot, units, size)))
    }

    fn cut(&mut self, slot: u32, units: u32, size: u64) -> HostBlock {
        let piece = *self.pieces.get(slot);
        let block = if piece.units > units {
            let low = self.pieces.split_low(slot, units);
            self.order.resized(&mut self.pieces, slot, piece.units, piece.address());
            low
        } else {
            self.order.remove(&mut self.pieces, slot, piece.units, piece.address());
            slot
        };
        self.pieces.take(block, size);
        HostBlock { slot: block, address: piece.address(), size: self.pieces.bytes(units) }
    }

    /// Adds a chunk with room for `bytes`, unless that passes the limit.
    fn grow(&mut self, driver: &mut dyn Driver, bytes: u64) -> Result<bool, DriverError> {
        let room = self.limit - self.held;
        if bytes > room {
            return Ok(false);
        }
        let whole = bytes.max(self.chunk).min(room);
        // where the host has no room for a chunk, it may have room for this
        for size in [whole, bytes] {
            match driver.malloc_host(size, true) {
                Ok(address) => {
                    self.held += size;
                    let slot = self.pieces.add(Segment { address, size });
                    self.order.insert(&mut self.pieces, slot);
                    return Ok(true);
                }
                Err(DriverError::OutOfMemory { .. }) if size > bytes => {}
                Err(DriverError::OutOfMemory { .. } | DriverError::NotSupported { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Gives a block back, which these still use (rule `leaving`).
    pub(super) fn give(&mut self, block: HostBlock, users: impl Iterator<Item = User>) {
        let known = |line: LineId| self.came_back.get(line).copied().unwrap_or_default();
        let pending: Vec<User> = users.filter(|(line, count)| *count > known(*line)).collect();
        if pending.is_empty() {
            self.come_back(block.slot, &[]);
        } else {
            self.leaving.push_back((block.slot, pending));
        }
    }

    fn come_back(&mut self, slot: u32, users: &[User]) {
        for (line, count) in users {
            if self.came_back.len() <= *line {
                self.came_back.resize(line + 1, 0);
            }
            self.came_back[*line] = self.came_back[*line].max(*count);
        }
        let (before, after) = (self.pieces.free_before(slot), self.pieces.free_after(slot));
        for gone in before.into_iter().chain(after) {
            let piece = *self.pieces.get(gone);
            self.order.remove(&mut self.pieces, gone, piece.units, piece.address());
        }
        let joined = match (before, after) {
            (None, None) => {
                self.pieces.give(slot);
                slot
            }
            (None, Some(high)) => {
                self.pieces.join_down(high, slot);
                high
            }
            (Some(low), after) => {
                self.pieces.join_up(low, slot);
                if let Some(high) = after {
                    self.pieces.join_up(low, high);
                }
                low
            }
        };
        self.order.insert(&mut self.pieces, joined);
    }

    /// Waits for whoever uses what is leaving, and gives wholly free chunks back.
    pub(super) fn empty(
        &mut self,
        driver: &mut dyn Driver,
        lines: &mut Lines,
    ) -> Result<(), DriverError> {
        if self.held == 0 {
            return Ok(());
        }
        while let Some((slot, users)) = self.leaving.pop_front() {
            self.come_back(slot, &users);
        }
        let used = |(_, count): &(LineId, &u64)| **count > 0;
        for (line, _) in self.came_back.iter().enumerate().filter(used) {
            lines.synchronise(driver, line)?;
        }
        for slot in self.pieces.whole_free() {
            let piece = *self.pieces.get(slot);
            driver.free_host(piece.address())?;
            self.order.remove(&mut self.pieces, slot, piece.units, piece.address());
            self.held -= self.pieces.remove(slot).size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiered::lines::{IN, OUT};
    use vramlab_sim::DeviceOptions;
    use vramlab_sim::testing::ScriptedMachine;
    use vramlab_sim::units::StreamId;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_block_that_is_being_read_comes_back_before_memory_is_added() -> Result<(), DriverError> {
        let (mut host, mut lines) = (Host::new(8 * MIB, 4 * MIB), Lines::new());
        let mut machine = ScriptedMachine::of_capacity(MIB);
        let a = host.take(&mut machine, &mut lines, 3 * MIB, OUT)?.expect("room");
        lines.stream(&mut machine, IN)?;
        let read = lines.mark(&mut machine, IN)?;
        machine.drain_log();
        host.give(a, [(IN, read)].into_iter());
        let user = lines.of(StreamId(0));
        let b = host.take(&mut machine, &mut lines, 3 * MIB, user)?.expect("room");
        assert_eq!(b.address, a.address);
        let calls: Vec<_> = machine.drain_log().map(|row| row.call).collect();
        assert_eq!(calls, ["cudaStreamWaitEvent"], "the next user comes after the reader");
        Ok(())
    }

    #[test]
    fn without_room_for_a_chunk_what_is_needed_is_asked_for() -> Result<(), DriverError> {
        let options = DeviceOptions { host_capacity: 5 * MIB, ..DeviceOptions::default() };
        let mut machine = ScriptedMachine::new(options);
        let (mut host, mut lines) = (Host::new(u64::MAX, 4 * MIB), Lines::new());
        for (size, room, held) in [(MIB, true, 4), (4 * MIB, false, 4), (3 * MIB, true, 4)] {
            let block = host.take(&mut machine, &mut lines, size, OUT)?;
            assert_eq!((block.is_some(), host.held), (room, held * MIB), "{size}");
        }
        assert!(host.take(&mut machine, &mut lines, MIB, OUT)?.is_some(), "a chunk has no room");
        assert_eq!(host.held, 5 * MIB);
        Ok(())
    }

    /// Its units were cut to 32 bits.
    #[test]
    fn a_chunk_is_at_most_a_piece() -> Result<(), DriverError> {
        let options = DeviceOptions { host_capacity: u64::MAX / 2, ..DeviceOptions::default() };
        let mut machine = ScriptedMachine::new(options);
        for chunk in [16 << 40, 17 << 40, u64::MAX] {
            let (mut host, mut lines) = (Host::new(u64::MAX, chunk), Lines::new());
            assert!(host.take(&mut machine, &mut lines, MIB, OUT)?.is_some(), "{chunk}");
            assert_eq!(host.held, host.pieces.bytes(u32::MAX));
        }
        Ok(())
    }

    #[test]
    fn the_limit_holds_and_an_emptied_tier_holds_nothing() -> Result<(), DriverError> {
        let (mut host, mut lines) = (Host::new(8 * MIB, 4 * MIB), Lines::new());
        let mut machine = ScriptedMachine::of_capacity(MIB);
        let mut take = |host: &mut Host, size| host.take(&mut machine, &mut lines, size, OUT);
        let a = take(&mut host, 5 * MIB)?.expect("a chunk of its own");
        let b = take(&mut host, 3 * MIB)?.expect("what is left");
        assert_eq!(take(&mut host, 1)?, None);
        assert_eq!(take(&mut host, u64::MAX)?, None);
        host.give(a, std::iter::empty());
        host.give(b, std::iter::empty());
        assert!(take(&mut host, 5 * MIB)?.is_some_and(|c| c.address == a.address));
        host.empty(&mut machine, &mut lines)?;
        assert_eq!(host.held, 5 * MIB, "the chunk in use stays");
        Ok(())
    }
}
