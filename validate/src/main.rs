//! `vramlab-validate`: strategies and workloads on the real CUDA driver.
//!
//! ```text
//! vramlab-validate [probe]                           what driver and devices are here, and what they can do
//! vramlab-validate replay [WORKLOAD…] [--trace FILE] workloads and recordings through strategies, on the driver
//! vramlab-validate compare …                         the same beside the simulated device, op by op
//! ```
//!
//! The driver is loaded when the program runs, so it builds and starts anywhere; where there is none it says so and exits 6.
//!
//! | file | holds |
//! |---|---|
//! | `cuda` | all that talks to the driver; the only `unsafe` |
//! | `probe` | what a probe found, as text and JSON; what to do if it found nothing |
//! | `machine` | the driver behind the seams of strategies and workloads |
//! | `inputs`, `options`, `run` | what is run, and how |
//! | `watch` | a run as two machines see it |
//! | `replay`, `compare` | the commands |
//! | `stop` | Ctrl-C |
//! | `failure`, `output` | how commands end, and print |
#![deny(unsafe_code)]

mod compare;
#[allow(unsafe_code)]
mod cuda;
mod failure;
mod inputs;
mod machine;
mod options;
mod output;
mod probe;
mod replay;
mod run;
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
    Probe,
    /// Runs workloads and recordings through strategies, on the driver
    Replay(RunArgs),
    /// Runs each pair on the simulated device and on the driver: placements, driver calls, bytes and failures must be equal; times are compared
    Compare(RunArgs),
}

fn main() -> ExitCode {
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
    match cli.command.as_ref().unwrap_or(&Command::Probe) {
        Command::Probe => {
            let found = cuda::probe()?;
            let text = match cli.format {
                Format::Json => found.to_json(),
                Format::Table | Format::Markdown => found.to_string(),
            };
            print(&text).map(|()| Code::Done)
        }
        Command::Replay(args) => replay::command(args, cli.format, stop),
        Command::Compare(args) => compare::command(args, cli.format, stop),
    }
}
