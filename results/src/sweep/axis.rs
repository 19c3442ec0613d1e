//! The values of an axis: a list, or a range of which only the ends are held.

use std::fmt;

use vramlab_sim::units::Bytes;

/// Values in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// As they are written.
    List(Vec<String>),
    /// `from`, `from + step`, …
    Steps {
        /// The first, in units of the last decimal place.
        from: u64,
        /// From one to the next.
        step: u64,
        /// How many.
        count: u64,
        /// Decimal places.
        places: u32,
    },
    /// `from`, `from × factor`, …
    Powers {
        /// The first.
        from: u64,
        /// From one to the next; at least 2.
        factor: u64,
        /// How many.
        count: u64,
    },
}

/// A decimal number: `digits / 10^places`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    digits: u64,
    places: u32,
}

/// Most decimal places of a range.
const PLACES_MAX: u32 = 9;

impl Decimal {
    /// A number such as `0.25`, or a size such as `2MiB`, in bytes.
    fn parse(text: &str) -> Option<Self> {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'_');
        if !plain {
            let bytes: Bytes = text.parse().ok()?;
            return Some(Self { digits: bytes.0, places: 0 });
        }
        let text = text.replace('_', "");
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        let places = u32::try_from(part.len()).ok().filter(|places| *places <= PLACES_MAX)?;
        Some(Self { digits: format!("{whole}{part}").parse().ok()?, places })
    }

    fn with_places(self, places: u32) -> Option<u64> {
        self.digits.checked_mul(10_u64.checked_pow(places - self.places)?)
    }
}

impl Axis {
    /// A single value.
    pub fn one(value: impl Into<String>) -> Self {
        Self::List(vec![value.into()])
    }

    /// `count` whole numbers from 0 on.
    pub fn first(count: u64) -> Self {
        Self::Steps { from: 0, step: 1, count, places: 0 }
    }

    /// Numbers or sizes from `from` to at most `to`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn steps(from: &str, to: &str, step: &str) -> Result<Self, String> {
        let [from, to, step] = parsed([("from", from), ("to", to), ("step", step)])?;
        let places = from.places.max(to.places).max(step.places);
        let scaled = |decimal: Decimal| {
            decimal.with_places(places).ok_or("the numbers of the range are too large".to_owned())
        };
        let (first, last, by) = (scaled(from)?, scaled(to)?, scaled(step)?);
        if by == 0 {
            return Err("step is 0; give a step above it".to_owned());
        }
        let length = last.checked_sub(first).ok_or_else(backwards)?;
        let count = (length / by).checked_add(1).ok_or("the range has 2^64 values")?;
        Ok(Self::Steps { from: first, step: by, count, places })
    }

    /// Numbers or sizes from `from` to at most `to`, each `factor` times the one before.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn powers(from: &str, to: &str, factor: &str) -> Result<Self, String> {
        let all = parsed([("from", from), ("to", to), ("factor", factor)])?;
        let [from, to, factor] = all.map(|decimal| decimal.digits);
        if all.iter().any(|decimal| decimal.places > 0) {
            return Err("a range with a factor takes whole numbers".to_owned());
        }
        if factor < 2 || from == 0 {
            return Err(format!(
                "found from = {from} and factor = {factor}, expected at least 1 and 2: it would not end"
            ));
        }
        if from > to {
            return Err(backwards());
        }
        let values = std::iter::successors(Some(from), |value| value.checked_mul(factor));
        let count = values.take_while(|value| *value <= to).count() as u64;
        Ok(Self::Powers { from, factor, count })
    }

    /// How many values.
    pub fn len(&self) -> u64 {
        match self {
            Self::List(values) => values.len() as u64,
            Self::Steps { count, .. } | Self::Powers { count, .. } => *count,
        }
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `n`-th value, which must be there.
    pub fn get(&self, n: u64) -> String {
        match self {
            Self::List(values) => values[n as usize].clone(),
            Self::Steps { from, step, places, .. } => decimal(from + n * step, *places),
            Self::Powers { from, factor, .. } => (from * factor.pow(n as u32)).to_string(),
        }
    }

    /// Values to look at where looking at all would take too long: all of a list, the ends of a range.
    pub fn ends(&self) -> Vec<String> {
        match self {
            Self::List(values) => values.clone(),
            _ => vec![self.get(0), self.get(self.len() - 1)],
        }
    }
}

fn backwards() -> String {
    "from is above to; give the smaller number first".to_owned()
}

fn parsed<const N: usize>(texts: [(&str, &str); N]) -> Result<[Decimal; N], String> {
    let mut all = [Decimal { digits: 0, places: 0 }; N];
    for (place, (name, text)) in all.iter_mut().zip(texts) {
        *place = Decimal::parse(text).ok_or_else(|| {
            format!(
                "{name}: found {text:?}, expected a number from 0 on with at most {PLACES_MAX} decimal places, or a size such as 16GiB"
            )
        })?;
    }
    Ok(all)
}

fn decimal(digits: u64, places: u32) -> String {
    if places == 0 {
        return digits.to_string();
    }
    let unit = 10_u64.pow(places);
    format!("{}.{:0width$}", digits / unit, digits % unit, width = places as usize)
}

/// The form that a grid's hash is made of.
impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(values) => write!(f, "{values:?}"),
            Self::Steps { from, step, count, places } => {
                write!(f, "{count} from {from} by {step} / 10^{places}")
            }
            Self::Powers { from, factor, count } => write!(f, "{count} from {from} times {factor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(axis: &Axis) -> Vec<String> {
        (0..axis.len()).map(|n| axis.get(n)).collect()
    }

    #[test]
    fn a_range_has_both_ends_if_the_steps_meet_the_last() {
        assert_eq!(all(&Axis::steps("8", "32", "8").expect("a range")), ["8", "16", "24", "32"]);
        assert_eq!(all(&Axis::steps("8", "31", "8").expect("a range")), ["8", "16", "24"]);
        assert_eq!(all(&Axis::steps("5", "5", "1").expect("a range")), ["5"]);
        assert_eq!(all(&Axis::powers("1", "10", "2").expect("a range")), ["1", "2", "4", "8"]);
    }

    /// 0.1 added three times as binary fractions is 0.30000000000000004.
    #[test]
    fn decimals_are_exact() {
        let axis = Axis::steps("0.1", "0.5", "0.1").expect("a range");
        assert_eq!(all(&axis), ["0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(all(&Axis::steps("1", "2", "0.25").expect("a range"))[1], "1.25");
    }

    #[test]
    fn sizes_are_bytes() {
        let axis = Axis::steps("1GiB", "3GiB", "1GiB").expect("a range");
        assert_eq!(all(&axis), ["1073741824", "2147483648", "3221225472"]);
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        for (from, to, step) in
            [("8", "4", "1"), ("1", "4", "0"), ("-1", "4", "1"), ("a", "4", "1"), ("1.", "4", ".")]
        {
            assert!(Axis::steps(from, to, step).is_err(), "{from} {to} {step}");
        }
        assert!(Axis::powers("0", "8", "2").is_err());
        assert!(Axis::powers("1", "8", "1").is_err());
    }

    #[test]
    fn a_huge_range_is_counted_without_being_built() {
        let axis = Axis::steps("0", "18446744073709551614", "1").expect("a range");
        assert_eq!(axis.len(), u64::MAX);
        assert_eq!(axis.get(u64::MAX - 1), (u64::MAX - 1).to_string());
        assert!(Axis::steps("0", "18446744073709551615", "1").is_err(), "2^64 values");
    }
}
