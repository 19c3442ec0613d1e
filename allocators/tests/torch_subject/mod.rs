//! `torch.caching` on a scripted machine, as a subject of the golden comparison.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

use std::collections::{BTreeMap, HashMap};

use vramlab_allocators::Options;
use vramlab_allocators::torch::{Caching, Stat};
use vramlab_sim::allocator::{AllocError, Allocator, Block, BlockState, Notice, Reply, Request};
use vramlab_sim::machine::{Machine, Origin};
use vramlab_sim::testing::{ScriptedMachine, sort_event_runs};
use vramlab_sim::units::{PoolId, StreamId};

use crate::golden_format::{
    CallRow, Case, GoldenSubject, State, StepResult, StepStats, TableBlock, TableSegment, TraceOp,
    UNDEFINED,
};

pub(crate) struct TorchSubject {
    caching: Caching,
    machine: ScriptedMachine,
    live: HashMap<u64, Block>,
    ordinal: u64,
}

/// The version option for the text of a case, such as `2.15.0+cu132`.
fn version(torch: &str) -> &str {
    let release = torch.split('+').next().unwrap_or(torch);
    release
        .rsplit_once('.')
        .filter(|(head, _)| head.contains('.'))
        .map_or(release, |(head, _)| head)
}

fn label(origin: Option<Origin>) -> (String, u64) {
    origin.map_or(("?".into(), 0), |at| (format!("{}{}", at.kind.letter(), at.ordinal), at.offset))
}

fn stream(number: u64) -> StreamId {
    StreamId(u32::try_from(number).expect("a stream number"))
}

fn pool(number: u64) -> PoolId {
    PoolId(u32::try_from(number).expect("a pool number"))
}

impl TorchSubject {
    pub(crate) fn new(torch: &str, conf: &str, capacity: u64) -> Result<Self, String> {
        let options = Options::from_pairs([("version", version(torch)), ("conf", conf)]);
        Ok(Self {
            caching: Caching::from_options(&options).map_err(|error| error.to_string())?,
            machine: ScriptedMachine::of_capacity(capacity),
            live: HashMap::new(),
            ordinal: 0,
        })
    }

    pub(crate) fn for_case(case: &Case) -> Result<Box<dyn GoldenSubject>, String> {
        Ok(Box::new(Self::new(&case.torch, &case.conf, case.capacity)?))
    }

    fn alloc(&mut self, id: u64, size: u64, on: u64) -> Result<StepResult, String> {
        let request = Request { size, stream: stream(on), ordinal: self.ordinal };
        self.ordinal += 1;
        let answer = self.caching.alloc(&mut self.machine, &request);
        if self.caching.statistics().spared_blocks > 0 {
            return Err(format!("{UNDEFINED}: a part of a segment would be released"));
        }
        match answer {
            Ok(placement) => {
                self.live.insert(id, placement.block);
                if placement.address == 0 {
                    return Ok(StepResult::Null);
                }
                let (segment, offset) = label(self.machine.origin(placement.address));
                Ok(StepResult::Placed { segment, offset, block: placement.size })
            }
            Err(AllocError::OutOfMemory(_)) => Ok(StepResult::OutOfMemory),
            Err(error) => Err(error.to_string()),
        }
    }

    fn tell(&mut self, notice: Notice<'_>) -> Result<StepResult, String> {
        match self.caching.notice(&mut self.machine, notice) {
            Ok(Reply::Unsupported) => Err("unsupported".into()),
            Ok(_) => Ok(StepResult::Done),
            Err(error) => Err(error.to_string()),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<StepResult, String> {
        self.tell(Notice::Set { key, value })
    }
}

impl GoldenSubject for TorchSubject {
    fn apply(&mut self, op: &TraceOp) -> Result<StepResult, String> {
        match op {
            TraceOp::Alloc { id, size, stream } => return self.alloc(*id, *size, *stream),
            TraceOp::Free { id } => {
                let Some(block) = self.live.remove(id) else { return Ok(StepResult::Skip) };
                self.caching
                    .free(&mut self.machine, block, None)
                    .map_err(|error| error.to_string())?;
            }
            TraceOp::RecordStream { id, stream: on } => {
                let Some(&block) = self.live.get(id) else { return Ok(StepResult::Skip) };
                return self.tell(Notice::RecordStream { block, stream: stream(*on) });
            }
            TraceOp::Complete { stream: on } => self.machine.complete(stream(*on)),
            TraceOp::CompleteAll => self.machine.complete_all(),
            TraceOp::EmptyCache => return self.tell(Notice::EmptyCache),
            TraceOp::ResetPeak => return self.tell(Notice::ResetPeak),
            TraceOp::ResetAccumulated => return self.tell(Notice::ResetAccumulated),
            TraceOp::SetMemoryFraction { fraction } => {
                return self.set("memory_fraction", &fraction.to_string());
            }
            TraceOp::OtherProcess { bytes } => self.machine.other_process(*bytes),
            TraceOp::SetConf { conf } => return self.set("conf", conf),
            TraceOp::PoolBegin { pool: id, stream: on } => {
                return self.tell(Notice::PoolBegin { pool: pool(*id), stream: stream(*on) });
            }
            TraceOp::PoolEnd { pool: id } => return self.tell(Notice::PoolEnd { pool: pool(*id) }),
            TraceOp::PoolRelease { pool: id } => {
                return self.tell(Notice::PoolRelease { pool: pool(*id) });
            }
            TraceOp::CaptureBegin { stream: on } => {
                self.machine.capture(stream(*on), true);
                return self.tell(Notice::CaptureBegin { stream: stream(*on) });
            }
            TraceOp::CaptureEnd { stream: on } => {
                self.machine.capture(stream(*on), false);
                return self.tell(Notice::CaptureEnd { stream: stream(*on) });
            }
        }
        Ok(StepResult::Done)
    }

    fn stats(&self) -> StepStats {
        let stats = self.caching.statistics();
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
            retries: stats.num_alloc_retries.cast_signed(),
            ooms: stats.num_ooms.cast_signed(),
            device_used: self.machine.held().device_used.cast_signed(),
        }
    }

    fn counters(&self) -> BTreeMap<String, i64> {
        let stats = self.caching.statistics();
        let mut counters = BTreeMap::new();
        let mut add = |name: &str, stat: Stat| {
            let Stat { current, peak, allocated, freed } = stat;
            for (part, value) in
                [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)]
            {
                counters.insert(format!("{name}.{part}"), value);
            }
        };
        for (name, stat) in [
            ("allocation", stats.allocation),
            ("segment", stats.segment),
            ("active", stats.active),
            ("inactive_split", stats.inactive_split),
            ("allocated_bytes", stats.allocated_bytes),
            ("reserved_bytes", stats.reserved_bytes),
            ("active_bytes", stats.active_bytes),
            ("inactive_split_bytes", stats.inactive_split_bytes),
            ("requested_bytes", stats.requested_bytes),
        ] {
            add(&format!("{name}.all"), stat.all);
            add(&format!("{name}.small_pool"), stat.small_pool);
            add(&format!("{name}.large_pool"), stat.large_pool);
        }
        add("oversize_allocations", stats.oversize_allocations);
        add("oversize_segments", stats.oversize_segments);
        for (name, value) in [
            ("num_alloc_retries", stats.num_alloc_retries),
            ("num_ooms", stats.num_ooms),
            ("num_sync_all_streams", stats.num_sync_all_streams),
            ("num_device_alloc", stats.num_device_alloc),
            ("num_device_free", stats.num_device_free),
            ("num_oom_rejections", stats.num_oom_rejections),
            ("max_split_size", stats.max_split_size.unwrap_or(u64::MAX)),
        ] {
            counters.insert(name.into(), value.cast_signed());
        }
        counters
    }

    fn table(&self) -> Vec<TableSegment> {
        let layout = self.caching.layout();
        let block = |block: &vramlab_sim::allocator::LayoutBlock| TableBlock {
            size: block.size,
            requested: block.requested,
            state: match block.state {
                BlockState::Allocated => State::Allocated,
                BlockState::Pending => State::Pending,
                BlockState::Free => State::Inactive,
            },
            // The field is there, but the real allocator never fills it in.
            age: 0,
        };
        let segment = |run: &vramlab_sim::allocator::LayoutSegment| {
            let (segment, offset) = label(self.machine.origin(run.address));
            TableSegment {
                segment,
                offset,
                stream: u64::from(run.stream.0),
                large: run.pool == "large",
                expandable: run.expandable,
                private_pool: run.private_pool.map_or(0, |pool| u64::from(pool.0)),
                registration: run.registration,
                blocks: run.blocks.iter().map(block).collect(),
            }
        };
        layout.segments.iter().map(segment).collect()
    }

    fn calls(&mut self) -> Vec<CallRow> {
        let mut log: Vec<_> = self.machine.drain_log().collect();
        sort_event_runs(&mut log);
        let row = |call: vramlab_sim::testing::LoggedCall| CallRow {
            call: call.call,
            place: call
                .segment
                .map(|(kind, ordinal)| (format!("{}{ordinal}", kind.letter()), call.offset)),
            size: call.size,
            reference: match call.reference {
                None => String::new(),
                Some(vramlab_sim::testing::Reference::Handle(handle)) => format!("h{}", handle.0),
                Some(vramlab_sim::testing::Reference::Stream(stream)) => format!("s{stream}"),
            },
            ok: call.ok,
        };
        log.into_iter().map(row).collect()
    }
}
