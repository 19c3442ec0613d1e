//! `vramlab inspect`: what is in a recording: peaks and what held them, growth, gaps, fragmentation by cause; or what a step of a model runs.

mod diff;
mod export;
mod subject;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use vramlab_allocators::Spec;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::readers::format::Carries;
use vramlab_workloads::readers::recording::Entries;

use self::subject::Subject;
use super::passes::Model;
use super::{model, print, program, remark};
use crate::advise::climb::Climb;
use crate::analysis::inspection::{Fragmentation, Made, Peak, When, Window, told};
use crate::analysis::recorded::{failure_at_end, judge_end};
use crate::cli::{Common, DeviceArgs, parse_spec};
use crate::described::{Described, describe};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::{self, Made as MadeBy, Opened, Recorded};
use crate::job::Place;
use crate::output::{Format, to_csv, to_json};
use crate::room;

/// Strategy and device of what no recording tells them of.
const STRATEGY: &str = "torch.caching";
const DEVICE: &str = "a100-80gb";
/// Ops shown on each side of a moment.
const SPAN: u64 = 500;

/// Arguments.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A recording of any known format, or a model's name.
    #[arg(value_name = "FILE|MODEL")]
    file: PathBuf,
    /// How many sites, sizes and segments to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Another recording or model: what differs, the largest differences first.
    #[arg(long, value_name = "OTHER")]
    diff: Option<PathBuf>,
    /// Only what happens from this op on.
    #[arg(long, value_name = "OP")]
    from: Option<u64>,
    /// Only what happens up to this op.
    #[arg(long, value_name = "OP")]
    to: Option<u64>,
    /// Only what happens around a moment: the peak of requested bytes, or the first request that a replay refuses.
    #[arg(long, value_enum, value_name = "MOMENT", conflicts_with_all = ["from", "to"])]
    around: Option<Around>,
    /// Ops on each side with --around.
    #[arg(long, value_name = "N", default_value_t = SPAN)]
    span: u64,
    /// The moment of which fragmentation is told: peak (of reserved bytes), oom (the first refused request), end, or an op's number. Without it, the first refused request or else the peak.
    #[arg(long, value_name = "WHEN", value_parser = parse_when)]
    at: Option<When>,
    /// Writes the window as a trace that can be replayed: JSON Lines, compressed if the name ends in .gz or .zst.
    #[arg(long, value_name = "OUT")]
    export: Option<PathBuf>,
    /// The strategy whose fragmentation is told. Without it: torch.caching with the recording's settings.
    #[arg(long, value_name = "SPEC", value_parser = parse_spec)]
    strategy: Option<Spec>,
    #[command(flatten)]
    place: DeviceArgs,
    /// Of a model: parameters, such as batch=32,seq=512.
    #[arg(long, value_name = "K=V,…", value_delimiter = ',')]
    set: Vec<String>,
    /// Of a model: passes, such as amp,checkpoint=sqrt+fusion; its operators are shown before and after each.
    #[arg(long, value_name = "A,B+C,…", value_delimiter = ',')]
    passes: Vec<String>,
    /// Of a model: every kernel in order, not only sums.
    #[arg(long)]
    each: bool,
    /// Of a model: its memory, as of a recording, and not its operators.
    #[arg(long, conflicts_with = "each")]
    memory: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Around {
    Peak,
    Oom,
}

pub(super) fn parse_when(text: &str) -> Result<When, String> {
    match text {
        "peak" => Ok(When::Peak),
        "oom" => Ok(When::Oom),
        "end" => Ok(When::End),
        op => {
            let op = op.parse().map_err(|_| {
                format!("found {op:?}, expected peak, oom, end or the number of an op")
            })?;
            Ok(When::Op(op))
        }
    }
}

/// One device's history.
#[derive(Debug, Serialize)]
struct Inspected {
    input: String,
    torch: Option<String>,
    conf: Option<String>,
    capacity_at_failure: Option<u64>,
    window: Option<Window>,
    #[serde(flatten)]
    start: Start,
    /// Bytes that the file's own placement needs.
    planned_bytes: Option<u64>,
    peak: Peak,
    climb: Option<Climb>,
    /// Of a replay; none if the strategy cannot tell what is where.
    fragmentation: Option<Fragmentation>,
    /// Of the state that the file ends with.
    end: Option<Fragmentation>,
    not_verifiable: Option<String>,
    warnings: Vec<String>,
}

/// Blocks that were live before the first entry of a recording.
#[derive(Debug, Default, Serialize)]
struct Start {
    live_at_start: u64,
    /// Bytes that they were asked for.
    start_bytes: u64,
    /// Of so many the file says who asked: those that are still there at its end.
    start_known: u64,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or is no recording, a window without ops, an output that cannot be written.
pub fn run(args: &InspectArgs, common: &Common) -> Outcome {
    let model = model(&args.file);
    let of_memory = args.memory || args.diff.is_some() || args.of_ops().is_some();
    if let Some(workload) = model.filter(|_| !of_memory) {
        let asked = program::Asked {
            name: workload.name,
            set: &args.set,
            passes: &args.passes,
            device: args.place.device.as_deref(),
            each: args.each,
        };
        return program::inspect(&asked, common);
    }
    if model.is_none()
        && (!args.set.is_empty() || !args.passes.is_empty() || args.each || args.memory)
    {
        return Err(Failure::usage(
            "--set, --passes, --each and --memory are of models; a recording has none",
        ));
    }
    let all = match inspect(&args.file, args, args.export.as_deref(), common)? {
        Found::Histories(all) => all,
        Found::Described(all) => match &args.diff {
            None => return others(&all, common),
            Some(_) => return Err(no_history(&args.file)),
        },
    };
    if let Some(other) = &args.diff {
        let Found::Histories(others) = inspect(other, args, None, common)? else {
            return Err(no_history(other));
        };
        return diff::run(&all, &others, args.top, common);
    }
    print(&match common.format {
        Format::Json => to_json(&all),
        Format::Csv => to_csv(&all),
        Format::Table | Format::Markdown | Format::Latex => common.format.words(|markdown| {
            all.iter().map(|one| text::page(one, args.top, markdown)).collect::<Vec<_>>().join("\n")
        }),
    })?;
    Ok(Code::Done)
}

fn no_history(file: &Path) -> Failure {
    Failure::input(format!(
        "{}: a state without a history has nothing that --diff compares; inspect it alone",
        file.display()
    ))
}

impl InspectArgs {
    const fn windowed(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.around.is_some()
    }

    /// The first option that only a history of requests has a use for.
    fn of_ops(&self) -> Option<&'static str> {
        let given = [
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--around", self.around.is_some()),
            ("--at", self.at.is_some()),
            ("--strategy", self.strategy.is_some()),
            ("--export", self.export.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// How many sites, sizes and segments are kept: of two histories all, since what differs is looked for.
    const fn kept(&self) -> usize {
        if self.diff.is_some() { usize::MAX } else { self.top }
    }
}

/// What is in a file.
enum Found {
    Histories(Vec<Inspected>),
    Described(Vec<Described>),
}

fn inspect(
    file: &Path,
    args: &InspectArgs,
    export: Option<&Path>,
    common: &Common,
) -> Result<Found, Failure> {
    if let Some(workload) = model(file) {
        return of_model(workload.name, args, export, common);
    }
    let begun = inputs::begin(file)?;
    if let Some(format) = begun.format.filter(|format| format.doc().carries != Carries::Ops) {
        if let Some(option) = args.of_ops() {
            return Err(Failure::usage(format!(
                "{}: nothing in it can be replayed ({}), and {option} is of requests for memory; leave it out",
                file.display(),
                format.doc().name
            )));
        }
        return Ok(Found::Described(describe(file, format, begun.input)?));
    }
    let opened = inputs::open_begun(file, begun)?;
    let spec = match &args.strategy {
        Some(spec) => spec.clone(),
        None => opened.recorded_spec(None)?,
    };
    let (made, recorded) = (opened.made(), opened.recorded());
    let histories = opened.inputs();
    if export.is_some() && histories.len() > 1 {
        return Err(Failure::usage(format!(
            "{} has the histories of devices {:?}, and --export writes one; vramlab convert --device N writes one whole",
            opened.name(),
            opened.device_numbers()
        )));
    }
    let mut all = Vec::new();
    for (index, input) in histories.iter().enumerate() {
        let place = room::place(input, recorded[index], &args.place, true)?;
        let subject =
            Subject { input, spec: &spec, place: &place, recorded: recorded[index], made: &made };
        let (mut one, lives, categories) = subject.inspect(args, export, common)?;
        one.warnings.extend(opened.warnings().iter().cloned());
        if let Opened::Snapshot(snapshot) = &opened {
            let device = &snapshot.devices[index];
            if device.recording.entries().is_empty() {
                // a replay would place what is there anew, and tell of nothing that was
                one.fragmentation = None;
                one.warnings.push(
                    "a state without a history: the buffers in it are all that is known".to_owned(),
                );
            }
            let start = device.recording.start_blocks();
            one.start = Start {
                live_at_start: start.len() as u64,
                start_bytes: start.iter().map(|b| b.requested).fold(0, u64::saturating_add),
                start_known: start.iter().filter(|b| b.site != 0).count() as u64,
            };
            one.not_verifiable = device.recording.trouble().map(ToString::to_string);
            if one.window.is_none() {
                let wanted = failure_at_end(device, &lives);
                let judged = judge_end(device, &opened.recorded_spec(None)?, &lives, wanted)?;
                let op = lives.ops.saturating_sub(1);
                let made = Made { strategy: None, capacity: None, op };
                one.end = judged.map(|judged| told(judged, made, &lives, &categories, args.kept()));
            }
        }
        if let Opened::Log(log) = &opened {
            let (live_at_start, start_bytes) = log.histories[index].start;
            one.start = Start { live_at_start, start_bytes, start_known: 0 };
            one.planned_bytes = log.planned_bytes;
        }
        all.push(one);
    }
    // As for replay, that is no bad input: the program had not asked for anything.
    if all.is_empty() && args.diff.is_some() {
        return Err(no_history(file));
    }
    if all.is_empty() && !common.quiet {
        let name = opened.name();
        remark(&format!("vramlab: {name}: no history and no segments in it: nothing to show"));
    }
    Ok(Found::Histories(all))
}

fn of_model(
    name: &str,
    args: &InspectArgs,
    export: Option<&Path>,
    common: &Common,
) -> Result<Found, Failure> {
    let place = Place::new(args.place.device.as_deref().unwrap_or(DEVICE), args.place.capacity)?;
    let rates = Rates::of(&place.profile);
    let passes = match args.passes.as_slice() {
        [] => "none",
        [one] => one.as_str(),
        _ => {
            return Err(Failure::usage(
                "the memory of a model is shown with one choice of --passes",
            ));
        }
    };
    let model = Model::find(name, &args.set)?;
    model.remark_idle(common.quiet);
    let input = model.input(passes, rates)?;
    let spec = match &args.strategy {
        Some(spec) => spec.clone(),
        None => parse_spec(STRATEGY).map_err(Failure::usage)?,
    };
    let (recorded, made) = (Recorded::default(), MadeBy::default());
    let subject = Subject { input: &input, spec: &spec, place: &place, recorded, made: &made };
    Ok(Found::Histories(vec![subject.inspect(args, export, common)?.0]))
}

/// Prints what is in a file that has nothing to be replayed.
fn others(all: &[Described], common: &Common) -> Outcome {
    print(&match common.format {
        Format::Json => to_json(all),
        Format::Csv => to_csv(all),
        Format::Table | Format::Markdown | Format::Latex => common.format.words(|markdown| {
            all.iter().map(|one| one.page(markdown)).collect::<Vec<_>>().join("\n")
        }),
    })?;
    Ok(Code::Done)
}
