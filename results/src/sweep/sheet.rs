//! A sweep's Parquet file: the tidy frame with the number of the cell before it, and in the file's metadata what it is a part of.
//!
//! Rows are in the order of the cells, in row groups of [`GROUP_ROWS`]. So the bytes depend on the rows alone, not on the pieces in which
//! they came.

use std::fs::File;
use std::path::{Path, PathBuf};

use polars::prelude::{Column, DataFrame, NamedFrom, PolarsError, Series};
use polars_io::SerReader;
use polars_io::parquet::write::{KeyValueMetadata, StatisticsOptions};
use polars_io::prelude::{ParquetCompression, ParquetReader, ParquetWriter};
use serde::{Deserialize, Serialize};

use super::shard::Shard;
use crate::failure::Failure;
use crate::frame::{Frame, Run};
use crate::output::Replacement;
use crate::output::seal::{self, Sealed};

/// Rows of a group. Some thousand cells: what a reader must hold at a time.
pub const GROUP_ROWS: usize = 1 << 16;

/// Key of [`About`] in the file's metadata.
const KEY: &str = "vramlab.sweep";

/// Column of the number of the cell.
pub const CELL: &str = "cell";

/// What a file is a part of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Name and hash of the grid.
    pub grid: String,
    /// Version of the program that ran the cells.
    pub vramlab: String,
    /// Cells of the whole sweep.
    pub cells: u64,
    /// Which part; `None` for all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
}

/// As it stands in the file, see [`seal`].
#[derive(Serialize, Deserialize)]
struct Kept<A> {
    #[serde(flatten)]
    about: A,
    seal: String,
}

/// An error of polars while `path` is written.
fn cannot_write(path: &Path, error: PolarsError) -> Failure {
    match error {
        PolarsError::IO { error, .. } => Failure::write(path, &error),
        other => Failure::write(path, &std::io::Error::other(other.to_string())),
    }
}

/// Rows of these cells.
///
/// # Errors
/// None that an input can cause.
pub fn rows(runs: &[(u64, Run)]) -> Result<DataFrame, Failure> {
    let cells = runs.iter().flat_map(|(cell, run)| run.metrics.iter().map(|_| *cell));
    let cells = Series::new(CELL.into(), cells.collect::<Vec<u64>>());
    let runs: Vec<Run> = runs.iter().map(|(_, run)| run.clone()).collect();
    let mut data = Frame::of(&runs)?.data().clone();
    let internal = |error: PolarsError| Failure::input(format!("the frame: {error}"));
    data.insert_column(0, Column::from(cells)).map_err(internal)?;
    Ok(data)
}

/// Takes rows on.
pub type Put<'a> = dyn FnMut(DataFrame) -> Result<(), Failure> + 'a;

/// Writes a file whose rows `fill` hands over in order.
///
/// # Errors
/// When it cannot be written, or `fill` fails; then what was there before is untouched.
pub fn write(
    path: &Path,
    about: &About,
    fill: impl FnOnce(&mut Put<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let bad = |error| cannot_write(path, error);
    let kept = Kept { about, seal: seal::unsealed() };
    let text = serde_json::to_string(&kept).expect("plain fields");
    let empty = rows(&[])?;
    let sealed = Sealed::new(Replacement::create(path)?);
    let mut writer = ParquetWriter::new(&sealed)
        .with_compression(ParquetCompression::Snappy)
        .with_statistics(StatisticsOptions::empty())
        .set_parallel(true)
        .with_key_value_metadata(Some(KeyValueMetadata::from_static(vec![(KEY.to_owned(), text)])))
        .batched(empty.schema())
        .map_err(bad)?;
    let mut pending = empty;
    fill(&mut |more| {
        pending.vstack_mut_owned(more).map_err(bad)?;
        while pending.height() >= GROUP_ROWS {
            let rest = pending.slice(GROUP_ROWS as i64, pending.height() - GROUP_ROWS);
            let mut group = pending.slice(0, GROUP_ROWS);
            group.rechunk_mut();
            writer.write_batch(&group).map_err(bad)?;
            pending = rest;
        }
        Ok(())
    })?;
    if pending.height() > 0 {
        pending.rechunk_mut();
        writer.write_batch(&pending).map_err(bad)?;
    }
    sealed.begin_end();
    writer.finish().map_err(bad)?;
    drop(writer);
    let out = sealed.seal().map_err(|error| Failure::write(path, &error))?;
    out.finish()
}

/// A file that is read piece by piece.
#[derive(Debug)]
pub struct Sheet {
    /// Where.
    pub path: PathBuf,
    /// What it says that it is.
    pub about: About,
    /// How many rows.
    pub height: usize,
}

impl Sheet {
    /// Opens it, and reads what it is.
    ///
    /// # Errors
    /// One that cannot be read, is cut off or damaged, or is no file of a sweep.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let bad = |what: &dyn std::fmt::Display| {
            Failure::input(format!(
                "{}: {what}; expected a Parquet file of a sweep",
                path.display()
            ))
        };
        let mut file = File::open(path).map_err(|error| bad(&error))?;
        seal::check(&mut file).map_err(|what| bad(&what))?;
        let mut reader = ParquetReader::new(file);
        let height = reader.num_rows().map_err(|error| bad(&error))?;
        let metadata = reader.get_metadata().map_err(|error| bad(&error))?;
        let pairs = metadata.key_value_metadata().iter().flatten();
        let about = pairs.filter(|pair| pair.key == KEY).find_map(|pair| pair.value.as_deref());
        let about = about.ok_or_else(|| bad(&"found no word of a sweep in its metadata"))?;
        let kept: Kept<About> = serde_json::from_str(about).map_err(|error| bad(&error))?;
        Ok(Self { path: path.to_owned(), about: kept.about, height })
    }

    /// At most `count` rows from row `first` on.
    ///
    /// # Errors
    /// When they cannot be read, or have other columns than a sweep's.
    pub fn rows(&self, first: usize, count: usize) -> Result<DataFrame, Failure> {
        let bad = |what: &dyn std::fmt::Display| {
            Failure::input(format!("{}: {what}; expected rows of a sweep", self.path.display()))
        };
        let file = File::open(&self.path).map_err(|error| bad(&error))?;
        let reader = ParquetReader::new(file).with_slice(Some((first, count)));
        let data = reader.finish().map_err(|error| bad(&error))?;
        let expected = rows(&[])?;
        if data.schema() != expected.schema() {
            let names: Vec<&str> =
                data.get_column_names().iter().map(|name| name.as_str()).collect();
            return Err(bad(&format!("found columns {}", names.join(", "))));
        }
        Ok(data)
    }
}
