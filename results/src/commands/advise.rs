//! `vramlab advise`: which settings help on this recording, which do nothing, and whether any helps at all. Every line is a replay.

mod text;

use std::path::PathBuf;

use clap::Args;
use rayon::prelude::*;
use serde::Serialize;
use vramlab_allocators::{Options, Spec};

use super::print;
use crate::cli::{Common, DeviceArgs};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs;
use crate::job::{Input, Place, run_pair};
use crate::output::{Format, to_csv, to_json};
use crate::progress::Progress;
use crate::room;
use crate::row::Row;

/// A saving of peak reserved below this share is not called help.
const HELPS_FROM: f64 = 0.01;

/// Settings that are tried, as PyTorch's own settings text.
const SETTINGS: [&str; 35] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:20",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "max_split_size_mb:1024",
    "max_split_size_mb:2048",
    "max_split_size_mb:4096",
    "max_split_size_mb:64,max_non_split_rounding_mb:64",
    "max_split_size_mb:256,max_non_split_rounding_mb:256",
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:2",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "roundup_power2_divisions:32",
    "roundup_power2_divisions:[64:4,256:8,>:16]",
    "garbage_collection_threshold:0.8",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.95",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.95",
    "garbage_collection_threshold:0.9,per_process_memory_fraction:0.99",
    "large_segment_size_mb:32",
    "large_segment_size_mb:64",
    "large_segment_size_mb:128",
    "expandable_segments:True,roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,large_segment_size_mb:32",
    "expandable_segments:True,max_split_size_mb:128",
    "max_split_size_mb:128,roundup_power2_divisions:4",
    "max_split_size_mb:256,garbage_collection_threshold:0.8,per_process_memory_fraction:0.95",
    "max_split_size_mb:64,roundup_power2_divisions:8",
];

/// Arguments.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// A recording of any known format.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: DeviceArgs,
    /// Whose rules and options: 2.15, 2.9. Without it, those of the recording.
    #[arg(long, value_name = "V")]
    torch_version: Option<String>,
}

/// One setting, tried.
#[derive(Debug, Serialize)]
struct Tried {
    rank: usize,
    /// The settings text, empty for the defaults.
    conf: String,
    /// `default`, `recorded`, `helps`, `not enough` (fewer requests fail, but some), `costs`, `does nothing here`, `no help`,
    /// `not in this version`, `driver_error`.
    verdict: &'static str,
    /// Peak reserved against the defaults, in bytes (negative: less), if it ran.
    saved: Option<i64>,
    #[serde(flatten)]
    row: Row,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or is no recording, a capacity that makes no sense.
pub fn run(args: &AdviseArgs, common: &Common) -> Outcome {
    let opened = inputs::open(&args.file)?;
    let recorded = opened.recorded_spec(args.torch_version.as_deref())?;
    let version = recorded.strategy().options.get("version").map(str::to_owned);
    let own_conf = recorded.strategy().options.get("conf").unwrap_or_default().to_owned();
    let mut all = Vec::new();
    let inputs = opened.inputs();
    let several = inputs.len() > 1;
    for (input, recorded) in inputs.iter().zip(opened.recorded()) {
        let place = room::place(input, recorded, &args.place, common.quiet)?;
        let tried = try_all(input, &place, version.as_deref(), &own_conf, common)?;
        if !matches!(common.format, Format::Json | Format::Csv) {
            let table = text::table(input, &place, &tried, common.format == Format::Markdown);
            let subject = if several { format!("{}: ", input.name) } else { String::new() };
            print(&format!("{table}{subject}{}\n", text::answer(&tried, &place)))?;
        }
        all.extend(tried);
    }
    if all.is_empty() {
        return Err(Failure::input(format!(
            "{}: no requests in it, so there is nothing to advise on",
            opened.name()
        )));
    }
    match common.format {
        Format::Json => print(&to_json(&all))?,
        Format::Csv => print(&to_csv(&all))?,
        Format::Table | Format::Markdown => {}
    }
    opened.remark_warnings(common);
    Ok(if all.iter().any(|tried| tried.row.broke()) { Code::Partial } else { Code::Done })
}

fn spec_of(conf: &str, version: Option<&str>) -> Spec {
    let version = version.map(|v| ("version", v));
    let conf = Some(("conf", conf)).filter(|(_, c)| !c.is_empty());
    Spec::new("torch.caching", Options::from_pairs(version.into_iter().chain(conf)))
}

fn try_all(
    input: &Input<'_>,
    place: &Place,
    version: Option<&str>,
    own: &str,
    common: &Common,
) -> Result<Vec<Tried>, Failure> {
    let mut confs: Vec<&str> = SETTINGS.to_vec();
    if !confs.contains(&own) {
        confs.push(own);
    }
    let progress = Progress::new(confs.len() as u64, common.quiet);
    let rows: Vec<Row> = confs
        .par_iter()
        .map(|conf| {
            let spec = spec_of(conf, version);
            let row = match vramlab_allocators::build(&spec) {
                Ok(_) => {
                    run_pair(input, &spec, place, None).map(|row| Row { marks: Vec::new(), ..row })
                }
                Err(refused) => {
                    Ok(Row::new(&input.name, &spec.to_string()).skipped(refused.to_string()))
                }
            };
            progress.step();
            row
        })
        .collect::<Result<_, _>>()?;
    progress.finish();
    let default = rows[0].clone();
    let mut tried: Vec<Tried> = confs
        .iter()
        .zip(rows)
        .map(|(conf, row)| Tried {
            rank: 0,
            conf: (*conf).to_owned(),
            verdict: verdict(conf, own, &row, &default),
            saved: row.ran().then(|| row.peak_reserved as i64 - default.peak_reserved as i64),
            row,
        })
        .collect();
    let keys = |t: &Tried| {
        (
            !t.row.ran(),
            t.row.failed(),
            t.row.peak_reserved,
            t.row.memory_calls(),
            t.row.stall_total_ns,
            t.conf.len(),
        )
    };
    tried.sort_by_key(keys);
    for (index, one) in tried.iter_mut().enumerate() {
        one.rank = index + 1;
    }
    Ok(tried)
}

fn verdict(conf: &str, own: &str, row: &Row, default: &Row) -> &'static str {
    let same = |a: &Row, b: &Row| {
        (a.failed(), a.peak_reserved, a.peak_allocated, a.time_ns)
            == (b.failed(), b.peak_reserved, b.peak_allocated, b.time_ns)
            && a.driver_calls == b.driver_calls
    };
    if row.broke() {
        "driver_error"
    } else if !row.ran() {
        "not in this version"
    } else if conf.is_empty() {
        "default"
    } else if conf == own {
        "recorded"
    } else if same(row, default) {
        "does nothing here"
    } else if helps(row, default) {
        "helps"
    } else if row.failed() < default.failed() {
        "not enough"
    } else if row.failed() > default.failed()
        || (default.failed() == 0 && row.peak_reserved > default.peak_reserved)
    {
        "costs"
    } else {
        "no help"
    }
}

/// Where requests fail with the defaults, only that none fails any more is help: a peak that is lower because less was served is none.
fn helps(row: &Row, default: &Row) -> bool {
    if !row.ran() || row.failed() > 0 {
        return false;
    }
    let saved = default.peak_reserved.saturating_sub(row.peak_reserved) as f64;
    default.failed() > 0 || (saved > 0.0 && saved >= HELPS_FROM * default.peak_reserved as f64)
}
