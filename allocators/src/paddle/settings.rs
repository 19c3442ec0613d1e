//! Options of the Paddle strategies: the names, units and defaults are those of Paddle's flags, of which a whole text may be given as `flags='…'`.

use std::fmt::Display;

use vramlab_sim::units::Bytes;

use super::flags::{self, with_flags};
use crate::options::{OptionDoc, OptionError, Options};

const FLAGS: OptionDoc = OptionDoc {
    name: "flags",
    default: "",
    help: "settings as Paddle takes them: 'FLAGS_name=value FLAGS_name=value'; an option given beside them wins",
};
const LIMIT: OptionDoc = OptionDoc {
    name: "gpu_memory_limit_mb",
    default: "0",
    help: "MiB that may be held from the driver; 0: no limit",
};
const ALIGNMENT: OptionDoc = OptionDoc {
    name: "alignment_size",
    default: "256",
    help: "every size is rounded up to a multiple of this: a power of two from 256 to 2MiB",
};
const WARM_UP: OptionDoc = OptionDoc {
    name: "warm_up",
    default: "0",
    help: "this much is taken from the driver before the first request is served, such as 2GiB",
};

/// Options of `paddle.auto_growth`.
pub(super) const AUTO_GROWTH: &[OptionDoc] = &[
    OptionDoc {
        name: "auto_growth_chunk_size_in_mb",
        default: "0",
        help: "MiB that a new chunk has at least; 0: the size of the request",
    },
    OptionDoc {
        name: "chunk_size",
        default: "0",
        help: "the same as a size, such as 8MiB: the constructor's argument",
    },
    OptionDoc {
        name: "free_idle_chunk",
        default: "false",
        help: "every free returns all idle chunks",
    },
    OptionDoc {
        name: "free_when_no_cache_hit",
        default: "false",
        help: "idle chunks go back before every growth, not only when one fails",
    },
    OptionDoc {
        name: "allow_free_idle_chunk",
        default: "true",
        help: "false: no chunk is ever returned, as in the pool of a graph capture",
    },
    ALIGNMENT,
    LIMIT,
    OptionDoc {
        name: "small_pool_size_in_mb",
        default: "0",
        help: "newer: requests of up to so many MiB have a pool of their own; 0: one pool",
    },
    OptionDoc {
        name: "small_pool_auto_growth_chunk_size_in_mb",
        default: "0",
        help: "newer: least MiB of a chunk of the small pool",
    },
    OptionDoc {
        name: "large_pool_auto_growth_chunk_size_in_mb",
        default: "0",
        help: "newer: least MiB of a chunk of the large pool, where there are two",
    },
    OptionDoc {
        name: "small_pool_pre_alloc_in_mb",
        default: "0",
        help: "newer: MiB taken for the small pool before the first request is served",
    },
    OptionDoc {
        name: "large_pool_pre_alloc_in_mb",
        default: "0",
        help: "newer: MiB taken for the large (or only) pool before the first request is served",
    },
    WARM_UP,
    FLAGS,
];

/// Options of `paddle.vmm_auto_growth`.
pub(super) const VMM: &[OptionDoc] = &[ALIGNMENT, WARM_UP, FLAGS];

/// Options of `paddle.naive_best_fit`.
pub(super) const BUDDY: &[OptionDoc] = &[
    OptionDoc {
        name: "fraction_of_gpu_memory_to_use",
        default: "0.92",
        help: "share of the free memory (less 5 %) that a chunk takes, from 0 to 1",
    },
    OptionDoc {
        name: "initial_gpu_memory_in_mb",
        default: "0",
        help: "MiB of the first chunk; 0: by the fraction",
    },
    OptionDoc {
        name: "reallocate_gpu_memory_in_mb",
        default: "0",
        help: "MiB of later chunks; 0: by the fraction, of what is free then",
    },
    LIMIT,
    FLAGS,
];

/// `size` rounded up to a multiple of a power of two; none past 2^64.
#[inline]
pub(super) fn aligned(size: u64, alignment: u64) -> Option<u64> {
    Some(size.checked_add(alignment - 1)? & !(alignment - 1))
}

/// The rules' numbers for `paddle.auto_growth`; sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    pub(super) alignment: u64,
    /// Largest rounded request of the small pool; 0: there is none.
    pub(super) small_max: u64,
    /// Least sizes of chunks.
    pub(super) small_chunk: u64,
    pub(super) large_chunk: u64,
    pub(super) small_pre_alloc: u64,
    pub(super) large_pre_alloc: u64,
    pub(super) free_idle_chunk: bool,
    pub(super) free_when_no_cache_hit: bool,
    pub(super) allow_free_idle_chunk: bool,
    pub(super) limit: u64,
}

impl Growth {
    pub(super) fn parse(given: &Options) -> Result<Self, OptionError> {
        let options = with_flags("paddle.auto_growth", given, AUTO_GROWTH)?;
        let alignment = alignment(&options)?;
        let both = either(&options, "auto_growth_chunk_size_in_mb", "chunk_size")?;
        let pools = mib(&options, "small_pool_size_in_mb")?;
        let (small, large) = match pools {
            0 => (0, both),
            _ => (
                mib(&options, "small_pool_auto_growth_chunk_size_in_mb")?,
                mib(&options, "large_pool_auto_growth_chunk_size_in_mb")?,
            ),
        };
        let rounded = |size: u64| aligned(size, alignment).unwrap_or(size);
        Ok(Self {
            alignment,
            small_max: pools,
            small_chunk: rounded(small),
            large_chunk: rounded(large),
            small_pre_alloc: mib(&options, "small_pool_pre_alloc_in_mb")?,
            large_pre_alloc: either(&options, "large_pool_pre_alloc_in_mb", WARM_UP.name)?,
            free_idle_chunk: options.flag("free_idle_chunk", false)?,
            free_when_no_cache_hit: options.flag("free_when_no_cache_hit", false)?,
            allow_free_idle_chunk: options.flag("allow_free_idle_chunk", true)?,
            limit: mib(&options, LIMIT.name)?,
        })
    }
}

/// Options of `paddle.auto_growth` that can have no effect as given.
pub(super) fn auto_growth_inert(given: &Options) -> Vec<String> {
    let mut notes = flags::inert(given, AUTO_GROWTH);
    let Ok(options) = with_flags("paddle.auto_growth", given, AUTO_GROWTH) else { return notes };
    let zero = |name: &str| mib(&options, name).is_ok_and(|size| size == 0);
    let mut note = |name: &str, why: &str| {
        if let Some(value) = options.get(name) {
            notes.push(format!("{name}={value} has no effect: {why}"));
        }
    };
    let one_pool = "with small_pool_size_in_mb=0 there is one pool";
    if zero("small_pool_size_in_mb") {
        note("small_pool_auto_growth_chunk_size_in_mb", one_pool);
        note("large_pool_auto_growth_chunk_size_in_mb", one_pool);
    } else {
        let pools = "with small_pool_size_in_mb each pool has its own";
        note("auto_growth_chunk_size_in_mb", pools);
        note("chunk_size", pools);
    }
    if options.flag("allow_free_idle_chunk", true) == Ok(false) {
        let kept = "with allow_free_idle_chunk=false no chunk is returned";
        note("free_idle_chunk", kept);
    }
    notes
}

/// The `alignment_size` option.
pub(super) fn alignment(options: &Options) -> Result<u64, OptionError> {
    let text = options.get(ALIGNMENT.name).unwrap_or(ALIGNMENT.default);
    let bytes = text.parse::<Bytes>().ok().map(|bytes| bytes.0);
    bytes
        .filter(|bytes| bytes.is_power_of_two() && (256..=2 << 20).contains(bytes))
        .ok_or_else(|| bad(ALIGNMENT.name, text, "a power of two from 256 B to 2 MiB"))
}

fn bad(name: &str, value: &str, expected: impl Display) -> OptionError {
    OptionError(format!("option {name}={value}: expected {expected}"))
}

/// A number of MiB, as bytes.
pub(super) fn mib(options: &Options, name: &str) -> Result<u64, OptionError> {
    let text = options.get(name).unwrap_or("0");
    let bytes = text.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << 20));
    bytes.ok_or_else(|| bad(name, text, "a whole number of MiB below 2^44"))
}

/// A size.
pub(super) fn size(options: &Options, name: &str) -> Result<u64, OptionError> {
    let text = options.get(name).unwrap_or("0");
    text.parse::<Bytes>()
        .map(|bytes| bytes.0)
        .map_err(|_| bad(name, text, "a size such as 8MiB, or bytes"))
}

/// The warm-up of `paddle.vmm_auto_growth`.
pub(super) fn warm_up(options: &Options) -> Result<u64, OptionError> {
    size(options, WARM_UP.name)
}

/// The same quantity under two names, in MiB or as a size.
fn either(options: &Options, in_mib: &str, as_size: &str) -> Result<u64, OptionError> {
    match (options.get(in_mib), options.get(as_size)) {
        (Some(_), Some(_)) => {
            Err(OptionError(format!("options {in_mib} and {as_size} mean the same: expected one")))
        }
        (None, Some(_)) => size(options, as_size),
        _ => mib(options, in_mib),
    }
}

/// A number.
pub(super) fn number(options: &Options, name: &str, default: f64) -> Result<f64, OptionError> {
    let Some(text) = options.get(name) else { return Ok(default) };
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| bad(name, text, "a number such as 0.5"))
}

/// A share from 0 to 1.
pub(super) fn share(options: &Options, name: &str, default: f64) -> Result<f64, OptionError> {
    let share = number(options, name, default)?;
    if (0.0..=1.0).contains(&share) {
        return Ok(share);
    }
    Err(bad(name, options.get(name).unwrap_or_default(), "a share from 0 to 1"))
}
