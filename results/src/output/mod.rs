//! How rows become text. stdout is data; words about the run go to stderr or below a table.

mod file;
mod records;

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

    /// As text for a terminal, or Markdown.
    pub fn print(&self, markdown: bool) -> String {
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

/// Longest text of a cell, in characters.
const CELL_CHARS_MAX: usize = 160;

fn plain(cell: &str) -> String {
    let shown = |c: char| if c.is_control() { '·' } else { c };
    let mut text: String = cell.chars().map(shown).take(CELL_CHARS_MAX).collect();
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
