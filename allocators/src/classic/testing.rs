//! One helper for the tests of rules: places blocks and says where, in bytes from the beginning of their segment.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::machine::{Machine, Memory};
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

pub(crate) const KIB: u64 = 1 << 10;

/// A strategy under audit on a scripted device.
pub(crate) struct Probe {
    pub(crate) strategy: Audit<Box<dyn Allocator>>,
    pub(crate) machine: ScriptedMachine,
}

impl Probe {
    /// From a strategy spec, on a device of 8 GiB.
    pub(crate) fn new(spec: &str) -> Self {
        Self::of_capacity(spec, 8 << 30)
    }

    /// On a device of so many bytes.
    pub(crate) fn of_capacity(spec: &str, capacity: u64) -> Self {
        let parsed: crate::Spec = spec.parse().expect(spec);
        let memory = crate::find(&parsed.strategy().name).expect(spec).memory;
        let align = if memory == Memory::Host { 16 } else { 256 };
        let strategy = crate::build(&parsed).expect(spec);
        Self {
            strategy: Audit::of_memory(memory, strategy, align),
            machine: ScriptedMachine::of_capacity(capacity),
        }
    }

    pub(crate) fn try_alloc(&mut self, size: u64, stream: u32) -> Result<Placement, AllocError> {
        let request = Request { size, stream: StreamId(stream), ordinal: 0 };
        self.strategy.alloc(&mut self.machine, &request)
    }

    /// The numbers of a request that must be refused for want of room.
    pub(crate) fn refusal(&mut self, size: u64) -> OutOfMemory {
        match self.try_alloc(size, 0) {
            Err(AllocError::OutOfMemory(numbers)) => *numbers,
            other => panic!("expected out of memory, found {other:?}"),
        }
    }

    pub(crate) fn tell(&mut self, notice: Notice<'_>) -> Reply {
        self.strategy.notice(&mut self.machine, notice).expect("is answered")
    }

    /// The strategy's own counter of this name.
    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let Reply::Counters(all) = self.tell(Notice::Counters) else { panic!("no counters") };
        all.iter().find(|(known, _)| *known == name).expect("is counted").1
    }

    /// Sizes of the driver calls of this name since the last look at the log, refused ones too.
    pub(crate) fn calls(&mut self, name: &str) -> Vec<u64> {
        self.machine.drain_log().filter(|row| row.call == name).map(|row| row.size).collect()
    }

    pub(crate) fn placement(&mut self, size: u64) -> Placement {
        self.try_alloc(size, 0).expect("there is room")
    }

    pub(crate) fn alloc(&mut self, size: u64) -> Block {
        self.placement(size).block
    }

    /// The offset of a new block in its segment.
    pub(crate) fn place(&mut self, size: u64) -> u64 {
        let placement = self.placement(size);
        self.machine.origin(placement.address).expect("lies in a segment").offset
    }

    pub(crate) fn free(&mut self, block: Block) {
        self.strategy.free(&mut self.machine, block, None).expect("is live");
    }

    pub(crate) fn free_all(&mut self, blocks: impl IntoIterator<Item = Block>) {
        blocks.into_iter().for_each(|block| self.free(block));
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.strategy.usage().reserved
    }
}
