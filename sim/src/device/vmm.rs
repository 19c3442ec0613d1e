//! Virtual memory management of one device: ranges of addresses, physical handles, and which lies where.
//!
//! ```text
//! r0   │ h0 │ h1 │    unmapped    │ h0 │      one handle may be mapped twice (stitching)
//! ```
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `reserve` | takes no capacity; rounded up to the granule | pytorch/pytorch#96995 |
//! | `create` | takes capacity; a size that is no multiple of the granule is refused, or (option `any_size`) rounded up | CUDA driver API, `cuMemCreate` |
//! | `whole` | a handle is mapped and unmapped whole | pytorch/pytorch#96995 |
//! | `release` | memory returns once the handle is released and mapped nowhere | CUDA driver API, `cuMemRelease` |

use std::collections::BTreeMap;

use super::address::AddressSpace;
use super::books::Books;
use super::invalid;
use crate::driver::{Address, DriverError, Handle};
use crate::machine::{Origin, Physical, RangeKind};
use crate::units::round_up;

#[derive(Clone, Copy, Debug)]
struct Range {
    asked: u64,
    taken: u64,
    ordinal: u32,
    /// Mappings inside.
    mapped: u32,
}

#[derive(Clone, Copy, Debug)]
struct HandleState {
    size: u64,
    /// Of the device.
    taken: u64,
    physical: u64,
    mapped: u32,
    released: bool,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    size: u64,
    handle: u32,
    access: bool,
}

/// The virtual memory of one device.
#[derive(Clone, Debug)]
pub(super) struct Vmm {
    granule: u64,
    any_size: bool,
    space: AddressSpace,
    ranges: BTreeMap<Address, Range>,
    made: u32,
    /// By number of the handle, which is never given twice.
    handles: Vec<HandleState>,
    mappings: BTreeMap<Address, Mapping>,
}

impl Vmm {
    pub(super) fn new(space: AddressSpace, granule: u64, any_size: bool) -> Self {
        Self {
            granule,
            any_size,
            space,
            ranges: BTreeMap::new(),
            made: 0,
            handles: Vec::new(),
            mappings: BTreeMap::new(),
        }
    }

    pub(super) fn reserve(&mut self, size: u64) -> Result<Address, DriverError> {
        let taken = round_up(size, self.granule).filter(|taken| *taken > 0);
        let Some((address, taken)) = taken.and_then(|t| Some((self.space.take(t)?, t))) else {
            return Err(invalid(
                "cuMemAddressReserve",
                format!("found size {size}, expected 1 byte to the end of the address space"),
            ));
        };
        self.ranges.insert(address, Range { asked: size, taken, ordinal: self.made, mapped: 0 });
        self.made += 1;
        Ok(address)
    }

    /// Asked size of the reservation that begins at `address`.
    pub(super) fn reserved(&self, address: Address) -> Option<u64> {
        self.ranges.get(&address).map(|range| range.asked)
    }

    /// Bytes given back.
    pub(super) fn unreserve(&mut self, address: Address) -> Result<u64, DriverError> {
        const CALL: &str = "cuMemAddressFree";
        let Some(range) = self.ranges.get(&address) else {
            return Err(invalid(
                CALL,
                format!("found address {address:#x}, expected the beginning of a reserved range"),
            ));
        };
        if range.mapped > 0 {
            let what = format!("found {} handles mapped in r{}", range.mapped, range.ordinal);
            return Err(invalid(CALL, what + ", expected none"));
        }
        let taken = range.taken;
        self.ranges.remove(&address);
        self.space.give(address, taken);
        Ok(taken)
    }

    pub(super) fn create(
        &mut self,
        books: &mut Books,
        size: u64,
        next_physical: &mut u64,
    ) -> Result<Handle, DriverError> {
        const CALL: &str = "cuMemCreate";
        if size == 0 || !(self.any_size || size.is_multiple_of(self.granule)) {
            return Err(invalid(
                CALL,
                format!("found size {size}, expected a multiple of the granule {}", self.granule),
            ));
        }
        let taken = round_up(size, self.granule);
        books.take_physical(size, taken)?;
        books.reserve(size);
        let handle = Handle(self.handles.len() as u32);
        self.handles.push(HandleState {
            size,
            taken: taken.unwrap_or(size),
            physical: *next_physical,
            mapped: 0,
            released: false,
        });
        *next_physical += 1;
        Ok(handle)
    }

    fn handle(&self, call: &'static str, handle: Handle) -> Result<&HandleState, DriverError> {
        match self.handles.get(handle.0 as usize) {
            Some(state) if !state.released => Ok(state),
            Some(_) => {
                Err(invalid(call, format!("found h{}, released; expected a live handle", handle.0)))
            }
            None => {
                let made = self.handles.len();
                Err(invalid(call, format!("found h{}, expected one of {made} handles", handle.0)))
            }
        }
    }

    /// Size of a handle, released or not.
    pub(super) fn size(&self, handle: Handle) -> Option<u64> {
        self.handles.get(handle.0 as usize).map(|state| state.size)
    }

    fn range_around(&self, address: Address) -> Option<(Address, Range)> {
        let (start, range) = self.ranges.range(..=address).next_back()?;
        (address - start < range.taken).then_some((*start, *range))
    }

    fn mapping_around(&self, address: Address) -> Option<(Address, Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.size).then_some((*start, *mapping))
    }

    /// Bytes mapped.
    pub(super) fn map(&mut self, address: Address, handle: Handle) -> Result<u64, DriverError> {
        const CALL: &str = "cuMemMap";
        let size = self.handle(CALL, handle)?.size;
        let Some((start, range)) = self.range_around(address) else {
            return Err(invalid(
                CALL,
                format!("found address {address:#x}, expected one in a reserved range"),
            ));
        };
        let offset = address - start;
        if size > range.taken - offset {
            return Err(invalid(
                CALL,
                format!(
                    "found {size} bytes at offset {offset} of r{}, expected at most {}",
                    range.ordinal,
                    range.taken - offset
                ),
            ));
        }
        if !self.any_size && !offset.is_multiple_of(self.granule) {
            let what = format!("found offset {offset} of r{}", range.ordinal);
            return Err(invalid(CALL, format!("{what}, expected a multiple of {}", self.granule)));
        }
        let last = self.mappings.range(..address + size).next_back();
        if let Some((at, other)) = last.filter(|(at, other)| *at + other.size > address) {
            return Err(invalid(
                CALL,
                format!(
                    "found h{} mapped at offset {} of r{}, expected {size} unmapped bytes at offset {offset}",
                    other.handle,
                    at - start,
                    range.ordinal
                ),
            ));
        }
        self.mappings.insert(address, Mapping { size, handle: handle.0, access: false });
        self.handles[handle.0 as usize].mapped += 1;
        if let Some(range) = self.ranges.get_mut(&start) {
            range.mapped += 1;
        }
        Ok(size)
    }

    /// Checks that whole mappings tile `address..address + size`; how many.
    fn tiled(&self, call: &'static str, address: Address, size: u64) -> Result<u64, DriverError> {
        let end = address.checked_add(size).filter(|_| size > 0);
        let Some(end) = end else {
            return Err(invalid(call, format!("found size {size}, expected whole mappings")));
        };
        let (mut at, mut count) = (address, 0);
        for (start, mapping) in self.mappings.range(address..end) {
            if *start != at {
                break;
            }
            at += mapping.size;
            count += 1;
        }
        if at == end {
            return Ok(count);
        }
        let what = match self.mapping_around(at.min(end - 1)) {
            Some((start, mapping)) if at < end => format!(
                "found h{} mapped from {start:#x} with {} bytes, of which the range {address:#x} + {size} covers a part",
                mapping.handle, mapping.size
            ),
            Some((start, mapping)) => format!(
                "found the range {address:#x} + {size} to end inside h{}, mapped at {start:#x}",
                mapping.handle
            ),
            None => format!("found nothing mapped at {at:#x} in the range {address:#x} + {size}"),
        };
        Err(invalid(call, what + ", expected whole mappings"))
    }

    /// How many mappings.
    pub(super) fn set_access(&mut self, address: Address, size: u64) -> Result<u64, DriverError> {
        let count = self.tiled("cuMemSetAccess", address, size)?;
        for (_, mapping) in self.mappings.range_mut(address..address + size) {
            mapping.access = true;
        }
        Ok(count)
    }

    /// How many mappings.
    pub(super) fn unmap(
        &mut self,
        books: &mut Books,
        address: Address,
        size: u64,
    ) -> Result<u64, DriverError> {
        let count = self.tiled("cuMemUnmap", address, size)?;
        let mut at = address;
        while at < address + size {
            let Some(mapping) = self.mappings.remove(&at) else { break };
            if let Some((start, _)) = self.range_around(at)
                && let Some(range) = self.ranges.get_mut(&start)
            {
                range.mapped -= 1;
            }
            self.handles[mapping.handle as usize].mapped -= 1;
            self.settle(books, mapping.handle);
            at += mapping.size;
        }
        Ok(count)
    }

    /// Bytes of the handle.
    pub(super) fn release(
        &mut self,
        books: &mut Books,
        handle: Handle,
    ) -> Result<u64, DriverError> {
        let size = self.handle("cuMemRelease", handle)?.size;
        self.handles[handle.0 as usize].released = true;
        self.settle(books, handle.0);
        Ok(size)
    }

    /// Gives the memory of a handle back if nothing keeps it (rule `release`).
    fn settle(&self, books: &mut Books, handle: u32) {
        let state = &self.handles[handle as usize];
        if state.released && state.mapped == 0 {
            books.unreserve(state.size);
            books.give_physical(state.taken);
        }
    }

    /// May the device read and write all of `address..address + size`?
    pub(super) fn accessible(&self, address: Address, size: u64) -> bool {
        let (mut at, end) = (address, address.saturating_add(size));
        while at < end {
            match self.mapping_around(at) {
                Some((start, mapping)) if mapping.access => at = start + mapping.size,
                _ => return false,
            }
        }
        true
    }

    pub(super) fn origin(&self, address: Address) -> Option<Origin> {
        let (start, range) = self.range_around(address)?;
        Some(Origin { kind: RangeKind::Reserved, ordinal: range.ordinal, offset: address - start })
    }

    pub(super) fn physical(&self, address: Address) -> Option<Physical> {
        let (start, mapping) = self.mapping_around(address)?;
        let offset = address - start;
        let handle = self.handles[mapping.handle as usize].physical;
        Some(Physical { handle, offset, run: mapping.size - offset })
    }
}
