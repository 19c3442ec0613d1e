//! The segments at one moment: what is in each, from end to end.
//!
//! | rule | what it says |
//! |---|---|
//! | `largest` | a bar for each of the `SEGMENTS_MAX` largest segments, by address; the others are summed up in one more of full length, in which pieces of one kind lie side by side |
//! | `small` | pieces of less than half a pixel are put together, with the kind that has most of their bytes |

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::map::{NO_LAYOUT, SHADES, Shade, legend};
use super::scale::{self, Unit};
use super::sheet::{LABEL, Sheet, WIDTH, across, colour, font, text};
use super::subject::Subject;
use super::{Data, Picture};
use crate::analysis::causes::{Judged, Segment};
use crate::analysis::inspection::When;
use crate::analysis::replayed::Replayed;
use crate::failure::Failure;

const SEGMENTS_MAX: usize = 32;
const BAR: u32 = 22;

/// A bar: bytes of each shade, in order.
struct Line {
    name: String,
    /// It is the sum of many, at a scale of its own.
    sum: bool,
    pieces: Vec<(Shade, u64)>,
}

impl Line {
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes).sum()
    }

    fn of(segment: &Segment) -> Self {
        let pieces = segment.pieces.iter().map(|piece| (Shade::of(piece.what), piece.size));
        let kind = match (segment.private, segment.expandable) {
            (true, _) => ", private",
            (_, true) => ", expandable",
            _ => "",
        };
        let name = format!("{}{kind}, {}", segment.pool, scale::bytes(segment.size));
        Self { name, sum: false, pieces: pieces.collect() }
    }

    /// Rule `largest`.
    fn of_many(segments: &[&Segment]) -> Self {
        let pieces = || segments.iter().flat_map(|segment| &segment.pieces);
        let sum = |shade: Shade| {
            let of = pieces().filter(|piece| Shade::of(piece.what) == shade);
            (shade, of.map(|piece| piece.size).sum::<u64>())
        };
        let pieces = SHADES.into_iter().map(sum).filter(|(_, bytes)| *bytes > 0);
        let all = segments.iter().map(|segment| segment.size).sum();
        let name = format!("{} others, {}", segments.len(), scale::bytes(all));
        Self { name, sum: true, pieces: pieces.collect() }
    }

    /// Rule `small`.
    fn drawn(&self, least: u64) -> Vec<(Shade, u64)> {
        let mut all: Vec<(Shade, u64)> = Vec::new();
        let mut gathered = [0_u64; SHADES.len()];
        let put = |all: &mut Vec<(Shade, u64)>, shade: Shade, bytes: u64| match all.last_mut() {
            Some((last, sum)) if *last == shade => *sum += bytes,
            _ => all.push((shade, bytes)),
        };
        let flush = |all: &mut Vec<(Shade, u64)>, gathered: &mut [u64; SHADES.len()]| {
            let sum: u64 = gathered.iter().sum();
            let most = SHADES.into_iter().max_by_key(|shade| gathered[*shade as usize]);
            if let Some(shade) = most.filter(|_| sum > 0) {
                put(all, shade, sum);
            }
            *gathered = [0; SHADES.len()];
        };
        for (shade, bytes) in &self.pieces {
            if *bytes >= least {
                flush(&mut all, &mut gathered);
                put(&mut all, *shade, *bytes);
            } else {
                gathered[*shade as usize] += bytes;
                if gathered.iter().sum::<u64>() >= least {
                    flush(&mut all, &mut gathered);
                }
            }
        }
        flush(&mut all, &mut gathered);
        all
    }
}

/// Draws it.
///
/// # Errors
/// Bad input, a run that did not come to its end, a strategy that cannot tell what is where, a moment that the run does not have.
pub fn picture(subject: &Subject<'_, '_>, when: When) -> Result<Picture, Failure> {
    let (input, spec, place) = (subject.input, subject.spec, subject.place);
    let (row, _) = subject.run(None)?;
    let run = Replayed::run(input, spec, place, false)?;
    let lives = subject.lives()?.unwrap_or_default();
    let last = row.ops.saturating_sub(1);
    let op = match when {
        When::Worst => run.first_oom.unwrap_or(run.peak_op),
        When::Peak => run.peak_op,
        When::Oom => run.first_oom.ok_or_else(|| subject.bad("no request is refused"))?,
        When::End => last,
        When::Op(op) if op > last => {
            let why = format!("--at {op}: it has ops 0 to {last}");
            return Err(Failure::usage(why));
        }
        When::Op(op) => op,
    };
    let judged = run.moment(input, spec, place, &lives, op)?;
    let judged = judged.ok_or_else(|| subject.bad(NO_LAYOUT))?;
    if judged.segments.is_empty() {
        return Err(subject.bad(&format!("nothing is reserved after op {op}; give another --at")));
    }
    let lines = lines(&judged);
    let longest = lines.iter().filter(|line| !line.sum).map(Line::bytes).max().unwrap_or(0);
    let unit = Unit::bytes(longest);
    let title = title(&judged, op, run.first_oom == Some(op));
    let mut words = subject.words();
    if lines.iter().any(|line| line.sum) {
        words += "; the last bar has its own scale";
    }
    let mut sheet = Sheet::new(&title, &words);
    let shades = || lines.iter().flat_map(|line| &line.pieces);
    sheet.legend = legend(|shade| shades().any(|(seen, _)| *seen == shade));
    sheet.height = lines.len() as u32 * BAR + 76;
    let svg = sheet.draw(|area| {
        let names = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0) as u32;
        let mut chart = ChartBuilder::on(area)
            .margin_left(10)
            .margin_right(30)
            .margin_top(4)
            .x_label_area_size(58)
            .y_label_area_size((names * 10 + 16).min(WIDTH / 3))
            .build_cartesian_2d(0.0..unit.of(longest.max(1)), 0.0..lines.len() as f64)?;
        let what = format!("bytes of the segment ({})", unit.name);
        across(&mut chart, &what)?;
        let offset = area.get_base_pixel();
        for (line, row) in lines.iter().zip((0..lines.len()).rev()) {
            let row = row as f64;
            let mut from = 0;
            let whole = if line.sum { line.bytes().max(1) } else { longest };
            let stretch = longest as f64 / whole as f64;
            chart.draw_series(line.drawn(whole / (2 * u64::from(WIDTH))).into_iter().map(
                |(shade, bytes)| {
                    let x = [from, from + bytes].map(|bytes| unit.of(bytes) * stretch);
                    from += bytes;
                    Rectangle::new(
                        [(x[0], row + 0.12), (x[1], row + 0.88)],
                        shade.colour().filled(),
                    )
                },
            ))?;
            let (left, middle) = chart.backend_coord(&(0.0, row + 0.5));
            let name = font(LABEL - 2, colour::BLACK).anchor(HPos::Right, VPos::Center);
            text(area, &line.name, (left - 8 - offset.0, middle - offset.1), &name)?;
        }
        Ok(())
    })?;
    Ok(Picture { title, svg, data: data(&judged) })
}

fn lines(judged: &Judged) -> Vec<Line> {
    let mut by_size: Vec<&Segment> = judged.segments.iter().collect();
    by_size.sort_by_key(|segment| (std::cmp::Reverse(segment.size), segment.address));
    let rest = by_size.split_off(by_size.len().min(SEGMENTS_MAX));
    by_size.sort_by_key(|segment| segment.address);
    let mut lines: Vec<Line> = by_size.into_iter().map(Line::of).collect();
    if !rest.is_empty() {
        lines.push(Line::of_many(&rest));
    }
    lines
}

fn title(judged: &Judged, op: u64, failed: bool) -> String {
    let free = |causes: &crate::analysis::causes::Causes| {
        causes.cached + causes.stuck() + causes.wrong_pool + causes.wrong_stream
    };
    let (count, reserved) = (judged.segments.len(), scale::bytes(judged.reserved));
    let held = format!("{count} segment{} of {reserved}", if count == 1 { "" } else { "s" });
    let free = free(&judged.causes);
    let largest = scale::bytes(judged.largest_free);
    match judged.wanted.filter(|_| failed) {
        Some(wanted) => format!(
            "A request of {} is refused (op {op}): {} is free in {held}, but in no piece larger than {largest}",
            scale::bytes(wanted.size),
            scale::bytes(free)
        ),
        None if free == 0 => format!("After op {op}, nothing is free in {held}"),
        None => format!(
            "After op {op}, {} of {held} is free; the largest free piece has {largest}",
            scale::percent(free, judged.reserved)
        ),
    }
}

fn data(judged: &Judged) -> Data {
    let mut data = Data::new(&["segment", "pool", "stream", "address", "bytes", "is"]);
    for (number, segment) in judged.segments.iter().enumerate() {
        for piece in &segment.pieces {
            data.rows.push(vec![
                number.to_string(),
                segment.pool.to_owned(),
                segment.stream.to_string(),
                piece.address.to_string(),
                piece.size.to_string(),
                Shade::of(piece.what).text().to_owned(),
            ]);
        }
    }
    data
}
