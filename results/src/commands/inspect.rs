//! `vramlab inspect`: what is in a recording: peaks and what held them, growth, gaps, segments; or what a step of a model runs.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use vramlab_workloads::readers::format::Carries;
use vramlab_workloads::registry::WORKLOADS;

use super::{print, program};
use crate::cli::Common;
use crate::described::{Described, describe};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::{self, Opened};
use crate::live::{Peak, find_peak};
use crate::output::{Format, Grid, mib, percent, to_csv, to_json};
use crate::segments::{Held, held};

/// Arguments.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A recording of any known format, or a model's name.
    #[arg(value_name = "FILE|MODEL")]
    file: PathBuf,
    /// How many sites, sizes and segments to show.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Of a model: parameters, such as batch=32,seq=512.
    #[arg(long, value_name = "K=V,…", value_delimiter = ',')]
    set: Vec<String>,
    /// Of a model: passes, such as amp,checkpoint=sqrt+fusion; its operators are shown before and after each.
    #[arg(long, value_name = "A,B+C,…", value_delimiter = ',')]
    passes: Vec<String>,
    /// Of a model: every kernel in order, not only sums.
    #[arg(long)]
    each: bool,
    /// Of a model: the device of the times.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

/// One device's history.
#[derive(Debug, Serialize)]
struct Inspected {
    input: String,
    torch: Option<String>,
    conf: Option<String>,
    capacity_at_failure: Option<u64>,
    /// Blocks that were live before the first entry of a recording.
    live_at_start: u64,
    /// Bytes that they were asked for.
    start_bytes: u64,
    /// Bytes that the file's own placement needs.
    planned_bytes: Option<u64>,
    peak: Peak,
    held: Option<Held>,
    not_verifiable: Option<String>,
    warnings: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or is no recording.
pub fn run(args: &InspectArgs, common: &Common) -> Outcome {
    if let Some(name) = model(&args.file) {
        let asked = program::Asked {
            name,
            set: &args.set,
            passes: &args.passes,
            device: args.device.as_deref(),
            each: args.each,
        };
        return program::inspect(&asked, common);
    }
    if !(args.set.is_empty() && args.passes.is_empty() && args.device.is_none()) || args.each {
        return Err(Failure::usage(
            "--set, --passes, --each and --device are of models; a recording has none",
        ));
    }
    let begun = inputs::begin(&args.file)?;
    if let Some(format) = begun.format.filter(|format| format.doc().carries != Carries::Ops) {
        return others(&describe(&args.file, format, begun.input)?, common);
    }
    let opened = inputs::open_begun(&args.file, begun)?;
    let (made, recorded) = (opened.made(), opened.recorded());
    let mut all = Vec::new();
    for (index, input) in opened.inputs().iter().enumerate() {
        let peak = find_peak(input, args.top)?;
        let mut one = Inspected {
            input: input.name.clone(),
            torch: made.torch_version.clone(),
            conf: made.torch_version.as_ref().map(|_| made.conf.clone()),
            capacity_at_failure: recorded[index].capacity,
            live_at_start: 0,
            start_bytes: 0,
            planned_bytes: None,
            peak,
            held: None,
            not_verifiable: None,
            warnings: opened.warnings().to_vec(),
        };
        if one.peak.saturated {
            let cut = "the sum of live requests passed 2^64 bytes: requested bytes are cut there";
            one.warnings.push(cut.to_owned());
        }
        if let Opened::Snapshot(snapshot) = &opened {
            let device = &snapshot.devices[index];
            let start = device.recording.start_blocks();
            one.live_at_start = start.len() as u64;
            one.start_bytes = start.iter().map(|b| b.requested).sum();
            one.held = Some(held(&device.end, args.top));
            one.not_verifiable = device.recording.trouble().map(ToString::to_string);
        }
        if let Opened::Log(log) = &opened {
            (one.live_at_start, one.start_bytes) = log.histories[index].start;
            one.planned_bytes = log.planned_bytes;
        }
        all.push(one);
    }
    if all.is_empty() {
        return Err(Failure::input(format!("{}: no history and no segments in it", opened.name())));
    }
    print(&match common.format {
        Format::Json => to_json(&all),
        Format::Csv => to_csv(&all),
        Format::Table | Format::Markdown => all
            .iter()
            .map(|one| page(one, common.format == Format::Markdown))
            .collect::<Vec<_>>()
            .join("\n"),
    })?;
    Ok(Code::Done)
}

/// The model of this name, where no file has it.
fn model(file: &Path) -> Option<&str> {
    let name = file.to_str().filter(|_| !file.exists())?;
    WORKLOADS.iter().any(|workload| workload.name == name).then_some(name)
}

/// Prints what is in a file that has nothing to be replayed.
fn others(all: &[Described], common: &Common) -> Outcome {
    print(&match common.format {
        Format::Json => to_json(all),
        Format::Csv => to_csv(all),
        Format::Table | Format::Markdown => {
            let markdown = common.format == Format::Markdown;
            all.iter().map(|one| one.page(markdown)).collect::<Vec<_>>().join("\n")
        }
    })?;
    Ok(Code::Done)
}

fn page(one: &Inspected, markdown: bool) -> String {
    let heading = if markdown { "### " } else { "" };
    let p = &one.peak;
    let mut text = format!("{heading}{}\n\n", one.input);
    text += &format!(
        "{} requests, {} frees; {} buffers live before the first op, {} at the end; {} gaps\n",
        p.allocs, p.frees, one.live_at_start, p.live_at_end, p.gaps
    );
    if let Some(bytes) = p.token_bytes {
        text += &format!(
            "{} sequences, {} live at the end, {bytes} B a token: counted as if no cache let them share any\n",
            p.sequences, p.sequences_at_end
        );
    }
    text += &format!(
        "requested: {} MiB at the start, {} MiB at its peak (op {}), {} MiB at the end\n",
        mib(one.start_bytes),
        mib(p.peak_bytes),
        p.peak_op,
        mib(p.end_bytes)
    );
    if let Some(planned) = one.planned_bytes {
        text += &format!("its own placement needs {} MiB\n", mib(planned));
    }
    if let Some(version) = &one.torch {
        let conf = one.conf.as_deref().filter(|c| !c.is_empty()).unwrap_or("defaults");
        text += &format!("rules of PyTorch {version}, settings: {conf}\n");
    }
    if let Some(capacity) = one.capacity_at_failure {
        text +=
            &format!("at the first failure the allocator could get {} MiB in all\n", mib(capacity));
    }
    if let Some(why) = &one.not_verifiable {
        text += &format!("cannot be checked against our strategy: {why}\n");
    }
    for warning in &one.warnings {
        text += &format!("warning: {warning}\n");
    }
    text += "\nheld at the peak, by site:\n";
    text += &shares(&p.by_site, p.peak_bytes, "site<", markdown);
    text += "\nheld at the peak, by size:\n";
    text += &shares(&p.by_size, p.peak_bytes, "size of a buffer<", markdown);
    if !p.growth.is_empty() {
        text += "\ngrowth by phase:\n";
        let mut grid =
            Grid::new(&["phase<", "op", "requested MiB", "growth MiB", "peak in phase MiB"]);
        for phase in &p.growth {
            let growth = phase.end_bytes as i64 - phase.start_bytes as i64;
            grid.row(vec![
                phase.name.clone(),
                phase.op.to_string(),
                mib(phase.end_bytes),
                format!("{:+.1}", growth as f64 / f64::from(1 << 20)),
                mib(phase.peak_bytes),
            ]);
        }
        text += &(grid.print(markdown) + "\n");
    }
    if let Some(h) = &one.held {
        text += &format!(
            "\nat the end: {} MiB reserved in {} segments, {} MiB in use, {} MiB waiting, {} MiB free (largest piece {} MiB)\n",
            mib(h.reserved),
            h.segments,
            mib(h.allocated),
            mib(h.pending),
            mib(h.free),
            mib(h.largest_free)
        );
        text += &format!(
            "of the free bytes {} MiB are whole segments, which can go back, and {} MiB are pinned by live buffers\n",
            mib(h.free_whole),
            mib(h.free - h.free_whole)
        );
        if !h.pinned.is_empty() {
            text += "\nsegments with the most free bytes that live buffers pin:\n";
            let mut grid = Grid::new(&[
                "segment<",
                "pool<",
                "stream",
                "MiB",
                "free MiB",
                "in use",
                "smallest pin<",
            ]);
            for s in &h.pinned {
                grid.row(vec![
                    format!("{:#x}", s.address),
                    s.pool.clone(),
                    s.stream.to_string(),
                    mib(s.size),
                    mib(s.free),
                    percent(Some(1.0 - s.free as f64 / s.size.max(1) as f64)),
                    format!("{} B at {:#x}", s.smallest_pin, s.smallest_pin_address),
                ]);
            }
            text += &(grid.print(markdown) + "\n");
        }
    }
    text
}

fn shares(list: &[crate::live::Share], whole: u64, title: &str, markdown: bool) -> String {
    let mut grid = Grid::new(&[title, "buffers", "MiB", "share"]);
    for share in list {
        let part = (whole > 0).then(|| share.bytes as f64 / whole as f64);
        grid.row(vec![
            share.what.clone(),
            share.buffers.to_string(),
            mib(share.bytes),
            percent(part),
        ]);
    }
    grid.print(markdown) + "\n"
}
