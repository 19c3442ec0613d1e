//! `cudaMalloc` and `cudaFree` of one device, and host memory.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `granule` | a range takes whole granules and begins on one | pytorch/pytorch#17120 |
//! | `pack` | with `pack_small`, requests of up to 1 MiB share a 2 MiB granule, on 512 B steps, lowest room first | pytorch/pytorch#17120; the step is a guess |
//! | `zero` | a size of 0 is an invalid value; freeing address 0 does nothing | CUDA driver API, `cuMemAlloc`, `cuMemFree` |

use std::collections::BTreeMap;

use super::address::{AddressPlacement, AddressSpace, Gaps};
use super::books::Books;
use crate::driver::{Address, DriverError};
use crate::machine::{Origin, Physical, RangeKind};
use crate::units::{Bytes, round_up};

/// Largest request that shares a granule (rule `pack`).
const PACKED_SIZE_MAX: u64 = Bytes::mib(1).0;
/// Places in a shared granule are multiples of this (rule `pack`).
const PACKED_STEP: u64 = 512;

#[derive(Clone, Copy, Debug)]
struct Range {
    asked: u64,
    /// Bytes of its own granules, or of its place in a shared one.
    taken: u64,
    ordinal: u32,
    physical: u64,
    packed: bool,
}

/// What a malloc took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Malloced {
    pub(super) address: Address,
    /// It found room in a granule that was shared already.
    pub(super) packed: bool,
}

/// What a free gave back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) asked: u64,
    pub(super) packed: bool,
}

/// The mallocs of one device.
#[derive(Clone, Debug)]
pub(super) struct Mallocs {
    granule: u64,
    pack: bool,
    space: AddressSpace,
    /// Room in shared granules.
    rooms: Gaps,
    live: BTreeMap<Address, Range>,
    made: u32,
}

impl Mallocs {
    pub(super) fn new(space: AddressSpace, granule: u64, pack: bool) -> Self {
        let pack = pack && granule >= 2 * PACKED_SIZE_MAX;
        Self { granule, pack, space, rooms: Gaps::new(granule), live: BTreeMap::new(), made: 0 }
    }

    pub(super) fn malloc(
        &mut self,
        books: &mut Books,
        size: u64,
        next_physical: &mut u64,
    ) -> Result<Malloced, DriverError> {
        if size == 0 {
            return Err(super::invalid("cudaMalloc", "found size 0, expected at least 1 byte"));
        }
        let packed = self.pack && size <= PACKED_SIZE_MAX;
        let (address, taken, shared) = if packed {
            let taken = size.next_multiple_of(PACKED_STEP);
            if let Some(address) = self.rooms.take_lowest(taken) {
                (address, taken, true)
            } else {
                let page = self.take_granules(books, size, Some(self.granule))?;
                self.rooms.give(page + taken, self.granule - taken);
                (page, taken, false)
            }
        } else {
            let rounded = round_up(size, self.granule);
            (self.take_granules(books, size, rounded)?, rounded.unwrap_or(size), false)
        };
        books.reserve(size);
        let physical = *next_physical;
        *next_physical += 1;
        self.live
            .insert(address, Range { asked: size, taken, ordinal: self.made, physical, packed });
        self.made += 1;
        Ok(Malloced { address, packed: shared })
    }

    fn take_granules(
        &mut self,
        books: &mut Books,
        asked: u64,
        rounded: Option<u64>,
    ) -> Result<Address, DriverError> {
        books.take_physical(asked, rounded)?;
        let rounded = rounded.unwrap_or_default();
        self.space.take(rounded).ok_or_else(|| {
            books.give_physical(rounded);
            DriverError::OutOfMemory { asked, free: books.free() }
        })
    }

    /// Is it the beginning of a live range? Then the bytes it takes.
    pub(super) fn taken(&self, address: Address) -> Option<u64> {
        self.live.get(&address).map(|range| range.taken)
    }

    pub(super) fn free(
        &mut self,
        books: &mut Books,
        address: Address,
    ) -> Result<Freed, DriverError> {
        let Some(range) = self.live.remove(&address) else {
            return Err(self.unknown(address));
        };
        books.unreserve(range.asked);
        if range.packed {
            let (start, size) = self.rooms.give(address, range.taken);
            if size == self.granule {
                self.rooms.forget(start);
                self.space.give(start, size);
                books.give_physical(size);
            }
        } else {
            self.space.give(address, range.taken);
            books.give_physical(range.taken);
        }
        Ok(Freed { asked: range.asked, packed: range.packed })
    }

    fn unknown(&self, address: Address) -> DriverError {
        let inside = self.find(address).map(|(start, range)| {
            format!(
                "found address {address:#x}, {} bytes inside m{}; expected its beginning {start:#x}",
                address - start,
                range.ordinal
            )
        });
        super::invalid(
            "cudaFree",
            inside.unwrap_or_else(|| {
                format!("found address {address:#x}, expected the beginning of a live range")
            }),
        )
    }

    fn find(&self, address: Address) -> Option<(Address, Range)> {
        let (start, range) = self.live.range(..=address).next_back()?;
        (address - start < range.taken).then_some((*start, *range))
    }

    pub(super) fn origin(&self, address: Address) -> Option<Origin> {
        let (start, range) = self.find(address)?;
        Some(Origin { kind: RangeKind::Malloc, ordinal: range.ordinal, offset: address - start })
    }

    pub(super) fn physical(&self, address: Address) -> Option<Physical> {
        let (start, range) = self.find(address)?;
        let offset = address - start;
        Some(Physical { handle: range.physical, offset, run: range.taken - offset })
    }
}

/// Host memory: takes nothing of a device, and as much as the host has.
#[derive(Clone, Debug)]
pub(super) struct HostMemory {
    space: AddressSpace,
    live: BTreeMap<Address, HostRange>,
    made: u32,
}

/// A live range of host memory.
#[derive(Clone, Copy, Debug)]
struct HostRange {
    asked: u64,
    taken: u64,
    ordinal: u32,
}

/// Host ranges begin on a page.
const HOST_PAGE: u64 = Bytes::kib(4).0;

impl HostMemory {
    /// Addresses from `base` to `limit`.
    pub(super) fn new(base: Address, limit: Address) -> Self {
        let space = AddressSpace::new(base, limit, AddressPlacement::FirstFit);
        Self { space, live: BTreeMap::new(), made: 0 }
    }

    pub(super) fn malloc(&mut self, books: &mut Books, size: u64) -> Result<Address, DriverError> {
        if size == 0 {
            return Err(super::invalid("cudaMallocHost", "found size 0, expected 1 byte or more"));
        }
        books.check_host(size)?;
        let taken = round_up(size, HOST_PAGE);
        let taken = taken.and_then(|taken| Some((self.space.take(taken)?, taken)));
        let Some((address, taken)) = taken else {
            return Err(DriverError::OutOfMemory { asked: size, free: books.host_free() });
        };
        books.take_host(size);
        self.live.insert(address, HostRange { asked: size, taken, ordinal: self.made });
        self.made += 1;
        Ok(address)
    }

    /// The bytes that were asked for.
    pub(super) fn free(&mut self, address: Address) -> Result<u64, DriverError> {
        let Some(range) = self.live.remove(&address) else {
            return Err(super::invalid(
                "cudaFreeHost",
                format!("found address {address:#x}, expected the beginning of a live host range"),
            ));
        };
        self.space.give(address, range.taken);
        Ok(range.asked)
    }

    pub(super) fn origin(&self, address: Address) -> Option<Origin> {
        let (start, range) = self.live.range(..=address).next_back()?;
        (address - start < range.taken).then_some(Origin {
            kind: RangeKind::Host,
            ordinal: range.ordinal,
            offset: address - start,
        })
    }
}
