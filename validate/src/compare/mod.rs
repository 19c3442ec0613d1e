//! `compare`: the same pair on the simulated device and on the driver, op by op.
//!
//! | compared | of each op | equal means |
//! |---|---|---|
//! | placements | where the buffer was placed, and how many bytes | range by ordinal, and offset in it |
//! | driver calls | those that it made, in order | same call, sizes, streams, handles, places, and outcome |
//! | reserved | bytes held after it | same bytes |
//! | failures | was it refused? | in both or in none |
//!
//! Times are not equal and not expected to be: the error of the simulated ones is given by percentile, for each driver call and for whole
//! allocations. The simulated device has the real one's granule, families and limit, no context, and the prices of `--device`.

mod check;
mod render;

use serde::Serialize;
use vramlab_allocators::Spec;
use vramlab_sim::device::profile::Profile;
use vramlab_sim::driver::{CALL_NAMES, Driver};
use vramlab_sim::report::Summary;
use vramlab_sim::{DeviceOptions, SimMachine};

use crate::failure::{Code, Failure, Outcome};
use crate::inputs::Input;
use crate::machine::{CudaMachine, Wanted};
use crate::options::RunArgs;
use crate::output::{Format, print, remark, write_whole};
use crate::run::{How, Ran, run};
use crate::stop::Stop;

pub(crate) use render::error;

use check::{Check, Differences, Recorded};

/// Version of the JSON objects' shape.
const SCHEMA: u32 = 1;

/// A pair, compared.
#[derive(Debug, Serialize)]
pub(crate) struct Pair {
    schema: u32,
    vramlab: &'static str,
    pub(crate) input: String,
    pub(crate) strategy: String,
    /// `equal`, `different`, `skipped`, `ended`, `stopped`.
    pub(crate) outcome: &'static str,
    pub(crate) reason: Option<String>,
    pub(crate) limit: u64,
    pub(crate) ops: u64,
    pub(crate) differences: Option<Differences>,
    /// Highest bytes held, simulated and real.
    pub(crate) peak_reserved: [u64; 2],
    /// Requests that were refused, simulated and real.
    pub(crate) ooms: [u64; 2],
    pub(crate) times: Vec<Times>,
}

/// Simulated and real times of one thing, in ns.
#[derive(Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) what: String,
    pub(crate) simulated: Summary,
    pub(crate) real: Summary,
}

/// Runs the command.
pub(crate) fn command(args: &RunArgs, format: Format, stop: &Stop) -> Outcome {
    let profile = args.profile()?;
    let (inputs, specs) = (args.inputs(&profile)?, args.specs()?);
    let mut pairs = Vec::new();
    for input in &inputs {
        for spec in &specs {
            if stop.asked() {
                break;
            }
            pairs.push(pair(input, spec, &profile, args, stop)?);
        }
    }
    print(&render::render(&pairs, format)?)?;
    if let Some(path) = &args.out {
        write_whole(path, &render::json_lines(&pairs)?)?;
    }
    let any = |outcome: &str| pairs.iter().any(|pair| pair.outcome == outcome);
    if stop.asked() {
        remark("stopped; everything was given back");
    }
    Ok(match () {
        () if any("different") => Code::Different,
        () if stop.asked() || any("ended") || any("stopped") => Code::Partial,
        () => Code::Done,
    })
}

/// The simulated device that is like the real one.
pub(crate) fn alike(profile: &Profile, machine: &CudaMachine) -> DeviceOptions {
    DeviceOptions {
        capacity: machine.limit(),
        context: 0,
        host_capacity: machine.limit(),
        granule: machine.granule(),
        any_size: false,
        families: machine.families(),
        ..profile.options.clone()
    }
}

fn pair(
    input: &Input,
    spec: &Spec,
    profile: &Profile,
    args: &RunArgs,
    stop: &Stop,
) -> Result<Pair, Failure> {
    let wanted = Wanted { devices: input.devices, limit: args.limit(), with_work: args.with_work };
    let mut real = CudaMachine::open(wanted)?;
    let (devices, limit) = (real.count(), real.limit());
    let options = alike(profile, &real);
    let mut simulated = SimMachine::with_devices((0..devices).map(|_| options.clone()));
    let host_ns = profile.host_ns(&spec.strategy().name);
    let how = How { devices, host_ns, with_work: args.with_work };
    let mut recorded = Recorded::default();
    let of_simulated = run(input, spec, &mut simulated, how, &mut recorded, stop)?;
    let mut check = Check::new(recorded);
    // a strategy's own time passes by itself on a real clock
    let how = How { host_ns: if real.has_own_clock() { host_ns } else { 0 }, ..how };
    let of_real = match &of_simulated {
        Ran::Skipped(_) => None,
        _ => Some(run(input, spec, &mut real, how, &mut check, stop)?),
    };
    let closed = real.close();
    let mut pair = Pair {
        schema: SCHEMA,
        vramlab: env!("CARGO_PKG_VERSION"),
        input: input.name.clone(),
        strategy: spec.to_string(),
        outcome: "equal",
        reason: None,
        limit,
        ops: check.ops(),
        differences: None,
        peak_reserved: [0; 2],
        ooms: [0; 2],
        times: Vec::new(),
    };
    let ended = |ran: &Ran| match ran {
        Ran::Ended(why) => Some(why.clone()),
        _ => None,
    };
    match (&of_simulated, &of_real) {
        (Ran::Skipped(why), _) => {
            (pair.outcome, pair.reason) = ("skipped", Some((*why).to_owned()));
            return Ok(pair);
        }
        (Ran::Done(one, one_times), Some(Ran::Done(two, two_times))) => {
            pair.peak_reserved = [one.total.reserved.peak, two.total.reserved.peak];
            pair.ooms = [one.ooms, two.ooms];
            pair.times = times((one.alloc_ns, one_times), (two.alloc_ns, two_times));
        }
        (one, two) => {
            let why = [ended(one), two.as_ref().and_then(ended)];
            let same = why[0].is_some() == why[1].is_some();
            pair.reason = Some(match why {
                [Some(simulated), Some(real)] => format!("simulated: {simulated}; real: {real}"),
                [Some(simulated), None] => format!("only the simulated run ended: {simulated}"),
                [None, real] => format!("only the real run ended: {}", real.unwrap_or_default()),
            });
            pair.outcome = if same { "ended" } else { "different" };
        }
    }
    let differences = check.finish();
    if differences.any() {
        pair.outcome = "different";
    }
    pair.differences = Some(differences);
    if stop.asked() {
        pair.outcome = "stopped";
    }
    if let Err(refusal) = closed {
        let why =
            format!("{} answered {} while things were given back", refusal.call, refusal.error());
        (pair.outcome, pair.reason) = ("different", Some(why));
    }
    Ok(pair)
}

/// Of whole allocations, and of each driver call that either made.
fn times(
    one: (Summary, &[(&'static str, Summary)]),
    two: (Summary, &[(&'static str, Summary)]),
) -> Vec<Times> {
    let mut all = vec![Times { what: "allocation".to_owned(), simulated: one.0, real: two.0 }];
    let of = |times: &[(&str, Summary)], name: &str| {
        times.iter().find(|(known, _)| *known == name).map_or_else(Summary::default, |(_, s)| *s)
    };
    for name in CALL_NAMES {
        let (simulated, real) = (of(one.1, name), of(two.1, name));
        if simulated.count + real.count > 0 {
            all.push(Times { what: name.to_owned(), simulated, real });
        }
    }
    all
}
