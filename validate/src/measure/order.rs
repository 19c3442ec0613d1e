//! Streams, events, launches.

use vramlab_sim::driver::DriverExt;
use vramlab_sim::units::StreamId;

use super::{Bench, Step};

const STREAM: StreamId = StreamId(1);

impl Bench<'_> {
    pub(super) fn order(&mut self) -> Step<()> {
        let rows = [
            ("cudaEventCreate", "idle"),
            ("cudaEventRecord", "idle"),
            ("cudaStreamWaitEvent", "idle"),
            ("cudaEventSynchronize", "complete"),
            ("cudaEventQuery", "complete"),
            ("cudaEventDestroy", "idle"),
            ("cudaStreamIsCapturing", "idle"),
            ("cudaStreamSynchronize", "idle"),
            ("cudaDeviceSynchronize", "idle"),
        ];
        self.rounds(rows, (0, 1), |bench| {
            let (create, event) = bench.time(|m| m.event_create())?;
            let (record, ()) = bench.time(|m| m.event_record(event, STREAM))?;
            let (wait, ()) = bench.time(|m| m.wait_event(StreamId(2), event))?;
            bench.machine.device_synchronize()?;
            let (synchronize, ()) = bench.time(|m| m.event_synchronize(event))?;
            let (query, _) = bench.time(|m| m.event_query(event))?;
            let (destroy, ()) = bench.time(|m| m.event_destroy(event))?;
            let (capture, _) = bench.time(|m| m.capture_status(STREAM))?;
            let (stream, ()) = bench.time(|m| m.stream_synchronize(STREAM))?;
            let (device, ()) = bench.time(|m| m.device_synchronize())?;
            Ok([create, record, wait, synchronize, query, destroy, capture, stream, device])
        })?;
        // the kernels are loaded at the first launch
        self.machine.launch(STREAM, 0)?;
        self.rounds([("launch", "idle"), ("cudaLaunchKernel", "idle")], (0, 1), |bench| {
            let (work, ()) = bench.time(|m| m.launch(STREAM, 0))?;
            bench.machine.device_synchronize()?;
            let (own, ()) = bench.time(|m| m.launch_kernel(STREAM, 0))?;
            bench.machine.device_synchronize()?;
            Ok([work, own])
        })?;
        let size = self.granule;
        self.rounds([("launch", "first after cudaMalloc")], (0, 1), |bench| {
            let address = bench.machine.malloc(size)?;
            let (launch, ()) = bench.time(|m| m.launch(STREAM, 0))?;
            bench.machine.free(address)?;
            Ok([launch])
        })?;
        // streams are not given back one by one: few are made
        let repeats = std::mem::replace(&mut self.repeats, 10);
        let done = self.rounds([("cudaStreamCreate", "idle")], (0, 1), |bench| {
            Ok([bench.time(|m| m.stream_create())?.0])
        });
        self.repeats = repeats;
        done
    }
}
