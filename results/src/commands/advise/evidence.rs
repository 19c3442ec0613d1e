//! `advise --explain`: what the advice stands on.

use super::Advice;
use super::text::Seen;
use crate::advise::setting::Family;
use crate::advise::trial::Trial;
use crate::analysis::inspection::{When, Window, fragmentation};
use crate::analysis::shares;
use crate::failure::Failure;
use crate::output::{Grid, mib, percent};

/// Sites that are named.
const TOP: usize = 8;

/// What held the peak, the fragmentation with the settings that the run had and with those advised, and every setting that was tried.
pub(super) fn text(
    seen: &Seen<'_, '_>,
    advice: &Advice,
    family: &Family,
    markdown: bool,
) -> Result<String, Failure> {
    let lives = seen.lives;
    let mut text = format!(
        "evidence\n\nheld at the peak of {} MiB (op {}):\n",
        mib(lives.peak_bytes),
        lives.peak_op
    );
    let mut grid = Grid::new(&["site<", "buffers", "MiB"]);
    for share in shares::by_site(lives, lives.peak_op, TOP) {
        grid.row(vec![share.what, share.buffers.to_string(), mib(share.bytes)]);
    }
    text += &(grid.print(markdown) + "\n\n");
    let now = advice.now().filter(|now| now.ran());
    for trial in [now, advice.advised()].into_iter().flatten() {
        text += &causes(seen, advice, family, trial, markdown)?;
    }
    text += &format!("all {} settings that were tried:\n", advice.tried.len());
    let mut grid = Grid::new(&["setting<", "verdict<", "failed", "peak reserved MiB"]);
    for trial in &advice.tried {
        let peak = if trial.row.ran() { mib(trial.row.peak_reserved) } else { String::new() };
        let failed = trial.row.failed().to_string();
        grid.row(vec![
            super::text::setting(trial).to_owned(),
            trial.verdict.to_owned(),
            failed,
            peak,
        ]);
    }
    text += &(grid.print(markdown) + "\n\n");
    Ok(text)
}

fn causes(
    seen: &Seen<'_, '_>,
    advice: &Advice,
    family: &Family,
    trial: &Trial,
    markdown: bool,
) -> Result<String, Failure> {
    let spec = family.spec(&trial.setting);
    let run = (seen.input, &spec, &advice.place);
    let when = (When::Worst, Window::ALL);
    let Some(state) = fragmentation(run, (seen.lives, seen.categories), when, 1)? else {
        return Ok(format!("{spec} cannot tell what is where\n\n"));
    };
    let at = match state.wanted {
        Some(wanted) if wanted.failed && wanted.op == state.op => "at its first failure",
        _ => "at its peak",
    };
    let mut text = format!(
        "{} {at} (op {}): {} MiB reserved, {} MiB asked for\n",
        super::text::setting(trial),
        state.op,
        mib(state.reserved),
        mib(state.requested)
    );
    let mut grid = Grid::new(&["reserved and not asked for<", "MiB", "of reserved"]);
    for (cause, bytes) in state.causes.named().into_iter().filter(|(_, bytes)| *bytes > 0) {
        let share = (state.reserved > 0).then(|| bytes as f64 / state.reserved as f64);
        grid.row(vec![cause.to_owned(), mib(bytes), percent(share)]);
    }
    text += &(grid.print(markdown) + "\n");
    if let Some(kept) = state.kept.first() {
        let by = kept.pin.as_ref().map_or("an unknown buffer", |pin| pin.site.as_str());
        text += &format!(
            "most is kept in the segment at {:#x}: {} of {} MiB, by {} B of {}\n",
            kept.address,
            mib(kept.kept),
            mib(kept.size),
            kept.pin_size,
            crate::output::plain(by)
        );
    }
    text += "\n";
    Ok(text)
}
