//! One run: an input, a strategy, a machine.

use vramlab_allocators::Spec;
use vramlab_allocators::fit::{About, Fit, FitError, Instances, fit};
use vramlab_sim::allocator::Allocator;
use vramlab_sim::engine::{Locking, RunError, Setup, run as drive};
use vramlab_sim::kv::KvCache;
use vramlab_sim::machine::{Machine, Memory};
use vramlab_sim::report::{Report, Summary};

use crate::failure::Failure;
use crate::inputs::Input;
use crate::stop::{Stop, Stoppable};
use crate::watch::{Listener, Watch};

/// How it is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Devices of the machine.
    pub(crate) devices: usize,
    /// Host time of an alloc or free that needs no driver call, in ns, where the strategy's own time does not count.
    pub(crate) host_ns: u64,
    /// Queue the workload's work and copies.
    pub(crate) with_work: bool,
}

/// What came of it.
pub(crate) enum Ran {
    /// The pair does not fit; why.
    Skipped(&'static str),
    /// Driver or strategy ended it; in their words.
    Ended(String),
    /// It ran to its end, or until it was stopped.
    Done(Box<Report>, Vec<(&'static str, Summary)>),
}

/// Runs a pair; `listener` hears each op.
pub(crate) fn run(
    input: &Input,
    spec: &Spec,
    machine: &mut dyn Machine,
    how: How,
    listener: &mut dyn Listener,
    stop: &Stop,
) -> Result<Ran, Failure> {
    let about = About { devices: how.devices.min(input.devices), accesses: input.accesses };
    let instances = match fit(spec, about, &*input.make) {
        Ok(Fit::Fits(instances)) => instances,
        Ok(Fit::Not(why)) => return Ok(Ran::Skipped(why)),
        Err(FitError::Spec(error)) => return Err(Failure::usage(error)),
        Err(FitError::Source(error)) => return Err(Failure::input(error)),
        Err(FitError::Make(failure)) => return Err(failure),
    };
    driven(input, instances, machine, how, listener, stop)
}

/// What a run stands on, where no spec made it.
pub(crate) struct Parts {
    pub(crate) memory: Memory,
    pub(crate) locking: Locking,
    pub(crate) strategies: Vec<Box<dyn Allocator>>,
    pub(crate) caches: Vec<Box<dyn KvCache>>,
}

impl From<Instances> for Parts {
    fn from(made: Instances) -> Self {
        let Instances { strategy, strategies, caches, locking } = made;
        Self { memory: strategy.memory, locking, strategies, caches }
    }
}

/// Runs an input through strategies that were made.
pub(crate) fn driven(
    input: &Input,
    parts: impl Into<Parts>,
    machine: &mut dyn Machine,
    how: How,
    listener: &mut dyn Listener,
    stop: &Stop,
) -> Result<Ran, Failure> {
    let Parts { memory, locking, mut strategies, mut caches } = parts.into();
    let watch = Watch::new(listener);
    let mut ears = watch.observer(memory);
    let mut machine = watch.machine(machine, how.with_work);
    let mut source = Stoppable { inner: (input.make)()?, stop: stop.clone() };
    let setup = Setup {
        host_ns: how.host_ns,
        memory,
        locking,
        caches: &mut caches,
        observer: Some(&mut ears),
        ..Setup::new(&mut machine, &mut strategies)
    };
    match drive(&mut source, setup) {
        Ok(report) => Ok(Ran::Done(Box::new(report), watch.times())),
        Err(
            error @ (RunError::Driver { .. }
            | RunError::Strategy { .. }
            | RunError::Livelock { .. }
            | RunError::NoDevice { .. }),
        ) => Ok(Ran::Ended(error.to_string())),
        Err(error) => Err(Failure::input(format!("{}: {error}", input.name))),
    }
}
