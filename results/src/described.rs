//! Files that have nothing to be replayed, in figures: requests to a server, sizes of pages, states of an allocator.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Serialize, Serializer};
use vramlab_workloads::readers::bytes::Bytes;
use vramlab_workloads::readers::format::Format;
use vramlab_workloads::readers::requests::Requests;
use vramlab_workloads::readers::sizes;
use vramlab_workloads::readers::states::summary::{MemorySummary, Pool};
use vramlab_workloads::readers::states::timeline::CATEGORIES;
use vramlab_workloads::readers::states::{Quantity, bfc, summary, timeline};

use crate::failure::Failure;
use crate::output::{Grid, mib};

/// What is in a file, or in one of several states in it.
#[derive(Debug, Default, Serialize)]
pub struct Described {
    input: String,
    format: &'static str,
    /// Its own name, such as that of an allocator.
    of: Option<String>,
    figures: Vec<Figure>,
    table: Option<Table>,
    /// What is missing in it, and the like.
    remarks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    value: u64,
    unit: &'static str,
}

#[derive(Debug, Default, Serialize)]
struct Table {
    title: &'static str,
    /// Sizes are bytes.
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug)]
enum Cell {
    Text(String),
    Count(u64),
    Bytes(u64),
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Count(number) | Self::Bytes(number) => serializer.serialize_u64(*number),
        }
    }
}

/// Reads a file of a format that carries no ops.
///
/// # Errors
/// It cannot be read, or a line is bad.
pub fn describe(path: &Path, format: Format, input: Bytes) -> Result<Vec<Described>, Failure> {
    let origin = path.display().to_string();
    let all = match format {
        Format::Requests => Requests::new(input, &*origin).and_then(requests).map(|one| vec![one]),
        Format::Sizes => sizes::read(input, &origin).map(|list| vec![sizes_of(&list)]),
        Format::Timeline => timeline::read(input, &origin).map(|line| vec![timeline_of(&line)]),
        Format::BfcDump => bfc::read(input, &origin).map(|all| all.iter().map(dump).collect()),
        _ => summary::read(input, &origin).map(|all| all.iter().map(table_of).collect()),
    };
    let mut all: Vec<Described> = all.map_err(Failure::input)?;
    for one in &mut all {
        (one.input, one.format) = (super::inputs::file_name(path), format.doc().name);
    }
    Ok(all)
}

fn requests<R: std::io::Read>(
    mut requests: Requests<R>,
) -> Result<Described, vramlab_sim::source::SourceError> {
    let (mut count, mut known, mut measured, mut last) = (0, 0, 0, None);
    let (mut prompts, mut outputs) = (Span::default(), Span::default());
    while let Some(request) = requests.next()? {
        count += 1;
        last = request.arrival;
        prompts.add(request.prompt_tokens);
        outputs.add(request.output_tokens);
        known += requests.keys().iter().map(|run| run.count).sum::<u64>();
        measured += u64::from(request.measured.is_some());
    }
    let mut one = Described::default();
    one.figure("requests", count, "requests");
    if let Some(last) = last {
        one.figure("last arrival", last.0, "ns");
    }
    if last.is_none() && count > 0 {
        one.remarks.push("no times of arrival in it: a server that serves it draws them (parameters arrivals, rate)".to_owned());
    }
    one.figure("prompt tokens", prompts.sum, "tokens");
    let lengths = [
        ("median prompt", prompts.quantile(50)),
        ("P95 of prompts", prompts.quantile(95)),
        ("longest prompt", Some(prompts.most)),
    ];
    one.lengths(&lengths);
    one.figure("output tokens", outputs.sum, "tokens");
    let lengths = [
        ("median output", outputs.quantile(50)),
        ("P95 of outputs", outputs.quantile(95)),
        ("longest output", Some(outputs.most)),
    ];
    one.lengths(&lengths);
    one.figure("prompt tokens with known text", known, "tokens");
    one.figure("requests with measured times", measured, "requests");
    Ok(one)
}

/// Most different lengths that are told apart; with more, there are no quantiles.
const LENGTHS_MAX: usize = 1 << 20;

#[derive(Default)]
struct Span {
    sum: u64,
    most: u64,
    count: u64,
    /// How many have each length.
    lengths: BTreeMap<u64, u64>,
}

impl Span {
    fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.most = self.most.max(value);
        self.count += 1;
        if self.lengths.len() <= LENGTHS_MAX {
            *self.lengths.entry(value).or_default() += 1;
        }
    }

    /// The length that so many of a hundred do not pass (nearest rank); none of no lengths, or of too many different ones.
    fn quantile(&self, percent: u64) -> Option<u64> {
        if self.lengths.len() > LENGTHS_MAX {
            return None;
        }
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100);
        let mut seen = 0;
        self.lengths.iter().find_map(|(length, count)| {
            seen += u128::from(*count);
            (seen >= rank).then_some(*length)
        })
    }
}

fn sizes_of(list: &sizes::SizeList) -> Described {
    let mut one = Described::default();
    one.figure(
        if list.parts { "lines or crops of pages" } else { "pages or single crops" },
        list.sizes.len() as u64,
        "",
    );
    let most = |of: fn(&sizes::Size) -> u64| list.sizes.iter().map(of).max().unwrap_or(0);
    one.figure("greatest width", most(|size| u64::from(size.width)), "px");
    one.figure("greatest height", most(|size| u64::from(size.height)), "px");
    let largest = most(|size| u64::from(size.width) * u64::from(size.height));
    one.figure("largest area", largest, "px");
    let unreadable = list.sizes.iter().filter(|size| size.unreadable).count();
    one.figure("marked unreadable", unreadable as u64, "");
    one
}

fn timeline_of(line: &timeline::Timeline) -> Described {
    let mut one = Described::default();
    one.figure("points", line.points.len() as u64, "points");
    line.missing.iter().for_each(|missing| one.lacks(missing));
    let Some(peak) = line.peak() else { return one };
    one.figure("peak", u64::try_from(peak.total()).unwrap_or(0), "B");
    let start = line.points[0].time;
    one.figure("peak after", peak.time - start, "ns");
    one.figure("length", line.points.last().map_or(0, |last| last.time - start), "ns");
    let bytes = |index: usize| Cell::Bytes(u64::try_from(peak.bytes[index]).unwrap_or(0));
    let row = |(index, name): (usize, &&str)| vec![Cell::Text((*name).to_owned()), bytes(index)];
    one.table = Some(Table {
        title: "held at the peak",
        columns: vec!["category", "bytes"],
        rows: CATEGORIES.iter().enumerate().map(row).collect(),
    });
    one
}

fn dump(dump: &bfc::BfcDump) -> Described {
    let mut one = Described { of: dump.allocator.clone(), ..Described::default() };
    if !dump.missing.is_empty() {
        one.lacks(&dump.missing.join("; "));
    }
    let (used, free) = dump.chunk_bytes();
    let stats = &dump.stats;
    for (name, value) in [
        ("asked for", dump.asked_rounded.or(dump.asked.map(|asked| asked.bytes))),
        ("limit", stats.limit),
        ("in use", stats.in_use),
        ("most in use", stats.max_in_use),
        ("largest request", stats.max_alloc_size),
        ("reserved", stats.reserved),
        ("most reserved", stats.peak_reserved),
        ("largest free block", stats.largest_free_block),
        ("chunks in use", Some(used).filter(|_| !dump.chunks.is_empty())),
        ("free chunks", Some(free).filter(|_| !dump.chunks.is_empty())),
        ("largest free chunk", dump.largest_free()),
    ] {
        if let Some(value) = value {
            one.figure(name, value, "B");
        }
    }
    for (name, value) in bfc_causes(dump) {
        one.figure(name, value, "B");
    }
    if let Some(allocations) = stats.allocations {
        one.figure("requests so far", allocations, "requests");
    }
    match dump.regions.len() {
        // dumps of older versions have no lines of regions
        0 if !dump.chunks.is_empty() => {
            one.figure("regions, by chunks that touch", touching(dump).len() as u64, "");
        }
        0 => {}
        regions => one.figure("regions", regions as u64, ""),
    }
    let row = |bin: &bfc::Bin| {
        let sizes =
            [bin.bytes, bin.bytes_in_use, bin.requested].map(|size| Cell::Bytes(size.bytes));
        [Cell::Count(bin.size), Cell::Count(bin.chunks), Cell::Count(bin.in_use)]
            .into_iter()
            .chain(sizes)
            .collect()
    };
    one.table = Some(Table {
        title: "bins that have chunks",
        columns: vec!["from B", "chunks", "in use", "bytes", "bytes in use", "bytes asked for"],
        rows: dump.bins.iter().filter(|bin| bin.chunks > 0).map(row).collect(),
    });
    one
}

/// The chunks in address order, cut where one does not touch the next.
fn touching(dump: &bfc::BfcDump) -> Vec<Vec<bfc::Chunk>> {
    let mut chunks = dump.chunks.clone();
    chunks.sort_unstable_by_key(|chunk| chunk.address);
    let touch = |a: &bfc::Chunk, b: &bfc::Chunk| a.address.checked_add(a.size) == Some(b.address);
    chunks.chunk_by(touch).map(<[bfc::Chunk]>::to_vec).collect()
}

/// What of a dump holds nothing that was asked for, where bins and chunks are told. A region goes back as a whole or not at all, and chunks
/// that touch are taken for one region's.
fn bfc_causes(dump: &bfc::BfcDump) -> Vec<(&'static str, u64)> {
    let sum = |of: fn(&bfc::Bin) -> u64| dump.bins.iter().map(of).fold(0, u64::saturating_add);
    let (requested, used) = (sum(|bin| bin.requested.bytes), sum(|bin| bin.bytes_in_use.bytes));
    let mut causes = Vec::new();
    if requested > 0 && used >= requested {
        causes.push(("in use beyond what was asked for", used - requested));
    }
    let regions = touching(dump);
    let lived_in = regions.iter().filter(|region| region.iter().any(|c| c.in_use));
    let free = lived_in.flatten().filter(|chunk| !chunk.in_use).map(|chunk| chunk.size);
    if !regions.is_empty() {
        causes.push(("free beside what lives in its region", free.fold(0, u64::saturating_add)));
    }
    causes
}

fn table_of(table: &MemorySummary) -> Described {
    let mut one =
        Described { of: Some(format!("device {}", table.device)), ..Described::default() };
    if let Some(missing) = table.missing() {
        one.lacks(&missing);
    }
    one.figure("requests that failed", table.ooms, "requests");
    one.figure("retries", table.retries, "");
    let now = |name: &str| table.row(name).map(|row| row.current.bytes);
    let less = |a: &str, b: &str| Some(now(a)?.saturating_sub(now(b)?));
    for (name, value) in [
        ("rounded up beyond what was asked for", less("Allocated memory", "Requested memory")),
        ("waiting for a stream", less("Active memory", "Allocated memory")),
        ("cached: reserved and not in use", less("GPU reserved memory", "Active memory")),
        ("of it pinned by what lives in its segments", now("Non-releasable memory")),
    ] {
        if let Some(value) = value {
            one.figure(name, value, "B");
        }
    }
    let cell = |row: &summary::Row, quantity: Quantity| match row.bytes {
        true => Cell::Bytes(quantity.bytes),
        false => Cell::Count(quantity.bytes),
    };
    let row = |row: &summary::Row| {
        let pool = match row.pool {
            Pool::All => "",
            Pool::Large => ", large pool",
            Pool::Small => ", small pool",
        };
        let name = Cell::Text(format!("{}{pool}", row.name));
        let values =
            [row.current, row.peak, row.allocated, row.freed].map(|value| cell(row, value));
        std::iter::once(name).chain(values).collect()
    };
    one.table = Some(Table {
        title: "figures",
        columns: vec!["figure", "now", "peak", "added", "taken away"],
        rows: table.rows.iter().map(row).collect(),
    });
    one
}

impl Described {
    /// The file ends early, or is an excerpt.
    fn lacks(&mut self, missing: &str) {
        self.remarks
            .push(format!("incomplete: it ends early or is an excerpt; missing: {missing}"));
    }

    fn figure(&mut self, name: &'static str, value: u64, unit: &'static str) {
        self.figures.push(Figure { name, value, unit });
    }

    fn lengths(&mut self, lengths: &[(&'static str, Option<u64>)]) {
        for (name, tokens) in lengths {
            if let Some(tokens) = tokens {
                self.figure(name, *tokens, "tokens");
            }
        }
    }

    /// For people.
    pub fn page(&self, markdown: bool) -> String {
        let heading = if markdown { "### " } else { "" };
        let of = self.of.as_ref().map(|of| format!(", {of}")).unwrap_or_default();
        let mut text = format!("{heading}{}: {}{of}\n\n", self.input, self.format);
        let mut grid = Grid::new(&["figure<", "value", "unit<"]);
        for figure in &self.figures {
            let (value, unit) = match figure.unit {
                "B" => (mib(figure.value), "MiB"),
                "ns" => readable(figure.value),
                unit => (figure.value.to_string(), unit),
            };
            grid.row(vec![figure.name.to_owned(), value, unit.to_owned()]);
        }
        text += &(grid.print(markdown) + "\n");
        if let Some(table) = self.table.as_ref().filter(|table| !table.rows.is_empty()) {
            text += &format!("\n{} (sizes in MiB):\n", table.title);
            let titles = table.titles();
            let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
            let mut grid = Grid::new(&titles);
            for row in &table.rows {
                grid.row(row.iter().map(Cell::shown).collect());
            }
            text += &(grid.print(markdown) + "\n");
        }
        for remark in &self.remarks {
            text += &format!("remark: {remark}\n");
        }
        text
    }
}

/// A time in the unit that suits it.
fn readable(ns: u64) -> (String, &'static str) {
    const UNITS: [(f64, &str); 5] =
        [(86.4e12, "days"), (3.6e12, "h"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let fits = UNITS.iter().find(|(unit, _)| ns as f64 >= 2.0 * unit);
    fits.map_or_else(
        || (ns.to_string(), "ns"),
        |(unit, name)| (format!("{:.3}", ns as f64 / unit), *name),
    )
}

impl Table {
    /// Its columns, those of words to the left.
    fn titles(&self) -> Vec<String> {
        let words =
            |at: usize| self.rows.iter().any(|row| matches!(row.get(at), Some(Cell::Text(_))));
        let title = |(at, name): (usize, &&str)| {
            let name = name.replace("bytes", "size");
            if words(at) { name + "<" } else { name }
        };
        self.columns.iter().enumerate().map(title).collect()
    }
}

impl Cell {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Bytes(bytes) => mib(*bytes),
        }
    }
}
