//! Tiered memory.
mod buffers;
mod counters;
mod fence;
mod file;
mod foresight;
mod host;
mod lines;
mod moves;
mod oracle;
mod order;
mod restart;
mod room;
mod settings;
mod stopwatch;
mod tiered;
mod uses;

use vramlab_sim::allocator::Allocator;
use vramlab_sim::future::Future;

use crate::options::{OptionError, Options};
use crate::registry::{Made, Status, Strategy};

use foresight::{Foresight, Nothing};
use oracle::Oracle;
use settings::{Settings, inert};
use tiered::Tiered;

/// The registry's line of `tiered.lru`.
pub const LRU: Strategy = Strategy::plain(
    "tiered.lru",
    |options| around(options, "tiered.lru", None),
    Status::Model,
    settings::LRU,
    "device, pinned host and file; what was used longest ago leaves",
)
.needs_accesses()
.inert(inert);

/// The registry's line of `tiered.next_use`.
pub const NEXT_USE: Strategy = Strategy::ahead(
    "tiered.next_use",
    |options, future| {
        let inner = settings::inner(options)?;
        next_use(options, future, inner)
    },
    Status::Model,
    settings::NEXT_USE,
    "the same; what is used again last leaves (an oracle), and comes back ahead",
)
.needs_accesses()
.inert(inert);

fn around(options: &Options, name: &str, inner: Option<Box<dyn Allocator>>) -> Made {
    let known = settings::LRU;
    options.check(name, known)?;
    let inner = match inner { Some(i) => i, None => settings::inner(options)? };
    Ok(Box::new(Tiered::new(inner, Settings::parse(options)?, Box::new(Nothing))))
}

fn next_use(options: &Options, future: &Future, inner: Box<dyn Allocator>) -> Result<Box<dyn Allocator>, OptionError> {
    options.check("tiered.next_use", settings::NEXT_USE)?;
    let oracle: Box<dyn Foresight> = Box::new(Oracle::new(future));
    Ok(Box::new(Tiered::new(inner, Settings::parse(options)?, oracle)))
}
