//! `vramlab-validate`: looks at the real CUDA driver.
//!
//! ```text
//! vramlab-validate [probe] [--format table|json]     what driver and devices are here, and what they can do
//! ```
//!
//! The driver is loaded when the program runs, so it builds and starts anywhere; where there is none it says so and exits 6.
//!
//! | file | holds |
//! |---|---|
//! | `cuda` | all that talks to the driver; the only `unsafe` |
//! | `probe` | what a probe found, as text and JSON; what to do if it found nothing |
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | done |
//! | 2 | usage |
//! | 6 | no CUDA driver, or no device that it can use |
//! | 7 | the output cannot be written |
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod cuda;
mod probe;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// No driver or no usable device.
const NO_CUDA_DEVICE: u8 = 6;
/// The output cannot be written.
const CANNOT_WRITE: u8 = 7;

/// Looks at the real CUDA driver for vramlab.
#[derive(Parser)]
#[command(name = "vramlab-validate", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// How to print.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Subcommand)]
enum Command {
    /// What driver and devices are here, and what they can do (the default).
    Probe,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// One object.
    Json,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Command::Probe = cli.command.unwrap_or(Command::Probe);
    let found = match cuda::probe() {
        Ok(found) => found,
        Err(trouble) => return say(&trouble.to_string(), NO_CUDA_DEVICE),
    };
    let text = match cli.format {
        Format::Table => found.to_string(),
        Format::Json => found.to_json(),
    };
    match writeln!(std::io::stdout().lock(), "{}", text.trim_end()) {
        // whoever reads has read enough
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            say(&format!("cannot write to standard output: {error}"), CANNOT_WRITE)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Says it on standard error, if that can be written, and exits with `code`.
fn say(message: &str, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "vramlab-validate: {message}");
    code.into()
}
