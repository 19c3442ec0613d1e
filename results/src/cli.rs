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
#[command(name = "vramlab", version, max_term_width = 110, after_long_help = include_str!("questions.md"), after_help = "vramlab --help says which command answers which question")]
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
    #[command(after_long_help = include_str!("commands/advise/record.md"))]
    Advise(commands::advise::AdviseArgs),
    /// One page for a browser: timeline of buffers, map of segments, what helps
    Report(commands::report::ReportArgs),
    /// A picture of a run for print (SVG): memory over time, map of addresses, segments, sizes, latencies, capacity, bars
    Figure(commands::figure::FigureArgs),
    /// Will it fit: what a model or recording needs of devices, by allocator, and the largest batch
    Fit(commands::fit::FitArgs),
    /// An out-of-memory message, or a memory summary, in plain words: what happened, and what to try
    Explain(commands::explain::ExplainArgs),
    /// Our models and servers beside what was measured of real runs of the same set-ups
    Measured(commands::measured::MeasuredArgs),
    /// Runs things on the real CUDA driver, and beside it: starts vramlab-validate
    #[command(disable_help_flag = true)]
    Validate(commands::validate::ValidateArgs),
    /// Tables of published claims beside our figures, from experiment files
    Tables(commands::tables::TablesArgs),
    /// Runs every combination of the values in a grid, on all cores, or a shard of them
    #[command(after_long_help = include_str!("sweep/grid.md"))]
    Sweep(commands::sweep::SweepArgs),
    /// Joins the shards of a sweep, and checks that each cell is there once
    Merge(commands::merge::MergeArgs),
    /// What criterion measured (target/criterion), as tables and pictures
    BenchSummary(commands::bench_summary::BenchArgs),
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
        Some(Command::Report(args)) => commands::report::run(&args, common),
        Some(Command::Figure(args)) => commands::figure::run(&args, common),
        Some(Command::Fit(args)) => commands::fit::run(&args, common),
        Some(Command::Explain(args)) => commands::explain::run(&args, common),
        Some(Command::Measured(args)) => commands::measured::run(&args, common),
        Some(Command::Validate(args)) => commands::validate::run(&args),
        Some(Command::Tables(args)) => commands::tables::run(&args, common),
        Some(Command::Sweep(args)) => commands::sweep::run(&args, common),
        Some(Command::Merge(args)) => commands::merge::run(&args, common),
        Some(Command::BenchSummary(args)) => commands::bench_summary::run(&args, common),
        Some(Command::Convert(args)) => commands::convert::run(&args, common),
        Some(Command::Completions { shell }) => commands::completions(shell),
    }
}

/// The command line's definition, for completions.
pub fn definition() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}
