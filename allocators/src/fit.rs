//! Does a strategy fit an input? And what a run of the two is made of. One rule for all who run pairs.

use std::sync::Arc;

use vramlab_sim::allocator::Allocator;
use vramlab_sim::engine::Locking;
use vramlab_sim::future::Future;
use vramlab_sim::kv::KvCache;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::Nanos;

use crate::options::{OptionError, Spec};
use crate::registry::{Strategy, build_ahead, build_cache, find, locking};

/// What is known of an input before it is read.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// How many devices its ops name.
    pub devices: usize,
    /// Its work lists the buffers that it uses.
    pub accesses: bool,
}

/// One instance of everything for each device.
pub struct Instances {
    /// The registry's line.
    pub strategy: &'static Strategy,
    /// By device.
    pub strategies: Vec<Box<dyn Allocator>>,
    /// By device.
    pub caches: Vec<Box<dyn KvCache>>,
    /// The locks that host threads queue for.
    pub locking: Locking,
}

/// What came out.
pub enum Fit {
    /// They fit.
    Fits(Instances),
    /// They do not; why.
    Not(&'static str),
}

/// Why it could not be told.
#[derive(Debug)]
pub enum FitError<E> {
    /// The spec is wrong.
    Spec(OptionError),
    /// The input is wrong.
    Source(SourceError),
    /// The input could not be made.
    Make(E),
}

impl<E> From<OptionError> for FitError<E> {
    fn from(error: OptionError) -> Self {
        Self::Spec(error)
    }
}

impl<E> From<SourceError> for FitError<E> {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

/// Makes the instances for a run of `spec` on the input that `make` makes, which is read beforehand where the strategy needs that.
///
/// # Errors
/// A spec that names what is unknown, a bad input.
pub fn fit<'s, E>(
    spec: &Spec,
    about: About,
    make: &dyn Fn() -> Result<Box<dyn Source + 's>, E>,
) -> Result<Fit, FitError<E>> {
    let strategy = find(&spec.strategy().name)?;
    if strategy.accesses && !about.accesses {
        return Ok(Fit::Not(
            "the strategy needs to know which work uses which buffer; this input does not say",
        ));
    }
    let made = || make().map_err(FitError::Make);
    if strategy.is_cache() || strategy.accesses {
        let sequences = has_sequences(&mut *made()?)?;
        if strategy.is_cache() && !sequences {
            return Ok(Fit::Not("the strategy is a cache; this input has no sequences"));
        }
        if strategy.accesses && sequences {
            return Ok(Fit::Not(
                "the strategy needs to know which work uses which buffer; of this input's sequences nobody says",
            ));
        }
    }
    let futures = match strategy.plans_ahead() {
        false => vec![Arc::default(); about.devices],
        true => {
            let mut source = made()?;
            if !source.independent() {
                return Ok(Fit::Not(
                    "the strategy plans ahead; what this input asks for depends on what it is answered",
                ));
            }
            let futures = Future::read(&mut *source, about.devices)?;
            if futures.iter().any(|future| future.sequences > 0) {
                return Ok(Fit::Not(
                    "the strategy plans ahead; what this input's sequences will ask of it is not known",
                ));
            }
            futures.into_iter().map(Arc::new).collect()
        }
    };
    Ok(Fit::Fits(Instances {
        strategy,
        strategies: futures
            .iter()
            .map(|future| build_ahead(spec, future))
            .collect::<Result<_, _>>()?,
        caches: (0..about.devices).map(|_| build_cache(spec)).collect::<Result<_, _>>()?,
        locking: locking(spec)?,
    }))
}

/// Is there an op of a sequence? Reads to the first.
fn has_sequences(source: &mut dyn Source) -> Result<bool, SourceError> {
    loop {
        match source.next(Nanos(0), Answered::Done)? {
            Step::End => return Ok(false),
            Step::Op(Op::KvNew { .. }) => return Ok(true),
            Step::Op(_) | Step::WaitUntil(_) => {}
        }
    }
}
