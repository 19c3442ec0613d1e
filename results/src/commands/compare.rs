//! `vramlab compare`: workloads through strategies, side by side.

mod replications;
mod serving;
mod steady;
mod table;

use std::path::{Path, PathBuf};

use clap::Args;
use vramlab_allocators::registry::Strategy;
use vramlab_allocators::{STRATEGIES, Spec, find};
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::{self as workloads, Workload};

use super::print;
use crate::cli::{Common, DeviceArgs, parse_spec};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::{self, Opening};
use crate::job::{Input, Place};
use crate::made;
use crate::output::{Format, to_json, write_whole};
use crate::room;
use crate::row::Row;
use crate::runs::{self, Pair};
use crate::statistics::WarmUp;

pub use table::render;

use table::csv;

/// Device of workloads unless another is named.
pub(crate) const WORKLOAD_DEVICE: &str = "a100-80gb";
/// Workloads of the default comparison.
const WORKLOADS: [&str; 3] = ["varlen", "ocr", "bert"];
/// Strategies of the default comparison.
const DEFAULT_STRATEGIES: [&str; 14] = [
    "bound.live_floor",
    "bound.never_reuse",
    "cuda.malloc",
    "classic.first_fit",
    "classic.next_fit",
    "classic.best_fit",
    "classic.worst_fit",
    "classic.buddy",
    "classic.segregated",
    "classic.slab",
    "classic.tlsf",
    "torch.caching",
    "torch.caching:expandable_segments=true",
    "torch.caching:max_split_size_mb=128",
];

/// Arguments.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Workloads by name; without any (and without --trace): varlen, ocr and bert.
    #[arg(value_name = "WORKLOAD")]
    pub(super) workloads: Vec<String>,
    /// Parameters of the workloads, such as steps=20,batch=16 (each workload takes those that it knows).
    #[arg(long, value_name = "K=V,…", value_delimiter = ',')]
    pub(super) set: Vec<String>,
    /// A recording beside them, on the device that it tells of unless one is named; or a trace of requests for a server (llm) among them. May be given again.
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Vec<PathBuf>,
    /// A strategy with its options; may be given again. Without any: every one, for a server every cache; a row says of each that does not fit an input why it is skipped.
    #[arg(long, value_name = "SPEC")]
    pub(super) strategy: Vec<String>,
    /// Passes over a model's graph, such as none,amp,checkpoint=sqrt+fusion: one row each, with what it saved beside none (through torch.caching
    /// unless --strategy names others).
    #[arg(long, value_name = "A,B+C,…", value_delimiter = ',')]
    pub(super) passes: Vec<String>,
    #[command(flatten)]
    place: DeviceArgs,
    /// Also searches for the least capacity on which each run ends without a failing request (some twenty runs each).
    #[arg(long)]
    pub(super) min_capacity: bool,
    /// Runs each synthetic workload with this many seeds, from 0.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) seeds: u64,
    /// Requests left out as warm-up where latencies of a steady state are told: auto (MSER-5), none, or how many of the first; nothing with --passes.
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(super) warm_up: WarmUp,
    /// Also writes compare.json, compare.csv and compare.md there.
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
}

/// The comparison that `vramlab` alone runs: built-in inputs, under a minute; ends with a table and the path of what was written.
///
/// # Errors
/// When the results cannot be written.
pub fn default(common: &Common, out: &Path) -> Outcome {
    let args = CompareArgs {
        workloads: Vec::new(),
        set: Vec::new(),
        trace: Vec::new(),
        strategy: Vec::new(),
        passes: Vec::new(),
        place: DeviceArgs { device: None, capacity: None },
        min_capacity: false,
        seeds: 1,
        warm_up: WarmUp::default(),
        out: Some(out.to_owned()),
    };
    compare(&args, common, true)
}

/// Runs the command.
///
/// # Errors
/// Unknown names, bad parameters, bad traces, an output folder that cannot be written.
pub fn run(args: &CompareArgs, common: &Common) -> Outcome {
    compare(args, common, false)
}

fn compare(args: &CompareArgs, common: &Common, examples: bool) -> Outcome {
    // recordings alone run on devices of their own, see `room`
    let only_recordings = args.workloads.is_empty() && !args.trace.is_empty();
    let capacity = args.place.capacity.filter(|_| !only_recordings);
    let place = Place::new(args.place.device.as_deref().unwrap_or(WORKLOAD_DEVICE), capacity)?;
    if !args.passes.is_empty() {
        return super::passes::run(args, &place, common);
    }
    let all: Vec<&str> = STRATEGIES.iter().map(|s| s.name).collect();
    let specs = strategies(&args.strategy, if examples { &DEFAULT_STRATEGIES } else { &all })?;
    if let Some(out) = &args.out {
        // Found out before the work, not after it.
        std::fs::create_dir_all(out).map_err(|e| Failure::write(out, &e).with_option("--out"))?;
    }
    let workloads = named(args)?;
    let (requests, recordings) = serving::split(&args.trace, &workloads)?;
    let Opening { opened: recordings, mut bad } = inputs::open_each(&recordings)?;
    let built_in = if examples { inputs::examples()? } else { Vec::new() };
    let rates = Rates::of(&place.profile);
    let made = synthetic(args, &workloads, &requests, &rates, common.quiet)?;
    let mut all: Vec<(Input<'_>, Place)> =
        made.into_iter().map(|input| (input, place.clone())).collect();
    for file in built_in.iter().chain(&recordings) {
        for (input, recorded) in file.inputs().into_iter().zip(file.recorded()) {
            match room::place(&input, recorded, &args.place, common.quiet) {
                Ok(place) => all.push((input, place)),
                Err(failure) => bad.add(failure)?,
            }
        }
    }
    all.iter_mut().for_each(|(_, place)| place.min_capacity = args.min_capacity);
    let pairs: Vec<Pair<'_, '_>> = all
        .iter()
        .flat_map(|(input, place)| specs.iter().map(move |spec| (input, spec, place)))
        .filter(|(input, spec, _)| {
            let is_cache = |name: &str| find(name).is_ok_and(Strategy::is_cache);
            !args.strategy.is_empty() || !input.sequences || is_cache(&spec.strategy().name)
        })
        .collect();
    let rows = runs::run_all(&pairs, &mut bad, common.quiet)?;
    let idle: Vec<String> = match args.seeds {
        1 => Vec::new(),
        _ => idle_seeds(&rows).into_iter().map(str::to_owned).collect(),
    };
    let tables = once(&rows, &idle);
    let shown = match common.format {
        Format::Table | Format::Markdown | Format::Latex => &tables,
        Format::Json | Format::Csv => &rows,
    };
    print(&render(shown, common.format, false))?;
    if let Some(out) = &args.out {
        write_whole(&out.join("compare.json"), to_json(&rows).as_bytes())?;
        write_whole(&out.join("compare.csv"), csv(&rows).as_bytes())?;
        write_whole(&out.join("compare.md"), render(&tables, Format::Markdown, false).as_bytes())?;
        if !common.quiet {
            super::remark(&format!(
                "runs: {}, on {}\nwritten: {2}/compare.json, {2}/compare.csv, {2}/compare.md",
                rows.len(),
                devices(&rows),
                out.display()
            ));
        }
    }
    recordings.iter().for_each(|file| file.remark_warnings(common));
    for name in idle.iter().filter(|_| !common.quiet) {
        super::remark(&format!(
            "vramlab: {name}: no seed makes a difference with these parameters; shown once"
        ));
    }
    runs::end(&bad, rows.is_empty(), rows.iter().any(Row::broke), Code::Done)
}

/// The devices of the rows, each once.
fn devices(rows: &[Row]) -> String {
    let mut all: Vec<String> = Vec::new();
    for row in rows {
        let capacity = vramlab_sim::Bytes(row.capacity);
        let text = format!("{} ({capacity}), costs {}", row.device, row.cost_table);
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join("; ")
}

/// The rows, but of inputs whose seeds make no difference only the first seed's.
fn once(rows: &[Row], idle: &[String]) -> Vec<Row> {
    let again = |row: &&Row| row.seed.is_some_and(|seed| seed > 0) && idle.contains(&row.input);
    rows.iter().filter(|row| !again(row)).cloned().collect()
}

/// Workloads whose runs are the same for every seed.
fn idle_seeds(rows: &[Row]) -> Vec<&str> {
    let figures = |row: &Row| (row.ops, row.live_floor, row.peak_reserved, row.time_ns);
    let ran = || rows.iter().filter(|row| row.ran() && row.seed.is_some());
    let mut names: Vec<&str> = ran().map(|row| row.input.as_str()).collect();
    names.dedup();
    names.retain(|name| {
        let of_name = || ran().filter(|row| row.input == *name);
        of_name().all(|row| {
            let alike = of_name().find(|other| other.strategy == row.strategy);
            alike.is_some_and(|first| figures(first) == figures(row))
        })
    });
    names.sort_unstable();
    names.dedup();
    names
}

/// The specs given, or the defaults; `all` stands for every strategy.
///
/// # Errors
/// A text that is no spec, an unknown strategy or option, or options of `all`.
pub fn strategies(given: &[String], defaults: &[&str]) -> Result<Vec<Spec>, Failure> {
    let texts: Vec<&str> = match given {
        [] => defaults.to_vec(),
        given => given
            .iter()
            .flat_map(|text| {
                if text == "all" {
                    STRATEGIES.iter().map(|s| s.name).collect()
                } else {
                    vec![text.as_str()]
                }
            })
            .collect(),
    };
    let parse = |text: &str| -> Result<Spec, Failure> {
        if let Some(options) = text.strip_prefix("all:") {
            return Err(Failure::usage(format!(
                "--strategy all stands for every strategy and takes no options, found {options:?}; name the strategy that has them"
            )));
        }
        let spec = parse_spec(text).map_err(Failure::usage)?;
        vramlab_allocators::registry::check(&spec).map_err(Failure::usage)?;
        Ok(spec)
    };
    texts.into_iter().map(parse).collect()
}

/// The workloads that were asked for.
fn named(args: &CompareArgs) -> Result<Vec<&'static Workload>, Failure> {
    let names: Vec<&str> = match args.workloads.as_slice() {
        [] if args.trace.is_empty() => WORKLOADS.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    };
    names.iter().map(|name| workloads::find(name).map_err(Failure::usage)).collect()
}

fn synthetic<'a>(
    args: &CompareArgs,
    found: &[&'static Workload],
    requests: &[PathBuf],
    rates: &Rates,
    quiet: bool,
) -> Result<Vec<Input<'a>>, Failure> {
    let pairs = args.set.iter().map(|pair| {
        pair.split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {pair}: expected name=value")))
    });
    let pairs: Vec<(&str, &str)> = pairs.collect::<Result<_, _>>()?;
    for (key, _) in &pairs {
        if found.is_empty() {
            return Err(Failure::usage(format!(
                "--set {key}=…: parameters are those of workloads, and recordings have none; name a workload beside --trace"
            )));
        }
        if !found.iter().any(|w| w.params.iter().any(|p| p.name == *key)) {
            let known = found.iter().flat_map(|w| w.params.iter().map(|p| p.name));
            let hint = vramlab_allocators::options::nearest(key, known);
            return Err(Failure::usage(format!(
                "--set {key}=…: no workload here has that parameter; {hint}"
            )));
        }
    }
    for (at, (key, value)) in pairs.iter().enumerate() {
        if let Some((_, before)) = pairs[..at].iter().find(|(known, _)| known == key) {
            return Err(Failure::usage(format!(
                "--set {key}: given twice, as {before:?} and as {value:?}; give it once"
            )));
        }
    }
    let mut inputs = Vec::new();
    for workload in found {
        let own = pairs.iter().filter(|(key, _)| workload.params.iter().any(|p| p.name == *key));
        let mut params = Params::defaults(workload.params);
        for (key, value) in own {
            params.set(key, *value).map_err(Failure::usage)?;
        }
        let serves = workload.carries.sequences && !requests.is_empty();
        if !serves {
            made::remark_idle(workload, &params, quiet);
            inputs.extend(seeded(args, workload, &params, rates, workload.name)?);
            continue;
        }
        for (file, name) in requests.iter().zip(inputs::names(requests)) {
            params.set("trace", file.display().to_string()).map_err(Failure::usage)?;
            made::remark_idle(workload, &params, quiet);
            let name = format!("{}, {name}", workload.name);
            inputs.extend(seeded(args, workload, &params, rates, &name)?);
        }
    }
    Ok(inputs)
}

/// A workload with each seed.
fn seeded<'a>(
    args: &CompareArgs,
    workload: &'static Workload,
    params: &Params,
    rates: &Rates,
    name: &str,
) -> Result<Vec<Input<'a>>, Failure> {
    let with = |seed| {
        let input = made::input(workload, params, seed, rates, name)?;
        Ok(Input { warm_up: args.warm_up, ..input })
    };
    (0..args.seeds).map(with).collect()
}
