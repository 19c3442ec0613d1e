//! One helper for the tests of rules: a strategy under audit on a device on a script.

use vramlab_sim::Usage;
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

pub(super) const MIB: u64 = 1 << 20;

pub(super) struct Probe {
    pub(super) strategy: Audit<Box<dyn Allocator>>,
    pub(super) machine: ScriptedMachine,
}

/// Why a spec is refused.
pub(super) fn refusal(spec: &str) -> String {
    let parsed = spec.parse().expect(spec);
    crate::build(&parsed).err().expect(spec).to_string()
}

/// What is said of options without effect.
pub(super) fn inert(spec: &str) -> Vec<String> {
    let spec: crate::Spec = spec.parse().expect(spec);
    let strategy = crate::find(&spec.strategy().name).expect("a strategy");
    (strategy.inert)(&spec.strategy().options)
}

impl Probe {
    /// From a spec, on a device of so many MiB.
    pub(super) fn new(spec: &str, mib: u64) -> Self {
        let parsed: crate::Spec = spec.parse().expect(spec);
        let alignment = crate::find(&parsed.strategy().name).expect(spec).alignment;
        let strategy = crate::build(&parsed).expect(spec);
        let machine = ScriptedMachine::of_capacity(mib * MIB);
        Self { strategy: Audit::new(strategy, alignment), machine }
    }

    pub(super) fn alloc_on(&mut self, stream: u32, size: u64) -> Result<Placement, AllocError> {
        let request = Request { size, stream: StreamId(stream), ordinal: 0 };
        self.strategy.alloc(&mut self.machine, &request)
    }

    /// A block on stream 0 that must be there.
    pub(super) fn place(&mut self, size: u64) -> Placement {
        self.alloc_on(0, size).expect("there is room")
    }

    /// A block on a stream that must be there.
    pub(super) fn place_on(&mut self, stream: u32, size: u64) -> Placement {
        self.alloc_on(stream, size).expect("there is room")
    }

    /// The numbers of a request that must be refused.
    pub(super) fn refused(&mut self, stream: u32, size: u64) -> OutOfMemory {
        match self.alloc_on(stream, size) {
            Err(AllocError::OutOfMemory(numbers)) => *numbers,
            other => panic!("expected out of memory, found {other:?}"),
        }
    }

    pub(super) fn free(&mut self, block: Block) {
        self.strategy.free(&mut self.machine, block, None).expect("is live");
    }

    pub(super) fn notice(&mut self, notice: Notice<'_>) -> Reply {
        self.strategy.notice(&mut self.machine, notice).expect("the device does not fail")
    }

    pub(super) fn record(&mut self, block: Block, stream: u32) {
        self.notice(Notice::RecordStream { block, stream: StreamId(stream) });
    }

    pub(super) fn mark(&mut self) {
        self.notice(Notice::Mark { name: "run" });
    }

    /// Work without listed uses.
    pub(super) fn work(&mut self, stream: u32) {
        let announced = self.strategy.before_work(&mut self.machine, StreamId(stream), &mut []);
        announced.expect("the device does not fail");
    }

    pub(super) fn usage(&self) -> Usage {
        self.strategy.usage()
    }

    pub(super) fn counter(&mut self, name: &str) -> u64 {
        let Reply::Counters(list) = self.notice(Notice::Counters) else { panic!("no counters") };
        let found = list.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name} in {list:?}")).1
    }

    /// CUDA's names of the calls since the last look.
    pub(super) fn calls(&mut self) -> Vec<&'static str> {
        self.machine.drain_log().map(|row| row.call).collect()
    }
}
