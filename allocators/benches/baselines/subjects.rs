//! What is measured beside our strategies: plain baselines over an arena of units.

use std::collections::{BTreeMap, BTreeSet};

use buddy_system_allocator::FrameAllocator;

/// Serves requests of units.
pub(crate) trait Subject {
    type Token: Copy;
    fn alloc(&mut self, units: u32) -> Self::Token;
    fn free(&mut self, token: Self::Token);
}

/// Tells where it placed what.
pub(crate) trait Placing: Subject {
    /// The first unit.
    fn first(token: Self::Token) -> u32;
}

/// Best fit as one writes it down: free ranges by (size, offset) and by offset.
pub(crate) struct BestFit {
    by_size: BTreeSet<(u32, u32)>,
    by_offset: BTreeMap<u32, u32>,
}

impl BestFit {
    pub(crate) fn new(arena: u32) -> Self {
        Self { by_size: [(arena, 0)].into(), by_offset: [(0, arena)].into() }
    }
}

impl Subject for BestFit {
    type Token = (u32, u32);
    #[inline]
    fn alloc(&mut self, units: u32) -> (u32, u32) {
        let found = *self.by_size.range((units, 0)..).next().expect("there is room");
        let (size, offset) = found;
        self.by_size.remove(&found);
        self.by_offset.remove(&offset);
        if size > units {
            self.by_size.insert((size - units, offset + units));
            self.by_offset.insert(offset + units, size - units);
        }
        (offset, units)
    }
    #[inline]
    fn free(&mut self, (mut offset, mut units): (u32, u32)) {
        if let Some((&before, &size)) = self.by_offset.range(..offset).next_back()
            && before + size == offset
        {
            self.by_offset.remove(&before);
            self.by_size.remove(&(size, before));
            (offset, units) = (before, units + size);
        }
        if let Some(size) = self.by_offset.remove(&(offset + units)) {
            self.by_size.remove(&(size, offset + units));
            units += size;
        }
        self.by_offset.insert(offset, units);
        self.by_size.insert((units, offset));
    }
}

impl Placing for BestFit {
    fn first((offset, _): (u32, u32)) -> u32 {
        offset
    }
}

/// The crate `offset-allocator`, akin to TLSF.
pub(crate) struct Offset(offset_allocator::Allocator<u32>);

impl Offset {
    pub(crate) fn new(arena: u32) -> Self {
        Self(offset_allocator::Allocator::with_max_allocs(arena, 1 << 22))
    }
}

impl Subject for Offset {
    type Token = offset_allocator::Allocation<u32>;
    #[inline]
    fn alloc(&mut self, units: u32) -> Self::Token {
        self.0.allocate(units).expect("there is room")
    }
    #[inline]
    fn free(&mut self, token: Self::Token) {
        self.0.free(token);
    }
}

impl Placing for Offset {
    fn first(token: Self::Token) -> u32 {
        token.offset
    }
}

/// The crate `buddy_system_allocator`.
pub(crate) struct Frames(FrameAllocator<33>);

impl Frames {
    pub(crate) fn new(arena: u32) -> Self {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, arena as usize);
        Self(frames)
    }
}

impl Subject for Frames {
    type Token = (u32, u32);
    #[inline]
    fn alloc(&mut self, units: u32) -> (u32, u32) {
        (self.0.alloc(units as usize).expect("there is room") as u32, units)
    }
    #[inline]
    fn free(&mut self, (at, units): (u32, u32)) {
        self.0.dealloc(at as usize, units as usize);
    }
}

impl Placing for Frames {
    fn first((at, _): (u32, u32)) -> u32 {
        at
    }
}

/// Places of one size, the last freed first: nothing is searched, so what it takes is what engine and accounting take.
pub(crate) struct Places {
    vacant: Vec<u32>,
    made: u32,
}

impl Places {
    /// Units of a place, room for any request of a churn.
    const UNITS: u32 = 1 << 12;

    pub(crate) fn new() -> Self {
        Self { vacant: Vec::new(), made: 0 }
    }
}

impl Subject for Places {
    type Token = u32;
    #[inline]
    fn alloc(&mut self, _: u32) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        })
    }
    #[inline]
    fn free(&mut self, place: u32) {
        self.vacant.push(place);
    }
}

impl Placing for Places {
    fn first(place: u32) -> u32 {
        place * Self::UNITS
    }
}
