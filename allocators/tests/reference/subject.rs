//! The model as a subject of the golden comparison.

use super::{Answer, Reference};
use crate::golden_format::{
    CallRow, GoldenSubject, State, StepResult, StepStats, TableBlock, TableSegment, TraceOp,
    UNDEFINED,
};
use std::collections::BTreeMap;

impl Reference {
    fn alloc_op(&mut self, id: u64, size: u64, stream: u64) -> StepResult {
        if size == 0 {
            self.live.insert(id, None);
            return StepResult::Null;
        }
        match self.allocate(size, stream) {
            Answer::OutOfMemory => StepResult::OutOfMemory,
            Answer::At(at) => {
                self.live.insert(id, Some(at));
                let (segment, offset) = self.device.label(at);
                StepResult::Placed { segment, offset, block: self.block(at).size }
            }
        }
    }
}

impl GoldenSubject for Reference {
    fn apply(&mut self, op: &TraceOp) -> Result<StepResult, String> {
        let mut result = StepResult::Done;
        match op {
            TraceOp::Alloc { id, size, stream } => result = self.alloc_op(*id, *size, *stream),
            TraceOp::Free { id } => match self.live.remove(id) {
                None => return Ok(StepResult::Skip),
                Some(None) => {}
                Some(Some(at)) => self.release_buffer(at),
            },
            TraceOp::RecordStream { id, stream } => match self.live.get(id).copied() {
                None => return Ok(StepResult::Skip),
                Some(None) => {}
                Some(Some(at)) => self.record_stream(at, *stream),
            },
            TraceOp::Complete { stream } => self.device.complete(*stream),
            TraceOp::CompleteAll => self.device.complete_all(),
            TraceOp::EmptyCache => self.release_everything(),
            TraceOp::ResetPeak => self.stats.reset_peak(),
            TraceOp::ResetAccumulated => self.stats.reset_accumulated(),
            TraceOp::SetMemoryFraction { fraction } => self.set_memory_fraction(*fraction)?,
            TraceOp::OtherProcess { bytes } => self.device.other = *bytes,
            TraceOp::SetConf { conf } => self.settings.apply(conf)?,
            TraceOp::PoolBegin { pool, stream } => self.pool_begin(*pool, *stream)?,
            TraceOp::PoolEnd { pool } => self.pool_end(*pool)?,
            TraceOp::PoolRelease { pool } => self.pool_release(*pool)?,
            TraceOp::CaptureBegin { stream } => self.capture_begin(*stream),
            TraceOp::CaptureEnd { stream } => self.capture_end(*stream),
        }
        self.broken.take().map_or(Ok(result), |why| Err(format!("{UNDEFINED}: {why}")))
    }

    fn stats(&self) -> StepStats {
        let stats = &self.stats;
        StepStats {
            allocated: stats.allocated_bytes.all.current,
            allocated_peak: stats.allocated_bytes.all.peak,
            active: stats.active_bytes.all.current,
            active_peak: stats.active_bytes.all.peak,
            reserved: stats.reserved_bytes.all.current,
            reserved_peak: stats.reserved_bytes.all.peak,
            inactive_split: stats.inactive_split_bytes.all.current,
            inactive_split_peak: stats.inactive_split_bytes.all.peak,
            requested: stats.requested_bytes.all.current,
            segments: stats.segment.all.current,
            blocks_active: stats.active.all.current,
            blocks_inactive_split: stats.inactive_split.all.current,
            retries: stats.num_alloc_retries,
            ooms: stats.num_ooms,
            device_used: self.device.used.cast_signed(),
        }
    }

    fn counters(&self) -> BTreeMap<String, i64> {
        let mut counters: BTreeMap<_, _> = self.stats.flatten().into_iter().collect();
        // The statistics keep the value from the start, whatever `set_conf` changed since.
        let limit = self.max_split_size_at_start;
        counters.insert(
            "max_split_size".into(),
            if limit == u64::MAX { -1 } else { limit.cast_signed() },
        );
        counters
    }

    fn table(&self) -> Vec<TableSegment> {
        let segment = |run: super::table::Run| TableSegment {
            segment: run.label,
            offset: run.offset,
            stream: run.stream,
            large: !run.small,
            expandable: run.expandable,
            private_pool: run.private_pool,
            registration: Some(run.registration),
            blocks: run
                .blocks
                .into_iter()
                .map(|(size, requested, state)| TableBlock {
                    size,
                    requested,
                    state: State::parse(state).expect("a state"),
                    age: 0,
                })
                .collect(),
        };
        self.runs().into_iter().map(segment).collect()
    }

    fn calls(&mut self) -> Vec<CallRow> {
        let row = |call: super::device::Call| CallRow {
            call: call.name,
            place: call.place,
            size: call.size,
            reference: match (call.handle, call.stream) {
                (Some(handle), _) => format!("h{handle}"),
                (None, Some(stream)) => format!("s{stream}"),
                (None, None) => String::new(),
            },
            ok: call.ok,
        };
        self.device.take_calls().into_iter().map(row).collect()
    }
}
