use super::*;
use crate::driver::DriverExt;

const MIB: u64 = 1 << 20;

fn rows(machine: &mut ScriptedMachine) -> Vec<String> {
    machine.drain_log().map(|call| call.to_string()).collect()
}

#[test]
fn the_log_has_the_rows_of_the_golden_sets() -> Result<(), DriverError> {
    let mut machine = ScriptedMachine::of_capacity(40 * MIB);
    let a = machine.malloc(11 * MIB)?;
    let range = machine.reserve(100 * MIB)?;
    let handle = machine.create(11 * MIB)?;
    machine.map(range + 11 * MIB, handle)?;
    machine.set_access(range + 11 * MIB, 11 * MIB)?;
    assert!(machine.malloc(20 * MIB).is_err());
    machine.unmap(range + 11 * MIB, 11 * MIB)?;
    machine.release(handle)?;
    machine.unreserve(range)?;
    machine.stream_synchronize(StreamId(3))?;
    machine.free(a)?;
    machine.mem_info()?;
    assert_eq!(
        rows(&mut machine),
        [
            "cudaMalloc,m0,0,11534336,,1",
            "cuMemAddressReserve,r0,0,104857600,,1",
            "cuMemCreate,,,11534336,h0,1",
            "cuMemMap,r0,11534336,11534336,h0,1",
            "cuMemSetAccess,r0,11534336,11534336,,1",
            "cudaMalloc,,,20971520,,0",
            "cuMemUnmap,r0,11534336,11534336,,1",
            "cuMemRelease,,,11534336,h0,1",
            "cuMemAddressFree,r0,0,104857600,,1",
            "cudaStreamSynchronize,,,0,s3,1",
            "cudaFree,m0,0,12582912,,1",
        ]
    );
    Ok(())
}

#[test]
fn an_event_completes_on_cue_or_when_waited_for() -> Result<(), DriverError> {
    let mut machine = ScriptedMachine::of_capacity(MIB);
    let (a, b) = (machine.event_create()?, machine.event_create()?);
    assert!(machine.event_query(a)?, "never recorded is complete");
    machine.event_record(a, StreamId(1))?;
    machine.event_record(b, StreamId(2))?;
    machine.stream_synchronize(StreamId(1))?;
    assert!(!machine.event_query(a)? && !machine.event_query(b)?);
    machine.complete(StreamId(1));
    assert!(machine.event_query(a)? && !machine.event_query(b)?);
    machine.event_record(a, StreamId(1))?;
    assert!(!machine.event_query(a)?, "recorded after the completion");
    machine.event_synchronize(b)?;
    assert!(machine.event_query(b)?);
    machine.complete_all();
    assert!(machine.event_query(a)?);
    Ok(())
}

#[test]
fn a_call_fails_on_cue_and_changes_nothing() -> Result<(), DriverError> {
    let mut machine = ScriptedMachine::of_capacity(10 * MIB);
    let error = DriverError::OutOfMemory { asked: 1, free: 0 };
    machine.fail_on("cudaMalloc", 1, error.clone());
    machine.malloc(1)?;
    assert_eq!(machine.malloc(1), Err(error));
    machine.malloc(1)?;
    assert_eq!(machine.held().reserved, 2);
    assert_eq!(rows(&mut machine)[1], "cudaMalloc,,,1,,0");
    Ok(())
}

#[test]
fn runs_of_event_calls_are_sorted_by_stream() -> Result<(), DriverError> {
    let mut machine = ScriptedMachine::of_capacity(MIB);
    for stream in [2, 0, 1] {
        let event = machine.event_create()?;
        machine.event_record(event, StreamId(stream))?;
    }
    machine.stream_synchronize(StreamId(9))?;
    let mut log: Vec<_> = machine.drain_log().collect();
    sort_event_runs(&mut log);
    let order: Vec<_> = log.iter().map(|call| call.reference).collect();
    let stream = |n| Some(Reference::Stream(StreamId(n)));
    assert_eq!(order, [stream(0), stream(1), stream(2), stream(9)]);
    Ok(())
}
