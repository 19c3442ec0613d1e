//! Expandable segments: one range of addresses per stream and pool, with memory mapped into it page by page.
//!
//! ```text
//!  range   │ used │ free │ used │   unmapped    │ free │ used │        unmapped           │
//!  pages   ├──h0──┼──h1──┼──h2──┤               ├──h7──┼──h8──┤                           │   2 MiB, or the large segment size
//! ```
//!
//! | rule | what it says |
//! |---|---|
//! | `range` | 9/8 of the device's memory, or the reserve option if that is less, rounded up to the page; the request is not rounded to a segment (RULES 18) |
//! | `growth` | through the unmapped pieces of the stream by address; a free piece just before counts, and free and unmapped neighbours after; the first place with room is taken (RULES 19) |
//! | `pages` | each page is its own handle; all of a step are made before one is mapped; on failure those of the step go back, earlier steps stay (RULES 19) |
//! | `kept` | a range whose mapping fails stays reserved; one too small for the request is freed at once. 2.9 makes pages in it first, and keeps it (RULES 20) |
//! | `shrink` | whole pages inside a free block are unmapped after one synchronisation of its stream; a range with nothing mapped is freed (RULES 22) |
//!
//! Ranges of 2 TiB and more are reserved as PyTorch does, but only the first 2 TiB are used.

use vramlab_sim::allocator::AllocError;
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt, Handle};

use super::pieces::{RANGE_SIZE_MAX, State, UNIT, WALL};
use super::settings::{Reserve, Version};
use super::{Caching, Need};

/// A reserved range of addresses.
#[derive(Clone, Debug)]
pub(super) struct Range {
    base: Address,
    /// Bytes.
    page: u64,
    handles: Vec<Option<Handle>>,
}

impl Range {
    pub(super) fn new(base: Address, page: u64) -> Self {
        Self { base, page, handles: Vec::new() }
    }

    pub(super) fn base(&self) -> Address {
        self.base
    }

    fn handle(&mut self, page: usize) -> &mut Option<Handle> {
        if self.handles.len() <= page {
            self.handles.resize(page + 1, None);
        }
        &mut self.handles[page]
    }

    pub(super) fn set_handle(&mut self, page: u64, handle: Handle) {
        *self.handle(page as usize) = Some(handle);
    }
}

impl Reserve {
    /// Bytes, at most `most`.
    fn bytes(self, total: u64, most: u64) -> u64 {
        let bytes = match self {
            Reserve::Fraction(fraction) => fraction * total as f64,
            Reserve::Gib(gib) => gib * (1_u64 << 30) as f64,
        };
        // A float beyond 2^64 becomes the largest number.
        (bytes as u64).min(most)
    }
}

impl Caching {
    fn range_of(&mut self, piece: u32) -> &mut Range {
        let range = self.pieces.segment_of(piece).range;
        &mut self.ranges[range as usize]
    }

    /// Maps room for the request; the piece that has it is in no set. `None` if there is no memory for it.
    pub(super) fn expand(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
    ) -> Result<Option<u32>, AllocError> {
        let Some(mut piece) = self.place_with_room(driver, need)? else { return Ok(None) };
        if self.pieces.state(piece) == State::Unmapped {
            let bytes = self.pieces.get(piece).bytes().min(need.bytes);
            match self.map_piece(driver, piece, bytes)? {
                Some(mapped) => piece = mapped,
                None => return Ok(None),
            }
        }
        while self.pieces.get(piece).bytes() < need.bytes {
            let next = self.pieces.get(piece).next();
            if self.pieces.state(next) != State::Unmapped {
                return Ok(None);
            }
            let missing = need.bytes - self.pieces.get(piece).bytes();
            let bytes = self.pieces.get(next).bytes().min(missing);
            match self.map_piece(driver, next, bytes)? {
                Some(mapped) => piece = mapped,
                None => return Ok(None),
            }
        }
        self.pools.sets[need.set as usize].free.remove(&mut self.pieces, piece);
        Ok(Some(piece))
    }

    fn is_room(&self, piece: u32) -> bool {
        matches!(self.pieces.state(piece), State::Free | State::Unmapped)
    }

    /// Rule `growth`.
    fn place_with_room(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
    ) -> Result<Option<u32>, AllocError> {
        for &unmapped in self.pools.set(need.set).unmapped.values() {
            let before = self.pieces.get(unmapped).prev();
            let start = if self.is_room(before) { before } else { unmapped };
            let (mut piece, mut room) = (start, 0);
            while room < need.bytes && self.is_room(piece) {
                room += self.pieces.get(piece).bytes();
                piece = self.pieces.get(piece).next();
            }
            if room >= need.bytes {
                return Ok(Some(start));
            }
        }
        self.reserve_range(driver, need)
    }

    /// Rules `range` and `kept`.
    fn reserve_range(
        &mut self,
        driver: &mut dyn Driver,
        need: &Need,
    ) -> Result<Option<u32>, AllocError> {
        let total = self.total(driver)?;
        let page = self.rounding.page(need.kind);
        let bytes = self.reserve_size(total, page);
        let base = match driver.reserve(bytes) {
            Ok(base) => base,
            Err(DriverError::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if bytes < need.bytes && self.settings.version == Version::V2_15 {
            driver.unreserve(base)?;
            return Ok(None);
        }
        let usable = bytes.min(RANGE_SIZE_MAX) / page * page;
        let piece = self.add_range(base, need.set, page, (usable / UNIT) as u32);
        Ok(Some(piece))
    }

    /// Bytes of addresses that a range gets.
    pub(super) fn reserve_size(&self, total: u64, page: u64) -> u64 {
        let most = total.saturating_add(total / 8);
        let bytes =
            self.settings.expandable_reserve.map_or(most, |reserve| reserve.bytes(total, most));
        bytes.div_ceil(page).max(1).saturating_mul(page)
    }

    /// A range without memory.
    pub(super) fn add_range(&mut self, base: Address, set: u32, page: u64, units: u32) -> u32 {
        let range = Range::new(base, page);
        let number = match self.ranges_vacant.pop() {
            Some(number) => {
                self.ranges[number as usize] = range;
                number
            }
            None => {
                self.ranges.push(range);
                self.ranges.len() as u32 - 1
            }
        };
        let piece = self.pieces.add_segment(base, set, number, units, State::Unmapped);
        self.pools.sets[set as usize].unmapped.insert(base, piece);
        self.update_watch();
        piece
    }

    /// Maps the first `bytes` of an unmapped piece, or somewhat more, and joins it with its free neighbours. Gives the free piece.
    fn map_piece(
        &mut self,
        driver: &mut dyn Driver,
        piece: u32,
        bytes: u64,
    ) -> Result<Option<u32>, AllocError> {
        let address = self.pieces.address(piece);
        let range = self.range_of(piece);
        let page = range.page;
        let first = (address - range.base) / page;
        let pages = bytes.div_ceil(page);
        let mut handles = Vec::new();
        for _ in 0..pages {
            match driver.create(page) {
                Ok(handle) => handles.push(handle),
                Err(DriverError::OutOfMemory { .. }) => {
                    for handle in handles {
                        driver.release(handle)?;
                    }
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        for (n, &handle) in (0..).zip(&handles) {
            driver.map(address + n * page, handle)?;
            self.range_of(piece).set_handle(first + n, handle);
        }
        driver.set_access(address, pages * page)?;
        Ok(Some(self.book_mapped(piece, pages * page)))
    }

    /// The first `bytes` of an unmapped piece have memory now.
    pub(super) fn book_mapped(&mut self, piece: u32, bytes: u64) -> u32 {
        let address = self.pieces.address(piece);
        let set = self.pieces.segment_of(piece).set;
        let units = (bytes / UNIT) as u32;
        self.pools.sets[set as usize].unmapped.remove(&address);
        if units < self.pieces.get(piece).size {
            let rest = self.pieces.split(piece, units);
            self.pools.sets[set as usize].unmapped.insert(self.pieces.address(rest), rest);
        }
        self.tally.reserve(self.pools.set(set).kind, bytes);
        self.pools.count_held(set, 1);
        self.merge(set, piece)
    }

    /// Rule `shrink`.
    pub(super) fn unmap_piece(
        &mut self,
        driver: &mut dyn Driver,
        piece: u32,
    ) -> Result<(), AllocError> {
        let set = self.pieces.segment_of(piece).set;
        let (address, size) = (self.pieces.address(piece), self.pieces.get(piece).bytes());
        let range = self.range_of(piece);
        let (base, page) = (range.base, range.page);
        let first = (address - base).div_ceil(page);
        let end = (address - base + size) / page;
        if first >= end {
            return Ok(());
        }
        let stream = self.pools.set(set).stream;
        driver.stream_synchronize(stream)?;
        for n in first..end {
            driver.unmap(base + n * page, page)?;
            if let Some(handle) = self.range_of(piece).handle(n as usize).take() {
                driver.release(handle)?;
            }
        }
        let front = ((base + first * page - address) / UNIT) as u32;
        let units = ((end - first) * page / UNIT) as u32;
        self.pools.sets[set as usize].free.remove(&mut self.pieces, piece);
        let mut middle = piece;
        if front > 0 {
            middle = self.pieces.split(piece, front);
            self.put(set, piece);
        }
        if units < self.pieces.get(middle).size {
            let rest = self.pieces.split(middle, units);
            self.put(set, rest);
        }
        self.tally.unreserve(self.pools.set(set).kind, (end - first) * page);
        self.pools.count_held(set, -1);
        self.join_unmapped(driver, set, middle)
    }

    /// A piece lost its memory: joins it with its unmapped neighbours, and ends the range if that is all of it.
    fn join_unmapped(
        &mut self,
        driver: &mut dyn Driver,
        set: u32,
        piece: u32,
    ) -> Result<(), AllocError> {
        let mut piece = piece;
        self.pieces.get_mut(piece).set_state(State::Unmapped);
        let next = self.pieces.get(piece).next();
        if self.pieces.state(next) == State::Unmapped {
            self.pools.sets[set as usize].unmapped.remove(&self.pieces.address(next));
            self.pieces.absorb_next(piece);
        }
        let prev = self.pieces.get(piece).prev();
        if self.pieces.state(prev) == State::Unmapped {
            self.pieces.absorb_next(prev);
            piece = prev;
        } else {
            self.pools.sets[set as usize].unmapped.insert(self.pieces.address(piece), piece);
        }
        if self.pieces.get(piece).is_split() {
            return Ok(());
        }
        let base = self.pieces.address(piece);
        driver.unreserve(base)?;
        self.pools.sets[set as usize].unmapped.remove(&base);
        self.ranges_vacant.push(self.pieces.segment_of(piece).range);
        self.pieces.drop_segment(piece);
        self.update_watch();
        Ok(())
    }

    /// Bytes of a free piece and of the unmapped one right after it (RULES 21).
    pub(super) fn reach(&self, piece: u32) -> u64 {
        let at = self.pieces.get(piece);
        let next = at.next();
        let more = next != WALL && self.pieces.state(next) == State::Unmapped;
        at.bytes() + if more { self.pieces.get(next).bytes() } else { 0 }
    }
}
