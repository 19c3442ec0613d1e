//! What a picture is drawn on: title, words under it, legend, and below them the place for charts.

use std::fmt::Display;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale;
use crate::failure::Failure;
use crate::output::fold;
use crate::report::history::shown;

/// Pixels of a picture's breadth; at half a page (16 cm) a pixel is 0.16 mm, and text of 21 is drawn 17 high and has 8 points.
pub const WIDTH: u32 = 1000;
/// Of charts, unless a picture says otherwise.
pub const HEIGHT: u32 = 480;

const TITLE: i32 = 28;
const WORDS: i32 = 21;
/// Text of axes.
pub const LABEL: i32 = 21;
const MARGIN: i32 = 14;
/// Characters of a line at these sizes.
const TITLE_CHARS: usize = 72;
const WORDS_CHARS: usize = 94;
/// Pixels of a character of a legend.
const CHAR: i32 = 10;

/// Rule `colours`.
pub mod colour {
    use plotters::style::RGBColor;

    /// For lines and text.
    pub const BLACK: RGBColor = RGBColor(0, 0, 0);
    /// Okabe-Ito.
    pub const ORANGE: RGBColor = RGBColor(230, 159, 0);
    /// Okabe-Ito.
    pub const SKY: RGBColor = RGBColor(86, 180, 233);
    /// Okabe-Ito.
    pub const GREEN: RGBColor = RGBColor(0, 158, 115);
    /// Okabe-Ito.
    pub const YELLOW: RGBColor = RGBColor(240, 228, 66);
    /// Okabe-Ito.
    pub const BLUE: RGBColor = RGBColor(0, 114, 178);
    /// Okabe-Ito.
    pub const VERMILLION: RGBColor = RGBColor(213, 94, 0);
    /// Okabe-Ito.
    pub const PURPLE: RGBColor = RGBColor(204, 121, 167);
    /// For what is of no category.
    pub const GREY: RGBColor = RGBColor(170, 170, 170);
    /// For words under the title.
    pub const DARK: RGBColor = RGBColor(80, 80, 80);
    /// For lines of a grid.
    pub const PALE: RGBColor = RGBColor(225, 225, 225);

    /// Of lines, in the order in which they are used.
    pub const LINES: [RGBColor; 8] = [BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY];
}

/// Where a picture is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What may go wrong while drawing: nothing that an input can cause.
pub type Drawn = Result<(), Trouble>;

/// An error of the drawing library.
#[derive(Debug)]
pub struct Trouble(String);

impl<E: Display> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// How a legend shows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A filled area.
    Area,
    /// A line.
    Line,
    /// A broken line.
    Dashed,
    /// A cross.
    Cross,
}

/// One entry of a legend.
#[derive(Clone, Debug)]
pub struct Key {
    /// What it says.
    pub text: String,
    /// In which colour.
    pub colour: RGBColor,
    /// How.
    pub look: Look,
}

impl Key {
    /// An entry.
    pub fn new(text: impl Into<String>, colour: RGBColor, look: Look) -> Self {
        Self { text: text.into(), colour, look }
    }
}

/// All but the charts.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// What is to be seen.
    pub title: String,
    /// Of what, on what.
    pub words: String,
    /// The legend.
    pub legend: Vec<Key>,
    /// Pixels for the charts.
    pub height: u32,
}

impl Sheet {
    /// Without a legend. Names may come from a file and hold anything.
    pub fn new(title: &str, words: &str) -> Self {
        Self { title: shown(title), words: shown(words), legend: Vec::new(), height: HEIGHT }
    }

    /// Draws it, and lets `charts` draw the rest; gives the SVG's text.
    ///
    /// # Errors
    /// None that an input can cause.
    pub fn draw(&self, charts: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, Failure> {
        let lines = |text: &str, most| -> Vec<String> {
            fold(&joined(text), most)
                .lines()
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let (title, words) = (lines(&self.title, TITLE_CHARS), lines(&self.words, WORDS_CHARS));
        let legend = self.legend_rows();
        let text_height = MARGIN
            + title.len() as i32 * (TITLE + 6)
            + words.len() as i32 * (WORDS + 5)
            + legend.len() as i32 * (WORDS + 8)
            + 6;
        let size = (WIDTH, text_height as u32 + self.height + MARGIN as u32);
        let mut svg = String::new();
        let drawn = || -> Drawn {
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            root.fill(&WHITE)?;
            let mut y = MARGIN;
            for line in &title {
                text(&root, line, (MARGIN, y), &font(TITLE, colour::BLACK).style(FontStyle::Bold))?;
                y += TITLE + 6;
            }
            for line in &words {
                text(&root, line, (MARGIN, y), &font(WORDS, colour::DARK))?;
                y += WORDS + 5;
            }
            for row in &legend {
                for (key, x) in row {
                    swatch(&root, key, (*x, y))?;
                }
                y += WORDS + 8;
            }
            let (_, below) = root.split_vertically(text_height);
            charts(&below)?;
            root.present()?;
            Ok(())
        };
        drawn().map_err(|Trouble(error)| Failure::input(format!("the picture: {error}")))?;
        Ok(named(&svg, &self.title))
    }

    /// Entries with their places, row by row.
    fn legend_rows(&self) -> Vec<Vec<(&Key, i32)>> {
        let mut rows: Vec<Vec<(&Key, i32)>> = Vec::new();
        let mut x = i32::MAX;
        for key in &self.legend {
            let width = 34 + key.text.chars().count() as i32 * CHAR + 18;
            if x.saturating_add(width) > WIDTH as i32 - MARGIN {
                rows.push(Vec::new());
                x = MARGIN;
            }
            if let Some(row) = rows.last_mut() {
                row.push((key, x));
            }
            x += width;
        }
        rows
    }
}

/// A number and its unit stay on one line.
fn joined(text: &str) -> String {
    const UNITS: [&str; 12] =
        ["B", "KiB", "MiB", "GiB", "TiB", "MB", "GB", "%", "ns", "µs", "ms", "s"];
    let mut out = String::new();
    for word in text.split(' ') {
        let unit = word.trim_end_matches([',', ';', ':', ')', '.']);
        let joins = out.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit);
        out += match out.is_empty() {
            true => "",
            false if joins => "\u{a0}",
            false => " ",
        };
        out += word;
    }
    out
}

/// What a screen reader says of it.
fn named(svg: &str, title: &str) -> String {
    let mut escaped = String::new();
    for c in title.chars() {
        match c {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            c => escaped.push(c),
        }
    }
    match svg.split_once(">\n") {
        Some((head, rest)) => format!("{head} role=\"img\">\n<title>{escaped}</title>\n{rest}"),
        None => svg.to_owned(),
    }
}

/// Text of a picture. The family is the viewer's own.
pub struct Font {
    size: i32,
    colour: RGBColor,
    style: FontStyle,
    anchor: Pos,
}

/// At this size, from its upper left corner.
pub fn font(size: i32, colour: RGBColor) -> Font {
    Font { size, colour, style: FontStyle::Normal, anchor: Pos::new(HPos::Left, VPos::Top) }
}

impl Font {
    /// In this style.
    #[must_use]
    pub const fn style(mut self, style: FontStyle) -> Self {
        self.style = style;
        self
    }

    /// From this point of it.
    #[must_use]
    pub fn anchor(mut self, h: HPos, v: VPos) -> Self {
        self.anchor = Pos::new(h, v);
        self
    }
}

/// Writes text into a picture, at pixels.
///
/// # Errors
/// None that an input can cause.
pub fn text(area: &Area<'_>, words: &str, at: (i32, i32), font: &Font) -> Drawn {
    let style = TextStyle::from(("sans-serif", font.size, font.style).into_font())
        .color(&font.colour)
        .pos(font.anchor);
    area.draw(&Text::new(shown(words), at, style))?;
    Ok(())
}

fn swatch(area: &Area<'_>, key: &Key, (x, y): (i32, i32)) -> Drawn {
    let middle = y + WORDS / 2;
    let line = key.colour.stroke_width(3);
    match key.look {
        Look::Area => {
            let corners = [(x, middle - 8), (x + 26, middle + 8)];
            area.draw(&Rectangle::new(corners, key.colour.filled()))?;
            area.draw(&Rectangle::new(corners, colour::DARK.stroke_width(1)))?;
        }
        Look::Line => area.draw(&PathElement::new(vec![(x, middle), (x + 26, middle)], line))?,
        Look::Dashed => {
            for dash in [x, x + 10, x + 20] {
                area.draw(&PathElement::new(vec![(dash, middle), (dash + 6, middle)], line))?;
            }
        }
        Look::Cross => area.draw(&Cross::new((x + 13, middle), 7, line))?,
    }
    text(area, &key.text, (x + 34, y), &font(WORDS, colour::BLACK))
}

/// Draws the axes of a chart with a pale grid, and what each is.
///
/// # Errors
/// None that an input can cause.
pub fn axes<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    x: &str,
    y: &str,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    axes_labelled(chart, (x, 9, &|x| scale::tick(*x)), y)
}

/// What an axis is, about how many labels it has, and what they say.
pub type Labels<'r> = (&'r str, usize, &'r dyn Fn(&f64) -> String);

/// The same with labels of one's own across.
///
/// # Errors
/// None that an input can cause.
pub fn axes_labelled<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    (x, labels, label): Labels<'_>,
    y: &str,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(colour::PALE)
        .axis_style(colour::DARK)
        .x_labels(labels)
        .y_labels(7)
        .x_label_formatter(&|x| label(x))
        .y_label_formatter(&|y| scale::tick(*y))
        .label_style(("sans-serif", LABEL))
        .axis_desc_style(("sans-serif", LABEL + 1))
        .x_desc(x)
        .y_desc(y)
        .draw()?;
    Ok(())
}

/// The same for bars that lie: only the scale under them.
///
/// # Errors
/// None that an input can cause.
pub fn across<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    x: &str,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(colour::PALE)
        .axis_style(colour::DARK)
        .x_labels(7)
        .y_labels(0)
        .x_label_formatter(&|x| scale::tick(*x))
        .label_style(("sans-serif", LABEL))
        .axis_desc_style(("sans-serif", LABEL + 1))
        .x_desc(x)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_are_text() {
        let sheet = Sheet::new("<script> & \u{1b}[31m", "\"words\"");
        let svg = sheet.draw(|_| Ok(())).expect("drawn");
        assert!(!svg.contains("<script"), "{svg}");
        assert!(svg.contains("<title>&lt;script&gt; &amp; \\u{1b}[31m</title>"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn numbers_keep_their_units() {
        let text = joined("at 1.03 s (before), 9 requests, 16 GiB");
        assert_eq!(text, "at 1.03\u{a0}s (before), 9 requests, 16\u{a0}GiB");
    }

    #[test]
    fn a_long_legend_has_rows() {
        let mut sheet = Sheet::new("t", "");
        sheet.legend = (0..9)
            .map(|n| Key::new(format!("a strategy with a name {n}"), colour::BLUE, Look::Line))
            .collect();
        let rows = sheet.legend_rows();
        assert!(rows.len() > 1 && rows.iter().flatten().count() == 9);
        assert!(rows.iter().flatten().all(|(_, x)| *x < WIDTH as i32));
    }
}
