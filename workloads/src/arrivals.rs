//! When requests arrive at a server.
//!
//! | process | what it says |
//! |---|---|
//! | Poisson | gaps are exponential, with one rate |
//! | bursty | a Markov-modulated Poisson process: calm and burst alternate, each for an exponential time, each with its own rate |
//! | recorded | those of a file of requests ([`crate::readers::requests`]), the times between them divided by a speed |
//! | diurnal | a Poisson process whose rate is `mean × (1 + swing × sin(2π t / period))`, drawn by thinning |
//!
//! Gaps are drawn by one generator; another draws how long calms and bursts last, and which candidates thinning keeps, so that another rate moves no burst.
//! Times are rounded to a nanosecond. The caller names the purpose of the random numbers.

use std::path::Path;
use std::sync::Arc;

use vramlab_sim::units::Nanos;

use crate::params::{ParamError, Params};
use crate::readers::requests::RequestLog;
use crate::rng::Rng;

const NS_PER_S: f64 = 1e9;

/// When requests arrive.
pub(crate) struct Arrivals {
    gaps: Rng,
    turns: Rng,
    now_s: f64,
    law: Law,
}

enum Law {
    Bursty {
        burst: bool,
        /// End of the calm or burst at hand (s).
        until_s: f64,
        rate: f64,
        burst_rate: f64,
        calm_s: f64,
        /// 0: there is none, and the process is Poisson.
        burst_s: f64,
    },
    Diurnal {
        mean: f64,
        swing: f64,
        period_s: f64,
    },
}

/// The file of requests that the parameter `trace` names; none if it is `none`.
///
/// # Errors
/// When it cannot be read, or a line of it is bad.
pub(crate) fn trace(params: &Params) -> Result<Option<Arc<RequestLog>>, ParamError> {
    match params.text("trace") {
        "none" => Ok(None),
        path => match RequestLog::read(Path::new(path)) {
            Ok(log) => Ok(Some(Arc::new(log))),
            Err(error) => Err(ParamError::BadFile { message: error.to_string() }),
        },
    }
}

/// A recorded time of arrival at `speed` times the recorded pace.
pub(crate) fn hastened(at: Nanos, speed: f64) -> Nanos {
    if speed == 1.0 { at } else { Nanos((at.0 as f64 / speed).round() as u64) }
}

/// Those of gaps, and of what changes the rate.
fn generators(seed: u64, purpose: &str) -> (Rng, Rng) {
    (Rng::new(seed, purpose), Rng::new(seed, &format!("{purpose}.turns")))
}

impl Arrivals {
    /// By the parameter `arrivals` and those of the process that it names.
    pub(crate) fn from_params(
        params: &Params,
        seed: u64,
        purpose: &str,
    ) -> Result<Self, ParamError> {
        let bursty = Self::bursty(params, seed, purpose)?;
        let mean = params.number("rate", 1e-3..=1e6)?;
        let swing = params.number("swing", 0.0..=1.0)?;
        let period_s = params.number("period", 1e-3..=1e9)?;
        match params.text("arrivals") {
            "poisson" => Ok(Self::poisson(seed, purpose, mean)),
            "bursty" => Ok(bursty),
            "diurnal" => Ok(Self::diurnal(seed, purpose, mean, swing, period_s)),
            _ => Err(params
                .bad("arrivals", "poisson, bursty or diurnal (for recorded ones: trace=FILE)")),
        }
    }

    /// By the parameters `rate`, `burst_rate`, `calm` and `burst`.
    pub(crate) fn bursty(params: &Params, seed: u64, purpose: &str) -> Result<Self, ParamError> {
        let (gaps, mut turns) = generators(seed, purpose);
        let rate = params.number("rate", 1e-3..=1e6)?;
        let burst_rate = params.number("burst_rate", 1e-3..=1e6)?;
        let calm_s = params.number("calm", 1e-6..=1e6)?;
        let burst_s = params.number("burst", 0.0..=1e6)?;
        let until_s = turns.exponential(calm_s);
        let law = Law::Bursty { burst: false, until_s, rate, burst_rate, calm_s, burst_s };
        Ok(Self { gaps, turns, now_s: 0.0, law })
    }

    /// With one rate (per second).
    pub(crate) fn poisson(seed: u64, purpose: &str, rate: f64) -> Self {
        Self::diurnal(seed, purpose, rate, 0.0, 1.0)
    }

    /// With a rate (per second) that swings by a share of it, from 0 to 1, in a period (s).
    pub(crate) fn diurnal(seed: u64, purpose: &str, mean: f64, swing: f64, period_s: f64) -> Self {
        let (gaps, turns) = generators(seed, purpose);
        Self { gaps, turns, now_s: 0.0, law: Law::Diurnal { mean, swing, period_s } }
    }

    /// The next arrival.
    pub(crate) fn next(&mut self) -> Nanos {
        let at = match &mut self.law {
            Law::Bursty { burst, until_s, rate, burst_rate, calm_s, burst_s } => loop {
                let rate = if *burst { *burst_rate } else { *rate };
                let at = self.now_s + self.gaps.exponential(1.0 / rate);
                if at < *until_s {
                    break at;
                }
                // the process has no memory: draw anew from the change on
                self.now_s = *until_s;
                *burst = !*burst && *burst_s > 0.0;
                let mean = if *burst { *burst_s } else { *calm_s };
                *until_s += self.turns.exponential(mean);
            },
            Law::Diurnal { mean, swing, period_s } => {
                let mut at = self.now_s;
                loop {
                    at += self.gaps.exponential(1.0 / (*mean * (1.0 + *swing)));
                    let turn = std::f64::consts::TAU * at / *period_s;
                    let share = (1.0 + *swing * turn.sin()) / (1.0 + *swing);
                    if *swing == 0.0 || self.turns.chance(share) {
                        break at;
                    }
                }
            }
        };
        self.now_s = at;
        Nanos((at * NS_PER_S).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(mut arrivals: Arrivals, windows: usize, window_s: u64) -> Vec<u64> {
        let mut counts = vec![0; windows];
        loop {
            let window = arrivals.next().0 / (window_s * 1_000_000_000);
            match counts.get_mut(window as usize) {
                Some(count) => *count += 1,
                None => return counts,
            }
        }
    }

    /// Variance over mean: 1 for Poisson.
    fn spread(counts: &[u64]) -> f64 {
        let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let square = |c: &u64| (*c as f64 - mean).powi(2);
        counts.iter().map(square).sum::<f64>() / counts.len() as f64 / mean
    }

    #[test]
    fn poisson_has_its_rate_and_its_spread() {
        let counts = counts(Arrivals::poisson(1, "test", 10.0), 2000, 1);
        let mean = counts.iter().sum::<u64>() as f64 / 2000.0;
        assert!((9.7..10.3).contains(&mean), "{mean}");
        assert!((0.9..1.1).contains(&spread(&counts)), "{}", spread(&counts));
    }

    #[test]
    fn diurnal_is_busy_in_the_first_half_of_its_period_and_quiet_in_the_second() {
        let arrivals = Arrivals::diurnal(1, "test", 10.0, 0.8, 1000.0);
        let halves = counts(arrivals, 20, 500);
        let busy: u64 = halves.iter().step_by(2).sum();
        let all: u64 = halves.iter().sum();
        // 1/2 + swing/π of all
        let share = busy as f64 / all as f64;
        assert!((0.74..0.77).contains(&share), "{share}");
        assert!((97_000..103_000).contains(&all), "{all}");
    }

    const DOCS: &[crate::params::ParamDoc] = &[
        crate::params::doc("rate", "4", "1/s", ""),
        crate::params::doc("burst_rate", "40", "1/s", ""),
        crate::params::doc("calm", "5", "s", ""),
        crate::params::doc("burst", "1", "s", ""),
    ];

    /// One generator drew both, so that another rate gave other bursts.
    #[test]
    fn another_rate_moves_no_burst() {
        let ends = |rate: f64| {
            let mut arrivals = Arrivals::bursty(&Params::defaults(DOCS), 1, "test").unwrap();
            if let Law::Bursty { rate: of_calm, .. } = &mut arrivals.law {
                *of_calm = rate;
            }
            let mut ends = Vec::new();
            while arrivals.next().0 < 100_000_000_000 {
                if let Law::Bursty { until_s, .. } = arrivals.law {
                    ends.push(until_s.to_bits());
                }
            }
            ends.dedup();
            ends
        };
        assert!(ends(40.0).len() > 20);
        let (slow, fast) = (ends(20.0), ends(80.0));
        // a burst may pass without an arrival, but none moves
        let shared = slow.iter().filter(|end| fast.contains(end)).count();
        assert!(shared + 4 > slow.len(), "{shared} of {}", slow.len());
    }

    #[test]
    fn bursty_spreads_more_than_poisson() {
        let arrivals = Arrivals::bursty(&Params::defaults(DOCS), 1, "test").unwrap();
        let counts = counts(arrivals, 2000, 1);
        assert!(spread(&counts) > 5.0, "{}", spread(&counts));
    }
}
