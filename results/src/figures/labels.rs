//! Labels of rows: what stands left of bars, pairs and cells.

use plotters::style::text_anchor::{HPos, VPos};

use super::sheet::{Area, Drawn, LABEL, WIDTH, colour, font, text};
use crate::output::{fold, plain};

/// Most rows of a picture.
pub const ROWS_MAX: usize = 80;
/// Pixels of a row with the space around it.
const ROW: u32 = 30;
/// Pixels of a line of a label.
const LINE: i32 = 20;
/// Pixels of a character of a label.
const CHAR: u32 = 11;
/// Characters of the longest line of a label.
const CHARS_MAX: usize = 40;
/// Lines of a label at most.
const LINES_MAX: usize = 2;

/// A label in lines; what is longer is cut.
fn lines(label: &str) -> Vec<String> {
    let text = fold(&plain(label), CHARS_MAX);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let cut = lines.len() > LINES_MAX;
    lines.truncate(LINES_MAX);
    if let Some(last) = lines.last_mut()
        && (cut || last.chars().count() > CHARS_MAX)
    {
        *last = last.chars().take(CHARS_MAX - 1).chain(['…']).collect();
    }
    lines
}

/// Pixels of a row, high enough for each of the labels.
pub fn row_height<'a>(labels: impl Iterator<Item = &'a str>) -> u32 {
    let most = labels.map(|label| lines(label).len()).max().unwrap_or(1);
    ROW + LINE as u32 * (most as u32).saturating_sub(1)
}

/// Pixels across for the widest of them.
pub fn width<'a>(labels: impl Iterator<Item = &'a str>) -> u32 {
    let longest = labels.flat_map(lines).map(|line| line.chars().count()).max();
    (longest.unwrap_or(0) as u32 * CHAR + 14).min(WIDTH / 2)
}

/// Writes one, right-aligned, its middle at a place.
///
/// # Errors
/// None that an input can cause.
pub fn draw(area: &Area<'_>, label: &str, (right, middle): (i32, i32)) -> Drawn {
    let font = font(LABEL, colour::BLACK).anchor(HPos::Right, VPos::Center);
    let lines = lines(label);
    let first = middle - LINE * (lines.len() as i32 - 1) / 2;
    for (line, number) in lines.iter().zip(0..) {
        text(area, line, (right, first + LINE * number), &font)?;
    }
    Ok(())
}

/// A label in a title: without the brackets around the whole of it.
pub fn told(label: &str) -> &str {
    label.strip_prefix('(').and_then(|label| label.strip_suffix(')')).unwrap_or(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_labels_are_two_lines_at_most() {
        let label = ["word,"; 30].join(" ");
        let found = lines(&label);
        assert_eq!(found.len(), 2);
        assert!(found[1].ends_with('…') && found.iter().all(|l| l.chars().count() <= CHARS_MAX));
    }
}
