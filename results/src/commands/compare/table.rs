//! Rows as tables: one block for each input, and for several seeds what they agree on.

use vramlab_sim::report::Answers;

use super::{replications, serving, steady};
use crate::output::{Format, Grid, mib, percent, ratio, still, to_csv, to_json};
use crate::row::{KvRow, Row};

/// Rows as text; as a table, one block per input, with the figures at marks if asked for.
pub fn render(rows: &[Row], format: Format, marks: bool) -> String {
    match format {
        Format::Json => to_json(rows),
        Format::Csv => csv(rows),
        Format::Table | Format::Markdown | Format::Latex => {
            format.words(|markdown| blocks(rows, markdown, marks))
        }
    }
}

/// One line a run has no room for the figures at marks.
pub(super) fn csv(rows: &[Row]) -> String {
    let flat = |row: &Row| Row { marks: Vec::new(), ..row.clone() };
    to_csv(&rows.iter().map(flat).collect::<Vec<_>>())
}

/// A column of a table, and what a row has for it.
pub(super) type Column = (&'static str, fn(&Row) -> String);

/// For requests of memory.
const COLUMNS: &[Column] = &[
    ("strategy<", |row| row.strategy.clone()),
    ("outcome<", |row| row.outcome.to_owned()),
    ("peak reserved MiB", |row| mib(row.peak_reserved)),
    ("overhead", |row| ratio(row.overhead)),
    ("fragmentation", |row| percent(row.fragmentation)),
    ("internal", |row| percent(row.internal_frag)),
    ("driver calls", |row| row.memory_calls().to_string()),
    ("stall ms", |row| format!("{:.2}", row.stall_total_ns as f64 / 1e6)),
    ("alloc p99 µs", |row| format!("{:.2}", row.alloc_ns.p99 as f64 / 1e3)),
    ("ooms", |row| (row.ooms + row.invalid_sizes).to_string()),
    ("races", |row| row.races.to_string()),
];

/// For sequences of a cache.
const KV_COLUMNS: &[Column] = &[
    ("strategy<", |row| row.strategy.clone()),
    ("outcome<", |row| row.outcome.to_owned()),
    ("peak reserved MiB", |row| mib(row.peak_reserved)),
    ("peak allocated MiB", |row| mib(row.peak_allocated)),
    ("internal", |row| percent(row.internal_frag)),
    ("hit rate", |row| percent(row.kv.as_ref().and_then(|kv| kv.hit_rate))),
    ("most sequences", |row| count(row, |kv| kv.peak_sequences)),
    ("refused", |row| count(row, |kv| kv.refused_sequences + kv.refused_tokens)),
    ("driver calls", |row| row.memory_calls().to_string()),
    ("stall ms", |row| format!("{:.2}", row.stall_total_ns as f64 / 1e6)),
    ("alloc p99 µs", |row| format!("{:.2}", row.alloc_ns.p99 as f64 / 1e3)),
];

/// Where there are requests from outside: what they waited for.
const REQUESTS: Column = ("request ms P50/90/99", |row| {
    let Some(spread) = row.request_ns else { return "-".to_owned() };
    [spread.p50, spread.p90, spread.p99].map(|ns| serving::three(ns as f64 / 1e6)).join(" / ")
});

/// Where a service may refuse to answer.
const ANSWERS: [Column; 3] = [
    ("answered", |row| answers(row, |answers| answers.answered)),
    ("of them shed", |row| answers(row, |answers| answers.shed)),
    ("turned away", |row| answers(row, |answers| answers.turned_away)),
];

fn answers(row: &Row, of: fn(&Answers) -> u64) -> String {
    row.answers.as_ref().map_or_else(|| "-".to_owned(), |answers| of(answers).to_string())
}

/// Where it was searched for.
const MIN_CAPACITY: Column =
    ("min capacity MiB", |row| row.min_capacity.map_or("-".to_owned(), mib));

fn count(row: &Row, of: fn(&KvRow) -> u64) -> String {
    row.kv.as_ref().map_or_else(|| "-".to_owned(), |kv| of(kv).to_string())
}

fn blocks(rows: &[Row], markdown: bool, marks: bool) -> String {
    let mut text = String::new();
    for block in rows.chunk_by(|a, b| a.input == b.input && a.seed == b.seed) {
        let first = &block[0];
        let seed = first.seed.map_or(String::new(), |s| format!(", seed {s}"));
        let ops = block.iter().map(|r| r.ops).max().unwrap_or(0);
        let mut heading = format!("{}{seed}: {ops} ops", still(&first.input));
        let sequences = block.iter().any(|row| row.kv.is_some());
        let columns = match block.iter().any(|row| row.served.is_some()) {
            true => serving::COLUMNS,
            false if sequences => KV_COLUMNS,
            false => COLUMNS,
        };
        if !sequences {
            // with sequences it depends on how much a cache lets them share
            let floor = block.iter().find(|r| r.ran()).map_or(0, |r| r.live_floor);
            heading += &format!(", live floor {} MiB", mib(floor));
        }
        text += &if markdown { format!("### {heading}\n\n") } else { format!("{heading}\n") };
        let searched = block.iter().any(|row| row.min_capacity.is_some());
        let requests = block.iter().any(|row| row.request_ns.is_some() && row.served.is_none());
        let answers = block.iter().any(|row| row.answers.is_some());
        let mut columns = columns.to_vec();
        columns.extend(requests.then_some(REQUESTS));
        columns.extend(ANSWERS.iter().filter(|_| answers));
        columns.extend(searched.then_some(MIN_CAPACITY));
        let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
        let mut grid = Grid::new(&titles);
        for row in block {
            if row.ran() {
                grid.row(columns.iter().map(|(_, cell)| cell(row)).collect());
            } else {
                let mut cells = vec![row.strategy.clone(), row.outcome.to_owned()];
                cells.resize(columns.len(), "-".to_owned());
                grid.row(cells);
            }
        }
        text += &grid.print(markdown);
        text += "\n";
        for row in block.iter().filter(|r| !r.ran()) {
            text += &format!(
                "{}: {}: {}\n",
                if row.broke() { "ended early" } else { "left out" },
                row.strategy,
                row.reason.as_deref().unwrap_or("no reason given")
            );
        }
        for row in block {
            for note in &row.notes {
                text += &format!("note: {}: {note}\n", row.strategy);
            }
        }
        if let Some(words) = serving::answered(block) {
            text += &format!("note: {words}\n");
        }
        if let Some(assumes) = block.iter().find_map(|row| row.assumes) {
            text += &format!("times: {assumes}\n");
        }
        if !replications::several(rows, &first.input) {
            text += &steady::table(block, markdown);
        }
        for row in block.iter().filter(|row| marks && !row.marks.is_empty()) {
            text += &format!("\nat the marks of {}, {}:\n", row.input, row.strategy);
            text += &(at_marks(row, markdown) + "\n");
        }
        text += "\n";
    }
    text + &replications::tables(rows, markdown)
}

fn at_marks(row: &Row, markdown: bool) -> String {
    let mut grid = Grid::new(&[
        "mark<",
        "op",
        "requested MiB",
        "allocated MiB",
        "active MiB",
        "reserved MiB",
        "peak reserved MiB",
    ]);
    for mark in &row.marks {
        let bytes =
            [mark.requested, mark.allocated, mark.active, mark.reserved, mark.peak_reserved];
        let mut cells = vec![mark.name.clone(), mark.op.to_string()];
        cells.extend(bytes.map(mib));
        grid.row(cells);
    }
    grid.print(markdown)
}
