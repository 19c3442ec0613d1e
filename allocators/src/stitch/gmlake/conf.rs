//! The settings text of PyTorch 2.0 (`PYTORCH_CUDA_ALLOC_CONF`), which GMLake reads as PyTorch does, with its error messages.
//!
//! ```text
//! text = pair { "," pair }       pair = key ":" value       value = word | "[" class ":" word { "," class ":" word } "]"
//! ```
//! Blanks vanish. Numbers are read strictly here; C++ ignores what follows the digits.
//! Source: antgroup/glake at fb24ee8, `GMLake/src/CUDACachingAllocator.cpp` 706-937.

use super::sizes::LARGE_SEGMENT_SIZE;

const MIB: u64 = 1 << 20;
/// Power-of-two classes of request sizes with divisions of their own: from 1 MiB on, the last one open above.
pub(super) const CLASSES: usize = 16;

/// What a text says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conf {
    /// Bytes.
    pub(super) max_split: Option<u64>,
    /// Steps between powers of two, by class.
    pub(super) divisions: [u64; CLASSES],
}

struct Words {
    list: Vec<String>,
    at: usize,
}

impl Words {
    fn new(text: &str) -> Self {
        let mut list = vec![String::new()];
        for c in text.chars() {
            if matches!(c, ',' | ':' | '[' | ']') {
                list.extend([c.to_string(), String::new()]);
            } else if c != ' ' {
                list.last_mut().expect("never empty").push(c);
            }
        }
        list.retain(|word| !word.is_empty());
        Self { list, at: 0 }
    }

    fn next(&mut self) -> Option<&str> {
        self.at += 1;
        self.list.get(self.at - 1).map(String::as_str)
    }

    fn is_next(&self, word: &str) -> bool {
        self.list.get(self.at).is_some_and(|next| next == word)
    }

    fn expect(&mut self, separator: &str) -> Result<(), String> {
        match self.next() {
            Some(word) if word == separator => Ok(()),
            _ => Err(format!("Error parsing CachingAllocator settings, expected {separator}")),
        }
    }

    fn value<T: std::str::FromStr>(&mut self, key: &str, expected: &str) -> Result<T, String> {
        let word = self.next().ok_or_else(|| format!("Error, expecting {key} value"))?;
        word.parse().map_err(|_| format!("{key}:{word}: expected {expected}"))
    }
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<Conf, String> {
    const LEAST: u64 = LARGE_SEGMENT_SIZE / MIB;
    let (mut words, mut conf) = (Words::new(text), Conf::default());
    while let Some(key) = words.next().map(str::to_owned) {
        match key.as_str() {
            "max_split_size_mb" => {
                words.expect(":")?;
                let mib: u64 = words.value(&key, "a whole number")?;
                if mib <= LEAST {
                    return Err(format!(
                        "CachingAllocator option max_split_size_mb too small, must be > {LEAST}"
                    ));
                }
                conf.max_split = Some(mib.saturating_mul(MIB));
            }
            "garbage_collection_threshold" => {
                words.expect(":")?;
                let share: f64 = words.value(&key, "a number between 0 and 1")?;
                if share.is_nan() || share <= 0.0 {
                    return Err("garbage_collect_threshold too small, set it 0.0~1.0".into());
                }
                if share >= 1.0 {
                    return Err("garbage_collect_threshold too big, set it 0.0~1.0".into());
                }
            }
            "roundup_power2_divisions" => {
                words.expect(":")?;
                divisions(&mut words, &mut conf.divisions)?;
            }
            "backend" => {
                words.expect(":")?;
                match words.next() {
                    Some("native") => {}
                    Some("cudaMallocAsync") => {
                        return Err("backend:cudaMallocAsync leaves nothing of GMLake; leave it out, or use backend:native".into());
                    }
                    _ => {
                        return Err(
                            "Unknown allocator backend, options are native and cudaMallocAsync"
                                .into(),
                        );
                    }
                }
            }
            _ => return Err(format!("Unrecognized CachingAllocator option: {key}")),
        }
        if words.at < words.list.len() {
            words.expect(",")?;
        }
    }
    Ok(conf)
}

fn divisions(words: &mut Words, classes: &mut [u64; CLASSES]) -> Result<(), String> {
    const KEY: &str = "roundup_power2_divisions";
    let power = |words: &mut Words| {
        let number: u64 = words.value(KEY, "a power of two")?;
        let bad = || "For roundups, the divisons has to be power of 2 ".to_owned();
        number.is_power_of_two().then_some(number).ok_or_else(bad)
    };
    if !words.is_next("[") {
        classes.fill(power(words)?);
        return Ok(());
    }
    words.next();
    let (mut first, mut last) = (true, 0);
    while !words.is_next("]") {
        let Some(class) = words.next().map(str::to_owned) else { return Ok(()) };
        words.expect(":")?;
        let number = power(words)?;
        if class == ">" {
            classes[last..].fill(number);
        } else {
            let mib = class.parse::<u64>().ok().filter(|mib| mib.is_power_of_two());
            let mib = mib.ok_or("For roundups, the intervals have to be power of 2 ")?;
            last = (mib.ilog2() as usize).min(CLASSES - 1);
            if std::mem::take(&mut first) {
                classes[..last].fill(number);
            }
            classes[last] = number;
        }
        if !words.is_next("]") {
            words.expect(",")?;
        }
    }
    words.next();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_pytorch_reads_it() {
        let text =
            "max_split_size_mb: 128, roundup_power2_divisions:[64:8,256:4,>:2],backend:native";
        let conf = parse(text).expect("accepted");
        assert_eq!(conf.max_split, Some(128 * MIB));
        assert_eq!(conf.divisions[..10], [8, 8, 8, 8, 8, 8, 8, 0, 2, 2]);
        assert_eq!(parse("roundup_power2_divisions:4").expect("accepted").divisions, [4; CLASSES]);
        assert_eq!(parse(""), Ok(Conf::default()));
    }

    #[test]
    fn a_text_is_refused_in_its_own_words() {
        for (text, want) in [
            (
                "expandable_segments:True",
                "Unrecognized CachingAllocator option: expandable_segments",
            ),
            ("max_split_size_mb:20", "too small, must be > 20"),
            ("max_split_size_mb", "expected :"),
            ("max_split_size_mb:64 garbage_collection_threshold:0.5", "expected a whole number"),
            ("garbage_collection_threshold:1", "too big"),
            ("roundup_power2_divisions:3", "power of 2"),
            ("roundup_power2_divisions:[3:2]", "intervals have to be power of 2"),
            ("backend:async", "Unknown allocator backend"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
