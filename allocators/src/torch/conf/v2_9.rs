//! The settings text as 2.9 reads it: once, insisting on separators.

use super::super::settings::{LARGE_SEGMENT_SIZE, MIB, Settings};
use super::{
    BAD_DIVISIONS, BAD_LIST_DIVISIONS, DivisionList, REGISTER_THREADS_MAX, backend_of,
    check_backend, float, mib, signed, unsigned, words,
};

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

pub(in super::super) fn parse(
    text: &str,
    settings: &mut Settings,
    at_start: bool,
) -> Result<(), String> {
    const LEAST: u64 = LARGE_SEGMENT_SIZE / MIB;
    let words = StrictWords(words(text, |c| c == ' '));
    let mut loaded = !at_start;
    let mut at = 0;
    while at < words.0.len() {
        let key = words.0[at].as_str();
        if !KEYS.contains(&key) {
            return Err(format!("Unrecognized CachingAllocator option: {key}"));
        }
        // Messages know one spelling of these.
        let key = match key {
            "release_lock_on_hipmalloc" => "release_lock_on_cudamalloc",
            "pinned_use_hip_host_register" => "pinned_use_cuda_host_register",
            other => other,
        };
        let missing = || format!("Error, expecting {key} value");
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
            "roundup_power2_divisions" => at = read_divisions(&words, at, &mut settings.divisions)?,
            "backend" => {
                let word = words.get(at, "Error parsing backend value")?;
                if !std::mem::replace(&mut loaded, true) {
                    settings.backend = backend_of(word)?;
                }
                check_backend(word, settings.backend)?;
            }
            "expandable_segments" => settings.expandable = words.boolean(key, at)?,
            "pinned_use_cuda_host_register" | "pinned_use_background_threads" => {
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
const KEYS: &[&str] = &[
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
fn read_divisions(
    words: &StrictWords,
    mut at: usize,
    classes: &mut [u64],
) -> Result<usize, String> {
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
