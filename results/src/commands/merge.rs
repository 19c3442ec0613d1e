//! `vramlab merge`: the shards of a sweep, joined and checked.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::print;
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Format, Grid as Table, refuse_same_file, to_csv, to_json};
use crate::sweep::{Ended, Shards};

/// Arguments.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Folders with the shards that vramlab sweep wrote, or the shards themselves.
    #[arg(value_name = "DIR", required = true)]
    shards: Vec<PathBuf>,
    /// The joined frame: a name that ends in .parquet. The bytes are the same however many shards there were.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// What was joined.
#[derive(Debug, Serialize)]
struct Summary {
    grid: String,
    shards: usize,
    cells: u64,
    #[serde(flatten)]
    ended: Ended,
    file: String,
}

/// Runs the command.
///
/// # Errors
/// Shards that are missing, double, cut off, of another grid or version; a file that cannot be written.
pub fn run(args: &MergeArgs, common: &Common) -> Outcome {
    if args.out.extension().is_none_or(|ending| ending != "parquet") {
        return Err(Failure::usage(format!(
            "--out {}: expected a name that ends in .parquet",
            args.out.display()
        )));
    }
    let shards = Shards::find(&args.shards)?;
    shards.paths().try_for_each(|path| refuse_same_file(path, &args.out))?;
    let ended = shards.write(&args.out).map_err(|failure| failure.with_option("--out"))?;
    let about = shards.about();
    print(&render(
        &Summary {
            grid: about.grid.clone(),
            shards: shards.count(),
            cells: about.cells,
            ended,
            file: args.out.display().to_string(),
        },
        common.format,
    ))?;
    Ok(Code::Done)
}

fn render(summary: &Summary, format: Format) -> String {
    let rows = std::slice::from_ref(summary);
    match format {
        Format::Json => to_json(rows),
        Format::Csv => to_csv(rows),
        Format::Table | Format::Markdown | Format::Latex => {
            let Summary { grid, shards, cells, ended, file } = summary;
            let mut table = Table::new(&[
                "grid<",
                "cells",
                "shards",
                "ok",
                "oom",
                "skipped",
                "driver error",
                "file<",
            ]);
            let Ended { ok, oom, skipped, driver_error } = ended;
            let counts = [ok, oom, skipped, driver_error].map(u64::to_string);
            let mut cells = vec![grid.clone(), cells.to_string(), shards.to_string()];
            cells.extend(counts);
            cells.push(file.clone());
            table.row(cells);
            format.words(|markdown| table.print(markdown) + "\n")
        }
    }
}
