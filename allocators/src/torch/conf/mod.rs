//! PyTorch's settings text (`PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_ALLOC_CONF`), as each version reads it, with its own error messages.
//!
//! ```text
//! text    = pair { "," pair }       pair = key ":" value       value = word | "[" list "]"
//! ```
//!
//! | rule | what it says |
//! |---|---|
//! | `words` | blanks vanish; `,` `:` `[` `]` end a word. Numbers are read as C++ does: what follows the digits is ignored, a minus sign wraps |
//! | `separators` | 2.9 insists on `:` and `,` at their places; 2.15 skips whatever stands there |
//! | `two-readers` | 2.15 reads a text twice, for CUDA's keys and for the general ones; at the start CUDA's come first, while running last |
//! | `large-first` | `large_segment_size_mb` is read before the other general keys, wherever the word stands; they are checked against it (RULES 31) |
//! | `bad-reserve` | a bad `expandable_segments_reserve` is ignored with a warning, not refused |
//! | `no-effect` | settings of locks and of captures are checked and have no effect here; those of pinned memory are for `torch.pinned_host` |
//!
//! Found by asking the compiled libraries of 2.15.0 and 2.9.1; the texts of the errors are theirs.

mod v2_15;
mod v2_9;

pub(super) use v2_9::parse as parse_2_9;
pub(super) use v2_15::parse as parse_2_15;

use super::settings::{Backend, MIB};

/// Divisions of a power of two must be one themselves.
const BAD_DIVISIONS: &str = "For roundups, the divisions has to be power of 2 ";
const BAD_LIST_DIVISIONS: &str =
    "For roundups, the divisions has to be power of 2 or 0 to disable roundup ";
const BAD_INTERVALS: &str = "For roundups, the intervals have to be power of 2 ";
const BAD_BACKEND: &str = "Unknown allocator backend, options are native and cudaMallocAsync";
/// Threads that may register pinned memory.
const REGISTER_THREADS_MAX: u64 = 128;

fn words(text: &str, blank: impl Fn(char) -> bool) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in text.chars() {
        if matches!(c, ',' | ':' | '[' | ']') {
            words.push(c.to_string());
            words.push(String::new());
        } else if !blank(c) {
            words.last_mut().expect("never empty").push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Why C++ could read no number.
fn no_number(function: &str, key: &str, word: &str, expected: &str) -> String {
    format!("{function} ({key}:{word}: expected {expected})")
}

/// The digits that a word begins with, after a sign, as C++ reads them; a minus sign wraps.
fn digits(word: &str) -> Option<(bool, &str)> {
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
    (end > 0).then(|| (word.starts_with('-'), &unsigned[..end]))
}

fn unsigned(function: &str, key: &str, word: &str) -> Result<u64, String> {
    let number = digits(word).and_then(|(minus, digits)| {
        let value: u64 = digits.parse().ok()?;
        Some(if minus { value.wrapping_neg() } else { value })
    });
    number.ok_or_else(|| no_number(function, key, word, "a whole number"))
}

/// `stoi`, assigned to an unsigned 64-bit number.
fn signed(key: &str, word: &str) -> Result<u64, String> {
    let number = digits(word).and_then(|(minus, digits)| {
        let value: i64 = digits.parse().ok()?;
        i32::try_from(if minus { -value } else { value }).ok()
    });
    let number = number.ok_or_else(|| no_number("stoi", key, word, "a whole number below 2^31"))?;
    Ok(i64::from(number) as u64)
}

/// The number that a word begins with, and how long it is. Hexadecimal ones are not known here.
fn float_prefix(word: &str) -> Option<(f64, usize)> {
    let sign = usize::from(word.starts_with(['+', '-']));
    let lower = word[sign..].to_ascii_lowercase();
    for name in ["infinity", "inf", "nan"] {
        if lower.starts_with(name) {
            let end = sign + name.len();
            return Some((word[..end].parse().ok()?, end));
        }
    }
    let bytes = word.as_bytes();
    let run = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = run(sign);
    let mut end = sign + whole;
    let mut some = whole > 0;
    if bytes.get(end) == Some(&b'.') {
        let fraction = run(end + 1);
        some |= fraction > 0;
        end += 1 + fraction;
    }
    if !some {
        return None;
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = if end + 1 + sign <= bytes.len() { run(end + 1 + sign) } else { 0 };
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some((word[..end].parse().ok()?, end))
}

fn float(key: &str, word: &str) -> Result<f64, String> {
    let fits = |value: f64, end: usize| {
        let named = word[..end].bytes().any(|b| matches!(b, b'n' | b'N'));
        let zero = value == 0.0
            && !word[..end]
                .bytes()
                .take_while(|b| !matches!(b, b'e' | b'E'))
                .any(|b| matches!(b, b'1'..=b'9'));
        named || zero || value.is_normal()
    };
    match float_prefix(word) {
        Some((value, end)) if fits(value, end) => Ok(value),
        _ => Err(no_number("stod", key, word, "a number")),
    }
}

/// A size in MiB as bytes; more than 2^64 bytes become the most that there are.
fn mib(number: u64) -> u64 {
    number.min(u64::MAX / MIB) * MIB
}

/// The allocator that a word names.
fn backend_of(word: &str) -> Result<Backend, String> {
    let backends = [Backend::Native, Backend::CudaMallocAsync];
    let named = backends.into_iter().find(|backend| backend.to_string() == word);
    named.ok_or_else(|| BAD_BACKEND.to_owned())
}

/// A `backend` that is read must be the one that was loaded.
fn check_backend(word: &str, loaded: Backend) -> Result<(), String> {
    let backend = backend_of(word)?;
    if backend == loaded {
        return Ok(());
    }
    Err(format!(
        "Allocator backend parsed at runtime != allocator backend parsed at load time, {backend} != {loaded}"
    ))
}

fn class_of(boundary: u64, classes: usize) -> usize {
    (boundary.ilog2() as usize).min(classes - 1)
}

/// Sets of a list of divisions: `first` fills what is below it, `rest` ("`>`") what is above the last one.
struct DivisionList<'a> {
    classes: &'a mut [u64],
    first: bool,
    last: usize,
    /// 2.9: `>` begins at the class named last, not after it (RULES 3).
    rest_from_last: bool,
}

impl DivisionList<'_> {
    fn rest(&mut self, divisions: u64) {
        let from = self.last + usize::from(!self.rest_from_last);
        self.classes[from..].fill(divisions);
    }

    fn class(&mut self, boundary: u64, divisions: u64) -> Result<(), String> {
        if !boundary.is_power_of_two() {
            return Err(BAD_INTERVALS.into());
        }
        let class = class_of(boundary, self.classes.len());
        if std::mem::take(&mut self.first) {
            self.classes[..class].fill(divisions);
        }
        self.classes[class] = divisions;
        self.last = class;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
