//! The frame as a file: CSV for people and spreadsheets, Parquet for programs. A file is written whole or not at all.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;

use polars::prelude::{DataFrame, PolarsError, Schema};
use polars_io::SerReader;
use polars_io::prelude::{
    CsvReadOptions, CsvWriter, ParquetCompression, ParquetReader, ParquetWriter, SerWriter,
};

use super::{COLUMNS, Frame};
use crate::failure::Failure;
use crate::output::Replacement;

/// Of a file, by its ending.
#[derive(Clone, Copy)]
enum Kind {
    Csv,
    Parquet,
}

fn kind(path: &Path) -> Result<Kind, Failure> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Ok(Kind::Csv),
        Some("parquet") => Ok(Kind::Parquet),
        _ => Err(Failure::usage(format!(
            "{}: expected a name that ends in .csv or .parquet",
            path.display()
        ))),
    }
}

/// Writes any polars frame as CSV or Parquet, by the ending of `path`, whose folder is made if need be.
///
/// # Errors
/// When it cannot be written; then what was there before is untouched.
pub(crate) fn write_data(data: &DataFrame, path: &Path) -> Result<(), Failure> {
    let kind = kind(path)?;
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| Failure::write(path, &error))?;
    }
    let mut out = Replacement::create(path)?;
    let mut data = data.clone(); // the writers want it mutable; its columns are shared
    let fail = |error: PolarsError| match error {
        PolarsError::IO { error, .. } => Failure::write(path, &error),
        other => Failure::write(path, &std::io::Error::other(other.to_string())),
    };
    match kind {
        Kind::Csv => CsvWriter::new(&mut out).finish(&mut data).map_err(fail)?,
        Kind::Parquet => {
            let writer = ParquetWriter::new(&mut out).with_compression(ParquetCompression::Snappy);
            writer.set_parallel(false).finish(&mut data).map_err(fail)?;
        }
    }
    out.flush().map_err(|error| Failure::write(path, &error))?;
    out.finish()
}

impl Frame {
    /// Writes it as CSV or Parquet, by the ending of `path`, whose folder is made if need be.
    ///
    /// # Errors
    /// When it cannot be written; then what was there before is untouched.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        write_data(&self.0, path)
    }

    /// Reads what [`Frame::write`] wrote.
    ///
    /// # Errors
    /// When it cannot be read, is truncated, or has other columns.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let kind = kind(path)?;
        let bad = |error: &dyn std::fmt::Display| {
            Failure::input(format!("{}: {error}; expected a frame of vramlab", path.display()))
        };
        let mut file = File::open(path).map_err(|error| bad(&error))?;
        let data = match kind {
            Kind::Csv => {
                let schema = COLUMNS.iter().map(|(name, kind)| ((*name).into(), kind.clone()));
                let schema: Schema = schema.collect();
                let options =
                    CsvReadOptions::default().with_schema_overwrite(Some(Arc::new(schema)));
                options.into_reader_with_file_handle(file).finish()
            }
            Kind::Parquet => {
                file.rewind().map_err(|error| bad(&error))?;
                ParquetReader::new(file).finish()
            }
        };
        let data = data.map_err(|error| bad(&error))?;
        Self::from_data(data).map_err(|failure| bad(&failure.message))
    }
}
