//! What the strategy counts. Names beside those of the inner strategy.

use super::stopwatch::Stopwatch;

/// Counts since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) bytes_to_host: u64,
    pub(super) bytes_to_device: u64,
    pub(super) bytes_to_file: u64,
    pub(super) bytes_from_file: u64,
    /// Writes that should have reached the file at once, for which the host had no room.
    pub(super) writes_not_persisted: u64,
    /// Buffers that left the device; of them, without a copy.
    pub(super) evictions: u64,
    pub(super) evictions_clean: u64,
    /// Buffers that came to the device because work uses them now.
    pub(super) fetches: u64,
    pub(super) prefetches: u64,
    prefetch_wasted: u64,
    /// Prefetches that needed no wait, beside those that the stopwatch tells of.
    pub(super) prefetch_ready: u64,
    pub(super) restarts: u64,
    pub(super) restart_lost_bytes: u64,
    pub(super) restart_lost_buffers: u64,
    resident: u64,
    peak_resident: u64,
}

impl Counters {
    /// A buffer came to the device.
    pub(super) fn resident(&mut self, size: u64) {
        self.resident += size;
        self.peak_resident = self.peak_resident.max(self.resident);
    }

    /// One is no longer there; if it came ahead of a use, that was in vain.
    pub(super) fn not_resident(&mut self, size: u64, unused: bool) {
        self.resident -= size;
        self.prefetch_wasted += u64::from(unused);
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak_resident = self.resident;
    }

    pub(super) fn list(&self, watch: &Stopwatch, list: &mut Vec<(&'static str, u64)>) {
        list.extend([
            ("resident", self.resident),
            ("peak_resident", self.peak_resident),
            ("bytes_to_host", self.bytes_to_host),
            ("bytes_to_device", self.bytes_to_device),
            ("bytes_to_file", self.bytes_to_file),
            ("bytes_from_file", self.bytes_from_file),
            ("writes_not_persisted", self.writes_not_persisted),
            ("evictions", self.evictions),
            ("evictions_clean", self.evictions_clean),
            ("fetches", self.fetches),
            ("prefetches", self.prefetches),
            ("prefetch_hits", watch.hits + self.prefetch_ready),
            ("prefetch_late", watch.late),
            ("prefetch_wasted", self.prefetch_wasted),
            ("wait_ns", watch.wait_ns),
            ("wait_late_ns", watch.late_ns),
            ("waits_unread", watch.unread()),
            ("restarts", self.restarts),
            ("restart_lost_bytes", self.restart_lost_bytes),
            ("restart_lost_buffers", self.restart_lost_buffers),
        ]);
    }
}
