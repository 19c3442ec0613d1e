//! `vramlab validate`: starts `vramlab-validate`, the program of its own that talks to the real CUDA driver, so that this one never does.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::failure::{Code, Failure, Outcome};

/// Name of the program.
const PROGRAM: &str = "vramlab-validate";

/// Arguments.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Its command and arguments: probe, replay, compare, measure, fit, report; --help has more.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Starts it, and ends as it does.
///
/// # Errors
/// When it is not there, or does not start.
pub fn run(args: &ValidateArgs) -> Outcome {
    start(&args.args)
}

/// The same, with arguments that another command made.
///
/// # Errors
/// When it is not there, or does not start.
pub fn start(args: &[OsString]) -> Outcome {
    let program = beside().unwrap_or_else(|| PROGRAM.into());
    let status = Command::new(&program).args(args).status().map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        Failure::usage(if missing {
            format!(
                "{PROGRAM} is neither beside vramlab nor on the path; build it with cargo build --release -p {PROGRAM}, or put it there with cargo install --path validate"
            )
        } else {
            format!("{} does not start: {error}", program.display())
        })
    })?;
    match status.code() {
        Some(0) => Ok(Code::Done),
        Some(1) => Ok(Code::Different),
        Some(2) => Ok(Code::Usage),
        Some(3) => Ok(Code::BadInput),
        Some(5) => Ok(Code::Oom),
        Some(6) => Ok(Code::NoDevice),
        Some(7) => Ok(Code::CannotWrite),
        // it was stopped, or ended by a signal
        _ => Ok(Code::Partial),
    }
}

/// The program in the folder of this one.
fn beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    Some(own.parent()?.join(name)).filter(|path| path.is_file())
}
