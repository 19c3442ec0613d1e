//! `stream_safe`: an instance of the strategy inside for each stream; a block that other streams use comes back when they are done.
//!
//! Equal to recordings of PaddlePaddle's own code (15888d1, 21 May 2024) around `paddle.auto_growth`; the rule `retry` is from the source, and not
//! checked against the real one yet. It works around any strategy.
//!
//! | rule | what it says | source or golden case |
//! |---|---|---|
//! | `per_stream` | requests of a stream go to its own instance; memory is never shared between them. The default stream (0) has its instance from the beginning, each other one with its first request | ss03 |
//! | `poll_first` | before a request, the waiting list of its stream is gone through in order, and blocks whose uses are all complete are freed | ss01 |
//! | `free` | a free is immediate if no recorded use is incomplete; else the block joins the waiting list of the stream that owns it, and is not counted as allocated | ss01, ss04 |
//! | `record` | a recorded use is an event on its stream; that of the owning stream is none; recording a stream again moves its event to now | ss02, ss04 |
//! | `capture` | a use that is recorded while a graph is captured gets its event at the first look after the capture's end | `stream_safe_cuda_allocator.cc` |
//! | `out_of_memory` | after the instance's own recovery has failed, for all streams in order of their making: the list is gone through and idle memory is returned (`empty_cache` of the instance); then one more try | ss03, ss05 |
//! | `release` | `empty_cache` does the same; `trim` likewise, until `keep` bytes are held by all together | ssL1 |
//! | `retry` | then, with `gpu_allocator_retry_time` > 0 and blocks waiting, the host waits for the device, which no queue of a simulation makes longer than that, does the same once more, and tries a last time. (The real one waits the whole time, for frees of other threads, also if nothing is waiting) | `retry_allocator.cc` |
//! | `free_on_stream` | an addition: a free that is ordered in another stream is a use by it | - |
//! | `deferred` | an addition: a free whose work the run cannot see keeps its block until it is completed, or until `retry` waits | - |
//! | `limit` | `gpu_memory_limit_mb` holds for all streams together | `gpu_info.cc` |
//!
//! Notices go to the instance that they concern (a block, a stream, a pool), or to all; settings that changed are told to later instances too. Counters are
//! sums over the instances. A recorded state is not adopted.

mod forward;
mod instances;
mod recorded;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::units::{PoolId, StreamId};

use super::flags::with_flags;
use super::limit::limited;
use super::settings;
use crate::options::{OptionDoc, Options};
use crate::parts::tokens::Tokens;
use crate::registry::{Inner, Made, Status, Wrapper};

use instances::Instances;
use recorded::Recorded;

/// The registry's line.
pub const WRAPPER: Wrapper = Wrapper {
    name: "stream_safe",
    make,
    status: Status::Exact("PaddlePaddle 15888d1 (May 2024)"),
    many: true,
    options: OPTIONS,
    locking: Some(vramlab_sim::engine::Locking::Stream),
    summary: "one instance for each stream; a block that other streams use comes back when they are done",
};

const OPTIONS: &[OptionDoc] = &[
    OptionDoc {
        name: "gpu_allocator_retry_time",
        default: "10000",
        help: "ms; 0: a request that fails is not tried again after waiting for the device",
    },
    OptionDoc {
        name: "gpu_memory_limit_mb",
        default: "0",
        help: "MiB that all streams together may hold from the driver; 0: no limit",
    },
    OptionDoc {
        name: "flags",
        default: "",
        help: "settings as Paddle takes them: 'FLAGS_name=value FLAGS_name=value'",
    },
];

const DEFAULT_STREAM: StreamId = StreamId(0);

fn make(inner: &Inner, options: &Options) -> Made {
    let options = with_flags(WRAPPER.name, options, OPTIONS)?;
    let retry = settings::number(&options, "gpu_allocator_retry_time", 10_000.0)? > 0.0;
    let limit = settings::mib(&options, "gpu_memory_limit_mb")?;
    let mut instances = Instances::new(inner.clone());
    instances.open(DEFAULT_STREAM)?;
    let wrapper = StreamSafe {
        instances,
        tokens: Tokens::default(),
        recorded: Recorded::default(),
        deferred: BTreeSet::new(),
        pools: Vec::new(),
        waiting: 0,
        retry,
    };
    Ok(limited(Box::new(wrapper), limit))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    /// Freed, in the waiting list of its stream.
    Unfreed,
    /// Freed by work that the run cannot see.
    Deferred,
}

/// A block that was handed out.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The instance's token.
    inner: Block,
    address: u64,
    /// Bytes that count as allocated for it.
    size: u64,
    /// Number of the instance.
    instance: u32,
    state: State,
}

struct StreamSafe {
    instances: Instances,
    tokens: Tokens<Held>,
    recorded: Recorded,
    deferred: BTreeSet<Block>,
    /// Private pools, and the instance that has each.
    pools: Vec<(PoolId, u32)>,
    /// Bytes of blocks that are freed and wait.
    waiting: u64,
    retry: bool,
}

impl StreamSafe {
    fn held(&self, block: Block) -> Result<Held, AllocError> {
        let held = *self.tokens.get(block)?;
        if held.state == State::Live { Ok(held) } else { Err(AllocError::UnknownBlock(block)) }
    }

    /// Asks the instance; if it has no room, once more after [`StreamSafe::release`] (rules `out_of_memory`, `retry`). Gives also the bytes
    /// that count as allocated for the block.
    fn place(
        &mut self,
        driver: &mut dyn Driver,
        at: u32,
        request: &Request,
    ) -> Result<(Placement, u64), AllocError> {
        let answer = self.instances.alloc(driver, at, request);
        let Err(AllocError::OutOfMemory(_)) = answer else { return answer };
        self.release(driver)?;
        let answer = self.instances.alloc(driver, at, request);
        let Err(AllocError::OutOfMemory(_)) = answer else { return answer };
        if !self.retry || self.waiting == 0 {
            return answer;
        }
        driver.device_synchronize()?;
        while let Some(block) = self.deferred.first().copied() {
            self.drop_block(driver, block)?;
            self.deferred.remove(&block);
        }
        self.release(driver)?;
        self.instances.alloc(driver, at, request)
    }

    /// Rule `release`; false if an instance has nothing of the kind.
    fn release(&mut self, driver: &mut dyn Driver) -> Result<bool, AllocError> {
        let mut able = true;
        for at in self.instances.all() {
            self.poll(driver, at)?;
            let reply =
                self.instances.with(at, |inner| inner.notice(driver, Notice::EmptyCache))?;
            able &= reply != Reply::Unsupported;
        }
        Ok(able)
    }

    fn trim(&mut self, driver: &mut dyn Driver, keep: u64) -> Result<bool, AllocError> {
        let mut able = true;
        for at in self.instances.all() {
            self.poll(driver, at)?;
            let others = self.instances.usage().reserved - self.instances.usage_of(at).reserved;
            let notice = Notice::Trim { keep: keep.saturating_sub(others) };
            let reply = self.instances.with(at, |inner| inner.notice(driver, notice))?;
            able &= reply != Reply::Unsupported;
        }
        Ok(able)
    }

    /// Goes through the waiting list of an instance.
    fn poll(&mut self, driver: &mut dyn Driver, at: u32) -> Result<(), AllocError> {
        let mut list = std::mem::take(self.instances.unfreed(at));
        let (mut next, mut kept) = (0, 0);
        let mut answer = Ok(());
        while next < list.len() && answer.is_ok() {
            let block = list[next];
            match self.free_if_done(driver, block) {
                Ok(true) => next += 1,
                Ok(false) => {
                    list[kept] = block;
                    (next, kept) = (next + 1, kept + 1);
                }
                Err(error) => answer = Err(error),
            }
        }
        list.drain(kept..next);
        *self.instances.unfreed(at) = list;
        answer
    }

    /// Frees a waiting block if all its uses are complete.
    fn free_if_done(&mut self, driver: &mut dyn Driver, block: Block) -> Result<bool, AllocError> {
        if !self.recorded.are_complete(driver, block)? {
            return Ok(false);
        }
        let Held { inner, instance, size, state, .. } = *self.tokens.get(block)?;
        self.instances.with(instance, |strategy| strategy.free(driver, inner, None))?;
        if state != State::Live {
            self.waiting -= size;
        }
        self.tokens.remove(block);
        Ok(true)
    }

    /// The host is done with a block (rule `free`).
    #[inline]
    fn drop_block(&mut self, driver: &mut dyn Driver, block: Block) -> Result<(), AllocError> {
        if self.free_if_done(driver, block)? {
            return Ok(());
        }
        let held = self.tokens.get_mut(block)?;
        if held.state == State::Live {
            self.waiting += held.size;
        }
        held.state = State::Unfreed;
        let instance = held.instance;
        self.instances.unfreed(instance).push(block);
        Ok(())
    }

    fn record(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), AllocError> {
        let held = self.held(block)?;
        if stream != self.instances.stream(held.instance) && held.address != 0 {
            self.recorded.record(driver, block, stream)?;
        }
        Ok(())
    }

    fn defer(&mut self, block: Block) -> Result<(), AllocError> {
        let size = self.held(block)?.size;
        self.tokens.get_mut(block)?.state = State::Deferred;
        self.waiting += size;
        self.deferred.insert(block);
        Ok(())
    }
}

impl Allocator for StreamSafe {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let at = self.instances.at(driver, request.stream)?;
        if !self.instances.unfreed(at).is_empty() {
            self.poll(driver, at)?;
        }
        let (placement, size) = match self.place(driver, at, request) {
            Err(AllocError::OutOfMemory(mut numbers)) => {
                let usage = self.usage();
                (numbers.reserved, numbers.active) = (usage.reserved, usage.active);
                return Err(AllocError::OutOfMemory(numbers));
            }
            placement => placement?,
        };
        let Placement { block: inner, address, .. } = placement;
        let held = Held { inner, address, size, instance: at, state: State::Live };
        let block = self.tokens.insert(held);
        Ok(Placement { block, ..placement })
    }

    #[inline]
    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        match stream {
            Some(stream) => self.record(driver, block, stream)?,
            None => drop(self.held(block)?),
        }
        self.drop_block(driver, block)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        let able = match notice {
            Notice::RecordStream { block, stream } => {
                self.record(driver, block, stream)?;
                true
            }
            Notice::FreeDeferred { block } => {
                self.defer(block)?;
                true
            }
            Notice::Completed { block } => {
                if self.deferred.contains(&block) {
                    self.drop_block(driver, block)?;
                    self.deferred.remove(&block);
                }
                true
            }
            Notice::EmptyCache => self.release(driver)?,
            Notice::Trim { keep } => self.trim(driver, keep)?,
            other => return self.forward(driver, other),
        };
        Ok(if able { Reply::Done } else { Reply::Unsupported })
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.announce(driver, stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.announce_done(driver, stream, uses)
    }

    fn usage(&self) -> Usage {
        let usage = self.instances.usage();
        Usage { allocated: usage.allocated - self.waiting, ..usage }
    }
}
