use super::*;
use crate::driver::{DriverExt, Handle};
use crate::machine::RangeKind;
use crate::machine::{Direction, Machine};
use crate::units::StreamId;
use crate::units::{DeviceId, Nanos};

const MIB: u64 = 1 << 20;

type Tested = Result<(), DriverError>;

fn message<T: std::fmt::Debug>(answer: Result<T, DriverError>) -> String {
    answer.expect_err("expected a refusal").to_string()
}

#[test]
fn malloc_rounds_to_the_granule_and_uses_ranges_again() -> Tested {
    let mut machine = SimMachine::of_capacity(8 * MIB);
    let a = machine.malloc(1)?;
    let b = machine.malloc(3 * MIB)?;
    assert_eq!((a, b), (0x7000_0000_0000, 0x7000_0020_0000));
    assert_eq!(machine.held().reserved, 1 + 3 * MIB);
    assert_eq!(machine.held().device_used, 6 * MIB);
    assert_eq!(
        machine.malloc(2 * MIB + 1),
        Err(DriverError::OutOfMemory { asked: 2 * MIB + 1, free: 2 * MIB })
    );
    assert_eq!(
        machine.malloc(u64::MAX),
        Err(DriverError::OutOfMemory { asked: u64::MAX, free: 2 * MIB })
    );
    machine.free(a)?;
    assert_eq!(machine.malloc(2 * MIB)?, a);
    machine.other_process(2 * MIB);
    assert_eq!(machine.mem_info()?, (0, 8 * MIB));
    assert_eq!(machine.held().peak_device_used, 6 * MIB);
    assert_eq!(
        machine.origin(b + 5).map(|o| (o.kind, o.ordinal, o.offset)),
        Some((RangeKind::Malloc, 1, 5))
    );
    assert_eq!(machine.calls().get("cudaMalloc"), 5);
    assert_eq!(machine.refused().get("cudaMalloc"), 2);
    assert!(message(machine.free(b + 4)).contains("4 bytes inside m1"));
    Ok(())
}

#[test]
fn small_mallocs_share_a_granule_if_the_device_packs() -> Tested {
    let mut machine =
        SimMachine::new(DeviceOptions { pack_small: true, ..DeviceOptions::default() });
    let a = machine.malloc(MIB)?;
    let b = machine.malloc(1000)?;
    assert_eq!(b, a + MIB);
    assert_eq!(machine.held().device_used, 2 * MIB);
    let c = machine.malloc(MIB)?;
    assert_eq!(c, a + 2 * MIB);
    machine.free(a)?;
    assert_eq!(machine.malloc(2000)?, a);
    machine.free(a)?;
    machine.free(b)?;
    assert_eq!(machine.held().device_used, 2 * MIB);
    machine.free(c)?;
    assert_eq!(machine.held().device_used, 0);
    assert_eq!(machine.malloc(5 * MIB)?, a);
    Ok(())
}

#[test]
fn one_handle_may_be_mapped_twice_and_keeps_its_bytes() -> Tested {
    let mut machine = SimMachine::of_capacity(4 * MIB);
    let range = machine.reserve(20 * MIB)?;
    assert_eq!(range, 0x7800_0000_0000);
    assert_eq!(machine.reserve(1)?, range + 20 * MIB);
    let handle = machine.create(2 * MIB)?;
    machine.map(range, handle)?;
    machine.map(range + 6 * MIB, handle)?;
    machine.set_access(range, 2 * MIB)?;
    let (low, high) = (machine.physical(range + 7), machine.physical(range + 6 * MIB + 7));
    assert_eq!(low, high);
    assert_eq!(low.map(|p| (p.offset, p.run)), Some((7, 2 * MIB - 7)));
    machine.release(handle)?;
    machine.unmap(range, 2 * MIB)?;
    assert_eq!(machine.held().reserved, 2 * MIB, "still mapped once");
    machine.unmap(range + 6 * MIB, 2 * MIB)?;
    assert_eq!(machine.held().device_used, 0);
    machine.unreserve(range)?;
    Ok(())
}

#[test]
fn misuse_of_virtual_memory_is_refused_with_what_was_found() -> Tested {
    let mut machine = SimMachine::of_capacity(64 * MIB);
    let range = machine.reserve(8 * MIB)?;
    let big = machine.create(4 * MIB)?;
    assert!(message(machine.create(3 * MIB)).contains("multiple of the granule"));
    assert!(message(machine.map(range, Handle(7))).contains("found h7"));
    assert!(message(machine.map(5, big)).contains("reserved range"));
    assert!(message(machine.map(range + 6 * MIB, big)).contains("at most 2097152"));
    assert!(message(machine.map(range + MIB, big)).contains("expected a multiple of"));
    machine.map(range, big)?;
    assert!(
        message(machine.map(range + 2 * MIB, big)).contains("found h0 mapped at offset 0 of r0")
    );
    assert!(message(machine.unmap(range, 2 * MIB)).contains("end inside h0"));
    assert!(message(machine.unmap(range + 2 * MIB, 2 * MIB)).contains("covers a part"));
    assert!(message(machine.set_access(range, 6 * MIB)).contains("nothing mapped"));
    assert!(message(machine.unreserve(range)).contains("1 handles mapped in r0"));
    machine.release(big)?;
    assert!(message(machine.release(big)).contains("released"));
    machine.unmap(range, 4 * MIB)?;
    machine.unreserve(range)?;
    assert!(message(machine.unreserve(range)).contains("expected the beginning"));
    assert!(message(machine.malloc(0)).contains("size 0"));
    Ok(())
}

#[test]
fn streams_run_side_by_side_and_events_tie_them() -> Tested {
    let mut machine = SimMachine::of_capacity(MIB);
    let (one, two) = (StreamId(1), StreamId(70_000));
    machine.launch(one, 100)?;
    machine.launch(two, 30)?;
    let event = machine.event_create()?;
    assert!(machine.event_query(event)?, "never recorded is complete");
    machine.event_record(event, one)?;
    assert!(!machine.event_query(event)?);
    machine.wait_event(two, event)?;
    machine.launch(two, 10)?;
    machine.wait_until(Nanos(99));
    assert!(!machine.event_query(event)?);
    machine.stream_synchronize(two)?;
    assert_eq!(machine.now(), Nanos(110));
    assert!(machine.event_query(event)?);
    machine.event_destroy(event)?;
    assert!(message(machine.event_query(event)).contains("destroyed"));
    Ok(())
}

#[test]
fn free_waits_for_every_stream_of_its_device() -> Tested {
    let mut options = DeviceOptions::default();
    assert!(options.costs.set("cudaFree", Price::flat(7.0)));
    let mut machine = SimMachine::with_devices([options.clone(), options]);
    machine.select(DeviceId(1))?;
    machine.launch(StreamId(0), 1_000)?;
    machine.select(DeviceId(0))?;
    let a = machine.malloc(1)?;
    machine.launch(StreamId(2), 50)?;
    machine.free(a)?;
    assert_eq!(machine.now(), Nanos(57));
    assert!(message(machine.select(DeviceId(2))).contains("one of 2 devices"));
    Ok(())
}

#[test]
fn transfers_of_one_direction_share_an_engine() -> Tested {
    let link = Link { bytes_per_second: 1e9, latency_ns: 10 };
    let links = Links { host_to_device: link, device_to_host: link, ..Links::INSTANT };
    let mut machine = SimMachine::new(DeviceOptions { links, ..DeviceOptions::default() });
    machine.transfer(StreamId(1), 100, Direction::HostToDevice)?;
    machine.transfer(StreamId(2), 100, Direction::HostToDevice)?;
    machine.transfer(StreamId(3), 100, Direction::DeviceToHost)?;
    machine.stream_synchronize(StreamId(3))?;
    assert_eq!(machine.now(), Nanos(110));
    machine.device_synchronize()?;
    assert_eq!(machine.now(), Nanos(220));
    Ok(())
}

/// Work on stream 1, then `link`, then: is the work ordered before what stream 2 is given next?
fn is_ordered(
    link: impl FnOnce(&mut SimMachine) -> Result<(), DriverError>,
) -> Result<bool, DriverError> {
    let mut machine = SimMachine::of_capacity(4 * MIB);
    machine.launch(StreamId(1), 0)?;
    machine.launch(StreamId(2), 0)?;
    let stamp = machine.stamp(StreamId(1)).expect("a simulated machine knows");
    link(&mut machine)?;
    machine.launch(StreamId(2), 0)?;
    Ok(machine.ordered(stamp, StreamId(2)))
}

#[test]
fn order_comes_from_events_waits_and_the_host_and_not_from_the_clock() -> Tested {
    let (one, two, three) = (StreamId(1), StreamId(2), StreamId(3));
    assert!(!is_ordered(|_| Ok(()))?);
    assert!(!is_ordered(|m| {
        m.spend(1_000_000);
        Ok(())
    })?);
    let recorded = |m: &mut SimMachine| {
        let event = m.event_create()?;
        m.event_record(event, one)?;
        Ok::<_, DriverError>(event)
    };
    assert!(!is_ordered(|m| recorded(m).map(drop))?);
    assert!(is_ordered(|m| recorded(m).and_then(|e| m.wait_event(two, e)))?);
    assert!(!is_ordered(|m| recorded(m).and_then(|e| m.wait_event(three, e)))?);
    assert!(is_ordered(|m| recorded(m).and_then(|e| m.event_query(e)).map(drop))?);
    assert!(is_ordered(|m| recorded(m).and_then(|e| m.event_synchronize(e)))?);
    assert!(is_ordered(|m| m.stream_synchronize(one))?);
    assert!(!is_ordered(|m| m.stream_synchronize(three))?);
    assert!(is_ordered(SimMachine::device_synchronize)?);
    assert!(is_ordered(|m| m.malloc(1).and_then(|a| m.free(a)))?);
    // through a third stream, which hears of it by an event and is then waited for
    assert!(is_ordered(|m| {
        recorded(m).and_then(|e| m.wait_event(three, e))?;
        m.stream_synchronize(three)
    })?);
    Ok(())
}

#[test]
fn a_stamp_of_later_work_is_not_covered_by_an_earlier_event() -> Tested {
    let mut machine = SimMachine::of_capacity(MIB);
    let (one, two) = (StreamId(1), StreamId(2));
    machine.launch(one, 5)?;
    let event = machine.event_create()?;
    machine.event_record(event, one)?;
    machine.launch(one, 5)?;
    let stamp = machine.stamp(one).expect("a simulated machine knows");
    machine.wait_event(two, event)?;
    assert!(!machine.ordered(stamp, two));
    assert!(machine.ordered(stamp, one));
    machine.stream_synchronize(one)?;
    assert!(machine.ordered(stamp, two));
    Ok(())
}

#[test]
fn families_that_a_device_lacks_are_declared_and_refused() {
    let families = Families::CLASSIC;
    let mut machine = SimMachine::new(DeviceOptions { families, ..DeviceOptions::default() });
    assert_eq!(machine.families(), families);
    for (call, answer) in [
        ("cuMemCreate", machine.create(2 * MIB).map(drop)),
        ("cudaMallocHost", machine.malloc_host(1, true).map(drop)),
        ("cudaMallocManaged", machine.malloc_managed(1).map(drop)),
    ] {
        assert_eq!(answer, Err(DriverError::NotSupported { call }));
    }
}

#[test]
fn host_memory_ends_at_its_capacity_and_takes_nothing_of_the_device() -> Tested {
    let options = DeviceOptions { host_capacity: 10_000, ..DeviceOptions::default() };
    let mut machine = SimMachine::new(options);
    let a = machine.malloc_host(6_000, false)?;
    let refused = machine.malloc_host(4_001, true);
    assert_eq!(refused, Err(DriverError::OutOfMemory { asked: 4_001, free: 4_000 }));
    let b = machine.malloc_host(4_000, true)?;
    assert_eq!((machine.held().host, machine.held().reserved), (10_000, 0));
    machine.free_host(a)?;
    machine.malloc_host(6_000, false)?;
    machine.free_host(b)?;
    assert_eq!((machine.held().host, machine.held().peak_host), (6_000, 10_000));
    let endless = SimMachine::of_capacity(0).malloc_host(u64::MAX, false);
    assert!(matches!(endless, Err(DriverError::OutOfMemory { asked: u64::MAX, .. })));
    Ok(())
}

#[test]
fn capture_status_is_what_the_engine_says() -> Tested {
    let mut machine = SimMachine::of_capacity(MIB);
    assert!(!machine.capture_status(StreamId(0))?);
    machine.capture(StreamId(0), true);
    assert!(machine.capture_status(StreamId(0))?);
    machine.capture(StreamId(0), false);
    assert!(!machine.capture_status(StreamId(0))?);
    Ok(())
}

#[test]
fn access_and_unmap_are_paid_by_the_handle() -> Tested {
    let mut options = DeviceOptions::default();
    for (name, ns) in [("cuMemSetAccess", 36.0), ("cuMemUnmap", 26.0)] {
        assert!(options.costs.set(name, Price::flat(ns)));
    }
    let mut machine = SimMachine::new(options);
    let range = machine.reserve(6 * MIB)?;
    for page in 0..3 {
        let handle = machine.create(2 * MIB)?;
        machine.map(range + page * 2 * MIB, handle)?;
    }
    machine.set_access(range, 6 * MIB)?;
    assert_eq!(machine.now(), Nanos(3 * 36));
    machine.unmap(range, 4 * MIB)?;
    assert_eq!(machine.now(), Nanos(3 * 36 + 2 * 26));
    Ok(())
}
