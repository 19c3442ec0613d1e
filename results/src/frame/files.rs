//! The frame as a file: CSV for people and spreadsheets, Parquet for programs. A file is written whole or not at all.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;

use polars::prelude::{DataFrame, PolarsError, Schema};
use polars_io::SerReader;
use polars_io::parquet::write::KeyValueMetadata;
use polars_io::prelude::{
    CsvReadOptions, CsvWriter, ParquetCompression, ParquetReader, ParquetWriter, SerWriter,
};

use super::{COLUMNS, Frame};
use crate::failure::Failure;
use crate::output::Replacement;
use crate::output::seal::{self, Sealed};

/// Key of the seal in a Parquet file's metadata.
const KEY: &str = "vramlab.frame";

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
    let out = Replacement::create(path)?;
    let fail = |error: PolarsError| match error {
        PolarsError::IO { error, .. } => Failure::write(path, &error),
        other => Failure::write(path, &std::io::Error::other(other.to_string())),
    };
    match kind {
        Kind::Csv => {
            let mut out = out;
            // the writer wants it mutable; its columns are shared
            CsvWriter::new(&mut out).finish(&mut data.clone()).map_err(fail)?;
            out.flush().map_err(|error| Failure::write(path, &error))?;
            out.finish()
        }
        Kind::Parquet => {
            let sealed = Sealed::new(out);
            let text = format!("{{\"seal\":\"{}\"}}", seal::unsealed());
            let pairs = vec![(KEY.to_owned(), text)];
            let mut writer = ParquetWriter::new(&sealed)
                .with_compression(ParquetCompression::Snappy)
                .set_parallel(false)
                .with_key_value_metadata(Some(KeyValueMetadata::from_static(pairs)))
                .batched(data.schema())
                .map_err(fail)?;
            let mut data = data.clone();
            data.rechunk_mut();
            writer.write_batch(&data).map_err(fail)?;
            sealed.begin_end();
            writer.finish().map_err(fail)?;
            drop(writer);
            sealed.seal().map_err(|error| Failure::write(path, &error))?.finish()
        }
    }
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
    /// When it cannot be read, is truncated or damaged, was written by another program, or has other columns.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let kind = kind(path)?;
        let bad = |error: &dyn std::fmt::Display| {
            Failure::input(format!(
                "{}: {error}; expected a frame as vramlab writes it (make it again, or read it from a copy)",
                path.display()
            ))
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
                // polars takes a file's word for what is in it, and panics where that is wrong
                seal::check(&mut file).map_err(|what| bad(&what))?;
                file.rewind().map_err(|error| bad(&error))?;
                ParquetReader::new(file).finish()
            }
        };
        let data = data.map_err(|error| bad(&error))?;
        Self::from_data(data).map_err(|failure| bad(&failure.message))
    }
}
