//! What choices of passes gave, as a table that a newcomer can read: figures, what each pass changed, and what the times are.

use serde::Serialize;
use vramlab_sim::units::Bytes;

use crate::job::Place;
use crate::output::{Grid, mib, percent};

/// What a choice of passes gave. Sizes are bytes, times ns; `null` where a run did not end, and for the base's own savings.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Gave {
    pub(super) model: &'static str,
    pub(super) passes: String,
    pub(super) strategy: String,
    pub(super) device: String,
    pub(super) capacity: u64,
    /// As a row's; `refused` where the passes do not fit the model.
    pub(super) outcome: &'static str,
    /// Why they do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    pub(super) peak_requested: Option<u64>,
    pub(super) peak_reserved: Option<u64>,
    /// If it was searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_capacity: Option<u64>,
    /// What `step_ns` is the time of: a step, or in decoding a token of every sequence.
    pub(super) per: &'static str,
    pub(super) step_ns: Option<u64>,
    /// Of the peak without passes.
    pub(super) saved: Option<f64>,
    /// Of the reserved peak without passes.
    pub(super) saved_reserved: Option<f64>,
    /// Step time beside that without passes, minus 1.
    pub(super) slower: Option<f64>,
    /// Devices that do the same at the same time; the figures are of one.
    pub(super) devices: u64,
    /// Bytes that one of them hears from the others in a step.
    pub(super) exchanged_bytes: u64,
    pub(super) changed: Vec<String>,
}

/// Figures without passes.
pub(super) struct Base {
    requested: Option<u64>,
    reserved: Option<u64>,
    step_ns: Option<u64>,
}

impl Base {
    pub(super) fn of(gave: &Gave) -> Self {
        let Gave { peak_requested, peak_reserved, step_ns, .. } = *gave;
        Self { requested: peak_requested, reserved: peak_reserved, step_ns }
    }
}

impl Gave {
    /// With what it saved and cost beside the base, where both ran to their end.
    pub(super) fn beside(self, base: Option<&Base>) -> Self {
        let Some(base) = base else { return self };
        let part = |mine: Option<u64>, of: Option<u64>| {
            mine.zip(of).map(|(mine, of)| mine as f64 / of.max(1) as f64)
        };
        Self {
            saved: part(self.peak_requested, base.requested).map(|part| 1.0 - part),
            saved_reserved: part(self.peak_reserved, base.reserved).map(|part| 1.0 - part),
            slower: part(self.step_ns, base.step_ns).map(|part| part - 1.0),
            ..self
        }
    }

    /// The row of passes that do not fit the model.
    pub(super) fn refused(&self, passes: &str, why: &str) -> Self {
        Self {
            passes: passes.to_owned(),
            outcome: "refused",
            refused: Some(why.to_owned()),
            peak_requested: None,
            peak_reserved: None,
            min_capacity: None,
            step_ns: None,
            saved: None,
            saved_reserved: None,
            slower: None,
            devices: 1,
            exchanged_bytes: 0,
            changed: Vec::new(),
            ..self.clone()
        }
    }

    /// On how many devices, and what passes between them.
    fn spread(&self, place: &Place) -> Option<String> {
        if self.devices < 2 {
            return None;
        }
        let speed = place.profile.options.links.peer_to_peer.bytes_per_second;
        let link = match speed.is_finite() {
            true => format!("over a link of {:.0} GB/s", speed / 1e9),
            false => "over a link that takes no time".to_owned(),
        };
        let bytes = mib(self.exchanged_bytes);
        Some(format!(
            "{}: one of {} devices, which hears {bytes} MiB a {} from the others {link}",
            self.passes, self.devices, self.per
        ))
    }
}

/// The table, what passes changed, and how to read the times.
pub(super) fn table(gave: &[Gave], place: &Place, markdown: bool) -> String {
    let Some(first) = gave.first() else { return String::new() };
    let mut heading = format!("{} through {}, on {}", first.model, first.strategy, first.device);
    if place.capacity.is_some() {
        heading += &format!(" of {}", Bytes(first.capacity));
    }
    if markdown {
        heading = format!("### {heading}\n");
    }
    let per = format!("ms/{}", first.per);
    let mut titles =
        vec!["passes<", "outcome<", "peak MiB", "saved", "reserved MiB", "saved", &per, "time"];
    if place.min_capacity {
        titles.push("least MiB");
    }
    let mut grid = Grid::new(&titles);
    let dash = || "-".to_owned();
    for one in gave {
        let size = |bytes: Option<u64>| bytes.map_or_else(dash, mib);
        let mut cells = vec![
            one.passes.clone(),
            one.outcome.to_owned(),
            size(one.peak_requested),
            percent(one.saved),
            size(one.peak_reserved),
            percent(one.saved_reserved),
            one.step_ns.map_or_else(dash, |ns| format!("{:.1}", ns as f64 / 1e6)),
            one.slower.map_or_else(dash, |part| format!("{:+.1} %", part * 100.0)),
        ];
        cells.extend(place.min_capacity.then(|| size(one.min_capacity)));
        grid.row(cells);
    }
    let bullet = if markdown { "- " } else { "" };
    let mut lines = Vec::new();
    for one in gave {
        let several = one.passes.contains('+');
        let before = if several { format!("{}: ", one.passes) } else { String::new() };
        lines.extend(one.changed.iter().map(|changed| format!("{before}{changed}")));
        if let Some(why) = &one.refused {
            lines.push(format!("{} was refused: {why}", one.passes));
        }
    }
    lines.extend(reading(gave, place));
    let lines: String = lines.iter().map(|line| format!("{bullet}{line}\n")).collect();
    format!("{heading}\n{}\n\n{lines}\n", grid.print(markdown))
}

/// How to read the times.
fn reading(gave: &[Gave], place: &Place) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(first) = gave.first() {
        let token = match first.per {
            "token" => "a token is one for every sequence, that of a prompt included; ",
            _ => "",
        };
        lines.push(format!(
            "times: {token}from the device's published rates and not measured: a lower bound of what a real {} takes",
            first.per
        ));
    }
    let spread: Vec<String> = gave.iter().filter_map(|one| one.spread(place)).collect();
    if !spread.is_empty() {
        let base = gave.iter().find(|one| one.passes.starts_with("allreduce"));
        let base = match base {
            Some(one) => one.passes.clone(),
            None => "allreduce, which can be given as a choice".to_owned(),
        };
        lines.push(format!(
            "rows of several devices stand beside one device that exchanges nothing (none); plain data parallelism is {base}"
        ));
    }
    lines.extend(spread);
    lines
}
