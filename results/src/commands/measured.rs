//! `vramlab measured`: our models and servers beside what was measured of real runs, and where large buffers differ.

use std::path::{Path, PathBuf};

use clap::Args;
use vramlab_sim::units::Bytes;

use super::{print, remark};
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::Bad;
use crate::measured::{self, Beside, Buffers, Found};
use crate::output::{Format, Grid, mib, to_csv, to_json};
use crate::runs;
use crate::serving::{recorded, table};

/// Arguments.
#[derive(Debug, Args)]
pub struct MeasuredArgs {
    /// Set-ups beside recordings (NAME.json), or folders of them; or measured runs of servers: NAME_requests.jsonl with NAME_meta.json and NAME_timeseries.csv beside it, or folders of them.
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Compares the number of large buffers by phase and size, and shows where they differ.
    #[arg(long)]
    buffers: bool,
    /// With --buffers: the least size that is large.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", requires = "buffers")]
    least: Bytes,
    /// With --buffers: equal ones too.
    #[arg(long, requires = "buffers")]
    all: bool,
}

/// Runs the command.
///
/// # Errors
/// A path without set-ups that a workload expresses, or one that cannot be read.
pub fn run(args: &MeasuredArgs, common: &Common) -> Outcome {
    let (servers, paths): (Vec<&PathBuf>, Vec<&PathBuf>) =
        args.paths.iter().partition(|path| recorded::is_runs(path));
    if args.buffers && !servers.is_empty() {
        return Err(Failure::usage("--buffers is of set-ups; measured runs of servers have none"));
    }
    if !servers.is_empty() {
        if !paths.iter().all(|path| is_empty(path)) {
            let what = "measured runs of servers and set-ups of models make different tables; give them in two calls";
            return Err(Failure::usage(what));
        }
        served(&servers, common)?;
        let mut bad = Bad::default();
        for path in paths {
            bad.add(Failure::input(format!(
                "{}: found an empty folder, expected measured runs",
                path.display()
            )))?;
        }
        return runs::end(&bad, false, false, Code::Done);
    }
    let (mut setups, mut left_out, mut bad) = (Vec::new(), Vec::new(), Bad::default());
    for path in paths {
        match set_ups(path) {
            Ok(found) => {
                setups.extend(found.setups);
                left_out.extend(found.left_out);
            }
            Err(failure) => bad.add(failure)?,
        }
    }
    if setups.is_empty() {
        return runs::end(&bad, true, false, Code::Done);
    }
    for (name, why) in &left_out {
        remark(&format!("vramlab: left out: {name}: {why}"));
    }
    if args.buffers {
        let mut rows = Vec::new();
        for setup in &setups {
            rows.extend(setup.buffers(args.least.0)?);
        }
        let differ: Vec<Buffers> = match args.all {
            true => rows.clone(),
            false => rows.iter().filter(|row| row.ours != row.measured).cloned().collect(),
        };
        print(&match common.format {
            Format::Json => to_json(&differ),
            Format::Csv => to_csv(&differ),
            Format::Table | Format::Markdown | Format::Latex => {
                common.format.words(|markdown| buffers(&rows, &differ, markdown))
            }
        })?;
        return runs::end(&bad, false, false, Code::Done);
    }
    let rows: Vec<Beside> = setups.iter().map(measured::Measured::run).collect::<Result<_, _>>()?;
    print(&match common.format {
        Format::Json => to_json(&rows),
        Format::Csv => to_csv(&rows),
        Format::Table | Format::Markdown | Format::Latex => {
            common.format.words(|markdown| peaks(&rows, markdown))
        }
    })?;
    runs::end(&bad, false, false, Code::Done)
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Set-ups of a path, at least one.
fn set_ups(path: &Path) -> Result<Found, Failure> {
    let found = measured::read(path)?;
    if found.setups.is_empty() {
        let mut message = format!("{}: no set-up that a workload can express", path.display());
        for (name, why) in &found.left_out {
            message += &format!("\n{name}: {why}");
        }
        return Err(Failure::input(message));
    }
    Ok(found)
}

/// Measured runs of servers.
fn served(folders: &[&PathBuf], common: &Common) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for folder in folders {
        runs.extend(recorded::runs(folder)?);
    }
    let lines = table::lines(&runs)?;
    print(&match common.format {
        Format::Json => to_json(&lines),
        Format::Csv => to_csv(&lines),
        Format::Table | Format::Markdown | Format::Latex => {
            common.format.words(|markdown| table::print(&lines, markdown))
        }
    })
}

fn deviation(ours: u64, measured: Option<u64>) -> String {
    measured.filter(|measured| *measured > 0).map_or_else(
        || "-".to_owned(),
        |measured| format!("{:+.3} %", 100.0 * (ours as f64 / measured as f64 - 1.0)),
    )
}

fn peaks(rows: &[Beside], markdown: bool) -> String {
    let mut grid = Grid::new(&[
        "set-up<",
        "allocated MiB",
        "measured",
        "deviation",
        "reserved MiB",
        "measured",
        "deviation",
        "fails in<",
        "measured<",
    ]);
    for row in rows {
        let mut cells = vec![row.name.clone()];
        for (ours, measured) in [
            (row.peak_allocated, row.peak_allocated_measured),
            (row.peak_reserved, row.peak_reserved_measured),
        ] {
            let measured_text = measured.map_or_else(|| "-".to_owned(), mib);
            cells.extend([mib(ours), measured_text, deviation(ours, measured)]);
        }
        for phase in [&row.failed_in, &row.failed_in_measured] {
            cells.push(phase.clone().unwrap_or_else(|| "-".to_owned()));
        }
        grid.row(cells);
    }
    grid.print(markdown) + "\n"
}

fn buffers(rows: &[Buffers], differ: &[Buffers], markdown: bool) -> String {
    let mut grid = Grid::new(&[
        "set-up<",
        "phase<",
        "size B",
        "ours",
        "measured",
        "differ<",
        "ours are made at<",
    ]);
    for row in differ {
        let numbers = [row.size, row.ours, row.measured].map(|n| n.to_string());
        let phase = if row.phase.is_empty() { &row.our_phase } else { &row.phase };
        let mut cells = vec![row.name.clone(), phase.clone()];
        cells.extend(numbers);
        cells.extend([row.differ.clone(), row.sites.clone()]);
        grid.row(cells);
    }
    let sum = |of: fn(&Buffers) -> u64| rows.iter().map(of).sum::<u64>();
    let gib = |of: fn(&Buffers) -> u64| {
        rows.iter().map(|row| row.size as f64 * of(row) as f64).sum::<f64>() / f64::from(1 << 30)
    };
    let text = format!(
        "{} large buffers of ours ({:.1} GiB), {} measured ({:.1} GiB), in {} sizes and phases, of which {} differ\n",
        sum(|row| row.ours),
        gib(|row| row.ours),
        sum(|row| row.measured),
        gib(|row| row.measured),
        rows.len(),
        rows.iter().filter(|row| row.ours != row.measured).count()
    );
    if differ.is_empty() { text } else { format!("{}\n\n{text}", grid.print(markdown)) }
}
