//! The limit of CuPy's pool, as it is written (rules `fraction` and `environment` of [`super::pool`]).

use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::Bytes;

use crate::options::{OptionDoc, OptionError, Options};

/// A limit on the bytes held.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Limit {
    #[default]
    None,
    Bytes(u64),
    /// Of the device's memory, from 0 to 1.
    Fraction(f64),
}

impl Limit {
    pub(super) const OPTION: OptionDoc = OptionDoc {
        name: "limit",
        default: "0",
        help: "bytes that the pool may hold (such as 8GiB), or N% of the device's memory; 0: no limit",
    };
    pub(super) const ENVIRONMENT: OptionDoc = OptionDoc {
        name: "CUPY_GPU_MEMORY_LIMIT",
        default: "unset",
        help: "the same in CuPy's own text: plain bytes, or N%; `limit` goes before it",
    };

    /// # Errors
    /// What is no limit, by its option.
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let named = |doc: &OptionDoc, limit: Result<Self, String>| {
            limit.map_err(|what| OptionError(format!("option {}: {what}", doc.name)))
        };
        if let Some(text) = options.get(Self::OPTION.name) {
            return named(&Self::OPTION, Self::read(text));
        }
        match options.get(Self::ENVIRONMENT.name) {
            Some(text) => named(&Self::ENVIRONMENT, Self::read_environment(text)),
            None => Ok(Self::None),
        }
    }

    /// A text of ours: sizes may have units.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text.trim().strip_suffix('%') {
            Some(percent) => Self::percent(text, percent),
            None => text.parse().map(|Bytes(bytes)| Self::Bytes(bytes)).map_err(|e| e.to_string()),
        }
    }

    /// A text of CuPy's.
    fn read_environment(text: &str) -> Result<Self, String> {
        if let Some(percent) = text.strip_suffix('%') {
            return Self::percent(text, percent);
        }
        let bytes = text.trim().parse();
        bytes.map(Self::Bytes).map_err(|_| {
            format!("found {text:?}, expected bytes without a unit, or a percentage such as 50%")
        })
    }

    fn percent(text: &str, percent: &str) -> Result<Self, String> {
        let fraction = percent.trim().parse().ok().map(|percent: f64| percent / 100.0);
        let fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
        fraction.map(Self::Fraction).ok_or_else(|| {
            format!("memory limit fraction out of range: found {text:?}, expected 0% to 100%")
        })
    }

    /// In bytes on this device; 0: none.
    ///
    /// # Errors
    /// A driver error.
    pub(super) fn bytes(self, driver: &mut dyn Driver) -> Result<u64, DriverError> {
        Ok(match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes,
            Self::Fraction(fraction) => (fraction * driver.mem_info()?.1 as f64) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Result<Limit, String> {
        Limit::parse(&Options::from_pairs([(name, text)])).map_err(|error| error.to_string())
    }

    #[test]
    fn environment_is_bytes_or_a_percentage() {
        let environment = |text| parse("CUPY_GPU_MEMORY_LIMIT", text);
        assert_eq!(environment("1073741824"), Ok(Limit::Bytes(1 << 30)));
        assert_eq!(environment("12.5%"), Ok(Limit::Fraction(0.125)));
        for text in ["1GiB", "0.5", "-1", "101%", "nan%", "%"] {
            let error = environment(text).expect_err(text);
            assert!(error.starts_with("option CUPY_GPU_MEMORY_LIMIT:"), "{error}");
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn the_option_takes_units_and_goes_first() {
        assert_eq!(parse("limit", "1GiB"), Ok(Limit::Bytes(1 << 30)));
        let both = Options::from_pairs([("CUPY_GPU_MEMORY_LIMIT", "50%"), ("limit", "0")]);
        assert_eq!(Limit::parse(&both), Ok(Limit::Bytes(0)));
    }
}
