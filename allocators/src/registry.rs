//! Every strategy by name. Adding one is one file, with a [`Strategy`] in it, and one line in [`STRATEGIES`]; a wrapper is the same in
//! [`WRAPPERS`].

use std::fmt;
use std::sync::Arc;

use vramlab_sim::allocator::Allocator;
use vramlab_sim::future::Future;
use vramlab_sim::machine::Memory;

use crate::options::{OptionDoc, OptionError, Options, Part, Spec, nearest};
use crate::{bound, classic, cuda, cupy, host, onnxruntime, rmm, tensorflow, torch};

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

/// How an instance, for one device, is made. Each checks its options.
#[derive(Clone, Copy)]
pub enum Make {
    /// From its options.
    Plain(fn(&Options) -> Made),
    /// From its options and all that will be asked of its device: only for workloads whose ops do not depend on answers.
    Ahead(fn(&Options, &Future) -> Made),
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
    /// It needs to know which work uses which buffer.
    pub accesses: bool,
    /// The largest request that it serves by design, with its defaults; none where only memory sets a bound.
    pub largest: Option<u64>,
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
            accesses: false,
            largest: None,
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

    /// Of another memory than the device's.
    #[must_use]
    pub const fn memory(self, memory: Memory) -> Self {
        Self { memory, ..self }
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
    /// Its options.
    pub options: &'static [OptionDoc],
    /// One line for `list`.
    pub summary: &'static str,
}

/// The zoo, in family order.
pub const STRATEGIES: &[Strategy] = &[
    bound::live_floor::STRATEGY,
    bound::never_reuse::STRATEGY,
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
    tensorflow::bfc::STRATEGY,
    tensorflow::xla::STRATEGY,
    rmm::pool::STRATEGY,
    rmm::arena::STRATEGY,
    rmm::binning::STRATEGY,
    rmm::fixed_size::STRATEGY,
    cupy::pool::STRATEGY,
    onnxruntime::arena::STRATEGY,
    host::pymalloc::STRATEGY,
];

/// The wrappers.
pub const WRAPPERS: &[Wrapper] = &[host::refcycle::WRAPPER];

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

/// Builds one instance of a spec that does not plan ahead.
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

/// Checks names and options of a spec.
///
/// # Errors
/// An unknown name, an unknown option or a bad value.
pub fn check(spec: &Spec) -> Result<(), OptionError> {
    instances(spec, Some(&Arc::default()))?().map(drop)
}

/// A factory for the whole spec: the strategy, inside its wrappers.
fn instances(spec: &Spec, future: Option<&Arc<Future>>) -> Result<Inner, OptionError> {
    let Part { name, options } = spec.strategy();
    let options = options.clone();
    let mut inner: Inner = match (find(name)?.make, future.cloned()) {
        (Make::Plain(make), _) => Arc::new(move || make(&options)),
        (Make::Ahead(make), Some(future)) => Arc::new(move || make(&options, &future)),
        (Make::Ahead(_), None) => {
            return Err(OptionError(format!(
                "{name} plans ahead: it needs all ops before the run"
            )));
        }
    };
    for Part { name, options } in spec.parts.iter().skip(1) {
        let (wrap, inside, options) = (find_wrapper(name)?.make, inner, options.clone());
        inner = Arc::new(move || wrap(&inside, &options));
    }
    Ok(inner)
}
