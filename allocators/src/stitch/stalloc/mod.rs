//! `stitch.stalloc`: STAlloc, which plans one training iteration and serves the next from the plan.
//!
//! ```text
//!  request ─▶ up to 512 B: a cell (`cells`)
//!          ─▶ static section: the next entry of the list (`profile`) ─▶ as planned and free? the static area ─┐ no
//!          ─▶ evaluation, experts: smallest free range of the static area, or ────────────────────────────────┴─▶ caching allocator
//! ```
//! Models infinigence/STAlloc at commit 3a9f97f, mode `Alloc` after a trace (mode `Trace`) of the same workload: the first iterations of what the
//! workload will ask are that trace. Paper: arXiv 2507.16274. Not checked against the real one yet.
//!
//! | rule | what it says | source, `Allocator/` |
//! |---|---|---|
//! | `static_area` | one `cudaMalloc` of the planned size at the first request, then the cells' | `main.cpp` 152-230, `Allocator.hpp` 43-48 |
//! | `by_order` | the n-th static request gets the n-th entry: the first list once, then the second again and again | `StaticAllocator.hpp` 49-62 |
//! | `exact_size` | another size than planned, or no place: to the caching allocator; the entry is used up. So a request more or less shifts all that follow | `StaticAllocator.hpp` 63-75 |
//! | `still_taken` | a place that is still taken, by whomever: to the caching allocator | `main.cpp` my_malloc, `OnlineDynamicManager.hpp` 90-130 |
//! | `evaluation` | the smallest free range of the static area, its low end, of equal ones the lowest; else the caching allocator | `main.cpp`, `OnlineDynamicManager.hpp` 215-250 |
//! | `experts` | with `STALLOC_DYNAMIC=1`: the caching allocator, or with `STALLOC_REUSE_STATIC=1` too as in `evaluation` | `main.cpp` my_malloc |
//! | `caching` | a copy of PyTorch's caching allocator: `torch.caching` with `version=2.9`, the nearest | `CUDACachingAllocator.cpp` |
//! | `no_plan` | a device without room for the static area: out of memory (the real one does not start). Without two iterations there is no plan, and all but cells goes to the caching allocator | `main.cpp` 217-223 |
//! | `no_release` | the plug-in has nothing to empty: `empty_cache` and `trim` are not known | `main.cpp` |
//! | `streams` | ours: memory that another stream used before is reused at once, after a stream wait; a deferred free holds its place until it is told or, at the next request, the device is waited for. The real one looks at no stream | `Allocator.hpp` 62 |
//!
//! `profile`, `layers`, `sections` and `cells` have their own rules. `STALLOC_STATIC_FALLBACK` is accepted: at this commit a taken place is found in
//! either case. Left out: the ranges that the plan knows to be spare for a layer of experts (what is free at the moment is taken), `fuse` and
//! `dynamic-only` plans, and how many experts there are.

mod cells;
mod layers;
mod profile;
mod sections;

#[cfg(test)]
mod tests;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Layout, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::future::Future;
use vramlab_sim::units::StreamId;

use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::area::{Area, subject};
use crate::parts::nulls::Nulls;
use crate::registry::{Made, Status, Strategy};

use cells::Cells;
use profile::{CELL, Profile};
use sections::Section;

const NAME: &str = "stitch.stalloc";

const fn option(name: &'static str, help: &'static str) -> OptionDoc {
    OptionDoc { name, default: "0", help }
}

const OPTIONS: &[OptionDoc] = &[
    option("STALLOC_DYNAMIC", "1: marks tell layers of experts, whose requests are not planned"),
    option("STALLOC_REUSE_STATIC", "1: these use free ranges of the static area first"),
    option("STALLOC_STATIC_FALLBACK", "1: a place that is still taken is looked for twice"),
];

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::ahead(
    NAME,
    |options, future| {
        let settings = Settings::parse(options)?;
        let caching = crate::build(&"torch.caching:version=2.9".parse()?)?;
        let made: Made = Ok(Box::new(Stalloc::new(settings, future, caching)));
        made
    },
    Status::Rules("STAlloc 3a9f97f"),
    OPTIONS,
    "a training iteration planned from the one before, and a caching allocator for the rest",
)
.inert(inert);

#[derive(Clone, Copy, Debug)]
struct Settings {
    dynamic: bool,
    reuse_static: bool,
}

impl Settings {
    fn parse(options: &Options) -> Result<Self, OptionError> {
        options.check(NAME, OPTIONS)?;
        let flag = |name| options.parse::<i64>(name, "a whole number", 0).map(|number| number > 0);
        flag("STALLOC_STATIC_FALLBACK")?;
        let (dynamic, reuse_static) = (flag("STALLOC_DYNAMIC")?, flag("STALLOC_REUSE_STATIC")?);
        Ok(Self { dynamic, reuse_static })
    }
}

fn inert(options: &Options) -> Vec<String> {
    let Ok(settings) = Settings::parse(options) else { return Vec::new() };
    let mut found = Vec::new();
    if options.get("STALLOC_STATIC_FALLBACK").is_some() {
        found.push("STALLOC_STATIC_FALLBACK has no effect on where blocks lie: a place that is still taken is found in either case".into());
    }
    if settings.reuse_static && !settings.dynamic {
        found.push("STALLOC_REUSE_STATIC has no effect without STALLOC_DYNAMIC=1: no request is known to be an expert's".into());
    }
    found
}

struct Stalloc {
    settings: Settings,
    /// The trace, until it is planned.
    trace: Future,
    profile: Option<Profile>,
    area: Area,
    cells: Cells,
    caching: Box<dyn Allocator>,
    nulls: Nulls,
    section: Section,
    /// Static requests so far, in the present list; and is it the second?
    next: usize,
    repeats: bool,
    as_planned: u64,
    mismatches: u64,
}

impl Stalloc {
    fn new(settings: Settings, future: &Future, caching: Box<dyn Allocator>) -> Self {
        Self {
            settings,
            trace: profile::traced(future),
            profile: None,
            area: Area::new("static"),
            cells: Cells::default(),
            caching,
            nulls: Nulls::default(),
            section: Section::Static,
            next: 0,
            repeats: false,
            as_planned: 0,
            mismatches: 0,
        }
    }

    /// Rule `static_area`.
    fn begin(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if self.profile.is_none() {
            let limit = driver.mem_info()?.0;
            let trace = std::mem::take(&mut self.trace);
            self.profile = Some(Profile::new(&trace, self.settings.dynamic, limit));
        }
        let (bytes, cells) = self.profile.as_ref().map_or((0, 0), |p| (p.bytes, p.cells));
        if bytes > 0 && !self.area.is_there() {
            self.area.obtain(driver, bytes).map_err(|error| self.refusal(error, bytes))?;
        }
        if cells > 0 && self.cells.usage().reserved == 0 {
            let bytes = 2 * cells;
            self.cells.grow(driver, bytes).map_err(|error| self.refusal(error, bytes))?;
        }
        Ok(())
    }

    /// Out of memory, with the numbers of all; other errors as they are.
    fn refusal(&self, error: DriverError, asked: u64) -> AllocError {
        let DriverError::OutOfMemory { free, .. } = error else { return error.into() };
        let Usage { active, reserved, .. } = self.usage();
        let (device_free, largest_free, limit) = (free, 0, None);
        OutOfMemory { asked, device_free, reserved, active, largest_free, limit }.into()
    }

    /// Rules `by_order`, `exact_size` and `still_taken`.
    fn static_place(&mut self, size: u64) -> Option<u64> {
        let profile = self.profile.as_ref()?;
        if !self.repeats && self.next == profile.first.len() {
            (self.repeats, self.next) = (true, 0);
        }
        let list = if self.repeats { &profile.second } else { &profile.first };
        let entry = *list.get(self.next)?;
        self.next += 1;
        if self.repeats && self.next == list.len() {
            self.next = 0;
        }
        let place = entry.offset.filter(|_| entry.size == size);
        place.filter(|offset| self.area.is_free(*offset, size.next_multiple_of(CELL)))
    }

    /// Where in the static area a request goes.
    fn place(&mut self, request: &Request) -> Option<u64> {
        let profile = self.profile.as_ref()?;
        if profile.unreleased.binary_search(&request.ordinal).is_ok() {
            return None;
        }
        let reuses = match self.section {
            Section::Static => return self.static_place(request.size),
            Section::Evaluation => true,
            Section::Dynamic => self.settings.reuse_static,
        };
        let size = request.size.checked_next_multiple_of(CELL).filter(|_| reuses)?;
        self.area.smallest_gap(size)
    }

    fn fall_back(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let mut answer = self.caching.alloc(driver, request);
        if let Err(AllocError::OutOfMemory(numbers)) = &mut answer {
            let usage = self.usage();
            (numbers.reserved, numbers.active) = (usage.reserved, usage.active);
        }
        answer
    }

    /// A notice about a cell, or a block of the static area.
    fn notice_own(&mut self, notice: &Notice<'_>) -> Result<Reply, AllocError> {
        let cell = |block| {
            Cells::owns(block)
                .then(|| self.cells.find(block).ok_or(AllocError::UnknownBlock(block)))
                .transpose()
        };
        let slot = |block| self.area.find(block).ok_or(AllocError::UnknownBlock(block));
        match *notice {
            Notice::RecordStream { block, stream } => match cell(block)? {
                Some(at) => self.cells.record(at, stream),
                None => {
                    let slot = slot(block)?;
                    self.area.record(slot, stream);
                }
            },
            Notice::FreeDeferred { block } => match cell(block)? {
                Some(at) => self.cells.hold(at),
                None => {
                    let slot = slot(block)?;
                    self.area.hold(slot);
                }
            },
            Notice::Completed { block } if Cells::owns(block) => self.cells.arrive(block),
            Notice::Completed { block } => self.area.arrive(block),
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    fn notice_null(&mut self, notice: &Notice<'_>, block: Block) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { .. } => self.nulls.check(block)?,
            Notice::FreeDeferred { .. } => self.nulls.free(block)?,
            _ => {}
        }
        Ok(Reply::Done)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("static_bytes", self.area.bytes()),
            ("var_bytes", self.cells.usage().reserved),
            ("caching_bytes", self.caching.usage().reserved),
            ("as_planned", self.as_planned),
            ("mismatches", self.mismatches),
        ]
    }

    fn layout(&mut self, driver: &mut dyn Driver) -> Result<Layout, AllocError> {
        let mut segments = match self.caching.notice(driver, Notice::Walk)? {
            Reply::Layout(layout) => layout.segments,
            _ => Vec::new(),
        };
        segments.extend(self.area.layout());
        segments.extend(self.cells.layout());
        segments.sort_unstable_by_key(|segment| segment.address);
        Ok(Layout { segments })
    }
}

impl Allocator for Stalloc {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if request.size == 0 {
            return Ok(self.nulls.place());
        }
        self.begin(driver)?;
        self.area.wait(driver)?;
        self.cells.wait(driver)?;
        if request.size <= CELL {
            let taken = self.cells.take(driver, request.stream, request.size);
            return taken.map_err(|error| self.refusal(error, self.cells.usage().reserved));
        }
        if let Some(offset) = self.place(request) {
            let place = (offset, request.size.next_multiple_of(CELL));
            let taken = self.area.take(driver, request.stream, place, request.size)?;
            if let Some(placement) = taken {
                self.as_planned += u64::from(self.section == Section::Static);
                return Ok(placement);
            }
        }
        self.mismatches += u64::from(self.section == Section::Static);
        self.fall_back(driver, request)
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
        if Cells::owns(block) {
            let at = self.cells.find(block).ok_or(AllocError::UnknownBlock(block))?;
            self.cells.free(at, stream);
        } else if Area::owns(block) {
            let slot = self.area.find(block).ok_or(AllocError::UnknownBlock(block))?;
            self.area.free(slot, stream);
        } else {
            return self.caching.free(driver, block, stream);
        }
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match subject(&notice) {
            Some(block) if Nulls::owns(block) => return self.notice_null(&notice, block),
            Some(block) if Area::owns(block) => return self.notice_own(&notice),
            _ => {}
        }
        match notice {
            Notice::Mark { name } => {
                self.section = Section::of(name, self.settings.dynamic);
                Ok(Reply::Done)
            }
            Notice::EmptyCache | Notice::Trim { .. } => Ok(Reply::Unsupported),
            Notice::Counters => Ok(Reply::Counters(self.counters())),
            Notice::Walk => Ok(Reply::Layout(self.layout(driver)?)),
            other => self.caching.notice(driver, other),
        }
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        let parts = [self.area.usage(), self.cells.usage(), self.caching.usage()];
        let sum = |of: fn(&Usage) -> u64| parts.iter().map(of).sum();
        Usage {
            allocated: sum(|usage| usage.allocated),
            active: sum(|usage| usage.active),
            reserved: sum(|usage| usage.reserved),
        }
    }
}
