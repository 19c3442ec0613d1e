//! One file a command.

pub mod advise;
pub mod compare;
pub mod convert;
pub mod inspect;
pub mod list;
pub mod replay;
pub mod verify;

use std::io::Write;

use crate::cli::definition;
use crate::failure::{Code, Outcome};

/// Prints a completion script.
///
/// # Errors
/// None today; the type is that of every command.
pub fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition(), "vramlab", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(Code::Done)
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
