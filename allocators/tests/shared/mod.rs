//! What the tests that walk the registry share: a strategy under audit on a machine, and checks of what it says of itself.
#![allow(dead_code)] // each test file uses its part of it

use vramlab_allocators::{STRATEGIES, Spec, Strategy, find};
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Layout, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::driver::DriverExt;
use vramlab_sim::machine::{Machine, Memory};
use vramlab_sim::units::StreamId;
use vramlab_sim::{DeviceOptions, SimMachine};

/// Alignment that `cudaMalloc` promises.
pub(crate) const ALIGN: u64 = 256;

/// A strategy under audit.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) strategy: Audit<Box<dyn Allocator>>,
    pub(crate) machine: SimMachine,
    memory: Memory,
    ordinal: u64,
}

impl Subject {
    /// A strategy with its defaults, on a device of `capacity` bytes.
    pub(crate) fn new(strategy: &Strategy, capacity: u64) -> Self {
        Self::of_spec(strategy.name, capacity)
    }

    pub(crate) fn of_spec(spec: &str, capacity: u64) -> Self {
        let parsed: Spec = spec.parse().expect(spec);
        let inner = vramlab_allocators::build(&parsed).unwrap_or_else(|e| panic!("{spec}: {e}"));
        Self {
            name: spec.to_owned(),
            strategy: Audit::new(inner, ALIGN),
            memory: find(&parsed.strategy().name).expect(spec).memory,
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

    /// The machine's count and the strategy's agree, and so does what the strategy says is where (nothing, where it does not say).
    pub(crate) fn check(&mut self) {
        self.notice(Notice::Counters); // what a pool of the driver holds is known once it is asked
        let (usage, (held, _)) = (self.usage(), self.machine.held().of(self.memory));
        assert_eq!(usage.reserved, held, "{}: reserved, against the machine's", self.name);
        if let Reply::Layout(layout) = self.notice(Notice::Walk) {
            check_layout(&self.name, &layout, usage);
        }
    }
}

/// Segments in address order without overlap, tiled by their blocks; sums as in the usage.
pub(crate) fn check_layout(name: &str, layout: &Layout, usage: Usage) {
    let (mut end, mut sums) = (0, Usage::default());
    for segment in &layout.segments {
        assert!(
            segment.address >= end,
            "{name}: segment at {:#x} is out of order",
            segment.address
        );
        end = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, end, "{name}: blocks tile their segment");
            assert!(block.size > 0, "{name}: an empty block at {:#x}", block.address);
            assert!(block.requested <= block.size, "{name}: {block:?}");
            end += block.size;
            sums.reserved += block.size;
            sums.active += if block.state == BlockState::Free { 0 } else { block.size };
            sums.allocated += if block.state == BlockState::Allocated { block.size } else { 0 };
        }
        assert_eq!(end, segment.address + segment.size, "{name}: blocks fill their segment");
    }
    assert_eq!(sums, usage, "{name}: the layout's sums, against the usage");
}

/// Does `scenario` for every strategy that needs nothing from the workload.
pub(crate) fn for_every_strategy(scenario: impl Fn(&Strategy)) {
    let able: Vec<_> = STRATEGIES.iter().filter(|s| !s.plans_ahead() && !s.accesses).collect();
    assert!(!able.is_empty(), "the registry is empty");
    able.into_iter().for_each(scenario);
}

/// Numbers below a bound, from a fixed seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Sizes from 1 B to 16 MiB, every power of two as likely as the others.
    pub(crate) fn size(&mut self) -> u64 {
        let top = 1 << self.below(25);
        top / 2 + 1 + self.below(top)
    }
}
