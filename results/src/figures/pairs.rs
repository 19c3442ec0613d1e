//! Two figures of each run: ours and a measured one, before and after. Each is a point, and a line joins them.

use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::sheet::{Area, Drawn, Key, LABEL, Look, Sheet, across, colour, font, text};
use super::{Data, Picture, labels, scale};
use crate::failure::Failure;

/// Room for the difference behind a pair.
const DIFFERENCE: u32 = 120;

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// What it is called.
    pub label: String,
    /// Both figures.
    pub values: [f64; 2],
}

impl Pair {
    /// How far the first is from the second, in percent; none where that is 0.
    fn off(&self) -> Option<f64> {
        let [first, second] = self.values;
        (second != 0.0).then(|| 100.0 * (first / second - 1.0))
    }
}

/// All of a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs {
    /// What the figures are.
    pub name: String,
    /// What the first and the second are called.
    pub names: [String; 2],
    /// Their unit.
    pub unit: String,
    /// Under the title.
    pub words: String,
    /// In order, from the top.
    pub pairs: Vec<Pair>,
    /// On a logarithmic scale.
    pub log: bool,
    /// Figures that were claimed.
    pub claimed: Vec<f64>,
}

impl Pairs {
    fn in_unit(&self, before: &str, after: &str) -> String {
        match self.unit.as_str() {
            "" => String::new(),
            unit => format!("{before}{unit}{after}"),
        }
    }

    /// What is to be seen: the run in the middle, and the one that is farthest off.
    fn title(&self) -> String {
        let [first, second] = &self.names;
        let mut offs: Vec<(f64, &str)> =
            self.pairs.iter().filter_map(|pair| Some((pair.off()?, &*pair.label))).collect();
        offs.sort_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
        let begin = format!("{}: {first} beside {second}", self.name);
        match offs.as_slice() {
            [] => begin,
            [(off, label)] => format!("{begin}, {} ({})", signed(*off), labels::told(label)),
            all => {
                let (most, label) = all[all.len() - 1];
                if most == 0.0 {
                    return format!("{begin}, equal in all {}", all.len());
                }
                let middle = all[(all.len() - 1) / 2].0;
                let label = labels::told(label);
                format!(
                    "{begin}, {} in the middle, {} at most ({label})",
                    signed(middle),
                    signed(most)
                )
            }
        }
    }

    fn range(&self) -> (f64, f64) {
        let values = || self.pairs.iter().flat_map(|pair| pair.values).chain(self.claimed.clone());
        let most = values().fold(0.0, f64::max);
        if self.log {
            return (values().fold(most, f64::min) / 1.5, most * 1.5);
        }
        let least = values().fold(0.0, f64::min);
        let from = if least < 0.0 { -scale::end(-least) } else { 0.0 };
        (from, scale::end(most))
    }

    /// Draws it. What a logarithmic scale does not have is left out, and counted under the title.
    ///
    /// # Errors
    /// No pairs, too many, or a figure that is no number.
    pub fn picture(mut self) -> Result<Picture, Failure> {
        let given = self.pairs.len();
        if self.log {
            self.pairs.retain(|pair| pair.values.iter().all(|value| *value > 0.0));
        }
        let gone = given - self.pairs.len();
        if gone > 0 {
            self.words += &format!("; {gone} with 0 cannot be drawn on this scale");
        }
        if self.pairs.is_empty() || self.pairs.len() > labels::ROWS_MAX {
            return Err(Failure::input(format!(
                "{}: found {} pairs to draw, expected 1 to {}",
                self.name,
                self.pairs.len(),
                labels::ROWS_MAX
            )));
        }
        if let Some(pair) =
            self.pairs.iter().find(|pair| !pair.values.iter().all(|v| v.is_finite()))
        {
            return Err(Failure::input(format!(
                "{}: {} has the figures {} and {}, expected numbers",
                self.name, pair.label, pair.values[0], pair.values[1]
            )));
        }
        let title = self.title();
        let mut sheet = Sheet::new(&title, &self.words);
        let names = || self.pairs.iter().map(|pair| &*pair.label);
        sheet.height = self.pairs.len() as u32 * labels::row_height(names()) + 84;
        sheet.legend.push(Key::new(self.names[0].clone(), colour::BLUE, Look::Dot));
        sheet.legend.push(Key::new(self.names[1].clone(), colour::ORANGE, Look::Cross));
        for claimed in &self.claimed {
            let text = format!("claimed: {}{}", scale::tick(*claimed), self.in_unit(" ", ""));
            sheet.legend.push(Key::new(text, colour::VERMILLION, Look::Dashed));
        }
        let svg = sheet.draw(|area| {
            let (from, to) = self.range();
            let mut builder = ChartBuilder::on(area);
            let builder = builder
                .margin_left(10)
                .margin_right(30 + DIFFERENCE)
                .margin_top(4)
                .x_label_area_size(62)
                .y_label_area_size(labels::width(names()));
            let y = 0.0..self.pairs.len() as f64;
            if self.log {
                let log = (from..to).log_scale().with_key_points(scale::log_ticks(from, to));
                self.chart(area, &mut builder.build_cartesian_2d(log, y)?)
            } else {
                self.chart(area, &mut builder.build_cartesian_2d(from..to, y)?)
            }
        })?;
        Ok(Picture { title, svg, data: self.data() })
    }

    fn chart<X>(
        &self,
        area: &Area<'_>,
        chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, RangedCoordf64>>,
    ) -> Drawn
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        across(chart, &format!("{}{}", self.name, self.in_unit(" (", ")")))?;
        let all = self.pairs.len() as f64;
        for claimed in &self.claimed {
            let style = colour::VERMILLION.stroke_width(2);
            chart.draw_series(DashedLineSeries::new(
                [(*claimed, 0.0), (*claimed, all)],
                8,
                6,
                style,
            ))?;
        }
        let ends = chart.plotting_area().get_x_range();
        let offset = area.get_base_pixel();
        for (pair, row) in self.pairs.iter().zip((0..self.pairs.len()).rev()) {
            let middle = row as f64 + 0.5;
            let [first, second] = pair.values.map(|value| (value, middle));
            let line = PathElement::new([first, second], colour::GREY.stroke_width(5));
            chart.draw_series([line])?;
            chart.draw_series([Circle::new(first, 7, colour::BLUE.filled())])?;
            chart.draw_series([Cross::new(second, 7, colour::ORANGE.stroke_width(4))])?;
            let (left, y) = chart.backend_coord(&(ends.start, middle));
            let (right, _) = chart.backend_coord(&(ends.end, middle));
            let at = (right + 8 - offset.0, y - offset.1);
            let told = pair.off().map_or_else(String::new, signed);
            let style = font(LABEL, colour::BLACK).anchor(HPos::Left, VPos::Center);
            text(area, &told, at, &style)?;
            labels::draw(area, &pair.label, (left - 8 - offset.0, y - offset.1))?;
        }
        Ok(())
    }

    fn data(&self) -> Data {
        let [first, second] = &self.names;
        let mut data = Data::new(&["run", "figure", "unit", first, second]);
        for pair in &self.pairs {
            let mut row = vec![pair.label.clone(), self.name.clone(), self.unit.clone()];
            row.extend(pair.values.map(|value| value.to_string()));
            data.rows.push(row);
        }
        data
    }
}

/// A difference in percent, with its sign; 0 has none. Less than a hundredth is said to be so, and many times are times.
fn signed(percent: f64) -> String {
    let sign = if percent < 0.0 { "−" } else { "+" };
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 0.01 => format!("{sign}<0.01 %"),
        _ if percent >= 1000.0 => {
            format!("{} times", scale::three((1.0 + percent / 100.0).round()))
        }
        size => format!("{sign}{} %", scale::three(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(values: &[[f64; 2]], log: bool) -> Pairs {
        let pair = |values: &[f64; 2]| Pair { label: format!("({})", values[0]), values: *values };
        let names = ["ours".to_owned(), "measured".to_owned()];
        let pairs = values.iter().map(pair).collect();
        Pairs { name: "n".to_owned(), names, pairs, log, ..Pairs::default() }
    }

    #[test]
    fn titles_tell_the_middle_and_the_farthest() {
        let all = pairs(&[[1.0, 1.0], [99.0, 100.0], [50.0, 40.0]], false);
        let begin = "n: ours beside measured";
        assert_eq!(all.title(), format!("{begin}, −1.00 % in the middle, +25 % at most (50)"));
        assert_eq!(pairs(&[[2.0, 2.0]; 2], false).title(), format!("{begin}, equal in all 2"));
        assert_eq!(pairs(&[[3.0, 2.0]], false).title(), format!("{begin}, +50 % (3)"));
        assert_eq!((signed(-0.001), signed(204_700.0)), ("−<0.01 %".into(), "2048 times".into()));
    }

    #[test]
    fn what_a_logarithmic_scale_does_not_have_is_counted() {
        let picture = pairs(&[[1.0, 2.0], [0.0, 0.0]], true).picture().expect("drawn");
        assert_eq!(picture.data.rows.len(), 1);
        assert!(picture.svg.contains("1 with 0 cannot be drawn"), "{}", picture.svg);
        assert!(pairs(&[[0.0, 0.0]], true).picture().is_err());
        assert!(pairs(&[[f64::NAN, 0.0]], false).picture().is_err());
        assert!(pairs(&[[1.0, 1.0]; labels::ROWS_MAX + 1], false).picture().is_err());
    }
}
