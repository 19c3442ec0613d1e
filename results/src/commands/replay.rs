//! `vramlab replay`: recordings through strategies, or a check of our strategy against what they recorded.

use std::path::PathBuf;

use clap::Args;
use rayon::prelude::*;

use super::compare::{render, strategies};
use super::{print, remark, verify};
use crate::cli::{Common, DeviceArgs};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs;
use crate::job::{Input, Place, run_pair};
use crate::output::refuse_same_file;
use crate::per_op::PerOp;
use crate::progress::Progress;

/// Arguments.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Recordings of any known format, told by their content.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A strategy with its options; may be given again; `all` means every one. Without any: torch.caching with the recording's settings.
    #[arg(long, value_name = "SPEC", conflicts_with = "verify")]
    strategy: Vec<String>,
    #[command(flatten)]
    place: DeviceArgs,
    /// Writes one JSON line per op there: where it was placed, and the counts after it. One input and one strategy only.
    #[arg(long, value_name = "OUT", conflicts_with = "verify")]
    per_op: Option<PathBuf>,
    /// Does torch.caching place what the recording placed? Exit 1 if not.
    #[arg(long)]
    verify: bool,
    /// Whose rules a recording follows, if its format does not tell: 2.15, 2.9.
    #[arg(long, value_name = "V")]
    torch_version: Option<String>,
    /// Issue ops at their recorded times. Gaps in a recording already contain the recorded run's own driver stalls.
    #[arg(long)]
    keep_times: bool,
    /// Exit 5 if a request did not fit.
    #[arg(long)]
    fail_on_oom: bool,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or are no recording, bad specs, an output that cannot be written.
pub fn run(args: &ReplayArgs, common: &Common) -> Outcome {
    if args.verify {
        return verify::run(
            &args.files,
            args.torch_version.as_deref(),
            args.place.capacity,
            common,
        );
    }
    let opened = inputs::open_all(&args.files)?;
    let place = Place::for_recording(args.place.device.as_deref(), args.place.capacity)?;
    let mut pairs: Vec<(Input<'_>, vramlab_allocators::Spec)> = Vec::new();
    for file in &opened {
        let own = file.recorded_spec(args.torch_version.as_deref())?;
        let specs =
            if args.strategy.is_empty() { vec![own] } else { strategies(&args.strategy, &[])? };
        for spec in specs {
            pairs.extend(
                file.inputs_timed(args.keep_times).into_iter().map(|input| (input, spec.clone())),
            );
        }
    }
    if args.per_op.is_some() && pairs.len() != 1 {
        let message = format!(
            "--per-op writes one run, here are {}; give one file with one device, and one --strategy",
            pairs.len()
        );
        return Err(Failure::usage(message));
    }
    if let Some(path) = &args.per_op {
        refuse_same_file(&args.files[0], path)?;
    }
    let rows = if let (Some(path), [(input, spec)]) = (&args.per_op, pairs.as_slice()) {
        let mut lines = PerOp::create(path)?;
        let row = run_pair(input, spec, &place, Some(&mut lines))?;
        lines.finish()?;
        vec![row]
    } else {
        let progress = Progress::new(pairs.len() as u64, common.quiet);
        let rows = pairs
            .par_iter()
            .map(|(input, spec)| {
                let row = run_pair(input, spec, &place, None);
                progress.step();
                row
            })
            .collect::<Result<Vec<_>, _>>()?;
        progress.finish();
        rows
    };
    print(&render(&rows, common.format))?;
    for file in &opened {
        for warning in file.warnings().iter().filter(|_| !common.quiet) {
            remark(&format!("vramlab: {}: {warning}", file.name()));
        }
    }
    let failed = rows.iter().any(|r| r.outcome == "oom");
    Ok(if args.fail_on_oom && failed { Code::Oom } else { Code::Done })
}
