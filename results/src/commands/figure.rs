//! `vramlab figure`: a picture of a run, as SVG.

use std::path::{Path, PathBuf};

use clap::Args;
use vramlab_allocators::Spec;
use vramlab_allocators::options::nearest;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::Workload;

use super::compare::{WORKLOAD_DEVICE, strategies};
use super::inspect::parse_when;
use super::{model, print, remark};
use crate::analysis::inspection::When;
use crate::cli::{Common, DeviceArgs};
use crate::failure::{Code, Failure, Outcome};
use crate::figures::bars::{Bar, Bars};
use crate::figures::subject::Subject;
use crate::figures::{Kind, Picture, capacity, latency, map, segments, sizes, time};
use crate::frame::Run;
use crate::inputs::{self, Opened};
use crate::job::{Input, Place};
use crate::made;
use crate::output::{Format, refuse_same_file, write_whole};
use crate::room;
use crate::runs::run_one;
use crate::statistics::Interval;

/// Strategy of workloads unless another is named.
const STRATEGY: &str = "torch.caching";
/// Figure of bars unless another is named.
const FIGURE: &str = "peak_reserved";

/// Arguments.
#[derive(Debug, Args)]
pub struct FigureArgs {
    /// What is drawn.
    #[arg(value_enum)]
    kind: Kind,
    /// A recording of any known format, or a workload's name.
    #[arg(value_name = "FILE|WORKLOAD")]
    input: PathBuf,
    /// A strategy with its options; may be given again, where a picture shows several. Without any: torch.caching, with a recording's settings.
    #[arg(long, value_name = "SPEC")]
    strategy: Vec<String>,
    /// Parameters of a workload, such as batch=32,seq=512.
    #[arg(long, value_name = "K=V,…", value_delimiter = ',')]
    set: Vec<String>,
    /// Passes over a model's graph, such as amp+checkpoint=sqrt.
    #[arg(long, value_name = "A+B")]
    passes: Option<String>,
    #[command(flatten)]
    place: DeviceArgs,
    /// How many seeds of a workload, from 0: bars have intervals over them; the other pictures show the first.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The moment of segments: peak (of reserved bytes), oom (the first refused request), end, or an op's number. Without it, the first refused request or else the peak.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    at: Option<When>,
    /// The figure of bars, as the frame names it, such as peak_reserved, stall_total_ns, request_ns.p99.
    #[arg(long, value_name = "METRIC", default_value = FIGURE)]
    figure: String,
    /// Bars on a logarithmic scale.
    #[arg(long)]
    log: bool,
    /// The picture; - writes it to standard output. Without it: vramlab-KIND.svg.
    #[arg(long, short, value_name = "SVG")]
    out: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or are no recording, bad specs, a picture that the input has nothing for, an output that cannot be written.
pub fn run(args: &FigureArgs, common: &Common) -> Outcome {
    args.check()?;
    let given = strategies(&args.strategy, &[])?;
    let picture = match model(&args.input) {
        Some(workload) => of_workload(args, workload, given)?,
        None => of_recording(args, given, common)?,
    };
    let name = args.kind_name();
    let out = args.out.clone().unwrap_or_else(|| format!("vramlab-{name}.svg").into());
    if out == Path::new("-") {
        print(&picture.svg)?;
        return Ok(Code::Done);
    }
    refuse_same_file(&args.input, &out)?;
    write_whole(&out, picture.svg.as_bytes()).map_err(|failure| failure.with_option("--out"))?;
    print(&match common.format {
        Format::Csv => picture.data.csv()?,
        Format::Json => {
            let about =
                serde_json::json!({ "kind": args.kind, "title": picture.title, "file": out });
            format!("{about}\n")
        }
        Format::Markdown => format!("![{}]({})\n", picture.title, out.display()),
        Format::Latex => format!("\\includegraphics{{{}}}\n", out.with_extension("").display()),
        Format::Table => format!("{}\n", picture.title),
    })?;
    if !common.quiet {
        remark(&format!("vramlab: written: {}", out.display()));
    }
    Ok(Code::Done)
}

impl FigureArgs {
    fn kind_name(&self) -> String {
        clap::ValueEnum::to_possible_value(&self.kind)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Options that the kind has no use for.
    fn check(&self) -> Result<(), Failure> {
        let several = matches!(self.kind, Kind::Latency | Kind::Capacity | Kind::Bars);
        let bars = self.kind == Kind::Bars;
        let given = [
            ("more than one --strategy", self.strategy.len() > 1 && !several),
            ("--at", self.at.is_some() && self.kind != Kind::Segments),
            ("--figure", self.figure != FIGURE && !bars),
            ("--log", self.log && !bars),
            ("--seeds", self.seeds > 1 && !bars),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                let name = self.kind_name();
                Err(Failure::usage(format!(
                    "a picture of kind {name} has no use for {option}; leave it out"
                )))
            }
            None => Ok(()),
        }
    }
}

fn of_workload(
    args: &FigureArgs,
    workload: &'static Workload,
    mut specs: Vec<Spec>,
) -> Result<Picture, Failure> {
    let device = args.place.device.as_deref().unwrap_or(WORKLOAD_DEVICE);
    let place = Place::new(device, args.place.capacity)?;
    let rates = Rates::of(&place.profile);
    let mut params = workload.params_from(&args.set.join(",")).map_err(Failure::usage)?;
    if let Some(passes) = &args.passes {
        params.set("passes", passes).map_err(Failure::usage)?;
    }
    if specs.is_empty() {
        specs = strategies(&[], &[STRATEGY])?;
    }
    let inputs =
        (0..args.seeds).map(|seed| made::input(workload, &params, seed, &rates, workload.name));
    let inputs: Vec<Input<'_>> = inputs.collect::<Result<_, _>>()?;
    drawn(args, &inputs, &specs, &place)
}

fn of_recording(
    args: &FigureArgs,
    mut specs: Vec<Spec>,
    common: &Common,
) -> Result<Picture, Failure> {
    if !args.input.exists() && args.input.extension().is_none() {
        let known = vramlab_workloads::registry::WORKLOADS.iter().map(|workload| workload.name);
        let name = args.input.display().to_string();
        let hint = nearest(&name, known);
        return Err(Failure::usage(format!("{name}: no such file, and no such workload; {hint}")));
    }
    if !args.set.is_empty() || args.passes.is_some() || args.seeds > 1 {
        return Err(Failure::usage(
            "--set, --passes and --seeds are of workloads; a recording has none",
        ));
    }
    let opened: Opened = inputs::open(&args.input)?;
    let all = opened.inputs();
    let (Some(input), Some(recorded), 1) =
        (all.first(), opened.recorded().first().copied(), all.len())
    else {
        return Err(Failure::input(match all.len() {
            0 => format!("{}: no history in it, so there is nothing to draw", opened.name()),
            _ => format!(
                "{} has the histories of devices {:?}, and a picture shows one; vramlab convert --device N writes one",
                opened.name(),
                opened.device_numbers()
            ),
        }));
    };
    if specs.is_empty() {
        specs = vec![opened.recorded_spec(None)?];
    }
    let place = room::place(input, recorded, &args.place, common.quiet)?;
    let picture = drawn(args, &all, &specs, &place)?;
    opened.remark_warnings(common);
    Ok(picture)
}

/// The first of `inputs` is drawn; bars have all, which differ by their seeds.
fn drawn(
    args: &FigureArgs,
    inputs: &[Input<'_>],
    specs: &[Spec],
    place: &Place,
) -> Result<Picture, Failure> {
    if args.kind == Kind::Bars {
        return bars(args, inputs, specs, place);
    }
    let (Some(input), Some(spec)) = (inputs.first(), specs.first()) else {
        return Err(Failure::usage("nothing to draw"));
    };
    let subject = |spec| Subject { input, spec, place, label: spec.to_string() };
    let all = || specs.iter().map(subject).collect::<Vec<_>>();
    match args.kind {
        Kind::Time => time::picture(&subject(spec)),
        Kind::Map => map::picture(&subject(spec)),
        Kind::Segments => segments::picture(&subject(spec), args.at.unwrap_or(When::Worst)),
        Kind::Sizes => sizes::picture(&subject(spec)),
        Kind::Latency => latency::picture(&all()),
        Kind::Capacity | Kind::Bars => capacity::picture(&all()),
    }
}

fn bars(
    args: &FigureArgs,
    inputs: &[Input<'_>],
    specs: &[Spec],
    place: &Place,
) -> Result<Picture, Failure> {
    let mut left_out = Vec::new();
    let mut all: Vec<(String, Vec<f64>)> = Vec::new();
    let mut unit = "";
    for spec in specs {
        let mut values = Vec::new();
        for input in inputs {
            let row = run_one(input, spec, place)?;
            let run = Run::new("", "", &row);
            if !run.ran() {
                left_out.push(format!("{spec} is left out: {}", run.reason));
                break;
            }
            let Some(metric) = run.metrics.iter().find(|metric| metric.name == args.figure) else {
                let hint = nearest(&args.figure, run.metrics.iter().map(|metric| &*metric.name));
                let name = &args.figure;
                return Err(Failure::usage(format!(
                    "--figure {name}: a run has no such figure; {hint}"
                )));
            };
            unit = metric.unit;
            values.push(metric.value.as_f64());
        }
        if values.len() == inputs.len() {
            all.push((spec.to_string(), values));
        }
    }
    left_out.iter().for_each(|why| remark(&format!("vramlab: {why}")));
    let most = all.iter().flat_map(|(_, values)| values).copied().fold(0.0, f64::max) as u64;
    let (unit, one) = crate::figures::scale::of_metric(unit, most);
    let bar = |(label, values): (String, Vec<f64>)| {
        let values: Vec<f64> = values.iter().map(|value| value / one).collect();
        let value = values.iter().sum::<f64>() / values.len() as f64;
        let half = Interval::of(&values).map(|interval| interval.half);
        Bar { label, value, interval: half.map(|half| (value - half, value + half)) }
    };
    let name = inputs.first().map_or("", |input| &input.name);
    let seeds = match inputs.len() {
        1 => String::new(),
        count => format!(", {count} seeds"),
    };
    Bars {
        name: args.figure.replace('_', " "),
        unit: unit.to_owned(),
        words: format!("{name}{seeds}, on {}", place.profile.name),
        bars: all.into_iter().map(bar).collect(),
        log: args.log,
        ..Bars::default()
    }
    .picture()
}
