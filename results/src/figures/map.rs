//! Addresses over time: what lives where, and why the rest of what is reserved is no use.
//!
//! | rule | what it says |
//! |---|---|
//! | `columns` | states at `COLUMNS` moments, evenly spread over the ops, the peak and the first refused request among them; between two of them the earlier is shown |
//! | `rows` | addresses of all segments put end to end, without the gaps between them, cut into rows; of each that is shown which has most of its bytes. Fewer rows where there would be more than `MARKS_MAX` marks |
//! | `shades` | the causes of [`crate::analysis::causes`], put together: lost in blocks (rounding, remainders that are not cut off), waiting for a stream, cached (goes back by itself), stuck (split remainders, pinned segments), another's (of another pool or stream) |

use std::collections::BTreeSet;

use plotters::prelude::*;

use super::scale::{self, Unit};
use super::sheet::{Key, Look, Sheet, axes, colour};
use super::subject::Subject;
use super::{Data, Picture};
use crate::analysis::causes::{Judged, What};
use crate::analysis::replayed::Replayed;
use crate::failure::Failure;
use crate::report::run::Stretches;

const COLUMNS: u64 = 160;
const ROWS: usize = 400;
const ROWS_MIN: usize = 50;
/// Most rectangles of a picture: 100 bytes each.
const MARKS_MAX: usize = 6000;

/// What a piece of reserved memory is to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shade {
    /// Asked for.
    Live,
    /// In a block in use, beyond what was asked for.
    Lost,
    /// Freed, waits for a stream.
    Waiting,
    /// Free, goes back when the cache is emptied.
    Cached,
    /// Free, stays.
    Stuck,
    /// Free, of another pool or stream.
    Others,
}

/// All of them, in the order of legends.
pub const SHADES: [Shade; 6] =
    [Shade::Live, Shade::Lost, Shade::Waiting, Shade::Cached, Shade::Stuck, Shade::Others];

impl Shade {
    /// Of a piece.
    pub const fn of(what: What) -> Self {
        match what {
            What::Requested(_) => Self::Live,
            What::Rounding | What::UnsplitRemainder => Self::Lost,
            What::Waiting => Self::Waiting,
            What::Cached => Self::Cached,
            What::SplitRemainder | What::Pinned => Self::Stuck,
            What::WrongPool | What::WrongStream => Self::Others,
        }
    }

    /// Its colour.
    pub const fn colour(self) -> RGBColor {
        match self {
            Self::Live => colour::SKY,
            Self::Lost => colour::YELLOW,
            Self::Waiting => colour::PURPLE,
            Self::Cached => colour::GREEN,
            Self::Stuck => colour::VERMILLION,
            Self::Others => colour::ORANGE,
        }
    }

    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Lost => "lost in blocks",
            Self::Waiting => "waits for a stream",
            Self::Cached => "free, can go back",
            Self::Stuck => "free, stuck",
            Self::Others => "free, of another pool or stream",
        }
    }
}

/// A legend of the shades that are seen.
pub fn legend(seen: impl Fn(Shade) -> bool) -> Vec<Key> {
    let shades = SHADES.into_iter().filter(|shade| seen(*shade));
    shades.map(|shade| Key::new(shade.text(), shade.colour(), Look::Area)).collect()
}

/// What is said of a strategy that does not tell.
pub const NO_LAYOUT: &str = "the strategy cannot tell what is where, or shows memory twice; torch.caching and the classic ones tell";

/// A state in what a map shows of it: far less than the whole, of which there would be many at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Address and size.
    segments: Vec<(u64, u64)>,
    /// Address, size and shade of pieces; neighbours of one shade are one.
    pieces: Vec<(u64, u64, Shade)>,
}

impl State {
    fn of(judged: &Judged) -> Self {
        let mut state = Self::default();
        for segment in &judged.segments {
            state.segments.push((segment.address, segment.size));
            for piece in &segment.pieces {
                let shade = Shade::of(piece.what);
                match state.pieces.last_mut() {
                    Some((address, size, last))
                        if *last == shade && *address + *size == piece.address =>
                    {
                        *size += piece.size;
                    }
                    _ => state.pieces.push((piece.address, piece.size, shade)),
                }
            }
        }
        state
    }
}

/// A rectangle of the map: columns and bytes, from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    shade: Shade,
    from_column: usize,
    to_column: usize,
    from: u64,
    to: u64,
}

/// Draws it.
///
/// # Errors
/// Bad input, a run that did not come to its end, a strategy that cannot tell what is where.
pub fn picture(subject: &Subject<'_, '_>) -> Result<Picture, Failure> {
    let (input, spec, place) = (subject.input, subject.spec, subject.place);
    let (row, _) = subject.run(None)?;
    let run = Replayed::run(input, spec, place, false)?;
    // lives only name what pins a segment, which a map does not show
    let lives = subject.lives()?.unwrap_or_default();
    let last = row.ops.saturating_sub(1);
    let mut ops = BTreeSet::from([0, run.peak_op, last]);
    ops.extend(run.first_oom);
    ops.extend((0..COLUMNS).map(|n| last / COLUMNS * n + last % COLUMNS * n / COLUMNS));
    let ops: Vec<u64> = ops.into_iter().collect();
    let worst = run.first_oom.unwrap_or(run.peak_op);
    let (mut states, mut told): (Vec<(u64, State)>, _) = (Vec::new(), None);
    run.moments(input, spec, place, &lives, &ops, &mut |op, judged| {
        states.push((op, State::of(&judged)));
        if op == worst {
            told = Some(title(&judged, run.first_oom.is_some()));
        }
    })?;
    let title = told.ok_or_else(|| subject.bad(NO_LAYOUT))?;
    let marks = marks(&states);
    let end = marks.iter().map(|mark| mark.to).max().unwrap_or(0);
    let unit = Unit::bytes(end);
    let mut begins: Vec<u64> = states.iter().map(|(op, _)| *op).collect();
    begins.push(last + 1);
    let mut sheet = Sheet::new(&title, &subject.words());
    sheet.legend = legend(|shade| marks.iter().any(|mark| mark.shade == shade));
    sheet.legend.push(Key::new("first refused request, or peak", colour::BLACK, Look::Dashed));
    let svg = sheet.draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin_right(30)
            .margin_left(10)
            .x_label_area_size(58)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..(last + 1) as f64, 0.0..unit.of(end.max(1)))?;
        let y = format!("address, segments end to end ({})", unit.name);
        axes(&mut chart, "ops, in order", &y)?;
        chart.draw_series(marks.iter().map(|mark| {
            let x = [mark.from_column, mark.to_column].map(|column| begins[column] as f64);
            let y = [mark.from, mark.to].map(|bytes| unit.of(bytes));
            Rectangle::new([(x[0], y[0]), (x[1], y[1])], mark.shade.colour().filled())
        }))?;
        let line = [(worst as f64, 0.0), (worst as f64, unit.of(end))];
        let style = colour::BLACK.stroke_width(2);
        chart.draw_series(DashedLineSeries::new(line, 8, 6, style))?;
        Ok(())
    })?;
    Ok(Picture { title, svg, data: data(&marks, &begins) })
}

fn title(judged: &Judged, failed: bool) -> String {
    let causes = &judged.causes;
    let held = judged.reserved.saturating_sub(judged.requested);
    let when = if failed { "When the first request is refused" } else { "At its peak" };
    format!(
        "{when}, {} of {} reserved holds nothing that was asked for; {} is stuck beside live buffers",
        scale::percent(held, judged.reserved),
        scale::bytes(judged.reserved),
        if causes.stuck() == 0 { "nothing".to_owned() } else { scale::bytes(causes.stuck()) }
    )
}

/// Rules `columns` and `rows`.
fn marks(states: &[(u64, State)]) -> Vec<Mark> {
    let segments = states.iter().flat_map(|(_, state)| &state.segments);
    let ranges: Vec<(u64, u64)> = segments.copied().collect();
    let map = Stretches::of(&ranges, &[]);
    let last = ranges.iter().max_by_key(|(address, size)| address.saturating_add(*size));
    let end = last.map_or(0, |(address, size)| map.place(*address) + size);
    let mut rows = ROWS;
    loop {
        let marks = marks_in(states, &map, end, rows);
        if marks.len() <= MARKS_MAX || rows <= ROWS_MIN {
            return marks;
        }
        rows /= 2;
    }
}

fn marks_in(states: &[(u64, State)], map: &Stretches, end: u64, rows: usize) -> Vec<Mark> {
    let border = |row: usize| (u128::from(end) * row as u128 / rows as u128) as u64;
    let mut done: Vec<Mark> = Vec::new();
    let mut open: Vec<Mark> = Vec::new();
    for (column, (_, state)) in states.iter().enumerate() {
        let shades = column_of(state, map, end, rows);
        let mut now: Vec<Mark> = Vec::new();
        let mut row = 0;
        while row < rows {
            let shade = shades[row];
            let begin = row;
            while row < rows && shades[row] == shade {
                row += 1;
            }
            let Some(shade) = shade else { continue };
            let mark = Mark {
                shade,
                from_column: column,
                to_column: column + 1,
                from: border(begin),
                to: border(row),
            };
            let same =
                |old: &&mut Mark| (old.shade, old.from, old.to) == (mark.shade, mark.from, mark.to);
            match open.iter_mut().find(same) {
                Some(old) => now.push(Mark { from_column: old.from_column, ..mark }),
                None => now.push(mark),
            }
        }
        done.extend(open.iter().filter(|old| {
            !now.iter().any(|new| {
                (new.shade, new.from, new.to, new.from_column)
                    == (old.shade, old.from, old.to, old.from_column)
            })
        }));
        open = now;
    }
    done.extend(open);
    done
}

/// What is shown in each row.
fn column_of(state: &State, map: &Stretches, end: u64, rows: usize) -> Vec<Option<Shade>> {
    let mut bytes = vec![[0_u64; SHADES.len()]; rows];
    let row_of =
        |at: u64| ((u128::from(at) * rows as u128 / u128::from(end.max(1))) as usize).min(rows - 1);
    for (address, size, shade) in &state.pieces {
        let from = map.place(*address);
        let to = from + size;
        let (first, last) = (row_of(from), row_of(to.saturating_sub(1).max(from)));
        for (row, bytes) in bytes.iter_mut().enumerate().take(last + 1).skip(first) {
            let begin = (u128::from(end) * row as u128).div_ceil(rows as u128) as u64;
            let next = (u128::from(end) * (row as u128 + 1)).div_ceil(rows as u128) as u64;
            bytes[*shade as usize] += to.min(next).saturating_sub(from.max(begin));
        }
    }
    let most = |bytes: &[u64; SHADES.len()]| {
        let held = bytes.iter().copied().zip(SHADES).filter(|(bytes, _)| *bytes > 0);
        held.max_by_key(|(bytes, shade)| (*bytes, *shade)).map(|(_, shade)| shade)
    };
    bytes.iter().map(most).collect()
}

fn data(marks: &[Mark], begins: &[u64]) -> Data {
    let mut data = Data::new(&["from_op", "to_op", "from_byte", "to_byte", "is"]);
    for mark in marks {
        let numbers = [begins[mark.from_column], begins[mark.to_column], mark.from, mark.to];
        let mut cells: Vec<String> = numbers.map(|number| number.to_string()).to_vec();
        cells.push(mark.shade.text().to_owned());
        data.rows.push(cells);
    }
    data
}
