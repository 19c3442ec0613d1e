//! Baselines as strategies: an arena of 256 GiB in units of 512 B, no streams, no statistics, no segments.

mod subjects;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::{Driver, StreamId};

use subjects::{BestFit, Frames, Offset, Places, Placing};

const UNIT: u64 = 512;
const ARENA_UNITS: u32 = 1 << 29;

/// Where the arena would begin.
const BASE: u64 = 1 << 40;

/// A name, and how an instance is made.
type Baseline = (&'static str, fn() -> Box<dyn Allocator>);

/// All of them.
pub(crate) const ALL: [Baseline; 4] = [
    ("(places of one size)", || boxed(Places::new())),
    ("(best fit on BTreeSet)", || boxed(BestFit::new(ARENA_UNITS))),
    ("(offset-allocator 0.2)", || boxed(Offset::new(ARENA_UNITS))),
    ("(buddy_system_allocator 0.13)", || boxed(Frames::new(ARENA_UNITS))),
];

fn boxed<S: Placing + Send + 'static>(subject: S) -> Box<dyn Allocator>
where
    S::Token: Send,
{
    Box::new(Anchor { subject, tokens: Vec::new(), vacant: Vec::new(), active: 0 })
}

struct Anchor<S: Placing> {
    subject: S,
    tokens: Vec<(S::Token, u32)>,
    vacant: Vec<u32>,
    active: u64,
}

impl<S: Placing + Send> Allocator for Anchor<S>
where
    S::Token: Send,
{
    fn alloc(&mut self, _: &mut dyn Driver, request: &Request) -> Result<Placement, AllocError> {
        let units = request.size.div_ceil(UNIT) as u32;
        let token = self.subject.alloc(units);
        let slot = self.vacant.pop().unwrap_or(self.tokens.len() as u32);
        if slot as usize == self.tokens.len() {
            self.tokens.push((token, units));
        } else {
            self.tokens[slot as usize] = (token, units);
        }
        let size = u64::from(units) * UNIT;
        self.active += size;
        let address = BASE + u64::from(S::first(token)) * UNIT;
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

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        let reserved = u64::from(ARENA_UNITS) * UNIT;
        Usage { allocated: self.active, active: self.active, reserved }
    }
}
