//! What `vramlab advise` tells a person: the table of settings, and the advice below it.

use vramlab_sim::units::Bytes;

use super::{HELPS_FROM, Tried, helps};
use crate::job::{Input, Place};
use crate::output::{Grid, mib};

/// Heading and table, the figures of each device, and what else there is to say of the runs.
pub(super) fn table(input: &Input<'_>, place: &Place, tried: &[Tried], markdown: bool) -> String {
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
            setting(one).to_owned(),
            one.verdict.to_owned(),
            one.row.ooms.to_string(),
            one.row.alloc_retries.unwrap_or(0).to_string(),
            mib(one.row.peak_reserved),
            format!("{:+.1}", one.saved as f64 / f64::from(1 << 20)),
            one.row.memory_calls().to_string(),
            format!("{:.2}", one.row.stall_total_ns as f64 / 1e6),
        ]);
    }
    let floor = mib(ran().next().map_or(0, |t| t.row.live_floor));
    let (capacity, devices) =
        (Bytes(place.capacity()), ran().next().map_or(0, |t| t.row.devices.len()));
    let heading = if devices > 1 {
        format!(
            "{} on {devices} devices of {capacity} each; of all together: live floor {floor} MiB, and what the table says",
            input.name
        )
    } else {
        format!("{} on {capacity} of device memory, live floor {floor} MiB", input.name)
    };
    let mut text = if markdown { format!("### {heading}\n\n") } else { format!("{heading}\n") };
    text += &grid.print(markdown);
    text += "\n\n";
    text += &of_each_device(tried);
    for one in tried.iter().filter(|t| !t.row.ran()) {
        text += &format!(
            "{}: {}: {}\n",
            one.verdict,
            one.conf,
            one.row.reason.as_deref().unwrap_or_default()
        );
    }
    for one in ran().filter(|t| !t.row.notes.is_empty()) {
        text += &format!("{}: {}\n", setting(one), one.row.notes.join("; "));
    }
    text
}

fn setting(tried: &Tried) -> &str {
    if tried.conf.is_empty() { "(defaults)" } else { &tried.conf }
}

/// Lines for the devices of a run that has several: with the defaults, and with the best setting.
fn of_each_device(tried: &[Tried]) -> String {
    let mut text = String::new();
    let (Some(default), Some(best)) = (tried.iter().find(|t| t.conf.is_empty()), tried.first())
    else {
        return text;
    };
    for (number, one) in &default.row.devices {
        text += &format!(
            "device {number}: live floor {} MiB, peak reserved {} MiB with the defaults",
            mib(one.live_floor),
            mib(one.peak_reserved)
        );
        if let Some(other) = best.row.devices.get(number).filter(|_| !best.conf.is_empty()) {
            text += &format!(", {} MiB with {}", mib(other.peak_reserved), best.conf);
        }
        text += "\n";
    }
    text
}

/// The advice in words.
pub(super) fn answer(tried: &[Tried], place: &Place) -> String {
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
        let highest = default.row.devices.iter().find(|(_, one)| one.live_floor == needed);
        let device = highest.map(|(number, _)| number);
        return format!(
            "the live buffers alone reach {}{} MiB on {} of {} MiB: it is exhaustion",
            if needed == u64::MAX { "at least " } else { "" }, // where the sum is cut
            mib(needed),
            device.map_or_else(|| "a device".to_owned(), |number| format!("device {number}")),
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
    let device =
        default.row.first_oom_device.map_or_else(String::new, |n| format!(", on device {n}"));
    format!("requests fail with every setting tried ({fewest}); the first{device}: {first}")
}

#[cfg(test)]
mod tests {
    use super::super::verdict;
    use super::*;
    use crate::row::Row;

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
