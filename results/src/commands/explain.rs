//! `vramlab explain`: an out-of-memory message, or a summary, in plain words.
//!
//! A text without a message ends with exit code 3: what was given is not what the command reads, and a script can tell this from an answer. The message says what
//! was looked for.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use vramlab_sim::trace::not_utf8;
use vramlab_workloads::readers::bytes;

use super::{print, remark};
use crate::cli::Common;
use crate::explain::{LOOKED_FOR, explain, page};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::file_name;
use crate::output::{Format, to_csv, to_json};

/// Bytes that tell an encoding.
const HEAD_BYTES: u64 = 4 << 10;

/// Arguments.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A log or a message, compressed or not; without it, or for -, standard input.
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read, or has no message in it.
pub fn run(args: &ExplainArgs, common: &Common) -> Outcome {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let name = file.map_or_else(|| "standard input".to_owned(), file_name);
    let bad = |error: &dyn std::fmt::Display| Failure::input(format!("{name}: {error}"));
    let mut input = match file {
        Some(file) => bytes::open(file).map_err(Failure::input)?,
        None => {
            if io::stdin().is_terminal() && !common.quiet {
                remark("vramlab: paste the message, then end it with Ctrl-D");
            }
            bytes::decompressed(io::stdin(), None).map_err(|e| bad(&e))?
        }
    };
    let head = input.head(HEAD_BYTES).map_err(|e| bad(&e))?;
    if let Some(what) = not_utf8(&head) {
        return Err(bad(&what));
    }
    let explanation = explain(&mut input as &mut dyn BufRead, &name).map_err(|e| bad(&e))?;
    if explanation.messages.is_empty() {
        let lines = explanation.lines;
        return Err(bad(&format!(
            "found no message about memory in {lines} lines; looked for those of {LOOKED_FOR}"
        )));
    }
    print(&match common.format {
        Format::Json => to_json(&explanation.messages),
        Format::Csv => to_csv(&explanation.messages),
        Format::Table | Format::Markdown | Format::Latex => {
            common.format.words(|markdown| page::page(&explanation, markdown))
        }
    })?;
    if explanation.beyond > 0 && !common.quiet {
        remark(&format!(
            "vramlab: {} further messages were counted and not explained",
            explanation.beyond
        ));
    }
    Ok(Code::Done)
}
