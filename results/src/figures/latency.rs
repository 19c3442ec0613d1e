//! The share of requests that end within a time, P50 and P99 marked.
//!
//! | rule | what it says |
//! |---|---|
//! | `e2e` | from a request's arrival to the end of its answer, of all requests that were answered |
//! | `quantile` | the least time within which so many of a hundred end (nearest rank) |
//! | `points` | of more than `POINTS` requests so many are shown, evenly chosen by rank, the shortest and the longest among them |

use plotters::prelude::*;

use super::scale::{self, Unit};
use super::sheet::{Key, LABEL, Look, Sheet, axes, colour};
use super::subject::Subject;
use super::{Data, Picture};
use crate::failure::Failure;

const POINTS: usize = 400;

/// One line.
struct Line {
    label: String,
    /// ns, rising.
    times: Vec<u64>,
}

impl Line {
    fn of(subject: &Subject<'_, '_>) -> Result<Self, Failure> {
        let (_, report) = subject.run(None)?;
        let mut times: Vec<u64> = report.done.iter().map(|done| done.e2e()).collect();
        times.sort_unstable();
        if times.is_empty() {
            return Err(subject.bad(
                "no request is answered in it, so it has no latencies; ocr, chat and llm have (ops request and response)",
            ));
        }
        Ok(Self { label: subject.label.clone(), times })
    }

    /// Rule `quantile`.
    fn quantile(&self, percent: usize) -> u64 {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times[rank - 1]
    }

    /// Rule `points`: time and share.
    fn points(&self) -> Vec<(u64, f64)> {
        let count = self.times.len();
        let shown = count.min(POINTS);
        let place = |point: usize| if shown == 1 { 0 } else { point * (count - 1) / (shown - 1) };
        let ranks = (0..shown).map(place);
        ranks.map(|rank| (self.times[rank], (rank + 1) as f64 / count as f64)).collect()
    }
}

/// Draws it; one line for each subject.
///
/// # Errors
/// Bad input, a run that did not come to its end, or one that answers no requests.
pub fn picture(subjects: &[Subject<'_, '_>]) -> Result<Picture, Failure> {
    let lines: Vec<Line> = subjects.iter().map(Line::of).collect::<Result<_, _>>()?;
    if lines.is_empty() || lines.len() > colour::LINES.len() {
        return Err(Failure::usage(format!(
            "found {} lines to draw, expected 1 to {}",
            lines.len(),
            colour::LINES.len()
        )));
    }
    let most = lines.iter().filter_map(|line| line.times.last()).max().copied().unwrap_or(1);
    let least = lines.iter().filter_map(|line| line.times.first()).min().copied().unwrap_or(1);
    let unit = Unit::time(most);
    let x = |ns: u64| unit.of(ns.max(1));
    let title = title(&lines);
    let mut sheet = Sheet::new(&title, &Subject::words_of_many(subjects));
    let named = || lines.iter().zip(colour::LINES);
    let keys = named().map(|(line, colour)| Key::new(&*line.label, colour, Look::Line));
    sheet.legend = keys.collect();
    let svg = sheet.draw(|area| {
        let (from, to) = (x(least) / 1.1, x(most) * 1.1);
        let ends = (from..to).log_scale().with_key_points(scale::log_ticks(from, to));
        let mut chart = ChartBuilder::on(area)
            .margin_right(30)
            .margin_left(10)
            .margin_top(6)
            .x_label_area_size(58)
            .y_label_area_size(84)
            .build_cartesian_2d(ends, 0.0..1.02)?;
        let name = format!("from arrival to answer ({})", unit.name);
        axes(&mut chart, &name, "share of requests")?;
        for (share, name) in [(0.5, "P50"), (0.99, "P99")] {
            let line = [(from, share), (to, share)];
            let style = colour::GREY.stroke_width(1);
            chart.draw_series(DashedLineSeries::new(line, 6, 6, style))?;
            let style = TextStyle::from(("sans-serif", LABEL - 2).into_font()).color(&colour::DARK);
            let at = (from * 1.02, share - 0.01);
            chart.draw_series([Text::new(name, at, style)])?;
        }
        for ((line, colour), above) in named().zip((0..lines.len() as u32).rev()) {
            let points = line.points();
            // a step: the share is reached at its time
            let mut steps = Vec::with_capacity(2 * points.len());
            let mut before = 0.0;
            for (ns, share) in points {
                steps.extend([(x(ns), before), (x(ns), share)]);
                before = share;
            }
            // a line that lies under others is broader, so that it is seen beside them
            let style = colour.stroke_width(3 + 2 * above.min(3));
            chart.draw_series(LineSeries::new(steps, style))?;
            let marks = [(line.quantile(50), 0.5), (line.quantile(99), 0.99)];
            chart.draw_series(
                marks.map(|(ns, share)| Circle::new((x(ns), share), 6, colour.filled())),
            )?;
        }
        Ok(())
    })?;
    Ok(Picture { title, svg, data: data(&lines) })
}

fn title(lines: &[Line]) -> String {
    let p99 = |line: &&Line| line.quantile(99);
    match lines {
        [only] => format!(
            "Half of {} requests end within {}, 99 of 100 within {}",
            only.times.len(),
            scale::time(only.quantile(50)),
            scale::time(only.quantile(99))
        ),
        _ => {
            let (Some(best), Some(worst)) =
                (lines.iter().min_by_key(p99), lines.iter().rev().max_by_key(p99))
            else {
                return String::new();
            };
            format!(
                "99 of 100 requests end within {} ({}), and within {} ({})",
                scale::time(best.quantile(99)),
                best.label,
                scale::time(worst.quantile(99)),
                worst.label
            )
        }
    }
}

fn data(lines: &[Line]) -> Data {
    let mut data = Data::new(&["run", "ns", "share"]);
    for line in lines {
        let cells =
            |(ns, share): (u64, f64)| vec![line.label.clone(), ns.to_string(), share.to_string()];
        data.rows.extend(line.points().into_iter().map(cells));
    }
    data
}
