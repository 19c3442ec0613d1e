//! Managed memory, rule by rule.

use super::super::{CostTable, DeviceOptions, Link, Links, Price, SimMachine};
use super::{BLOCK, FAULT_BATCH, PAGE};
use crate::driver::{Advice, Driver, DriverError, DriverExt, Place};
use crate::machine::{Machine, ManagedWork, RangeKind, Toucher};
use crate::testing::Dice;
use crate::units::StreamId;

const MIB: u64 = 1 << 20;
const ONE: StreamId = StreamId(1);
const DEVICE: Toucher = Toucher::Device(ONE);
const HOST: Toucher = Toucher::Host;

type Tested = Result<(), DriverError>;

/// A device of so many blocks.
fn machine(blocks: u64) -> SimMachine {
    SimMachine::of_capacity(blocks * BLOCK)
}

fn work(machine: &SimMachine) -> ManagedWork {
    machine.driver_work().managed
}

/// Bytes of managed pages on the device.
fn on_device(machine: &SimMachine) -> u64 {
    machine.held().device_used
}

/// What an access cost: faults, bytes in, bytes out, bytes used over the link.
fn cost(
    machine: &mut SimMachine,
    access: impl FnOnce(&mut SimMachine) -> Tested,
) -> Result<[u64; 4], DriverError> {
    let of = |w: ManagedWork| {
        [w.faults + w.host_faults, w.bytes_to_device, w.bytes_to_host, w.bytes_remote]
    };
    let before = of(work(machine));
    access(machine)?;
    let after = of(work(machine));
    Ok([0, 1, 2, 3].map(|i| after[i] - before[i]))
}

fn read(machine: &mut SimMachine, at: u64, by: Toucher) -> Result<[u64; 4], DriverError> {
    cost(machine, |machine| machine.touch(at, PAGE, false, by))
}

fn write(machine: &mut SimMachine, at: u64, by: Toucher) -> Result<[u64; 4], DriverError> {
    cost(machine, |machine| machine.touch(at, PAGE, true, by))
}

const NOTHING: [u64; 4] = [0; 4];

#[test]
fn first_touch_gives_memory_where_it_is() -> Tested {
    let mut machine = machine(8);
    let a = machine.malloc_managed(3 * MIB)?;
    assert_eq!((machine.held().managed, on_device(&machine)), (3 * MIB, 0));
    assert_eq!(machine.held().reserved, 0);
    let origin = machine.origin(a + 5).map(|o| (o.kind, o.ordinal, o.offset));
    assert_eq!(origin, Some((RangeKind::Managed, 0, 5)));
    assert_eq!(machine.physical(a + 5).map(|p| p.run), Some(3 * MIB - 5));
    assert_eq!(write(&mut machine, a, DEVICE)?, [1, 0, 0, 0]);
    assert_eq!(write(&mut machine, a + PAGE, HOST)?, [1, 0, 0, 0]);
    assert_eq!(on_device(&machine), PAGE);
    assert_eq!(machine.mem_info()?.0, 8 * BLOCK - PAGE);
    assert_eq!(read(&mut machine, a, DEVICE)?, NOTHING);
    assert_eq!(read(&mut machine, a + PAGE, HOST)?, NOTHING);
    Ok(())
}

#[test]
fn page_and_block_are_what_faults_are_counted_by() -> Tested {
    let mut machine = machine(8);
    let (a, b) = (machine.malloc_managed(1)?, machine.malloc_managed(BLOCK + 1)?);
    assert_eq!(b - a, BLOCK);
    machine.touch(b + PAGE - 1, 2, true, DEVICE)?;
    assert_eq!((work(&machine).faults, on_device(&machine)), (2, 2 * PAGE));
    machine.touch(b, BLOCK + 1, true, DEVICE)?;
    assert_eq!((work(&machine).faults, on_device(&machine)), (33, BLOCK + PAGE));
    assert_eq!(cost(&mut machine, |m| m.touch(b, BLOCK + 1, true, DEVICE))?, NOTHING);
    let beyond = machine.touch(b, BLOCK + 2, true, DEVICE).expect_err("one byte too many");
    assert!(beyond.to_string().contains("2097153 to the end of u1"), "{beyond}");
    machine.touch(b, 0, true, DEVICE)?;
    assert!(machine.touch(b + 2 * BLOCK, 1, true, DEVICE).is_err());
    Ok(())
}

#[test]
fn batch_of_faults_is_paid_and_so_is_each_block_in_it() -> Tested {
    let mut options = DeviceOptions { capacity: 64 * BLOCK, ..DeviceOptions::default() };
    let link = Link { bytes_per_second: 1e9, latency_ns: 0 };
    options.links = Links { host_to_device: link, device_to_host: link, ..Links::INSTANT };
    let price = Price { base_ns: 1000.0, per_granule_ns: 10.0, per_byte_ns: 0.0 };
    assert!(options.costs.set("fault_batch", price));
    let mut machine = SimMachine::new(options);
    let blocks = 2 * FAULT_BATCH * PAGE / BLOCK; // two batches, and one page more
    let a = machine.malloc_managed(blocks * BLOCK + PAGE)?;
    machine.touch(a, blocks * BLOCK + PAGE, true, DEVICE)?;
    assert_eq!(machine.now().0, 0, "in the stream's order, not on the host");
    machine.stream_synchronize(ONE)?;
    assert_eq!(machine.now().0, 3 * 1000 + (blocks + 1) * 10);
    assert_eq!(work(&machine).fault_batches, 3);
    let before = machine.now().0;
    machine.touch(a, 10 * PAGE, true, HOST)?;
    assert_eq!(machine.now().0 - before, 10 * PAGE, "the host waits for the copy");
    let before = machine.now().0;
    machine.touch(a, 10 * PAGE, false, DEVICE)?;
    machine.stream_synchronize(ONE)?;
    assert_eq!(machine.now().0 - before, 1000 + 10 + 10 * PAGE);
    Ok(())
}

#[test]
fn migrate_moves_a_page_to_who_touches_it() -> Tested {
    let mut machine = machine(8);
    let a = machine.malloc_managed(MIB)?;
    write(&mut machine, a, HOST)?;
    assert_eq!(read(&mut machine, a, DEVICE)?, [1, PAGE, 0, 0]);
    assert_eq!(on_device(&machine), PAGE);
    assert_eq!(read(&mut machine, a, HOST)?, [1, 0, PAGE, 0]);
    assert_eq!(on_device(&machine), 0);
    Ok(())
}

#[test]
fn evict_takes_the_block_that_took_memory_longest_ago() -> Tested {
    let mut machine = machine(2);
    let a = machine.malloc_managed(3 * BLOCK)?;
    let block = |n: u64| a + n * BLOCK;
    machine.touch(block(0), BLOCK, true, DEVICE)?;
    machine.touch(block(1), BLOCK, true, DEVICE)?;
    machine.touch(block(0), BLOCK, true, DEVICE)?; // a touch that takes no memory does not count
    machine.touch(block(2), PAGE, true, DEVICE)?;
    let counts = work(&machine);
    assert_eq!((counts.evicted_blocks, counts.bytes_evicted), (1, BLOCK));
    assert_eq!(on_device(&machine), BLOCK + PAGE);
    assert_eq!(read(&mut machine, block(1), DEVICE)?, NOTHING, "block 0 went");
    Ok(())
}

#[test]
fn refault_shows_thrash() -> Tested {
    let mut machine = machine(2);
    let a = machine.malloc_managed(3 * BLOCK)?;
    for _ in 0..4 {
        machine.touch(a, 3 * BLOCK, true, DEVICE)?;
    }
    let counts = work(&machine);
    assert_eq!(
        counts.faults,
        4 * 3 * BLOCK / PAGE,
        "in a cycle nothing is there when it is needed"
    );
    assert_eq!(counts.bytes_refaulted, 3 * 3 * BLOCK);
    assert_eq!(counts.bytes_to_device, counts.bytes_refaulted);
    assert_eq!(counts.evicted_blocks, 10);
    assert_eq!(machine.held().peak_device_used, 2 * BLOCK);
    Ok(())
}

#[test]
fn evict_for_others_makes_room_for_a_malloc_a_handle_and_a_pool() -> Tested {
    type Take = fn(&mut SimMachine) -> Result<(), DriverError>;
    let takes: [Take; 3] = [
        |machine| machine.malloc(32 * MIB).map(drop),
        |machine| machine.create(32 * MIB).map(drop),
        |machine| machine.malloc_async(crate::driver::DEFAULT_POOL, 32 * MIB, ONE).map(drop),
    ];
    for take in takes {
        let mut machine = machine(24);
        let a = machine.malloc_managed(24 * BLOCK)?;
        machine.touch(a, 20 * BLOCK, true, DEVICE)?;
        take(&mut machine)?;
        assert_eq!(work(&machine).evicted_blocks, 12);
        assert_eq!(machine.held().reserved, 32 * MIB);
        let refused = machine.malloc(49 * MIB);
        assert!(matches!(refused, Err(DriverError::OutOfMemory { .. })));
        assert_eq!(work(&machine).evicted_blocks, 12, "what nothing can help evicts nothing");
    }
    Ok(())
}

#[test]
fn no_room_and_nothing_to_evict_is_an_error() -> Tested {
    let mut machine = machine(2);
    machine.malloc(2 * BLOCK)?;
    let a = machine.malloc_managed(BLOCK)?;
    let error = machine.touch(a, PAGE, true, DEVICE).expect_err("no room");
    assert!(error.to_string().contains("no managed page to evict"), "{error}");
    machine.prefetch(a, BLOCK, Place::Device, ONE)?;
    assert_eq!(on_device(&machine), 2 * BLOCK, "a prefetch stops");
    Ok(())
}

#[test]
fn preferred_location_is_where_first_touch_goes_if_it_can() -> Tested {
    let mut machine = machine(8);
    let [a, b] = [machine.malloc_managed(MIB)?, machine.malloc_managed(MIB)?];
    machine.advise(a, MIB, Advice::Preferred(Some(Place::Host)))?;
    machine.advise(b, MIB, Advice::Preferred(Some(Place::Device)))?;
    assert_eq!(write(&mut machine, a, DEVICE)?, [1, 0, 0, PAGE], "to the host, over the link");
    assert_eq!(read(&mut machine, a, DEVICE)?, [0, 0, 0, PAGE], "mapped since");
    write(&mut machine, a + PAGE, HOST)?;
    assert_eq!(read(&mut machine, a + PAGE, DEVICE)?, [1, 0, 0, PAGE], "it stays");
    assert_eq!(on_device(&machine), 0);
    assert_eq!(write(&mut machine, b, HOST)?, [1, 0, 0, 0], "a host reaches no device");
    assert_eq!(read(&mut machine, b, DEVICE)?, [1, PAGE, 0, 0]);
    assert_eq!(read(&mut machine, b, HOST)?, [1, 0, PAGE, 0]);
    machine.advise(a, MIB, Advice::Preferred(None))?;
    assert_eq!(read(&mut machine, a, DEVICE)?, [0, 0, 0, PAGE], "what is mapped stays so");
    write(&mut machine, a + 2 * PAGE, HOST)?;
    assert_eq!(read(&mut machine, a + 2 * PAGE, DEVICE)?, [1, PAGE, 0, 0]);
    Ok(())
}

#[test]
fn accessed_by_maps_at_once_and_after_each_move() -> Tested {
    let mut machine = machine(8);
    let a = machine.malloc_managed(MIB)?;
    write(&mut machine, a, HOST)?;
    machine.advise(a, MIB, Advice::AccessedBy(Place::Device, true))?;
    assert_eq!(read(&mut machine, a, DEVICE)?, [0, 0, 0, PAGE]);
    write(&mut machine, a + PAGE, DEVICE)?;
    assert_eq!(on_device(&machine), PAGE, "first touch is as ever");
    assert_eq!(read(&mut machine, a + PAGE, HOST)?, [1, 0, PAGE, 0]);
    assert_eq!(write(&mut machine, a + PAGE, DEVICE)?, [0, 0, 0, PAGE]);
    machine.advise(a, MIB, Advice::AccessedBy(Place::Device, false))?;
    assert_eq!(read(&mut machine, a, DEVICE)?, [0, 0, 0, PAGE], "mappings stay");
    machine.advise(a, MIB, Advice::AccessedBy(Place::Host, true))?;
    write(&mut machine, a + 2 * PAGE, DEVICE)?;
    assert_eq!(read(&mut machine, a + 2 * PAGE, HOST)?, [1, 0, PAGE, 0], "means nothing");
    Ok(())
}

#[test]
fn read_mostly_keeps_copies_until_someone_writes() -> Tested {
    let mut machine = machine(8);
    let a = machine.malloc_managed(MIB)?;
    machine.advise(a, MIB, Advice::ReadMostly(true))?;
    write(&mut machine, a, HOST)?;
    assert_eq!(read(&mut machine, a, DEVICE)?, [1, PAGE, 0, 0]);
    assert_eq!((read(&mut machine, a, HOST)?, read(&mut machine, a, DEVICE)?), (NOTHING, NOTHING));
    assert_eq!(write(&mut machine, a, DEVICE)?, [1, 0, 0, 0], "it has a copy: no data moves");
    assert_eq!(write(&mut machine, a, DEVICE)?, NOTHING);
    assert_eq!(read(&mut machine, a, HOST)?, [1, 0, PAGE, 0]);
    assert_eq!(write(&mut machine, a, HOST)?, [1, 0, 0, 0]);
    assert_eq!(on_device(&machine), 0, "the device's copy is gone");
    assert_eq!(write(&mut machine, a, DEVICE)?, [1, PAGE, 0, 0], "it has none: the page moves");
    assert_eq!(read(&mut machine, a, HOST)?, [1, 0, PAGE, 0]);
    Ok(())
}

#[test]
fn read_mostly_copies_are_evicted_without_a_transfer() -> Tested {
    let mut machine = machine(1);
    let a = machine.malloc_managed(2 * BLOCK)?;
    machine.advise(a, BLOCK, Advice::ReadMostly(true))?;
    machine.touch(a, BLOCK, true, HOST)?;
    machine.touch(a, BLOCK, false, DEVICE)?;
    machine.touch(a + BLOCK, PAGE, true, DEVICE)?;
    assert_eq!((work(&machine).evicted_blocks, work(&machine).bytes_to_host), (1, 0));
    Ok(())
}

#[test]
fn unset_read_mostly_leaves_one_copy() -> Tested {
    for (preferred, left) in [(None, 0), (Some(Place::Device), PAGE)] {
        let mut machine = machine(8);
        let a = machine.malloc_managed(MIB)?;
        machine.advise(a, MIB, Advice::Preferred(preferred))?;
        machine.advise(a, MIB, Advice::ReadMostly(true))?;
        write(&mut machine, a, HOST)?;
        read(&mut machine, a, DEVICE)?;
        machine.advise(a, MIB, Advice::ReadMostly(false))?;
        assert_eq!(on_device(&machine), left);
        assert_eq!(read(&mut machine, a, HOST)?[0], left / PAGE);
    }
    Ok(())
}

#[test]
fn prefetch_moves_in_the_streams_order_without_faults() -> Tested {
    let mut options = DeviceOptions { capacity: 8 * BLOCK, ..DeviceOptions::default() };
    options.links.host_to_device = Link { bytes_per_second: 1e9, latency_ns: 0 };
    options.costs = CostTable::zero();
    let mut machine = SimMachine::new(options);
    let a = machine.malloc_managed(2 * BLOCK)?;
    machine.touch(a, BLOCK, true, HOST)?;
    machine.prefetch(a, 2 * BLOCK, Place::Device, ONE)?;
    assert_eq!(machine.now().0, 0);
    machine.stream_synchronize(ONE)?;
    assert_eq!(machine.now().0, BLOCK, "what was nowhere comes without a transfer");
    assert_eq!(cost(&mut machine, |m| m.touch(a, 2 * BLOCK, true, DEVICE))?, NOTHING);
    assert_eq!((work(&machine).faults, work(&machine).bytes_prefetched), (0, BLOCK));
    machine.prefetch(a, BLOCK, Place::Host, ONE)?;
    assert_eq!((on_device(&machine), work(&machine).bytes_to_host), (BLOCK, BLOCK));
    machine.advise(a, BLOCK, Advice::Preferred(Some(Place::Host)))?;
    machine.prefetch(a, BLOCK, Place::Device, ONE)?;
    assert_eq!(on_device(&machine), 2 * BLOCK, "whatever is preferred");
    assert!(machine.prefetch(a + 3 * BLOCK, 1, Place::Device, ONE).is_err());
    Ok(())
}

#[test]
fn free_waits_for_the_device_and_moves_nothing() -> Tested {
    let mut machine = machine(8);
    let a = machine.malloc_managed(3 * BLOCK)?;
    machine.touch(a, 3 * BLOCK, true, DEVICE)?;
    machine.launch(ONE, 100)?;
    machine.free(a)?;
    assert_eq!((machine.now().0, on_device(&machine), machine.held().managed), (100, 0, 0));
    assert_eq!(work(&machine).bytes_to_host, 0);
    assert_eq!(machine.held().peak_managed, 3 * BLOCK);
    assert!(machine.free(a).is_err());
    assert_eq!(machine.malloc_managed(1)?, a);
    machine.touch(a, 1, true, DEVICE)?;
    Ok(())
}

#[test]
fn host_room_limits_ranges_and_host_memory_together() -> Tested {
    let mut machine =
        SimMachine::new(DeviceOptions { host_capacity: 4 * MIB, ..DeviceOptions::default() });
    let a = machine.malloc_managed(3 * MIB)?;
    let refused = Err(DriverError::OutOfMemory { asked: 2 * MIB, free: MIB });
    assert_eq!(machine.malloc_host(2 * MIB, true), refused);
    assert_eq!(machine.malloc_managed(2 * MIB), refused);
    let too_large = DriverError::OutOfMemory { asked: u64::MAX, free: MIB };
    assert_eq!(machine.malloc_managed(u64::MAX), Err(too_large));
    machine.malloc_host(MIB, true)?;
    machine.free(a)?;
    machine.malloc_managed(3 * MIB)?;
    assert!(machine.malloc_managed(0).is_err() && machine.families().managed);
    Ok(())
}

/// Random accesses, prefetches and advice: the device holds what its pages take, and never more than it has.
#[test]
fn books_and_pages_agree() -> Tested {
    let mut machine = machine(5);
    let mut ranges = Vec::new();
    let mut dice = Dice::of_step_1(9);
    for _ in 0..30_000 {
        let draw = dice.bits() >> 33;
        let pick = |n: u64| (draw / 7 % n) as usize;
        if ranges.len() < 4 {
            let size = 1 + draw % (4 * BLOCK);
            ranges.push((machine.malloc_managed(size)?, size));
            continue;
        }
        let (start, size) = ranges[pick(4)];
        let at = draw / 3 % size;
        let len = 1 + draw / 5 % (size - at);
        let on = draw & 1 == 0;
        match draw / 11 % 32 {
            0..12 => machine.touch(start + at, len, on, DEVICE)?,
            12..20 => machine.touch(start + at, len, on, HOST)?,
            20 => machine.prefetch(start + at, len, Place::Device, ONE)?,
            21 => machine.prefetch(start + at, len, Place::Host, ONE)?,
            22..24 => machine.advise(start + at, len, Advice::ReadMostly(on))?,
            24 => machine.advise(start + at, len, Advice::AccessedBy(Place::Device, on))?,
            25 => machine.advise(start + at, len, Advice::Preferred(Some(Place::Device)))?,
            26 => machine.advise(start + at, len, Advice::Preferred(Some(Place::Host)))?,
            27 => machine.advise(start + at, len, Advice::Preferred(None))?,
            28 if on => machine.free(ranges.swap_remove(pick(4)).0)?,
            _ => {}
        }
        let managed = &machine.devices[0].managed;
        let blocks = managed.ranges.values().flat_map(|range| &range.blocks);
        let pages: u32 = blocks.clone().map(|block| block.on_device.count_ones()).sum();
        assert_eq!(u64::from(pages) * PAGE, machine.held().device_used);
        assert!(machine.held().device_used <= 5 * BLOCK);
        let resident = blocks.clone().filter(|block| block.on_device != 0).count();
        assert_eq!(managed.lru.len(), resident);
        assert!(blocks.clone().all(|b| b.mapped & (b.on_device | !b.on_host) == 0));
        let settled: u64 = managed.ranges.values().map(|range| range.settled).sum();
        let alone: u32 = blocks.map(|b| (b.on_device & !b.on_host).count_ones()).sum();
        assert_eq!(settled, u64::from(alone));
        assert_eq!(machine.held().managed, ranges.iter().map(|(_, size)| size).sum::<u64>());
    }
    assert!(work(&machine).evicted_blocks > 100);
    Ok(())
}

/// A refused call changes nothing: what could not find room anyway makes nothing leave.
#[test]
fn what_no_eviction_helps_evicts_nothing() -> Tested {
    let mut machine = machine(4);
    let a = machine.malloc_managed(3 * BLOCK)?;
    machine.touch(a, 3 * BLOCK, true, DEVICE)?;
    assert!(machine.malloc(5 * BLOCK).is_err() && machine.create(8 * BLOCK).is_err());
    assert_eq!((work(&machine).evicted_blocks, on_device(&machine)), (0, 3 * BLOCK));
    machine.malloc(2 * BLOCK)?;
    assert_eq!(work(&machine).evicted_blocks, 1);
    Ok(())
}

#[test]
fn efforts_at_the_end_of_time_do_not_wrap() -> Tested {
    let mut costs = CostTable::zero();
    costs.set("host_fault", Price::flat(1000.0));
    let mut machine = SimMachine::new(DeviceOptions { costs, ..DeviceOptions::default() });
    let a = machine.malloc_managed(BLOCK)?;
    machine.touch(a, BLOCK, true, DEVICE)?;
    machine.wait_until(crate::units::Nanos(u64::MAX - 1));
    machine.touch(a, BLOCK, true, HOST)?;
    assert_eq!(machine.now().0, u64::MAX);
    Ok(())
}
