//! A part of a sweep, for one task of many: every N-th cell.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Part `index` of `of`: cells `index`, `index + of`, …, so that slow cells, which stand together, are spread over all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 0.
    pub index: u64,
    /// How many parts there are.
    pub of: u64,
}

/// Most parts: array jobs of schedulers end well below.
const SHARDS_MAX: u64 = 1_000_000;

impl Shard {
    /// The whole sweep.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// How many of `cells` are in it.
    pub const fn cells(self, cells: u64) -> u64 {
        cells.saturating_sub(self.index).div_ceil(self.of)
    }

    /// The number of its `n`-th cell.
    pub const fn cell(self, n: u64) -> u64 {
        self.index + n * self.of
    }

    /// Name of its file, without an ending.
    pub fn file_stem(self) -> String {
        format!("shard-{:04}-of-{:04}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, of)| {
            let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            let both = plain(index) && plain(of);
            both.then(|| Some(Self { index: index.parse().ok()?, of: of.parse().ok()? }))?
        });
        numbers.filter(|shard| shard.index < shard.of && shard.of <= SHARDS_MAX).ok_or_else(|| {
            format!("expected I/N, such as 0/4 for the first of four parts: I from 0 to N-1, N at most {SHARDS_MAX}")
        })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_in_one_shard() {
        for (cells, of) in [(0, 1), (1, 1), (10, 3), (10, 4), (3, 8)] {
            let all = (0..of).flat_map(|index| {
                let shard = Shard { index, of };
                (0..shard.cells(cells)).map(move |n| shard.cell(n))
            });
            let mut all: Vec<u64> = all.collect();
            all.sort_unstable();
            assert_eq!(all, (0..cells).collect::<Vec<_>>(), "{cells} cells, {of} shards");
        }
    }

    #[test]
    fn a_shard_is_written_as_i_of_n() {
        assert_eq!("3/4".parse(), Ok(Shard { index: 3, of: 4 }));
        for text in ["4/4", "1", "", "/", "a/4", "-1/4", "+1/4", "0/0", "0/1000001", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
