//! The persistent tier: a file of the run's own, which survives a restart. Places in it are used again by blocks of the same size.

use std::collections::BTreeMap;

/// Places begin on a page, as direct I/O wants it.
const PAGE: u64 = 4096;

/// A place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// The file: only its stream reads and writes it, so a place may be used again at once.
#[derive(Debug, Default)]
pub(super) struct File {
    end: u64,
    /// Free places by size.
    free: BTreeMap<u64, Vec<u64>>,
}

impl File {
    /// A place for `size` bytes.
    pub(super) fn take(&mut self, size: u64) -> Place {
        let size = size.next_multiple_of(PAGE);
        let offset = self.free.get_mut(&size).and_then(Vec::pop).unwrap_or_else(|| {
            self.end += size;
            self.end - size
        });
        Place { offset, size }
    }

    /// It is free again.
    pub(super) fn give(&mut self, place: Place) {
        self.free.entry(place.size).or_default().push(place.offset);
    }
}
