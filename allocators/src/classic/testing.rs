//! One helper for the tests of rules: places blocks and says where, in bytes from the beginning of their segment.

use vramlab_sim::allocator::{Allocator, Block, Placement, Request};
use vramlab_sim::audit::Audit;
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

pub(super) const KIB: u64 = 1 << 10;

/// A strategy under audit on a device of 8 GiB.
pub(super) struct Probe {
    pub(super) strategy: Audit<Box<dyn Allocator>>,
    pub(super) machine: ScriptedMachine,
}

impl Probe {
    /// From a strategy spec.
    pub(super) fn new(spec: &str) -> Self {
        let strategy = crate::build(&spec.parse().expect(spec)).expect(spec);
        Self { strategy: Audit::new(strategy, 256), machine: ScriptedMachine::of_capacity(8 << 30) }
    }

    pub(super) fn placement(&mut self, size: u64) -> Placement {
        let request = Request { size, stream: StreamId(0), ordinal: 0 };
        self.strategy.alloc(&mut self.machine, &request).expect("there is room")
    }

    pub(super) fn alloc(&mut self, size: u64) -> Block {
        self.placement(size).block
    }

    /// The offset of a new block in its segment.
    pub(super) fn place(&mut self, size: u64) -> u64 {
        let placement = self.placement(size);
        self.machine.origin(placement.address).expect("lies in a segment").offset
    }

    pub(super) fn free(&mut self, block: Block) {
        self.strategy.free(&mut self.machine, block, None).expect("is live");
    }

    pub(super) fn free_all(&mut self, blocks: impl IntoIterator<Item = Block>) {
        blocks.into_iter().for_each(|block| self.free(block));
    }

    pub(super) fn reserved(&self) -> u64 {
        self.strategy.usage().reserved
    }
}
