//! What the driver gave, and which physical bytes are occupied.

use std::collections::BTreeMap;

use crate::allocator::Layout;
use crate::driver::{Answer, Call, Handle};
use crate::machine::Memory;

/// A piece of physical memory: (allocation, first byte, byte after the last).
pub(super) type Piece = (u64, u64, u64);

/// A range of addresses with memory behind it.
#[derive(Clone, Copy, Debug)]
struct Range {
    size: u64,
    /// Number of the physical allocation; offset 0 is at the range's beginning.
    physical: u64,
    memory: Memory,
}

/// The audit's own account.
#[derive(Debug, Default)]
pub(super) struct Book {
    ranges: BTreeMap<u64, Range>,
    handles: BTreeMap<Handle, (u64, u64)>,
    /// Bytes given, by [`Memory`].
    reserved: [u64; 3],
    /// A pool of the driver gave something: it holds more than it gave.
    pooled: bool,
    physical_next: u64,
    /// By (allocation, first byte): (byte after the last, block).
    occupied: BTreeMap<(u64, u64), (u64, u64)>,
    by_block: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Book {
    /// Bytes of this memory, given and not given back.
    pub(super) fn reserved(&self, memory: Memory) -> u64 {
        self.reserved[memory as usize]
    }

    /// May a strategy say that it holds so many bytes?
    pub(super) fn allows(&self, memory: Memory, reserved: u64) -> bool {
        let given = self.reserved(memory);
        reserved == given || self.pooled && memory == Memory::Device && reserved > given
    }

    /// A call that the driver did.
    pub(super) fn note(&mut self, call: &Call, answer: &Answer) {
        match (*call, *answer) {
            (Call::Malloc { size } | Call::MallocAsync { size, .. }, Answer::Address(address)) => {
                self.pooled |= matches!(call, Call::MallocAsync { .. });
                self.give(address, size, Memory::Device);
            }
            (Call::MallocManaged { size }, Answer::Address(address)) => {
                self.give(address, size, Memory::Managed);
            }
            (Call::MallocHost { size, .. }, Answer::Address(address)) => {
                self.give(address, size, Memory::Host);
            }
            (
                Call::Free { address }
                | Call::FreeAsync { address, .. }
                | Call::FreeHost { address },
                _,
            ) => {
                if let Some(range) = self.ranges.remove(&address) {
                    self.reserved[range.memory as usize] -= range.size;
                }
            }
            (Call::Create { size }, Answer::Handle(handle)) => {
                self.handles.insert(handle, (size, self.physical_next));
                self.physical_next += 1;
                self.reserved[Memory::Device as usize] += size;
            }
            (Call::Release { handle }, _) => {
                if let Some((size, _)) = self.handles.remove(&handle) {
                    self.reserved[Memory::Device as usize] -= size;
                }
            }
            (Call::Map { address, handle }, _) => {
                if let Some((size, physical)) = self.handles.get(&handle).copied() {
                    let memory = Memory::Device;
                    self.ranges.insert(address, Range { size, physical, memory });
                }
            }
            (Call::Unmap { address, size }, _) => {
                let gone: Vec<u64> =
                    self.ranges.range(address..address + size).map(|(a, _)| *a).collect();
                gone.iter().for_each(|a| {
                    self.ranges.remove(a);
                });
            }
            _ => {}
        }
    }

    fn give(&mut self, address: u64, size: u64, memory: Memory) {
        self.ranges.insert(address, Range { size, physical: self.physical_next, memory });
        self.physical_next += 1;
        self.reserved[memory as usize] += size;
    }

    /// Does the address lie in host memory?
    pub(super) fn is_host(&self, address: u64) -> bool {
        self.ranges
            .range(..=address)
            .next_back()
            .is_some_and(|(_, range)| range.memory == Memory::Host)
    }

    /// A state that the strategy starts from.
    pub(super) fn adopt(&mut self, layout: &Layout) {
        for segment in &layout.segments {
            self.give(segment.address, segment.size, Memory::Device);
        }
    }

    /// The physical pieces of a range of addresses; the first address without memory otherwise.
    pub(super) fn pieces(&self, address: u64, size: u64) -> Result<Vec<Piece>, u64> {
        let end = address.checked_add(size).ok_or(u64::MAX)?;
        let (mut at, mut pieces) = (address, Vec::new());
        while at < end {
            let (start, range) = self.ranges.range(..=at).next_back().ok_or(at)?;
            let stop = start + range.size;
            if stop <= at {
                return Err(at);
            }
            let until = stop.min(end);
            pieces.push((range.physical, at - start, until - start));
            at = until;
        }
        Ok(pieces)
    }

    /// Marks pieces as a block's; the other block where one has them already.
    pub(super) fn occupy(&mut self, pieces: &[Piece], block: u64) -> Result<(), u64> {
        for &(physical, start, end) in pieces {
            let before = self.occupied.range(..(physical, end)).next_back();
            if let Some((&(p, _), &(stop, other))) = before
                && p == physical
                && stop > start
            {
                return Err(other);
            }
            self.occupied.insert((physical, start), (end, block));
            self.by_block.entry(block).or_default().push((physical, start));
        }
        Ok(())
    }

    /// The block's bytes are free.
    pub(super) fn vacate(&mut self, block: u64) {
        for key in self.by_block.remove(&block).unwrap_or_default() {
            self.occupied.remove(&key);
        }
    }
}
