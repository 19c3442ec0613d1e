//! Links: from the return of the call that queues a copy to its end.

use vramlab_sim::driver::DriverExt;
use vramlab_sim::machine::Direction;
use vramlab_sim::units::{Bytes, StreamId};

use super::{Bench, Step};

const STREAM: StreamId = StreamId(1);
/// Largest copy that is measured.
const MOST: u64 = Bytes::mib(256).0;
/// Smallest one, and the step to the next.
const LEAST: u64 = Bytes::kib(256).0;

impl Bench<'_> {
    pub(super) fn copies(&mut self) -> Step<()> {
        let most = MOST.min(self.room / 4);
        if most < LEAST {
            return Ok(());
        }
        for (pinned, state) in [(true, "pinned"), (false, "pageable")] {
            let (one, two) = (self.machine.malloc(most)?, self.machine.malloc(most)?);
            let host = self.machine.malloc_host(most, pinned)?;
            let mut size = LEAST;
            while size <= most {
                let rows = [
                    ("link.host_to_device", state),
                    ("link.device_to_host", state),
                    ("cudaMemcpyAsync", state),
                ];
                self.rounds(rows, (size, 1), |bench| {
                    let (call, there) = bench.copy(host, one, size, Direction::HostToDevice)?;
                    let (_, back) = bench.copy(one, host, size, Direction::DeviceToHost)?;
                    Ok([there, back, call])
                })?;
                if pinned {
                    self.rounds([("link.device_to_device", "")], (size, 1), |bench| {
                        Ok([bench.copy(one, two, size, Direction::DeviceToDevice)?.1])
                    })?;
                }
                size *= 4;
            }
            self.machine.free_host(host)?;
            self.machine.free(one)?;
            self.machine.free(two)?;
        }
        Ok(())
    }

    /// ns of the call, and from its return to the end of the copy.
    fn copy(&mut self, from: u64, to: u64, size: u64, direction: Direction) -> Step<(u64, u64)> {
        let (call, ()) = self.time(|m| m.copy(from, to, size, direction, STREAM))?;
        let (rest, ()) = self.time(|m| m.stream_synchronize(STREAM))?;
        Ok((call, rest))
    }
}
