//! One file a command.

pub mod advise;
pub mod bench_summary;
pub mod compare;
pub mod convert;
pub mod explain;
pub mod figure;
pub mod fit;
pub mod inspect;
pub mod list;
pub mod measured;
pub mod merge;
pub mod passes;
pub mod program;
pub mod replay;
pub mod report;
pub mod sweep;
pub mod tables;
pub mod validate;
pub mod verify;

use std::io::Write;
use std::path::Path;

use vramlab_workloads::registry::{WORKLOADS, Workload};

use crate::cli::definition;
use crate::failure::{Code, Failure, Outcome};
use crate::output::acts;

/// Prints a completion script.
///
/// # Errors
/// When standard output cannot be written.
pub fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition(), "vramlab", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Done)
}

/// The model or workload of this name, where no file has it.
fn model(path: &Path) -> Option<&'static Workload> {
    let name = path.to_str().filter(|_| !path.exists())?;
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// Writes to standard output; a reader that went away (`| head`) is no error.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure {
            code: Code::CannotWrite,
            message: format!("cannot write to standard output: {error}"),
        }),
        _ => Ok(()),
    }
}

/// Says something on standard error; where that cannot be written there is nobody to tell. A file's name or text in it moves no cursor.
pub fn remark(text: &str) {
    let shown = |c: char| if acts(c) && c != '\n' { '·' } else { c };
    let text: String = text.chars().map(shown).collect();
    let _ = writeln!(std::io::stderr(), "{text}");
}
