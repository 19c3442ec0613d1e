//! Figures of runs side by side: a bar for each, its interval, and the published figures that they are held against.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::scale;
use super::sheet::{Area, Drawn, Key, LABEL, Look, Sheet, WIDTH, across, colour, font, text};
use super::{Data, Picture};
use crate::failure::Failure;
use crate::output::{fold, plain};

/// Most bars of a picture.
pub const BARS_MAX: usize = 80;
/// Pixels of a bar with the space around it.
const BAR: u32 = 30;
/// Pixels of a line of a label.
const LINE: i32 = 20;
/// Pixels of a character of a label.
const CHAR: u32 = 11;
/// Characters of the longest line of a label.
const LABEL_CHARS: usize = 40;
/// Lines of a label at most.
const LABEL_LINES: usize = 2;
/// Room for a figure behind its bar.
const FIGURE: u32 = 120;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// What it is called.
    pub label: String,
    /// Its figure.
    pub value: f64,
    /// The 95 % interval, from and to.
    pub interval: Option<(f64, f64)>,
}

/// All of a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// What the figure is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Under the title.
    pub words: String,
    /// In order, from the top.
    pub bars: Vec<Bar>,
    /// On a logarithmic scale.
    pub log: bool,
    /// Figures that were claimed.
    pub claimed: Vec<f64>,
    /// Less is better, or more: the title begins with the best.
    pub more_is_better: bool,
}

impl Bars {
    fn unit(&self) -> String {
        if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) }
    }

    /// What is to be seen: the least and the greatest.
    fn title(&self) -> String {
        let unit = self.unit();
        let by_value = |a: &&Bar, b: &&Bar| a.value.total_cmp(&b.value);
        let (Some(least), Some(most)) =
            (self.bars.iter().min_by(by_value), self.bars.iter().rev().max_by(by_value))
        else {
            return self.name.clone();
        };
        let tell = |bar: &Bar| {
            let label = bar.label.strip_prefix('(').and_then(|label| label.strip_suffix(')'));
            format!("{}{unit} ({})", scale::three(bar.value), label.unwrap_or(&bar.label))
        };
        if self.bars.len() == 1 {
            return format!("{}: {}", self.name, tell(least));
        }
        if least.value == most.value {
            return format!(
                "{}: {}{unit} in all {}",
                self.name,
                scale::three(least.value),
                self.bars.len()
            );
        }
        let (first, last) = if self.more_is_better { (most, least) } else { (least, most) };
        let times = match least.value > 0.0 {
            true => format!(", {} times", scale::three(most.value / least.value)),
            false => String::new(),
        };
        format!("{}: from {} to {}{times}", self.name, tell(first), tell(last))
    }

    /// The scale's ends. An interval that reaches below it is cut there: what is counted is not below 0.
    fn range(&self) -> (f64, f64) {
        let high = |bar: &Bar| bar.interval.map_or(bar.value, |(_, high)| high.max(bar.value));
        let values: Vec<f64> =
            self.bars.iter().map(|bar| bar.value).chain(self.claimed.iter().copied()).collect();
        let most = self.bars.iter().map(high).chain(values.iter().copied()).fold(0.0, f64::max);
        if self.log {
            let positive = values.iter().copied().filter(|value| *value > 0.0);
            let least = positive.fold(most, f64::min);
            return (least / 2.0, most * 1.2);
        }
        let least = values.iter().copied().fold(0.0, f64::min);
        match least < 0.0 {
            true => (scale::end(-least).copysign(-1.0), scale::end(most)),
            false => (0.0, scale::end(most)),
        }
    }

    /// Draws it.
    ///
    /// # Errors
    /// No bars, too many, a figure that is no number, or one that a logarithmic scale does not have.
    pub fn picture(&self) -> Result<Picture, Failure> {
        if self.bars.is_empty() || self.bars.len() > BARS_MAX {
            return Err(Failure::input(format!(
                "{}: found {} bars to draw, expected 1 to {BARS_MAX}",
                self.name,
                self.bars.len()
            )));
        }
        for bar in &self.bars {
            if !bar.value.is_finite() || (self.log && bar.value <= 0.0) {
                return Err(Failure::input(format!(
                    "{}: {} has the figure {}, which {}",
                    self.name,
                    bar.label,
                    bar.value,
                    if self.log { "a logarithmic scale does not have" } else { "is no number" }
                )));
            }
        }
        let title = self.title();
        let mut sheet = Sheet::new(&title, &self.words);
        let lines = self.bars.iter().map(|bar| lines(&bar.label).len()).max().unwrap_or(1);
        let bar = BAR + LINE as u32 * (lines as u32).saturating_sub(1);
        sheet.height = self.bars.len() as u32 * bar + 84;
        if self.bars.iter().any(|bar| bar.interval.is_some()) {
            sheet.legend.push(Key::new("95 % interval", colour::BLACK, Look::Line));
        }
        for claimed in &self.claimed {
            let text = format!("claimed: {}{}", scale::tick(*claimed), self.unit());
            sheet.legend.push(Key::new(text, colour::VERMILLION, Look::Dashed));
        }
        let svg = sheet.draw(|area| {
            let (from, to) = self.range();
            let mut builder = ChartBuilder::on(area);
            let builder = builder
                .margin_left(10)
                .margin_right(30 + FIGURE)
                .margin_top(4)
                .x_label_area_size(62)
                .y_label_area_size(self.label_width());
            let y = 0.0..self.bars.len() as f64;
            if self.log {
                let log = (from..to).log_scale().with_key_points(scale::log_ticks(from, to));
                self.chart(area, &mut builder.build_cartesian_2d(log, y)?, from)
            } else {
                self.chart(area, &mut builder.build_cartesian_2d(from..to, y)?, 0.0)
            }
        })?;
        Ok(Picture { title, svg, data: self.data() })
    }

    fn chart<X>(
        &self,
        area: &Area<'_>,
        chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
        from: f64,
    ) -> Drawn
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let what = format!(
            "{}{}",
            self.name,
            if self.unit.is_empty() { String::new() } else { format!(" ({})", self.unit) }
        );
        across(chart, &what)?;
        let rows = || self.bars.iter().zip((0..self.bars.len()).rev().map(|row| row as f64));
        chart.draw_series(rows().map(|(bar, row)| {
            Rectangle::new([(from, row + 0.18), (bar.value, row + 0.82)], colour::SKY.filled())
        }))?;
        let ends = chart.plotting_area().get_x_range();
        for claimed in &self.claimed {
            let line = [(*claimed, 0.0), (*claimed, self.bars.len() as f64)];
            let style = colour::VERMILLION.stroke_width(2);
            chart.draw_series(DashedLineSeries::new(line, 8, 6, style))?;
        }
        for (bar, row) in rows() {
            let (low, high) = bar.interval.unwrap_or((bar.value, bar.value));
            if bar.interval.is_some() {
                let (low, middle) = (low.max(ends.start), row + 0.5);
                let strokes = [
                    vec![(low, middle), (high, middle)],
                    vec![(low, row + 0.35), (low, row + 0.65)],
                    vec![(high, row + 0.35), (high, row + 0.65)],
                ];
                let style = colour::BLACK.stroke_width(2);
                chart.draw_series(strokes.map(|points| PathElement::new(points, style)))?;
            }
            let (_, middle) = chart.backend_coord(&(ends.start, row + 0.5));
            let (end, _) = chart.backend_coord(&(high.max(bar.value).max(from), row + 0.5));
            let (left, _) = chart.backend_coord(&(ends.start, row + 0.5));
            let offset = area.get_base_pixel();
            let figure = font(LABEL, colour::BLACK).anchor(HPos::Left, VPos::Center);
            let at = (end + 8 - offset.0, middle - offset.1);
            text(area, &scale::three(bar.value), at, &figure)?;
            let label = font(LABEL, colour::BLACK).anchor(HPos::Right, VPos::Center);
            let lines = lines(&bar.label);
            let first = middle - offset.1 - LINE * (lines.len() as i32 - 1) / 2;
            for (line, number) in lines.iter().zip(0..) {
                text(area, line, (left - 8 - offset.0, first + LINE * number), &label)?;
            }
        }
        Ok(())
    }

    fn label_width(&self) -> u32 {
        let lines = self.bars.iter().flat_map(|bar| lines(&bar.label));
        let longest = lines.map(|line| line.chars().count()).max();
        (longest.unwrap_or(0) as u32 * CHAR + 14).min(WIDTH / 2)
    }

    fn data(&self) -> Data {
        let mut data = Data::new(&["run", "figure", "unit", "value", "from", "to"]);
        for bar in &self.bars {
            let end = |of: fn((f64, f64)) -> f64| {
                bar.interval.map_or_else(String::new, |i| of(i).to_string())
            };
            data.rows.push(vec![
                bar.label.clone(),
                self.name.clone(),
                self.unit.clone(),
                bar.value.to_string(),
                end(|interval| interval.0),
                end(|interval| interval.1),
            ]);
        }
        data
    }
}

/// A label in lines; what is longer is cut.
fn lines(label: &str) -> Vec<String> {
    let text = fold(&plain(label), LABEL_CHARS);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let cut = lines.len() > LABEL_LINES;
    lines.truncate(LABEL_LINES);
    if let Some(last) = lines.last_mut()
        && (cut || last.chars().count() > LABEL_CHARS)
    {
        *last = last.chars().take(LABEL_CHARS - 1).chain(['…']).collect();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[f64], log: bool) -> Bars {
        let bar = |value: &f64| Bar {
            label: format!("({value})"),
            value: *value,
            interval: Some((value - 3.0, value + 3.0)),
        };
        Bars {
            name: "n".to_owned(),
            bars: values.iter().map(bar).collect(),
            log,
            ..Bars::default()
        }
    }

    #[test]
    fn scales_hold_bars_intervals_and_claims() {
        assert_eq!(bars(&[1.0, 2.0], false).range(), (0.0, 5.0 * 1.06));
        let claimed = Bars { claimed: vec![100.0], ..bars(&[1.0], false) };
        assert_eq!(claimed.range(), (0.0, 106.0));
        assert_eq!(bars(&[-50.0, 2.0], false).range(), (-53.0, 5.0 * 1.06));
        assert_eq!(bars(&[1.0, 10.0], true).range(), (0.5, 13.0 * 1.2));
    }

    #[test]
    fn titles_tell_the_least_and_the_greatest() {
        assert_eq!(bars(&[4.0, 2.0], false).title(), "n: from 2 (2) to 4 (4), 2 times");
        assert_eq!(bars(&[2.0, 2.0], false).title(), "n: 2 in all 2");
        assert_eq!(bars(&[2.0], false).title(), "n: 2 (2)");
        let most = Bars { more_is_better: true, ..bars(&[4.0, 2.0], false) };
        assert_eq!(most.title(), "n: from 4 (4) to 2 (2), 2 times");
    }

    #[test]
    fn what_cannot_be_drawn_is_an_error() {
        for (values, log) in [(vec![], false), (vec![f64::NAN], false), (vec![0.0], true)] {
            assert!(bars(&values, log).picture().is_err(), "{values:?}");
        }
        assert!(bars(&[1.0; BARS_MAX + 1], false).picture().is_err());
        assert!(bars(&[1.0; BARS_MAX], false).picture().is_ok());
    }

    #[test]
    fn long_labels_are_two_lines_at_most() {
        let label = ["word,"; 30].join(" ");
        let found = lines(&label);
        assert_eq!(found.len(), 2);
        assert!(found[1].ends_with('…') && found.iter().all(|l| l.chars().count() <= LABEL_CHARS));
    }
}
