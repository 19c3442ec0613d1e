//! `vramlab convert`: a recording as our JSON Lines.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use vramlab_sim::source::{Answered, Step};
use vramlab_sim::trace::{Header, JsonlWriter};
use vramlab_sim::units::Nanos;

use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::inputs;
use crate::output::{check_ending, refuse_same_file, write_stream};

/// Arguments.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// A recording of any known format.
    #[arg(value_name = "IN")]
    from: PathBuf,
    /// The JSON Lines file; compressed if its name ends in .gz or .zst.
    #[arg(value_name = "OUT")]
    to: PathBuf,
    /// Which device's history, if the recording has several.
    #[arg(long, value_name = "N")]
    device: Option<u16>,
    /// Keep the recorded times.
    #[arg(long)]
    keep_times: bool,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or is no recording, several histories without `--device`, an output that cannot be written.
pub fn run(args: &ConvertArgs, common: &Common) -> Outcome {
    check_ending(&args.to)?;
    refuse_same_file(&args.from, &args.to)?;
    let opened = inputs::open(&args.from)?;
    let numbers = opened.device_numbers();
    let chosen = match (args.device, numbers.as_slice()) {
        (None, [_]) => 0,
        (None, []) => return Err(Failure::input(format!("{}: no history in it", opened.name()))),
        (None, several) => {
            return Err(Failure::usage(format!(
                "{} has the histories of devices {several:?}; choose one with --device",
                opened.name()
            )));
        }
        (Some(wanted), known) => known.iter().position(|n| *n == wanted).ok_or_else(|| {
            Failure::usage(format!(
                "{} has no history of device {wanted}; it has those of {known:?}",
                opened.name()
            ))
        })?,
    };
    let input = opened.inputs_timed(args.keep_times).swap_remove(chosen);
    if let Some(why) = opened.keep_times_is_idle().filter(|_| args.keep_times && !common.quiet) {
        super::remark(&format!("vramlab: {}: --keep-times changes nothing: {why}", opened.name()));
    }
    let (recorded, made) = (opened.recorded()[chosen], opened.made());
    let mut ops = 0_u64;
    write_stream(&args.to, |out: &mut dyn Write| {
        let mut source = (input.make)()?;
        let fail = |e: std::io::Error| Failure::write(&args.to, &e);
        let header = Header {
            name: &input.name,
            capacity: recorded.capacity,
            peak_reserved: recorded.peak_reserved,
            torch_version: made.torch_version.as_deref(),
            conf: Some(made.conf.as_str()).filter(|conf| !conf.is_empty()),
        };
        let mut writer = JsonlWriter::with_header(out, &header).map_err(fail)?;
        loop {
            let step = source.next(Nanos(0), Answered::Done).map_err(Failure::input)?;
            writer.step(&step, &*source).map_err(fail)?;
            match step {
                Step::Op(op) => ops += u64::from(!op.is_setting()),
                Step::WaitUntil(_) => {}
                Step::End => return Ok(()),
            }
        }
    })?;
    if !common.quiet {
        super::remark(&format!("{ops} ops written to {}", args.to.display()));
    }
    Ok(Code::Done)
}
