//! Why a snapshot cannot be read.

use crate::readers::pickle;

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The pickle itself is broken, or asks for code to be run.
    #[error("pickle: {0}")]
    Pickle(#[from] pickle::Error),
    /// The JSON text itself is broken.
    #[error("json: {0}")]
    Json(#[from] serde_json::Error),
    /// The values are readable but are not a snapshot.
    #[error("{}", shape_text(.path, .found, .expected, *.offset))]
    Shape {
        /// Where, such as `device_traces[0][17].size`; empty for the whole.
        path: String,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: String,
        /// Byte (decompressed) at which the dict around it was filled, where known.
        offset: Option<u64>,
    },
    /// The reader failed before anything was known about the format.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

fn shape_text(path: &str, found: &str, expected: &str, offset: Option<u64>) -> String {
    let path = if path.is_empty() { "snapshot" } else { path };
    match offset {
        Some(offset) => format!("{path}: found {found}, expected {expected} (near byte {offset})"),
        None => format!("{path}: found {found}, expected {expected}"),
    }
}
