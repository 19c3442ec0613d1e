//! A strategy on a machine of its own, for tests of rules with streams.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, LayoutSegment, Notice, OutOfMemory, Placement, Reply, Request,
    Usage,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

/// A strategy under audit.
pub(crate) struct Lab {
    strategy: Audit<Box<dyn Allocator>>,
    pub(crate) machine: ScriptedMachine,
}

impl Lab {
    /// From a strategy spec, on a device of so many bytes.
    pub(crate) fn new(spec: &str, capacity: u64) -> Self {
        let strategy = crate::build(&spec.parse().expect(spec)).unwrap_or_else(|e| panic!("{e}"));
        let machine = ScriptedMachine::of_capacity(capacity);
        Self { strategy: Audit::new(strategy, 256), machine }
    }

    pub(crate) fn try_alloc(&mut self, size: u64, stream: u32) -> Result<Placement, AllocError> {
        let request = Request { size, stream: StreamId(stream), ordinal: 0 };
        self.strategy.alloc(&mut self.machine, &request)
    }

    pub(crate) fn alloc(&mut self, size: u64, stream: u32) -> Placement {
        self.try_alloc(size, stream).unwrap_or_else(|e| panic!("{size} bytes: {e}"))
    }

    /// The numbers of a request that must be refused.
    pub(crate) fn refusal(&mut self, size: u64, stream: u32) -> OutOfMemory {
        match self.try_alloc(size, stream) {
            Err(AllocError::OutOfMemory(numbers)) => *numbers,
            other => panic!("expected out of memory, found {other:?}"),
        }
    }

    pub(crate) fn free(&mut self, placement: Placement) {
        self.try_free(placement.block, None).expect("is live");
    }

    pub(crate) fn free_on(&mut self, placement: Placement, stream: u32) {
        self.try_free(placement.block, Some(stream)).expect("is live");
    }

    pub(crate) fn try_free(&mut self, block: Block, stream: Option<u32>) -> Result<(), AllocError> {
        self.strategy.free(&mut self.machine, block, stream.map(StreamId))
    }

    pub(crate) fn tell(&mut self, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.strategy.notice(&mut self.machine, notice)
    }

    pub(crate) fn record(&mut self, placement: Placement, stream: u32) {
        let (block, stream) = (placement.block, StreamId(stream));
        let told = self.tell(Notice::RecordStream { block, stream });
        assert_eq!(told, Ok(Reply::Done));
    }

    /// Device allocation and offset in it.
    pub(crate) fn place(&self, placement: Placement) -> (u32, u64) {
        let origin = self.machine.origin(placement.address).expect("lies in a range");
        (origin.ordinal, origin.offset)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.strategy.usage()
    }

    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let Ok(Reply::Counters(all)) = self.tell(Notice::Counters) else {
            panic!("expected counters")
        };
        let found = all.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter is named {name:?}")).1
    }

    pub(crate) fn segments(&mut self) -> Vec<LayoutSegment> {
        match self.tell(Notice::Walk) {
            Ok(Reply::Layout(layout)) => layout.segments,
            other => panic!("expected a layout, found {other:?}"),
        }
    }

    /// The calls since the last time.
    pub(crate) fn calls(&mut self) -> Vec<String> {
        self.machine.drain_log().map(|call| call.to_string()).collect()
    }
}
