//! Inputs that workloads make: name, parameters, seed.

use std::path::Path;

use vramlab_sim::Source;
use vramlab_workloads::params::{ParamError, Params};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::readers::requests::RequestLog;
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

/// Says on standard error which of the given parameters do nothing, and whether arrivals are drawn that a trace does not tell.
pub fn remark_idle(workload: &Workload, params: &Params, quiet: bool) {
    if quiet {
        return;
    }
    for idle in params.idle() {
        remark(&format!("vramlab: {}: {idle}", workload.name));
    }
    if let Some(trace) = untimed(workload, params) {
        remark(&format!(
            "vramlab: {}: {trace} has no times of arrival: they are drawn (arrivals={}, rate={} requests/s)",
            workload.name,
            params.text("arrivals"),
            params.text("rate")
        ));
    }
}

/// The trace of a server, if it has no times. One that cannot be read is told of where it is used.
fn untimed<'p>(workload: &Workload, params: &'p Params) -> Option<&'p str> {
    let takes = |name: &str| workload.params.iter().any(|doc| doc.name == name);
    if !workload.carries.sequences || !["trace", "arrivals", "rate"].into_iter().all(takes) {
        return None;
    }
    let trace = Some(params.text("trace")).filter(|trace| *trace != "none")?;
    RequestLog::read(Path::new(trace)).is_ok_and(|log| !log.timed()).then_some(trace)
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
