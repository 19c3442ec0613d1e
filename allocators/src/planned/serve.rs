//! Serving a plan.
//!
//! | rule | what it says |
//! |---|---|
//! | `one_malloc` | the plan is made at the first request, for the free memory of that moment, and its range is one `cudaMalloc`. A device without room for all of it gives what it has, in whole granules of 2 MiB: what lies beyond is served by the fallback |
//! | `by_ordinal` | the n-th request gets the n-th offset, if its size is as planned |
//! | `streams` | memory that another stream used before is reused at once, after a stream wait: see `parts/past.rs` |
//! | `deviates` | what is not planned or not as planned, or whose place is still taken, goes to a dynamic best fit (`classic.best_fit` with segments of 2 MiB and up), which orders streams |
//! | `deferred` | a block whose free is deferred holds its place until it is told or the device is waited for |
//! | `empty_cache` | the device is waited for if a block waits; the range goes back if no block lies in it, and is taken again when it is next needed |
//! | `out_of_memory` | before it gives up, blocks that wait are waited for, a range in which no block lies goes back, and the request is tried once more |

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::future::Future;
use vramlab_sim::units::StreamId;

use super::options::Common;
use super::plan::{Asked, Offsets, Plan, Planner, Spans, asked, units_of};
use crate::options::{Options, Spec};
use crate::parts::area::{Area, subject};
use crate::parts::nulls::Nulls;
use crate::registry::Made;

const GRANULE: u64 = 2 << 20;

/// Ways of planning, of which the one whose plan is smallest is taken.
pub(crate) struct Planning(Vec<(&'static str, Planner)>);

impl Planning {
    /// One way.
    pub(crate) fn of(planner: Planner) -> Self {
        Self(vec![("", planner)])
    }

    /// The best of several, by name.
    pub(crate) fn best_of(planners: &[(&'static str, Planner)]) -> Self {
        Self(planners.to_vec())
    }

    /// The best offsets; adds the units of each way to `sizes`.
    fn plan(&self, spans: Spans<'_>, sizes: &mut [u64]) -> Offsets {
        let mut best: Option<(u32, Offsets)> = None;
        for ((_, planner), size) in self.0.iter().zip(sizes) {
            let offsets = planner(spans);
            let units = units_of(spans, &offsets);
            *size += u64::from(units);
            if best.as_ref().is_none_or(|(least, _)| units < *least) {
                best = Some((units, offsets));
            }
        }
        best.map(|(_, offsets)| offsets).unwrap_or_default()
    }
}

/// A planned strategy.
pub(crate) struct Planned {
    asked: Vec<Asked>,
    unit: u64,
    planning: Planning,
    plan: Option<Plan>,
    /// Bytes of the plan of each way.
    sizes: Vec<u64>,
    area: Area,
    /// Is memory free before the workload's free? Then, by ordinal, the block.
    blocks: Option<Vec<Option<Block>>>,
    /// Next of [`Plan::ends`].
    next_end: usize,
    fallback: Box<dyn Allocator>,
    nulls: Nulls,
    served: u64,
    deviations: u64,
}

impl Planned {
    /// An instance for what is known to come.
    pub(crate) fn made(future: &Future, common: Common, planning: Planning) -> Made {
        let options = [("align", common.unit.to_string()), ("segment", GRANULE.to_string())];
        let spec = Spec::new("classic.best_fit", Options::from_pairs(options));
        let asked = asked(future, common.to_last_use);
        Ok(Box::new(Self {
            unit: common.unit,
            plan: None,
            sizes: vec![0; planning.0.len()],
            area: Area::new("plan"),
            blocks: common.to_last_use.then(|| vec![None; asked.len()]),
            next_end: 0,
            fallback: crate::build(&spec)?,
            nulls: Nulls::default(),
            served: 0,
            deviations: 0,
            planning,
            asked,
        }))
    }

    /// Makes the plan (rule `one_malloc`).
    fn make_plan(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        let free = driver.mem_info()?.0;
        let mut sizes = vec![0; self.sizes.len()];
        let plan =
            Plan::new(&self.asked, self.unit, free, |spans| self.planning.plan(spans, &mut sizes));
        self.sizes = sizes.into_iter().map(|units| units * self.unit).collect();
        self.plan = Some(plan);
        Ok(())
    }

    /// Takes the range from the driver, or what there is of it.
    fn obtain_area(&mut self, driver: &mut dyn Driver, bytes: u64) -> Result<(), DriverError> {
        match self.area.obtain(driver, bytes) {
            Err(DriverError::OutOfMemory { free, .. }) => {
                let less = free.min(bytes) / GRANULE * GRANULE;
                if less > 0 {
                    match self.area.obtain(driver, less) {
                        Err(DriverError::OutOfMemory { .. }) => {}
                        answer => answer?,
                    }
                }
                Ok(())
            }
            answer => answer,
        }
    }

    /// What the plan has for a request, if it is as planned.
    fn planned(&self, request: &Request) -> Option<u64> {
        let asked = self.asked.get(usize::try_from(request.ordinal).ok()?)?;
        self.plan.as_ref()?.offset(request.ordinal).filter(|_| asked.size == request.size)
    }

    /// Buffers that the plan has over before this request make room.
    fn end_until(&mut self, ordinal: u64) {
        let (Some(plan), Some(blocks)) = (&self.plan, &mut self.blocks) else { return };
        while let Some((until, over)) = plan.ends.get(self.next_end)
            && u64::from(*until) <= ordinal
        {
            self.next_end += 1;
            let block = blocks[*over as usize].take();
            if let Some(slot) = block.and_then(|block| self.area.find(block)) {
                self.area.end(slot);
            }
        }
    }

    /// Rule `by_ordinal`; `None`: rule `deviates`.
    fn serve(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Option<Placement>, DriverError> {
        self.end_until(request.ordinal);
        let Some(offset) = self.planned(request) else { return Ok(None) };
        if !self.area.is_there() {
            let bytes = self.plan.as_ref().map_or(0, |plan| plan.bytes);
            self.obtain_area(driver, bytes)?;
        }
        let size = request.size.next_multiple_of(self.unit);
        if !self.area.is_free(offset, size) {
            return Ok(None);
        }
        let place = (offset, size);
        let placement = self.area.take(driver, request.stream, place, request.size)?;
        if let (Some(blocks), Some(placement)) = (&mut self.blocks, &placement) {
            blocks[request.ordinal as usize] = Some(placement.block);
        }
        Ok(placement)
    }

    /// Rules `deviates` and `out_of_memory`.
    fn fall_back(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.deviations += 1;
        let mut answer = self.fallback.alloc(driver, request);
        if matches!(answer, Err(AllocError::OutOfMemory(_))) {
            let waited = self.area.wait(driver)?;
            if self.area.give_back(driver)? || waited {
                answer = match self.serve(driver, request)? {
                    Some(placement) => Ok(placement),
                    None => self.fallback.alloc(driver, request),
                };
            }
        }
        if let Err(AllocError::OutOfMemory(numbers)) = &mut answer {
            let usage = self.usage();
            (numbers.reserved, numbers.active) = (usage.reserved, usage.active);
        }
        answer
    }

    fn find(&self, block: Block) -> Result<u32, AllocError> {
        self.area.find(block).ok_or(AllocError::UnknownBlock(block))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let plan = self.plan.as_ref();
        let mut counters = vec![
            ("plan_bytes", plan.map_or(0, |plan| plan.bytes)),
            ("lower_bound", plan.map_or(0, |plan| plan.lower_bound)),
            ("as_planned", self.served),
            ("deviations", self.deviations),
            ("stream_waits", self.area.stream_waits()),
        ];
        if self.planning.0.len() > 1 {
            let names = self.planning.0.iter().map(|(name, _)| *name);
            counters.extend(names.zip(self.sizes.iter().copied()));
        }
        counters
    }

    fn layout(&mut self, driver: &mut dyn Driver) -> Result<Layout, AllocError> {
        let mut segments = match self.fallback.notice(driver, Notice::Walk)? {
            Reply::Layout(layout) => layout.segments,
            _ => Vec::new(),
        };
        segments.extend(self.area.layout());
        segments.sort_unstable_by_key(|segment| segment.address);
        Ok(Layout { segments })
    }

    /// A notice about a block of the range.
    fn notice_own(&mut self, notice: &Notice<'_>) -> Result<Reply, AllocError> {
        match *notice {
            Notice::RecordStream { block, stream } => {
                let slot = self.find(block)?;
                self.area.record(slot, stream);
            }
            Notice::FreeDeferred { block } => {
                let slot = self.find(block)?;
                self.area.hold(slot);
            }
            Notice::Completed { block } => self.area.arrive(block),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }
}

impl Allocator for Planned {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        if self.plan.is_none() {
            self.make_plan(driver)?;
        }
        match self.serve(driver, request)? {
            Some(placement) => {
                self.served += 1;
                Ok(placement)
            }
            None => self.fall_back(driver, request),
        }
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        if Nulls::owns(block) {
            return self.nulls.free(block);
        }
        if !Area::owns(block) {
            return self.fallback.free(driver, block, stream);
        }
        let slot = self.find(block)?;
        self.area.free(slot, stream);
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match subject(&notice) {
            Some(block) if Nulls::owns(block) => {
                match notice {
                    Notice::RecordStream { .. } => self.nulls.check(block)?,
                    Notice::FreeDeferred { .. } => self.nulls.free(block)?,
                    _ => {}
                }
                return Ok(Reply::Done);
            }
            Some(block) if Area::owns(block) => return self.notice_own(&notice),
            _ => {}
        }
        match notice {
            Notice::EmptyCache => {
                self.area.wait(driver)?;
                self.area.give_back(driver)?;
                self.fallback.notice(driver, Notice::EmptyCache)
            }
            Notice::Trim { keep } => {
                self.area.wait(driver)?;
                if self.usage().reserved > keep {
                    self.area.give_back(driver)?;
                }
                let keep = keep.saturating_sub(self.area.bytes());
                self.fallback.notice(driver, Notice::Trim { keep })
            }
            Notice::Counters => Ok(Reply::Counters(self.counters())),
            Notice::Walk => Ok(Reply::Layout(self.layout(driver)?)),
            other => self.fallback.notice(driver, other),
        }
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        let (area, rest) = (self.area.usage(), self.fallback.usage());
        Usage {
            allocated: area.allocated + rest.allocated,
            active: area.active + rest.active,
            reserved: area.reserved + rest.reserved,
        }
    }
}
