//! `+refcycle`: CPython in front of an allocator. A buffer goes back when its last reference goes, but one that dies in a reference cycle
//! only when the cycle collector runs, which knows nothing of device memory.
//!
//! Rules from `Modules/gcmodule.c` and `Include/internal/pycore_gc.h` of CPython 3.11; **not checked against the real one yet**, but held to recordings of
//! PyTorch programs with and without cycles (`results/tests/refcycle.rs`: peaks within 3 %). Each rule has a test of its name.
//!
//! | rule | what it says |
//! |---|---|
//! | `refcount` | each buffer is an object with references (a tensor); freed outside of a cycle it goes back at once |
//! | `threshold0` | a new object adds 1 to the count of the youngest generation, a dead one takes 1 (never below 0); above `threshold0` a collection begins, after the request is served; 0: never |
//! | `older` | a collection of a generation adds 1 to the count of the next one; the oldest generation whose count is above its threshold is collected, and all younger ones with it; their counts become 0 |
//! | `promotion` | what survives a collection is one generation older |
//! | `cycle` | a dead cycle is found when the generation of its oldest object is collected |
//! | `quarter` | the oldest generation is not collected as long as fewer objects joined it since its last collection than a quarter of those that survived that |
//! | `enabled` | with `gc.disable()` nothing is collected by count |
//! | `collect` | `gc.collect(generation)` collects whatever the counts are |
//! | `order` | those of the collected generation go first, then those of the younger ones from the youngest on; in the order of their deaths, buffers in the order in which they were dropped |
//!
//! The workload says what dies in a cycle, by settings that change while it runs: `cycle=N` begins one with N objects beside its buffers (the list, the owner), the
//! buffers that are freed next belong to it, and `cycle=0` ends it. Without that, the option `cycles` decides by size. `gc.collect=G` and `gc.enabled=…` are the calls.
//!
//! Not modelled: objects that are no buffers and in no dead cycle (but for `count0` and `long_lived`, what is there at the start), finalizers, weak references,
//! and the incremental collector of newer versions.

mod collector;
mod options;
#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use crate::options::Options;
use crate::registry::{Inner, Made, Status, Wrapper};
use collector::{Collector, Cycle};
use options::Settings;

/// The registry's line.
pub const WRAPPER: Wrapper = Wrapper {
    name: "refcycle",
    make: new,
    status: Status::Rules("CPython 3.11's cycle collector"),
    options: options::OPTIONS,
    many: false,
    locking: None,
    summary: "buffers that die in a reference cycle wait for CPython's cycle collector",
};

fn new(inner: &Inner, options: &Options) -> Made {
    let settings = Settings::parse(WRAPPER.name, options)?;
    Ok(Box::new(RefCycle {
        inner: inner()?,
        collector: Collector::new(&settings),
        settings,
        objects: FxHashMap::default(),
        open: None,
    }))
}

/// A buffer's object.
#[derive(Clone, Copy, Debug)]
struct Object {
    /// Its number among all objects.
    born: u64,
    /// Bytes asked for.
    size: u64,
    /// Dropped, in a cycle.
    dead: bool,
}

struct RefCycle {
    inner: Box<dyn Allocator>,
    settings: Settings,
    collector: Collector,
    /// Of each live block; of each dead one too, until it is collected. Looked up, never walked.
    objects: FxHashMap<Block, Object>,
    /// The cycle that is dying.
    open: Option<Cycle>,
}

impl RefCycle {
    /// New objects; a collection, if it is time for one.
    fn born(&mut self, driver: &mut dyn Driver, count: u64) -> Result<(), AllocError> {
        match self.collector.born(count) {
            Some(generation) => self.collect(driver, generation),
            None => Ok(()),
        }
    }

    fn collect(&mut self, driver: &mut dyn Driver, generation: usize) -> Result<(), AllocError> {
        for cycle in self.collector.collect(generation) {
            for (block, stream) in cycle.buffers {
                self.inner.free(driver, block, stream)?;
                self.objects.remove(&block);
            }
        }
        Ok(())
    }

    /// The object of a block that is not dead; none of a block that has none.
    fn alive(&self, block: Block) -> Result<Option<Object>, AllocError> {
        match self.objects.get(&block) {
            Some(object) if object.dead => Err(AllocError::UnknownBlock(block)),
            object => Ok(object.copied()),
        }
    }

    /// The last reference is gone, or the object went with it.
    fn died(&mut self, block: Block) {
        if let Some(object) = self.objects.remove(&block) {
            self.collector.died(object.born);
        }
    }

    /// Begins a cycle with so many objects beside its buffers.
    fn begin(&mut self, driver: &mut dyn Driver, others: u64) -> Result<(), AllocError> {
        self.end();
        self.open = Some(self.collector.cycle(others));
        self.born(driver, others)
    }

    fn end(&mut self) {
        if let Some(cycle) = self.open.take() {
            self.collector.dead(cycle);
        }
    }

    /// A buffer dies in the cycle that is open.
    fn drop_in(&mut self, block: Block, object: Object, stream: Option<StreamId>) {
        if let Some(cycle) = &mut self.open {
            cycle.add(block, object.born, stream);
            self.objects.insert(block, Object { dead: true, ..object });
        }
    }

    fn set(
        &mut self,
        driver: &mut dyn Driver,
        key: &str,
        value: &str,
    ) -> Result<Option<Reply>, AllocError> {
        let bad = |expected: &str| {
            AllocError::BadSetting(format!("{key}={value}: expected {expected}").into())
        };
        match key {
            "cycle" => match value.parse().map_err(|_| bad("a number of objects, or 0"))? {
                0 => self.end(),
                others => self.begin(driver, others)?,
            },
            "gc.collect" => {
                let generation = value.parse().ok().filter(|generation| *generation <= 2);
                self.collect(driver, generation.ok_or_else(|| bad("a generation from 0 to 2"))?)?;
            }
            "gc.enabled" => {
                self.collector.enabled = value.parse().map_err(|_| bad("true or false"))?;
            }
            _ => return Ok(None),
        }
        Ok(Some(Reply::Done))
    }

    /// What the strategy inside answered, as far as it concerns the objects.
    fn heard(&mut self, notice: &Notice<'_>, reply: &mut Reply) {
        match (notice, reply) {
            (_, Reply::Unsupported) => {}
            (Notice::FreeDeferred { block }, _) => self.died(*block),
            (Notice::Resize { block, size }, Reply::Placed(placement)) => {
                if let Some(object) = self.objects.remove(block) {
                    self.objects.insert(placement.block, Object { size: *size, ..object });
                }
            }
            (Notice::Adopt(_), Reply::Adopted(blocks)) => {
                let born = self.collector.adopted(blocks.len() as u64);
                let object = Object { born, size: 0, dead: false };
                self.objects.extend(blocks.iter().map(|block| (*block, object)));
            }
            (Notice::Counters, Reply::Counters(counters)) => {
                counters.extend(self.collector.counters());
            }
            _ => {}
        }
    }
}

impl Allocator for RefCycle {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let placement = self.inner.alloc(driver, request)?;
        if placement.address != 0 {
            let born = self.collector.clock();
            let object = Object { born, size: request.size, dead: false };
            self.objects.insert(placement.block, object);
            self.born(driver, 1)?;
        }
        Ok(placement)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        match self.alive(block)? {
            Some(object) if self.open.is_some() => self.drop_in(block, object, stream),
            Some(object) if self.settings.dies_in_cycle(object.size) => {
                self.begin(driver, self.settings.others)?;
                self.drop_in(block, object, stream);
                self.end();
            }
            _ => {
                self.inner.free(driver, block, stream)?;
                self.died(block);
            }
        }
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::Set { key, value } => {
                if let Some(reply) = self.set(driver, key, value)? {
                    return Ok(reply);
                }
            }
            Notice::RecordStream { block, .. }
            | Notice::FreeDeferred { block }
            | Notice::Resize { block, .. } => {
                self.alive(block)?;
            }
            _ => {}
        }
        let mut reply = self.inner.notice(driver, notice.clone())?;
        self.heard(&notice, &mut reply);
        Ok(reply)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.inner.before_work(driver, stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.inner.after_work(driver, stream, uses)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
