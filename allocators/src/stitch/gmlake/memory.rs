//! Segments: what was taken from the device, and how it goes back.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `small_malloc` | the small pool, and everything without `vmmDefragment`, comes from `cudaMalloc` | 3080-3095, gm02, gm20 |
//! | `pieces` | else pieces of 2 MiB are created one by one, and mapped side by side into a range reserved for them | h 437-463, gm02 |
//! | `all_or_none` | at the first piece that fails all are given back; the failed attempt's creations count | h 437-463, gm12 |
//! | `tries` | a range that cannot be reserved or mapped is tried 8 times | h 482-542 |

use vramlab_sim::driver::{Address, Driver, DriverError, DriverExt, Handle};

use super::sizes::PIECE;
use super::stitched::Cover;

/// Times that a range is asked for.
const TRIES: usize = 8;

/// A range of addresses with primitive blocks in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) base: Address,
    /// Its last primitive block.
    pub(super) tail: u32,
    /// Its pieces; none: one device malloc.
    pub(super) handles: Vec<Handle>,
    /// Stitched blocks over it.
    pub(super) covers: Vec<Cover>,
}

/// All segments, by number; numbers are used again.
#[derive(Debug, Default)]
pub(super) struct Segments {
    list: Vec<Segment>,
    vacant: Vec<u32>,
}

impl Segments {
    #[inline]
    pub(super) fn get(&self, segment: u32) -> &Segment {
        &self.list[segment as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.list[segment as usize]
    }

    pub(super) fn add(&mut self, segment: Segment) -> u32 {
        match self.vacant.pop() {
            Some(number) => {
                self.list[number as usize] = segment;
                number
            }
            None => {
                self.list.push(segment);
                (self.list.len() - 1) as u32
            }
        }
    }

    pub(super) fn remove(&mut self, segment: u32) -> Segment {
        self.vacant.push(segment);
        std::mem::take(&mut self.list[segment as usize])
    }
}

/// Out of memory is `None`, any other error stays one.
pub(super) fn or_none<T>(answer: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(DriverError::OutOfMemory { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Rule `all_or_none`: `bytes` in pieces, or nothing.
pub(super) fn create(
    driver: &mut dyn Driver,
    bytes: u64,
) -> Result<Option<Vec<Handle>>, DriverError> {
    let mut handles = Vec::new();
    for _ in 0..bytes / PIECE {
        match driver.create(PIECE) {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                release(driver, &handles)?;
                return or_none(Err(error));
            }
        }
    }
    Ok(Some(handles))
}

/// Gives pieces back.
pub(super) fn release(driver: &mut dyn Driver, handles: &[Handle]) -> Result<(), DriverError> {
    handles.iter().try_for_each(|handle| driver.release(*handle))
}

/// A range with the pieces mapped into it, in order (rule `tries`).
pub(super) fn map(
    driver: &mut dyn Driver,
    handles: &[Handle],
) -> Result<Option<Address>, DriverError> {
    for _ in 0..TRIES {
        let bytes = handles.len() as u64 * PIECE;
        let Some(address) = or_none(driver.reserve(bytes))? else { continue };
        match map_at(driver, address, handles) {
            Ok(()) => return Ok(Some(address)),
            Err(error) => {
                driver.unreserve(address)?;
                or_none(Err::<(), _>(error))?;
            }
        }
    }
    Ok(None)
}

/// Maps the pieces, or none of them.
fn map_at(
    driver: &mut dyn Driver,
    address: Address,
    handles: &[Handle],
) -> Result<(), DriverError> {
    for (at, handle) in (0_u64..).zip(handles) {
        let place = address + at * PIECE;
        let mapped = driver.map(place, *handle);
        let access = mapped.clone().and_then(|()| driver.set_access(place, PIECE));
        if access.is_err() {
            let done = (at + u64::from(mapped.is_ok())) * PIECE;
            if done > 0 {
                driver.unmap(address, done)?;
            }
            return access;
        }
    }
    Ok(())
}

/// Ends a mapped range.
pub(super) fn unmap(
    driver: &mut dyn Driver,
    address: Address,
    pieces: u64,
) -> Result<(), DriverError> {
    driver.unmap(address, pieces * PIECE)?;
    driver.unreserve(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::machine::Machine;
    use vramlab_sim::testing::ScriptedMachine;

    #[test]
    fn pieces_all_or_none() -> Result<(), DriverError> {
        let mut machine = ScriptedMachine::of_capacity(8 << 20);
        assert_eq!(create(&mut machine, 10 << 20)?, None);
        assert_eq!((machine.held().reserved, machine.calls().get("cuMemCreate")), (0, 5));
        let handles = create(&mut machine, 8 << 20)?.expect("there is room");
        assert_eq!(machine.held().reserved, 8 << 20);
        release(&mut machine, &handles)
    }

    #[test]
    fn a_range_is_tried_8_times() -> Result<(), DriverError> {
        let mut machine = ScriptedMachine::of_capacity(8 << 20);
        let handles = create(&mut machine, 4 << 20)?.expect("there is room");
        let full = || DriverError::OutOfMemory { asked: 0, free: 0 };
        // a mapping that fails in the middle leaves nothing behind
        machine.fail_on("cuMemMap", 1, full());
        machine.fail_on("cuMemSetAccess", 2, full());
        (0..5).for_each(|_| machine.fail_on("cuMemAddressReserve", 2, full()));
        let address = map(&mut machine, &handles)?.expect("the eighth succeeds");
        unmap(&mut machine, address, 2)?;
        (0..8).for_each(|_| machine.fail_on("cuMemAddressReserve", 0, full()));
        assert_eq!(map(&mut machine, &handles)?, None);
        Ok(())
    }
}
