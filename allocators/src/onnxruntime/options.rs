//! Options of `onnxruntime.arena`, with the names of the CUDA provider's options and of `OrtArenaCfg`.

use std::ops::RangeInclusive;

use vramlab_sim::units::Bytes;

use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::bfc::chunks::REGION_MAX;

const LIMIT: &str = "gpu_mem_limit";
const EXTEND: &str = "arena_extend_strategy";
const INITIAL: &str = "initial_chunk_size_bytes";
const DEAD: &str = "max_dead_bytes_per_chunk";
const GROWTH: &str = "initial_growth_chunk_size_bytes";
const EXTEND_MAX: &str = "max_power_of_two_extend_bytes";
const STREAM_AWARE: &str = "use_stream_aware_arena";
const CROSS_STREAM: &str = "enable_cross_stream_reusing";

const fn doc(name: &'static str, default: &'static str, help: &'static str) -> OptionDoc {
    OptionDoc { name, default, help }
}

/// As `list` shows them.
pub(super) const OPTIONS: &[OptionDoc] = &[
    doc(LIMIT, "18446744073709551615", "most that is held from the device, in bytes; 0: no limit"),
    doc(
        EXTEND,
        "kNextPowerOfTwo",
        "kNextPowerOfTwo (or 0): regions double; kSameAsRequested (or 1): a region is what the request needs",
    ),
    doc(INITIAL, "1048576", "bytes of the first region, with kNextPowerOfTwo"),
    doc(DEAD, "134217728", "a rest of so many bytes is always split off"),
    doc(GROWTH, "2097152", "bytes of the next region after a shrink, with kNextPowerOfTwo"),
    doc(
        EXTEND_MAX,
        "0",
        "a doubled region size stops here (newer releases have it, with 1073741824); 0: never",
    ),
    doc(
        STREAM_AWARE,
        "true",
        "free chunks keep the stream that used them, until a step ends (`mark`)",
    ),
    doc(
        CROSS_STREAM,
        "false",
        "before the arena grows, the smallest free chunk of another stream is taken, whole, after a wait",
    ),
];

/// What the options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Bytes.
    pub(super) limit: u64,
    /// Else as requested.
    pub(super) next_power_of_two: bool,
    pub(super) initial_chunk: u64,
    pub(super) dead: u64,
    pub(super) initial_growth: u64,
    pub(super) extend_max: Option<u64>,
    pub(super) stream_aware: bool,
    pub(super) cross_stream: bool,
}

impl Settings {
    pub(super) fn parse(name: &str, options: &Options) -> Result<Self, OptionError> {
        options.check(name, OPTIONS)?;
        let next_power_of_two = match options.get(EXTEND) {
            None | Some("kNextPowerOfTwo" | "0" | "-1") => true,
            Some("kSameAsRequested" | "1") => false,
            Some(text) => {
                return Err(OptionError(format!(
                    "option {EXTEND}={text}: expected kNextPowerOfTwo or kSameAsRequested"
                )));
            }
        };
        let limit = bytes(options, LIMIT, u64::MAX, 0..=u64::MAX)?;
        let extend_max = bytes(options, EXTEND_MAX, 0, 0..=REGION_MAX)?;
        Ok(Self {
            limit: if limit == 0 { u64::MAX } else { limit },
            next_power_of_two,
            initial_chunk: bytes(options, INITIAL, 1 << 20, 1..=REGION_MAX)?,
            dead: bytes(options, DEAD, 128 << 20, 0..=u64::MAX)?,
            initial_growth: bytes(options, GROWTH, 2 << 20, 1..=REGION_MAX)?,
            extend_max: (extend_max > 0).then_some(extend_max),
            stream_aware: options.flag(STREAM_AWARE, true)?,
            cross_stream: options.flag(CROSS_STREAM, false)?,
        })
    }
}

/// A size; -1 is the default, as in `OrtArenaCfg`.
fn bytes(
    options: &Options,
    name: &str,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, OptionError> {
    match options.get(name) {
        None | Some("-1") => Ok(default),
        Some(text) => {
            let bytes = text.parse::<Bytes>().ok().map(|bytes| bytes.0);
            bytes.filter(|bytes| range.contains(bytes)).ok_or_else(|| {
                let least = range.start();
                OptionError(format!(
                    "option {name}={text}: expected a size from {least} B such as 2MiB, below 1 TiB if it is a region's"
                ))
            })
        }
    }
}

/// Options of the other extend strategy, and of an arena that is not aware of streams.
pub(super) fn inert(options: &Options) -> Vec<String> {
    let Ok(settings) = Settings::parse(super::arena::STRATEGY.name, options) else {
        return Vec::new();
    };
    let as_requested = (!settings.next_power_of_two, "regions are what requests need");
    let unaware = (!settings.stream_aware, "chunks have no streams");
    let rules = [
        (INITIAL, as_requested),
        (GROWTH, as_requested),
        (EXTEND_MAX, as_requested),
        (CROSS_STREAM, unaware),
    ];
    let given = rules.into_iter().filter_map(|(name, rule)| Some((name, options.get(name)?, rule)));
    given
        .filter(|(_, _, (inert, _))| *inert)
        .map(|(name, text, (_, why))| format!("{name}={text} has no effect: {why}"))
        .collect()
}
