//! The table of PyTorch's `torch.cuda.memory_summary()`.
//!
//! | line | field |
//! |---|---|
//! | `PyTorch CUDA memory summary, device ID 0` | [`MemorySummary::device`]; begins a table |
//! | `CUDA OOMs: 0`, `cudaMalloc retries: 0` | [`MemorySummary::ooms`], [`MemorySummary::retries`] |
//! | `Allocated memory` and the like, with current, peak, total allocated, total freed | [`Row`] |
//! | `from large pool`, `from small pool` below it | [`Row::pool`] |
//!
//! Sizes are printed in whole units of 1024 (`KB` before 1.13, `KiB` since), so they say how exact they are. A text may hold several tables, and
//! other lines around and before them. Source: pytorch/pytorch, torch/cuda/memory.py, `memory_summary`, 1.4 to 2.9.

use std::io::Read;

use vramlab_sim::source::SourceError;

use super::Quantity;
use crate::readers::text::{Lines, found, whole};

/// Most rows of a text.
const ROWS_MAX: usize = 100_000;
/// Most bytes of a row's name, which the rows of its pools repeat.
const NAME_MAX: usize = 100;

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySummary {
    /// Number of the device.
    pub device: u64,
    /// Requests that failed.
    pub ooms: u64,
    /// Requests that were served after cached memory was given back.
    pub retries: u64,
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// The rule that ends a table was there.
    pub closed: bool,
}

/// Figures that every version prints, in the order of the table.
const ALWAYS: [&str; 8] = [
    "Allocated memory",
    "Active memory",
    "GPU reserved memory",
    "Non-releasable memory",
    "Allocations",
    "Active allocs",
    "GPU reserved segments",
    "Non-releasable allocs",
];

/// One figure of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, such as `GPU reserved memory`.
    pub name: String,
    /// Of all, or of one pool.
    pub pool: Pool,
    /// Now.
    pub current: Quantity,
    /// Highest.
    pub peak: Quantity,
    /// Sum of all that was added.
    pub allocated: Quantity,
    /// Sum of all that was taken away.
    pub freed: Quantity,
    /// Is it bytes, not a count?
    pub bytes: bool,
}

/// Which blocks a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Pool {
    All,
    Large,
    Small,
}

impl MemorySummary {
    /// The row of this name, of all pools.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name && row.pool == Pool::All)
    }

    /// What a whole table has and this one lacks, if its end is missing.
    pub fn missing(&self) -> Option<String> {
        if self.closed {
            return None;
        }
        let absent: Vec<&str> =
            ALWAYS.into_iter().filter(|name| self.row(name).is_none()).collect();
        Some(match absent.as_slice() {
            [] => "its last line".to_owned(),
            absent => absent.join(", "),
        })
    }
}

/// Does this text look like such a table?
pub fn is_summary(text: &[u8]) -> bool {
    memchr::memmem::find(text, TITLE).is_some()
}

/// `CUDA` may be another back-end.
const TITLE: &[u8] = b" memory summary, device ID ";

/// The tables of a text, in order; `origin` names it in messages.
///
/// # Errors
/// It cannot be read, a row is damaged, or there is no table in it.
pub fn read(input: impl Read, origin: &str) -> Result<Vec<MemorySummary>, SourceError> {
    let mut lines = Lines::new(input, origin)?;
    let (mut tables, mut rows): (Vec<MemorySummary>, usize) = (Vec::new(), 0);
    while lines.advance()? {
        let line = lines.line();
        let titled = MemorySummary::begin(line);
        rows += usize::from(titled.is_some() || !tables.is_empty());
        if rows > ROWS_MAX {
            return Err(lines.error(format!("found over {ROWS_MAX} rows, expected fewer")));
        }
        if let Some(table) = titled {
            tables.push(table.map_err(|what| lines.error(what))?);
            continue;
        }
        let Some(table) = tables.last_mut() else { continue };
        if lines.unended() && !line.trim_ascii_end().ends_with(b"|") {
            break; // the text was cut within it
        }
        match table.take(line) {
            Err(_) if lines.unended() => break,
            taken => taken.map_err(|what| lines.error(what))?,
        }
    }
    if tables.iter().all(|table| table.rows.is_empty()) {
        let early = if tables.is_empty() { "" } else { "the text ends early: " };
        let what = "found no table, expected one of memory_summary()";
        return Err(lines.error(format!("{early}{what}")));
    }
    Ok(tables)
}

impl MemorySummary {
    /// The table that begins with this line, if it is a title.
    pub fn begin(line: &[u8]) -> Option<Result<Self, String>> {
        let at = memchr::memmem::find(line, TITLE)?;
        let number = line[at + TITLE.len()..].split(|byte| *byte == b'|').next();
        Some(whole(number.unwrap_or_default()).map(|device| Self { device, ..Self::default() }))
    }

    /// Takes a line below the title in; one without `|` is stepped over.
    ///
    /// # Errors
    /// A damaged row: what was found, what was expected.
    pub fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let Some(begin) = line.iter().position(|byte| *byte == b'|') else { return Ok(()) };
        let inside = line[begin + 1..].trim_ascii_end();
        let inside = inside.strip_suffix(b"|").unwrap_or(inside);
        let cells: Vec<&[u8]> =
            inside.split(|byte| *byte == b'|').map(<[u8]>::trim_ascii).collect();
        let ruled = |cell: &[u8]| cell.iter().all(|byte| matches!(byte, b'=' | b'-'));
        match &cells[..] {
            [rule, ..] if ruled(rule) => {
                self.closed |= rule.starts_with(b"=") && !self.rows.is_empty()
            }
            [b"Metric", ..] => {}
            [ooms, retries, ..] if ooms.starts_with(b"CUDA OOMs:") => {
                self.ooms = whole(&ooms[b"CUDA OOMs:".len()..])?;
                let retries = retries.rsplit(|byte| *byte == b':').next();
                self.retries = whole(retries.unwrap_or_default())?;
            }
            [name, current, peak, allocated, freed, ..] => {
                let (name, pool) = self.named(name)?;
                let values = [*current, *peak, *allocated, *freed];
                let bytes = !values.iter().all(|value| whole(value).is_ok());
                let value = |text: &[u8]| match bytes {
                    true => Quantity::parse(text)
                        .ok_or_else(|| unlike(text, "a size such as 146836 KiB")),
                    false => whole(text).map(|bytes| Quantity { bytes, step: 1 }),
                };
                let [current, peak, allocated, freed] = values.map(value);
                let (current, peak) = (current?, peak?);
                let (allocated, freed) = (allocated?, freed?);
                self.rows.push(Row { name, pool, current, peak, allocated, freed, bytes });
            }
            _ => return Err(unlike(line, "a row with name, current, peak, allocated and freed")),
        }
        Ok(())
    }

    /// Name and pool of a row; those of pools have the name of the row above them.
    fn named(&self, name: &[u8]) -> Result<(String, Pool), String> {
        let pool = match name {
            b"from large pool" => Pool::Large,
            b"from small pool" => Pool::Small,
            _ if name.len() > NAME_MAX => {
                return Err(unlike(name, &format!("a name of at most {NAME_MAX} bytes")));
            }
            _ => return Ok((String::from_utf8_lossy(name).into_owned(), Pool::All)),
        };
        let above = self.rows.last().ok_or_else(|| unlike(name, "the name of a figure first"))?;
        Ok((above.name.clone(), pool))
    }
}

fn unlike(text: &[u8], expected: &str) -> String {
    format!("found {}, expected {expected}", found(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "some line before
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 3                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 2            |        cudaMalloc retries: 5         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |  146836 KB |    4261 MB |     847 GB |       0 B  |\r
|       from large pool |  107268 KB |    4228 MB |     843 GB |     843 GB |
|       from small pool |   39568 KB |      48 MB |       4 GB |       4 GB |
|---------------------------------------------------------------------------|
| Allocations           |     595    |     820    |   71826    |   71231    |
";

    #[test]
    fn every_field() {
        let tables = read(TABLE.as_bytes(), "t").expect("reads");
        let [table] = &tables[..] else { panic!("one table") };
        assert_eq!((table.device, table.ooms, table.retries, table.rows.len()), (3, 2, 5, 4));
        let quantity = |bytes, step| Quantity { bytes, step };
        let expected = Row {
            name: "Allocated memory".to_owned(),
            pool: Pool::All,
            current: quantity(150_360_064, 1 << 10),
            peak: quantity(4_467_982_336, 1 << 20),
            allocated: quantity(847 << 30, 1 << 30),
            freed: quantity(0, 1),
            bytes: true,
        };
        assert_eq!(table.row("Allocated memory"), Some(&expected));
        assert_eq!(
            (table.rows[2].name.as_str(), table.rows[2].pool),
            ("Allocated memory", Pool::Small)
        );
        let count = table.row("Allocations").expect("there");
        assert_eq!(
            (count.current.bytes, count.peak.bytes, count.allocated.bytes, count.freed.bytes),
            (595, 820, 71_826, 71_231)
        );
        assert!(!count.bytes && is_summary(TABLE.as_bytes()));
    }

    /// A table that was cut read as a small one.
    #[test]
    fn a_table_that_ends_early_says_what_is_missing() {
        let whole = format!("{TABLE}|=====|\n");
        let one = |text: &str| read(text.as_bytes(), "t").expect("reads").remove(0);
        assert_eq!(one(&whole).missing(), None);
        let missing = one(TABLE).missing().expect("no end");
        assert!(missing.starts_with("Active memory, GPU reserved memory, "), "{missing}");
        let cut = TABLE.rfind("71231").expect("the last row");
        assert_eq!(one(&TABLE[..cut + 3]).rows.len(), 3, "a row that was cut is none");
        assert!(
            one(&TABLE[..cut]).missing().expect("no end").contains("Allocations, Active allocs")
        );
    }

    #[test]
    fn bad_tables_are_refused() {
        let error = |text: &str| read(text.as_bytes(), "t").expect_err("bad input").to_string();
        let long = TABLE.replace("Allocations", &"a".repeat(101));
        assert!(error(&long).contains("expected a name of at most 100 bytes"));
        let titles = "x memory summary, device ID 0 |\n".repeat(100_001);
        assert!(error(&titles).contains("line 100001: found over 100000 rows"));
        assert!(error("").ends_with("found no table, expected one of memory_summary()"));
        assert!(
            error(&TABLE[..400])
                .ends_with("the text ends early: found no table, expected one of memory_summary()")
        );
        assert!(
            error(&TABLE.replace("4261 MB", "4261 XB"))
                .contains("found \"4261 XB\", expected a size such as")
        );
        assert!(
            error(&TABLE.replace("4261 MB |", ""))
                .contains("expected a row with name, current, peak")
        );
        assert!(
            error(&TABLE.replace("OOMs: 2", "OOMs: -2"))
                .contains("found \" -2\", expected a whole number")
        );
        assert!(
            error(&TABLE.replace("Allocated memory", "from large pool"))
                .contains("expected the name of a figure first")
        );
    }
}
