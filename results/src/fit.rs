//! Will it fit: what a run reserves on a device, with a range, and the largest batch that passes.
//!
//! | rule | what it says |
//! |---|---|
//! | `peak` | most bytes reserved where nothing is short: on a device of [`ROOMY`]. Least and most over the seeds. An allocator that takes a share of its device takes one of that one: where it fails there, or reserves more than the device has, and yet passes on the device without a retry, the peak is the one on the device |
//! | `error` | how far our figures of this model's measured set-ups were from the real ones: the largest underestimate, as a share. Of a recording it is 0: its requests are known, and the allocator is replayed. Of a model it is 0 too where no measured run is given, and that is said |
//! | `needs` | the most over the seeds, more by the error, and the context of the device |
//! | `fits` | no request fails with any seed on the device less the error's share of the peak |
//! | `tight` | no request fails on the device itself, but some do on the smaller one |
//! | `largest batch` | the largest for which no request fails on the device, by doubling and halving. Smaller ones are tried too, and one that fails is told |

use serde::Serialize;
use vramlab_allocators::Spec;
use vramlab_sim::units::Bytes;

use crate::failure::Failure;
use crate::job::{Input, Place, run_pair};

/// Memory of a device on which nothing is short.
pub const ROOMY: Bytes = Bytes::gib(16 << 10);
/// Largest batch that is looked for.
const BATCH_MAX: u64 = 1 << 16;

/// One device with one allocator. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Fit {
    pub input: String,
    pub device: String,
    pub strategy: String,
    pub capacity: u64,
    pub context: u64,
    pub seeds: usize,
    pub live_floor: u64,
    pub peak_reserved_least: u64,
    pub peak_reserved_most: u64,
    /// Share of the peak by which measured runs were above ours: the margin.
    pub error: f64,
    /// Where it is from: `measured`, `none given`, or `recorded`.
    pub error_from: &'static str,
    pub needs: u64,
    /// `fits`, `tight`, `does not fit`, or `skipped`.
    pub verdict: &'static str,
    /// Of the runs on the device: most failing requests, and most retries.
    pub failed: u64,
    pub retries: u64,
    pub largest_batch: Option<u64>,
    /// Why there is none, or which smaller one fails.
    pub remark: Option<String>,
}

/// Runs an input with each seed through an allocator on a device.
///
/// # Errors
/// Bad options or bad input.
pub fn fit(
    seeds: &[Input<'_>],
    spec: &Spec,
    place: &Place,
    (error, error_from): (f64, &'static str),
) -> Result<Fit, Failure> {
    let context = place.profile.options.context;
    let mut fit = Fit {
        input: seeds.first().map_or_else(String::new, |input| input.name.clone()),
        device: place.profile.name.clone(),
        strategy: spec.to_string(),
        capacity: place.capacity(),
        context,
        seeds: seeds.len(),
        live_floor: 0,
        peak_reserved_least: u64::MAX,
        peak_reserved_most: 0,
        error,
        error_from,
        needs: 0,
        verdict: "fits",
        failed: 0,
        retries: 0,
        largest_batch: None,
        remark: None,
    };
    let roomy = Place { capacity: Some(ROOMY.0), ..place.clone() };
    for input in seeds {
        let mut row = run_pair(input, spec, &roomy, None)?;
        let own = run_pair(input, spec, place, None)?;
        fit.failed = fit.failed.max(own.failed());
        fit.retries = fit.retries.max(own.alloc_retries.unwrap_or(0));
        let by_device = row.outcome != "ok" || row.peak_reserved > place.capacity();
        let passes = own.outcome == "ok" && own.alloc_retries.unwrap_or(0) == 0;
        if by_device && (passes || !own.ran()) {
            row = own;
        }
        if row.outcome != "ok" {
            let everywhere = || format!("requests fail even on {ROOMY}");
            let why = if row.ran() { Some(everywhere()) } else { row.reason };
            (fit.verdict, fit.remark) = ("skipped", why);
            (fit.peak_reserved_least, fit.peak_reserved_most) = (0, 0);
            return Ok(fit);
        }
        fit.live_floor = fit.live_floor.max(row.live_floor_of_one);
        fit.peak_reserved_least = fit.peak_reserved_least.min(row.peak_reserved);
        fit.peak_reserved_most = fit.peak_reserved_most.max(row.peak_reserved);
    }
    let margin = (fit.peak_reserved_most as f64 * error).ceil() as u64;
    fit.needs = fit.peak_reserved_most.saturating_add(margin).saturating_add(context);
    if fit.failed > 0 {
        fit.verdict = "does not fit";
    } else if fit.needs > fit.capacity {
        let smaller = place.capacity().saturating_sub(margin).max(context + 1);
        let smaller = Place { capacity: Some(smaller), ..place.clone() };
        for input in seeds {
            if run_pair(input, spec, &smaller, None)?.outcome != "ok" {
                fit.verdict = "tight";
            }
        }
    }
    Ok(fit)
}

/// The largest batch that passes, and a smaller one that does not; none if not even one passes.
///
/// # Errors
/// Of a run.
pub fn largest_batch<E>(
    mut passes: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<(u64, Option<u64>)>, E> {
    let (mut low, mut high) = (0, 1);
    while high <= BATCH_MAX && passes(high)? {
        (low, high) = (high, high * 2);
    }
    if low == 0 {
        return Ok(None);
    }
    if high > BATCH_MAX {
        return Ok(Some((BATCH_MAX, None)));
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if passes(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut smaller = None;
    for batch in [low - 1, low - low / 10, low - low / 4, low - low / 3] {
        if smaller.is_none() && batch > 0 && batch < low && !passes(batch)? {
            smaller = Some(batch);
        }
    }
    Ok(Some((low, smaller)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(passes: impl Fn(u64) -> bool) -> Option<(u64, Option<u64>)> {
        largest_batch(|n| Ok::<_, ()>(passes(n))).expect("no errors here")
    }

    #[test]
    fn the_largest_batch_that_passes_is_found() {
        assert_eq!(found(|n| n <= 37), Some((37, None)));
        assert_eq!(found(|n| n <= 1), Some((1, None)));
        assert_eq!(found(|_| false), None);
        assert_eq!(found(|_| true), Some((BATCH_MAX, None)));
        assert_eq!(found(|n| n <= 40 && n != 36), Some((40, Some(36))), "not monotonic, and told");
    }
}
