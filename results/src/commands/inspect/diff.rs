//! `inspect --diff`: two histories side by side, the largest differences first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Inspected;
use super::text::change;
use crate::analysis::shares::Share;
use crate::cli::Common;
use crate::commands::print;
use crate::failure::{Code, Failure, Outcome};
use crate::output::{Format, Grid, mib, plain, to_csv, to_json};

/// One figure of both.
#[derive(Debug, Serialize)]
struct Line {
    device: usize,
    /// `figure`, `category`, `site`, `size`, `phase` or `cause`.
    group: &'static str,
    what: String,
    unit: &'static str,
    a: u64,
    b: u64,
    difference: i128,
}

/// Compares history with history, in the order of their devices.
///
/// # Errors
/// Different numbers of histories, or an output that cannot be written.
pub(super) fn run(a: &[Inspected], b: &[Inspected], top: usize, common: &Common) -> Outcome {
    if a.len() != b.len() {
        return Err(Failure::usage(format!(
            "{} and {} have {} and {} histories; a difference is between as many",
            a[0].input,
            b[0].input,
            a.len(),
            b.len()
        )));
    }
    let pairs = || a.iter().zip(b).enumerate();
    let lines: Vec<Line> = pairs().flat_map(|(device, (a, b))| lines(device, a, b)).collect();
    print(&match common.format {
        Format::Json => to_json(&lines),
        Format::Csv => to_csv(&lines),
        Format::Table | Format::Markdown | Format::Latex => common.format.words(|markdown| {
            let page = |(device, (a, b)): (usize, (&Inspected, &Inspected))| {
                let own: Vec<&Line> = lines.iter().filter(|line| line.device == device).collect();
                page(&a.input, &b.input, &own, top, markdown)
            };
            pairs().map(page).collect::<Vec<_>>().join("\n")
        }),
    })?;
    Ok(Code::Done)
}

fn lines(device: usize, a: &Inspected, b: &Inspected) -> Vec<Line> {
    let line = |group, unit, what: String, a: u64, b: u64| Line {
        device,
        group,
        what,
        unit,
        a,
        b,
        difference: i128::from(b) - i128::from(a),
    };
    let (p, q) = (&a.peak, &b.peak);
    let mut all = Vec::new();
    for (what, unit, a, b) in [
        ("requests", "", p.allocs, q.allocs),
        ("frees", "", p.frees, q.frees),
        ("gaps", "", p.gaps, q.gaps),
        ("requested at the peak", "B", p.peak_bytes, q.peak_bytes),
        ("requested at the end", "B", p.end_bytes, q.end_bytes),
    ] {
        all.push(line("figure", unit, what.to_owned(), a, b));
    }
    let (f, g) = (a.fragmentation.as_ref(), b.fragmentation.as_ref());
    let reserved = [f, g].map(|state| state.map_or(0, |state| state.reserved));
    all.push(line("figure", "B", "reserved in a replay".to_owned(), reserved[0], reserved[1]));
    let causes = [f, g].map(|state| state.map(|state| state.causes).unwrap_or_default().named());
    for ((what, a), (_, b)) in causes[0].iter().zip(&causes[1]) {
        all.push(line("cause", "B", (*what).to_owned(), *a, *b));
    }
    let by_category = |peak: &super::Peak| {
        let share =
            |s: &crate::analysis::shares::CategoryShare| (s.category.text().to_owned(), s.bytes);
        peak.by_category.iter().map(share).collect()
    };
    let groups = [
        ("category", both(by_category(p), by_category(q))),
        ("site", both(sums(&p.by_site), sums(&q.by_site))),
        ("size", both(sums(&p.by_size), sums(&q.by_size))),
        ("phase", both(sums(&p.by_phase), sums(&q.by_phase))),
    ];
    for (group, sums) in groups {
        all.extend(sums.into_iter().map(|(what, (a, b))| line(group, "B", what, a, b)));
    }
    all
}

fn sums(list: &[Share]) -> BTreeMap<String, u64> {
    list.iter().map(|share| (share.what.clone(), share.bytes)).collect()
}

fn both(a: BTreeMap<String, u64>, b: BTreeMap<String, u64>) -> BTreeMap<String, (u64, u64)> {
    let mut both: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (what, bytes) in a {
        both.entry(what).or_default().0 = bytes;
    }
    for (what, bytes) in b {
        both.entry(what).or_default().1 = bytes;
    }
    both
}

/// Titles of the tables, in order.
const GROUPS: [(&str, &str); 6] = [
    ("figure", "figures"),
    ("cause", "reserved and not asked for, by cause"),
    ("category", "held at the peak, by category"),
    ("site", "held at the peak, by site"),
    ("size", "held at the peak, by size"),
    ("phase", "held at the peak, by the phase of birth"),
];

fn page(a: &str, b: &str, lines: &[&Line], top: usize, markdown: bool) -> String {
    let heading = if markdown { "### " } else { "" };
    let mut text = format!("{heading}A is {}, B is {}\n", plain(a), plain(b));
    for (group, title) in GROUPS {
        let mut own: Vec<&&Line> = lines.iter().filter(|line| line.group == group).collect();
        if group != "figure" {
            own.retain(|line| line.a != 0 || line.b != 0);
            own.sort_by_key(|line| std::cmp::Reverse(line.difference.unsigned_abs()));
        }
        let left_out = own.len().saturating_sub(top.max(GROUPS.len()));
        own.truncate(top.max(GROUPS.len()));
        if own.is_empty() {
            continue;
        }
        let mut grid = Grid::new(&[&format!("{group}<"), "A", "B", "B less A"]);
        for line in own {
            let bytes = line.unit == "B";
            let shown = |n: u64| if bytes { mib(n) + " MiB" } else { n.to_string() };
            let difference = match bytes {
                true => change(line.a, line.b),
                false => format!("{:+}", line.difference),
            };
            grid.row(vec![line.what.clone(), shown(line.a), shown(line.b), difference]);
        }
        text += &format!("\n{title}:\n{}\n", grid.print(markdown));
        if left_out > 0 {
            text += &format!("({left_out} smaller differences; --top shows more)\n");
        }
    }
    text
}
