//! The command line, and how it ends.

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use vramlab_allocators::Spec;
use vramlab_sim::units::Bytes;

use crate::commands;
use crate::failure::{Failure, Outcome};
use crate::output::Format;

/// Why does GPU memory run out, and which allocator or setting helps? Replays recordings and synthetic workloads through
/// interchangeable allocator strategies, in simulation.
///
/// Without a command: the default comparison on built-in inputs.
#[derive(Debug, Parser)]
#[command(name = "vramlab", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    common: Common,
    /// Where the default comparison writes its results [default: vramlab-out].
    #[arg(long, value_name = "DIR")]
    out: Option<std::path::PathBuf>,
}

/// Where the default comparison writes, if nobody says.
const DEFAULT_OUT: &str = "vramlab-out";

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// How results are printed on standard output.
    #[arg(long, value_enum, default_value_t, global = true)]
    pub format: Format,
    /// No progress and no remarks on standard error.
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// Device options of commands that run something.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    /// Device and cost table: one of `vramlab list devices`, or the path of a TOML file of that form. Without it recordings run on one without a context, workloads on a100-80gb.
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Bytes of the device, such as 16GiB, instead of the device's own.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub capacity: Option<Bytes>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What there is: strategies, workloads, devices, formats, passes
    List(commands::list::ListArgs),
    /// Runs workloads through strategies and prints them side by side
    Compare(commands::compare::CompareArgs),
    /// Replays recordings of any known format, or checks our strategy against what they recorded
    Replay(commands::replay::ReplayArgs),
    /// What is in a recording: peaks and what held them, growth, gaps, segments
    Inspect(commands::inspect::InspectArgs),
    /// Which settings help on this recording, and which do nothing
    Advise(commands::advise::AdviseArgs),
    /// Our models and servers beside what was measured of real runs of the same set-ups
    Measured(commands::measured::MeasuredArgs),
    /// Starts vramlab-validate: the same on the real CUDA driver, measurements, and the comparison with simulation
    #[command(disable_help_flag = true)]
    Validate {
        /// Its arguments; --help lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<std::ffi::OsString>,
    },
    /// Writes a recording as our JSON Lines
    Convert(commands::convert::ConvertArgs),
    /// Prints a completion script for a shell
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Parses a strategy spec for clap.
pub fn parse_spec(text: &str) -> Result<Spec, String> {
    text.parse().map_err(|e: vramlab_allocators::OptionError| e.to_string())
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(code) => code.into(),
        Err(failure) => {
            commands::remark(&format!("vramlab: {failure}"));
            failure.code.into()
        }
    }
}

fn dispatch(cli: Cli) -> Outcome {
    let common = &cli.common;
    if let (Some(_), Some(out)) = (&cli.command, &cli.out) {
        return Err(Failure::usage(format!(
            "--out {} stands before the command, where it means the default comparison; give it behind the command, if that has it",
            out.display()
        )));
    }
    match cli.command {
        None => {
            let out = cli.out.unwrap_or_else(|| DEFAULT_OUT.into());
            commands::compare::default(common, &out)
        }
        Some(Command::List(args)) => commands::list::run(&args, common),
        Some(Command::Compare(args)) => commands::compare::run(&args, common),
        Some(Command::Replay(args)) => commands::replay::run(&args, common),
        Some(Command::Inspect(args)) => commands::inspect::run(&args, common),
        Some(Command::Advise(args)) => commands::advise::run(&args, common),
        Some(Command::Measured(args)) => commands::measured::run(&args, common),
        Some(Command::Validate { args }) => commands::validate::run(args),
        Some(Command::Convert(args)) => commands::convert::run(&args, common),
        Some(Command::Completions { shell }) => commands::completions(shell),
    }
}

/// The command line's definition, for completions.
pub fn definition() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
