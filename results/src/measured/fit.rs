//! The three constants of a step's time, from the first requests of a run.
//!
//! | rule | what it says |
//! |---|---|
//! | `begin` | at the card's roofline: weights / bandwidth, operations of a token / rate, bytes of a token's keys and values / bandwidth |
//! | `distance` | over the first requests, the sum of the squared logarithms of ours / measured: of the time to first token, of the time from there to the last, and of the whole |
//! | `search` | Nelder and Mead's simplex in the logarithms of the constants, so that none is below 0; it ends when the simplex is small or after so many reruns |
//!
//! J. A. Nelder and R. Mead, "A simplex method for function minimization", The Computer Journal 7 (1965), with their usual coefficients.

use super::recorded::{Run, Times};
use super::rerun::rerun;
use crate::failure::Failure;

/// Requests that the fit sees.
pub const SEEN: usize = 100;
/// Most reruns of a fit.
const RERUNS_MAX: usize = 160;
/// The simplex is small when its constants differ by less than this share.
const SMALL: f64 = 0.002;
/// How far the first corners are from the beginning, in the logarithm.
const FIRST_STEP: f64 = 0.25;

type Point = [f64; 3];

/// Fitted constants, in ns: of a step, of a token, of a token looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The constants.
    pub constants: Point,
    /// Root of the mean squared logarithm that is left.
    pub distance: f64,
    /// Reruns that it took.
    pub reruns: usize,
}

impl Fit {
    /// As the parameter `step` takes them.
    pub fn step(&self) -> String {
        let [step, token, look] = self.constants;
        format!("{step}/{token}/{look}")
    }
}

/// The roofline's constants for a run's model and card.
pub fn roofline(run: &Run) -> Point {
    let (rate, bandwidth) = (run.device.flops("bf16"), run.device.memory_bytes_per_second);
    let ns = |seconds: f64| seconds * 1e9 / run.copies as f64;
    let model = run.model;
    [
        ns(model.touched_bytes(1 << 20) / bandwidth),
        ns(model.operations(1, 0, 0) / rate),
        ns(model.token_bytes() as f64 / bandwidth),
    ]
}

/// Fits a run.
///
/// # Errors
/// A run that cannot be rerun.
pub fn fit(run: &Run) -> Result<Fit, Failure> {
    let measured = run.measured();
    let seen = SEEN.min(measured.len());
    let mut reruns = 0;
    let mut at = |logs: &Point| -> Result<f64, Failure> {
        reruns += 1;
        let step = Fit { constants: logs.map(f64::exp), distance: 0.0, reruns };
        let ours = rerun(run, &step.step(), seen)?;
        Ok(distance(&ours.times[..seen], &measured[..seen]))
    };
    let begin = roofline(run).map(f64::ln);
    let (best, left) = simplex(begin, &mut at)?;
    Ok(Fit { constants: best.map(f64::exp), distance: left, reruns })
}

/// Root of the mean of the squared logarithms.
fn distance(ours: &[Option<Times>], measured: &[Times]) -> f64 {
    let mut sum = 0.0;
    for (ours, theirs) in ours.iter().zip(measured) {
        // one that was never answered is as far as a thousandfold
        let Some(ours) = ours else {
            sum += 3.0 * 1000_f64.ln().powi(2);
            continue;
        };
        let log = |a: u64, b: u64| ((a.max(1) as f64) / (b.max(1) as f64)).ln();
        let parts = [
            log(ours.ttft, theirs.ttft),
            log(ours.e2e - ours.ttft, theirs.e2e - theirs.ttft),
            log(ours.e2e, theirs.e2e),
        ];
        sum += parts.iter().map(|part| part * part).sum::<f64>();
    }
    (sum / (3 * measured.len().max(1)) as f64).sqrt()
}

/// The lowest point that the simplex finds, and its value.
fn simplex(
    begin: Point,
    value: &mut impl FnMut(&Point) -> Result<f64, Failure>,
) -> Result<(Point, f64), Failure> {
    let mut corners = vec![(value(&begin)?, begin)];
    for axis in 0..begin.len() {
        let mut corner = begin;
        corner[axis] += FIRST_STEP;
        corners.push((value(&corner)?, corner));
    }
    let mut asked = corners.len();
    while asked < RERUNS_MAX {
        corners.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (low, next_high, high) = (corners[0], corners[2], corners[3]);
        if (0..3).all(|axis| (high.1[axis] - low.1[axis]).abs() < SMALL) {
            break;
        }
        let centre: Point =
            std::array::from_fn(|axis| (0..3).map(|i| corners[i].1[axis]).sum::<f64>() / 3.0);
        let along = |by: f64| -> Point {
            std::array::from_fn(|axis| centre[axis] + by * (high.1[axis] - centre[axis]))
        };
        let mut try_at = |by: f64| -> Result<(f64, Point), Failure> {
            asked += 1;
            let point = along(by);
            Ok((value(&point)?, point))
        };
        let reflected = try_at(-1.0)?;
        corners[3] = if reflected.0 < low.0 {
            let expanded = try_at(-2.0)?;
            if expanded.0 < reflected.0 { expanded } else { reflected }
        } else if reflected.0 < next_high.0 {
            reflected
        } else {
            let contracted = try_at(if reflected.0 < high.0 { -0.5 } else { 0.5 })?;
            if contracted.0 < high.0.min(reflected.0) {
                contracted
            } else {
                for i in 1..4 {
                    let point: Point =
                        std::array::from_fn(|axis| (corners[i].1[axis] + low.1[axis]) / 2.0);
                    corners[i] = (value(&point)?, point);
                    asked += 1;
                }
                continue;
            }
        };
    }
    corners.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok((corners[0].1, corners[0].0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simplex_finds_the_bottom_of_a_bowl() {
        let bottom = [1.0, -2.0, 0.5];
        let mut bowl = |point: &Point| {
            let square = |axis: usize| (point[axis] - bottom[axis]).powi(2) * (axis + 1) as f64;
            Ok((0..3).map(square).sum::<f64>())
        };
        let (found, value) = simplex([0.0; 3], &mut bowl).expect("a bowl");
        assert!(value < 1e-4, "{found:?} {value}");
    }

    #[test]
    fn distance_is_nothing_where_all_is_equal_and_counts_who_was_not_answered() {
        let times = Times { ttft: 100, e2e: 900, outputs: 5 };
        assert_eq!(distance(&[Some(times)], &[times]), 0.0);
        assert!(distance(&[None], &[times]) > 6.0);
        let slow = Times { ttft: 200, e2e: 1800, ..times };
        assert!((distance(&[Some(slow)], &[times]) - 2_f64.ln()).abs() < 1e-12);
    }
}
