//! `vramlab advise`: which settings help on this recording, which do nothing, and whether any helps at all. Every line is a replay.

use std::path::PathBuf;

use clap::Args;
use rayon::prelude::*;
use serde::Serialize;
use vramlab_allocators::{Options, Spec};
use vramlab_sim::units::Bytes;

use super::{print, remark};
use crate::cli::{Common, DeviceArgs};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::{self, Opened};
use crate::job::{Input, Place, run_pair};
use crate::output::{Format, Grid, mib, to_csv, to_json};
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
    /// Peak reserved against the defaults, in bytes (negative: less).
    saved: i64,
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
    for (input, recorded) in opened.inputs().into_iter().zip(opened.recorded()) {
        let place = room::place(&input, recorded, &args.place, common.quiet)?;
        let tried = try_all(&input, &place, version.as_deref(), &own_conf, common)?;
        if !matches!(common.format, Format::Json | Format::Csv) {
            print(&page(&input, &place, &tried, common.format == Format::Markdown))?;
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
    if let Opened::Snapshot(snapshot) = &opened {
        for warning in snapshot.warnings.iter().filter(|_| !common.quiet) {
            remark(&format!("vramlab: {}: {warning}", opened.name()));
        }
    }
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
            saved: row.peak_reserved as i64 - default.peak_reserved as i64,
            row,
        })
        .collect();
    let keys = |t: &Tried| {
        (
            !t.row.ran(),
            t.row.ooms,
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
        (a.ooms, a.peak_reserved, a.peak_allocated, a.time_ns)
            == (b.ooms, b.peak_reserved, b.peak_allocated, b.time_ns)
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
    } else if row.ooms < default.ooms {
        "not enough"
    } else if row.ooms > default.ooms
        || (default.ooms == 0 && row.peak_reserved > default.peak_reserved)
    {
        "costs"
    } else {
        "no help"
    }
}

/// Where requests fail with the defaults, only that none fails any more is help: a peak that is lower because less was served is none.
fn helps(row: &Row, default: &Row) -> bool {
    if !row.ran() || row.ooms > 0 {
        return false;
    }
    let saved = default.peak_reserved.saturating_sub(row.peak_reserved) as f64;
    default.ooms > 0 || (saved > 0.0 && saved >= HELPS_FROM * default.peak_reserved as f64)
}

fn page(input: &Input<'_>, place: &Place, tried: &[Tried], markdown: bool) -> String {
    let mut grid = Grid::new(&[
        "rank",
        "setting<",
        "verdict<",
        "ooms",
        "retries",
        "peak reserved MiB",
        "against default",
        "driver calls",
        "stall ms",
    ]);
    let ran = || tried.iter().filter(|t| t.row.ran());
    for one in ran() {
        grid.row(vec![
            one.rank.to_string(),
            if one.conf.is_empty() { "(defaults)".to_owned() } else { one.conf.clone() },
            one.verdict.to_owned(),
            one.row.ooms.to_string(),
            one.row.alloc_retries.unwrap_or(0).to_string(),
            mib(one.row.peak_reserved),
            format!("{:+.1}", one.saved as f64 / f64::from(1 << 20)),
            one.row.memory_calls().to_string(),
            format!("{:.2}", one.row.stall_total_ns as f64 / 1e6),
        ]);
    }
    let floor = ran().next().map_or(0, |t| t.row.live_floor);
    let heading = format!(
        "{} on {} of device memory, live floor {} MiB",
        input.name,
        Bytes(place.capacity()),
        mib(floor)
    );
    let mut text = if markdown { format!("### {heading}\n\n") } else { format!("{heading}\n") };
    text += &grid.print(markdown);
    text += "\n\n";
    for one in tried.iter().filter(|t| !t.row.ran()) {
        text += &format!(
            "{}: {}: {}\n",
            one.verdict,
            one.conf,
            one.row.reason.as_deref().unwrap_or_default()
        );
    }
    for one in ran().filter(|t| !t.row.notes.is_empty()) {
        text += &format!("{}: {}\n", one.conf, one.row.notes.join("; "));
    }
    text + &answer(tried, place) + "\n"
}

/// The advice in words.
fn answer(tried: &[Tried], place: &Place) -> String {
    let Some(default) = tried.iter().find(|t| t.conf.is_empty()) else { return String::new() };
    let (best, row) = (tried.iter().find(|t| t.row.ran()).unwrap_or(default), &default.row);
    if !row.ran() {
        let why = row.reason.as_deref().unwrap_or_default();
        return format!("no advice: the run with the defaults ended early: {why}\n");
    }
    if helps(&best.row, row) {
        let gain = if row.ooms > 0 {
            format!("requests that failed: {} with the defaults, none with it", row.ooms)
        } else {
            format!(
                "peak reserved falls from {} to {} MiB",
                mib(row.peak_reserved),
                mib(best.row.peak_reserved)
            )
        };
        return format!("advice: PYTORCH_CUDA_ALLOC_CONF={}\n  {gain}\n", best.conf);
    }
    if row.ooms > 0 {
        return format!("no setting helps: {}\n", why_all_fail(best, default, place));
    }
    format!(
        "no setting helps: the defaults reserve {} MiB for {} MiB of live buffers, and the best setting saves under {:.0} %\n",
        mib(row.peak_reserved),
        mib(row.live_floor),
        HELPS_FROM * 100.0
    )
}

fn why_all_fail(best: &Tried, default: &Tried, place: &Place) -> String {
    // The floor counts what fails, too.
    let (needed, capacity) = (default.row.live_floor_of_one, place.capacity());
    if needed > capacity {
        return format!(
            "the live buffers alone reach {}{} MiB on a device of {} MiB: it is exhaustion",
            if needed == u64::MAX { "at least " } else { "" }, // where the sum is cut
            mib(needed),
            mib(capacity)
        );
    }
    let first = default.row.first_oom.as_deref().unwrap_or("a request failed");
    let fewest = if best.row.ooms < default.row.ooms {
        format!(
            "{} fail with the defaults, and the best, {}, which is not enough, leaves {}",
            default.row.ooms, best.conf, best.row.ooms
        )
    } else {
        format!("{} fail at best", best.row.ooms)
    };
    format!("requests fail with every setting tried ({fewest}); the first: {first}")
}

#[cfg(test)]
mod tests {
    use vramlab_sim::units::Bytes;

    use super::*;

    /// A setting with so many failures and so many MiB at the peak.
    fn tried(conf: &str, ooms: u64, peak_mib: u64) -> Tried {
        let (peak_reserved, live_floor) = (peak_mib << 20, 900 << 20);
        let row = Row {
            outcome: "ok",
            ooms,
            peak_reserved,
            live_floor,
            live_floor_of_one: live_floor,
            ..Row::default()
        };
        Tried { rank: 1, conf: conf.into(), verdict: "", saved: 0, row }
    }

    fn answer_of(best: Tried, default: Tried, capacity: u64) -> String {
        let place = Place::for_recording(None, Some(Bytes(capacity << 20))).expect("a device");
        answer(&[best, default], &place)
    }

    /// The first setting of a recording whose request fails with all of them had a lower peak, since it served less.
    #[test]
    fn a_lower_peak_is_no_help_while_requests_fail() {
        let (lower, default) = (tried("a:1", 1, 500), tried("", 1, 1000));
        assert!(!helps(&lower.row, &default.row));
        assert_eq!(verdict("a:1", "", &lower.row, &default.row), "no help");
        let text = answer_of(lower, default, 1000);
        assert_eq!(
            text,
            "no setting helps: requests fail with every setting tried (1 fail at best); the first: a request failed\n"
        );
    }

    #[test]
    fn fewer_failures_are_told_and_are_not_enough() {
        let (fewer, default) = (tried("a:1", 306, 500), tried("", 315, 1000));
        assert_eq!(verdict("a:1", "", &fewer.row, &default.row), "not enough");
        let text = answer_of(fewer, default, 1000);
        assert!(text.starts_with("no setting helps: "), "{text}");
        assert!(
            text.contains(
                "315 fail with the defaults, and the best, a:1, which is not enough, leaves 306"
            ),
            "{text}"
        );
    }

    #[test]
    fn more_live_bytes_than_the_device_has_are_exhaustion() {
        let text = answer_of(tried("a:1", 1, 500), tried("", 1, 500), 800);
        assert_eq!(
            text,
            "no setting helps: the live buffers alone reach 900.0 MiB on a device of 800.0 MiB: it is exhaustion\n"
        );
    }

    #[test]
    fn no_failure_any_more_is_help_even_at_a_higher_peak() {
        let (none, default) = (tried("a:1", 0, 1100), tried("", 2, 1000));
        assert_eq!(verdict("a:1", "", &none.row, &default.row), "helps");
        assert_eq!(
            answer_of(none, default, 1000),
            "advice: PYTORCH_CUDA_ALLOC_CONF=a:1\n  requests that failed: 2 with the defaults, none with it\n"
        );
    }

    #[test]
    fn a_small_saving_is_no_help() {
        let text = answer_of(tried("a:1", 0, 995), tried("", 0, 1000), 2000);
        assert_eq!(
            text,
            "no setting helps: the defaults reserve 1000.0 MiB for 900.0 MiB of live buffers, and the best setting saves under 1 %\n"
        );
        let text = answer_of(tried("a:1", 0, 900), tried("", 0, 1000), 2000);
        assert_eq!(
            text,
            "advice: PYTORCH_CUDA_ALLOC_CONF=a:1\n  peak reserved falls from 1000.0 to 900.0 MiB\n"
        );
    }
}
