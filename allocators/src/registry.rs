//! Every strategy by name. Adding one is one file, with a [`Strategy`] in it, and one line in [`STRATEGIES`]; a wrapper is the same in
//! [`WRAPPERS`].

use std::fmt;
use std::sync::Arc;

use vramlab_sim::allocator::Allocator;
use vramlab_sim::engine::Locking;
use vramlab_sim::future::Future;
use vramlab_sim::kv::KvCache;
use vramlab_sim::machine::Memory;

use crate::options::{OptionDoc, OptionError, Options, Part, Spec, nearest};
use crate::{
    bound, classic, cuda, cupy, host, onnxruntime, paddle, planned, rmm, serving, stitch,
    tensorflow, tiered, torch,
};

/// How far a strategy was held against the system that it models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Equal to recordings of the real one, in every recorded field. Which one, and its version.
    Exact(&'static str),
    /// Built from the real one's documents or source; not checked against the real one yet. Which one, and its version.
    Rules(&'static str),
    /// A textbook method or a yardstick: there is no real one to be equal to.
    Model,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(what) => write!(f, "exact against {what}"),
            Self::Rules(what) => write!(f, "rules from {what}"),
            Self::Model => f.write_str("model"),
        }
    }
}

/// What a factory gives.
pub type Made = Result<Box<dyn Allocator>, OptionError>;

/// What a cache's factory gives.
pub type MadeCache = Result<Box<dyn KvCache>, OptionError>;

/// How an instance, for one device, is made. Each checks its options.
#[derive(Clone, Copy)]
pub enum Make {
    /// From its options.
    Plain(fn(&Options) -> Made),
    /// From its options and all that will be asked of its device: only for workloads whose ops do not depend on answers.
    Ahead(fn(&Options, &Future) -> Made),
    /// A cache, from its options. It stands on the strategy that its option `arena` names.
    Cache(fn(&Options) -> MadeCache),
}

/// A registry line.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// `family.name`.
    pub name: &'static str,
    /// Makes one instance.
    pub make: Make,
    /// How far it is checked.
    pub status: Status,
    /// The memory that it manages: what `reserved` counts.
    pub memory: Memory,
    /// The locks that host threads queue for.
    pub locking: Locking,
    /// It needs to know which work uses which buffer.
    pub accesses: bool,
    /// Addresses that it hands out are multiples of this.
    pub alignment: u64,
    /// The largest request that it serves by design, with its defaults; none where only memory sets a bound.
    pub largest: Option<u64>,
    /// With these options it needs what a device has once (the driver's pool, a tier's view of the whole device), so that two instances would be
    /// in each other's way. One that takes all memory at once is none of these: a second instance of it is out of memory, and says so.
    pub shares: fn(&Options) -> bool,
    /// Says which of the options can have no effect as given, and why; one sentence each.
    pub inert: fn(&Options) -> Vec<String>,
    /// Its options, as `list` shows them.
    pub options: &'static [OptionDoc],
    /// One line for tables and `list`.
    pub summary: &'static str,
}

impl Strategy {
    /// A line for a strategy of device memory that needs nothing but its options, all of which always have an effect.
    pub const fn plain(
        name: &'static str,
        make: fn(&Options) -> Made,
        status: Status,
        options: &'static [OptionDoc],
        summary: &'static str,
    ) -> Self {
        Self::of(name, Make::Plain(make), status, options, summary)
    }

    /// A line for one that plans ahead.
    pub const fn ahead(
        name: &'static str,
        make: fn(&Options, &Future) -> Made,
        status: Status,
        options: &'static [OptionDoc],
        summary: &'static str,
    ) -> Self {
        Self::of(name, Make::Ahead(make), status, options, summary)
    }

    /// A line for a cache of keys and values.
    pub const fn cache(
        name: &'static str,
        make: fn(&Options) -> MadeCache,
        status: Status,
        options: &'static [OptionDoc],
        summary: &'static str,
    ) -> Self {
        Self::of(name, Make::Cache(make), status, options, summary)
    }

    const fn of(
        name: &'static str,
        make: Make,
        status: Status,
        options: &'static [OptionDoc],
        summary: &'static str,
    ) -> Self {
        let inert: fn(&Options) -> Vec<String> = |_| Vec::new();
        Self {
            name,
            make,
            status,
            memory: Memory::Device,
            locking: Locking::Pool,
            accesses: false,
            alignment: 256,
            largest: None,
            shares: |_| false,
            inert,
            options,
            summary,
        }
    }

    /// With a rule for options without effect.
    #[must_use]
    pub const fn inert(self, inert: fn(&Options) -> Vec<String>) -> Self {
        Self { inert, ..self }
    }

    /// With a rule for when it needs what a device has once.
    #[must_use]
    pub const fn shares(self, shares: fn(&Options) -> bool) -> Self {
        Self { shares, ..self }
    }

    /// Of another memory than the device's; `malloc` promises multiples of 16 bytes.
    #[must_use]
    pub const fn memory(self, memory: Memory) -> Self {
        let alignment = if matches!(memory, Memory::Host) { 16 } else { self.alignment };
        Self { memory, alignment, ..self }
    }

    /// Hands out addresses that are multiples of this, and not of the 256 bytes that `cudaMalloc` promises.
    #[must_use]
    pub const fn aligned_to(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }

    /// Each stream's pool has a lock of its own.
    #[must_use]
    pub const fn locks_by_stream(self) -> Self {
        Self { locking: Locking::Stream, ..self }
    }

    /// Needs uses of buffers by work.
    #[must_use]
    pub const fn needs_accesses(self) -> Self {
        Self { accesses: true, ..self }
    }

    /// Serves requests up to `bytes` only.
    #[must_use]
    pub const fn up_to(self, bytes: u64) -> Self {
        Self { largest: Some(bytes), ..self }
    }

    /// Needs all ops before the run?
    pub const fn plans_ahead(&self) -> bool {
        matches!(self.make, Make::Ahead(_))
    }

    /// A cache: for workloads with sequences only?
    pub const fn is_cache(&self) -> bool {
        matches!(self.make, Make::Cache(_))
    }
}

/// Makes instances of what a wrapper stands around: as many as it needs (one per stream, say).
pub type Inner = Arc<dyn Fn() -> Made + Send + Sync>;

/// A registry line of a wrapper.
#[derive(Clone, Copy)]
pub struct Wrapper {
    /// Its name after the `+`.
    pub name: &'static str,
    /// Wraps.
    pub make: fn(&Inner, &Options) -> Made,
    /// How far it is checked.
    pub status: Status,
    /// It makes several instances of what is inside for a device.
    pub many: bool,
    /// Its options.
    pub options: &'static [OptionDoc],
    /// The locks that host threads queue for, if not those of what is inside.
    pub locking: Option<Locking>,
    /// One line for `list`.
    pub summary: &'static str,
}

/// The zoo, in family order.
pub const STRATEGIES: &[Strategy] = &[
    bound::live_floor::STRATEGY,
    bound::never_reuse::STRATEGY,
    bound::best_static::STRATEGY,
    cuda::malloc::STRATEGY,
    cuda::async_pool::STRATEGY,
    cuda::managed::STRATEGY,
    classic::first_fit::STRATEGY,
    classic::next_fit::STRATEGY,
    classic::best_fit::STRATEGY,
    classic::worst_fit::STRATEGY,
    classic::tlsf::STRATEGY,
    classic::buddy::STRATEGY,
    classic::segregated::STRATEGY,
    classic::slab::STRATEGY,
    torch::STRATEGY,
    torch::pinned::STRATEGY,
    paddle::auto_growth::STRATEGY,
    paddle::naive_best_fit::STRATEGY,
    paddle::vmm_auto_growth::STRATEGY,
    tensorflow::bfc::STRATEGY,
    tensorflow::xla::STRATEGY,
    rmm::pool::STRATEGY,
    rmm::arena::STRATEGY,
    rmm::binning::STRATEGY,
    rmm::fixed_size::STRATEGY,
    cupy::pool::STRATEGY,
    onnxruntime::arena::STRATEGY,
    host::pymalloc::STRATEGY,
    serving::paged::STRATEGY,
    serving::contiguous::MAX,
    serving::contiguous::POW2,
    serving::vattention::STRATEGY,
    serving::radix::STRATEGY,
    serving::elastic_pages::STRATEGY,
    stitch::gmlake::STRATEGY,
    stitch::stalloc::STRATEGY,
    planned::greedy_by_size::STRATEGY,
    planned::greedy_by_conflicts::STRATEGY,
    planned::best_gap::STRATEGY,
    planned::reuse::STRATEGY,
    tiered::LRU,
    tiered::NEXT_USE,
    tiered::PREDICTED,
    tiered::ADAPTIVE,
];

/// The wrappers.
pub const WRAPPERS: &[Wrapper] =
    &[host::refcycle::WRAPPER, paddle::stream_safe::WRAPPER, paddle::eager_deletion::WRAPPER];

/// The strategy of this name.
///
/// # Errors
/// Names the nearest known ones.
pub fn find(name: &str) -> Result<&'static Strategy, OptionError> {
    STRATEGIES.iter().find(|s| s.name == name).ok_or_else(|| {
        OptionError(format!(
            "unknown strategy {name:?}; {}",
            nearest(name, STRATEGIES.iter().map(|s| s.name))
        ))
    })
}

/// The wrapper of this name.
///
/// # Errors
/// Names the nearest known ones.
pub fn find_wrapper(name: &str) -> Result<&'static Wrapper, OptionError> {
    WRAPPERS.iter().find(|w| w.name == name).ok_or_else(|| {
        OptionError(format!(
            "unknown wrapper {name:?}; {}",
            nearest(name, WRAPPERS.iter().map(|w| w.name))
        ))
    })
}

/// The locks that host threads of a run with `spec` queue for.
///
/// # Errors
/// An unknown name.
pub fn locking(spec: &Spec) -> Result<Locking, OptionError> {
    let inner = find(&spec.strategy().name)?.locking;
    let wrappers = spec.parts[1..].iter().map(|part| find_wrapper(&part.name));
    wrappers.into_iter().try_fold(inner, |inner, wrapper| Ok(wrapper?.locking.unwrap_or(inner)))
}

/// Builds one instance of a spec that does not plan ahead; of a cache, what it stands on.
///
/// # Errors
/// An unknown name, an unknown option, a bad value, or a strategy that plans ahead.
pub fn build(spec: &Spec) -> Made {
    instances(spec, None)?()
}

/// Builds one instance of a spec for a device of which all that will be asked is known.
///
/// # Errors
/// An unknown name, an unknown option or a bad value.
pub fn build_ahead(spec: &Spec, future: &Arc<Future>) -> Made {
    instances(spec, Some(future))?()
}

/// Builds the cache for a workload's sequences: the spec's own, or for a strategy that is none, buffers of it (`serving.contiguous_pow2`).
///
/// # Errors
/// An unknown name, an unknown option or a bad value.
pub fn build_cache(spec: &Spec) -> MadeCache {
    let Part { name, options } = spec.strategy();
    match find(name)?.make {
        Make::Cache(make) => make(options),
        Make::Plain(_) | Make::Ahead(_) => Ok(serving::any_allocator()),
    }
}

/// Checks names and options of a spec.
///
/// # Errors
/// An unknown name, an unknown option or a bad value.
pub fn check(spec: &Spec) -> Result<(), OptionError> {
    build_cache(spec)?;
    instances(spec, Some(&Arc::default()))?().map(drop)
}

/// What a cache stands on.
fn arena(options: &Options) -> Result<Spec, OptionError> {
    let OptionDoc { name, default, .. } = serving::ARENA;
    let spec: Spec = options.get(name).unwrap_or(default).parse()?;
    let strategy = find(&spec.strategy().name)?;
    let wrong = match strategy {
        _ if strategy.is_cache() => "is no cache",
        _ if strategy.memory == Memory::Host => "holds memory of the device",
        // which work uses a block, nobody says
        _ if strategy.accesses => "leaves its blocks where they are",
        _ => return Ok(spec),
    };
    Err(OptionError(format!("option arena={}: expected a strategy that {wrong}", strategy.name)))
}

/// Is its memory in a pool that a device has once?
fn shares(spec: &Spec) -> Result<bool, OptionError> {
    let Part { name, options } = spec.strategy();
    let strategy = find(name)?;
    if strategy.is_cache() { shares(&arena(options)?) } else { Ok((strategy.shares)(options)) }
}

/// A factory for the whole spec: the strategy, or what a cache stands on, inside its wrappers.
fn instances(spec: &Spec, future: Option<&Arc<Future>>) -> Result<Inner, OptionError> {
    let Part { name, options } = spec.strategy();
    let options = options.clone();
    let mut inner: Inner = match (find(name)?.make, future.cloned()) {
        (Make::Plain(make), _) => Arc::new(move || make(&options)),
        (Make::Ahead(make), Some(future)) => Arc::new(move || make(&options, &future)),
        (Make::Cache(_), _) => instances(&arena(&options)?, None)?,
        (Make::Ahead(_), None) => {
            return Err(OptionError(format!(
                "{name} plans ahead: it needs all ops before the run"
            )));
        }
    };
    for Part { name: wrapper, options } in spec.parts.iter().skip(1) {
        let Wrapper { make: wrap, many, .. } = *find_wrapper(wrapper)?;
        if many && shares(spec)? {
            return Err(OptionError(format!(
                "found {name}+{wrapper}, expected a strategy that a device can have several of: {wrapper} makes one for each stream, {name} takes what a device has once"
            )));
        }
        let (inside, options) = (inner, options.clone());
        inner = Arc::new(move || wrap(&inside, &options));
    }
    Ok(inner)
}
