//! Managed memory, within free memory.

use vramlab_sim::driver::{Advice, DriverExt, Place};
use vramlab_sim::machine::{Machine, Toucher};
use vramlab_sim::units::{Bytes, StreamId};

use super::{Bench, Step};

const STREAM: StreamId = StreamId(1);
/// Largest range that is measured.
const MOST: u64 = Bytes::mib(128).0;
/// Faults are served by blocks of this size.
const BLOCK: u64 = Bytes::mib(2).0;

impl Bench<'_> {
    pub(super) fn managed(&mut self) -> Step<()> {
        for size in self.sizes(MOST).into_iter().filter(|size| *size >= BLOCK) {
            let rows = [
                ("cudaMallocManaged", "idle"),
                ("cudaMemAdvise", "idle"),
                ("cudaMemPrefetchAsync", "to the host"),
                ("device faults", "pages on the host"),
                ("host faults", "pages on the device"),
                ("prefetch", "to the device"),
            ];
            self.rounds(rows, (size, 1), |bench| {
                let (malloc, range) = bench.time(|m| m.malloc_managed(size))?;
                let nowhere = Advice::Preferred(None);
                let (advise, ()) = bench.time(|m| m.advise(range, size, nowhere))?;
                let home = |m: &mut dyn Machine| m.prefetch(range, size, Place::Host, STREAM);
                let (prefetch, ()) = bench.time(home)?;
                bench.machine.stream_synchronize(STREAM)?;
                let (faults, ()) = bench.time(|m| {
                    m.touch(range, size, true, Toucher::Device(STREAM))?;
                    m.stream_synchronize(STREAM)
                })?;
                let (host, ()) = bench.time(|m| m.touch(range, size, true, Toucher::Host))?;
                home(bench.machine)?;
                bench.machine.stream_synchronize(STREAM)?;
                let (there, ()) = bench.time(|m| {
                    m.prefetch(range, size, Place::Device, STREAM)?;
                    m.stream_synchronize(STREAM)
                })?;
                bench.machine.free(range)?;
                Ok([malloc, advise, prefetch, faults, host, there])
            })?;
        }
        Ok(())
    }
}
