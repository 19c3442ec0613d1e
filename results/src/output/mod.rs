//! How rows become text. stdout is data; words about the run go to stderr or below a table.

mod file;
pub mod latex;
mod records;
pub(crate) mod seal;

use clap::ValueEnum;
use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, ContentArrangement, Table};

pub use file::{Replacement, check_ending, refuse_same_file, write_stream, write_whole};
pub use records::{to_csv, to_json};

/// Output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a person.
    #[default]
    Table,
    /// One object per run, one a line.
    Json,
    /// One line per run, every figure a column.
    Csv,
    /// A table for a document.
    Markdown,
    /// Tables for LaTeX with booktabs.
    Latex,
}

impl Format {
    /// Words and tables for people, which `make` makes plain or as Markdown.
    pub fn words(self, make: impl FnOnce(bool) -> String) -> String {
        match self {
            Self::Latex => latex::of_markdown(&make(true)),
            _ => make(self == Self::Markdown),
        }
    }
}

/// A table in the making: a column is left-aligned if its title ends with `<`.
pub struct Grid {
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// With these column titles.
    pub fn new(titles: &[&str]) -> Self {
        Self { titles: titles.iter().map(|t| (*t).to_owned()).collect(), rows: Vec::new() }
    }

    /// One more row. What comes from a file may hold anything: control characters are shown as dots, long cells are cut.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| plain(cell)).collect());
    }

    /// As text for a terminal, or Markdown. A line that is too wide for a terminal is folded: first titles, then the columns of words, the widest first.
    pub fn print(&self, markdown: bool) -> String {
        let text = self.text(markdown);
        if markdown || width(&text) <= LINE_CHARS_MAX {
            return text;
        }
        let (mut titles, rows) = (self.titles.clone(), self.rows.clone());
        let cells =
            |column: usize| rows.iter().map(move |row| width(&row[column])).max().unwrap_or(0);
        for (column, title) in titles.iter_mut().enumerate() {
            *title = fold(title, cells(column));
        }
        let words: Vec<usize> =
            (0..titles.len()).filter(|column| titles[*column].ends_with('<')).collect();
        let mut folded = Self { titles, rows: rows.clone() };
        for _ in &words {
            let text = folded.text(markdown);
            let over = width(&text).saturating_sub(LINE_CHARS_MAX);
            let longest =
                |column: usize| folded.rows.iter().map(|r| width(&r[column])).max().unwrap_or(0);
            let widest = words.iter().map(|column| (longest(*column), *column)).max();
            let Some((now, column)) = widest.filter(|(now, _)| over > 0 && *now > WORDS_MIN) else {
                return text;
            };
            let most = now.saturating_sub(over).max(WORDS_MIN);
            for (cells, whole) in folded.rows.iter_mut().zip(&rows) {
                cells[column] = fold(&whole[column], most);
            }
        }
        folded.text(markdown)
    }

    fn text(&self, markdown: bool) -> String {
        let mut table = Table::new();
        table.load_style(if markdown { ASCII_MARKDOWN } else { NOTHING });
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.titles.iter().map(|t| t.trim_end_matches('<').to_owned()));
        for row in &self.rows {
            table.add_row(row.clone());
        }
        for (column, title) in table.column_iter_mut().zip(&self.titles) {
            if !title.ends_with('<') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let text = table.to_string();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }
}

/// Longest line of a table for a terminal, in characters, where folding can do it.
const LINE_CHARS_MAX: usize = 160;

/// A column of words is folded to no fewer characters than this.
const WORDS_MIN: usize = 32;

/// Characters of the longest line.
fn width(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// In lines of at most `most` characters, broken behind spaces, commas and slashes; longer pieces stay whole.
pub(crate) fn fold(text: &str, most: usize) -> String {
    let mut lines = vec![String::new()];
    for piece in text.split_inclusive([' ', ',', '/']) {
        let line = lines.last_mut().map(|line| (width(line), line));
        match line {
            Some((long, line)) if long == 0 || long + width(piece.trim_end()) <= most => {
                line.push_str(piece);
            }
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Longest text of a cell, in characters.
const CELL_CHARS_MAX: usize = 160;

/// Does a character do more than stand there: move a cursor, or turn the direction of writing?
pub fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    c.is_control() || turns
}

/// A text that may hold anything, for a terminal: characters that act are shown as dots.
pub fn still(text: &str) -> String {
    text.chars().map(|c| if acts(c) { '·' } else { c }).collect()
}

/// The same, cut where it is too long for a cell.
pub fn plain(cell: &str) -> String {
    let mut text: String = still(cell).chars().take(CELL_CHARS_MAX).collect();
    if cell.chars().nth(CELL_CHARS_MAX).is_some() {
        text.push('…');
    }
    text
}

/// `1.234` for a ratio, or a dash.
pub fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"))
}

/// `12.3 %`, or a dash.
pub fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{:.1} %", v * 100.0))
}

/// Bytes as a person reads a column of them: MiB with one decimal.
pub fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(setting: &str, columns: usize) -> Grid {
        let titles =
            ["setting<"].into_iter().chain(std::iter::repeat_n("peak reserved MiB", columns));
        let mut grid = Grid::new(&titles.collect::<Vec<_>>());
        let figures = std::iter::repeat_n("80382.0".to_owned(), columns);
        grid.row(std::iter::once(setting.to_owned()).chain(figures).collect());
        grid
    }

    #[test]
    fn a_table_is_folded_only_if_it_is_too_wide() {
        let setting = ["garbage_collection_threshold:0.8"; 3].join(",");
        let lines = |grid: &Grid| grid.print(false).lines().count();
        assert_eq!(lines(&grid(&setting, 2)), 2);
        assert_eq!(lines(&grid(&setting, 4)), 4, "titles");
        let wide = grid(&setting, 8);
        assert_eq!(lines(&wide), 5, "{}", wide.print(false));
        assert!(width(&wide.print(false)) <= LINE_CHARS_MAX);
        assert_eq!(wide.print(true).lines().count(), 3);
    }

    #[test]
    fn nothing_but_spaces_at_breaks_is_lost() {
        assert_eq!(fold("peak reserved MiB", 8), "peak\nreserved\nMiB");
        assert_eq!(fold("a:1,b:2,c:3", 8), "a:1,b:2,\nc:3");
        assert_eq!(fold("/usr/lib/x.py:12 f", 6), "/usr/\nlib/\nx.py:12\nf");
        assert_eq!(fold("none_to_break", 4), "none_to_break");
    }
}
