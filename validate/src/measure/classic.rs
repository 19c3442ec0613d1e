//! Device memory and host memory.

use vramlab_sim::driver::DriverExt;
use vramlab_sim::units::{Bytes, StreamId};

use super::{Bench, Step};

/// Largest malloc that is measured.
const MOST: u64 = Bytes::gib(8).0;
/// Largest host range that is measured: the driver touches all of it.
const MOST_HOST: u64 = Bytes::mib(512).0;
/// Small requests, which may share a granule.
const SMALL: [u64; 4] = [512, 8 << 10, 64 << 10, 1 << 20];
/// ns of the work that runs while memory is freed.
const BUSY_NS: u64 = 2_000_000;

impl Bench<'_> {
    pub(super) fn classic(&mut self) -> Step<()> {
        for size in self.sizes(MOST) {
            self.rounds([("cudaMalloc", "idle"), ("cudaFree", "idle")], (size, 1), |bench| {
                let (malloc, address) = bench.time(|m| m.malloc(size))?;
                let (free, ()) = bench.time(|m| m.free(address))?;
                Ok([malloc, free])
            })?;
        }
        for size in SMALL {
            // one that is there already may leave room in its granule
            let first = self.machine.malloc(512)?;
            let rows =
                [("malloc_packed", "beside a small one"), ("free_packed", "beside a small one")];
            self.rounds(rows, (size, 1), |bench| {
                let (malloc, address) = bench.time(|m| m.malloc(size))?;
                let (free, ()) = bench.time(|m| m.free(address))?;
                Ok([malloc, free])
            })?;
            self.machine.free(first)?;
        }
        let size = self.granule;
        // cudaFree waits for the device: beside work of 2 ms it takes as long as what is left of it
        self.rounds([("cudaFree", "beside 2 ms of work")], (size, 1), |bench| {
            let address = bench.machine.malloc(size)?;
            bench.machine.launch(StreamId(1), BUSY_NS)?;
            let (free, ()) = bench.time(|m| m.free(address))?;
            bench.machine.device_synchronize()?;
            Ok([free])
        })?;
        self.rounds([("cudaMemGetInfo", "idle")], (0, 1), |bench| {
            Ok([bench.time(|m| m.mem_info())?.0])
        })
    }

    pub(super) fn host(&mut self) -> Step<()> {
        for size in self.sizes(MOST_HOST) {
            let rows = [("cudaMallocHost", "pinned"), ("cudaFreeHost", "pinned")];
            self.rounds(rows, (size, 1), |bench| {
                let (malloc, address) = bench.time(|m| m.malloc_host(size, true))?;
                let (free, ()) = bench.time(|m| m.free_host(address))?;
                Ok([malloc, free])
            })?;
        }
        Ok(())
    }
}
