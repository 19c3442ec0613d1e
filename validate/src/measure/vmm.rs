//! Virtual memory.

use vramlab_sim::driver::{DriverExt, Handle};
use vramlab_sim::units::Bytes;

use super::{Bench, Step};

/// Largest handle that is measured.
const MOST: u64 = Bytes::gib(1).0;
/// Handles in a range whose access is set, and which is unmapped, at once.
const HANDLES: [u64; 3] = [4, 16, 64];

impl Bench<'_> {
    pub(super) fn vmm(&mut self) -> Step<()> {
        for size in self.sizes(MOST) {
            let rows = [
                ("cuMemAddressReserve", "idle"),
                ("cuMemCreate", "idle"),
                ("cuMemMap", "idle"),
                ("cuMemSetAccess", "idle"),
                ("cuMemUnmap", "idle"),
                ("cuMemRelease", "idle"),
                ("cuMemAddressFree", "idle"),
            ];
            self.rounds(rows, (size, 1), |bench| {
                let (reserve, range) = bench.time(|m| m.reserve(size))?;
                let (create, handle) = bench.time(|m| m.create(size))?;
                let (map, ()) = bench.time(|m| m.map(range, handle))?;
                let (access, ()) = bench.time(|m| m.set_access(range, size))?;
                let (unmap, ()) = bench.time(|m| m.unmap(range, size))?;
                let (release, ()) = bench.time(|m| m.release(handle))?;
                let (free, ()) = bench.time(|m| m.unreserve(range))?;
                Ok([reserve, create, map, access, unmap, release, free])
            })?;
        }
        for count in HANDLES {
            if count * self.granule <= self.room / 4 {
                self.many(count)?;
            }
        }
        Ok(())
    }

    /// Many handles of one granule in one range.
    fn many(&mut self, count: u64) -> Step<()> {
        let (granule, size) = (self.granule, count * self.granule);
        let range = self.machine.reserve(size)?;
        let handles: Vec<Handle> =
            (0..count).map(|_| self.machine.create(granule)).collect::<Step<_>>()?;
        let rows = [("cuMemSetAccess", "many handles"), ("cuMemUnmap", "many handles")];
        self.rounds(rows, (size, count), |bench| {
            for (at, handle) in (0..).zip(&handles) {
                bench.machine.map(range + at * granule, *handle)?;
            }
            let (access, ()) = bench.time(|m| m.set_access(range, size))?;
            let (unmap, ()) = bench.time(|m| m.unmap(range, size))?;
            Ok([access, unmap])
        })?;
        for handle in handles {
            self.machine.release(handle)?;
        }
        self.machine.unreserve(range)
    }
}
