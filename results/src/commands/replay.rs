//! `vramlab replay`: recordings through strategies, or a check of our strategy against what they recorded.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use vramlab_allocators::Spec;

use super::compare::{render, strategies};
use super::{print, remark, validate, verify};
use crate::cli::{Common, DeviceArgs};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::{self, Opening};
use crate::job::{Input, Place, run_pair};
use crate::output::{Format, refuse_same_file};
use crate::per_op::PerOp;
use crate::room;
use crate::row::Row;
use crate::runs::{self, Pair};

/// Arguments.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Recordings of any known format, told by their content; with --plugin also a workload's name.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A strategy with its options; may be given again; `all` means every one. Without any: torch.caching with the recording's settings.
    #[arg(long, value_name = "SPEC", conflicts_with = "verify")]
    strategy: Vec<String>,
    /// An allocator library for PyTorch (void* f(ssize_t, int, cudaStream_t)) in place of a strategy, driven without a GPU: starts vramlab-validate.
    #[arg(long, value_name = "LIB.so", conflicts_with_all = ["strategy", "verify", "per_op", "min_capacity", "keep_times", "marks", "fail_on_oom", "torch_version"])]
    plugin: Option<PathBuf>,
    /// The library's functions, if they have no usual names: the one that gives memory, and the one that takes it back.
    #[arg(
        long,
        value_name = "ALLOC,FREE",
        requires = "plugin",
        value_delimiter = ',',
        num_args = 1
    )]
    plugin_fns: Vec<String>,
    #[command(flatten)]
    place: DeviceArgs,
    /// Also searches for the least capacity on which each run ends without a failing request (some twenty runs each).
    #[arg(long, conflicts_with_all = ["per_op", "verify"])]
    min_capacity: bool,
    /// Writes one JSON line per op there: where it was placed, and the counts after it. One input and one strategy only.
    #[arg(long, value_name = "OUT", conflicts_with = "verify")]
    per_op: Option<PathBuf>,
    /// Does torch.caching place what the recording placed? Exit 1 if not.
    #[arg(long, conflicts_with_all = ["device", "keep_times", "fail_on_oom", "marks"])]
    verify: bool,
    /// Whose rules a recording follows, if its format does not tell: 2.15, 2.9.
    #[arg(long, value_name = "V")]
    torch_version: Option<String>,
    /// Issue ops at their recorded times. Gaps in a recording already contain the recorded run's own driver stalls.
    #[arg(long)]
    keep_times: bool,
    /// Also shows the figures at each mark of the input (JSON always has them).
    #[arg(long)]
    marks: bool,
    /// Exit 5 if a request did not fit.
    #[arg(long)]
    fail_on_oom: bool,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or are no recording, bad specs, an output that cannot be written.
pub fn run(args: &ReplayArgs, common: &Common) -> Outcome {
    if let Some(library) = &args.plugin {
        return validate::start(&plugin_args(args, library, common)?);
    }
    if args.verify {
        return verify::run(
            &args.files,
            args.torch_version.as_deref(),
            args.place.capacity,
            common,
        );
    }
    let strategies = strategies(&args.strategy, &[])?;
    let Opening { opened, mut bad } = inputs::open_each(&args.files)?;
    let mut runs: Vec<(Input<'_>, Place, Vec<Spec>)> = Vec::new();
    for file in &opened {
        let own = match file.recorded_spec(args.torch_version.as_deref()) {
            Ok(own) => own,
            Err(failure) => {
                bad.add(failure)?;
                continue;
            }
        };
        let specs = if strategies.is_empty() { vec![own] } else { strategies.clone() };
        let inputs = file.inputs_timed(args.keep_times);
        for (input, recorded) in inputs.into_iter().zip(file.recorded()) {
            match room::place(&input, recorded, &args.place, common.quiet) {
                Ok(place) => {
                    let place = Place { min_capacity: args.min_capacity, ..place };
                    runs.push((input, place, specs.clone()));
                }
                Err(failure) => bad.add(failure)?,
            }
        }
        if let Some(why) = file.keep_times_is_idle().filter(|_| args.keep_times && !common.quiet) {
            remark(&format!("vramlab: {}: --keep-times changes nothing: {why}", file.name()));
        }
    }
    let pairs: Vec<Pair<'_, '_>> = runs
        .iter()
        .flat_map(|(input, place, specs)| specs.iter().map(move |spec| (input, spec, place)))
        .collect();
    let rows = match &args.per_op {
        Some(_) if pairs.is_empty() => Vec::new(),
        Some(path) => {
            let [(input, spec, place)] = pairs.as_slice() else {
                return Err(Failure::usage(format!(
                    "--per-op writes one run, here are {}; give one file with one device, and one --strategy",
                    pairs.len()
                )));
            };
            args.files.iter().try_for_each(|file| refuse_same_file(file, path))?;
            let mut lines = PerOp::create(path)?;
            match run_pair(input, spec, place, Some(&mut lines)) {
                Ok(row) => {
                    lines.finish()?;
                    vec![row]
                }
                Err(failure) => {
                    bad.add(failure)?;
                    Vec::new()
                }
            }
        }
        None => runs::run_all(&pairs, &mut bad, common.quiet)?,
    };
    print(&render(&rows, common.format, args.marks))?;
    for file in opened.iter().filter(|file| file.device_numbers().is_empty() && !common.quiet) {
        let name = file.name();
        remark(&format!("vramlab: {name}: no history of allocations in it: nothing to replay"));
    }
    opened.iter().for_each(|file| file.remark_warnings(common));
    let failed = args.fail_on_oom && rows.iter().any(|r| r.outcome == "oom");
    let code = if failed { Code::Oom } else { Code::Done };
    // A recording without a history gives no row, and is no bad input.
    let nothing = rows.is_empty() && opened.iter().all(|file| !file.device_numbers().is_empty());
    runs::end(&bad, nothing, rows.iter().any(Row::broke), code)
}

/// The same as arguments of vramlab-validate.
fn plugin_args(
    args: &ReplayArgs,
    library: &Path,
    common: &Common,
) -> Result<Vec<OsString>, Failure> {
    let mut all: Vec<OsString> = vec!["replay".into(), "--plugin".into(), library.into()];
    let mut option = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        all.extend([name.into(), value.as_ref().to_owned()]);
    };
    match args.plugin_fns.as_slice() {
        [] => {}
        [alloc, free] => {
            option("--alloc-fn", alloc);
            option("--free-fn", free);
        }
        other => {
            return Err(Failure::usage(format!(
                "--plugin-fns {}: found {} names, expected two, ALLOC,FREE",
                other.join(","),
                other.len()
            )));
        }
    }
    if let Some(device) = &args.place.device {
        option("--device", device);
    }
    if let Some(capacity) = args.place.capacity {
        option("--limit", &capacity.0.to_string());
    }
    match common.format {
        Format::Table => {}
        Format::Json => option("--format", &"json"),
        Format::Markdown => option("--format", &"markdown"),
        other => {
            return Err(Failure::usage(format!(
                "--format {other:?} is not to be had with --plugin, which prints table, json or markdown"
            )));
        }
    }
    for file in &args.files {
        if file.exists() {
            option("--trace", file);
        }
    }
    all.extend(args.files.iter().filter(|file| !file.exists()).map(|name| name.into()));
    Ok(all)
}
