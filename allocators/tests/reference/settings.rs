//! The reference's own reading of the settings text (`PYTORCH_CUDA_ALLOC_CONF`), and the sizes that follow from it.

use super::Version;

pub(crate) const MIB: u64 = 1 << 20;
/// Every block is a multiple of this.
pub(crate) const BLOCK_SIZE_MIN: u64 = 512;
/// Largest rounded request of the small pool; also what must be left over for a split in the large pool.
pub(crate) const SMALL_SIZE_MAX: u64 = MIB;
pub(crate) const SMALL_SEGMENT_SIZE: u64 = 2 * MIB;
const DEFAULT_LARGE_SEGMENT_SIZE: u64 = 20 * MIB;
/// From here on a request gets a segment of its own size.
const OWN_SEGMENT_SIZE_MIN: u64 = 10 * MIB;
const OWN_SEGMENT_STEP: u64 = 2 * MIB;
/// Classes of rounding: powers of two from 1 MiB up; the last one is open.
const CLASSES: usize = 16;

/// How long an expandable range may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reserve {
    Fraction(f64),
    Bytes(f64),
}

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) version: Version,
    /// `u64::MAX`: no limit.
    pub(crate) max_split_size: u64,
    pub(crate) max_non_split_rounding: u64,
    pub(crate) divisions: [u64; CLASSES],
    pub(crate) gc_threshold: f64,
    pub(crate) expandable: bool,
    pub(crate) large_segment_size: u64,
    pub(crate) throw_on_cudamalloc_oom: bool,
    pub(crate) reserve: Option<Reserve>,
    pub(crate) fraction: Option<f64>,
}

impl Settings {
    pub(crate) fn new(version: Version) -> Self {
        Settings {
            version,
            max_split_size: u64::MAX,
            max_non_split_rounding: DEFAULT_LARGE_SEGMENT_SIZE,
            divisions: [0; CLASSES],
            gc_threshold: 0.0,
            expandable: false,
            large_segment_size: DEFAULT_LARGE_SEGMENT_SIZE,
            throw_on_cudamalloc_oom: false,
            reserve: None,
            fraction: None,
        }
    }

    /// Reads a settings text over these settings. Four options fall back to their defaults if they are not named, the others stay.
    pub(crate) fn apply(&mut self, text: &str) -> Result<(), String> {
        self.max_split_size = u64::MAX;
        self.divisions = [0; CLASSES];
        self.gc_threshold = 0.0;
        let mut max_split_mb = None;
        let mut rounding_mb = None;
        let tokens = tokenize(text);
        let mut at = 0;
        while at < tokens.len() {
            let key = tokens[at].as_str();
            at += 1;
            expect(&tokens, &mut at, ":")?;
            match key {
                "max_split_size_mb" => max_split_mb = Some(whole(&tokens, &mut at)?),
                "max_non_split_rounding_mb" => rounding_mb = Some(whole(&tokens, &mut at)?),
                "garbage_collection_threshold" => {
                    self.gc_threshold = number(&tokens, &mut at)?;
                    if !(self.gc_threshold > 0.0 && self.gc_threshold < 1.0) {
                        return Err(format!(
                            "{key}: expected between 0 and 1, found {}",
                            self.gc_threshold
                        ));
                    }
                }
                "roundup_power2_divisions" => self.read_divisions(&tokens, &mut at)?,
                "expandable_segments" => self.expandable = truth(&tokens, &mut at)?,
                "backend" => expect(&tokens, &mut at, "native")?,
                "release_lock_on_cudamalloc"
                | "release_lock_on_hipmalloc"
                | "pinned_use_cuda_host_register"
                | "pinned_use_hip_host_register"
                | "pinned_use_background_threads" => {
                    truth(&tokens, &mut at)?;
                }
                "pinned_num_register_threads" | "pinned_reserve_segment_size_mb" => {
                    whole(&tokens, &mut at)?;
                }
                _ if self.version == Version::V2_15 => self.read_newer(key, &tokens, &mut at)?,
                _ => return Err(format!("expected an option, found {key}")),
            }
            if at < tokens.len() {
                expect(&tokens, &mut at, ",")?;
            }
        }
        self.set_limits(max_split_mb, rounding_mb)
    }

    fn read_newer(&mut self, key: &str, tokens: &[String], at: &mut usize) -> Result<(), String> {
        match key {
            "large_segment_size_mb" => {
                let mb = whole(tokens, at)?;
                if mb <= 10 {
                    return Err(format!("{key}: expected more than 10, found {mb}"));
                }
                self.large_segment_size = mb.saturating_mul(MIB);
            }
            "throw_on_cudamalloc_oom" => self.throw_on_cudamalloc_oom = truth(tokens, at)?,
            "per_process_memory_fraction" => {
                let fraction = number(tokens, at)?;
                if !(0.0..=1.0).contains(&fraction) {
                    return Err(format!("{key}: expected 0 to 1, found {fraction}"));
                }
                self.fraction = Some(fraction);
            }
            "expandable_segments_reserve" => {
                let text = token(tokens, at)?;
                self.reserve = reserve(text);
            }
            "graph_capture_record_stream_reuse" => {
                truth(tokens, at)?;
            }
            _ => return Err(format!("expected an option, found {key}")),
        }
        Ok(())
    }

    /// These two are checked last, since the large segment size may be named after them.
    fn set_limits(
        &mut self,
        split_mb: Option<u64>,
        rounding_mb: Option<u64>,
    ) -> Result<(), String> {
        let least = match self.version {
            Version::V2_15 => self.large_segment_size,
            Version::V2_9 => DEFAULT_LARGE_SEGMENT_SIZE + MIB,
        };
        for (name, mb) in
            [("max_split_size_mb", split_mb), ("max_non_split_rounding_mb", rounding_mb)]
        {
            if let Some(mb) = mb
                && mb.min(u64::MAX / MIB) * MIB < least
            {
                return Err(format!("{name}: expected at least {}, found {mb}", least / MIB));
            }
        }
        if let Some(mb) = split_mb {
            self.max_split_size = mb.min(u64::MAX / MIB) * MIB;
        }
        // 2.9 keeps the value that it has; 2.15 falls back to the large segment size.
        match (rounding_mb, self.version) {
            (Some(mb), _) => self.max_non_split_rounding = mb.min(u64::MAX / MIB) * MIB,
            (None, Version::V2_15) => self.max_non_split_rounding = self.large_segment_size,
            (None, Version::V2_9) => {}
        }
        Ok(())
    }

    fn read_divisions(&mut self, tokens: &[String], at: &mut usize) -> Result<(), String> {
        if tokens.get(*at).is_none_or(|token| token != "[") {
            let all = whole(tokens, at)?;
            if !all.is_power_of_two() {
                return Err(format!(
                    "roundup_power2_divisions: expected a power of two, found {all}"
                ));
            }
            self.divisions = [all; CLASSES];
            return Ok(());
        }
        *at += 1;
        let mut first = true;
        let mut last = 0;
        while tokens.get(*at).is_some_and(|token| token != "]") {
            let rest = tokens[*at] == ">";
            let name = if rest { token(tokens, at).map(|_| 0)? } else { whole(tokens, at)? };
            if !rest && !name.is_power_of_two() {
                return Err(format!(
                    "roundup_power2_divisions: expected a size that is a power of two, found {name}"
                ));
            }
            expect(tokens, at, ":")?;
            let value = whole(tokens, at)?;
            if value != 0 && !value.is_power_of_two() {
                return Err(format!(
                    "roundup_power2_divisions: expected a power of two or 0, found {value}"
                ));
            }
            if rest {
                // 2.9 fills from the last named class itself, 2.15 from the one after it.
                let from =
                    if self.version == Version::V2_9 { last } else { (last + 1).min(CLASSES) };
                self.divisions[from..].fill(value);
            } else {
                last = (name.ilog2() as usize).min(CLASSES - 1);
                let from = if first { 0 } else { last };
                self.divisions[from..=last].fill(value);
                first = false;
            }
            if tokens.get(*at).is_some_and(|token| token != "]") {
                expect(tokens, at, ",")?;
            }
        }
        expect(tokens, at, "]")
    }

    /// The block size that a request asks for.
    pub(crate) fn round(&self, size: u64) -> u64 {
        if size < BLOCK_SIZE_MIN {
            return BLOCK_SIZE_MIN;
        }
        let class = (size.ilog2() as usize).saturating_sub(20).min(CLASSES - 1);
        let divisions = self.divisions[class];
        if divisions <= 1 || size <= BLOCK_SIZE_MIN * divisions {
            // Near 2^64 the sum wraps, as in the real one.
            return size.wrapping_add(BLOCK_SIZE_MIN - 1) / BLOCK_SIZE_MIN * BLOCK_SIZE_MIN;
        }
        let step = (1 << size.ilog2()) / divisions;
        size.wrapping_add(step - 1) / step * step
    }

    /// The size of the segment that a rounded request asks the device for.
    pub(crate) fn segment_size(&self, size: u64) -> u64 {
        if size <= SMALL_SIZE_MAX {
            SMALL_SEGMENT_SIZE
        } else if size < OWN_SEGMENT_SIZE_MIN {
            self.large_segment_size
        } else {
            size.next_multiple_of(OWN_SEGMENT_STEP)
        }
    }

    /// The length of a new expandable range.
    pub(crate) fn range_size(&self, capacity: u64, page: u64) -> u64 {
        let usual = capacity + capacity / 8;
        let wanted = match self.reserve {
            None => usual,
            Some(Reserve::Bytes(bytes)) => bytes as u64,
            Some(Reserve::Fraction(fraction)) => (fraction * capacity as f64) as u64,
        };
        wanted.min(usual).next_multiple_of(page)
    }
}

fn tokenize(text: &str) -> Vec<String> {
    let mut tokens = vec![String::new()];
    for character in text.chars() {
        match character {
            ',' | ':' | '[' | ']' => tokens.extend([character.to_string(), String::new()]),
            ' ' => {}
            _ => tokens.last_mut().expect("never empty").push(character),
        }
    }
    tokens.retain(|token| !token.is_empty());
    tokens
}

fn token<'t>(tokens: &'t [String], at: &mut usize) -> Result<&'t str, String> {
    let found = tokens.get(*at).ok_or("expected a value, found the end of the settings")?;
    *at += 1;
    Ok(found)
}

fn expect(tokens: &[String], at: &mut usize, wanted: &str) -> Result<(), String> {
    let found = token(tokens, at)?;
    if found == wanted { Ok(()) } else { Err(format!("expected {wanted}, found {found}")) }
}

fn truth(tokens: &[String], at: &mut usize) -> Result<bool, String> {
    match token(tokens, at)? {
        "True" => Ok(true),
        "False" => Ok(false),
        found => Err(format!("expected True or False, found {found}")),
    }
}

fn whole(tokens: &[String], at: &mut usize) -> Result<u64, String> {
    let found = token(tokens, at)?;
    found.parse().map_err(|_| format!("expected a whole number, found {found}"))
}

fn number(tokens: &[String], at: &mut usize) -> Result<f64, String> {
    let found = token(tokens, at)?;
    found.parse().map_err(|_| format!("expected a number, found {found}"))
}

/// A fraction of the device, or an absolute size such as `2G`. Anything else is ignored with a warning.
fn reserve(text: &str) -> Option<Reserve> {
    let (digits, unit) = match text.strip_suffix(['G', 'g']) {
        Some(digits) => (digits, Some(1u64 << 30)),
        None => (text, None),
    };
    let value: f64 = digits.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0)?;
    Some(match unit {
        Some(unit) => Reserve::Bytes(value * unit as f64),
        None => Reserve::Fraction(value),
    })
}
