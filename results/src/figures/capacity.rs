//! Peak reserved against the size of the device: what an allocator takes if it may, and what it can do with.
//!
//! | rule | what it says |
//! |---|---|
//! | `sizes` | `STEPS` devices, evenly spread from 0.8 of the live floor to a little beyond what any of the allocators takes of the whole device; the context comes on top. Beside them the least on which each run ends well, as [`crate::least`] finds it |
//! | `refused` | a device on which a request is refused is shown by a cross, at what was reserved there |

use plotters::prelude::*;
use rayon::prelude::*;

use super::scale::{self, Unit};
use super::sheet::{Key, Look, Sheet, axes, colour};
use super::subject::Subject;
use super::{Data, Picture};
use crate::failure::Failure;
use crate::job::{CAPACITY_MAX, Place, run_pair};
use crate::least::least;
use crate::row::Row;

const STEPS: u64 = 16;

/// A run on one device: bytes beside the context, and what was reserved of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    room: u64,
    reserved: u64,
    refused: u64,
}

/// One allocator.
struct Line {
    label: String,
    /// In order of rooms.
    points: Vec<Point>,
    /// The least room; none if no device would do.
    least: Option<u64>,
}

/// Draws it; one line for each subject.
///
/// # Errors
/// Bad input, or a run that did not come to its end.
pub fn picture(subjects: &[Subject<'_, '_>]) -> Result<Picture, Failure> {
    if subjects.is_empty() || subjects.len() > colour::LINES.len() {
        return Err(Failure::usage(format!(
            "found {} lines to draw, expected 1 to {}",
            subjects.len(),
            colour::LINES.len()
        )));
    }
    let whole: Vec<Row> = subjects
        .par_iter()
        .map(|one| one.run(None).map(|(row, _)| row))
        .collect::<Result<_, _>>()?;
    let floor = whole.iter().map(|row| row.live_floor_of_one).max().unwrap_or(0);
    let taken = whole.iter().map(|row| row.peak_reserved).max().unwrap_or(0);
    let from = floor / 5 * 4;
    let to = (taken.max(floor) / 8).saturating_mul(9).min(CAPACITY_MAX / 2);
    let step = |number: u64| from + (to.saturating_sub(from)) / (STEPS - 1) * number;
    let rooms: Vec<u64> = (0..STEPS).map(step).collect();
    let pairs = subjects.iter().zip(&whole);
    let lines: Vec<Line> =
        pairs.map(|(one, row)| line(one, row, &rooms)).collect::<Result<_, _>>()?;
    let title = title(&lines, floor);
    let most = lines.iter().flat_map(|line| &line.points).map(|point| point.room).max();
    let unit = Unit::bytes(most.unwrap_or(0).max(taken));
    let mut sheet = Sheet::new(&title, &Subject::words_of_many(subjects));
    let named = || lines.iter().zip(colour::LINES);
    sheet.legend =
        named().map(|(line, colour)| Key::new(&*line.label, colour, Look::Line)).collect();
    sheet.legend.push(Key::new("live floor", colour::GREY, Look::Dashed));
    let refused = |point: &Point| point.refused > 0;
    if lines.iter().flat_map(|line| &line.points).any(refused) {
        sheet.legend.push(Key::new("requests are refused", colour::BLACK, Look::Cross));
    }
    let svg = sheet.draw(|area| {
        let end = scale::end(unit.of(most.unwrap_or(1)));
        let high = scale::end(unit.of(taken.max(floor)));
        let begin = unit.of(from) * 0.96;
        let reserved = lines.iter().flat_map(|line| &line.points).map(|point| point.reserved);
        let low = unit.of(reserved.min().unwrap_or(0)) * 0.9;
        let mut chart = ChartBuilder::on(area)
            .margin_right(30)
            .margin_left(10)
            .margin_top(6)
            .x_label_area_size(58)
            .y_label_area_size(84)
            .build_cartesian_2d(begin..end, low..high)?;
        let x = format!("memory of the device, without the context ({})", unit.name);
        let y = format!("peak reserved ({})", unit.name);
        axes(&mut chart, &x, &y)?;
        let at = unit.of(floor);
        let grey = colour::GREY.stroke_width(2);
        chart.draw_series(DashedLineSeries::new([(begin, at), (end, at)], 8, 6, grey))?;
        for (line, colour) in named() {
            let at = |point: &Point| (unit.of(point.room), unit.of(point.reserved));
            let well = || line.points.iter().filter(|point| !refused(point));
            chart.draw_series(LineSeries::new(well().map(at), colour.stroke_width(3)))?;
            chart.draw_series(well().map(|point| Circle::new(at(point), 5, colour.filled())))?;
            let crosses = line.points.iter().filter(|point| refused(point));
            chart.draw_series(
                crosses.map(|point| Cross::new(at(point), 6, colour.stroke_width(3))),
            )?;
        }
        Ok(())
    })?;
    Ok(Picture { title, svg, data: data(&lines) })
}

fn line(subject: &Subject<'_, '_>, whole: &Row, rooms: &[u64]) -> Result<Line, Failure> {
    let context = subject.place.profile.options.context;
    let on = |room: u64| -> Result<Point, Failure> {
        let place = Place { capacity: Some(context + room), ..subject.place.clone() };
        let row = run_pair(subject.input, subject.spec, &place, None)?;
        Ok(Point { room, reserved: row.peak_reserved, refused: row.failed() })
    };
    let found = least(subject.input, subject.spec, subject.place, whole)?;
    let least = found.map(|found| found.capacity.saturating_sub(context));
    let all: Vec<u64> = rooms.iter().copied().chain(least).filter(|room| *room > 0).collect();
    let mut points: Vec<Point> = all.into_par_iter().map(on).collect::<Result<_, _>>()?;
    points.sort_unstable();
    points.dedup();
    Ok(Line { label: subject.label.clone(), points, least })
}

fn title(lines: &[Line], floor: u64) -> String {
    let known = lines.iter().filter_map(|line| Some((line.least?, line)));
    let mut known: Vec<(u64, &Line)> = known.collect();
    known.sort_by_key(|(least, _)| *least);
    let over = |least: u64| {
        let over = least.saturating_sub(floor);
        if over == 0 {
            "no more than what lives".to_owned()
        } else {
            format!("{} above what lives", scale::bytes(over))
        }
    };
    match known.as_slice() {
        [] => "No device is large enough".to_owned(),
        [(least, line)] => {
            let most = line.points.iter().map(|point| point.reserved).max().unwrap_or(0);
            format!(
                "{} runs from {} on, {}; where there is more it takes {}",
                line.label,
                scale::bytes(*least),
                over(*least),
                scale::bytes(most)
            )
        }
        [(least, _), .., (most, _)] if least == most => {
            format!("All {} run from {} on, {}", known.len(), scale::bytes(*least), over(*least))
        }
        [(least, best), .., (most, worst)] => format!(
            "{} runs from {} on, {}; {} needs {}",
            best.label,
            scale::bytes(*least),
            over(*least),
            worst.label,
            scale::bytes(*most)
        ),
    }
}

fn data(lines: &[Line]) -> Data {
    let mut data =
        Data::new(&["run", "room_bytes", "peak_reserved_bytes", "refused", "least_room_bytes"]);
    for line in lines {
        let least = line.least.map_or_else(String::new, |least| least.to_string());
        data.rows.extend(line.points.iter().map(|point| {
            let numbers =
                [point.room, point.reserved, point.refused].map(|number| number.to_string());
            std::iter::once(line.label.clone()).chain(numbers).chain([least.clone()]).collect()
        }));
    }
    data
}
