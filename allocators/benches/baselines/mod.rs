//! Baselines as strategies: an arena of 64 GiB in units of 512 B, no streams, no statistics, no segments.

use std::collections::{BTreeMap, BTreeSet};

use buddy_system_allocator::FrameAllocator;
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::{Driver, StreamId};

const UNIT: u64 = 512;
const ARENA_UNITS: u32 = 1 << 27;

/// Where the arena would begin.
const BASE: u64 = 1 << 40;

/// A name, and how an instance is made.
type Baseline = (&'static str, fn() -> Box<dyn Allocator>);

/// All of them.
pub(crate) const ALL: [Baseline; 3] = [
    ("(best fit on BTreeSet)", || boxed(BestFit::new())),
    ("(offset-allocator 0.2)", || {
        boxed(Offset(offset_allocator::Allocator::with_max_allocs(ARENA_UNITS, 1 << 20)))
    }),
    ("(buddy_system_allocator 0.13)", || {
        let mut frames = FrameAllocator::<33>::new();
        frames.add_frame(0, ARENA_UNITS as usize);
        boxed(Frames(frames))
    }),
];

fn boxed<S: Subject + Send + 'static>(subject: S) -> Box<dyn Allocator>
where
    S::Token: Send,
{
    Box::new(Anchor { subject, tokens: Vec::new(), vacant: Vec::new(), active: 0 })
}

trait Subject {
    type Token: Copy;
    /// A token, and the first unit.
    fn alloc(&mut self, units: u32) -> (Self::Token, u32);
    fn free(&mut self, token: Self::Token);
}

struct Anchor<S: Subject> {
    subject: S,
    tokens: Vec<(S::Token, u32)>,
    vacant: Vec<u32>,
    active: u64,
}

impl<S: Subject + Send> Allocator for Anchor<S>
where
    S::Token: Send,
{
    fn alloc(&mut self, _: &mut dyn Driver, request: &Request) -> Result<Placement, AllocError> {
        let units = request.size.div_ceil(UNIT) as u32;
        let (token, first) = self.subject.alloc(units);
        let slot = self.vacant.pop().unwrap_or(self.tokens.len() as u32);
        if slot as usize == self.tokens.len() {
            self.tokens.push((token, units));
        } else {
            self.tokens[slot as usize] = (token, units);
        }
        let size = u64::from(units) * UNIT;
        self.active += size;
        let address = BASE + u64::from(first) * UNIT;
        Ok(Placement { block: Block(slot.into()), address, size })
    }

    fn free(
        &mut self,
        _: &mut dyn Driver,
        block: Block,
        _: Option<StreamId>,
    ) -> Result<(), AllocError> {
        let (token, units) = self.tokens[block.0 as usize];
        self.active -= u64::from(units) * UNIT;
        self.vacant.push(block.0 as u32);
        self.subject.free(token);
        Ok(())
    }

    fn notice(&mut self, _: &mut dyn Driver, _: Notice<'_>) -> Result<Reply, AllocError> {
        Ok(Reply::Unsupported)
    }

    fn before_work(
        &mut self,
        _: &mut dyn Driver,
        _: StreamId,
        _: &mut [Use],
    ) -> Result<(), AllocError> {
        Ok(())
    }

    fn after_work(&mut self, _: &mut dyn Driver, _: StreamId, _: &[Use]) -> Result<(), AllocError> {
        Ok(())
    }

    fn usage(&self) -> Usage {
        let reserved = u64::from(ARENA_UNITS) * UNIT;
        Usage { allocated: self.active, active: self.active, reserved }
    }
}

/// Best fit as one writes it down: free ranges by (size, offset) and by offset.
struct BestFit {
    by_size: BTreeSet<(u32, u32)>,
    by_offset: BTreeMap<u32, u32>,
}

impl BestFit {
    fn new() -> Self {
        Self { by_size: [(ARENA_UNITS, 0)].into(), by_offset: [(0, ARENA_UNITS)].into() }
    }
}

impl Subject for BestFit {
    type Token = (u32, u32);
    fn alloc(&mut self, units: u32) -> ((u32, u32), u32) {
        let found = *self.by_size.range((units, 0)..).next().expect("there is room");
        let (size, offset) = found;
        self.by_size.remove(&found);
        self.by_offset.remove(&offset);
        if size > units {
            self.by_size.insert((size - units, offset + units));
            self.by_offset.insert(offset + units, size - units);
        }
        ((offset, units), offset)
    }
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

struct Offset(offset_allocator::Allocator<u32>);

impl Subject for Offset {
    type Token = offset_allocator::Allocation<u32>;
    fn alloc(&mut self, units: u32) -> (Self::Token, u32) {
        let got = self.0.allocate(units).expect("there is room");
        (got, got.offset)
    }
    fn free(&mut self, token: Self::Token) {
        self.0.free(token);
    }
}

struct Frames(FrameAllocator<33>);

impl Subject for Frames {
    type Token = (u32, u32);
    fn alloc(&mut self, units: u32) -> ((u32, u32), u32) {
        let at = self.0.alloc(units as usize).expect("there is room") as u32;
        ((at, units), at)
    }
    fn free(&mut self, (at, units): (u32, u32)) {
        self.0.dealloc(at as usize, units as usize);
    }
}
