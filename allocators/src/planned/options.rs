//! The options that all planners have.

use vramlab_sim::units::Bytes;

use crate::options::{OptionDoc, OptionError, Options};

const UNIT_SIZE_MIN: u64 = 256;
const UNIT_SIZE_MAX: u64 = 2 << 20;

pub(crate) const ALIGNMENT: OptionDoc = OptionDoc {
    name: "alignment",
    default: "256",
    help: "offsets and sizes are multiples of this: a power of two from 256 B, which cudaMalloc promises, to 2MiB",
};

pub(crate) const RELEASE: OptionDoc = OptionDoc {
    name: "release",
    default: "free",
    help: "when memory is free for others: at the workload's free, or after its last_use (then less may be held than the workload has live)",
};

/// What all planners can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// Bytes.
    pub(crate) unit: u64,
    pub(crate) to_last_use: bool,
}

impl Common {
    pub(crate) fn parse(options: &Options) -> Result<Self, OptionError> {
        let text = options.get(ALIGNMENT.name).unwrap_or(ALIGNMENT.default);
        let fits =
            |unit: &u64| unit.is_power_of_two() && (UNIT_SIZE_MIN..=UNIT_SIZE_MAX).contains(unit);
        let unit = text.parse::<Bytes>().ok().map(|bytes| bytes.0).filter(fits);
        let unit = unit.ok_or_else(|| {
            OptionError(format!(
                "option alignment={text}: expected a power of two from 256 B to 2 MiB"
            ))
        })?;
        let to_last_use = match options.get(RELEASE.name).unwrap_or(RELEASE.default) {
            "free" => false,
            "last_use" => true,
            other => {
                return Err(OptionError(format!(
                    "option release={other}: expected free or last_use"
                )));
            }
        };
        Ok(Self { unit, to_last_use })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named() {
        let parse = |key: &str, value: &str| Common::parse(&Options::from_pairs([(key, value)]));
        assert_eq!(parse("release", "free"), Ok(Common { unit: 256, to_last_use: false }));
        assert!(parse("release", "last_use").expect("accepted").to_last_use);
        for (key, value) in [("alignment", "64"), ("alignment", "3000"), ("release", "never")] {
            assert!(parse(key, value).expect_err(value).0.contains(value));
        }
    }
}
