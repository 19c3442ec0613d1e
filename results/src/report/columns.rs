//! Whole numbers as columns of one run of bytes, which the page unpacks.
//!
//! | coding | what it says |
//! |---|---|
//! | `varint` | seven bits a byte, the lowest first; the top bit says that more follow |
//! | `plain` | each value |
//! | `delta` | each less the one before it, zigzag: 0, -1, 1, -2 are 0, 1, 2, 3 |
//! | `words` | the different values, the most frequent first, then for each place which of them |
//! | `most` | a script's numbers are exact up to 2^53: what is larger than [`MOST`] is cut there |

use rustc_hash::FxHashMap;
use serde::Serialize;

/// The largest value: differences, doubled by the zigzag, are below 2^53.
pub const MOST: u64 = (1 << 51) - 1;

/// Where a column lies, and how it is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Its first byte.
    at: usize,
    /// Values.
    n: usize,
    coding: Coding,
    /// Different values, of `words`.
    words: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Coding {
    Plain,
    Delta,
    Words,
}

/// The bytes of all columns.
#[derive(Debug, Default)]
pub struct Columns(Vec<u8>);

impl Columns {
    /// Coding `plain`.
    pub fn plain(&mut self, values: impl IntoIterator<Item = u64>) -> Column {
        self.put(Coding::Plain, 0, values.into_iter().map(|value| value.min(MOST)))
    }

    /// Coding `delta`.
    pub fn delta(&mut self, values: impl IntoIterator<Item = u64>) -> Column {
        let mut before = 0_i64;
        let zigzag = values.into_iter().map(|value| {
            let value = value.min(MOST) as i64;
            let change = value - std::mem::replace(&mut before, value);
            ((change << 1) ^ (change >> 63)) as u64
        });
        self.put(Coding::Delta, 0, zigzag)
    }

    /// Coding `words`.
    pub fn words(&mut self, values: &[u64]) -> Column {
        let mut counts: FxHashMap<u64, usize> = FxHashMap::default();
        for value in values {
            *counts.entry(*value).or_default() += 1;
        }
        let mut words: Vec<(u64, usize)> = counts.into_iter().collect();
        words.sort_unstable_by_key(|(value, count)| (std::cmp::Reverse(*count), *value));
        let numbers: FxHashMap<u64, u64> =
            words.iter().zip(0..).map(|((value, _), number)| (*value, number)).collect();
        let at = self.0.len();
        self.plain(words.iter().map(|(value, _)| *value));
        let places = values.iter().map(|value| numbers[value]);
        Column { at, ..self.put(Coding::Words, words.len(), places) }
    }

    fn put(&mut self, coding: Coding, words: usize, values: impl Iterator<Item = u64>) -> Column {
        let (at, mut n) = (self.0.len(), 0);
        for mut value in values {
            n += 1;
            while value >= 0x80 {
                self.0.push(value as u8 | 0x80);
                value >>= 7;
            }
            self.0.push(value as u8);
        }
        Column { at, n, coding, words }
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_seven_bits_a_byte() {
        let mut columns = Columns::default();
        let first = columns.plain([0, 127, 128, u64::MAX]);
        assert_eq!((first.at, first.n), (0, 4));
        assert_eq!(columns.bytes()[..4], [0, 127, 0x80, 1]);
        assert_eq!(columns.bytes()[4..], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3], "cut");
    }

    #[test]
    fn differences_may_fall() {
        let mut columns = Columns::default();
        columns.delta([5, 4, 6]);
        assert_eq!(columns.bytes(), [10, 1, 4]);
    }

    #[test]
    fn frequent_values_come_first() {
        let mut columns = Columns::default();
        let column = columns.words(&[300, 7, 7]);
        assert_eq!(columns.bytes(), [7, 0xac, 2, 1, 0, 0]);
        assert_eq!((column.at, column.n, column.words), (0, 3, 2));
    }
}
