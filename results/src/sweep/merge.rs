//! Joins the shards of a sweep, and checks that each cell is there once.
//!
//! Rows come in the order of the cells, and the file says nothing of shards: however many there were, the bytes are the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polars::prelude::{DataFrame, IdxCa, NamedFrom};

use super::shard::Shard;
use super::sheet::{self, About, CELL, GROUP_ROWS, Sheet};
use super::store::{Ended, cells};
use crate::failure::Failure;

/// Most numbers of shards that a message lists.
const LISTED_MAX: usize = 10;

/// The shards of one sweep, all there.
#[derive(Debug)]
pub struct Shards {
    about: About,
    /// By their index.
    all: Vec<Sheet>,
}

impl Shards {
    /// Finds the shards in folders; a path may be a shard itself.
    ///
    /// # Errors
    /// None there; one that is cut off, is there twice, missing or unfinished, of another grid, version or number of shards.
    pub fn find(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut files = Vec::new();
        for path in paths {
            files.extend(shards_in(path)?);
        }
        let sheets = files.iter().map(|path| Sheet::open(path)).collect::<Result<Vec<_>, _>>()?;
        let mut sheets = sheets.into_iter();
        let none = || {
            let looked: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            let looked = looked.join(", ");
            Failure::input(format!(
                "no shards in {looked}: expected shard-….parquet, which vramlab sweep --out writes"
            ))
        };
        let first = sheets.next().ok_or_else(none)?;
        let about = About { shard: None, ..first.about.clone() };
        let of = shard(&first)?.of;
        let mut all: BTreeMap<u64, Sheet> = BTreeMap::new();
        let first_path = first.path.clone();
        for sheet in std::iter::once(first).chain(sheets) {
            let its = shard(&sheet)?;
            agree(&about, of, &first_path, &sheet, its)?;
            if let Some(other) = all.insert(its.index, sheet) {
                let sheet = &all[&its.index];
                return Err(Failure::input(format!(
                    "shard {its} is there twice: {} and {}; leave one out",
                    other.path.display(),
                    sheet.path.display()
                )));
            }
        }
        if about.vramlab != env!("CARGO_PKG_VERSION") {
            return Err(Failure::input(format!(
                "{}: made by vramlab {}, this is {}; merge with the version that ran the sweep",
                first_path.display(),
                about.vramlab,
                env!("CARGO_PKG_VERSION")
            )));
        }
        missing(paths, &all, of)?;
        Ok(Self { about, all: all.into_values().collect() })
    }

    /// What they are shards of.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Where they are.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(|sheet| &*sheet.path)
    }

    /// Hands over all rows, in the order of the cells; gives how these ended.
    ///
    /// # Errors
    /// A shard that cannot be read, or in which a cell is missing or double.
    pub fn rows(
        &self,
        put: &mut dyn FnMut(DataFrame) -> Result<(), Failure>,
    ) -> Result<Ended, Failure> {
        let mut ended = Ended::default();
        let share = (GROUP_ROWS / self.all.len()).max(256);
        let mut readers: Vec<Reader<'_>> = self.all.iter().map(|s| Reader::new(s, share)).collect();
        let mut begin = 0;
        while begin < self.about.cells {
            // as many rounds as every shard has cells whole in memory
            let mut rounds = u64::MAX;
            for (reader, sheet) in readers.iter_mut().zip(&self.all) {
                let left = shard(sheet)?.cells(self.about.cells) - reader.taken;
                rounds = rounds.min(if left == 0 { u64::MAX } else { reader.fill()? });
            }
            let cells_now = rounds.saturating_mul(self.all.len() as u64);
            let end = begin.saturating_add(cells_now).min(self.about.cells);
            let mut pieces = Vec::new();
            for (reader, sheet) in readers.iter_mut().zip(&self.all) {
                let its = shard(sheet)?;
                let count = its.cells(end) - its.cells(begin);
                pieces.push(reader.take(its, count, &mut ended)?);
            }
            put(in_order(pieces)?)?;
            begin = end;
        }
        for reader in &readers {
            reader.check_end()?;
        }
        Ok(ended)
    }

    /// Joins them into the Parquet file `out`.
    ///
    /// # Errors
    /// As [`Shards::rows`], or when it cannot be written.
    pub fn write(&self, out: &Path) -> Result<Ended, Failure> {
        let mut ended = Ended::default();
        sheet::write(out, &self.about, |put| {
            ended = self.rows(put)?;
            Ok(())
        })?;
        Ok(ended)
    }
}

fn shard(sheet: &Sheet) -> Result<Shard, Failure> {
    sheet.about.shard.filter(|shard| shard.index < shard.of).ok_or_else(|| {
        let path = sheet.path.display();
        Failure::input(format!(
            "{path}: is no shard; expected one of vramlab sweep, not a merged file"
        ))
    })
}

fn is_shard(name: &str) -> bool {
    name.starts_with("shard-") && name.ends_with(".parquet")
}

fn shards_in(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let bad = |error: std::io::Error| Failure::input(format!("{}: {error}", path.display()));
    if !std::fs::metadata(path).map_err(bad)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(bad)? {
        let entry = entry.map_err(bad)?;
        if is_shard(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Does a shard go with the first?
fn agree(about: &About, of: u64, first: &Path, sheet: &Sheet, its: Shard) -> Result<(), Failure> {
    let found = &sheet.about;
    let (what, here, there) = if found.vramlab != about.vramlab {
        ("versions of vramlab", about.vramlab.clone(), found.vramlab.clone())
    } else if found.grid != about.grid || found.cells != about.cells {
        ("grids", about.grid.clone(), found.grid.clone())
    } else if its.of != of {
        ("numbers of shards", of.to_string(), its.of.to_string())
    } else {
        return Ok(());
    };
    Err(Failure::input(format!(
        "shards of two {what}: {} has {here}, {} has {there}; leave one out, or run its shards again",
        first.display(),
        sheet.path.display()
    )))
}

/// Refuses shards that are not all there.
fn missing(paths: &[PathBuf], all: &BTreeMap<u64, Sheet>, of: u64) -> Result<(), Failure> {
    let missing: Vec<u64> = (0..of).filter(|index| !all.contains_key(index)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let numbers: Vec<String> = missing.iter().take(LISTED_MAX).map(u64::to_string).collect();
    let more = if missing.len() > LISTED_MAX { ", …" } else { "" };
    let begun = missing.iter().filter(|index| {
        let parts = format!("{}.parts", Shard { index: **index, of }.file_stem());
        paths.iter().any(|path| path.join(&parts).is_dir())
    });
    let unfinished = match begun.count() {
        0 => String::new(),
        count => format!(" ({count} of them begun and not finished)"),
    };
    Err(Failure::input(format!(
        "{} of {of} shards are missing{unfinished}: {}{more}; run vramlab sweep with --shard I/{of} --resume for each, then merge again",
        missing.len(),
        numbers.join(", ")
    )))
}

/// Reads a shard piece by piece.
struct Reader<'s> {
    sheet: &'s Sheet,
    /// Rows that are read at a time.
    share: usize,
    /// Rows that were read.
    read: usize,
    /// Rows in memory that were not taken.
    held: Option<DataFrame>,
    /// Cells that were taken.
    taken: u64,
}

impl<'s> Reader<'s> {
    fn new(sheet: &'s Sheet, share: usize) -> Self {
        Self { sheet, share, read: 0, held: None, taken: 0 }
    }

    /// Reads until a cell is whole in memory; gives how many are.
    fn fill(&mut self) -> Result<u64, Failure> {
        loop {
            let begun = match &self.held {
                Some(held) => cells(held)?.len() as u64,
                None => 0,
            };
            let over = self.read >= self.sheet.height;
            // the last one may go on in rows that were not read
            let whole = if over { begun } else { begun.saturating_sub(1) };
            if whole > 0 {
                return Ok(whole);
            }
            if over {
                return Err(self.bad(format_args!("ends after {} cells", self.taken)));
            }
            let more = self.sheet.rows(self.read, self.share)?;
            if more.height() == 0 {
                return Err(self.bad(format_args!("has fewer rows than it says")));
            }
            self.read += more.height();
            match &mut self.held {
                Some(held) => {
                    let joined = held.vstack_mut_owned(more).map(drop);
                    joined.map_err(|error| Failure::input(format!("rows: {error}")))?;
                }
                None => self.held = Some(more),
            }
        }
    }

    /// The rows of the next `count` cells.
    fn take(&mut self, shard: Shard, count: u64, ended: &mut Ended) -> Result<DataFrame, Failure> {
        if count == 0 {
            return sheet::rows(&[]);
        }
        let held = match self.held.take() {
            Some(held) => held,
            None => sheet::rows(&[])?,
        };
        for (n, (cell, outcome)) in (self.taken..self.taken + count).zip(cells(&held)?) {
            if cell != shard.cell(n) {
                let expected = shard.cell(n);
                return Err(self.bad(format_args!("found cell {cell}, expected cell {expected}")));
            }
            ended.add(&outcome);
        }
        self.taken += count;
        let next = shard.cell(self.taken);
        let numbers = held.column(CELL).and_then(|column| {
            column.u64().map(|all| all.iter().flatten().take_while(|cell| *cell < next).count())
        });
        let rows = numbers.map_err(|error| Failure::input(format!("rows: {error}")))?;
        self.held = Some(held.slice(rows as i64, held.height() - rows));
        Ok(held.slice(0, rows))
    }

    fn check_end(&self) -> Result<(), Failure> {
        let left = self.held.as_ref().map_or(0, DataFrame::height) + self.sheet.height - self.read;
        match left {
            0 => Ok(()),
            _ => Err(self.bad(format_args!("goes on behind its last cell, with {left} rows"))),
        }
    }

    fn bad(&self, what: std::fmt::Arguments<'_>) -> Failure {
        let path = self.sheet.path.display();
        Failure::input(format!("{path}: {what}; run this shard again"))
    }
}

/// The pieces, each in the order of its cells, as one.
fn in_order(pieces: Vec<DataFrame>) -> Result<DataFrame, Failure> {
    let internal = |error: polars::prelude::PolarsError| Failure::input(format!("rows: {error}"));
    let mut all = sheet::rows(&[])?;
    for piece in pieces {
        all.vstack_mut_owned(piece).map_err(internal)?;
    }
    all.rechunk_mut();
    let numbers = all.column(CELL).map_err(internal)?.u64().map_err(internal)?;
    let numbers: Vec<u64> = numbers.iter().flatten().collect();
    let mut order: Vec<u32> = (0..all.height() as u32).collect();
    order.sort_by_key(|row| numbers[*row as usize]); // rows of a cell keep their order
    all.take(&IdxCa::new("order".into(), order)).map_err(internal)
}
