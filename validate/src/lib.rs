//! `vramlab-validate`: strategies and workloads on the real CUDA driver.
//!
//! ```text
//! vramlab-validate [probe]                           what driver and devices are here, and what they can do
//! vramlab-validate replay [WORKLOAD…] [--trace FILE] workloads and recordings through strategies, on the driver
//! vramlab-validate replay --plugin LIB.so WORKLOAD     through any allocator library for PyTorch, without a GPU
//! vramlab-validate compare …                         the same beside the simulated device, op by op
//! vramlab-validate measure -o m.csv                  what each call costs, by size and state
//! vramlab-validate fit m.csv -o device.toml          a device's file with those prices
//! vramlab-validate report DIR                        one page of all that lies in a folder
//! ```
//!
//! The driver is loaded when the program runs, so it builds and starts anywhere; where there is none it says so and exits 6.
//!
//! | file | holds |
//! |---|---|
//! | `cuda` | all that talks to the driver; with `plugin`, the only `unsafe` |
//! | `probe` | what a probe found, as text and JSON; what to do if it found nothing |
//! | `machine` | the driver behind the seams of strategies and workloads |
//! | `inputs`, `options`, `run` | what is run, and how |
//! | `watch` | a run as two machines see it |
//! | `replay`, `compare`, `measure`, `fit`, `report` | the commands |
//! | `plugin` | allocator libraries for PyTorch, over stand-ins for driver and runtime |
//! | `stop` | Ctrl-C |
//! | [`shared`] | the machine for a process that is not ours: what `libvramlab_torch.so` stands on |
//! | `failure`, `output` | how commands end, and print |
#![deny(unsafe_code)]

mod compare;
#[allow(unsafe_code)]
mod cuda;
mod failure;
mod fit;
mod inputs;
mod machine;
mod measure;
mod options;
mod output;
#[allow(unsafe_code)]
mod plugin;
mod probe;
mod replay;
mod report;
mod run;
pub mod shared;
mod stop;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::{Code, Outcome};
use options::RunArgs;
use output::{Format, print, remark};
use stop::Stop;

/// Strategies and workloads on the real CUDA driver, and how the simulation compares.
#[derive(Parser)]
#[command(name = "vramlab-validate", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// How to print.
    #[arg(long, global = true, value_enum, default_value_t)]
    format: Format,
}

#[derive(Subcommand)]
enum Command {
    /// What driver and devices are here, and what they can do (the default)
    Probe {
        /// Also takes a few MiB of each device for a moment, to see how ranges are aligned, shared and placed.
        #[arg(long)]
        layout: bool,
    },
    /// Runs workloads and recordings through strategies, on the driver
    Replay(replay::ReplayArgs),
    /// Runs each pair on the simulated device and on the driver: placements, driver calls, bytes and failures must be equal; times are compared
    Compare(RunArgs),
    /// Measures what each call costs, by size and state, and writes it as CSV
    Measure(measure::command::MeasureArgs),
    /// Fits a device's file with a cost table to measurements, and says how good it is
    Fit(fit::FitArgs),
    /// One page of what lies in a folder: probe, measurements, fit, comparisons
    Report(report::ReportArgs),
}

/// The program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let stop = Stop::listen();
    match dispatch(&cli, &stop) {
        Ok(code) => code.into(),
        Err(failure) => {
            remark(&failure.message);
            failure.code.into()
        }
    }
}

fn dispatch(cli: &Cli, stop: &Stop) -> Outcome {
    match cli.command.as_ref().unwrap_or(&Command::Probe { layout: false }) {
        Command::Probe { layout } => {
            let mut found = cuda::probe()?;
            if *layout {
                found.look()?;
            }
            let text = match cli.format {
                Format::Json => found.to_json(),
                Format::Table | Format::Markdown => found.to_string(),
            };
            print(&text).map(|()| Code::Done)
        }
        Command::Replay(args) => replay::command(args, cli.format, stop),
        Command::Compare(args) => compare::command(args, cli.format, stop),
        Command::Measure(args) => measure::command::run(args, cli.format, stop),
        Command::Fit(args) => fit::command(args, cli.format),
        Command::Report(args) => report::command(args),
    }
}
