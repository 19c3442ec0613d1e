//! `vramlab fit`: does a model or a recording fit these devices, through which allocator, and how large may a batch be?

use std::path::PathBuf;

use clap::Args;
use rayon::prelude::*;
use vramlab_allocators::Spec;
use vramlab_sim::device::profile;
use vramlab_sim::units::Bytes;
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::Workload;

use super::compare::strategies;
use super::{model, print};
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::fit::{Fit, fit, largest_batch};
use crate::inputs;
use crate::job::{Input, Place, run_pair};
use crate::made;
use crate::measured;
use crate::output::{Format, Grid, mib, percent, plain, to_csv, to_json};

/// Allocators and settings, unless others are named.
const STRATEGIES: [&str; 4] = [
    "torch.caching",
    "torch.caching:expandable_segments=true",
    "torch.caching:backend=cudaMallocAsync",
    "cuda.malloc",
];
/// The parameter of a model that is its batch.
const BATCH: &str = "batch";

/// Arguments.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// A model's or workload's name, or a recording of any known format.
    #[arg(value_name = "MODEL|FILE")]
    subject: PathBuf,
    /// Devices of `vramlab list devices`, or paths of such files. Without it, all that are cards.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    devices: Vec<String>,
    /// An allocator with its options; may be given again. Without it, PyTorch's with its defaults, with expandable segments, and the driver's pool.
    #[arg(long, value_name = "SPEC")]
    strategy: Vec<String>,
    /// Of a model: parameters, such as seq=512,steps=2; passes among them.
    #[arg(long, value_name = "K=V,…", value_delimiter = ',')]
    set: Vec<String>,
    /// Of a model: runs with so many seeds, from 0.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Of a model: set-ups of real runs (NAME.json, or a folder of them). How far we are from those of the same model is the margin.
    #[arg(long, value_name = "DIR")]
    measured: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Unknown models, parameters, devices or allocators; a file that cannot be read.
pub fn run(args: &FitArgs, common: &Common) -> Outcome {
    let specs = strategies(&args.strategy, &STRATEGIES)?;
    let places = places(&args.devices)?;
    let workload = model(&args.subject);
    let rows = match workload {
        Some(workload) => of_workload(workload, args, &specs, &places, common)?,
        None => of_recording(args, &specs, &places)?,
    };
    print(&match common.format {
        Format::Json => to_json(&rows),
        Format::Csv => to_csv(&rows),
        Format::Table | Format::Markdown | Format::Latex => {
            common.format.words(|markdown| table(&rows, workload.is_some(), args, markdown))
        }
    })?;
    Ok(Code::Done)
}

fn places(names: &[String]) -> Result<Vec<Place>, Failure> {
    if !names.is_empty() {
        return names.iter().map(|name| Place::new(name, None)).collect();
    }
    // what is based on nothing is no card, but what cards are based on
    let cards = profile::devices().into_iter().filter(|device| device.name.contains("gb"));
    let mut cards: Vec<Place> =
        cards.map(|profile| Place { profile, capacity: None, min_capacity: false }).collect();
    cards.sort_by_key(|place| (place.capacity(), place.profile.name.clone()));
    Ok(cards)
}

fn of_recording(args: &FitArgs, specs: &[Spec], places: &[Place]) -> Result<Vec<Fit>, Failure> {
    if !args.set.is_empty() || args.measured.is_some() {
        return Err(Failure::usage("--set and --measured are of models; a recording has none"));
    }
    let opened = inputs::open(&args.subject)?;
    let all = opened.inputs();
    let mut rows = Vec::new();
    for input in &all {
        let seeds = std::slice::from_ref(input);
        rows.extend(each(specs, places, |spec, place| fit(seeds, spec, place, (0.0, "recorded")))?);
    }
    if rows.is_empty() {
        let name = opened.name();
        return Err(Failure::input(format!(
            "{name}: no requests in it, so there is nothing to fit"
        )));
    }
    Ok(rows)
}

/// Every device with every allocator, in this order.
fn each(
    specs: &[Spec],
    places: &[Place],
    one: impl Fn(&Spec, &Place) -> Result<Fit, Failure> + Sync,
) -> Result<Vec<Fit>, Failure> {
    let pairs: Vec<(&Spec, &Place)> =
        places.iter().flat_map(|place| specs.iter().map(move |spec| (spec, place))).collect();
    pairs.par_iter().map(|(spec, place)| one(spec, place)).collect()
}

fn of_workload(
    workload: &'static Workload,
    args: &FitArgs,
    specs: &[Spec],
    places: &[Place],
    common: &Common,
) -> Result<Vec<Fit>, Failure> {
    let params = workload.params_from(&args.set.join(",")).map_err(Failure::usage)?;
    made::remark_idle(workload, &params, common.quiet);
    let from = if args.measured.is_some() { "measured" } else { "none given" };
    let error = (error(workload, args)?, from);
    let has_batch = workload.params.iter().any(|doc| doc.name == BATCH);
    each(specs, places, |spec, place| {
        let rates = Rates::of(&place.profile);
        let seeds: Vec<Input<'_>> =
            (0..args.seeds).map(|seed| input(workload, &params, seed, &rates)).collect();
        let mut row = fit(&seeds, spec, place, error)?;
        if row.verdict == "skipped" {
            return Ok(row);
        }
        if !has_batch {
            row.remark = Some(format!("{} has no parameter {BATCH}", workload.name));
            return Ok(row);
        }
        let passes = |batch: u64| {
            let mut params = params.clone();
            params.set(BATCH, batch.to_string()).map_err(Failure::usage)?;
            // a batch that the model refuses is none that passes
            if (workload.build)(&params, 0, &rates).is_err() {
                return Ok(false);
            }
            Ok(run_pair(&input(workload, &params, 0, &rates), spec, place, None)?.outcome == "ok")
        };
        match largest_batch(passes)? {
            Some((batch, smaller)) => {
                row.largest_batch = Some(batch);
                row.remark = smaller.map(|batch| format!("fails with a batch of {batch}"));
            }
            None => row.remark = Some("not even a batch of 1 passes".to_owned()),
        }
        Ok(row)
    })
}

fn input(workload: &'static Workload, params: &Params, seed: u64, rates: &Rates) -> Input<'static> {
    made::untried(workload, params.clone(), seed, *rates, workload.name)
}

/// Rule `error`, over the set-ups of this workload.
fn error(workload: &Workload, args: &FitArgs) -> Result<f64, Failure> {
    let Some(path) = &args.measured else { return Ok(0.0) };
    let mut most: Option<f64> = None;
    for setup in measured::read(path)?.setups.iter().filter(|s| s.setup.workload == workload.name) {
        let beside = setup.run()?;
        if let Some(real) = beside.peak_reserved_measured
            && beside.failed_in_measured.is_none()
        {
            let under = real as f64 / beside.peak_reserved.max(1) as f64 - 1.0;
            most = Some(most.unwrap_or(0.0).max(under));
        }
    }
    most.ok_or_else(|| {
        Failure::input(format!(
            "{}: no set-up of {} that ran to its end; vramlab measured shows what is there",
            path.display(),
            workload.name
        ))
    })
}

fn table(rows: &[Fit], of_model: bool, args: &FitArgs, markdown: bool) -> String {
    let mut text = String::new();
    let mut names: Vec<&str> = rows.iter().map(|row| row.input.as_str()).collect();
    names.dedup();
    for name in names {
        let heading = if markdown { "### " } else { "" };
        text += &format!("{heading}{}\n", plain(name));
        let mut grid = Grid::new(&[
            "device<",
            "memory",
            "allocator<",
            "verdict<",
            "peak reserved MiB",
            "needs MiB",
            "failed",
            "retries",
            "largest batch",
            "remark<",
        ]);
        for row in rows.iter().filter(|row| row.input == name) {
            let peak = match row.peak_reserved_least == row.peak_reserved_most {
                true => mib(row.peak_reserved_most),
                false => {
                    format!("{} to {}", mib(row.peak_reserved_least), mib(row.peak_reserved_most))
                }
            };
            grid.row(vec![
                row.device.clone(),
                Bytes(row.capacity).to_string(),
                row.strategy.clone(),
                row.verdict.to_owned(),
                peak,
                mib(row.needs),
                row.failed.to_string(),
                row.retries.to_string(),
                row.largest_batch.map_or_else(|| "-".to_owned(), |batch| batch.to_string()),
                row.remark.clone().unwrap_or_default(),
            ]);
        }
        text += &(grid.print(markdown) + "\n\n");
    }
    let error = rows.first().map(|row| row.error);
    text += &match (of_model, &args.measured) {
        (true, Some(_)) => format!(
            "needs: the peak, {} more (the most that real runs of this model were above ours), and the device's context\n",
            percent(error)
        ),
        (true, None) => "needs: the peak and the device's context, with a margin of 0 %: how far our models are from real runs is not in it, since no measured run was given; --measured DIR takes the margin from yours\n".to_owned(),
        (false, _) => "needs: the peak of the recorded requests, and the device's context, with a margin of 0 %: the requests are known, and the allocator is replayed. A recording's batch is what it is: fit a model for the largest\n".to_owned(),
    };
    text
}
