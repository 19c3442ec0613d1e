//! `vramlab report`: recordings, models and workloads as one page for a browser, which loads nothing from anywhere.
//!
//! Several histories on one page are compared: each says in words how it differs from the first.

use std::path::PathBuf;

use clap::Args;
use vramlab_allocators::{Options, Spec};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::Workload;

use super::passes::Model;
use super::{model, print, remark};
use crate::cli::{Common, DeviceArgs, parse_spec};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::{self, Opened, Opening};
use crate::job::{Input, Place};
use crate::made;
use crate::output::{Format, refuse_same_file, to_csv, to_json, write_whole};
use crate::report::columns::Columns;
use crate::report::what_if::Line;
use crate::report::{Asked, Data, History, RUNS_MAX, Subject, compared, history, page};
use crate::room;
use crate::runs;

/// Strategy and device of what no recording tells them of.
const STRATEGY: &str = "torch.caching";
const DEVICE: &str = "a100-80gb";

/// Arguments.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Recordings of any known format that has requests, or names of models and workloads. Several are on one page, and compared with the first.
    #[arg(value_name = "FILE|MODEL", required = true)]
    files: Vec<PathBuf>,
    /// The page.
    #[arg(long, short, value_name = "HTML", default_value = "vramlab-report.html")]
    output: PathBuf,
    /// A strategy that is shown beside the recording's own and the best setting; may be given several times.
    #[arg(long, value_name = "SPEC", value_parser = parse_spec)]
    strategy: Vec<Spec>,
    /// How many settings are tried at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    budget: u32,
    /// Whose rules and options: 2.15, 2.9. Without it, those of the recording.
    #[arg(long, value_name = "V")]
    torch_version: Option<String>,
    #[command(flatten)]
    place: DeviceArgs,
    /// Of models and workloads: parameters, such as batch=32,seq=512.
    #[arg(long, value_name = "K=V,…", value_delimiter = ',')]
    set: Vec<String>,
    /// Of models: passes, such as none,amp,checkpoint=sqrt+fusion; each choice is a history of its own.
    #[arg(long, value_name = "A,B+C,…", value_delimiter = ',')]
    passes: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or have no requests, a page that cannot be written.
pub fn run(args: &ReportArgs, common: &Common) -> Outcome {
    let (models, files): (Vec<_>, Vec<_>) =
        args.files.iter().partition(|file| model(file).is_some());
    let files: Vec<PathBuf> = files.into_iter().cloned().collect();
    for file in &files {
        refuse_same_file(file, &args.output)?;
    }
    if models.is_empty() && !(args.set.is_empty() && args.passes.is_empty()) {
        return Err(Failure::usage(
            "--set and --passes are of models and workloads; a recording has none",
        ));
    }
    if args.strategy.len() + 2 > RUNS_MAX && !common.quiet {
        remark(&format!(
            "vramlab: a page shows {RUNS_MAX} runs whole: the recording's own, the best setting, and what of --strategy is left; the others are in its table"
        ));
    }
    let Opening { opened, mut bad } = inputs::open_each(&files)?;
    let mut columns = Columns::default();
    let mut histories = Vec::new();
    for file in &opened {
        match of_file(file, args, common, &mut columns) {
            Ok(found) => histories.extend(found),
            Err(failure) => bad.add(failure)?,
        }
    }
    for workload in models.into_iter().filter_map(|name| model(name)) {
        histories.extend(of_model(workload, args, common, &mut columns)?);
    }
    compared::compare(&mut histories);
    if histories.is_empty() {
        return runs::end(&bad, true, false, Code::Done);
    }
    let data = Data { vramlab: env!("CARGO_PKG_VERSION"), histories };
    let page = page::page(&data, columns.bytes()).map_err(|e| Failure::write(&args.output, &e))?;
    write_whole(&args.output, page.as_bytes())
        .map_err(|failure| failure.with_option("--output"))?;
    print(&told(&data.histories, common.format))?;
    if !common.quiet {
        let mib = page.len() as f64 / f64::from(1 << 20);
        remark(&format!(
            "vramlab: {} written, {mib:.1} MiB; open it in a browser",
            args.output.display()
        ));
    }
    let broke = data.histories.iter().any(|one| one.broke);
    runs::end(&bad, false, broke, Code::Done)
}

fn of_file(
    file: &Opened,
    args: &ReportArgs,
    common: &Common,
    columns: &mut Columns,
) -> Result<Vec<History>, Failure> {
    let own = file.recorded_spec(args.torch_version.as_deref())?;
    let asked =
        Asked { strategies: &args.strategy, budget: args.budget as usize, quiet: common.quiet };
    let mut histories = Vec::new();
    let devices = match file {
        Opened::Snapshot(snapshot) => snapshot.devices.iter().map(Some).collect(),
        _ => vec![None; file.inputs().len()],
    };
    for ((input, recorded), device) in file.inputs().iter().zip(file.recorded()).zip(devices) {
        let place = room::place(input, recorded, &args.place, common.quiet)?;
        let subject =
            Subject { input, place: &place, own: &own, warnings: file.warnings(), device };
        histories.push(history(columns, &subject, &asked)?);
    }
    if histories.is_empty() {
        return Err(Failure::input(format!(
            "{}: no history in it, so there is nothing to show",
            file.path().display()
        )));
    }
    Ok(histories)
}

/// A model's histories, one for each choice of passes; a workload's one.
fn of_model(
    workload: &'static Workload,
    args: &ReportArgs,
    common: &Common,
    columns: &mut Columns,
) -> Result<Vec<History>, Failure> {
    let place = Place::new(args.place.device.as_deref().unwrap_or(DEVICE), args.place.capacity)?;
    let rates = Rates::of(&place.profile);
    let params = workload.params_from(&args.set.join(",")).map_err(Failure::usage)?;
    made::remark_idle(workload, &params, common.quiet);
    let mut inputs = Vec::new();
    if args.passes.is_empty() {
        inputs.push(made::input(workload, &params, 0, &rates, workload.name)?);
    }
    for passes in &args.passes {
        inputs.push(Model::find(workload.name, &args.set)?.input(passes, rates)?);
    }
    let version = args.torch_version.iter().map(|version| ("version", version.as_str()));
    let own = Spec::new(STRATEGY, Options::from_pairs(version));
    vramlab_allocators::build(&own).map_err(Failure::usage)?;
    let asked =
        Asked { strategies: &args.strategy, budget: args.budget as usize, quiet: common.quiet };
    let one = |input: &Input<'_>| {
        let subject = Subject { input, place: &place, own: &own, warnings: &[], device: None };
        history(columns, &subject, &asked)
    };
    inputs.iter().map(one).collect()
}

/// The answer in words, or the table as data.
fn told(histories: &[History], format: Format) -> String {
    let lines = || histories.iter().flat_map(|one| &one.what_if).cloned().collect::<Vec<Line>>();
    match format {
        Format::Json => to_json(&lines()),
        Format::Csv => to_csv(&lines()),
        Format::Table | Format::Markdown | Format::Latex => format.words(|_| {
            let mut text = String::new();
            for one in histories {
                text += &format!("{}\n", one.name);
                for said in &one.answer {
                    text += &format!("  {}: {}\n", said.about, said.text);
                    if let Some(paste) = &said.paste {
                        text += &format!("    {paste}\n");
                    }
                }
            }
            text
        }),
    }
}
