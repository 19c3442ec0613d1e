//! A device of the process: its driver, its strategy, what is live.

use std::collections::BTreeMap;

use vramlab_allocators::{Spec, build, find};
use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply, Request};
use vramlab_sim::driver::{Answer, Call, Driver};
use vramlab_sim::machine::{Machine, Memory};
use vramlab_sim::op::{NameId, Op};
use vramlab_sim::units::{BufferId, Nanos, StreamId};
use vramlab_validate::shared::Shared;

use crate::MempoolId;
use crate::streams::Pools;
use crate::summary::{SCHEMA, Summary};

/// A live allocation.
struct Live {
    block: Block,
    id: BufferId,
    size: u64,
}

/// Why a request got nothing.
pub(crate) struct Refused {
    /// For want of memory.
    pub(crate) oom: bool,
    pub(crate) why: String,
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self { oom: false, why }
    }
}

impl From<AllocError> for Refused {
    fn from(error: AllocError) -> Self {
        Self { oom: matches!(error, AllocError::OutOfMemory(_)), why: error.to_string() }
    }
}

/// An op with its time, for the trace.
pub(crate) type Noted = (Nanos, Op);

/// One device.
pub(crate) struct Device {
    shared: Shared,
    strategy: Box<dyn Allocator>,
    /// What the strategy holds.
    memory: Memory,
    live: BTreeMap<u64, Live>,
    pools: Pools,
    summary: Summary,
}

impl Device {
    /// Opens it.
    pub(crate) fn open(device: i32, spec: &Spec, limit: Option<u64>) -> Result<Self, String> {
        let strategy = build(spec).map_err(|e| e.0)?;
        let memory = find(&spec.strategy().name).map_err(|e| e.0)?.memory;
        let shared = Shared::open(device, limit)?;
        let summary = Summary {
            schema: SCHEMA,
            vramlab: env!("CARGO_PKG_VERSION"),
            device,
            strategy: spec.to_string(),
            limit: shared.limit(),
            ..Summary::default()
        };
        Ok(Self {
            shared,
            strategy,
            memory,
            live: BTreeMap::new(),
            pools: Pools::default(),
            summary,
        })
    }

    pub(crate) fn is_live(&self, address: u64) -> bool {
        self.live.contains_key(&address)
    }

    /// Serves a request; the ops that it is are noted, also if it fails.
    pub(crate) fn alloc(
        &mut self,
        size: u64,
        stream: usize,
        id: BufferId,
        noted: &mut Vec<Noted>,
    ) -> Result<u64, Refused> {
        let stream = self.shared.stream(stream);
        let ordinal = self.summary.allocs;
        let Self { shared, strategy, pools, .. } = self;
        let (placed, start, end) = shared.with(|machine| -> Result<_, AllocError> {
            if pools.any_open() {
                route(machine, &mut **strategy, pools, stream, noted)?;
            }
            let start = machine.now();
            noted.push((start, Op::Alloc { id, stream, site: NameId(0), size }));
            let placed = strategy.alloc(machine, &Request { size, stream, ordinal });
            Ok((placed, start, machine.now()))
        })??;
        let took = end.0.saturating_sub(start.0);
        let summary = &mut self.summary;
        summary.allocs += 1;
        summary.alloc_ns += took;
        summary.alloc_max_ns = summary.alloc_max_ns.max(took);
        let placement = placed.map_err(|error| {
            let refused = Refused::from(error);
            summary.ooms += u64::from(refused.oom);
            // who did not get it has it no longer
            noted.push((end, Op::Free { id, stream: None }));
            refused
        })?;
        summary.requested += size;
        summary.peak_requested = summary.peak_requested.max(summary.requested);
        let live = Live { block: placement.block, id, size };
        if self.live.insert(placement.address, live).is_some() {
            return Err(format!(
                "{} gave address {:#x} out twice",
                self.summary.strategy, placement.address
            )
            .into());
        }
        Ok(placement.address)
    }

    /// Takes memory back.
    pub(crate) fn free(&mut self, address: u64) -> Result<Noted, String> {
        let live = self.live.remove(&address).ok_or_else(|| {
            format!("found a free of {address:#x}, expected an address that is live")
        })?;
        let strategy = &mut self.strategy;
        let (freed, start, end) = self.shared.with(|machine| {
            let start = machine.now();
            let freed = strategy.free(machine, live.block, None);
            (freed, start, machine.now())
        })?;
        self.summary.frees += 1;
        self.summary.requested -= live.size;
        self.summary.free_ns += end.0.saturating_sub(start.0);
        freed.map_err(|e| e.to_string())?;
        Ok((start, Op::Free { id: live.id, stream: None }))
    }

    /// The memory is used on one more stream.
    pub(crate) fn record_stream(&mut self, address: u64, stream: usize) -> Result<Noted, String> {
        let stream = self.shared.stream(stream);
        let live = self.live.get(&address).ok_or_else(|| {
            format!("found record_stream of {address:#x}, expected an address that is live")
        })?;
        let strategy = &mut self.strategy;
        let (reply, now) = self.shared.with(|machine| {
            let now = machine.now();
            (strategy.notice(machine, Notice::RecordStream { block: live.block, stream }), now)
        })?;
        if reply.map_err(|e| e.to_string())? == Reply::Unsupported {
            let strategy = &self.summary.strategy;
            return Err(format!(
                "{strategy} does not know record_stream: memory that several streams use may be handed out again too early"
            ));
        }
        Ok((now, Op::RecordStream { id: live.id, stream }))
    }

    /// Tells the strategy something; whether it knows what that is, and when.
    pub(crate) fn notice(&mut self, notice: Notice<'_>) -> Result<(bool, Nanos), String> {
        let strategy = &mut self.strategy;
        let (reply, now) = self.shared.with(|machine| {
            let now = machine.now();
            (strategy.notice(machine, notice), now)
        })?;
        let reply = reply.map_err(|e| e.to_string())?;
        Ok((reply != Reply::Unsupported, now))
    }

    pub(crate) fn begin_pool(&mut self, pool: MempoolId) {
        self.pools.begin(pool);
    }

    pub(crate) fn end_pool(&mut self, pool: MempoolId) -> Result<Vec<Noted>, String> {
        let Some((pool, streams)) = self.pools.end(pool) else { return Ok(Vec::new()) };
        let mut noted = Vec::new();
        if !streams.is_empty() {
            let (_, now) = self.notice(Notice::PoolEnd { pool })?;
            noted.push((now, Op::PoolEnd { pool }));
        }
        for stream in streams {
            let (_, now) = self.notice(Notice::CaptureEnd { stream })?;
            noted.push((now, Op::CaptureEnd { stream }));
        }
        Ok(noted)
    }

    pub(crate) fn release_pool(&mut self, pool: MempoolId) -> Result<Vec<Noted>, String> {
        let Some((pool, uses)) = self.pools.release(pool) else { return Ok(Vec::new()) };
        let release = |_| {
            let (_, now) = self.notice(Notice::PoolRelease { pool })?;
            Ok((now, Op::PoolRelease { pool }))
        };
        (0..uses).map(release).collect()
    }

    /// The figures so far.
    pub(crate) fn summary(&mut self) -> Summary {
        let machine = self.shared.books();
        (self.summary.reserved, self.summary.peak_reserved) = machine.held().of(self.memory);
        self.summary.driver_calls = machine.calls().iter().collect();
        self.summary.clone()
    }
}

/// Rule `pool_route`: a stream that is captured goes to the open pools.
fn route(
    machine: &mut dyn Machine,
    strategy: &mut dyn Allocator,
    pools: &mut Pools,
    stream: StreamId,
    noted: &mut Vec<Noted>,
) -> Result<(), AllocError> {
    if machine.call(Call::CaptureStatus { stream })? != Answer::Flag(true) {
        return Ok(());
    }
    for pool in pools.route(stream) {
        let driver: &mut dyn Driver = machine;
        strategy.notice(driver, Notice::CaptureBegin { stream })?;
        strategy.notice(driver, Notice::PoolBegin { pool, stream })?;
        noted.push((machine.now(), Op::CaptureBegin { stream }));
        noted.push((machine.now(), Op::PoolBegin { pool, stream }));
    }
    Ok(())
}
