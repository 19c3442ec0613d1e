//! Rules that no recording shows: several streams, what is spared, ranges that cannot be had.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Notice, Placement, Reply, Request,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::driver::DriverError;
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::StreamId;

const MIB: u64 = 1 << 20;

struct Probe {
    strategy: Audit<Box<dyn Allocator>>,
    machine: ScriptedMachine,
}

impl Probe {
    fn new(options: &str) -> Self {
        let spec = format!("stitch.gmlake:{options}");
        let strategy = crate::build(&spec.parse().expect("a spec")).expect("accepted");
        Self { strategy: Audit::new(strategy, 512), machine: ScriptedMachine::of_capacity(4 << 30) }
    }

    fn try_alloc(&mut self, mib: u64, stream: u32) -> Result<Placement, AllocError> {
        let request = Request { size: mib * MIB, stream: StreamId(stream), ordinal: 0 };
        self.strategy.alloc(&mut self.machine, &request)
    }

    fn alloc(&mut self, mib: u64) -> Placement {
        self.try_alloc(mib, 0).expect("there is room")
    }

    fn free(&mut self, block: Block) {
        self.strategy.free(&mut self.machine, block, None).expect("it is live");
        self.check();
    }

    fn notice(&mut self, notice: Notice<'_>) -> Reply {
        let reply = self.strategy.notice(&mut self.machine, notice).expect("no driver error");
        self.check();
        reply
    }

    /// The strategy's count is the machine's.
    fn check(&self) {
        assert_eq!(self.strategy.usage().reserved, self.machine.held().reserved);
    }

    fn counter(&mut self, name: &str) -> u64 {
        let Reply::Counters(counters) = self.notice(Notice::Counters) else {
            panic!("expected counters")
        };
        counters.iter().find(|(n, _)| *n == name).expect("is counted").1
    }

    /// Free blocks of these sizes, each a segment of its own.
    fn free_blocks(&mut self, sizes: &[u64]) {
        let blocks: Vec<Block> = sizes.iter().map(|mib| self.alloc(*mib).block).collect();
        blocks.into_iter().for_each(|block| self.free(block));
    }

    fn fail(&mut self, call: &str, times: usize) {
        let error = DriverError::OutOfMemory { asked: 0, free: 0 };
        (0..times).for_each(|_| self.machine.fail_on(call, 0, error.clone()));
    }
}

/// The real one ends with a segmentation fault here.
#[test]
fn spared_is_what_lies_under_the_idle_tail_of_a_stitched_block_in_use() {
    let mut probe = Probe::new("");
    probe.free_blocks(&[300, 300, 300]);
    let whole = probe.alloc(900);
    assert_eq!(probe.counter("fused_blocks"), 1);
    probe.free(whole.block);
    let lead = probe.alloc(590);
    assert_eq!((lead.address, lead.size), (whole.address, 590 * MIB));
    probe.notice(Notice::EmptyCache);
    assert_eq!(probe.strategy.usage().reserved, 900 * MIB);
    probe.machine.complete_all();
    probe.free(lead.block);
    probe.machine.complete_all();
    probe.notice(Notice::EmptyCache);
    assert_eq!(probe.strategy.usage().reserved, 0);
    assert_eq!(probe.counter("fused_blocks"), 0);
}

#[test]
fn unmapped_leaves_everything_as_it_was() {
    let mut probe = Probe::new("");
    probe.free_blocks(&[300, 400]);
    // 8 tries in each of 3 rounds
    probe.fail("cuMemAddressReserve", 24);
    let fresh = probe.alloc(700);
    assert_eq!((probe.counter("fused_blocks"), probe.counter("segment")), (0, 3));
    let [a, b] = [300, 400].map(|mib| probe.alloc(mib).block);
    assert_eq!(probe.strategy.usage().reserved, 1400 * MIB);
    [a, b, fresh.block].into_iter().for_each(|block| probe.free(block));
}

#[test]
fn collect_for_a_range_only_what_is_blocked_first() {
    let mut probe = Probe::new("");
    probe.free_blocks(&[300, 400]);
    let stitched = probe.alloc(700);
    probe.free(stitched.block);
    probe.machine.complete_all();
    let _blocks_it = probe.alloc(300);
    probe.fail("cuMemAddressReserve", 8);
    probe.alloc(600);
    assert_eq!(probe.counter("fused_blocks"), 0, "collected, and the second round got its range");
}

#[test]
fn recorded_streams_hold_a_stitched_block_back() {
    let mut probe = Probe::new("");
    probe.free_blocks(&[300, 400]);
    let stitched = probe.alloc(700);
    probe.notice(Notice::RecordStream { block: stitched.block, stream: StreamId(7) });
    probe.free(stitched.block);
    let usage = probe.strategy.usage();
    assert_eq!((usage.allocated, usage.active), (0, 700 * MIB));
    let Reply::Layout(layout) = probe.notice(Notice::Walk) else { panic!("expected a layout") };
    let mut blocks = layout.segments.iter().flat_map(|segment| &segment.blocks);
    assert!(blocks.all(|block| block.state == BlockState::Pending));
    let other = probe.alloc(300);
    assert_eq!(probe.strategy.usage().reserved, 1000 * MIB, "nothing was free");
    probe.machine.complete(StreamId(7));
    assert_eq!(probe.alloc(700).address, stitched.address);
    probe.free(other.block);
}

#[test]
fn own_stream_needs_no_event() {
    let mut probe = Probe::new("");
    let block = probe.alloc(3).block;
    probe.notice(Notice::RecordStream { block, stream: StreamId(0) });
    probe.free(block);
    assert_eq!(probe.strategy.usage().active, 0);
}

#[test]
fn blocks_of_another_stream_are_not_stitched() {
    let mut probe = Probe::new("");
    probe.free_blocks(&[300, 400]);
    let there = probe.try_alloc(700, 1).expect("there is room");
    assert_eq!(probe.counter("fused_blocks"), 0);
    probe.free(there.block);
}

#[test]
fn unseen_work_holds_a_stitched_block_until_it_is_told_or_all_is_released() {
    let mut probe = Probe::new("");
    probe.free_blocks(&[300, 400]);
    for told in [true, false] {
        let block = probe.alloc(700).block;
        probe.notice(Notice::FreeDeferred { block });
        assert_eq!(probe.strategy.usage().active, 700 * MIB);
        let refused = probe.strategy.free(&mut probe.machine, block, None);
        assert_eq!(refused, Err(AllocError::UnknownBlock(block)));
        if told {
            probe.notice(Notice::Completed { block });
        } else {
            probe.notice(Notice::EmptyCache);
            probe.notice(Notice::Completed { block });
        }
        assert_eq!(probe.strategy.usage().active, 0);
    }
}

#[test]
fn max_split_size_keeps_large_blocks_whole() {
    let mut probe = Probe::new("conf='max_split_size_mb:100'");
    probe.free_blocks(&[120, 300]);
    let small = probe.alloc(90);
    assert_eq!(probe.strategy.usage().reserved, 510 * MIB, "no block from the limit on");
    let near = probe.alloc(110);
    assert_eq!((near.size, probe.counter("allocated_bytes")), (120 * MIB, 200 * MIB));
    probe.free(near.block);
    probe.free(small.block);
    assert_eq!(probe.counter("allocated_bytes"), 0);
}

/// Wherever a call finds no memory, the strategy holds what the device gave, and goes on.
#[test]
fn any_call_may_find_no_memory() {
    for call in ["cudaMalloc", "cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"] {
        for nth in (0..40).chain([150, 300, 500, 900]) {
            let mut probe = Probe::new("");
            let error = DriverError::OutOfMemory { asked: 0, free: 0 };
            probe.machine.fail_on(call, nth, error);
            let mut live = Vec::new();
            for mib in [300, 400, 1, 30, 700, 900, 20] {
                live.extend(probe.try_alloc(mib, 0).map(|placement| placement.block));
                probe.check();
                if mib == 400 {
                    live.drain(..).for_each(|block| probe.free(block));
                }
            }
            live.into_iter().for_each(|block| probe.free(block));
            probe.machine.complete_all();
            probe.notice(Notice::EmptyCache);
            assert_eq!(probe.strategy.usage().reserved, 0, "{call} failed after {nth}");
        }
    }
}
