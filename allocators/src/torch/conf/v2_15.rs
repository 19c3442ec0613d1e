//! The settings text as 2.15 reads it: twice, skipping whatever stands where a separator should be.
//!
//! | rule | what it says |
//! |---|---|
//! | `backend` | the first `backend` is looked for before CUDA's keys are read, so a text that ends too early fails at that |
//! | `cuda`, `general` | then CUDA's keys, then the general ones; while running the general ones first. Each reader skips the other's keys |
//! | `large-first` | of the general ones `large_segment_size_mb`, wherever the word stands |

use super::super::settings::{MIB, Reserve, Settings};
use super::{
    BAD_DIVISIONS, BAD_LIST_DIVISIONS, DivisionList, REGISTER_THREADS_MAX, backend_of,
    check_backend, float, float_prefix, mib, unsigned, words,
};

const OUT_OF_BOUNDS: &str = "Index out of bounds in ConfigTokenizer";
const NOT_CLOSED: &str =
    "Expected closing bracket ']' in ConfigTokenizer but reached end of config";
/// Requests below this share large segments, which must hold more than one of them.
const LARGE_SEGMENT_SIZE_MIN_MB: u64 = 10;

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

pub(in super::super) fn parse(
    text: &str,
    settings: &mut Settings,
    at_start: bool,
) -> Result<(), String> {
    let words = Words(words(text, |c| c.is_ascii_whitespace() || c == '\x0b'));
    if at_start {
        if let Ok(Some(word)) = first_backend(&words) {
            settings.backend = backend_of(word)?;
        }
        read_cuda(&words, settings)?;
    }
    read_general(&words, settings, at_start)?;
    if !at_start {
        read_cuda(&words, settings)?;
    }
    Ok(())
}

const LARGE_KEY: &str = "large_segment_size_mb";

fn read_general(words: &Words, settings: &mut Settings, at_start: bool) -> Result<(), String> {
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
                return read_divisions(words, at, &mut settings.divisions);
            }
            "expandable_segments" => settings.expandable = words.boolean(at + 2)?,
            "pinned_use_background_threads" => {
                settings.pinned.background = words.boolean(at + 2)?;
            }
            "pinned_max_round_threshold_mb" => settings.pinned.round_max = mib(value(at + 2)?),
            "pinned_max_cached_size_mb" => settings.pinned.cached_max = mib(value(at + 2)?),
            _ if at_start || GENERAL_KEYS.contains(&key) || CUDA_KEYS.contains(&key) => {
                return words.skip(at);
            }
            _ => return Err(format!("Unrecognized key '{key}' in Accelerator allocator config.")),
        }
        Ok(at + 2)
    })
}

fn read_divisions(words: &Words, key_at: usize, classes: &mut [u64]) -> Result<usize, String> {
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

/// Rule `backend`: what the first one says.
fn first_backend(words: &Words) -> Result<Option<&str>, String> {
    let mut at = 0;
    while at < words.0.len() {
        if words.0[at] == "backend" {
            return Ok(words.0.get(at + 2).map(String::as_str));
        }
        at = words.skip(at)? + 2;
    }
    Ok(None)
}

fn read_cuda(words: &Words, settings: &mut Settings) -> Result<(), String> {
    first_backend(words)?;
    words.walk(|key, at| {
        let value = at + 2;
        if CUDA_KEYS.contains(&key) {
            words.get(at + 1)?;
        }
        match key {
            "release_lock_on_cudamalloc"
            | "release_lock_on_hipmalloc"
            | "graph_capture_record_stream_reuse" => {
                words.boolean(value)?;
            }
            "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
                settings.pinned.register = words.boolean(value)?;
            }
            "pinned_free_catch_all" => settings.pinned.catch_all = words.boolean(value)?,
            "throw_on_cudamalloc_oom" => settings.throw_on_oom = words.boolean(value)?,
            "pinned_reserve_segment_size_mb" => {
                let number = unsigned("stoull", key, words.get(value)?)?;
                if number == 0 {
                    return Err("Pinned reserve segment size has to be greater than 0".into());
                }
                settings.pinned.reserve = mib(number);
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
                settings.pinned.register_threads = number;
            }
            "per_process_memory_fraction" => {
                let number = float(key, words.get(value)?)?;
                if !(0.0..=1.0).contains(&number) {
                    return Err("per_process_memory_fraction is invalid, set it in [0.0, 1.0]".into());
                }
                settings.fraction = number;
            }
            "expandable_segments_reserve" => {
                settings.expandable_reserve = reserve(words.get(value)?).or(settings.expandable_reserve);
            }
            "expandable_segments_reserve_by_class" => return by_class(words, at),
            "backend" => check_backend(words.get(value)?, settings.backend)?,
            _ if GENERAL_KEYS.contains(&key) => return words.skip(at),
            _ => return Err(format!("Unrecognized key '{key}' in CUDA allocator config.")),
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
