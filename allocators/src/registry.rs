//! Every strategy by name. Adding one is one file and one line in [`STRATEGIES`].

use vramlab_sim::allocator::{Allocator, Needs};

use crate::options::{OptionError, Options, Spec, nearest};

/// A registry line.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// `family.name`.
    pub name: &'static str,
    /// What it needs from a workload.
    pub needs: Needs,
    /// Makes one instance, for one device; checks the options.
    pub build: fn(&Options) -> Result<Box<dyn Allocator>, OptionError>,
    /// Says which of the options can have no effect as given, and why; one sentence each.
    pub inert: fn(&Options) -> Vec<String>,
    /// One line for tables and `list`.
    pub summary: &'static str,
}

/// The zoo, in family order.
pub const STRATEGIES: &[Strategy] = &[crate::torch::CACHING];

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
