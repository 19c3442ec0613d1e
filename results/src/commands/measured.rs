//! `vramlab measured`: ours beside what real systems measured.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::print;
use crate::cli::Common;
use crate::failure::{Code, Outcome};
use crate::measured::recorded::{Run, runs};
use crate::measured::table;
use crate::output::{Format, to_csv, to_json};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Servers of language models: folders with runs of vLLM (NAME_requests.jsonl, NAME_meta.json, NAME_timeseries.csv).
    Llm,
}

/// Arguments.
#[derive(Debug, Args)]
pub struct MeasuredArgs {
    /// What was measured.
    #[arg(value_enum)]
    what: What,
    /// Folders with the measurements.
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A folder without measurements, or with bad ones.
pub fn run(args: &MeasuredArgs, common: &Common) -> Outcome {
    let What::Llm = args.what;
    let found: Vec<Vec<Run>> =
        args.folders.iter().map(|folder| runs(folder)).collect::<Result<_, _>>()?;
    let found: Vec<Run> = found.into_iter().flatten().collect();
    let lines = table::lines(&found)?;
    print(&match common.format {
        Format::Json => to_json(&lines),
        Format::Csv => to_csv(&lines),
        Format::Table | Format::Markdown => table::print(&lines, common.format == Format::Markdown),
    })?;
    Ok(Code::Done)
}
