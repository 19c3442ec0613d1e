//! Options of `tensorflow.bfc` and `tensorflow.xla`.

use vramlab_sim::units::Bytes;

use super::limit::Limit;
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::bfc::chunks::REGION_MAX;

const MEMORY_LIMIT: &str = "memory_limit";
const FRACTION: &str = "per_process_gpu_memory_fraction";
const SYSTEM_MEMORY: &str = "TF_DEVICE_MIN_SYS_MEMORY_IN_MB";
const GROWTH: &str = "allow_growth";
const FORCE_GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
const COLLECTION: &str = "garbage_collection";
const ENABLE_COLLECTION: &str = "TF_ENABLE_GPU_GARBAGE_COLLECTION";
const FRAGMENTATION: &str = "fragmentation_fraction";
const COALESCE: &str = "coalesce_regions";
const TIMESTAMPED: &str = "timestamped_allocator";
const XLA_FRACTION: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
const XLA_PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";

const fn doc(name: &'static str, default: &'static str, help: &'static str) -> OptionDoc {
    OptionDoc { name, default, help }
}

/// Options of `tensorflow.bfc`.
pub(super) const BFC: &[OptionDoc] = &[
    doc(
        MEMORY_LIMIT,
        "device",
        "most that is held from the device, a size below 1TiB; device: by the next two options",
    ),
    doc(
        FRACTION,
        "0",
        "the limit as a part of the device's total memory, from 0 to 1; 0: the free memory, less a reserve for the system",
    ),
    doc(
        SYSTEM_MEMORY,
        "0",
        "that reserve in MiB, or auto: TensorFlow's own, 225 where less than 2 GiB are free, else 1536",
    ),
    doc(
        GROWTH,
        "false",
        "false: the first request takes the whole limit in one region; true: regions grow from 2 MiB by doubling",
    ),
    doc(FORCE_GROWTH, "unset", "true or false: goes before allow_growth"),
    doc(
        COLLECTION,
        "true",
        "before a request fails, regions without a live chunk go back and one region is asked for",
    ),
    doc(ENABLE_COLLECTION, "unset", "true or false, where garbage_collection is not given"),
    doc(
        FRAGMENTATION,
        "0",
        "a rest of this part of the limit is always split off, 0 or more; 0: a rest of 128 MiB",
    ),
    doc(
        COALESCE,
        "false",
        "a region that begins where another ends continues it, as with TensorFlow's virtual memory sub-allocator",
    ),
    doc(
        TIMESTAMPED,
        "false",
        "freed chunks keep the time of their free until `safe_frontier` (set while running) passes it",
    ),
];

/// Options of `tensorflow.xla`.
pub(super) const XLA: &[OptionDoc] = &[
    doc(XLA_FRACTION, "0.75", "the limit as a part of the device's total memory, above 0, up to 1"),
    doc(
        XLA_PREALLOCATE,
        "true",
        "true: the first request takes the whole limit in one region; false: regions grow from 2 MiB by doubling",
    ),
];

/// What the options say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) limit: Limit,
    pub(super) allow_growth: bool,
    pub(super) garbage_collection: bool,
    pub(super) fragmentation_fraction: f64,
    pub(super) coalesce_regions: bool,
    pub(super) timestamped: bool,
}

impl Settings {
    /// Of `tensorflow.bfc`.
    pub(super) fn bfc(name: &str, options: &Options) -> Result<Self, OptionError> {
        options.check(name, BFC)?;
        let growth = options.flag(GROWTH, false)?;
        let collection = options.flag(ENABLE_COLLECTION, true)?;
        Ok(Self {
            limit: limit(options)?,
            allow_growth: options.flag(FORCE_GROWTH, growth)?,
            garbage_collection: options.flag(COLLECTION, collection)?,
            fragmentation_fraction: part(options, FRAGMENTATION, 0.0, f64::MAX, "0 or more")?,
            coalesce_regions: options.flag(COALESCE, false)?,
            timestamped: options.flag(TIMESTAMPED, false)?,
        })
    }

    /// Of `tensorflow.xla`.
    pub(super) fn xla(name: &str, options: &Options) -> Result<Self, OptionError> {
        options.check(name, XLA)?;
        let fraction = part(options, XLA_FRACTION, 0.75, 1.0, "above 0, up to 1")?;
        if fraction == 0.0 {
            return Err(refused(options, XLA_FRACTION, "a number above 0, up to 1"));
        }
        Ok(Self {
            limit: Limit::Fraction(fraction),
            allow_growth: !options.flag(XLA_PREALLOCATE, true)?,
            garbage_collection: false,
            fragmentation_fraction: 0.0,
            coalesce_regions: false,
            timestamped: false,
        })
    }
}

fn refused(options: &Options, name: &str, expected: &str) -> OptionError {
    let text = options.get(name).unwrap_or_default();
    OptionError(format!("option {name}={text}: expected {expected}"))
}

fn part(
    options: &Options,
    name: &str,
    default: f64,
    most: f64,
    range: &str,
) -> Result<f64, OptionError> {
    let expected = format!("a number {range}");
    let part: f64 = options.parse(name, &expected, default)?;
    if (0.0..=most).contains(&part) { Ok(part) } else { Err(refused(options, name, &expected)) }
}

fn limit(options: &Options) -> Result<Limit, OptionError> {
    let reserve = match options.get(SYSTEM_MEMORY) {
        Some("auto") => None,
        _ => {
            let mib: u32 = options.parse(SYSTEM_MEMORY, "auto, or a number of MiB", 0)?;
            Some(Bytes::mib(mib.into()).0)
        }
    };
    let fraction = part(options, FRACTION, 0.0, 1.0, "from 0 to 1")?;
    match options.get(MEMORY_LIMIT) {
        None | Some("device") if fraction > 0.0 => Ok(Limit::Fraction(fraction)),
        None | Some("device") => Ok(Limit::AllBut(reserve)),
        Some(text) => {
            let bytes = text.parse::<Bytes>().ok().map(|bytes| bytes.0);
            let bytes = bytes.filter(|bytes| (1..=REGION_MAX).contains(bytes));
            bytes.map(Limit::Bytes).ok_or_else(|| {
                refused(options, MEMORY_LIMIT, "device, or a size below 1 TiB such as 16GiB")
            })
        }
    }
}

/// Options of `tensorflow.bfc` that others overrule.
pub(super) fn inert(options: &Options) -> Vec<String> {
    let given = |name: &str| options.get(name).is_some();
    let has_limit = options.get(MEMORY_LIMIT).is_some_and(|text| text != "device");
    let has_fraction = part(options, FRACTION, 0.0, 1.0, "").is_ok_and(|part| part > 0.0);
    let rules = [
        (FRACTION, has_limit, "memory_limit is given"),
        (SYSTEM_MEMORY, has_limit, "memory_limit is given"),
        (SYSTEM_MEMORY, has_fraction && !has_limit, "per_process_gpu_memory_fraction is given"),
        (GROWTH, given(FORCE_GROWTH), "TF_FORCE_GPU_ALLOW_GROWTH goes before it"),
        (ENABLE_COLLECTION, given(COLLECTION), "garbage_collection is given"),
    ];
    let overruled = rules.iter().filter(|(name, other, _)| given(name) && *other);
    overruled
        .map(|(name, _, why)| {
            let text = options.get(name).unwrap_or_default();
            format!("{name}={text} has no effect: {why}")
        })
        .collect()
}
