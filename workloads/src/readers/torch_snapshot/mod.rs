//! PyTorch CUDA memory snapshots: what `torch.cuda.memory._dump_snapshot` writes, and its relatives.
//!
//! Source: pytorch/pytorch, `torch/csrc/cuda/memory_snapshot.cpp` and `torch/cuda/memory.py`; recordings of 2023 to 2026.
//!
//! | rule       | what it says                                                                                      |
//! |------------|---------------------------------------------------------------------------------------------------|
//! | `forms`    | pickle or JSON, plain or compressed; a dict, or the bare list of segments                         |
//! | `columns`  | an entry takes 30 bytes (34 with a stack), whatever its dict took; stacks and texts are kept once  |
//! | `lenient`  | unknown keys are passed over; unknown actions are kept, counted and warned about                  |
//! | `strict`   | a wrong type or a missing key is an error that names its path, what was found, what was expected  |
//! | `budget`   | objects that are shared are read about as often as there are objects, or the file is refused         |
//! | `warnings` | what does not add up is told by [`check()`], and kept in [`Snapshot::warnings`]                   |
//!
//! Units: bytes, and microseconds since 1970. Left out: `host_traces`, the content of `host_segments`, all but the newest
//! item of a block's `history` (spring 2023).

mod alike;
mod budget;
mod check;
mod collect;
mod columns;
mod convert;
mod draft;
mod error;
mod fields;
mod json;
mod model;
mod segments;
mod settings;
mod words;

#[cfg(test)]
mod damage;
#[cfg(test)]
mod pickler;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

pub use check::{Sum, Warning, check};
pub use columns::{Action, Entry, StackId, TagId, Trace};
pub use error::SnapshotError;
pub use model::{
    AllocatorSettings, Annotation, Block, BlockState, Form, Frame, PoolId, Segment, SegmentKind,
    Snapshot, Stacks, Stage, Tag,
};

use super::bytes::{self, Bytes, FileError};
use super::pickle::{self, Heap, Limits};
use collect::Collector;

/// Bytes that tell JSON from a pickle.
const HEAD_BYTES: u64 = 4096;

/// Reads a snapshot file: pickle or JSON, plain, `.gz` or `.zst`, all told by content.
///
/// # Errors
/// The file cannot be read, or [`SnapshotError`]; both name the file.
pub fn open(path: &Path) -> Result<Snapshot, FileError> {
    read(bytes::open(path)?).map_err(|error| FileError::new(path, error))
}

/// Reads a snapshot from an opened source.
///
/// # Errors
/// See [`SnapshotError`].
pub fn read(mut bytes: Bytes) -> Result<Snapshot, SnapshotError> {
    let total = bytes.total();
    // A pipe's first bytes may be blanks only.
    let head = bytes.head(HEAD_BYTES)?;
    if is_json(&head) { read_json(bytes) } else { read_pickle(bytes, total) }
}

/// Reads a snapshot that is in memory, uncompressed.
///
/// # Errors
/// See [`SnapshotError`].
pub fn from_slice(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    if is_json(bytes) { read_json(bytes) } else { read_pickle(bytes, Some(bytes.len() as u64)) }
}

/// Whether these first bytes can only be JSON: no pickle begins with `{` or `[`.
pub fn is_json(start: &[u8]) -> bool {
    let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'['))
}

/// Whether these first bytes are those of a pickle of protocol 2 or later.
pub fn is_pickle(start: &[u8]) -> bool {
    matches!(start, [0x80, 2..=5, ..])
}

/// Reads a pickled snapshot; `total` is its length in bytes, where known.
///
/// # Errors
/// See [`SnapshotError`].
pub fn read_pickle(reader: impl Read, total: Option<u64>) -> Result<Snapshot, SnapshotError> {
    let (mut heap, mut collector) = begin();
    let root = pickle::read(reader, total, Limits::default(), &mut heap, &mut collector)?;
    convert::snapshot(heap, collector, root)
}

/// Reads a snapshot written as JSON.
///
/// # Errors
/// See [`SnapshotError`].
pub fn read_json(reader: impl Read) -> Result<Snapshot, SnapshotError> {
    let (mut heap, mut collector) = begin();
    let root = json::read(reader, &mut heap, &mut collector)?;
    convert::snapshot(heap, collector, root)
}

fn begin() -> (Heap, Collector) {
    let mut heap = Heap::default();
    words::intern_all(heap.strings_mut());
    (heap, Collector::default())
}
