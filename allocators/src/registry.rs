//! Every strategy by name. Adding one is one file and one line in [`STRATEGIES`].

use vramlab_sim::allocator::{Allocator, Needs};

use crate::options::{OptionDoc, OptionError, Options, Spec, nearest};
use crate::{bound, classic, cuda, torch};

/// A registry line.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// `family.name`.
    pub name: &'static str,
    /// What it needs from a workload.
    pub needs: Needs,
    /// Makes one instance, for one device; checks the options.
    pub build: Build,
    /// Says which of the options can have no effect as given, and why; one sentence each.
    pub inert: fn(&Options) -> Vec<String>,
    /// Its options, as `list` shows them.
    pub options: &'static [OptionDoc],
    /// One line for tables and `list`.
    pub summary: &'static str,
}

/// Makes an instance.
pub type Build = fn(&Options) -> Result<Box<dyn Allocator>, OptionError>;

const NOTHING: Needs = Needs { lookahead: false, accesses: false };

/// A line for a strategy that needs nothing and whose options always have an effect.
const fn plain(
    name: &'static str,
    build: Build,
    options: &'static [OptionDoc],
    summary: &'static str,
) -> Strategy {
    Strategy { name, needs: NOTHING, build, inert: |_| Vec::new(), options, summary }
}

/// A line for a strategy with boundary tags: options of the classic family.
const fn tagged(name: &'static str, build: Build, summary: &'static str) -> Strategy {
    Strategy { inert: classic::inert, ..plain(name, build, classic::TAGGED, summary) }
}

/// The zoo, in family order.
pub const STRATEGIES: &[Strategy] = &[
    plain(
        "bound.live_floor",
        bound::live_floor::new,
        &[],
        "sum of live requests: the floor on one device",
    ),
    plain(
        "bound.never_reuse",
        bound::never_reuse::new,
        bound::never_reuse::OPTIONS,
        "no memory is used twice: what reuse is worth",
    ),
    plain(
        "cuda.malloc",
        cuda::malloc::new,
        &[],
        "every request goes to the driver, every free waits",
    ),
    tagged("classic.first_fit", classic::first_fit::new, "lowest free piece that is large enough"),
    tagged(
        "classic.next_fit",
        classic::next_fit::new,
        "first fit that goes on where the last search ended",
    ),
    tagged("classic.best_fit", classic::best_fit::new, "smallest free piece that is large enough"),
    tagged("classic.worst_fit", classic::worst_fit::new, "largest free piece"),
    tagged(
        "classic.tlsf",
        classic::tlsf::new,
        "two-level segregated fit: a good fit in constant time",
    ),
    plain(
        "classic.buddy",
        classic::buddy::new,
        classic::buddy::OPTIONS,
        "binary buddies: halves of halves",
    ),
    tagged(
        "classic.segregated",
        classic::segregated::new,
        "a free list per size class, no splitting or joining",
    ),
    plain(
        "classic.slab",
        classic::slab::new,
        classic::slab::OPTIONS,
        "size classes in slabs, large requests direct",
    ),
    torch::CACHING,
];

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

/// Builds one instance of a spec.
///
/// # Errors
/// An unknown name, an unknown option or a bad value.
pub fn build(spec: &Spec) -> Result<Box<dyn Allocator>, OptionError> {
    let inner = spec.strategy();
    if let Some(wrapper) = spec.parts.get(1) {
        return Err(OptionError(format!("unknown wrapper {:?}; known: none yet", wrapper.name)));
    }
    (find(&inner.name)?.build)(&inner.options)
}
