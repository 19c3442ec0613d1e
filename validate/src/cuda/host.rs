//! Memory of the host: pinned by the driver, or the process's own; and the host's accesses to it and to managed memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;

use cudarc::driver::sys;

use super::{Refusal, check, get};

/// The host touches a byte in each page of this size.
const PAGE: usize = 4096;
/// What `malloc` promises; more would have all of it touched to be zeroed.
const ALIGN: usize = 16;

/// A range of host memory.
pub(crate) struct HostRange {
    start: NonNull<u8>,
    size: usize,
    pinned: bool,
}

// SAFETY: the range is owned by this value alone, and memory may be used from any thread
unsafe impl Send for HostRange {}

impl HostRange {
    /// Pinned memory (`cuMemAllocHost_v2`).
    pub(crate) fn pinned(size: usize) -> Result<Option<Self>, Refusal> {
        let start = get("cuMemAllocHost_v2", std::ptr::null_mut::<c_void>(), |to| {
            // SAFETY: the symbol was found; one pointer is written
            unsafe { sys::cuMemAllocHost_v2(to, size) }
        })?;
        Ok(NonNull::new(start.cast()).map(|start| Self { start, size, pinned: true }))
    }

    /// The process's own memory; `None` if it has no room.
    pub(crate) fn pageable(size: usize) -> Option<Self> {
        let layout =
            Layout::from_size_align(size, ALIGN).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout's size is not 0
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, size, pinned: false })
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Gives it back. No copy may be under way: the caller waits for the device first.
    pub(crate) fn give_back(self) -> Result<(), Refusal> {
        if self.pinned {
            // SAFETY: the symbol was found; the range came from cuMemAllocHost_v2, and this value, its only owner, ends here
            return check("cuMemFreeHost", unsafe {
                sys::cuMemFreeHost(self.start.as_ptr().cast())
            });
        }
        if let Ok(layout) = Layout::from_size_align(self.size, ALIGN) {
            // SAFETY: allocated by `pageable` with the same layout; this value, its only owner, ends here
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
        Ok(())
    }

    /// The place `offset` bytes in, if so many bytes lie behind it.
    pub(super) fn at(&self, offset: u64, bytes: usize) -> Option<*mut c_void> {
        let offset = usize::try_from(offset).ok()?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.size);
        fits.then(|| self.start.as_ptr().wrapping_add(offset).cast())
    }

    /// The host reads or writes a byte of each page in a part of it; `false` if the part reaches beyond.
    pub(crate) fn touch(&self, offset: u64, bytes: usize, write: bool) -> bool {
        let Some(start) = self.at(offset, bytes) else { return false };
        // SAFETY: the part lies within the range, which is live memory of the process
        unsafe { touch(start.cast(), bytes, write) };
        true
    }
}

/// A managed range of which the machine's books say that it is live: the host may use it as its own memory.
pub(crate) struct ManagedRange {
    pub(super) address: u64,
    pub(super) size: u64,
}

impl ManagedRange {
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The host reads or writes a byte of each page in a part of it; `false` if the part reaches beyond. No kernel may use it
    /// meanwhile on devices without concurrent access.
    pub(crate) fn touch(&self, offset: u64, bytes: u64, write: bool) -> bool {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.size);
        let (Ok(bytes), true) = (usize::try_from(bytes), fits) else { return false };
        let start = std::ptr::with_exposed_provenance_mut::<u8>((self.address + offset) as usize);
        // SAFETY: made by cuMemAllocManaged and not freed, since this value still lives; such memory is the process's too
        unsafe { touch(start, bytes, write) };
        true
    }
}

/// # Safety
/// `start` is followed by so many bytes of live memory of this process.
unsafe fn touch(start: *mut u8, bytes: usize, write: bool) {
    let mut at = 0;
    while at < bytes {
        let byte = start.wrapping_add(at);
        // SAFETY: `at` is below `bytes`, so within the memory that the caller vouches for; volatile, so that the access happens
        unsafe {
            let value = byte.read_volatile();
            if write {
                byte.write_volatile(value.wrapping_add(1));
            }
        }
        at = (at / PAGE + 1) * PAGE;
    }
}
