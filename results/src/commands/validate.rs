//! `vramlab validate`: starts `vramlab-validate`, which alone talks to CUDA's driver.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::{Code, Failure, Outcome};

/// Its file.
const PROGRAM: &str = if cfg!(windows) { "vramlab-validate.exe" } else { "vramlab-validate" };

/// Beside this program, or else whatever the path has of that name.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}

/// Runs it with these arguments, and ends as it ends.
///
/// # Errors
/// When there is no such program, or something ended it.
pub fn run(args: Vec<OsString>) -> Outcome {
    let program = program();
    let status = Command::new(&program).args(args).status().map_err(|error| {
        Failure::usage(format!(
            "{} cannot be started: {error}; cargo build -p vramlab-validate (or cargo install --path validate) makes it",
            program.display()
        ))
    })?;
    let Some(number) = status.code() else {
        return Err(Failure {
            code: Code::Partial,
            message: format!(
                "{} was ended by a signal ({status}); its results are not complete",
                program.display()
            ),
        });
    };
    let codes = [
        Code::Done,
        Code::Different,
        Code::Usage,
        Code::BadInput,
        Code::Partial,
        Code::NoDevice,
        Code::CannotWrite,
    ];
    Ok(codes.into_iter().find(|code| *code as i32 == number).unwrap_or(Code::Partial))
}
