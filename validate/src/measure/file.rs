//! Measurements as CSV: a head of `# key: value` lines, then a row for each measurement. Sizes are bytes, times ns.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Quantiles, Row};
use crate::failure::Failure;

/// First line of the head.
const FIRST: &str = "# vramlab measurements: 1";
const COLUMNS: [&str; 12] =
    ["what", "state", "bytes", "count", "n", "mean", "min", "p10", "p50", "p90", "p99", "max"];

/// What was measured, on what.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) head: Head,
    pub(crate) rows: Vec<Row>,
}

/// On what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) device: String,
    pub(crate) driver: String,
    /// `YYYY-MM-DD`.
    pub(crate) date: String,
    pub(crate) capacity: u64,
    pub(crate) granule: u64,
    /// Small requests share a granule; `None` if that could not be seen.
    pub(crate) pack_small: Option<bool>,
}

impl Measured {
    /// The whole file.
    pub(crate) fn to_csv(&self) -> Result<String, Failure> {
        let Head { device, driver, date, capacity, granule, pack_small } = &self.head;
        let pack = pack_small.map_or_else(|| "unknown".to_owned(), |pack| pack.to_string());
        let mut text = format!(
            "{FIRST}\n# device: {device}\n# driver: {driver}\n# date: {date}\n# capacity: {capacity}\n# granule: {granule}\n# pack_small: {pack}\n"
        );
        let mut out = csv::Writer::from_writer(Vec::new());
        let wrong = |error: csv::Error| Failure::input(error);
        out.write_record(COLUMNS).map_err(wrong)?;
        for Row { what, state, bytes, count, n, mean, quantiles } in &self.rows {
            let Quantiles { min, p10, p50, p90, p99, max } = quantiles;
            let numbers = [bytes, count, n].map(u64::to_string);
            let times = [min, p10, p50, p90, p99, max].map(u64::to_string);
            let mut cells = vec![what.clone(), state.clone()];
            cells.extend(numbers);
            cells.push(format!("{mean:.1}"));
            cells.extend(times);
            out.write_record(cells).map_err(wrong)?;
        }
        let rows = out.into_inner().map_err(|error| Failure::input(error.to_string()))?;
        text += &String::from_utf8_lossy(&rows);
        Ok(text)
    }

    /// Reads a file that `measure` wrote.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let bad = |what: String| Failure::input(format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        Self::parse(&text).map_err(bad)
    }

    /// The same from text; the error names the line, what was found and what was expected.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.lines().next() != Some(FIRST) {
            let found: String = text.chars().take(40).collect();
            return Err(format!(
                "line 1: found {found:?}, expected {FIRST:?}, as measure writes it"
            ));
        }
        let mut said: BTreeMap<&str, &str> = BTreeMap::new();
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            if let Some((key, value)) = line.trim_start_matches("# ").split_once(": ") {
                said.insert(key, value);
            }
        }
        let word = |key: &str| {
            let found = said.get(key).copied();
            found.ok_or_else(|| format!("found no line \"# {key}: …\" in the head, expected one"))
        };
        let number = |key: &str| {
            let value = word(key)?;
            value
                .parse::<u64>()
                .map_err(|_| format!("{key}: found {value:?}, expected a whole number"))
        };
        let head = Head {
            device: word("device")?.to_owned(),
            driver: word("driver")?.to_owned(),
            date: word("date")?.to_owned(),
            capacity: number("capacity")?,
            granule: number("granule")?.max(1),
            pack_small: word("pack_small")?.parse().ok(),
        };
        let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
        let titles = reader.headers().map_err(|e| e.to_string())?.clone();
        if !titles.iter().eq(COLUMNS) {
            let found = titles.iter().collect::<Vec<_>>().join(",");
            return Err(format!("found the columns {found}, expected {}", COLUMNS.join(",")));
        }
        let rows = reader.records().map(|record| {
            let record = record.map_err(|e| e.to_string())?;
            let line = record.position().map_or(0, csv::Position::line);
            row(&record).ok_or_else(|| {
                format!(
                    "line {line}: found {:?}, expected words and numbers of ns",
                    record.as_slice()
                )
            })
        });
        Ok(Self { head, rows: rows.collect::<Result<_, _>>()? })
    }
}

fn row(record: &csv::StringRecord) -> Option<Row> {
    let whole = |at: usize| record.get(at)?.parse::<u64>().ok();
    let mean = record.get(5)?.parse::<f64>().ok().filter(|mean| mean.is_finite())?;
    Some(Row {
        what: record.get(0)?.to_owned(),
        state: record.get(1)?.to_owned(),
        bytes: whole(2)?,
        count: whole(3)?,
        n: whole(4)?,
        mean,
        quantiles: Quantiles {
            min: whole(6)?,
            p10: whole(7)?,
            p50: whole(8)?,
            p90: whole(9)?,
            p99: whole(10)?,
            max: whole(11)?,
        },
    })
}

/// Today, as `YYYY-MM-DD` (UTC).
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_of(since.as_secs() / 86_400)
}

/// The date so many days after 1970-01-01, by the calendar that repeats every 400 years.
fn date_of(days: u64) -> String {
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut rest) = (1970, days);
    while rest >= 365 + u64::from(leap(year)) {
        rest -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while rest >= months[month] {
        rest -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, date) in [(0, "1970-01-01"), (789, "1972-02-29"), (20_787, "2026-11-30")] {
            assert_eq!(date_of(days), date);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let rows = vec![Row::of("cudaMalloc", "idle, \"odd\"", 2 << 20, 1, vec![3, 1, 2])];
        let head = Head {
            device: "Some GPU".into(),
            driver: "13.0".into(),
            date: "2026-11-30".into(),
            capacity: 1 << 30,
            granule: 2 << 20,
            pack_small: Some(true),
        };
        let measured = Measured { head, rows };
        let text = measured.to_csv().expect("written");
        assert_eq!(Measured::parse(&text).as_ref(), Ok(&measured));
        assert_eq!(measured.rows[0].quantiles.p50, 2);
        for (from, to, part) in [
            ("# granule: 2097152\n", "", "granule"),
            ("# capacity: 1", "# capacity: x", "capacity"),
            ("what,state", "what,stat", "columns"),
            (",2.0,", ",x,", "line 9"),
            ("# vramlab", "# ramlab", "line 1"),
        ] {
            let error = Measured::parse(&text.replacen(from, to, 1)).expect_err("damaged");
            assert!(error.contains(part), "{error}");
        }
    }
}
