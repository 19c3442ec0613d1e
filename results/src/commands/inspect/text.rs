//! What `inspect` tells a person of a history.

use vramlab_sim::units::Bytes;

use super::Inspected;
use crate::analysis::inspection::{Fragmentation, Kept, Named, Peak};
use crate::analysis::shares::{Growth, Share, StreamShare};
use crate::output::{Grid, mib, percent, plain};

pub(super) fn page(one: &Inspected, top: usize, markdown: bool) -> String {
    let heading = if markdown { "### " } else { "" };
    let p = &one.peak;
    let mut text = format!("{heading}{}\n\n", plain(&one.input));
    text += &summary(one);
    text += "\nheld at the peak, by category:\n";
    text += &categories(p, markdown);
    text += "\nheld at the peak, by site:\n";
    text += &shares(&p.by_site, p.peak_bytes, "site<", markdown);
    text += "\nheld at the peak, by size:\n";
    text += &shares(&p.by_size, p.peak_bytes, "size of a buffer<", markdown);
    text += &growth(p, top.saturating_mul(2), markdown);
    if let Some(climb) = &one.climb {
        text += &format!("\n{}\n", climb.words());
    }
    text += &streams(p, top, markdown);
    if let Some(state) = &one.fragmentation {
        let strategy = state.strategy.as_deref().unwrap_or_default();
        let capacity = state.capacity.map_or_else(String::new, |c| format!(" on {}", Bytes(c)));
        let which = match state.wanted {
            Some(wanted) if wanted.failed && wanted.op == state.op => ", the first that is refused",
            _ => "",
        };
        text +=
            &format!("\nafter op {}{which}, of a replay through {strategy}{capacity}:\n", state.op);
        text += &fragmentation(state, markdown);
        text += &kept(&state.kept, markdown);
    }
    if let Some(state) = &one.end {
        text += "\nat the end, as the file has it:\n";
        text += &fragmentation(state, markdown);
        // a replay that ends with the recorded state has named the segments
        let sums = |state: &Fragmentation| (state.reserved, state.requested, state.segments);
        if one.fragmentation.as_ref().map(sums) != Some(sums(state)) {
            text += &kept(&state.kept, markdown);
        }
    }
    text
}

fn summary(one: &Inspected) -> String {
    let p = &one.peak;
    let mut text = format!(
        "{} requests, {} frees; {} buffers live before the first op, {} at the end; {} gaps\n",
        p.allocs, p.frees, one.start.live_at_start, p.live_at_end, p.gaps
    );
    if one.start.live_at_start > one.start.start_known {
        let known = match one.start.start_known {
            0 => "the file has no stack of any".to_owned(),
            known => format!("the file has the stacks of {known} that are still there at its end"),
        };
        text += &format!(
            "who asked for what was live before the first op was not recorded; {known}. Begin recording before the model is loaded to see all\n"
        );
    }
    if p.failed > 0 {
        text += &format!(
            "failed when this was recorded: {} of the requests, the largest of {} MiB; no sum of what is live counts them\n",
            p.failed,
            mib(p.failed_largest_bytes)
        );
    }
    if p.gaps > 0 {
        text += &format!(
            "the beginning is missing: {} frees are of buffers that the recording never showed, and whose bytes count nowhere\n",
            p.gaps
        );
    }
    if let Some(bytes) = p.token_bytes {
        text += &format!(
            "{} sequences, {} live at the end, {bytes} B a token: counted as if no cache let them share any\n",
            p.sequences, p.sequences_at_end
        );
    }
    if let Some(window) = one.window {
        text += &format!(
            "of {} ops those from {} to {}; the peak is the highest among them\n",
            p.ops, window.from, window.to
        );
    }
    text += &format!(
        "requested: {} MiB at the start, {} MiB at its peak (op {}), {} MiB at the end\n",
        mib(one.start.start_bytes),
        mib(p.peak_bytes),
        p.peak_op,
        mib(p.end_bytes)
    );
    if let Some(planned) = one.planned_bytes {
        text += &format!("its own placement needs {} MiB\n", mib(planned));
    }
    if let Some(version) = &one.torch {
        let conf = one.conf.as_deref().filter(|c| !c.is_empty()).unwrap_or("defaults");
        text += &format!("rules of PyTorch {version}, settings: {}\n", plain(conf));
    }
    if let Some(capacity) = one.capacity_at_failure {
        text +=
            &format!("at the first failure the allocator could get {} MiB in all\n", mib(capacity));
    }
    if let Some(why) = &one.not_verifiable {
        text += &format!("cannot be checked against our strategy: {why}\n");
    }
    for warning in &one.warnings {
        text += &format!("warning: {}\n", plain(warning));
    }
    text
}

fn categories(p: &Peak, markdown: bool) -> String {
    let mut grid = Grid::new(&["category<", "buffers", "MiB", "share", "uncertain MiB"]);
    for share in &p.by_category {
        grid.row(vec![
            share.category.text().to_owned(),
            share.buffers.to_string(),
            mib(share.bytes),
            percent(part(share.bytes, p.peak_bytes)),
            mib(share.derived_bytes),
        ]);
    }
    let derived = p.by_category.iter().map(|s| s.derived_bytes).fold(0, u64::saturating_add);
    let mut text = grid.print(markdown) + "\n";
    if derived > 0 {
        text += &format!(
            "uncertain: of {} no text of the recording says what it is for; times of birth and end speak for it\n",
            percent(part(derived, p.peak_bytes))
        );
    }
    text
}

/// The phases with the highest peaks, in their order.
fn growth(p: &Peak, most: usize, markdown: bool) -> String {
    if p.growth.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&[
        "phase<",
        "op",
        "requested MiB",
        "growth MiB",
        "peak in phase MiB",
        "never freed MiB",
    ]);
    let mut shown: Vec<&Growth> = p.growth.iter().collect();
    shown.sort_by_key(|phase| std::cmp::Reverse(phase.peak_bytes));
    shown.truncate(most);
    shown.sort_by_key(|phase| phase.op);
    let left_out = p.phases.saturating_sub(shown.len() as u64);
    for phase in shown {
        grid.row(vec![
            phase.name.clone(),
            phase.op.to_string(),
            mib(phase.end_bytes),
            change(phase.start_bytes, phase.end_bytes),
            mib(phase.peak_bytes),
            mib(phase.kept_bytes),
        ]);
    }
    let mut text = format!("\ngrowth by phase:\n{}\n", grid.print(markdown));
    if left_out > 0 {
        let more = if p.growth.len() > most { "; --top shows more" } else { "" };
        text += &format!("({left_out} phases with lower peaks{more})\n");
    }
    text
}

/// The streams with the highest peaks, in their order, and the sums of the rest.
fn streams(p: &Peak, top: usize, markdown: bool) -> String {
    if p.streams.len() < 2 {
        return String::new();
    }
    let mut grid =
        Grid::new(&["stream", "requests", "asked for MiB", "peak MiB", "at the peak MiB"]);
    let mut shown: Vec<&StreamShare> = p.streams.iter().collect();
    shown.sort_by_key(|stream| std::cmp::Reverse(stream.peak_bytes));
    let rest = shown.split_off(top.min(shown.len()));
    shown.sort_by_key(|stream| stream.stream);
    for stream in shown {
        grid.row(vec![
            stream.stream.to_string(),
            stream.requests.to_string(),
            mib(stream.requested_bytes),
            mib(stream.peak_bytes),
            mib(stream.bytes_at_peak),
        ]);
    }
    if !rest.is_empty() {
        let sum = |of: fn(&StreamShare) -> u64| {
            rest.iter().map(|stream| of(stream)).fold(0, u64::saturating_add)
        };
        grid.row(vec![
            format!("({} others)", rest.len()),
            sum(|s| s.requests).to_string(),
            mib(sum(|s| s.requested_bytes)),
            String::new(), // peaks of their own, at moments of their own
            mib(sum(|s| s.bytes_at_peak)),
        ]);
    }
    format!("\nstreams:\n{}\n", grid.print(markdown))
}

fn fragmentation(state: &Fragmentation, markdown: bool) -> String {
    let mut text = format!(
        "{} MiB reserved in {} segments, {} MiB asked for; largest free piece {} MiB\n",
        mib(state.reserved),
        state.segments,
        mib(state.requested),
        mib(state.largest_free)
    );
    if let Some(wanted) = state.wanted {
        let did = if wanted.failed { "failed" } else { "made it grow" };
        text += &format!(
            "free memory is judged by the request of {} on stream {} that {did} (op {}); the largest free piece for it has {} MiB\n",
            Bytes(wanted.size),
            wanted.stream,
            wanted.op,
            mib(state.largest_free_for_wanted)
        );
    }
    let mut grid = Grid::new(&["reserved and not asked for<", "MiB", "of reserved"]);
    for (cause, bytes) in state.causes.named().into_iter().filter(|(_, bytes)| *bytes > 0) {
        grid.row(vec![cause.to_owned(), mib(bytes), percent(part(bytes, state.reserved))]);
    }
    let all = state.causes.total();
    grid.row(vec!["all".to_owned(), mib(all), percent(part(all, state.reserved))]);
    text + &grid.print(markdown) + "\n"
}

fn kept(list: &[Kept], markdown: bool) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&[
        "segment<",
        "pool<",
        "stream",
        "MiB",
        "kept MiB",
        "live",
        "kept by<",
        "its site<",
    ]);
    for one in list {
        let by = format!("{} B at {:#x}", one.pin_size, one.pin_address);
        grid.row(vec![
            format!("{:#x}", one.address),
            one.pool.to_owned(),
            one.stream.to_string(),
            mib(one.size),
            mib(one.kept),
            one.live_blocks.to_string(),
            by,
            one.pin.as_ref().map_or_else(String::new, owner),
        ]);
    }
    format!(
        "segments with the most free memory that nobody else can have, and what keeps them:\n{}\n",
        grid.print(markdown)
    )
}

/// Whose a pin is, and how long it stays.
fn owner(pin: &Named) -> String {
    let end = pin.death.map_or_else(|| "never freed".to_owned(), |op| format!("freed by op {op}"));
    format!("{} ({}, asked for by op {}, {end})", pin.site, pin.category.text(), pin.birth)
}

fn shares(list: &[Share], whole: u64, title: &str, markdown: bool) -> String {
    let mut grid = Grid::new(&[title, "buffers", "MiB", "share"]);
    for share in list {
        grid.row(vec![
            share.what.clone(),
            share.buffers.to_string(),
            mib(share.bytes),
            percent(part(share.bytes, whole)),
        ]);
    }
    grid.print(markdown) + "\n"
}

fn part(bytes: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| bytes as f64 / whole as f64)
}

/// `+1.5`, in MiB.
pub(super) fn change(from: u64, to: u64) -> String {
    let bytes = i128::from(to) - i128::from(from);
    format!("{:+.1}", bytes as f64 / f64::from(1 << 20))
}
