//! Asking the device for room: out of memory is an answer that a strategy goes on from, any other error ends the call.

use vramlab_sim::allocator::{AllocError, OutOfMemory, Usage};
use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt};

/// `cudaMalloc` of so many bytes; none if the device has no such room.
///
/// # Errors
/// Any other driver error.
pub(crate) fn malloc(driver: &mut dyn Driver, bytes: u64) -> Result<Option<Address>, DriverError> {
    match driver.malloc(bytes) {
        Ok(address) => Ok(Some(address)),
        Err(DriverError::OutOfMemory { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Out of memory, with the numbers; or the driver error that kept the device from telling what it has free.
#[cold]
pub(crate) fn out_of_memory(
    driver: &mut dyn Driver,
    asked: u64,
    usage: Usage,
    largest_free: u64,
    limit: Option<u64>,
) -> AllocError {
    let Usage { active, reserved, .. } = usage;
    match driver.mem_info() {
        Ok((device_free, _)) => {
            OutOfMemory { asked, device_free, reserved, active, largest_free, limit }.into()
        }
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::ScriptedMachine;

    #[test]
    fn no_room_is_an_answer_and_any_other_error_stays_one() {
        let mut machine = ScriptedMachine::of_capacity(4 << 20);
        assert!(malloc(&mut machine, 2 << 20).is_ok_and(|address| address.is_some()));
        assert_eq!(malloc(&mut machine, 4 << 20), Ok(None));
        let failed = DriverError::Failed { call: "cudaMalloc", what: "on cue".into() };
        machine.fail_on("cudaMalloc", 0, failed.clone());
        assert_eq!(malloc(&mut machine, 1), Err(failed));
        let usage = Usage { allocated: 1, active: 2, reserved: 3 };
        let AllocError::OutOfMemory(numbers) = out_of_memory(&mut machine, 7, usage, 5, None)
        else {
            panic!("the device answers")
        };
        assert_eq!((numbers.asked, numbers.device_free, numbers.largest_free), (7, 2 << 20, 5));
        assert_eq!((numbers.active, numbers.reserved), (2, 3));
    }
}
