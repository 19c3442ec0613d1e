//! `min_capacity`: the least device on which a run ends without a failing request.
//!
//! Found by halving between the context alone, which leaves nothing for a run, and a device on which the run ends well, in steps of the device's
//! granule. The live floor is no bound: a strategy may keep buffers elsewhere (tiers, managed and host memory) or end them before their frees
//! (plans). Of several devices each has the capacity. More memory is not always better (a collection or a doubling growth may come at another moment), so larger devices are tried too, and a
//! failure there is told.

use vramlab_allocators::Spec;
use vramlab_sim::units::Bytes;

use crate::failure::Failure;
use crate::job::{CAPACITY_MAX, Input, Place, run_pair};
use crate::row::Row;

/// What the search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// Bytes of the device.
    pub capacity: u64,
    /// A larger device on which the run fails all the same.
    pub fails_again: Option<u64>,
}

/// Searches for a pair that ran as `row` says; `None` if no device of sane size would do.
///
/// # Errors
/// As [`run_pair`].
pub fn least(
    input: &Input<'_>,
    spec: &Spec,
    place: &Place,
    row: &Row,
) -> Result<Option<Least>, Failure> {
    let granule = place.profile.options.granule.max(1);
    let fits = |capacity: u64| -> Result<bool, Failure> {
        let place = Place { capacity: Some(capacity), min_capacity: false, ..place.clone() };
        Ok(run_pair(input, spec, &place, None)?.outcome == "ok")
    };
    let none = place.profile.options.context / granule;
    let known = if row.outcome == "ok" { row.device_used_of_one } else { place.capacity() };
    search(none, known.div_ceil(granule), CAPACITY_MAX / granule, |steps| fits(steps * granule))
        .map(|found| {
            found.map(|(least, again)| Least {
                capacity: least * granule,
                fails_again: again.map(|steps| steps * granule),
            })
        })
}

/// The least number above `none` that fits, given one to begin with, and a larger one that does not.
fn search<E>(
    none: u64,
    begin: u64,
    limit: u64,
    mut fits: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<(u64, Option<u64>)>, E> {
    let (mut low, mut high) = (none, begin.max(none + 1));
    while !fits(high)? {
        if high >= limit {
            return Ok(None);
        }
        (low, high) = (high, high.saturating_mul(2).min(limit));
    }
    let top = high;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    let mut again = None;
    for larger in
        [high + 1, high + high / 50, high + high / 10, high.midpoint(top), high + high / 3]
    {
        if again.is_none() && larger > high && larger <= limit && !fits(larger)? {
            again = Some(larger);
        }
    }
    Ok(Some((high, again)))
}

/// What a row says of it.
pub fn note(row: &mut Row, found: Option<Least>) {
    row.min_capacity = found.map(|least| least.capacity);
    match found {
        None => row.notes.push("no device is large enough for this run".to_owned()),
        Some(Least { capacity, fails_again: Some(larger) }) => row.notes.push(format!(
            "min_capacity {} is not the last word: on {} it fails again",
            Bytes(capacity),
            Bytes(larger)
        )),
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::search;

    fn found(none: u64, begin: u64, fits: impl Fn(u64) -> bool) -> Option<(u64, Option<u64>)> {
        search(none, begin, 1 << 20, |n| Ok::<_, ()>(fits(n))).expect("no errors here")
    }

    #[test]
    fn the_least_that_fits_is_found_from_above_and_from_below() {
        assert_eq!(found(2, 1000, |n| n >= 17), Some((17, None)));
        assert_eq!(found(2, 4, |n| n >= 1717), Some((1717, None)));
        assert_eq!(found(16, 17, |n| n >= 17), Some((17, None)));
        assert_eq!(found(0, 1, |_| true), Some((1, None)));
        assert_eq!(found(0, 0, |_| true), Some((1, None)));
        assert_eq!(found(0, 1, |_| false), None);
    }

    #[test]
    fn a_larger_one_that_fails_is_told() {
        assert_eq!(found(2, 1000, |n| n >= 100 && n != 133), Some((100, Some(133))));
    }
}
