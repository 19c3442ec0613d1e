//! Every driver call of every strategy is refused in turn, under audit: for want of memory, or as a failure.
//!
//! Out of memory is answered by another way or by out of memory; any other failure comes out as it is. (What is left after one is in `failures`.)

mod shared;

use std::cell::RefCell;

use shared::{Subject, for_every_strategy};
use vramlab_allocators::Strategy;
use vramlab_sim::allocator::{AllocError, Notice, OutOfMemory, Request};
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, Families};
use vramlab_sim::units::StreamId;
use vramlab_sim::{Allocator, SimMachine};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 512 * MIB;
/// Wrong answers after which no more calls are tried.
const WRONG_MANY: usize = 100;

/// A driver that refuses one call.
struct Refusing<'a> {
    machine: &'a mut SimMachine,
    /// Calls until the refusal.
    left: &'a mut u64,
    room: bool,
    /// The call that was refused.
    refused: &'a mut Option<&'static str>,
}

impl Driver for Refusing<'_> {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let gives_memory = matches!(
            call,
            Call::Malloc { .. }
                | Call::Create { .. }
                | Call::MallocAsync { .. }
                | Call::MallocManaged { .. }
                | Call::MallocHost { .. }
        );
        if self.room && !gives_memory {
            return self.machine.call(call);
        }
        *self.left = self.left.wrapping_sub(1);
        if *self.left != u64::MAX {
            return self.machine.call(call);
        }
        *self.refused = Some(call.name());
        Err(if self.room {
            DriverError::OutOfMemory { asked: 0, free: 0 }
        } else {
            DriverError::Failed { call: call.name(), what: "on cue".into() }
        })
    }

    fn families(&self) -> Families {
        self.machine.families()
    }
}

/// Does an op's answer fit what the driver said while it ran? Out of memory is answered by another way or by out of memory; any other error ends
/// the run as it is. Is the run over?
fn judge(
    answer: Result<(), AllocError>,
    refused: Option<&'static str>,
    room: bool,
) -> Result<bool, String> {
    match (answer, refused) {
        (Err(AllocError::Driver(DriverError::Failed { .. })), Some(_)) if !room => Ok(true),
        (answer, Some(call)) if !room => {
            Err(format!("{call} failed, but the answer is {answer:?}"))
        }
        (Ok(()) | Err(AllocError::OutOfMemory(_)), _) => Ok(false),
        (Err(other), _) => Err(other.to_string()),
    }
}

/// A short program over small, middle and large blocks on two streams, whose `at`-th driver call is refused; was there one?
fn refused(strategy: &Strategy, at: u64, room: bool) -> Result<bool, String> {
    let mut subject = Subject::new(strategy, CAPACITY);
    let (mut left, mut live) = (at, Vec::new());
    for step in 0..40_u64 {
        let Subject { strategy: it, machine, .. } = &mut subject;
        let mut refused = None;
        let mut driver = Refusing { machine, left: &mut left, room, refused: &mut refused };
        let stream = StreamId((step % 5 == 0).into());
        let size = [700, 3 * MIB, 60 * MIB][(step % 3) as usize] + step * 512;
        let placed = it.alloc(&mut driver, &Request { size, stream, ordinal: step });
        if judge(placed.map(|placement| live.push(placement.block)), driver.refused.take(), room)? {
            return Ok(true);
        }
        if step % 2 == 1 && !live.is_empty() {
            let block = live.remove((step as usize * 7) % live.len());
            let recorded = Notice::RecordStream { block, stream: StreamId(2) };
            let recorded = it.notice(&mut driver, recorded).map(drop);
            if judge(recorded, driver.refused.take(), room)? {
                return Ok(true);
            }
            if judge(it.free(&mut driver, block, None), driver.refused.take(), room)? {
                return Ok(true);
            }
        }
        if step == 30 {
            let emptied = it.notice(&mut driver, Notice::EmptyCache).map(drop);
            if judge(emptied, driver.refused.take(), room)? {
                return Ok(true);
            }
        }
        subject.check();
    }
    Ok(left > at)
}

#[test]
fn every_driver_call_may_be_refused() {
    let wrong = RefCell::new(Vec::new());
    for_every_strategy(|strategy| {
        let name = strategy.name;
        for room in [true, false] {
            let mut calls = 0;
            let note = |at| {
                refused(strategy, at, room).unwrap_or_else(|error| {
                    wrong.borrow_mut().push(format!("{name}, call {at}, room {room}: {error}"));
                    wrong.borrow().len() < WRONG_MANY
                })
            };
            while note(calls) {
                calls += 1;
            }
            assert!(calls > 0 || !wrong.borrow().is_empty(), "{name}: no call (room {room})");
            println!("{name}: {calls} calls refused in turn (room {room})");
        }
    });
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "answers are wrong:\n{}", wrong.join("\n"));
}

/// What the test above holds against a strategy.
#[test]
fn a_failure_that_is_lost_or_called_out_of_memory_is_wrong() {
    let full = || {
        AllocError::from(OutOfMemory {
            asked: 1,
            device_free: 0,
            reserved: 0,
            active: 0,
            largest_free: 0,
            limit: None,
        })
    };
    let failed = || DriverError::Failed { call: "cudaMalloc", what: "on cue".into() }.into();
    let call = Some("cudaMalloc");
    assert!(judge(Ok(()), call, false).is_err() && judge(Err(full()), call, false).is_err());
    assert_eq!(judge(Err(failed()), call, false), Ok(true));
    assert_eq!([judge(Ok(()), call, true), judge(Err(full()), call, true)], [Ok(false), Ok(false)]);
    assert!(
        judge(Err(failed()), None, false).is_err() && judge(Err(failed()), call, true).is_err()
    );
    assert_eq!(judge(Err(full()), None, false), Ok(false), "the device is full");
}
