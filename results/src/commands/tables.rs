//! `vramlab tables`: experiment files, run and judged.

use std::path::PathBuf;

use clap::Args;

use super::{print, remark};
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Format, to_json};
use crate::tables::experiment::Experiment;
use crate::tables::make::{self, Made};
use crate::tables::store::{self, Store};
use crate::tables::{built_in, data, latex, record, text};

/// Where tables are written, unless told otherwise.
const OUT: &str = "vramlab-tables";

/// Arguments.
#[derive(Debug, Args)]
pub struct TablesArgs {
    /// Tables by name, or experiment files (.toml). Without any: all that are built in.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// All built-in tables, in full (recordings are looked for in ../shared, or where VRAMLAB_SHARED says).
    #[arg(long, conflicts_with_all = ["names", "quick"])]
    all: bool,
    /// Fewer seeds and smaller runs, as each experiment says: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Only this row of the table, and only the runs that it needs; nothing is written.
    #[arg(long, value_name = "N", requires = "names", conflicts_with = "out")]
    row: Option<usize>,
    /// Writes to `results/record/DATE-MACHINE` of the repository: what is published, with the command; one that was interrupted is gone on with.
    #[arg(long, conflicts_with_all = ["row", "quick", "out"])]
    record: bool,
    /// Where tables are written; those that are there and whose inputs did not change are not made again.
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// Unknown tables, files that are no experiments, an output folder that cannot be written.
pub fn run(args: &TablesArgs, common: &Common) -> Outcome {
    let names: Vec<&str> = match args.names.as_slice() {
        [] => built_in::ALL.iter().map(|(name, _)| *name).collect(),
        names => names.iter().map(String::as_str).collect(),
    };
    // All files are read before the first is run.
    let experiments: Vec<(&str, Experiment)> = names
        .into_iter()
        .map(|name| Ok((name, built_in::find(name)?)))
        .collect::<Result<_, Failure>>()?;
    let out = if args.record { record::folder()? } else { args.out.clone() };
    let mut broke = false;
    for (asked, experiment) in &experiments {
        let cells = make::cells_of(experiment, args.quick)?;
        if args.row.is_some() {
            let made = make::make(experiment, asked, args.row, args.quick, common.quiet)?;
            broke |= ended(&made);
            print(&rendered(&made, common.format)?)?;
            continue;
        }
        std::fs::create_dir_all(&out).map_err(|e| Failure::write(&out, &e).with_option("--out"))?;
        let store = Store::new(&out, &experiment.file.name);
        let key = store::key(&experiment.file, &cells, args.quick);
        let parts = (experiment.tables(), experiment.figures.len());
        let kept = store.kept(&key, parts, ending(common.format));
        if let Some(kept) = kept {
            note(common, &format!("{}: unchanged since it was made", experiment.file.name));
            print(&kept)?;
            continue;
        }
        let began = std::time::Instant::now();
        let made = make::make(experiment, asked, None, args.quick, common.quiet)?;
        broke |= ended(&made);
        store.write(&made, &key).map_err(|failure| failure.with_option("--out"))?;
        let (runs, seconds) = (made.runs.len(), began.elapsed().as_secs_f64());
        note(common, &format!("{}: {runs} runs in {seconds:.1} s", experiment.file.name));
        print(&rendered(&made, common.format)?)?;
    }
    if args.record {
        let title = |(_, experiment): &(&str, Experiment)| {
            (experiment.file.name.clone(), experiment.title.clone())
        };
        let tables: Vec<(String, String)> = experiments.iter().map(title).collect();
        record::finish(&out, &command(args), &tables)?;
    }
    if args.row.is_none() {
        note(common, &format!("written: {}", out.display()));
    }
    Ok(if broke { Code::Partial } else { Code::Done })
}

/// What was asked for, as it can be asked for again.
fn command(args: &TablesArgs) -> String {
    let names = match args.names.as_slice() {
        [] => "--all".to_owned(),
        names => names.join(" "),
    };
    format!("vramlab tables {names} --record")
}

fn note(common: &Common, text: &str) {
    if !common.quiet {
        remark(&format!("vramlab: {text}"));
    }
}

/// Did driver or strategy end a run?
fn ended(made: &Made) -> bool {
    made.runs.iter().any(|run| run.outcome == "driver_error")
}

/// The file that holds what a format prints.
fn ending(format: Format) -> &'static str {
    match format {
        Format::Table => "txt",
        Format::Markdown => "md",
        Format::Csv => "csv",
        Format::Json => "json",
        Format::Latex => "tex",
    }
}

fn rendered(made: &Made, format: Format) -> Result<String, Failure> {
    Ok(match format {
        Format::Table => text::text(&made.page, false),
        Format::Markdown => text::text(&made.page, true),
        Format::Csv => data::csv(&made.page)?,
        Format::Json => to_json(&data::records(&made.page)),
        Format::Latex => latex::latex(&made.page),
    })
}
