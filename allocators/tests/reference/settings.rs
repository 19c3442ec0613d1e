//! The reference's own reading of the settings text (`PYTORCH_CUDA_ALLOC_CONF`), and the sizes that follow from it.

use super::Version;
use super::tokens::Tokens;

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

    /// Reads a settings text over these settings. What falls back to its default if it is not named: see `set_limits` too.
    pub(crate) fn apply(&mut self, text: &str) -> Result<(), String> {
        self.max_split_size = u64::MAX;
        self.divisions = [0; CLASSES];
        self.gc_threshold = 0.0;
        let (mut split_mb, mut rounding_mb) = (Vec::new(), Vec::new());
        let mut tokens = Tokens::new(text, self.version);
        while !tokens.at_end() {
            let key = tokens.take()?;
            tokens.expect(":")?;
            match key.as_str() {
                "max_split_size_mb" => split_mb.push(tokens.whole()?),
                "max_non_split_rounding_mb" => rounding_mb.push(tokens.whole()?),
                "garbage_collection_threshold" => {
                    self.gc_threshold = tokens.number()?;
                    if !(self.gc_threshold > 0.0 && self.gc_threshold < 1.0) {
                        return Err(format!(
                            "{key}: expected between 0 and 1, found {}",
                            self.gc_threshold
                        ));
                    }
                }
                "roundup_power2_divisions" => self.read_divisions(&mut tokens)?,
                "expandable_segments" => self.expandable = tokens.truth()?,
                "backend" => tokens.expect("native")?,
                "pinned_num_register_threads" => {
                    let threads = tokens.whole()?;
                    if !threads.is_power_of_two() || threads > 128 {
                        return Err(format!(
                            "{key}: expected a power of two up to 128, found {threads}"
                        ));
                    }
                }
                "release_lock_on_cudamalloc"
                | "release_lock_on_hipmalloc"
                | "graph_capture_record_stream_reuse"
                | "pinned_use_cuda_host_register"
                | "pinned_use_hip_host_register"
                | "pinned_use_background_threads" => {
                    tokens.truth()?;
                }
                _ if self.version == Version::V2_15 => self.read_newer(&key, &mut tokens)?,
                _ => return Err(format!("expected an option, found {key}")),
            }
            if !tokens.at_end() {
                tokens.expect(",")?;
            }
        }
        self.set_limits(&split_mb, &rounding_mb)
    }

    fn read_newer(&mut self, key: &str, tokens: &mut Tokens) -> Result<(), String> {
        match key {
            "large_segment_size_mb" => {
                let mb = tokens.whole()?;
                if mb <= 10 {
                    return Err(format!("{key}: expected more than 10, found {mb}"));
                }
                self.large_segment_size = bytes(mb);
            }
            "throw_on_cudamalloc_oom" => self.throw_on_cudamalloc_oom = tokens.truth()?,
            "per_process_memory_fraction" => {
                let fraction = tokens.number()?;
                if !(0.0..=1.0).contains(&fraction) {
                    return Err(format!("{key}: expected 0 to 1, found {fraction}"));
                }
                self.fraction = Some(fraction);
            }
            "expandable_segments_reserve" => self.reserve = reserve(&tokens.take()?),
            "pinned_reserve_segment_size_mb" => {
                if tokens.whole()? == 0 {
                    return Err(format!("{key}: expected more than 0, found 0"));
                }
            }
            "pinned_max_round_threshold_mb" | "pinned_max_cached_size_mb" => {
                tokens.whole()?;
            }
            "pinned_free_catch_all" => {
                tokens.truth()?;
            }
            _ => return Err(format!("expected an option, found {key}")),
        }
        Ok(())
    }

    /// These two are checked last, since the large segment size may be named after them.
    fn set_limits(&mut self, split_mb: &[u64], rounding_mb: &[u64]) -> Result<(), String> {
        let least = match self.version {
            Version::V2_15 => self.large_segment_size,
            Version::V2_9 => DEFAULT_LARGE_SEGMENT_SIZE + MIB,
        };
        for (name, all) in
            [("max_split_size_mb", split_mb), ("max_non_split_rounding_mb", rounding_mb)]
        {
            if let Some(mb) = all.iter().find(|mb| bytes(**mb) < least) {
                return Err(format!("{name}: expected at least {}, found {mb}", least / MIB));
            }
        }
        if let Some(mb) = split_mb.last() {
            self.max_split_size = bytes(*mb);
        }
        // 2.9 keeps the value that it has; 2.15 falls back to the large segment size.
        match (rounding_mb.last(), self.version) {
            (Some(mb), _) => self.max_non_split_rounding = bytes(*mb),
            (None, Version::V2_15) => self.max_non_split_rounding = self.large_segment_size,
            (None, Version::V2_9) => {}
        }
        Ok(())
    }

    fn read_divisions(&mut self, tokens: &mut Tokens) -> Result<(), String> {
        if tokens.next_is("[") {
            tokens.expect("[")?;
            return self.read_division_list(tokens);
        }
        let all = tokens.whole()?;
        if !all.is_power_of_two() {
            return Err(format!("roundup_power2_divisions: expected a power of two, found {all}"));
        }
        self.divisions = [all; CLASSES];
        Ok(())
    }

    fn read_division_list(&mut self, tokens: &mut Tokens) -> Result<(), String> {
        let mut first = true;
        let mut last = 0;
        // 2.9 does not miss the closing bracket after a comma.
        while !tokens.next_is("]") && (self.version == Version::V2_15 || !tokens.at_end()) {
            let rest = tokens.next_is(">");
            let name = if rest { tokens.take().map(|_| 1)? } else { tokens.whole()? };
            if !name.is_power_of_two() {
                return Err(format!(
                    "roundup_power2_divisions: expected a size that is a power of two, found {name}"
                ));
            }
            tokens.separator(":")?;
            let value = tokens.whole()?;
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
            if !tokens.next_is("]") {
                tokens.separator(",")?;
            }
        }
        if tokens.at_end() { Ok(()) } else { tokens.expect("]") }
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

fn bytes(mb: u64) -> u64 {
    mb.min(u64::MAX / MIB) * MIB
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
