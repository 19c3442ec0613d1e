//! Stream-ordered pools, rule by rule.

use super::*;
use crate::driver::{DriverExt, PoolAttribute};
use crate::machine::Machine;
use crate::machine::RangeKind;
use crate::testing::Dice;
use crate::units::{Nanos, PoolId};

const MIB: u64 = 1 << 20;
const POOL: PoolId = PoolId(0);
const ONE: StreamId = StreamId(1);
const TWO: StreamId = StreamId(2);

type Tested = Result<(), DriverError>;

fn machine(capacity: u64) -> SimMachine {
    SimMachine::of_capacity(capacity)
}

fn keep_all(machine: &mut SimMachine) -> Tested {
    machine.pool_set(POOL, PoolAttribute::ReleaseThreshold, u64::MAX)
}

fn reserved(machine: &mut SimMachine) -> Result<u64, DriverError> {
    machine.pool_get(POOL, PoolAttribute::ReservedCurrent)
}

#[test]
fn a_pool_grows_by_32_mib_and_serves_from_the_low_end() -> Tested {
    let mut machine = machine(100 * MIB);
    let a = machine.malloc_async(POOL, 1000, ONE)?;
    let b = machine.malloc_async(POOL, 1, ONE)?;
    assert_eq!((a, b), (0x7400_0000_0000, 0x7400_0000_0400));
    assert_eq!(machine.held().reserved, 32 * MIB);
    assert_eq!(machine.pool_get(POOL, PoolAttribute::UsedCurrent)?, 1001);
    assert_eq!(
        machine.origin(b).map(|o| (o.kind, o.ordinal, o.offset)),
        Some((RangeKind::Pool, 0, 1024))
    );
    machine.malloc_async(POOL, 33 * MIB, ONE)?;
    assert_eq!(reserved(&mut machine)?, 96 * MIB);
    assert_eq!(machine.mem_info()?, (4 * MIB, 100 * MIB));
    machine.malloc_async(POOL, 64 * MIB, ONE).expect_err("no room");
    machine.malloc_async(POOL, 31 * MIB, ONE)?;
    machine.malloc_async(POOL, 31 * MIB, ONE)?;
    machine.malloc_async(POOL, 3 * MIB, ONE)?;
    assert_eq!(reserved(&mut machine)?, 100 * MIB, "whole granules where 32 MiB does not fit");
    Ok(())
}

#[test]
fn the_freeing_stream_uses_memory_again_at_once_and_others_do_not() -> Tested {
    let mut machine = machine(64 * MIB);
    let a = machine.malloc_async(POOL, 32 * MIB, ONE)?;
    machine.launch(ONE, 100)?;
    machine.free_async(a, ONE)?;
    assert_eq!(machine.malloc_async(POOL, 32 * MIB, ONE)?, a);
    machine.free_async(a, ONE)?;
    let b = machine.malloc_async(POOL, 32 * MIB, TWO)?;
    assert_ne!(a, b);
    assert_eq!(reserved(&mut machine)?, 64 * MIB);
    Ok(())
}

#[test]
fn follow_needs_an_event_wait_and_its_attribute() -> Tested {
    for on in [1, 0] {
        let mut machine = machine(64 * MIB);
        machine.pool_set(POOL, PoolAttribute::ReuseFollowEventDependencies, on)?;
        let a = machine.malloc_async(POOL, 32 * MIB, ONE)?;
        machine.launch(ONE, 100)?;
        machine.free_async(a, ONE)?;
        let event = machine.event_create()?;
        machine.event_record(event, ONE)?;
        machine.wait_event(TWO, event)?;
        assert_eq!(machine.malloc_async(POOL, 32 * MIB, TWO)? == a, on == 1);
    }
    Ok(())
}

#[test]
fn opportunistic_needs_the_free_to_be_over_and_orders_the_streams() -> Tested {
    for on in [1, 0] {
        let mut machine = machine(64 * MIB);
        machine.pool_set(POOL, PoolAttribute::ReuseAllowOpportunistic, on)?;
        let a = machine.malloc_async(POOL, 32 * MIB, ONE)?;
        machine.launch(ONE, 100)?;
        let stamp = machine.stamp(ONE).expect("known");
        machine.free_async(a, ONE)?;
        machine.spend(100);
        assert!(!machine.ordered(stamp, TWO));
        assert_eq!(machine.malloc_async(POOL, 32 * MIB, TWO)? == a, on == 1);
        assert_eq!(machine.ordered(stamp, TWO), on == 1);
    }
    Ok(())
}

#[test]
fn internal_dependencies_come_after_growth_and_make_the_stream_wait() -> Tested {
    for on in [1, 0] {
        let mut machine = machine(32 * MIB);
        machine.pool_set(POOL, PoolAttribute::ReuseAllowInternalDependencies, on)?;
        let a = machine.malloc_async(POOL, 32 * MIB, ONE)?;
        machine.launch(ONE, 100)?;
        machine.free_async(a, ONE)?;
        let got = machine.malloc_async(POOL, MIB, TWO);
        if on == 1 {
            assert_eq!(got, Ok(a));
            machine.launch(TWO, 1)?;
            machine.stream_synchronize(TWO)?;
            assert_eq!(machine.now(), Nanos(101));
        } else {
            assert_eq!(got, Err(DriverError::OutOfMemory { asked: MIB, free: 0 }));
        }
    }
    Ok(())
}

#[test]
fn a_synchronisation_releases_above_the_threshold_and_frees_for_all() -> Tested {
    let mut machine = machine(256 * MIB);
    let a = machine.malloc_async(POOL, 32 * MIB, ONE)?;
    let b = machine.malloc_async(POOL, 32 * MIB, ONE)?;
    machine.launch(ONE, 100)?;
    machine.free_async(a, ONE)?;
    assert_eq!(reserved(&mut machine)?, 64 * MIB);
    machine.stream_synchronize(TWO)?;
    assert_eq!(reserved(&mut machine)?, 64 * MIB, "the free is not over");
    machine.stream_synchronize(ONE)?;
    assert_eq!(reserved(&mut machine)?, 32 * MIB);
    keep_all(&mut machine)?;
    machine.free_async(b, ONE)?;
    machine.stream_synchronize(ONE)?;
    assert_eq!(reserved(&mut machine)?, 32 * MIB, "below the threshold");
    for attribute in
        [PoolAttribute::ReuseAllowOpportunistic, PoolAttribute::ReuseFollowEventDependencies]
    {
        machine.pool_set(POOL, attribute, 0)?;
    }
    assert_eq!(machine.malloc_async(POOL, 32 * MIB, TWO)?, b, "whatever the attributes");
    machine.free_async(b, TWO)?;
    machine.device_synchronize()?;
    machine.pool_trim(POOL, 32 * MIB)?;
    assert_eq!(reserved(&mut machine)?, 32 * MIB);
    machine.pool_trim(POOL, 0)?;
    assert_eq!(machine.held().reserved, 0);
    assert_eq!(machine.held().peak_reserved, 64 * MIB);
    Ok(())
}

#[test]
fn neighbours_join_before_the_pool_grows() -> Tested {
    let mut machine = machine(32 * MIB);
    keep_all(&mut machine)?;
    let blocks = (0..4).map(|_| machine.malloc_async(POOL, 8 * MIB, ONE));
    let blocks: Vec<_> = blocks.collect::<Result<_, _>>()?;
    machine.free_async(blocks[0], ONE)?;
    machine.free_async(blocks[1], TWO)?;
    machine.free_async(blocks[2], ONE)?;
    assert_eq!(machine.malloc_async(POOL, 24 * MIB, ONE)?, blocks[0]);
    Ok(())
}

#[test]
fn empty_chunks_make_room_for_a_larger_one() -> Tested {
    let mut machine = machine(64 * MIB);
    keep_all(&mut machine)?;
    let (a, b) =
        (machine.malloc_async(POOL, 32 * MIB, ONE)?, machine.malloc_async(POOL, 32 * MIB, ONE)?);
    machine.free_async(a, ONE)?;
    machine.free_async(b, ONE)?;
    machine.malloc_async(POOL, 48 * MIB, ONE)?;
    assert_eq!(reserved(&mut machine)?, 64 * MIB);
    Ok(())
}

#[test]
fn pools_are_apart_and_a_destroyed_one_gives_all_back() -> Tested {
    let mut machine = machine(128 * MIB);
    let pool = machine.pool_create()?;
    assert_eq!(pool, PoolId(1));
    let a = machine.malloc_async(pool, 5, ONE)?;
    let b = machine.malloc_async(POOL, 5, ONE)?;
    assert_eq!(b - a, 32 * MIB);
    machine.pool_destroy(pool)?;
    assert_eq!(machine.held().reserved, 64 * MIB, "a block lives on");
    assert!(machine.malloc_async(pool, 5, ONE).is_err());
    machine.free_async(a, ONE)?;
    assert_eq!(machine.held().reserved, 32 * MIB);
    assert!(machine.pool_destroy(POOL).is_err());
    assert!(machine.free_async(a, ONE).is_err());
    assert!(machine.pool_set(POOL, PoolAttribute::UsedCurrent, 0).is_err());
    Ok(())
}

#[test]
fn each_kind_of_free_takes_the_others_memory() -> Tested {
    let mut machine = machine(64 * MIB);
    let a = machine.malloc_async(POOL, 5, ONE)?;
    machine.launch(ONE, 100)?;
    machine.free(a)?;
    assert_eq!(machine.now(), Nanos(0), "no wait for a pool's range");
    let b = machine.malloc(2 * MIB)?;
    machine.free_async(b, ONE)?;
    assert!(machine.free(b).is_err() && machine.free_async(b, ONE).is_err());
    assert_eq!(machine.held().reserved, 34 * MIB);
    machine.stream_synchronize(ONE)?;
    machine.mem_info()?;
    assert_eq!(machine.held().reserved, 0);
    Ok(())
}

#[test]
fn pieces_of_several_owners_join_where_the_asker_may_use_both() -> Tested {
    let mut machine = machine(32 * MIB);
    keep_all(&mut machine)?;
    for attribute in
        [PoolAttribute::ReuseAllowOpportunistic, PoolAttribute::ReuseAllowInternalDependencies]
    {
        machine.pool_set(POOL, attribute, 0)?;
    }
    let blocks = (0..4).map(|_| machine.malloc_async(POOL, 8 * MIB, ONE));
    let blocks: Vec<_> = blocks.collect::<Result<_, _>>()?;
    machine.free_async(blocks[0], ONE)?;
    machine.stream_synchronize(ONE)?; // for anyone from here on
    machine.free_async(blocks[1], ONE)?;
    machine.free_async(blocks[2], TWO)?;
    machine
        .malloc_async(POOL, 9 * MIB, TWO)
        .expect_err("one for anyone, one of stream 1, one of its own");
    machine.free_async(blocks[3], TWO)?;
    assert_eq!(machine.malloc_async(POOL, 16 * MIB, TWO)?, blocks[2]);
    assert_eq!(machine.malloc_async(POOL, 16 * MIB, ONE)?, blocks[0]);
    Ok(())
}

#[test]
fn growth_and_release_are_counted() -> Tested {
    let mut machine = machine(256 * MIB);
    for round in 1..=3 {
        let a = machine.malloc_async(POOL, 40 * MIB, ONE)?;
        let b = machine.malloc_async(POOL, MIB, ONE)?;
        machine.free_async(a, ONE)?;
        machine.free_async(b, ONE)?;
        machine.stream_synchronize(ONE)?;
        let work = machine.driver_work();
        assert_eq!((work.pool_growths, work.pool_releases), (round, round), "64 MiB serve both");
    }
    Ok(())
}

/// Random use by three streams: ranges never overlap, and the books agree with the pool.
#[test]
fn live_ranges_never_overlap() -> Tested {
    let mut machine = machine(200 * MIB);
    let mut live: Vec<(u64, u64)> = Vec::new();
    let mut dice = Dice::of_step_1(5);
    let mut refused = 0;
    for _ in 0..20_000 {
        let draw = dice.bits() >> 33;
        let stream = StreamId((draw % 3) as u32);
        match draw / 3 % 16 {
            0..8 => {
                let size = 1 + (draw >> 7) % (9 * MIB);
                match machine.malloc_async(POOL, size, stream) {
                    Ok(at) => {
                        let apart =
                            |(start, len): &(u64, u64)| at + size <= *start || start + len <= at;
                        assert!(live.iter().all(apart));
                        live.push((at, size));
                    }
                    Err(DriverError::OutOfMemory { .. }) => refused += 1,
                    Err(other) => return Err(other),
                }
            }
            8..14 if !live.is_empty() => {
                let (at, _) = live.swap_remove((draw >> 9) as usize % live.len());
                machine.free_async(at, stream)?;
            }
            14 => machine.launch(stream, draw % 500)?,
            _ if draw.is_multiple_of(64) => machine.stream_synchronize(stream)?,
            _ => machine.spend(50),
        }
        let used: u64 = live.iter().map(|(_, size)| size).sum();
        assert_eq!(machine.pool_get(POOL, PoolAttribute::UsedCurrent)?, used);
        assert_eq!(reserved(&mut machine)?, machine.held().reserved);
    }
    assert!(refused > 0);
    assert!(machine.held().peak_reserved > 192 * MIB, "{}", machine.held().peak_reserved);
    Ok(())
}

/// A piece joined of another stream's keeps that stream's moment: who follows that stream may have it, whoever joined it.
#[test]
fn what_was_joined_is_followed_as_before() -> Tested {
    let mut machine = machine(64 * MIB);
    let a = machine.malloc_async(POOL, 10 * MIB, TWO)?;
    (0..3).try_for_each(|_| machine.launch(TWO, 1_000_000))?;
    machine.free_async(a, TWO)?;
    let event = machine.event_create()?;
    machine.event_record(event, TWO)?;
    machine.wait_event(ONE, event)?;
    machine.malloc_async(POOL, 30 * MIB, ONE)?;
    machine.wait_event(StreamId(3), event)?;
    machine.malloc_async(POOL, 2 * MIB, StreamId(3))?;
    assert_eq!(reserved(&mut machine)?, 32 * MIB, "what is left of the joined piece serves it");
    Ok(())
}
