//! What the golden cases do not show: refusals, failures, stale tokens, walks.

use vramlab_sim::allocator::{AllocError, Allocator, Notice, Reply, Usage};
use vramlab_sim::driver::DriverError;
use vramlab_sim::testing::Dice;

use crate::classic::testing::Probe;

const ARENA: u64 = 1 << 20;

#[test]
fn geometry_follows_the_version() {
    for (version, arena, blocks) in [
        ("3.6", 256 << 10, 7),
        ("3.9.18", 256 << 10, 7),
        ("3.10", ARENA, 31),
        ("3.11.7", ARENA, 31),
    ] {
        let mut probe = Probe::new(&format!("host.pymalloc:version={version}"));
        probe.alloc(512);
        assert_eq!(probe.reserved(), arena, "{version}");
        let in_first = (1..).take_while(|_| {
            probe.alloc(512);
            probe.counter("pools_in_use") == 1
        });
        assert_eq!(in_first.count() + 1, blocks, "blocks of a pool of {version}");
    }
    for bad in ["3.5", "3.12", "4.0", "3", "3.11.x"] {
        let spec = format!("host.pymalloc:version={bad}");
        let refused = crate::build(&spec.parse().expect("a spec")).err().expect(bad).to_string();
        let want = "expected a version from 3.6 to 3.11 such as 3.11 or 3.9.18";
        assert_eq!(refused, format!("option version={bad}: {want}"));
    }
}

#[test]
fn raw_blocks_are_ranges_of_their_own_and_0_bytes_are_1() {
    let mut probe = Probe::new("host.pymalloc");
    let blocks = [0, 513, 1 << 20].map(|size| probe.placement(size));
    assert_eq!(blocks.map(|placement| placement.size), [1, 513, 1 << 20]);
    assert_eq!((probe.counter("raw_blocks"), probe.reserved()), (3, 1 + 513 + (1 << 20)));
    for placement in blocks {
        probe.free(placement.block);
        let again = probe.strategy.free(&mut probe.machine, placement.block, None);
        assert_eq!(again, Err(AllocError::UnknownBlock(placement.block)));
    }
    assert_eq!(probe.strategy.usage(), Usage::default());
    assert_eq!(probe.refusal(u64::MAX).asked, u64::MAX);
    assert_eq!(probe.refusal(1 << 62).asked, 1 << 62);
}

/// Between an arena's request that is refused and one that is not, small blocks are raw.
#[test]
fn no_arena_makes_a_small_request_raw() {
    let mut probe = Probe::new("host.pymalloc");
    probe.machine.fail_on("cudaMallocHost", 0, DriverError::OutOfMemory { asked: 0, free: 0 });
    let raw = probe.placement(100);
    assert_eq!((raw.size, probe.counter("raw_blocks"), probe.reserved()), (100, 1, 100));
    let small = probe.placement(100);
    assert_eq!((small.size, probe.reserved()), (112, ARENA + 100));
}

#[test]
fn a_token_dies_with_its_block_though_the_place_is_used_again() {
    let mut probe = Probe::new("host.pymalloc");
    let first = probe.placement(40);
    probe.free(first.block);
    let second = probe.placement(40);
    assert_eq!(second.address, first.address);
    let stale = probe.strategy.free(&mut probe.machine, first.block, None);
    assert_eq!(stale, Err(AllocError::UnknownBlock(first.block)));
    probe.free(second.block);
}

#[test]
fn a_driver_error_at_the_return_of_an_arena_leaves_the_block_live() {
    let mut probe = Probe::new("host.pymalloc:version=3.8");
    let block = probe.alloc(100);
    let failed = DriverError::Failed { call: "cudaFreeHost", what: "on cue".into() };
    probe.machine.fail_on("cudaFreeHost", 0, failed.clone());
    let refused = probe.strategy.free(&mut probe.machine, block, None);
    assert_eq!(refused, Err(AllocError::Driver(failed)));
    assert_eq!(probe.strategy.usage(), Usage { allocated: 112, active: 112, reserved: 256 << 10 });
    probe.free(block);
    assert_eq!(probe.strategy.usage(), Usage::default());
}

/// Under audit, with a walk after every op: allocs, frees and reallocs of all kinds.
#[test]
fn random_blocks_never_share_bytes_and_walks_add_up() {
    for version in ["3.8", "3.9", "3.11"] {
        let mut probe = Probe::new(&format!("host.pymalloc:version={version}"));
        let mut live = Vec::new();
        let mut dice = Dice::of_step_1(11);
        for step in 0..3000 {
            let size = if dice.below(10) == 0 { dice.below(2000) } else { 1 + dice.below(512) };
            let at = dice.below(live.len().max(1) as u64) as usize;
            let grows = step % 1500 < 1000;
            match dice.below(10) {
                0 if !live.is_empty() => {
                    let notice = Notice::Resize { block: live[at], size };
                    let Reply::Placed(new) = probe.tell(notice) else { panic!("expected a place") };
                    live[at] = new.block;
                }
                dice if live.is_empty() || dice < if grows { 8 } else { 2 } => {
                    live.push(probe.alloc(size));
                }
                _ => probe.free(live.swap_remove(at)),
            }
            probe.tell(Notice::Walk);
        }
        probe.free_all(live);
        assert_eq!(probe.strategy.usage().active, 0);
        assert_eq!(probe.counter("pools_in_use"), 0);
        let kept = if version == "3.8" { 0 } else { 1 };
        assert_eq!(probe.counter("arenas_allocated_current"), kept, "{version}");
    }
}
