//! Quantities and ids: what a number counts is part of its type or of its name.
//!
//! Sizes and addresses travel as plain `u64` bytes and times as plain `u64` nanoseconds inside hot structures;
//! [`Bytes`] and [`Nanos`] are how people write and read them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A size in bytes. Parses `16GiB`, `1.5 GiB`, `512 KiB`, `20 MB` (decimal) and plain bytes; prints binary units.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// `n` KiB (2^10 bytes).
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` MiB (2^20 bytes).
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` GiB (2^30 bytes).
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let text = match UNITS.iter().find(|(unit, _)| self.0 >= *unit) {
            None => format!("{} B", self.0),
            Some((unit, name)) if self.0.is_multiple_of(*unit) => {
                format!("{} {name}", self.0 / unit)
            }
            Some((unit, name)) => format!("{:.2} {name}", self.0 as f64 / *unit as f64),
        };
        f.pad(&text)
    }
}

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a size: {text:?} ({why}); expected bytes, or a number with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB, such as 16GiB"
)]
pub struct BadSize {
    /// What was found.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl FromStr for Bytes {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, BadSize> {
        let bad = |why| BadSize { text: text.to_owned(), why };
        let trimmed = text.trim();
        if trimmed
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Err(bad("a size cannot be negative"));
        }
        let split =
            trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad("unknown unit")),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole
                .checked_mul(factor)
                .map(Bytes)
                .ok_or_else(|| bad("larger than 2^64 bytes"));
        }
        let value: f64 = number.parse().map_err(|_| bad("no number"))?;
        let bytes = value * factor as f64;
        if bytes.is_finite() && bytes < u64::MAX as f64 {
            Ok(Bytes(bytes as u64))
        } else {
            Err(bad("larger than 2^64 bytes"))
        }
    }
}

/// Virtual time, or a duration: nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            n if n >= 1_000_000_000 => format!("{:.3} s", n as f64 / 1e9),
            n if n >= 1_000_000 => format!("{:.3} ms", n as f64 / 1e6),
            n if n >= 1_000 => format!("{:.2} µs", n as f64 / 1e3),
            n => format!("{n} ns"),
        };
        f.pad(&text)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A buffer of the workload, as a dense slot: renumbered when a trace is read, used again after a free.
    BufferId(u32)
);
id!(
    /// A sequence of the workload, as a dense slot: renumbered when a trace is read, used again after it ended.
    SequenceId(u32)
);
id!(
    /// A stream as the workload numbers it; 0 is the default stream.
    StreamId(u32)
);
id!(
    /// A device; 0 is the first.
    DeviceId(u16)
);
id!(
    /// An event of the driver.
    EventId(u32)
);
id!(
    /// A pool: a private pool of the workload, or a stream-ordered pool of the driver.
    PoolId(u32)
);

/// `value` rounded up to a multiple of `step` (a power of two or not); `None` past 2^64.
pub const fn round_up(value: u64, step: u64) -> Option<u64> {
    value.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_parse_what_people_write() {
        for (text, want) in [
            ("16GiB", Bytes::gib(16)),
            ("1.5 GiB", Bytes(3 << 29)),
            ("20 MB", Bytes(20_000_000)),
            ("512", Bytes(512)),
            ("80G", Bytes::gib(80)),
            ("18446744073709551615", Bytes(u64::MAX)),
        ] {
            assert_eq!(text.parse(), Ok(want), "for {text}");
        }
        for text in ["", "GiB", "-1", "1 parsec", "99999999999 TiB", "1.2.3"] {
            assert!(text.parse::<Bytes>().is_err(), "for {text:?}");
        }
        let error = "-1".parse::<Bytes>().expect_err("negative");
        assert!(error.to_string().contains("a size cannot be negative"), "{error}");
    }

    #[test]
    fn bytes_print_exact_values_without_decimals() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 20, "1 MiB"),
            (1_572_864, "1.50 MiB"),
            (80 << 30, "80 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), want);
        }
    }
}
