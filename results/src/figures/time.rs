//! Memory over time: live bytes by category, stacked, with what is reserved, and the live floor.
//!
//! | rule | what it says |
//! |---|---|
//! | `columns` | time is cut into `COLUMNS`; of each the moment with most live bytes is shown, and the most that was reserved: no peak is lost |
//! | `time` | simulated time where requests arrive and are answered; else the number of the op, since a host that runs ahead asks for much at one moment, and then waits |
//! | `live` | what was placed and is not freed: a request that was refused is none |
//! | `category` | as [`crate::analysis::category`] tells; one for all where ops depend on answers or have sequences |

use plotters::prelude::*;
use vramlab_sim::engine::{Observer, Outcome, Seen};
use vramlab_sim::op::Op;
use vramlab_sim::units::BufferId;

use super::scale::{self, Unit};
use super::sheet::{Key, Look, Sheet, axes, colour};
use super::subject::Subject;
use super::{Data, Picture};
use crate::analysis::category::{CATEGORIES, Categories, Category};
use crate::analysis::lives::Lives;
use crate::failure::Failure;
use crate::row::Row;

/// Columns of a picture.
const COLUMNS: usize = 480;

const fn colour_of(category: Category) -> RGBColor {
    match category {
        Category::Parameters => colour::BLUE,
        Category::Gradients => colour::ORANGE,
        Category::Optimizer => colour::PURPLE,
        Category::Activations => colour::GREEN,
        Category::Workspace => colour::YELLOW,
        Category::KvCache => colour::SKY,
        Category::Unknown => colour::GREY,
    }
}

/// What is seen of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Column {
    seen: bool,
    live: [u64; CATEGORIES.len()],
    total: u64,
    /// Live after its last op, and reserved then.
    after: ([u64; CATEGORIES.len()], u64),
    reserved: u64,
    refused: u64,
}

/// Fills the columns while a run runs.
struct Watch<'r> {
    known: Option<(&'r Lives, &'r Categories)>,
    timed: bool,
    /// The last op, or the end of the run's time.
    end: u64,
    columns: Vec<Column>,
    /// Category and bytes of each buffer that is live.
    slots: Vec<(u8, u64)>,
    now: Column,
}

impl Watch<'_> {
    fn slot(&mut self, id: BufferId) -> &mut (u8, u64) {
        let at = id.0 as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, (0, 0));
        }
        &mut self.slots[at]
    }

    fn put(&mut self, id: BufferId, category: usize, size: u64) {
        *self.slot(id) = (category as u8, size);
        self.now.live[category] = self.now.live[category].saturating_add(size);
    }

    fn take(&mut self, id: BufferId) {
        let (category, size) = std::mem::take(self.slot(id));
        let live = &mut self.now.live[category as usize];
        *live = live.saturating_sub(size);
    }

    fn note(&mut self, seen: &Seen<'_>, lives: &Lives, categories: &Categories) {
        let category = || {
            let life = lives.born_at(seen.index);
            life.map_or(Category::Unknown, |at| categories.get(at).category) as usize
        };
        match (*seen.op, seen.outcome) {
            (Op::Alloc { id, size, .. }, Outcome::Placed(_)) => self.put(id, category(), size),
            (Op::Realloc { id, size }, Outcome::Placed(_)) => {
                self.take(id);
                self.put(id, category(), size);
            }
            (Op::Free { id, .. } | Op::FreeDeferred { id }, Outcome::Done) => self.take(id),
            _ => {}
        }
    }
}

impl Observer for Watch<'_> {
    fn after(&mut self, seen: &Seen<'_>) {
        match self.known {
            Some((lives, categories)) => self.note(seen, lives, categories),
            None => self.now.live[Category::Unknown as usize] = seen.requested,
        }
        let refused = matches!(seen.outcome, Outcome::Refused(_) | Outcome::NoSlots(_));
        let at = if self.timed { seen.machine.now().0 } else { seen.index };
        let column = (u128::from(at) * COLUMNS as u128 / (u128::from(self.end) + 1)) as usize;
        let total = self.now.live.iter().fold(0, |sum: u64, live| sum.saturating_add(*live));
        let Some(column) = self.columns.get_mut(column.min(COLUMNS - 1)) else { return };
        if !column.seen || total > column.total {
            (column.live, column.total, column.seen) = (self.now.live, total, true);
        }
        column.after = (self.now.live, seen.held.reserved);
        column.reserved = column.reserved.max(seen.held.reserved);
        column.refused += u64::from(refused);
    }
}

/// Draws it.
///
/// # Errors
/// Bad input, a run that did not come to its end, or one of several devices.
pub fn picture(subject: &Subject<'_, '_>) -> Result<Picture, Failure> {
    let (row, report) = subject.run(None)?;
    if !row.devices.is_empty() {
        let numbers: Vec<String> = row.devices.keys().map(ToString::to_string).collect();
        return Err(subject.bad(&format!(
            "it uses the devices {}, and a picture shows one; vramlab convert --device N writes the history of one",
            numbers.join(", ")
        )));
    }
    let lives = subject.lives()?;
    let categories = lives.as_ref().map(|lives| Categories::of(lives, subject.input));
    let timed = !report.done.is_empty() && row.time_ns > 0;
    let mut watch = Watch {
        known: lives.as_ref().zip(categories.as_ref()),
        timed,
        end: if timed { row.time_ns } else { row.ops.saturating_sub(1) },
        columns: vec![Column::default(); COLUMNS],
        slots: Vec::new(),
        now: Column::default(),
    };
    subject.run(Some(&mut watch))?;
    let shown = Shown { end: watch.end, timed, columns: filled(watch.columns), row: &row };
    let by_category = lives.is_some();
    let title = title(&row);
    let svg = shown.draw(&title, &subject.words(), by_category)?;
    Ok(Picture { title, svg, data: shown.data(by_category) })
}

/// A column in which nothing happened is as the one before ended.
fn filled(mut columns: Vec<Column>) -> Vec<Column> {
    let mut after = Column::default().after;
    for column in &mut columns {
        if column.seen {
            after = column.after;
        } else {
            (column.live, column.reserved) = after;
        }
    }
    columns
}

fn title(row: &Row) -> String {
    let (reserved, floor) = (row.peak_reserved, row.live_floor);
    if row.failed() > 0 {
        let what = if row.failed() == 1 { "request does" } else { "requests do" };
        return format!(
            "{} {what} not fit: at most {} is reserved for {} that are asked for",
            row.failed(),
            scale::bytes(reserved),
            scale::bytes(floor)
        );
    }
    let above = reserved.saturating_sub(floor);
    if reserved < floor {
        return format!(
            "Reserved memory peaks at {}, below the {} that live at most: the rest is elsewhere",
            scale::bytes(reserved),
            scale::bytes(floor)
        );
    }
    if above.saturating_mul(50) <= reserved {
        return format!(
            "Reserved memory follows what is live: {} at its peak, {} above the live floor",
            scale::bytes(reserved),
            if above == 0 { "nothing".to_owned() } else { scale::bytes(above) }
        );
    }
    format!(
        "Reserved memory peaks at {}, {} ({}) above the most that is ever live",
        scale::bytes(reserved),
        scale::bytes(above),
        scale::percent(above, floor)
    )
}

/// What is drawn.
struct Shown<'r> {
    end: u64,
    timed: bool,
    columns: Vec<Column>,
    row: &'r Row,
}

impl Shown<'_> {
    fn categories(&self) -> impl Iterator<Item = Category> + '_ {
        CATEGORIES.into_iter().filter(|category| {
            self.columns.iter().any(|column| column.live[*category as usize] > 0)
        })
    }

    fn name(category: Category, by_category: bool) -> &'static str {
        if by_category { category.text() } else { "live" }
    }

    const fn colour(category: Category, by_category: bool) -> RGBColor {
        if by_category { colour_of(category) } else { colour::SKY }
    }

    fn x(&self, column: usize) -> f64 {
        let unit = self.unit_x();
        unit.of(self.end + 1) * column as f64 / COLUMNS as f64
    }

    const fn unit_x(&self) -> Unit {
        if self.timed { Unit::time(self.end) } else { Unit { name: "", one: 1.0 } }
    }

    fn draw(&self, title: &str, words: &str, by_category: bool) -> Result<String, Failure> {
        let most = self.row.peak_reserved.max(self.row.live_floor);
        let unit = Unit::bytes(most);
        let mut sheet = Sheet::new(title, words);
        for category in self.categories() {
            let name = Self::name(category, by_category);
            sheet.legend.push(Key::new(name, Self::colour(category, by_category), Look::Area));
        }
        sheet.legend.push(Key::new("reserved", colour::BLACK, Look::Line));
        sheet.legend.push(Key::new("live floor", colour::VERMILLION, Look::Dashed));
        let refused = self.columns.iter().any(|column| column.refused > 0);
        if refused {
            sheet.legend.push(Key::new("refused requests", colour::VERMILLION, Look::Cross));
        }
        sheet.draw(|area| {
            let top = scale::end(unit.of(most));
            let mut chart = ChartBuilder::on(area)
                .margin_right(30)
                .margin_left(10)
                .x_label_area_size(58)
                .y_label_area_size(84)
                .build_cartesian_2d(0.0..self.x(COLUMNS), 0.0..top)?;
            let x = match self.timed {
                true => format!("simulated time ({})", self.unit_x().name),
                false => "ops, in order".to_owned(),
            };
            let y = format!("memory ({})", unit.name);
            axes(&mut chart, &x, &y)?;
            let mut below = vec![0_u64; COLUMNS];
            for category in self.categories() {
                let above: Vec<u64> = self
                    .columns
                    .iter()
                    .zip(&below)
                    .map(|(column, below)| below.saturating_add(column.live[category as usize]))
                    .collect();
                let mut outline = self.steps(&above, unit);
                outline.extend(self.steps(&below, unit).into_iter().rev());
                let fill = Self::colour(category, by_category).filled();
                chart.draw_series([Polygon::new(outline, fill)])?;
                below = above;
            }
            let reserved: Vec<u64> = self.columns.iter().map(|column| column.reserved).collect();
            let line = self.steps(&reserved, unit);
            chart.draw_series(LineSeries::new(line, colour::BLACK.stroke_width(2)))?;
            let floor = unit.of(self.row.live_floor);
            let line = [(0.0, floor), (self.x(COLUMNS), floor)];
            let style = colour::VERMILLION.stroke_width(2);
            chart.draw_series(DashedLineSeries::new(line, 8, 6, style))?;
            let crosses = (0..COLUMNS).filter(|at| self.columns[*at].refused > 0);
            let style = colour::VERMILLION.stroke_width(2);
            chart.draw_series(crosses.map(|at| {
                let reserved = unit.of(self.columns[at].reserved);
                Cross::new((self.x(at), reserved), 6, style)
            }))?;
            Ok(())
        })
    }

    /// The outline of values that hold for a column each.
    fn steps(&self, values: &[u64], unit: Unit) -> Vec<(f64, f64)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let y = unit.of(*value);
            // a level that goes on needs no points of its own
            if at > 0 && values[at - 1] == *value {
                points.pop();
            } else {
                points.push((self.x(at), y));
            }
            points.push((self.x(at + 1), y));
        }
        points
    }

    fn data(&self, by_category: bool) -> Data {
        let first = if self.timed { "from_ns" } else { "from_op" };
        let mut data = Data::new(&[first]);
        let names = self.categories().map(|category| {
            format!("{}_bytes", Self::name(category, by_category).replace(' ', "_"))
        });
        data.titles.extend(names);
        data.titles.extend(["reserved_bytes", "refused"].map(str::to_owned));
        let ends = u128::from(self.end) + 1;
        for (at, column) in self.columns.iter().enumerate() {
            let from = (ends * at as u128).div_ceil(COLUMNS as u128);
            let mut cells = vec![from.to_string()];
            let live = self.categories().map(|category| column.live[category as usize].to_string());
            cells.extend(live);
            cells.extend([column.reserved, column.refused].map(|value| value.to_string()));
            data.rows.push(cells);
        }
        data
    }
}
