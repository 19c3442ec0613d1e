//! How large a device a recording runs on, if nobody says: one rule for `replay`, `compare` and `advise`.
//!
//! 1. The recorded capacity, where there is one: what the allocator held and what was free at the first recorded failure.
//! 2. Else the generic device, if the recording's own peak fits there.
//! 3. Else the smallest usual size that its own peak fits in.
//!
//! The peak is the most that the recorded allocator held, or, where the recording does not tell, the highest sum of live requests on one
//! device: each of several has the size that is chosen.

use vramlab_sim::units::Bytes;
use vramlab_workloads::live::walk;

use crate::cli::DeviceArgs;
use crate::commands::remark;
use crate::failure::Failure;
use crate::inputs::Recorded;
use crate::job::{CAPACITY_MAX, Input, Place};

/// Memory sizes of devices, in GiB.
pub(crate) const USUAL_GIB: [u64; 11] = [24, 32, 40, 48, 64, 80, 96, 141, 192, 256, 288];

/// Where `input` is replayed: on the device of these arguments, or by the rule. What the rule chose is said on standard error.
///
/// # Errors
/// An unknown device, a capacity that makes no sense, an input that cannot be read.
pub fn place(
    input: &Input<'_>,
    recorded: Recorded,
    args: &DeviceArgs,
    quiet: bool,
) -> Result<Place, Failure> {
    let place = Place::for_recording(args.device.as_deref(), args.capacity)?;
    if args.device.is_some() || args.capacity.is_some() {
        return Ok(place);
    }
    let chosen = choose(recorded, place.capacity(), || device_peak(input))?;
    if !quiet {
        let device = Bytes(chosen.capacity);
        remark(&format!("vramlab: {}: a device of {device}: {}", input.name, chosen.why));
    }
    Ok(Place { capacity: Some(chosen.capacity), ..place })
}

/// Highest sum of live requests on one device, in bytes: one walk.
fn device_peak(input: &Input<'_>) -> Result<u64, Failure> {
    let mut source = (input.make)()?;
    let live = walk(&mut *source, |_op, _live, _source| true).map_err(Failure::input)?;
    Ok(live.device_peak())
}

/// Bytes, and the reason for them.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    capacity: u64,
    why: String,
}

fn choose(
    recorded: Recorded,
    generic: u64,
    requested: impl FnOnce() -> Result<u64, Failure>,
) -> Result<Chosen, Failure> {
    if let Some(capacity) = recorded.capacity.filter(|c| (1..=CAPACITY_MAX).contains(c)) {
        let why = "what the recorded allocator could get at its first failure".to_owned();
        return Ok(Chosen { capacity, why });
    }
    let requested = requested()?;
    let (peak, held) = match recorded.peak_reserved {
        Some(reserved) if reserved >= requested => (reserved, "the recorded allocator held"),
        _ => (requested, "live requests sum up to"),
    };
    let held = format!("no capacity is recorded, and {held} {} at most", Bytes(peak));
    if peak <= generic {
        let why = format!("the generic one; {held}");
        return Ok(Chosen { capacity: generic, why });
    }
    match usual(peak) {
        Some(capacity) => {
            let why = format!("the next usual size; {held}");
            Ok(Chosen { capacity, why })
        }
        None => {
            let why = format!("the generic one; {held}, which no device has");
            Ok(Chosen { capacity: generic, why })
        }
    }
}

/// The smallest usual size of at least `bytes`; beyond the largest, powers of two.
fn usual(bytes: u64) -> Option<u64> {
    let sizes = USUAL_GIB.iter().map(|gib| gib << 30);
    let known = sizes.into_iter().find(|size| *size >= bytes);
    known.or(bytes.checked_next_power_of_two()).filter(|size| *size <= CAPACITY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERIC: u64 = 24 << 30;

    fn chosen(capacity: Option<u64>, reserved: Option<u64>, requested: u64) -> (u64, String) {
        let recorded = Recorded { capacity, peak_reserved: reserved };
        let chosen = choose(recorded, GENERIC, || Ok(requested)).expect("chosen");
        (chosen.capacity, chosen.why)
    }

    #[test]
    fn the_recorded_capacity_goes_first() {
        let (capacity, why) = chosen(Some(5 << 30), Some(99 << 30), 99 << 30);
        assert_eq!(capacity, 5 << 30);
        assert!(why.contains("first failure"), "{why}");
    }

    #[test]
    fn without_it_the_recordings_own_peak_fits() {
        assert_eq!(chosen(None, Some(3 << 30), 2 << 30).0, GENERIC);
        assert_eq!(chosen(None, Some(GENERIC + 1), 2 << 30).0, 32 << 30);
        let (capacity, why) = chosen(None, None, 81 << 30);
        assert_eq!(capacity, 96 << 30);
        assert!(why.contains("live requests sum up to 81 GiB at most"), "{why}");
        assert_eq!(chosen(None, None, 300 << 30).0, 512 << 30);
    }

    #[test]
    fn a_peak_that_no_device_holds_leaves_the_generic_one() {
        assert_eq!(chosen(None, None, u64::MAX).0, GENERIC);
    }
}
