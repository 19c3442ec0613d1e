//! Each rule of the table, on the simulated device or on a scripted one.

use super::*;
use vramlab_sim::device::SimMachine;
use vramlab_sim::driver::DriverExt;
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::ScriptedMachine;

const MIB: u64 = 1 << 20;
const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);

type Tested = Result<(), AllocError>;

fn with(pairs: &[(&str, &str)]) -> Box<dyn Allocator> {
    new(&Options::from_pairs(pairs.iter().copied())).expect("good options")
}

/// A pool on a device of `mib` MiB.
struct Pair {
    cuda: Box<dyn Allocator>,
    machine: SimMachine,
}

impl Pair {
    fn new(mib: u64, pairs: &[(&str, &str)]) -> Self {
        Self { cuda: with(pairs), machine: SimMachine::of_capacity(mib * MIB) }
    }

    fn alloc(&mut self, mib: u64, stream: StreamId) -> Result<Placement, AllocError> {
        self.cuda.alloc(&mut self.machine, &Request { size: mib * MIB, stream, ordinal: 0 })
    }

    fn free(&mut self, placement: Placement) -> Tested {
        self.cuda.free(&mut self.machine, placement.block, None)
    }

    fn notice(&mut self, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.cuda.notice(&mut self.machine, notice)
    }

    /// Where a block of stream 2 lies after one of stream 1 of the same size was freed with work before it, and after `between`.
    fn reuse(
        &mut self,
        between: impl FnOnce(&mut SimMachine) -> Result<(), vramlab_sim::DriverError>,
    ) -> Result<bool, AllocError> {
        let a = self.alloc(32, ONE)?;
        self.machine.launch(ONE, 100)?;
        self.free(a)?;
        between(&mut self.machine)?;
        Ok(self.alloc(32, TWO).is_ok_and(|b| b.address == a.address))
    }
}

#[test]
fn attributes_at_their_defaults_are_not_set() -> Tested {
    let request = Request { size: 1000, stream: ONE, ordinal: 0 };
    for (pairs, want) in [
        (&[][..], 0),
        (&[("release_threshold", "0"), ("reuse_allow_opportunistic", "1")][..], 0),
        (&[("release_threshold", "512MiB"), ("reuse_follow_event_dependencies", "false")][..], 2),
    ] {
        let (mut cuda, mut machine) = (with(pairs), ScriptedMachine::of_capacity(1 << 30));
        let a = cuda.alloc(&mut machine, &request)?;
        assert_eq!(a.size, 1000, "what the driver rounds is the driver's affair");
        cuda.alloc(&mut machine, &request)?;
        let calls: Vec<_> = machine.drain_log().map(|row| row.call).collect();
        assert_eq!(calls.iter().filter(|c| **c == "cudaMemPoolSetAttribute").count(), want);
    }
    for (key, value) in [("release_threshold", "much"), ("reuse_allow_opportunistic", "2")] {
        let error = new(&Options::from_pairs([(key, value)])).err().expect("refused").0;
        assert!(error.contains(key) && error.contains(value), "{error}");
    }
    Ok(())
}

#[test]
fn own_stream_uses_freed_memory_again_without_a_wait() -> Tested {
    let mut pair = Pair::new(64, &[]);
    let a = pair.alloc(32, ONE)?;
    pair.machine.launch(ONE, 100)?;
    pair.free(a)?;
    assert_eq!(pair.alloc(32, ONE)?.address, a.address);
    assert_eq!(pair.machine.now().0, 0);
    Ok(())
}

#[test]
fn follow_event_dependencies_lets_a_stream_that_waits_use_it() -> Tested {
    for on in [true, false] {
        let option = ("reuse_follow_event_dependencies", if on { "true" } else { "false" });
        let waits = |machine: &mut SimMachine| {
            let event = machine.event_create()?;
            machine.event_record(event, ONE)?;
            machine.wait_event(TWO, event)
        };
        assert_eq!(Pair::new(64, &[option]).reuse(waits)?, on);
    }
    Ok(())
}

#[test]
fn allow_opportunistic_lets_any_stream_use_what_is_over() -> Tested {
    for on in [true, false] {
        let option = ("reuse_allow_opportunistic", if on { "true" } else { "false" });
        let passes = |machine: &mut SimMachine| {
            machine.spend(100);
            Ok(())
        };
        assert_eq!(Pair::new(64, &[option]).reuse(passes)?, on);
        assert!(!Pair::new(64, &[option]).reuse(|_| Ok(()))?, "the free is not over");
    }
    Ok(())
}

#[test]
fn allow_internal_dependencies_makes_a_stream_wait_where_there_is_no_room() -> Tested {
    for on in [true, false] {
        let option = ("reuse_allow_internal_dependencies", if on { "true" } else { "false" });
        let mut pair = Pair::new(32, &[option]);
        assert_eq!(pair.reuse(|_| Ok(()))?, on);
        assert_eq!(pair.cuda.usage().active, if on { 32 * MIB } else { 0 });
    }
    Ok(())
}

/// The threshold of 0 gives everything back at each synchronisation, the largest one nothing (rapidsai/rmm#2510).
#[test]
fn release_at_synchronisation_goes_down_to_the_threshold() -> Tested {
    for (threshold, growths, held) in [("0", 4, 0), ("18446744073709551615", 1, 1024 * MIB)] {
        let mut pair = Pair::new(8192, &[("release_threshold", threshold)]);
        for _ in 0..4 {
            let a = pair.alloc(1024, ONE)?;
            pair.free(a)?;
            assert_eq!(pair.machine.held().reserved, 1024 * MIB, "not at the free");
            pair.machine.stream_synchronize(ONE)?;
        }
        assert_eq!(pair.machine.driver_work().pool_growths, growths);
        assert_eq!(pair.machine.held().reserved, held);
        pair.notice(Notice::Counters)?;
        assert_eq!(pair.cuda.usage().reserved, held, "known after the next question");
    }
    Ok(())
}

#[test]
fn trim_gives_back_what_its_stream_has_passed() -> Tested {
    let mut pair = Pair::new(256, &[("release_threshold", "1GiB")]);
    let blocks = [pair.alloc(32, ONE)?, pair.alloc(32, ONE)?, pair.alloc(32, TWO)?];
    pair.machine.launch(TWO, 100)?;
    for block in blocks {
        pair.free(block)?;
    }
    pair.notice(Notice::Trim { keep: 64 * MIB })?;
    assert_eq!(pair.cuda.usage().reserved, 64 * MIB);
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.cuda.usage().reserved, 32 * MIB, "stream 2 is still at work");
    pair.machine.spend(100);
    pair.notice(Notice::EmptyCache)?;
    assert_eq!(pair.cuda.usage(), Usage::default());
    Ok(())
}

#[test]
fn recorded_streams_are_waited_for_by_the_stream_of_the_free() -> Tested {
    let (mut cuda, mut machine) = (with(&[]), ScriptedMachine::of_capacity(1 << 30));
    let request = Request { size: 1000, stream: ONE, ordinal: 0 };
    let a = cuda.alloc(&mut machine, &request)?.block;
    for stream in [TWO, ONE, TWO] {
        cuda.notice(&mut machine, Notice::RecordStream { block: a, stream })?;
    }
    machine.drain_log();
    cuda.free(&mut machine, a, None)?;
    let unifier = 1_u32 << 31;
    let log: Vec<_> = machine.drain_log().map(|call| call.to_string()).collect();
    let want = [
        format!("cudaStreamCreate,,,0,s{unifier},1"),
        "cudaEventRecord,,,0,s1,1".into(),
        format!("cudaStreamWaitEvent,,,0,s{unifier},1"),
        "cudaEventRecord,,,0,s2,1".into(),
        format!("cudaStreamWaitEvent,,,0,s{unifier},1"),
    ];
    let before_free: Vec<_> = log.iter().filter(|l| !l.starts_with("cudaFreeAsync")).collect();
    assert_eq!(before_free.len() + 1, log.len());
    for (line, want) in before_free.iter().zip(&want) {
        assert!(line.starts_with(want.split(',').next().unwrap_or_default()), "{log:?}");
    }
    let b = cuda.alloc(&mut machine, &request)?.block;
    cuda.free(&mut machine, b, None)?;
    let calls: Vec<_> = machine.drain_log().map(|row| row.call).collect();
    assert_eq!(calls, ["cudaMallocAsync", "cudaFreeAsync"], "its slot was recorded, it was not");
    Ok(())
}

#[test]
fn free_stream_is_passed_on() -> Tested {
    let mut pair = Pair::new(32, &[("reuse_allow_opportunistic", "false")]);
    let a = pair.alloc(32, ONE)?;
    pair.cuda.free(&mut pair.machine, a.block, Some(TWO))?;
    assert_eq!(pair.alloc(32, TWO)?.address, a.address, "it is stream 2's now");
    Ok(())
}

#[test]
fn high_marks_begin_again_from_now() -> Tested {
    let mut pair = Pair::new(256, &[("release_threshold", "1GiB")]);
    let (a, b) = (pair.alloc(32, ONE)?, pair.alloc(16, ONE)?);
    pair.free(a)?;
    let marks = |pair: &mut Pair| match pair.notice(Notice::Counters) {
        Ok(Reply::Counters(counters)) => [counters[1], counters[3]],
        other => panic!("{other:?}"),
    };
    let [reserved, used] = ["reserved_mem_high", "used_mem_high"];
    assert_eq!(marks(&mut pair), [(reserved, 64 * MIB), (used, 48 * MIB)]);
    pair.notice(Notice::ResetPeak)?;
    assert_eq!(marks(&mut pair), [(reserved, 64 * MIB), (used, 16 * MIB)]);
    pair.free(b)
}

#[test]
fn null_placements_cost_the_driver_nothing() -> Tested {
    let mut pair = Pair::new(32, &[]);
    let null = pair.alloc(0, ONE)?;
    pair.notice(Notice::RecordStream { block: null.block, stream: TWO })?;
    pair.free(null)?;
    assert!(matches!(pair.free(null), Err(AllocError::UnknownBlock(_))));
    assert_eq!(pair.machine.calls().iter().count(), 0);
    Ok(())
}

#[test]
fn out_of_memory_has_its_numbers_and_changes_nothing() -> Tested {
    let mut pair = Pair::new(64, &[]);
    let a = pair.alloc(40, ONE)?;
    let Err(AllocError::OutOfMemory(oom)) = pair.alloc(33, ONE) else { panic!("no room") };
    assert_eq!((oom.asked, oom.reserved, oom.active), (33 * MIB, 64 * MIB, 40 * MIB));
    assert_eq!(oom.device_free, 0);
    pair.free(a)
}

#[test]
fn a_setting_may_change_while_running() -> Tested {
    let mut pair = Pair::new(256, &[]);
    let notice = Notice::Set { key: "release_threshold", value: "1GiB" };
    assert_eq!(pair.notice(notice)?, Reply::Done);
    let a = pair.alloc(32, ONE)?;
    pair.free(a)?;
    pair.machine.device_synchronize()?;
    assert_eq!(pair.machine.held().reserved, 32 * MIB);
    let bad = pair.notice(Notice::Set { key: "release_threshold", value: "x" });
    assert!(matches!(bad, Err(AllocError::BadSetting(_))));
    assert_eq!(pair.notice(Notice::Set { key: "conf", value: "x" })?, Reply::Unsupported);
    Ok(())
}
