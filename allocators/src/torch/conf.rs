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
//! | `no-effect` | settings of the host allocator, of locks and of captures are checked and have no effect here |
//!
//! Found by asking the compiled libraries of 2.15.0 and 2.9.1; the texts of the errors are theirs.

use super::settings::{LARGE_SEGMENT_SIZE, MIB, Reserve, Settings};

/// Divisions of a power of two must be one themselves.
const BAD_DIVISIONS: &str = "For roundups, the divisions has to be power of 2 ";
const BAD_LIST_DIVISIONS: &str =
    "For roundups, the divisions has to be power of 2 or 0 to disable roundup ";
const BAD_INTERVALS: &str = "For roundups, the intervals have to be power of 2 ";
const BAD_BACKEND: &str = "Unknown allocator backend, options are native and cudaMallocAsync";
const OUT_OF_BOUNDS: &str = "Index out of bounds in ConfigTokenizer";
const NOT_CLOSED: &str =
    "Expected closing bracket ']' in ConfigTokenizer but reached end of config";
/// Threads that may register pinned memory.
const REGISTER_THREADS_MAX: u64 = 128;
/// Requests below this share large segments, which must hold more than one of them.
const LARGE_SEGMENT_SIZE_MIN_MB: u64 = 10;

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

/// `later` names what is to come; 2.15 and 2.9 use the same words.
fn backend(word: &str) -> Result<(), String> {
    match word {
        "native" => Ok(()),
        "cudaMallocAsync" => Err("backend:cudaMallocAsync is another allocator, the driver's stream-ordered pool: it comes later; leave it out, or use backend:native".into()),
        _ => Err(BAD_BACKEND.into()),
    }
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

// ---------------------------------------------------------------------------------------------------------------- 2.15

/// The words of 2.15, which checks bounds and nothing else.
struct Words(Vec<String>);

impl Words {
    fn get(&self, at: usize) -> Result<&str, String> {
        self.0.get(at).map(String::as_str).ok_or_else(|| match self.0.last() {
            Some(last) => format!(
                "{OUT_OF_BOUNDS} (the text ends after {last:?}, where a value was expected)"
            ),
            None => OUT_OF_BOUNDS.to_owned(),
        })
    }

    fn boolean(&self, at: usize) -> Result<bool, String> {
        match self.get(at)? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(format!(
                "Expected 'True' or 'False' at index {at} in ConfigTokenizer but got '{other}'"
            )),
        }
    }

    /// The last word of the value that belongs to the key at `at`.
    fn skip(&self, at: usize) -> Result<usize, String> {
        self.get(at + 1)?;
        if self.get(at + 2)? != "[" {
            return Ok(at + 2);
        }
        let close = self.0[at + 3..].iter().position(|word| word == "]");
        close.map(|n| at + 3 + n).ok_or_else(|| NOT_CLOSED.to_owned())
    }

    /// Walks over the pairs; `read` handles the key at an index and says where its value ends.
    fn walk(
        &self,
        mut read: impl FnMut(&str, usize) -> Result<usize, String>,
    ) -> Result<(), String> {
        let mut at = 0;
        while at < self.0.len() {
            // Whatever stands after a value counts as its comma.
            at = read(&self.0[at], at)? + 2;
        }
        Ok(())
    }
}

/// Keys that the general reader of 2.15 handles.
const GENERAL_KEYS: &[&str] = &[
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
    "large_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
];

/// Keys that the CUDA reader of 2.15 handles.
const CUDA_KEYS: &[&str] = &[
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "graph_capture_record_stream_reuse",
    "pinned_reserve_segment_size_mb",
    "pinned_num_register_threads",
    "per_process_memory_fraction",
    "pinned_free_catch_all",
    "throw_on_cudamalloc_oom",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
];

pub(super) fn parse_2_15(
    text: &str,
    settings: &mut Settings,
    at_start: bool,
) -> Result<(), String> {
    let words = Words(words(text, |c| c.is_ascii_whitespace() || c == '\x0b'));
    if at_start {
        cuda_2_15(&words, settings, at_start)?;
    }
    general_2_15(&words, settings, at_start)?;
    if !at_start {
        cuda_2_15(&words, settings, at_start)?;
    }
    Ok(())
}

const LARGE_KEY: &str = "large_segment_size_mb";

fn general_2_15(words: &Words, settings: &mut Settings, at_start: bool) -> Result<(), String> {
    let mut at = 0;
    while let Some(found) =
        words.0[at.min(words.0.len())..].iter().position(|word| word == LARGE_KEY)
    {
        let value = at + found + 2;
        words.get(value - 1)?;
        let number = unsigned("stoull", LARGE_KEY, words.get(value)?)?;
        if number <= LARGE_SEGMENT_SIZE_MIN_MB {
            return Err(format!(
                "CachingAllocator option {LARGE_KEY} must be > {LARGE_SEGMENT_SIZE_MIN_MB} MB"
            ));
        }
        settings.large_segment = mib(number);
        at = value + 1;
    }
    let least = settings.large_segment / MIB;
    words.walk(|key, at| {
        let value = |at| unsigned("stoull", key, words.get(at)?);
        let size = |at| {
            let number = value(at)?;
            if number < least {
                return Err(format!("CachingAllocator option {key} too small, must be >= {least}"));
            }
            Ok(Some(mib(number)))
        };
        match key {
            "max_split_size_mb" => settings.max_split = size(at + 2)?,
            "max_non_split_rounding_mb" => settings.max_non_split_rounding = size(at + 2)?,
            "garbage_collection_threshold" => {
                let number = float(key, words.get(at + 2)?)?;
                if !(number > 0.0 && number < 1.0) {
                    return Err("garbage_collect_threshold is invalid, set it in (0.0, 1.0)".into());
                }
                settings.gc_threshold = number;
            }
            "roundup_power2_divisions" => {
                return divisions_2_15(words, at, &mut settings.divisions);
            }
            "expandable_segments" => settings.expandable = words.boolean(at + 2)?,
            "pinned_use_background_threads" => {
                words.boolean(at + 2)?;
            }
            "pinned_max_round_threshold_mb" | "pinned_max_cached_size_mb" => {
                value(at + 2)?;
            }
            _ if at_start || GENERAL_KEYS.contains(&key) || CUDA_KEYS.contains(&key) => {
                return words.skip(at);
            }
            _ => return Err(format!("Unrecognized key '{key}' in Accelerator allocator config.")),
        }
        Ok(at + 2)
    })
}

fn divisions_2_15(words: &Words, key_at: usize, classes: &mut [u64]) -> Result<usize, String> {
    const KEY: &str = "roundup_power2_divisions";
    words.get(key_at + 1)?;
    let mut at = key_at + 2;
    if words.get(at)? != "[" {
        let divisions = unsigned("stoull", KEY, words.get(at)?)?;
        if !divisions.is_power_of_two() {
            return Err(BAD_DIVISIONS.into());
        }
        classes.fill(divisions);
        return Ok(at);
    }
    let mut list = DivisionList { classes, first: true, last: 0, rest_from_last: false };
    loop {
        at += 1;
        match words.0.get(at).map(String::as_str) {
            None => return Err(NOT_CLOSED.into()),
            Some("]") => return Ok(at),
            Some(name) => {
                words.get(at + 1)?;
                let divisions = unsigned("stoull", KEY, words.get(at + 2)?)?;
                if divisions != 0 && !divisions.is_power_of_two() {
                    return Err(BAD_LIST_DIVISIONS.into());
                }
                if name == ">" {
                    list.rest(divisions);
                } else {
                    list.class(unsigned("stoull", KEY, name)?, divisions)?;
                }
                at += 2;
                if words.get(at + 1)? != "]" {
                    at += 1;
                }
            }
        }
    }
}

fn cuda_2_15(words: &Words, settings: &mut Settings, at_start: bool) -> Result<(), String> {
    words.walk(|key, at| {
        let value = at + 2;
        if CUDA_KEYS.contains(&key) {
            words.get(at + 1)?;
        }
        match key {
            "backend" => backend(words.get(value)?)?,
            "release_lock_on_cudamalloc"
            | "release_lock_on_hipmalloc"
            | "pinned_use_cuda_host_register"
            | "pinned_use_hip_host_register"
            | "graph_capture_record_stream_reuse"
            | "pinned_free_catch_all" => {
                words.boolean(value)?;
            }
            "throw_on_cudamalloc_oom" => settings.throw_on_oom = words.boolean(value)?,
            "pinned_reserve_segment_size_mb" => {
                if unsigned("stoull", key, words.get(value)?)? == 0 {
                    return Err("Pinned reserve segment size has to be greater than 0".into());
                }
            }
            "pinned_num_register_threads" => {
                let number = unsigned("stoull", key, words.get(value)?)?;
                if !number.is_power_of_two() {
                    return Err(format!("Number of register threads has to be power of 2, got {number}"));
                }
                if number > REGISTER_THREADS_MAX {
                    return Err(format!(
                        "Number of register threads should be less than or equal to {REGISTER_THREADS_MAX}, got {number}"
                    ));
                }
            }
            "per_process_memory_fraction" => {
                let number = float(key, words.get(value)?)?;
                if !(0.0..=1.0).contains(&number) {
                    return Err("per_process_memory_fraction is invalid, set it in [0.0, 1.0]".into());
                }
                if at_start {
                    settings.fraction_at_start = number;
                }
            }
            "expandable_segments_reserve" => {
                settings.expandable_reserve = reserve(words.get(value)?).or(settings.expandable_reserve);
            }
            "expandable_segments_reserve_by_class" => return by_class(words, at),
            _ => {
                let end = words.skip(at)?;
                if !GENERAL_KEYS.contains(&key) {
                    return Err(format!("Unrecognized key '{key}' in CUDA allocator config."));
                }
                return Ok(end);
            }
        }
        Ok(value)
    })
}

/// `0.5` of the device, or `40G`; `None` for anything else.
fn reserve(word: &str) -> Option<Reserve> {
    let (number, gib) = match word.strip_suffix(['G', 'g']) {
        Some(number) => (number, true),
        None => (word, false),
    };
    let (value, end) = float_prefix(number)?;
    if end != number.len() || !value.is_finite() || value <= 0.0 {
        return None;
    }
    Some(if gib { Reserve::Gib(value) } else { Reserve::Fraction(value) })
}

/// `[class:reserve,…]`: sizes for streams of named classes, which no stream here belongs to.
fn by_class(words: &Words, key_at: usize) -> Result<usize, String> {
    let mut at = key_at + 2;
    words.skip(key_at)?;
    if words.get(at)? != "[" {
        return Err(OUT_OF_BOUNDS.into());
    }
    loop {
        at += 1;
        if words.get(at)? == "]" {
            return Ok(at);
        }
        at += 2;
        if words.get(at + 1)? != "]" {
            at += 1;
        }
    }
}

// ----------------------------------------------------------------------------------------------------------------- 2.9

/// The words of 2.9, which insists on separators.
struct StrictWords(Vec<String>);

impl StrictWords {
    fn get(&self, at: usize, otherwise: impl Into<String>) -> Result<&str, String> {
        self.0.get(at).map(String::as_str).ok_or_else(|| otherwise.into())
    }

    fn expect(&self, at: usize, separator: &str) -> Result<(), String> {
        if self.0.get(at).is_some_and(|word| word == separator) {
            Ok(())
        } else {
            Err(format!("Error parsing CachingAllocator settings, expected {separator}"))
        }
    }

    fn boolean(&self, key: &str, at: usize) -> Result<bool, String> {
        match self.0.get(at).map(String::as_str) {
            Some("True") => Ok(true),
            Some("False") => Ok(false),
            _ => Err(format!("Expected a single True/False argument for {key}")),
        }
    }
}

pub(super) fn parse_2_9(text: &str, settings: &mut Settings) -> Result<(), String> {
    const LEAST: u64 = LARGE_SEGMENT_SIZE / MIB;
    let words = StrictWords(words(text, |c| c == ' '));
    let mut at = 0;
    while at < words.0.len() {
        let key = words.0[at].as_str();
        let missing = || format!("Error, expecting {key} value");
        let known = TWO_NINE_KEYS.contains(&key);
        if !known {
            return Err(format!("Unrecognized CachingAllocator option: {key}"));
        }
        words.expect(at + 1, ":")?;
        at += 2;
        match key {
            "max_split_size_mb" | "max_non_split_rounding_mb" => {
                let number = signed(key, words.get(at, missing())?)?;
                if number <= LEAST {
                    return Err(format!(
                        "CachingAllocator option {key} too small, must be > {LEAST}"
                    ));
                }
                let size = Some(mib(number));
                if key == "max_split_size_mb" {
                    settings.max_split = size;
                } else {
                    settings.max_non_split_rounding = size;
                }
            }
            "garbage_collection_threshold" => {
                let number = float(key, words.get(at, missing())?)?;
                if number.is_nan() || number <= 0.0 {
                    return Err("garbage_collect_threshold too small, set it 0.0~1.0".into());
                }
                if number >= 1.0 {
                    return Err("garbage_collect_threshold too big, set it 0.0~1.0".into());
                }
                settings.gc_threshold = number;
            }
            "roundup_power2_divisions" => at = divisions_2_9(&words, at, &mut settings.divisions)?,
            "backend" => backend(words.get(at, "Error parsing backend value")?)?,
            "expandable_segments" => settings.expandable = words.boolean(key, at)?,
            "pinned_use_cuda_host_register"
            | "pinned_use_hip_host_register"
            | "pinned_use_background_threads" => {
                words.get(at, missing())?;
                words.boolean(key, at)?;
            }
            "pinned_num_register_threads" => {
                let number = signed(key, words.get(at, missing())?)?;
                if !number.is_power_of_two() {
                    return Err("Number of register threads has to be power of 2 ".into());
                }
                if number > REGISTER_THREADS_MAX {
                    return Err(format!(
                        "Number of register threads should be less than or equal to {REGISTER_THREADS_MAX}"
                    ));
                }
            }
            _ => {
                words.boolean(key, at)?;
            }
        }
        if at + 1 < words.0.len() {
            words.expect(at + 1, ",")?;
        }
        at += 2;
    }
    Ok(())
}

/// Keys of 2.9.
const TWO_NINE_KEYS: &[&str] = &[
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "backend",
    "expandable_segments",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "graph_capture_record_stream_reuse",
];

/// From the value at `at` on; says where it ends.
fn divisions_2_9(words: &StrictWords, mut at: usize, classes: &mut [u64]) -> Result<usize, String> {
    const KEY: &str = "roundup_power2_divisions";
    if words.get(at, format!("Error, expecting {KEY} value"))? != "[" {
        let divisions = signed(KEY, &words.0[at])?;
        if !divisions.is_power_of_two() {
            return Err(BAD_DIVISIONS.into());
        }
        classes.fill(divisions);
        return Ok(at);
    }
    let mut list = DivisionList { classes, first: true, last: 0, rest_from_last: true };
    loop {
        at += 1;
        match words.0.get(at).map(String::as_str) {
            // The end of the text closes a list.
            None | Some("]") => return Ok(at),
            Some(name) => {
                words.expect(at + 1, ":")?;
                let divisions = words.get(at + 2, format!("Error parsing {KEY} value"))?;
                let divisions = signed(KEY, divisions)?;
                if divisions != 0 && !divisions.is_power_of_two() {
                    return Err(BAD_LIST_DIVISIONS.into());
                }
                if name == ">" {
                    list.rest(divisions);
                } else {
                    list.class(unsigned("stoul", KEY, name)?, divisions)?;
                }
                at += 2;
                if words.0.get(at + 1).is_none_or(|word| word != "]") {
                    words.expect(at + 1, ",")?;
                    at += 1;
                }
            }
        }
    }
}
