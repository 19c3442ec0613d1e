//! Runs what an experiment asks for, over all cores.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use serde_json::Value as Json;
use vramlab_sim::Source as OpSource;
use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Step};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::{Bytes, Nanos};
use vramlab_workloads::graph::listing;
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::{self, Workload};

use super::cells::{Cell, What};
use super::experiment::Source;
use super::files::{absent, path_of};
use super::{beside, causes};
use crate::cli::DeviceArgs;
use crate::failure::Failure;
use crate::frame::{Metric, Run, Value};
use crate::inputs::{self, Opened, small_text};
use crate::job::{Input, Place, run_pair};
use crate::progress::Progress;
use crate::room;
use crate::row::Row;
use crate::{least, made};

/// Device of workloads unless a run names another.
const DEVICE: &str = "a100-80gb";
/// Most bytes of a file of figures.
const FACTS_MAX: Bytes = Bytes::mib(16);

/// Recordings, opened once for all runs of an experiment; those that are not there have none.
pub type Recordings = BTreeMap<String, Opened>;

/// Opens the recordings of these cells.
///
/// # Errors
/// A file that cannot be read or is no recording.
pub fn open<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Result<Recordings, Failure> {
    let mut names: Vec<String> = Vec::new();
    for cell in cells.into_iter().filter(|cell| !cell.skipped) {
        if let What::Trace(name) = &cell.what
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    let opened: Vec<Option<(String, Opened)>> = names
        .into_par_iter()
        .map(|name| match path_of(&name) {
            Some(path) if path.exists() => Ok(Some((name, inputs::open(&path)?))),
            Some(_) => Ok(None),
            None => {
                let wanted = name.strip_prefix("example:").unwrap_or(&name);
                let found = inputs::examples()?.into_iter().find(|one| one.name() == wanted);
                match found {
                    Some(opened) => Ok(Some((name, opened))),
                    None => Err(Failure::input(format!("{name}: no such built-in recording"))),
                }
            }
        })
        .collect::<Result<_, Failure>>()?;
    Ok(opened.into_iter().flatten().collect())
}

/// Runs all cells with all their seeds, in order: those of a cell follow each other.
///
/// # Errors
/// With file and line: parameters that are refused, and inputs that are bad.
pub fn run_all(file: &Source, cells: &[Cell], quiet: bool) -> Result<Vec<Run>, Failure> {
    let recordings = open(cells)?;
    let tasks: Vec<(&Cell, u64)> =
        cells.iter().flat_map(|cell| (0..cell.seeds).map(move |seed| (cell, seed))).collect();
    let progress = Progress::new(tasks.len() as u64, quiet);
    let runs = tasks
        .par_iter()
        .map(|(cell, seed)| {
            let run = run(&file.name, cell, *seed, &recordings);
            progress.step();
            run.map_err(|e| file.bad(cell.at, format!("run {:?}: {e}", cell.id)))
        })
        .collect();
    progress.finish();
    runs
}

fn run(experiment: &str, cell: &Cell, seed: u64, recordings: &Recordings) -> Result<Run, Failure> {
    let left_out = |reason: String| {
        let row = Row::new(&cell.id, &cell.spec.to_string()).skipped(reason);
        Run::new(experiment, &cell.id, &row)
    };
    if cell.skipped {
        return Ok(left_out("left out with --quick".to_owned()));
    }
    match &cell.what {
        What::Workload { name, settings, passes } => {
            let Workable { input, place, workload, params, rates } =
                workable(cell, (name, settings, passes), seed)?;
            let mut run = one(experiment, cell, &input, &place)?;
            (run.workload, run.settings) = (name.clone(), settings.clone());
            run.passes.clone_from(passes);
            if cell.graph {
                run.metrics.extend(graph(workload, &params, &rates)?);
                run.metrics.extend(copied(&input)?);
            }
            Ok(run)
        }
        What::Trace(name) => {
            let Some((input, place)) = traced(cell, name, recordings)? else {
                return Ok(Run { trace: name.clone(), ..left_out(absent(name)) });
            };
            let run = one(experiment, cell, &input, &place)?;
            Ok(Run { trace: name.clone(), ..run })
        }
        What::Ops(text) => {
            let (input, place) = listed(cell, text)?;
            one(experiment, cell, &input, &place)
        }
        What::Facts(name) => file(name, "recorded", &left_out, |path| Ok(Ok(facts(path)?))),
        What::Measured(name) => file(name, "torch.caching", &left_out, beside::measured),
        What::Verify(name) => file(name, "torch.caching", &left_out, beside::verified),
    }
}

/// A run whose figures come from a file, or why they do not.
fn file(
    name: &str,
    strategy: &str,
    left_out: &dyn Fn(String) -> Run,
    figures: fn(&Path) -> Result<beside::Found, Failure>,
) -> Result<Run, Failure> {
    let Some(path) = path_of(name).filter(|path| path.exists()) else {
        return Ok(Run { trace: name.to_owned(), ..left_out(absent(name)) });
    };
    Ok(match figures(&path)? {
        Err(why) => Run { trace: name.to_owned(), ..left_out(why) },
        Ok(metrics) => Run {
            trace: name.to_owned(),
            outcome: "recorded".to_owned(),
            strategy: strategy.to_owned(),
            options: String::new(),
            metrics,
            ..left_out(String::new())
        },
    })
}

/// What a run is given, and where it runs; why there is nothing.
///
/// # Errors
/// Parameters that are refused, and inputs that are bad.
pub fn input_of<'a>(
    cell: &'a Cell,
    recordings: &'a Recordings,
) -> Result<Result<(Input<'a>, Place), String>, Failure> {
    Ok(match &cell.what {
        _ if cell.skipped => Err("left out with --quick".to_owned()),
        What::Workload { name, settings, passes } => {
            let made = workable(cell, (name, settings, passes), 0)?;
            Ok((made.input, made.place))
        }
        What::Trace(name) => traced(cell, name, recordings)?.ok_or_else(|| absent(name)),
        What::Ops(text) => Ok(listed(cell, text)?),
        _ => Err("it is not run, only its figures are there".to_owned()),
    })
}

/// A workload, ready to run.
struct Workable<'a> {
    input: Input<'a>,
    place: Place,
    workload: &'static Workload,
    params: Params,
    rates: Rates,
}

fn workable<'a>(
    cell: &Cell,
    (name, settings, passes): (&str, &str, &str),
    seed: u64,
) -> Result<Workable<'a>, Failure> {
    let workload = registry::find(name).map_err(Failure::usage)?;
    let mut params = workload.params_from(settings).map_err(Failure::usage)?;
    if !passes.is_empty() {
        params.set("passes", passes).map_err(Failure::usage)?;
    }
    let place = Place::new(cell.device.as_deref().unwrap_or(DEVICE), cell.capacity)?;
    let rates = Rates::of(&place.profile);
    let input = made::input(workload, &params, seed, &rates, name)?;
    Ok(Workable { input, place, workload, params, rates })
}

fn traced<'a>(
    cell: &Cell,
    name: &str,
    recordings: &'a Recordings,
) -> Result<Option<(Input<'a>, Place)>, Failure> {
    let Some(opened) = recordings.get(name) else { return Ok(None) };
    let input = single(opened, name)?;
    let args = DeviceArgs { device: cell.device.clone(), capacity: cell.capacity };
    let recorded = opened.recorded().into_iter().next().unwrap_or_default();
    let place = room::place(&input, recorded, &args, true)?;
    Ok(Some((input, place)))
}

fn listed<'a>(cell: &'a Cell, text: &'a str) -> Result<(Input<'a>, Place), Failure> {
    let place = Place::for_recording(cell.device.as_deref(), cell.capacity)?;
    let make = || -> Result<Box<dyn OpSource + '_>, Failure> {
        Ok(Box::new(JsonlSource::new(text.as_bytes(), &*cell.id)))
    };
    Ok((Input { accesses: true, ..Input::new(&*cell.id, Box::new(make)) }, place))
}

fn single<'a>(opened: &'a Opened, name: &str) -> Result<Input<'a>, Failure> {
    let mut all = opened.inputs();
    match (all.pop(), all.len()) {
        (Some(input), 0) => Ok(input),
        (_, others) => {
            Err(Failure::input(format!("{name}: {} histories, expected one", others + 1)))
        }
    }
}

fn one(experiment: &str, cell: &Cell, input: &Input<'_>, place: &Place) -> Result<Run, Failure> {
    let (mut row, why) = match cell.causes {
        true => causes::run(input, &cell.spec, place)?,
        false => (run_pair(input, &cell.spec, place, None)?, Vec::new()),
    };
    if input.seed.unwrap_or(0) < cell.min_capacity && row.ran() {
        let found = least::least(input, &cell.spec, place, &row)?;
        least::note(&mut row, found);
    }
    let mut run = Run::new(experiment, &cell.id, &row);
    run.metrics.extend(why);
    Ok(run)
}

/// Kernels of a second step by phase: how many, tensors that they make, bytes made and moved, operations, ns.
fn graph(workload: &Workload, params: &Params, rates: &Rates) -> Result<Vec<Metric>, Failure> {
    let Some(plan) = workload.plan else {
        return Err(Failure::usage(format!("{} has no graph", workload.name)));
    };
    let (plan, _) = plan(params).map_err(Failure::usage)?;
    let lines = listing::lines(&plan, rates).map_err(Failure::usage)?;
    let mut sums: BTreeMap<String, [u64; 5]> = BTreeMap::new();
    for line in &lines {
        for phase in [line.phase.as_str(), "all"] {
            let sum = sums.entry(phase.to_owned()).or_default();
            let more =
                [1, u64::from(line.made_bytes > 0), line.made_bytes, line.moved_bytes, line.ns];
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }
    let names = ["kernels", "tensors", "made_bytes", "moved_bytes", "work_ns"];
    let metrics = sums.iter().flat_map(|(phase, sum)| {
        let metric = move |(name, value): (&str, &u64)| {
            Metric::new(format!("graph.{phase}.{name}"), Value::Exact(*value))
        };
        names.into_iter().zip(sum).map(metric)
    });
    Ok(metrics.collect())
}

/// Bytes that a run copies between host, devices and disk, by direction.
fn copied(input: &Input<'_>) -> Result<Vec<Metric>, Failure> {
    let mut source = (input.make)()?;
    let mut sums = [
        (Direction::HostToDevice, "copied.to_device_bytes", 0_u64),
        (Direction::DeviceToHost, "copied.to_host_bytes", 0),
        (Direction::PeerToPeer, "copied.to_peer_bytes", 0),
    ];
    loop {
        match source.next(Nanos(0), Answered::Done).map_err(Failure::input)? {
            Step::End => break,
            Step::Op(Op::Copy { direction, bytes, .. }) => {
                let sum = sums.iter_mut().find(|(of, ..)| *of == direction);
                if let Some((.., sum)) = sum {
                    *sum = sum.saturating_add(bytes);
                }
            }
            Step::Op(_) | Step::WaitUntil(_) => {}
        }
    }
    Ok(sums.map(|(_, name, sum)| Metric::new(name, Value::Exact(sum))).to_vec())
}

/// Numbers at the top of a JSON object.
fn facts(path: &Path) -> Result<Vec<Metric>, Failure> {
    let bad = |what: &dyn std::fmt::Display| Failure::input(format!("{}: {what}", path.display()));
    let text = small_text(path, FACTS_MAX, "a JSON file of figures")?;
    let Json::Object(fields) = serde_json::from_str(&text).map_err(|e| bad(&e))? else {
        return Err(bad(&"expected one JSON object"));
    };
    let number = |(name, value): (&String, &Json)| {
        let exact = value.as_u64().map(Value::Exact);
        Some(Metric::new(name, exact.or_else(|| value.as_f64().map(Value::Real))?))
    };
    Ok(std::iter::once(Metric::new("ran", Value::Exact(1)))
        .chain(fields.iter().filter_map(number))
        .collect())
}
