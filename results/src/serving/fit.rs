//! The three constants of a step's time, from the first requests of a run.
//!
//! | rule | what it says |
//! |---|---|
//! | `begin` | the best of a coarse grid of multiples of the card's roofline: weights / bandwidth, operations of a token / rate, bytes of a token's keys and values / bandwidth |
//! | `likeliest` | the logarithms of ours / measured are taken as normal, those of the time to first token with one spread and those of the time from there to the last with another; both spreads are unknown. So the sum of the logarithms of the two root mean squares is made least: the noisier part counts less |
//! | `search` | Nelder and Mead's simplex in the logarithms of the constants, so that none is below 0; it ends when the simplex is small or after so many reruns |
//!
//! J. A. Nelder and R. Mead, "A simplex method for function minimization", The Computer Journal 7 (1965), with their usual coefficients.

use vramlab_workloads::serving::model::ALL;

use super::recorded::{Run, Times};
use super::rerun::rerun;
use crate::failure::Failure;

/// Requests that the fit sees.
pub const SEEN: usize = 100;
/// Most reruns of a fit.
const RERUNS_MAX: usize = 160;
/// The simplex is small when its constants differ by less than this share.
const SMALL: f64 = 0.002;
/// Multiples of the roofline's constants at which the search may begin.
const GRID: [&[f64]; 3] = [&[1.0, 1.5, 2.25], &[1.0, 2.0, 4.0, 8.0], &[1.0, 2.0]];
/// Least spread of a part, so that none counts for everything.
const SPREAD_MIN: f64 = 1e-3;
/// How far the first corners are from the beginning, in the logarithm.
const FIRST_STEP: f64 = 0.25;

type Point = [f64; 3];

/// The rule whose constants are fitted; as the workload's `step_time` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A straight line.
    Line,
    /// The longer of reading the weights and computing the tokens, then attention.
    Longer,
}

/// Fitted constants, in ns: of a step, of a token, of a token looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Of which rule.
    pub rule: Rule,
    /// The constants.
    pub constants: Point,
    /// Root mean squares of the logarithms that are left: up to the first token, and from there.
    /// Nothing where nothing was fitted.
    pub left: Option<[f64; 2]>,
}

impl Fit {
    /// As the parameter `step` takes them.
    pub fn step(&self) -> String {
        let [step, token, look] = self.constants;
        let rule = match self.rule {
            Rule::Line => "",
            Rule::Longer => "longer:",
        };
        format!("{rule}{step}/{token}/{look}")
    }
}

/// The roofline's constants for a run's model and card. Copies share the tokens; of the weights each reads what is split once among them, and all else whole.
pub fn roofline(run: &Run) -> Point {
    let (rate, bandwidth) = (run.device.flops("bf16"), run.device.memory_bytes_per_second);
    let (model, copies) = (run.model, run.copies as f64);
    [
        1e9 * model.touched_bytes(ALL, run.copies) / bandwidth,
        1e9 * model.operations(1, 0, 0) / rate / copies,
        1e9 * model.token_bytes() as f64 / bandwidth / copies,
    ]
}

/// The roofline itself: the constants of a run's card and model, with nothing fitted.
pub fn bare(run: &Run) -> Fit {
    Fit { rule: Rule::Longer, constants: roofline(run), left: None }
}

/// What was fitted on one card, for another one: each constant in the ratio of the two rooflines.
pub fn carried(fit: &Fit, from: &Run, to: &Run) -> Fit {
    let (from, to) = (roofline(from), roofline(to));
    let constants = std::array::from_fn(|i| fit.constants[i] * to[i] / from[i]);
    Fit { constants, left: None, ..*fit }
}

/// Fits a run.
///
/// # Errors
/// A run that cannot be rerun.
pub fn fit(run: &Run, rule: Rule) -> Result<Fit, Failure> {
    let measured = run.measured();
    let seen = SEEN.min(measured.len());
    let left = |logs: &Point| -> Result<[f64; 2], Failure> {
        let fit = Fit { rule, constants: logs.map(f64::exp), left: None };
        let ours = rerun(run, &fit.step(), seen)?;
        Ok(distances(&ours.times[..seen], &measured[..seen]))
    };
    let mut value = |logs: &Point| left(logs).map(|left| unlikely(&left));
    let mut best = (f64::INFINITY, [0.0; 3]);
    for begin in grid(roofline(run)) {
        let found = value(&begin)?;
        if found < best.0 {
            best = (found, begin);
        }
    }
    let logs = simplex(best.1, &mut value)?.0;
    let left = left(&logs)?;
    Ok(Fit { rule, constants: logs.map(f64::exp), left: Some(left) })
}

/// Logarithms of the points of the grid.
fn grid(roofline: Point) -> Vec<Point> {
    let mut points = Vec::new();
    for step in GRID[0] {
        for token in GRID[1] {
            for look in GRID[2] {
                let by = [step, token, look];
                points.push(std::array::from_fn(|axis| (roofline[axis] * by[axis]).ln()));
            }
        }
    }
    points
}

/// Root mean squares of the logarithms of ours / measured (rule `likeliest`).
fn distances(ours: &[Option<Times>], measured: &[Times]) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for (ours, theirs) in ours.iter().zip(measured) {
        let log = |a: u64, b: u64| ((a.max(1) as f64) / (b.max(1) as f64)).ln();
        let logs = match ours {
            Some(ours) => {
                [log(ours.ttft, theirs.ttft), log(ours.e2e - ours.ttft, theirs.e2e - theirs.ttft)]
            }
            // one that was never answered is a thousandfold away
            None => [log(1000, 1); 2],
        };
        for (sum, log) in sums.iter_mut().zip(logs) {
            *sum += log * log;
        }
    }
    sums.map(|sum| (sum / measured.len().max(1) as f64).sqrt())
}

/// The less likely, the more.
fn unlikely(left: &[f64; 2]) -> f64 {
    left.iter().map(|left| left.max(SPREAD_MIN).ln()).sum()
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
                for corner in &mut corners[1..] {
                    let point: Point =
                        std::array::from_fn(|axis| (corner.1[axis] + low.1[axis]) / 2.0);
                    *corner = (value(&point)?, point);
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
    fn distances_are_nothing_where_all_is_equal_and_count_who_was_not_answered() {
        let times = Times { ttft: 100, e2e: 900, outputs: 5 };
        assert_eq!(distances(&[Some(times)], &[times]), [0.0; 2]);
        assert!(distances(&[None], &[times])[0] > 6.0);
        let slow = Times { ttft: 200, e2e: 1000, ..times };
        let [first, rest] = distances(&[Some(slow)], &[times]);
        assert!((first - 2_f64.ln()).abs() < 1e-12 && rest == 0.0);
    }

    #[test]
    fn a_grid_begins_at_the_roofline_and_goes_up() {
        let points = grid([1.0, 2.0, 3.0]);
        assert_eq!((points.len(), points[0]), (24, [1.0, 2.0, 3.0].map(f64::ln)));
        assert_eq!(points.last(), Some(&[2.25, 16.0, 6.0].map(f64::ln)));
    }
}
