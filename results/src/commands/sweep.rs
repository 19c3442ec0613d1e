//! `vramlab sweep`: a grid of runs, or a shard of it.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::{print, remark};
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Format, Grid as Table, to_csv, to_json};
use crate::progress::Progress;
use crate::sweep::run::in_order;
use crate::sweep::sheet::About;
use crate::sweep::store::ended;
use crate::sweep::{Begun, Ended, Files, Grid, Plan, Recordings, Shard, Store};

/// Arguments.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// The grid: a TOML file, described below.
    #[arg(value_name = "GRID.toml")]
    grid: PathBuf,
    /// Runs part I of N only, from 0/N on: cells I, I+N, …. All parts together are the sweep; vramlab merge joins them.
    #[arg(long, value_name = "I/N", default_value_t = Shard::WHOLE, hide_default_value = true)]
    shard: Shard,
    /// Goes on with what an interrupted run of the same shard left; the result has the same bytes. A shard that is whole is left as it is.
    #[arg(long)]
    resume: bool,
    /// Folder of the shards; each is a Parquet file, shard-….parquet.
    #[arg(long, value_name = "DIR", default_value = "vramlab-sweep")]
    out: PathBuf,
    /// Checks the grid and says how many cells it has, without running any.
    #[arg(long)]
    count: bool,
}

/// What a shard gave.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    grid: String,
    shard: String,
    /// Cells of the whole sweep.
    cells: u64,
    /// Cells of the shard.
    own: u64,
    #[serde(flatten)]
    ended: Option<Ended>,
    /// Where the rows are.
    file: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A grid that is refused, a recording that is bad, a folder that cannot be written.
pub fn run(args: &SweepArgs, common: &Common) -> Outcome {
    let grid = Grid::read(&args.grid)?;
    grid.check_count(grid.cells())?;
    let files = Files::open(&grid)?;
    let recordings = Recordings::decode(&grid, &files, common.quiet)?;
    let plan = Plan::new(&grid, &recordings)?;
    let about = About {
        grid: plan.grid_id().to_owned(),
        vramlab: env!("CARGO_PKG_VERSION").to_owned(),
        cells: plan.cells(),
        shard: None,
    };
    let (file, ended) = match args.count {
        true => (None, None),
        false => {
            let (file, ended) = sweep(args, common, &plan, &about)?;
            (Some(file.display().to_string()), Some(ended))
        }
    };
    let own = args.shard.cells(about.cells);
    let shard = args.shard.to_string();
    print(&render(
        &Summary { grid: about.grid, shard, cells: about.cells, own, ended, file },
        common.format,
    ))?;
    let broke = ended.is_some_and(|ended| ended.driver_error > 0);
    Ok(if broke { Code::Partial } else { Code::Done })
}

fn sweep(
    args: &SweepArgs,
    common: &Common,
    plan: &Plan<'_, '_>,
    about: &About,
) -> Result<(PathBuf, Ended), Failure> {
    let shard = args.shard;
    let mut store = match Store::begin(&args.out, shard, about, args.resume)? {
        Begun::Open(store) => store,
        Begun::Whole(file) => {
            say(common, || format!("{} is whole already: nothing to run", file.display()));
            let ended = ended(&file)?;
            return Ok((file, ended));
        }
    };
    let (done, own) = (store.done(), shard.cells(about.cells));
    if done > 0 {
        say(common, || format!("{done} of {own} cells are there already"));
    }
    let progress = Progress::new(own, common.quiet);
    progress.skip(done);
    let began = Instant::now();
    let ran = in_order(
        done,
        own,
        |n| {
            let run = plan.run(shard.cell(n));
            progress.step();
            run
        },
        |n, run| store.put(shard.cell(n), run),
    );
    progress.finish();
    let seconds = began.elapsed().as_secs_f64();
    if ran.is_err() {
        store.keep();
    }
    ran?;
    let (file, ended) = store.finish()?;
    say(common, || {
        let rate = (own - done) as f64 / seconds.max(1e-9);
        format!("{} cells in {seconds:.1} s, {rate:.0} a second", own - done)
    });
    Ok((file, ended))
}

fn say(common: &Common, text: impl FnOnce() -> String) {
    if !common.quiet {
        remark(&format!("vramlab: {}", text()));
    }
}

fn render(summary: &Summary, format: Format) -> String {
    let rows = std::slice::from_ref(summary);
    match format {
        Format::Json => to_json(rows),
        Format::Csv => to_csv(rows),
        Format::Table | Format::Markdown | Format::Latex => {
            let Summary { grid, shard, cells, own, ended, file } = summary;
            let mut table = Table::new(&[
                "grid<",
                "cells",
                "shard<",
                "of it",
                "ok",
                "oom",
                "skipped",
                "driver error",
                "file<",
            ]);
            let count =
                |of: fn(&Ended) -> u64| ended.map_or("-".to_owned(), |e| of(&e).to_string());
            table.row(vec![
                grid.clone(),
                cells.to_string(),
                shard.clone(),
                own.to_string(),
                count(|e| e.ok),
                count(|e| e.oom),
                count(|e| e.skipped),
                count(|e| e.driver_error),
                file.clone().unwrap_or_else(|| "-".to_owned()),
            ]);
            format.words(|markdown| table.print(markdown) + "\n")
        }
    }
}
