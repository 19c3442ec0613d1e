//! A plain table as a map: a cell for each figure, darker where it is greater, with the figure in it.
//!
//! Colours go from the least figure to the greatest, or between two given ends: a few figures far off would leave all others alike.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::sheet::{Drawn, Sheet, WIDTH, colour, font, text};
use super::{Data, Picture, labels, scale};
use crate::failure::Failure;

/// Most columns of a picture.
pub const COLUMNS_MAX: usize = 12;
/// Pixels of a row.
const ROW: i32 = 27;
/// Pixels of a line of the names of columns.
const LINE: i32 = 22;
/// Pixels above the rows: neighbouring names stand in two lines, so that each has twice the room of its column.
const ABOVE: i32 = 10 + 2 * LINE;
/// Size of the text in cells.
const TEXT: i32 = 19;

/// All of a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat {
    /// What the figures are.
    pub name: String,
    /// Their unit.
    pub unit: String,
    /// Under the title.
    pub words: String,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Name and figures of each row; none where there is none.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
    /// Colours follow the logarithms.
    pub log: bool,
    /// Of the colours; what is beyond has the colour of the end.
    pub ends: Option<[f64; 2]>,
}

impl Heat {
    /// Row, column and figure of each cell that has one.
    fn cells(&self) -> impl Iterator<Item = (&str, &str, f64)> {
        self.rows.iter().flat_map(|(row, values)| {
            let columns = self.columns.iter().map(String::as_str);
            columns
                .zip(values)
                .filter_map(move |(column, value)| Some((row.as_str(), column, (*value)?)))
        })
    }

    /// What is to be seen: the least, the greatest and the one in the middle.
    fn title(&self) -> String {
        let mut all: Vec<(&str, &str, f64)> = self.cells().collect();
        all.sort_by(|a, b| a.2.total_cmp(&b.2));
        let (Some(least), Some(most)) = (all.first(), all.last()) else {
            return self.name.clone();
        };
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let tell = |(row, column, value): (&str, &str, f64)| {
            format!("{}{unit} ({row}, {column})", scale::three(value))
        };
        let middle = scale::three(all[(all.len() - 1) / 2].2);
        format!(
            "{}: from {} to {}, {middle}{unit} in the middle",
            self.name,
            tell(*least),
            tell(*most)
        )
    }

    /// From 0, the lightest, to 1.
    fn shade(&self, value: f64, (least, most): (f64, f64)) -> f64 {
        let at = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let span = at(most) - at(least);
        if span > 0.0 { ((at(value) - at(least)) / span).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The ends of the colours; with logarithms of what is above 0.
    fn ends(&self) -> (f64, f64) {
        if let Some([least, most]) = self.ends {
            return (least, most);
        }
        let values = || self.cells().map(|(_, _, value)| value).filter(|v| !self.log || *v > 0.0);
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        (values().fold(f64::INFINITY, f64::min), most)
    }

    /// Draws it.
    ///
    /// # Errors
    /// No figures, too many rows or columns, or a figure that is no number.
    pub fn picture(&self) -> Result<Picture, Failure> {
        let (rows, columns) = (self.rows.len(), self.columns.len());
        let empty = self.cells().next().is_none();
        if empty || rows > labels::ROWS_MAX || columns > COLUMNS_MAX {
            let what = if empty { ", none with a figure" } else { "" };
            return Err(Failure::input(format!(
                "{}: found {rows} rows and {columns} columns to draw{what}, expected 1 to {} and 1 to {COLUMNS_MAX}",
                self.name,
                labels::ROWS_MAX
            )));
        }
        if let Some((row, column, value)) = self.cells().find(|(_, _, value)| !value.is_finite()) {
            let name = &self.name;
            return Err(Failure::input(format!(
                "{name}: {row}, {column} has the figure {value}, which is no number"
            )));
        }
        let title = self.title();
        let mut words = self.words.clone();
        if let Some([least, most]) = self.ends.map(|ends| ends.map(scale::tick)) {
            words += &format!("; colours end at {least} and {most}");
        }
        let mut sheet = Sheet::new(&title, &words);
        sheet.height = (ABOVE + rows as i32 * ROW) as u32;
        let left = labels::width(self.rows.iter().map(|(label, _)| &**label)) as i32;
        let wide = (WIDTH as i32 - left - 14) / columns as i32;
        let ends = self.ends();
        let svg = sheet.draw(|area| -> Drawn {
            let at =
                |column: usize, row: usize| (left + column as i32 * wide, ABOVE + row as i32 * ROW);
            for (column, name) in self.columns.iter().enumerate() {
                let (x, y) = at(column, 0);
                let style = font(TEXT, colour::BLACK).anchor(HPos::Center, VPos::Bottom);
                let line = if column % 2 == 1 { LINE } else { 0 };
                text(area, name, (x + wide / 2, y - 6 - line), &style)?;
            }
            for (row, (label, values)) in self.rows.iter().enumerate() {
                labels::draw(area, label, (left - 8, at(0, row).1 + ROW / 2))?;
                for (column, value) in values.iter().enumerate() {
                    let (x, y) = at(column, row);
                    let Some(value) = value else {
                        let style = font(TEXT, colour::GREY).anchor(HPos::Center, VPos::Center);
                        text(area, "-", (x + wide / 2, y + ROW / 2), &style)?;
                        continue;
                    };
                    let shade = self.shade(*value, ends);
                    let corners = [(x, y), (x + wide - 1, y + ROW - 1)];
                    area.draw(&Rectangle::new(corners, tint(shade).filled()))?;
                    let ink = if shade > 0.55 { WHITE } else { colour::BLACK };
                    let style = font(TEXT, ink).anchor(HPos::Center, VPos::Center);
                    text(area, &scale::three(*value), (x + wide / 2, y + ROW / 2), &style)?;
                }
            }
            Ok(())
        })?;
        Ok(Picture { title, svg, data: self.data() })
    }

    fn data(&self) -> Data {
        let mut data = Data::new(&["row", "column", "figure", "unit", "value"]);
        for (row, column, value) in self.cells() {
            let cell = [row, column, &self.name, &self.unit].map(str::to_owned);
            data.rows.push(cell.into_iter().chain([value.to_string()]).collect());
        }
        data
    }
}

/// One hue, from pale to dark: it keeps its order in grey and for any kind of colour vision.
fn tint(shade: f64) -> RGBColor {
    let of = |from: f64, to: f64| (from + (to - from) * shade).round() as u8;
    RGBColor(of(238.0, 0.0), of(245.0, 60.0), of(251.0, 115.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat(rows: &[&[Option<f64>]], log: bool) -> Heat {
        let columns = rows[0].len();
        let row =
            |(number, values): (usize, &&[Option<f64>])| (format!("r{number}"), values.to_vec());
        Heat {
            name: "n".to_owned(),
            columns: (0..columns).map(|column| format!("c{column}")).collect(),
            rows: rows.iter().enumerate().map(row).collect(),
            log,
            ..Heat::default()
        }
    }

    #[test]
    fn titles_tell_ends_and_middle() {
        let map = heat(&[&[Some(4.0), None], &[Some(1.0), Some(2.0)]], false);
        assert_eq!(map.title(), "n: from 1 (r1, c0) to 4 (r0, c0), 2 in the middle");
    }

    #[test]
    fn greater_figures_are_darker() {
        for (log, middle) in [(false, 0.3), (true, 0.5)] {
            let map = heat(&[&[Some(1.0), Some(10.0), Some(100.0)]], log);
            let ends = map.ends();
            assert_eq!((map.shade(1.0, ends), map.shade(100.0, ends)), (0.0, 1.0));
            assert!((map.shade(10.0, ends) < middle + 1e-9) && map.shade(10.0, ends) > 0.0);
        }
        let lightness = |shade: f64| {
            let RGBColor(r, g, b) = tint(shade);
            u32::from(r) + u32::from(g) + u32::from(b)
        };
        assert!(lightness(0.0) > lightness(0.5) && lightness(0.5) > lightness(1.0));
    }

    #[test]
    fn what_cannot_be_drawn_is_an_error() {
        assert!(heat(&[&[None]], false).picture().is_err());
        assert!(heat(&[&[Some(f64::INFINITY)]], false).picture().is_err());
        assert!(heat(&[&[Some(1.0); COLUMNS_MAX + 1]], false).picture().is_err());
        assert!(heat(&[&[Some(0.0), Some(1.0)]], true).picture().is_ok());
    }
}
