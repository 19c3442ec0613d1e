//! 95 % confidence intervals by Student's t.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `interval` | mean ± t(n − 1, 0.975) · s / √n, with s the sample standard deviation: it covers the expected value in 95 of 100 such samples, if the values are independent and near normal | Law, Simulation Modeling and Analysis (5th ed.) 4.5 |
//! | `told` | tables for people leave out an interval of fewer than [`TOLD_MIN`] values, and one of times, sizes or counts that reaches below zero, and say so | - |

/// t(n, 0.975) for n degrees of freedom, from 1 (Student 1908; any table).
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The normal distribution's, to which it falls.
const Z_975: f64 = 1.959_964;

/// Fewest values whose interval is told: of two it is thirteen times as wide as they are apart, near enough.
pub const TOLD_MIN: usize = 3;

/// Does an interval of a figure that is never negative say anything? One that reaches below zero has too few values behind it, or such that are far from normal.
pub fn tells(value: f64, half: f64) -> bool {
    half <= value
}

/// A mean and half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The middle.
    pub mean: f64,
    /// From the middle to an end.
    pub half: f64,
}

impl Interval {
    /// Of independent values; none of fewer than two.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Self { mean, half: half_around(mean, values)? })
    }

    /// Of `count` values with this mean and sample standard deviation; none of fewer than two.
    pub fn from_deviation(mean: f64, deviation: f64, count: usize) -> Option<Self> {
        Some(Self { mean, half: half_of(deviation, count)? })
    }
}

/// Half the width that `count` values of this sample standard deviation give; none of fewer than two.
fn half_of(deviation: f64, count: usize) -> Option<f64> {
    let degrees = count.checked_sub(1).filter(|n| *n > 0)?;
    Some(student(degrees) * deviation / (count as f64).sqrt())
}

/// Half the width of the interval around `middle` that independent estimates of it give; none of fewer than two.
pub(super) fn half_around(middle: f64, estimates: &[f64]) -> Option<f64> {
    let degrees = estimates.len().checked_sub(1).filter(|n| *n > 0)?;
    let squares: f64 = estimates.iter().map(|value| (value - middle).powi(2)).sum();
    half_of((squares / degrees as f64).sqrt(), estimates.len())
}

/// t(degrees, 0.975); beyond the table by the first term of its expansion, (z³ + z) / 4n.
fn student(degrees: usize) -> f64 {
    let more = |n: f64| Z_975 + (Z_975.powi(3) + Z_975) / (4.0 * n);
    T_975.get(degrees - 1).copied().unwrap_or_else(|| more(degrees as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four values with mean 5 and deviation 2.582: t(3) is 3.182.
    #[test]
    fn an_interval_is_students() {
        let found = Interval::of(&[2.0, 4.0, 6.0, 8.0]).expect("four values");
        assert!((found.mean - 5.0).abs() < 1e-12);
        assert!((found.half - 3.182 * 2.581_989 / 2.0).abs() < 1e-5, "{found:?}");
        assert_eq!(Interval::of(&[1.0]), None);
        assert_eq!(Interval::of(&[3.0, 3.0]), Some(Interval { mean: 3.0, half: 0.0 }));
    }

    #[test]
    fn an_interval_that_reaches_below_zero_tells_nothing() {
        assert!(tells(169.0, 169.0) && tells(0.0, 0.0) && !tells(169.0, 376.0));
    }

    /// t(40) is 2.0211, t(120) is 1.9799.
    #[test]
    fn students_quantile_goes_on_beyond_its_table() {
        assert!((student(40) - 2.0211).abs() < 2e-3);
        assert!((student(120) - 1.9799).abs() < 2e-4);
        assert!(student(30) > student(31));
    }
}
