//! The latencies of one run in its steady state, with 95 % confidence intervals.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `warm_up` | the same requests are left out of every latency: those that the end-to-end latency asks for ([`super::WarmUp`]) | - |
//! | `batches` | what stays is cut, in order of arrival, into 30 batches of equal length; into 20, 15 or 10 if the batches' means still depend on the ones before (their first autocorrelation is over z(0.95) / √batches) | Law, Simulation Modeling and Analysis (5th ed.) 9.5.3 |
//! | `sectioning` | an estimate is that of all that stays, and its interval is t(b − 1, 0.975) · s / √b with s² = Σ (estimate of a batch − estimate of all)² / (b − 1): so the bias of quantiles in short batches widens it | Asmussen and Glynn, Stochastic Simulation (2007) III.5; Nakayama, "Confidence intervals for quantiles using sectioning", ACM TOMACS 24 (2014) |
//! | `long` | for the quantile q, fewer batches are taken where that gives each 10 / (1 − q) values | - |
//! | `few` | a batch must have 1 / (1 − q) values; where not even 10 batches have, there is an estimate without an interval | - |
//!
//! An interval speaks of runs under the same load that goes on for ever. A trace whose rate changes has no such state: where the latencies have not settled, or the batches
//! depend on each other, [`Steady::settled`] and [`Estimates::independent`] say so, and the intervals are too narrow.

use serde::Serialize;
use vramlab_sim::report::Done;

use super::interval::half_around;
use super::warm_up::WarmUp;

/// Least requests of which a steady state is looked for.
pub const REQUESTS_MIN: usize = 100;
/// Numbers of batches, in the order in which they are tried.
const BATCHES: [usize; 4] = [30, 20, 15, 10];
/// The last of them.
const BATCHES_MIN: usize = 10;
/// Values that a batch should have, for each that a quantile needs.
const BATCH_NEEDS_TIMES: usize = 10;
/// z(0.95), one-sided.
const Z_95: f64 = 1.644_854;

/// An estimate, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Of all that stays.
    pub value: f64,
    /// Half the width of its interval; nothing where there are too few requests for one.
    pub half: Option<f64>,
}

/// Of one latency.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Estimates {
    pub mean: Estimate,
    pub p50: Estimate,
    pub p90: Estimate,
    pub p99: Estimate,
    /// Batches.
    pub batches: usize,
    /// Are the means of the batches free of each other, as far as can be seen?
    pub independent: bool,
}

/// A run in its steady state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Steady {
    /// Answered requests.
    pub requests: usize,
    /// Of these, the first, which are left out.
    pub warm_up: usize,
    /// Had the latencies settled by the half of the run?
    pub settled: bool,
    /// From arrival to the end.
    pub e2e: Estimates,
    /// To the first token, where there are tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft: Option<Estimates>,
    /// For each token after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Estimates>,
}

impl Steady {
    /// Of the requests that a run answered; nothing of fewer than [`REQUESTS_MIN`], or if all are left out.
    pub fn of(done: &[Done], warm_up: WarmUp) -> Option<Self> {
        if done.len() < REQUESTS_MIN {
            return None;
        }
        let mut done = done.to_vec();
        done.sort_by_key(|done| (done.arrival, done.number));
        let e2e: Vec<f64> = done.iter().map(|done| done.e2e() as f64).collect();
        let (warm_up, settled) = warm_up.of(&e2e);
        let rest = &done[warm_up..];
        let tokens = rest.iter().any(|done| done.outputs > 0);
        let ttft: Vec<f64> = rest.iter().map(|done| done.ttft() as f64).collect();
        let tpot: Vec<f64> = rest.iter().filter_map(|done| Some(done.tpot()? as f64)).collect();
        Some(Self {
            requests: done.len(),
            warm_up,
            settled,
            e2e: Estimates::of(&e2e[warm_up..])?,
            ttft: Estimates::of(&ttft).filter(|_| tokens),
            tpot: Estimates::of(&tpot),
        })
    }

    /// Its latencies by name.
    pub fn latencies(&self) -> impl Iterator<Item = (&'static str, &Estimates)> {
        let named =
            [("TTFT", self.ttft.as_ref()), ("TPOT", self.tpot.as_ref()), ("e2e", Some(&self.e2e))];
        named.into_iter().filter_map(|(name, estimates)| Some((name, estimates?)))
    }
}

impl Estimates {
    /// Of values in order; none of no value.
    pub fn of(values: &[f64]) -> Option<Self> {
        let whole = Sorted::of(values)?;
        let (batches, independent) = batches(values);
        let estimate = |of: &dyn Fn(&Sorted) -> f64, needs: usize| {
            let value = of(&whole);
            let long = |count: &usize| values.len() / count >= BATCH_NEEDS_TIMES * needs;
            let counts = BATCHES.into_iter().filter(|count| *count <= batches);
            let count = counts.clone().find(long).unwrap_or(BATCHES_MIN);
            let each: Vec<f64> =
                cut(values, count).filter_map(Sorted::of).map(|b| of(&b)).collect();
            let half = half_around(value, &each).filter(|_| values.len() / count >= needs);
            Estimate { value, half }
        };
        let quantile = |percent: usize| {
            estimate(&|part| part.quantile(percent), 100_usize.div_ceil(100 - percent))
        };
        Some(Self {
            mean: estimate(&|part| part.mean, 1),
            p50: quantile(50),
            p90: quantile(90),
            p99: quantile(99),
            batches,
            independent,
        })
    }
}

/// Batches of equal length; what is left behind the last is in none.
fn cut(values: &[f64], count: usize) -> impl Iterator<Item = &[f64]> {
    values.chunks_exact((values.len() / count).max(1)).take(count)
}

/// How many batches at most, and whether their means are free of each other.
fn batches(values: &[f64]) -> (usize, bool) {
    let free = |count: &usize| {
        let mean = |batch: &[f64]| batch.iter().sum::<f64>() / batch.len() as f64;
        let means: Vec<f64> = cut(values, *count).map(mean).collect();
        first_autocorrelation(&means) <= Z_95 / (*count as f64).sqrt()
    };
    BATCHES.into_iter().find(free).map_or((BATCHES_MIN, false), |count| (count, true))
}

fn first_autocorrelation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let off: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let all: f64 = off.iter().map(|off| off * off).sum();
    let next: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if all > 0.0 { next / all } else { 0.0 }
}

struct Sorted {
    values: Vec<f64>,
    mean: f64,
}

impl Sorted {
    fn of(values: &[f64]) -> Option<Self> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self { values, mean })
    }

    /// The value that so many of a hundred do not pass (nearest rank).
    fn quantile(&self, percent: usize) -> f64 {
        let rank = (self.values.len() * percent).div_ceil(100);
        self.values[rank.max(1) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::units::Nanos;
    use vramlab_workloads::rng::Rng;

    /// Share of runs whose interval has the true value in it, for the mean, P50, P90 and P99.
    fn coverage(truth: [f64; 4], run: impl Fn(u64) -> Vec<f64>) -> [f64; 4] {
        const RUNS: u64 = 300;
        let mut covered = [0.0; 4];
        for seed in 0..RUNS {
            let found = Estimates::of(&run(seed)).expect("values");
            let estimates = [found.mean, found.p50, found.p90, found.p99];
            for (i, (estimate, truth)) in estimates.iter().zip(truth).enumerate() {
                let half = estimate.half.expect("enough values");
                covered[i] += f64::from((estimate.value - truth).abs() <= half);
            }
        }
        covered.map(|count| count / RUNS as f64)
    }

    /// A first-order autoregressive process: each value is 0.6 of the one before and new noise, a sum of twelve uniforms less six. Its mean is 0.
    #[test]
    fn intervals_cover_the_mean_of_an_autoregressive_process() {
        let run = |seed| {
            let mut rng = Rng::new(seed, "test");
            let mut noise = move || (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
            let mut value = noise() / 0.8;
            let mut next = move || {
                value = 0.6 * value + noise();
                value
            };
            (0..4000).map(|_| next()).collect()
        };
        // normal with deviation 1 / 0.8
        let [mean, p50, p90, p99] = coverage([0.0, 0.0, 1.2816 / 0.8, 2.3263 / 0.8], run);
        assert!((0.91..=0.985).contains(&mean), "{mean}");
        assert!((0.91..=0.985).contains(&p50), "{p50}");
        assert!((0.91..=0.99).contains(&p90), "{p90}");
        assert!((0.90..=1.0).contains(&p99), "{p99}");
    }

    /// Times in a queue with one server, Poisson arrivals and exponential service, half busy: exponential with mean 1 / (1 − 0.5).
    #[test]
    fn intervals_cover_the_times_in_a_queue() {
        let run = |seed| {
            let (mut arrivals, mut services) = (Rng::new(seed, "a"), Rng::new(seed, "s"));
            let mut waits = 0.0_f64;
            let mut next = move || {
                let time = waits + services.exponential(1.0);
                waits = (time - arrivals.exponential(2.0)).max(0.0);
                time
            };
            (0..12_000).map(|_| next()).skip(2000).collect()
        };
        let truth = [2.0, 2.0 * 2_f64.ln(), 2.0 * 10_f64.ln(), 2.0 * 100_f64.ln()];
        let [mean, p50, p90, p99] = coverage(truth, run);
        for covered in [mean, p50, p90, p99] {
            assert!((0.88..=0.99).contains(&covered), "{mean} {p50} {p90} {p99}");
        }
    }

    #[test]
    fn values_that_depend_on_each_other_for_long_are_said_to() {
        let slow: Vec<f64> = (0..3000).map(|i| (f64::from(i) / 900.0).sin()).collect();
        let found = Estimates::of(&slow).expect("values");
        assert_eq!((found.batches, found.independent), (10, false));
    }

    fn done(count: u64, e2e: impl Fn(u64) -> u64) -> Vec<Done> {
        let one = |number| {
            let (arrival, last) = (Nanos(number * 1000), Nanos(number * 1000 + e2e(number)));
            Done { number, arrival, first: last, last, outputs: 0 }
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn few_requests_have_estimates_without_intervals_and_fewer_none() {
        assert_eq!(Steady::of(&done(99, |_| 5), WarmUp::Auto), None);
        let found = Steady::of(&done(200, |n| 100 + n % 10), WarmUp::Requests(50)).expect("enough");
        assert_eq!((found.requests, found.warm_up, found.settled), (200, 50, true));
        assert!(found.ttft.is_none() && found.tpot.is_none());
        assert_eq!(found.e2e.p90.value, 108.0);
        assert!(found.e2e.p90.half.is_some() && found.e2e.p99.half.is_none());
        assert_eq!(Steady::of(&done(200, |_| 5), WarmUp::Requests(999)), None);
    }

    #[test]
    fn the_order_of_arrival_counts_not_that_of_the_ends() {
        let mut some = done(400, |n| if n < 100 { 90_000 - n * 800 } else { 100 + n % 7 });
        let in_order = Steady::of(&some, WarmUp::Auto);
        some.sort_by_key(|done| done.last);
        assert_eq!(Steady::of(&some, WarmUp::Auto), in_order);
        let warm_up = in_order.expect("enough").warm_up;
        assert!((95..=110).contains(&warm_up), "{warm_up}");
    }
}
