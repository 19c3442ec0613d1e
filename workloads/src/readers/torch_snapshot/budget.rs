//! Work against content: an object that is named a million times costs a million times, and a file of a few kB can do that.
//!
//! Writers name an object where it belongs, once; those that share (generators, and the same list for several devices) do it now and then.

use super::SnapshotError;
use super::fields::{At, Result};
use crate::readers::pickle::Heap;

/// Readings beyond twice the objects that the file holds.
const SPARE: u64 = 100_000;

/// How often objects may still be read.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Segments, blocks, annotations.
    dicts: u64,
    /// Trace entries.
    entries: u64,
    /// Frames of stacks that need a closer look.
    frames: u64,
}

impl Budget {
    /// For a file that holds `rows` finished entries and what is in the heap.
    pub(super) fn of(heap: &Heap, rows: usize) -> Budget {
        let dicts = SPARE + 2 * heap.dict_count() as u64;
        // An item of a list takes 8 bytes.
        let frames = SPARE + heap.bytes() as u64 / 4;
        Budget { dicts, entries: dicts + 2 * rows as u64, frames }
    }

    /// So many segments, blocks or annotations are read.
    pub(super) fn dicts(&mut self, at: &At<'_>, count: usize) -> Result<()> {
        take(&mut self.dicts, at, count)
    }

    /// So many trace entries are read.
    pub(super) fn entries(&mut self, at: &At<'_>, count: usize) -> Result<()> {
        take(&mut self.entries, at, count)
    }

    /// So many frames are read.
    pub(super) fn frames(&mut self, at: &At<'_>, count: usize) -> Result<()> {
        take(&mut self.frames, at, count)
    }
}

fn take(left: &mut u64, at: &At<'_>, count: usize) -> Result<()> {
    match left.checked_sub(count as u64) {
        Some(rest) => *left = rest,
        None => return Err(too_many(at, count)),
    }
    Ok(())
}

#[cold]
fn too_many(at: &At<'_>, count: usize) -> SnapshotError {
    SnapshotError::Shape {
        path: at.to_string(),
        found: format!("{count} items, most of them the same objects again and again"),
        expected: "objects that are each named about once".into(),
        offset: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::from_slice;

    const ENTRY: &[u8] =
        b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrM\x00\x10\x8c\x04sizeM\x00\x02\x8c\x06streamK\x00u";
    const SEGMENT: &[u8] =
        b"}(\x8c\x07addressM\x00\x10\x8c\x0atotal_sizeM\x00\x02\x8c\x06streamK\x00\x8c\x0csegment_type\x8c\x05small\x8c\x06deviceK\x00u";

    /// A snapshot whose `object` is named `count` times more, by two bytes each: as a segment, or as an entry of device 0.
    fn named_again(object: &[u8], count: usize) -> Vec<u8> {
        let again = [object, b"q\x01", &b"h\x01".repeat(count)].concat();
        let (segments, entries) = match object == SEGMENT {
            true => ([b"](", &again[..], b"e"].concat(), b"]".to_vec()),
            false => (b"]".to_vec(), [b"](](", &again[..], b"ee"].concat()),
        };
        let parts: [&[u8]; 5] =
            [b"\x80\x02}(\x8c\x08segments", &segments, b"\x8c\x0ddevice_traces", &entries, b"u."];
        parts.concat()
    }

    /// A file of 40 kB, unpacked, named one entry 20 million times, and was read for 20 seconds.
    #[test]
    fn an_object_that_is_named_again_and_again_is_refused() {
        for (object, path) in [(ENTRY, "device_traces[0]"), (SEGMENT, "segments")] {
            from_slice(&named_again(object, 1000)).expect("now and then is fine");
            let error =
                from_slice(&named_again(object, 300_000)).expect_err("too often").to_string();
            assert!(error.contains(path) && error.contains("300001 items"), "{error}");
        }
    }
}
