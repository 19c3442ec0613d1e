//! Where the cells of a shard are kept while it runs, and what is left of them at the end.
//!
//! ```text
//! OUT/shard-0003-of-0004.parts/lock                               held while a process works on the shard
//! OUT/shard-0003-of-0004.parts/cells-000000000-000000256.parquet  done so far: the shard's first 256 cells
//! OUT/shard-0003-of-0004.parquet                                  all of them; the parts are then removed
//! ```
//!
//! Each file is written beside its place and renamed when it is whole. So a process that is killed at any moment leaves whole files; the
//! next one, with `--resume`, goes on behind the last part, and ends with the same bytes.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polars::prelude::DataFrame;

use super::shard::Shard;
use super::sheet::{self, About, GROUP_ROWS, Sheet};
use crate::commands::remark;
use crate::failure::{Code, Failure};
use crate::frame::Run;

/// Cells of a part, unless they take long.
const PART_CELLS: u64 = 256;
/// How long cells that are done are kept in memory.
const PART_TIME: Duration = Duration::from_secs(5);

/// Cells by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[allow(missing_docs)]
pub struct Ended {
    pub ok: u64,
    pub oom: u64,
    pub skipped: u64,
    pub driver_error: u64,
}

/// A shard in the making.
pub struct Store {
    about: About,
    shard: Shard,
    /// Where the whole will be.
    place: PathBuf,
    folder: PathBuf,
    /// Held until the end.
    _lock: File,
    /// End of each part, in cells of the shard, and its file.
    parts: Vec<(u64, PathBuf)>,
    fresh: Vec<(u64, Run)>,
    since: Instant,
}

/// What was found where a shard is to be written.
pub enum Begun {
    /// It is there, whole.
    Whole(PathBuf),
    /// It can go on.
    Open(Box<Store>),
}

impl Store {
    /// Begins a shard in the folder `out`, or goes on with it.
    ///
    /// # Errors
    /// A folder that cannot be written; without `resume`, one where the shard is already; a shard of another grid or version; another
    /// process that works on it.
    pub fn begin(out: &Path, shard: Shard, about: &About, resume: bool) -> Result<Begun, Failure> {
        let about = About { shard: Some(shard), ..about.clone() };
        let place = out.join(format!("{}.parquet", shard.file_stem()));
        let folder = out.join(format!("{}.parts", shard.file_stem()));
        if place.exists() || folder.exists() {
            if !resume {
                let found = if place.exists() { &place } else { &folder };
                return Err(Failure::usage(format!(
                    "{} is there already; --resume goes on with what is there, --out names another folder",
                    found.display()
                )));
            }
            if place.exists() {
                same(&Sheet::open(&place)?, &about)?;
                let _ = std::fs::remove_dir_all(&folder); // left by a process that was killed at the very end
                return Ok(Begun::Whole(place));
            }
        }
        let fail = |error: io::Error| Failure::write(&folder, &error).with_option("--out");
        std::fs::create_dir_all(&folder).map_err(fail)?;
        let lock = lock(&folder, shard)?;
        let mut store = Self {
            about,
            shard,
            place,
            folder,
            _lock: lock,
            parts: Vec::new(),
            fresh: Vec::new(),
            since: Instant::now(),
        };
        store.find_parts()?;
        Ok(Begun::Open(Box::new(store)))
    }

    /// Cells of the shard that are kept in parts.
    pub fn done(&self) -> u64 {
        self.parts.last().map_or(0, |(end, _)| *end)
    }

    /// Finds the parts of a process before this one, and removes what it was writing.
    fn find_parts(&mut self) -> Result<(), Failure> {
        let fail = |error: io::Error| Failure::write(&self.folder, &error).with_option("--out");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            match range(&name) {
                Some((begin, end)) => found.push((begin, end, entry.path())),
                None if name.starts_with(".tmp") => {
                    let _ = std::fs::remove_file(entry.path());
                }
                None => {}
            }
        }
        found.sort();
        for (begin, end, path) in found {
            let done = self.done();
            let sheet = match Sheet::open(&path) {
                Ok(sheet) if begin == done && end > begin => sheet,
                opened => {
                    let why = opened.err().map_or_else(
                        || format!("{}: does not follow on the first {done} cells", path.display()),
                        |failure| failure.message,
                    );
                    remark(&format!("vramlab: {why}; its cells are run again"));
                    std::fs::remove_file(&path).map_err(fail)?;
                    continue;
                }
            };
            same(&sheet, &self.about)?;
            self.parts.push((end, path));
        }
        Ok(())
    }

    /// Keeps the next cell.
    ///
    /// # Errors
    /// When a part cannot be written.
    pub fn put(&mut self, cell: u64, run: Run) -> Result<(), Failure> {
        self.fresh.push((cell, run));
        if self.fresh.len() as u64 >= PART_CELLS || self.since.elapsed() >= PART_TIME {
            self.write_part()?;
        }
        Ok(())
    }

    fn write_part(&mut self) -> Result<(), Failure> {
        self.since = Instant::now();
        let begin = self.done();
        let end = begin + self.fresh.len() as u64;
        if end == begin {
            return Ok(());
        }
        let path = self.folder.join(format!("cells-{begin:09}-{end:09}.parquet"));
        let rows = sheet::rows(&self.fresh)?;
        let written = sheet::write(&path, &self.about, |put| put(rows));
        written.map_err(|failure| self.explained(failure))?;
        self.fresh.clear();
        self.parts.push((end, path));
        Ok(())
    }

    /// Keeps what is done of an interrupted shard; where that cannot be written, it is run again.
    pub fn keep(&mut self) {
        let _ = self.write_part();
    }

    /// What a full or vanished folder means for the sweep.
    fn explained(&self, mut failure: Failure) -> Failure {
        if failure.code == Code::CannotWrite {
            failure.message += &format!(
                "; {} of {} cells are kept, and --resume goes on behind them once there is room",
                self.done(),
                self.shard.cells(self.about.cells)
            );
        }
        failure
    }

    /// Writes the whole, and removes the parts.
    ///
    /// # Errors
    /// When it cannot be written, or a part is gone.
    pub fn finish(mut self) -> Result<(PathBuf, Ended), Failure> {
        self.write_part()?;
        let (shard, mut ended) = (self.shard, Ended::default());
        let (mut due, parts) = (0, &self.parts);
        let written = sheet::write(&self.place, &self.about, |put| {
            std::thread::scope(|scope| {
                // one part is read while the one before is written
                let (read, come) = std::sync::mpsc::sync_channel(0);
                scope.spawn(move || {
                    let mut parts = parts.iter();
                    parts.try_for_each(|(end, path)| read.send((*end, path, part(path))).ok())
                });
                for (end, path, rows) in come {
                    let rows = rows?;
                    for (cell, outcome) in cells(&rows)? {
                        if cell != shard.cell(due) {
                            return Err(not_in_order(path, cell, shard.cell(due)));
                        }
                        due += 1;
                        ended.add(&outcome);
                    }
                    put(rows)?;
                    if due != end {
                        return Err(not_in_order(path, shard.cell(due), shard.cell(end)));
                    }
                }
                Ok(())
            })
        });
        written.map_err(|failure| self.explained(failure))?;
        let _ = std::fs::remove_dir_all(&self.folder); // no harm is done where it stays
        Ok((self.place, ended))
    }
}

/// The rows of a part: some hundred cells.
fn part(path: &Path) -> Result<DataFrame, Failure> {
    let sheet = Sheet::open(path)?;
    sheet.rows(0, sheet.height)
}

/// How the cells of a whole shard ended.
///
/// # Errors
/// When it cannot be read.
pub fn ended(path: &Path) -> Result<Ended, Failure> {
    let sheet = Sheet::open(path)?;
    let (mut ended, mut first) = (Ended::default(), 0);
    while first < sheet.height {
        let rows = sheet.rows(first, GROUP_ROWS)?;
        first += rows.height().max(1);
        cells(&rows)?.iter().for_each(|(_, outcome)| ended.add(outcome));
    }
    Ok(ended)
}

impl Ended {
    pub(super) fn add(&mut self, outcome: &str) {
        let count = match outcome {
            "ok" => &mut self.ok,
            "oom" => &mut self.oom,
            "skipped" => &mut self.skipped,
            _ => &mut self.driver_error,
        };
        *count += 1;
    }
}

fn not_in_order(path: &Path, found: u64, expected: u64) -> Failure {
    Failure::input(format!(
        "{}: found cell {found}, expected cell {expected}; remove the file and go on with --resume",
        path.display()
    ))
}

/// The cells that begin in these rows, with how they ended: each has the metric `ran` first.
///
/// # Errors
/// None with the columns of a sweep.
pub fn cells(rows: &DataFrame) -> Result<Vec<(u64, String)>, Failure> {
    let internal = |error: polars::prelude::PolarsError| Failure::input(format!("rows: {error}"));
    let numbers = rows.column(sheet::CELL).map_err(internal)?.u64().map_err(internal)?.iter();
    let metrics = rows.column("metric").map_err(internal)?.str().map_err(internal)?.iter();
    let outcomes = rows.column("outcome").map_err(internal)?.str().map_err(internal)?.iter();
    let all = numbers.zip(metrics).zip(outcomes);
    let first = all.filter(|((_, metric), _)| *metric == Some("ran"));
    Ok(first
        .map(|((cell, _), outcome)| (cell.unwrap_or(u64::MAX), outcome.unwrap_or("").to_owned()))
        .collect())
}

/// Two files of one grid and version?
fn same(sheet: &Sheet, about: &About) -> Result<(), Failure> {
    let path = sheet.path.display();
    let found = &sheet.about;
    let what = if found.vramlab != about.vramlab {
        format!("was made by vramlab {}, this is {}", found.vramlab, about.vramlab)
    } else if found != about {
        format!("is a part of the grid {}, this is {}", found.grid, about.grid)
    } else {
        return Ok(());
    };
    Err(Failure::input(format!("{path} {what}; give --out another folder")))
}

/// `cells-000000000-000000256.parquet`.
fn range(name: &str) -> Option<(u64, u64)> {
    let (begin, end) = name.strip_prefix("cells-")?.strip_suffix(".parquet")?.split_once('-')?;
    Some((begin.parse().ok()?, end.parse().ok()?))
}

/// The operating system gives the lock back when the process ends, however it ends. Where it knows no locks there is none.
fn lock(folder: &Path, shard: Shard) -> Result<File, Failure> {
    let path = folder.join("lock");
    let file =
        File::create(&path).map_err(|error| Failure::write(&path, &error).with_option("--out"))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Failure {
            code: Code::CannotWrite,
            message: format!(
                "{}: another process works on shard {shard}; wait until it ends",
                path.display()
            ),
        }),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}
