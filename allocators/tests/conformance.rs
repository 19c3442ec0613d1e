//! Scenarios that every strategy of the registry goes through, under audit: no overlap, nothing lost, out of memory is an answer.
//!
//! Nothing here knows a strategy's name: a new registry line is tested by being there.

mod shared;

use shared::{Subject, build, for_every_strategy, for_every_strategy_up_to};
use vramlab_allocators::registry::Status;
use vramlab_sim::allocator::{AllocError, Notice, OutOfMemory, Reply, Usage};
use vramlab_sim::machine::Memory;
use vramlab_sim::testing::Dice;
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::StreamId;
use vramlab_sim::{Allocator, DeviceOptions, Setup, SimMachine};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 512 * MIB;

/// Random churn of up to 300 live buffers, then everything is freed and the cache is emptied.
fn churn(subject: &mut Subject, seed: u64) -> Vec<(u64, u64)> {
    let (mut dice, mut live, mut placed) = (Dice::new(seed), Vec::new(), Vec::new());
    for step in 0..3000 {
        if live.len() < 300 && dice.below(5) < 3 {
            match subject.alloc(dice.size()) {
                Ok(placement) => {
                    placed.push((placement.address, placement.size));
                    live.push(placement.block);
                }
                Err(AllocError::OutOfMemory(_)) => placed.push((0, 0)),
                Err(other) => panic!("{}: {other}", subject.name),
            }
        } else if !live.is_empty() {
            let block = live.swap_remove(dice.below(live.len() as u64) as usize);
            subject.free(block);
        }
        if step % 100 == 0 {
            subject.check();
        }
    }
    live.into_iter().for_each(|block| subject.free(block));
    placed
}

#[test]
fn everything_freed_leaves_nothing_in_use_and_an_empty_cache_leaves_nothing_held() {
    for_every_strategy(|strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        churn(&mut subject, 1);
        let usage = subject.usage();
        assert_eq!((usage.allocated, usage.active), (0, 0), "{}", strategy.name);
        subject.check();
        match subject.notice(Notice::EmptyCache) {
            Reply::Unsupported => assert_eq!(subject.usage(), usage, "{}", strategy.name),
            _ => assert_eq!(subject.usage(), Usage::default(), "{}", strategy.name),
        }
        subject.check();
    });
}

#[test]
fn same_ops_same_placements() {
    for_every_strategy(|strategy| {
        let [a, b] = [2, 2].map(|seed| churn(&mut Subject::new(strategy, CAPACITY), seed));
        assert_eq!(a, b, "{}", strategy.name);
    });
}

#[test]
fn a_request_for_0_bytes_succeeds_and_so_does_its_free() {
    for_every_strategy(|strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let one = subject.place(1);
        let nulls = [0; 3].map(|size| subject.place(size));
        subject.check();
        for null in nulls {
            subject.notice(Notice::RecordStream { block: null.block, stream: StreamId(1) });
            subject.free(null.block);
        }
        subject.free(one.block);
        assert_eq!(subject.usage().active, 0, "{}", strategy.name);
    });
}

/// Beyond the device, at 2^63, and where rounding would pass 2^64: an answer, and the strategy goes on as if nothing had been.
#[test]
fn huge_sizes_are_refused_and_never_wrap() {
    for_every_strategy_up_to(3 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let before = subject.place(3 * MIB);
        let usage = subject.usage();
        let near = [0, 1, 255, 511, 512, 4095, 2 * MIB, 1 << 32].map(|less| u64::MAX - less);
        let far = [CAPACITY + 1, 1 << 40, 1 << 41, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1];
        for size in near.into_iter().chain(far) {
            match subject.alloc(size) {
                Err(AllocError::OutOfMemory(_) | AllocError::InvalidSize { .. }) => {}
                other => panic!("{}: a request for {size} bytes: {other:?}", strategy.name),
            }
            assert_eq!(subject.usage(), usage, "{}: after a request for {size}", strategy.name);
            subject.check();
        }
        let after = subject.place(3 * MIB);
        subject.free(before.block);
        subject.free(after.block);
    });
}

#[test]
fn a_second_free_is_refused_also_when_the_memory_serves_another_block() {
    for_every_strategy_up_to(3 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        for size in [700, 3 * MIB] {
            let first = subject.place(size).block;
            subject.free(first);
            let refused = |got| matches!(got, Err(AllocError::UnknownBlock(b)) if b == first);
            assert!(refused(subject.try_free(first)), "{}: freed twice", strategy.name);
            let second = subject.place(size).block;
            if second != first {
                assert!(refused(subject.try_free(first)), "{}: freed before", strategy.name);
            }
            subject.free(second);
            subject.check();
        }
    });
}

#[test]
fn out_of_memory_has_its_numbers_and_leaves_the_strategy_usable() {
    for_every_strategy_up_to(10 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let mut live = Vec::new();
        let refusal = loop {
            match subject.alloc(10 * MIB) {
                Ok(placement) => live.push(placement.block),
                Err(error) => break error,
            }
            assert!(live.len() <= 51, "{}: more than the device has", strategy.name);
        };
        let usage = subject.usage();
        let AllocError::OutOfMemory(numbers) = refusal else {
            panic!("{}: {refusal}", strategy.name)
        };
        let OutOfMemory { asked, device_free, reserved, active, largest_free, .. } = *numbers;
        assert!(asked >= 10 * MIB, "{}: asked {asked}", strategy.name);
        assert_eq!((reserved, active), (usage.reserved, usage.active), "{}", strategy.name);
        assert!(largest_free <= reserved - active, "{}: {numbers}", strategy.name);
        assert!(device_free <= CAPACITY - reserved, "{}: {numbers}", strategy.name);
        subject.check();
        let back = live.pop().expect("at least one fitted");
        subject.free(back);
        match subject.alloc(10 * MIB) {
            Ok(placement) => live.push(placement.block),
            // only what gives nothing back may refuse again
            Err(_) => {
                assert_eq!(
                    subject.notice(Notice::EmptyCache),
                    Reply::Unsupported,
                    "{}",
                    strategy.name
                );
            }
        }
        live.into_iter().for_each(|block| subject.free(block));
        subject.check();
    });
}

/// Wholly free memory of one size must not stand in the way of a request of another. (PyTorch's cache of host memory gives nothing back
/// by itself: there it must fit once the cache was told to.)
#[test]
fn free_memory_goes_back_before_out_of_memory() {
    for_every_strategy_up_to(300 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let blocks = [0; 7].map(|_| subject.place(33 * MIB).block);
        blocks.into_iter().for_each(|block| subject.free(block));
        match subject.alloc(300 * MIB) {
            Ok(placement) => subject.free(placement.block),
            Err(_) if strategy.memory == Memory::Host => {
                subject.notice(Notice::EmptyCache);
                subject.place(300 * MIB);
            }
            Err(error) => {
                assert_eq!(
                    subject.notice(Notice::EmptyCache),
                    Reply::Unsupported,
                    "{}: {error}",
                    strategy.name
                );
            }
        }
        subject.check();
    });
}

#[test]
fn trim_keeps_what_it_was_told_to_keep() {
    for_every_strategy_up_to(40 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let blocks = [0; 5].map(|_| subject.place(40 * MIB).block);
        blocks.into_iter().for_each(|block| subject.free(block));
        let before = subject.usage().reserved;
        if subject.notice(Notice::Trim { keep: 100 * MIB }) == Reply::Unsupported {
            assert_eq!(subject.usage().reserved, before, "{}", strategy.name);
        } else {
            assert!(subject.usage().reserved <= before.min(100 * MIB), "{}", strategy.name);
        }
        subject.check();
    });
}

/// A block whose free is deferred is nobody's until it is completed; completing it twice, or late, does nothing.
#[test]
fn a_deferred_free_holds_its_block_until_it_is_completed() {
    for_every_strategy_up_to(5 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let b = subject.place(5 * MIB);
        let alone = subject.usage().allocated; // a placement may have less than what is set aside for it
        let a = subject.place(5 * MIB);
        if subject.notice(Notice::FreeDeferred { block: a.block }) == Reply::Unsupported {
            return;
        }
        let usage = subject.usage();
        assert_eq!(usage.allocated, alone, "{}", strategy.name);
        subject.check();
        assert!(subject.try_free(a.block).is_err(), "{}: freed twice", strategy.name);
        if usage.active > usage.allocated {
            let c = subject.place(5 * MIB);
            assert_ne!(c.address, a.address, "{}: still in use", strategy.name);
            subject.free(c.block);
        }
        for _ in 0..2 {
            subject.notice(Notice::Completed { block: a.block });
            assert_eq!(subject.usage().active, alone, "{}", strategy.name);
            subject.check();
        }
        subject.free(b.block);
    });
}

/// Unseen work that never ends by itself must not make a request fail.
#[test]
fn a_deferred_free_is_waited_for_before_out_of_memory() {
    for_every_strategy_up_to(320 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let held = [0; 7].map(|_| subject.place(32 * MIB).block); // less than half
        for block in held {
            if subject.notice(Notice::FreeDeferred { block }) == Reply::Unsupported {
                return;
            }
        }
        if let Err(error) = subject.alloc(320 * MIB) {
            assert_eq!(
                subject.notice(Notice::EmptyCache),
                Reply::Unsupported,
                "{}: {error}",
                strategy.name
            );
        }
        for block in held {
            subject.notice(Notice::Completed { block });
        }
        subject.check();
    });
}

/// Streams that share memory, with long work on each: whatever is reused must be ordered after its last uses.
#[test]
fn reuse_across_streams_is_ordered() {
    let mut text = String::new();
    let (mut dice, mut live) = (Dice::new(3), Vec::<u64>::new());
    for id in 0..3000_u64 {
        let stream = dice.below(3);
        text += &format!(
            "{{\"op\":\"alloc\",\"id\":{id},\"size\":{},\"stream\":{stream}}}\n",
            dice.size()
        );
        text +=
            &format!("{{\"op\":\"work\",\"stream\":{stream},\"dur\":5000,\"writes\":[{id}]}}\n");
        if dice.below(4) == 0 {
            // another stream reads it too, after an event
            let other = (stream + 1) % 3;
            text += &format!("{{\"op\":\"event\",\"event\":{stream},\"stream\":{stream}}}\n");
            text += &format!("{{\"op\":\"wait\",\"event\":{stream},\"stream\":{other}}}\n");
            text +=
                &format!("{{\"op\":\"work\",\"stream\":{other},\"dur\":9000,\"reads\":[{id}]}}\n");
            text += &format!("{{\"op\":\"record_stream\",\"id\":{id},\"stream\":{other}}}\n");
        }
        live.push(id);
        if live.len() > 40 {
            let id = live.swap_remove(dice.below(live.len() as u64) as usize);
            text += &format!("{{\"op\":\"free\",\"id\":{id}}}\n");
        }
    }
    for_every_strategy(|strategy| {
        let mut machine =
            SimMachine::new(DeviceOptions { capacity: CAPACITY, ..Default::default() });
        let spec = strategy.name.parse().expect("a name is a spec");
        let mut strategies: Vec<Box<dyn Allocator>> = vec![build(&spec)];
        let mut source = JsonlSource::new(text.as_bytes(), "streams");
        let setup = Setup::new(&mut machine, &mut strategies);
        let report = vramlab_sim::run(&mut source, setup)
            .unwrap_or_else(|e| panic!("{}: {e}", strategy.name));
        assert_eq!(report.race_count, 0, "{}: {:?}", strategy.name, report.races.first());
    });
}

/// What needs no order must not pay for it: no wait, and no event either, unless a real system marks each free all the same.
#[test]
fn one_stream_waits_for_nothing() {
    for_every_strategy(|strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        churn(&mut subject, 4);
        let calls = vramlab_sim::Machine::calls(&subject.machine);
        let name = strategy.name;
        assert_eq!(calls.get("cudaStreamWaitEvent"), 0, "{name}");
        let marks = calls.get("cudaEventCreate") + calls.get("cudaEventRecord");
        assert!(marks == 0 || strategy.status != Status::Model, "{name}: {marks} calls for events");
    });
}

/// A strategy may know nothing of a notice, but must say so and change nothing.
#[test]
fn unknown_notices_change_nothing() {
    let pool = vramlab_sim::PoolId(1);
    let stream = StreamId(0);
    for_every_strategy_up_to(3 * MIB, |strategy| {
        let mut subject = Subject::new(strategy, CAPACITY);
        let live = subject.place(3 * MIB);
        let usage = subject.usage();
        for notice in [
            Notice::Mark { name: "step" },
            Notice::Counters,
            Notice::ResetPeak,
            Notice::ResetAccumulated,
            Notice::PoolBegin { pool, stream },
            Notice::PoolEnd { pool },
            Notice::PoolRelease { pool },
        ] {
            subject.notice(notice);
            assert_eq!(subject.usage(), usage, "{}", strategy.name);
        }
        subject.free(live.block);
        subject.check();
    });
}
