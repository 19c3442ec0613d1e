//! Inputs that workloads make: name, parameters, seed.

use vramlab_sim::Source;
use vramlab_workloads::params::{ParamError, Params};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::Workload;

use crate::commands::remark;
use crate::failure::Failure;
use crate::job::{Input, Times};

/// An input of `workload`, printed as `name`. It is made once here, so that what is wrong with its parameters is told at once.
///
/// # Errors
/// Parameters that are refused, or a file that they name and that is bad.
pub fn input<'a>(
    workload: &'static Workload,
    params: &Params,
    seed: u64,
    rates: &Rates,
    name: &str,
) -> Result<Input<'a>, Failure> {
    let input = untried(workload, params.clone(), seed, *rates, name);
    (input.make)()?;
    Ok(input)
}

/// Says on standard error which of the given parameters do nothing.
pub fn remark_idle(workload: &Workload, params: &Params, quiet: bool) {
    for idle in params.idle().iter().filter(|_| !quiet) {
        remark(&format!("vramlab: {}: {idle}", workload.name));
    }
}

/// The same, of which nothing is known before it is run.
pub fn untried<'a>(
    workload: &'static Workload,
    params: Params,
    seed: u64,
    rates: Rates,
    name: &str,
) -> Input<'a> {
    let assumes = (workload.assumes)(&params);
    let make = move || {
        let source = (workload.build)(&params, seed, &rates).map_err(|error| match error {
            ParamError::BadFile { message } => Failure::input(message),
            error => Failure::usage(error),
        })?;
        Ok(source as Box<dyn Source>)
    };
    Input {
        seed: Some(seed),
        accesses: workload.carries.accesses,
        sequences: workload.carries.sequences,
        times: Times::AsGiven,
        assumes,
        ..Input::new(name, Box::new(make))
    }
}
