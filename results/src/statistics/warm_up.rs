//! How many requests a run needs until it is in its steady state.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `mser_5` | the latencies, in the order in which the requests arrived, are averaged by fives; left out are the first d averages for which Σ (average − mean)² / (n − d)², over the n − d that stay, is least | White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69 (1997); by fives: White, Cobb and Spratt, Winter Simulation Conference (2000) |
//! | `half` | d is at most half of n; where the least lies behind, the run has not settled, and that is said. The last five averages are never looked at: so few have a small spread by chance | Hoad, Robinson and Davies, "Automating warm-up length estimation", Journal of the Operational Research Society 61 (2010) |

use std::str::FromStr;

/// Requests that are averaged.
const TOGETHER: usize = 5;
/// Averages at the end at which no run begins.
const LAST: usize = 5;

/// What is left out as warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmUp {
    /// As rule `mser_5` says.
    #[default]
    Auto,
    /// The first requests, so many.
    Requests(usize),
}

impl FromStr for WarmUp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::Requests(0)),
            _ => text
                .parse()
                .map(Self::Requests)
                .map_err(|_| "expected auto, none, or a number of requests".to_owned()),
        }
    }
}

impl WarmUp {
    /// How many of these values are left out, and whether the run had settled by its half, as far as that was looked at.
    pub(super) fn of(self, values: &[f64]) -> (usize, bool) {
        match self {
            Self::Auto => mser_5(values),
            Self::Requests(count) => (count.min(values.len()), true),
        }
    }
}

fn mser_5(values: &[f64]) -> (usize, bool) {
    let averages: Vec<f64> = values
        .chunks_exact(TOGETHER)
        .map(|five| five.iter().sum::<f64>() / TOGETHER as f64)
        .collect();
    let half = averages.len() / 2;
    // from the end on, so that each is looked at once: mean and sum of squares of those that stay
    let (mut mean, mut squares) = (0.0, 0.0);
    let (mut least, mut least_in_half) = ((f64::INFINITY, 0), (f64::INFINITY, 0));
    for (left_out, average) in averages.iter().enumerate().rev() {
        let stay = (averages.len() - left_out) as f64;
        let off = average - mean;
        mean += off / stay;
        squares += off * (average - mean);
        let value = squares / (stay * stay);
        if stay <= LAST as f64 {
            continue;
        }
        if value <= least.0 {
            least = (value, left_out);
        }
        if left_out <= half && value <= least_in_half.0 {
            least_in_half = (value, left_out);
        }
    }
    (least_in_half.1 * TOGETHER, least.1 <= half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_workloads::rng::Rng;

    /// Noise around 10, of `n` values; the first `rise` climb to it.
    fn climbing(n: usize, rise: usize) -> Vec<f64> {
        let mut rng = Rng::new(3, "test");
        let level = |i: usize| 10.0 * (i as f64 / rise.max(1) as f64).min(1.0);
        (0..n).map(|i| level(i) + rng.unit()).collect()
    }

    #[test]
    fn the_climb_is_left_out_and_nothing_of_a_level_run() {
        let (left_out, settled) = WarmUp::Auto.of(&climbing(1000, 200));
        assert!((180..=230).contains(&left_out) && settled, "{left_out}");
        let (left_out, settled) = WarmUp::Auto.of(&climbing(1000, 0));
        assert!(left_out < 100 && settled, "{left_out}");
        assert_eq!(WarmUp::Auto.of(&[5.0; 100]), (0, true));
        assert_eq!(WarmUp::Auto.of(&[]), (0, true));
    }

    #[test]
    fn a_run_that_climbs_to_its_end_has_not_settled() {
        let (left_out, settled) = WarmUp::Auto.of(&climbing(1000, 900));
        assert_eq!((left_out, settled), (500, false));
    }

    #[test]
    fn it_is_written_as_a_word_or_a_number() {
        assert_eq!("auto".parse(), Ok(WarmUp::Auto));
        assert_eq!("none".parse(), Ok(WarmUp::Requests(0)));
        assert_eq!("7".parse::<WarmUp>().map(|w| w.of(&[1.0; 5])), Ok((5, true)));
        assert!("-1".parse::<WarmUp>().is_err());
    }
}
