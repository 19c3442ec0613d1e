//! Memory of the process behind host and managed ranges of the simulated machine, which has addresses only.

use std::collections::BTreeMap;
use std::ffi::c_void;

/// Ranges by where they are: where the simulated machine has them, and their bytes.
#[derive(Default)]
pub(crate) struct Mapped(BTreeMap<u64, (u64, usize)>);

impl Mapped {
    /// Maps so many bytes for a simulated range: where they are, which is at the same address if that is free, so that ranges lie in the same order.
    /// `None`: the process has no room. Pages come with their first touch.
    pub(crate) fn add(&mut self, simulated: u64, bytes: u64) -> Option<*mut c_void> {
        let size = usize::try_from(bytes).ok()?;
        // SAFETY: a new anonymous mapping, which overlaps nothing: the address is a wish
        let start = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(simulated as usize),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        self.0.insert(start.expose_provenance() as u64, (simulated, size));
        Some(start)
    }

    /// Unmaps the range that begins there: where the simulated machine has it.
    pub(crate) fn remove(&mut self, start: u64) -> Option<u64> {
        let (simulated, size) = self.0.remove(&start)?;
        // SAFETY: mapped by `add` with this size, and unmapped once, since it left the list
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(start as usize), size) };
        Some(simulated)
    }

    /// Where the simulated machine has this address.
    pub(crate) fn simulated(&self, address: u64) -> Option<u64> {
        let (start, (simulated, size)) = self.0.range(..=address).next_back()?;
        (address - start < *size as u64).then(|| simulated + (address - start))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        while let Some(start) = self.0.keys().next().copied() {
            self.remove(start);
        }
    }
}
