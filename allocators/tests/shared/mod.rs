//! What the tests that walk the registry share: a strategy under audit on a machine, and checks of what it says of itself.
#![allow(dead_code)] // each test file uses its part of it

mod rehearsal;

#[allow(unused_imports)] // as above
pub(crate) use rehearsal::{build, played, played_as};

use vramlab_allocators::{STRATEGIES, Spec, Strategy, find};
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::driver::DriverExt;
use vramlab_sim::machine::{Machine, Memory};
use vramlab_sim::units::StreamId;
use vramlab_sim::{DeviceOptions, SimMachine};

/// A strategy under audit.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) strategy: Audit<Box<dyn Allocator>>,
    pub(crate) machine: SimMachine,
    memory: Memory,
    ordinal: u64,
}

impl Subject {
    /// A strategy with its defaults, on a device of `capacity` bytes. What has a host tier gets none here, or it would never be out of memory;
    /// with one it is in `properties`, and under announced work in `tiered`.
    pub(crate) fn new(strategy: &Strategy, capacity: u64) -> Self {
        if strategy.options.iter().any(|option| option.name == "host_bytes") {
            return Self::of_spec(&format!("{}:host_bytes=0", strategy.name), capacity);
        }
        Self::of_spec(strategy.name, capacity)
    }

    pub(crate) fn of_spec(spec: &str, capacity: u64) -> Self {
        let parsed: Spec = spec.parse().expect(spec);
        let strategy = find(&parsed.strategy().name).expect(spec);
        let inner = build(&parsed);
        Self {
            name: spec.to_owned(),
            memory: strategy.memory,
            strategy: Audit::of_memory(strategy.memory, inner, strategy.alignment),
            machine: SimMachine::new(DeviceOptions {
                capacity,
                host_capacity: capacity,
                pack_small: true,
                ..DeviceOptions::default()
            }),
            ordinal: 0,
        }
    }

    pub(crate) fn alloc_on(&mut self, stream: u32, size: u64) -> Result<Placement, AllocError> {
        let request = Request { size, stream: StreamId(stream), ordinal: self.ordinal };
        self.ordinal += 1;
        self.strategy.alloc(&mut self.machine, &request)
    }

    pub(crate) fn alloc(&mut self, size: u64) -> Result<Placement, AllocError> {
        self.alloc_on(0, size)
    }

    /// A block that must be there.
    pub(crate) fn place(&mut self, size: u64) -> Placement {
        let got = self.alloc(size);
        got.unwrap_or_else(|e| panic!("{}: a request for {size} bytes: {e}", self.name))
    }

    pub(crate) fn try_free(&mut self, block: Block) -> Result<(), AllocError> {
        self.strategy.free(&mut self.machine, block, None)
    }

    pub(crate) fn free(&mut self, block: Block) {
        self.try_free(block).unwrap_or_else(|e| panic!("{}: {e}", self.name));
    }

    pub(crate) fn notice(&mut self, notice: Notice<'_>) -> Reply {
        let text = format!("{notice:?}");
        let reply = self.strategy.notice(&mut self.machine, notice);
        reply.unwrap_or_else(|e| panic!("{}: {text}: {e}", self.name))
    }

    pub(crate) fn usage(&self) -> Usage {
        self.strategy.usage()
    }

    /// Everything that the machine knows to be under way is over.
    pub(crate) fn synchronise(&mut self) {
        self.machine.device_synchronize().expect("the simulated device does");
    }

    /// The machine's count and the strategy's agree; the audit holds what is walked to the usage.
    pub(crate) fn check(&mut self) {
        self.notice(Notice::Counters); // what a pool of the driver holds is known once it is asked
        let (usage, held) = (self.usage(), self.machine.held().of(self.memory).0);
        assert_eq!(usage.reserved, held, "{}: reserved, against the machine's", self.name);
        self.notice(Notice::Walk);
    }
}

/// Does `scenario` for every strategy that serves single requests; for one that plans ahead after a rehearsal. Those that want to
/// know of uses must work where none is announced.
pub(crate) fn for_every_strategy(scenario: impl Fn(&Strategy)) {
    for_every_strategy_up_to(0, scenario);
}

/// The same for those that serve requests of so many bytes.
pub(crate) fn for_every_strategy_up_to(bytes: u64, scenario: impl Fn(&Strategy)) {
    let able = STRATEGIES.iter().filter(|s| !s.is_cache());
    let able: Vec<_> = able.filter(|s| s.largest.is_none_or(|largest| largest >= bytes)).collect();
    assert!(!able.is_empty(), "the registry is empty");
    able.into_iter().for_each(|s| played(s.plans_ahead(), || scenario(s)));
}
