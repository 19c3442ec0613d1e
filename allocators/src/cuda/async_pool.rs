//! `cuda.async_pool`: every request is a `cudaMallocAsync` from the device's default pool, every free a `cudaFreeAsync`.
//!
//! Not checked against the real one yet: which block a pool chooses, how it grows and what it gives back when are the driver's secrets. They
//! live below the seam, in the simulated device (`sim/src/device/pools.rs`, whose table says which of its rules are guesses); on another
//! machine they are that machine's.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `attributes` | release threshold 0, all three ways of reuse on, unless an option says otherwise; what is at its default is not set | CUDA driver API, `CUmemPool_attribute` |
//! | `own_stream` | what a stream freed it may use again at once, without any wait | CUDA programming guide 4.3.4.4 |
//! | `follow_event_dependencies` | another stream may, once it waits for the free (option) | 4.3.4.4.1 |
//! | `allow_opportunistic` | or once the free is over (option) | 4.3.4.4.2 |
//! | `allow_internal_dependencies` | or, where there is no room, by being made to wait for it (option) | 4.3.4.4.3 |
//! | `release_at_synchronisation` | at a stream, event or device synchronisation unused memory above the threshold goes back, not at a free | 4.3.4.2 |
//! | `trim` | empty_cache and trim give back what is unused, but nothing that a stream has not passed the free of | `cudaMemPoolTrimTo` |
//! | `recorded_streams` | a range used on other streams is freed in a stream that waits for all of them | PyTorch's `c10/cuda/CUDAMallocAsyncAllocator.cpp` |
//! | `free_stream` | a free ordered in a stream is passed on as it is: the caller orders it after the uses, as CUDA asks | CUDA runtime API, `cudaFreeAsync` |
//! | `high_marks` | resetting peaks sets both high marks to 0, which the driver reads as "now" | CUDA driver API |
//! | `null` | a request for 0 bytes gets a null placement | as `cuda.malloc` |
//!
//! What it holds changes below it, at a synchronisation: it knows after its next malloc, trim or question for counters. Left out: pools of
//! one's own, maximum sizes, pools shared between processes, memory nodes of captured graphs. What lies free where cannot be told.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, PoolAttribute};
use vramlab_sim::units::{Bytes, StreamId};

use crate::options::{OptionDoc, OptionError, Options, boolean};
use crate::parts::stream_pool::StreamPool;
use crate::registry::{Made, Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "cuda.async_pool",
    new,
    Status::Rules("CUDA driver API 13"),
    OPTIONS,
    "the driver's stream-ordered pool: cudaMallocAsync and cudaFreeAsync",
)
.shares(|_| true);

const THRESHOLD: &str = "release_threshold";

/// The options of reuse and their attributes.
const REUSE: [(&str, PoolAttribute); 3] = [
    ("reuse_follow_event_dependencies", PoolAttribute::ReuseFollowEventDependencies),
    ("reuse_allow_opportunistic", PoolAttribute::ReuseAllowOpportunistic),
    ("reuse_allow_internal_dependencies", PoolAttribute::ReuseAllowInternalDependencies),
];

const OPTIONS: &[OptionDoc] = &[
    OptionDoc {
        name: THRESHOLD,
        default: "0",
        help: "bytes that the pool keeps at a synchronisation: a size such as 512MiB; 18446744073709551615 keeps all",
    },
    OptionDoc {
        name: REUSE[0].0,
        default: "true",
        help: "reuse what another stream freed once the asking stream waits for it (true or false)",
    },
    OptionDoc {
        name: REUSE[1].0,
        default: "true",
        help: "reuse what another stream freed once it is over (true or false)",
    },
    OptionDoc {
        name: REUSE[2].0,
        default: "true",
        help: "where there is no room, make the asking stream wait for another's free (true or false)",
    },
];

/// The default pool of one device.
#[derive(Debug)]
struct AsyncPool {
    pool: StreamPool,
}

fn new(options: &Options) -> Made {
    options.check(STRATEGY.name, OPTIONS)?;
    let mut attributes = Vec::new();
    for (key, text) in OPTIONS.iter().filter_map(|doc| Some((doc.name, options.get(doc.name)?))) {
        let (attribute, value) = attribute(key, text)?;
        let default = u64::from(attribute != PoolAttribute::ReleaseThreshold);
        if value != default {
            attributes.push((attribute, value));
        }
    }
    Ok(Box::new(AsyncPool { pool: StreamPool::new(attributes) }))
}

/// An option as the driver takes it.
fn attribute(key: &str, text: &str) -> Result<(PoolAttribute, u64), OptionError> {
    match REUSE.iter().find(|(name, _)| *name == key) {
        Some((_, attribute)) => match boolean(text) {
            Some(on) => Ok((*attribute, on.into())),
            None => Err(OptionError(format!("option {key}={text}: expected true or false"))),
        },
        None => match text.parse::<Bytes>() {
            Ok(bytes) => Ok((PoolAttribute::ReleaseThreshold, bytes.0)),
            Err(bad) => Err(OptionError(format!("option {key}={text}: {bad}"))),
        },
    }
}

impl AsyncPool {
    fn counters(&mut self, driver: &mut dyn Driver) -> Result<Reply, AllocError> {
        self.pool.refresh(driver)?;
        let of = |attribute| self.pool.get(driver, attribute);
        let values = [
            PoolAttribute::ReservedCurrent,
            PoolAttribute::ReservedHigh,
            PoolAttribute::UsedCurrent,
            PoolAttribute::UsedHigh,
        ]
        .map(of);
        let names =
            ["reserved_mem_current", "reserved_mem_high", "used_mem_current", "used_mem_high"];
        let counters = names.into_iter().zip(values).map(|(name, value)| Ok((name, value?)));
        Ok(Reply::Counters(counters.collect::<Result<_, AllocError>>()?))
    }

    fn set(&mut self, driver: &mut dyn Driver, key: &str, text: &str) -> Result<Reply, AllocError> {
        if !OPTIONS.iter().any(|doc| doc.name == key) {
            return Ok(Reply::Unsupported);
        }
        let (attribute, value) =
            attribute(key, text).map_err(|error| AllocError::BadSetting(error.0.into()))?;
        self.pool.set(driver, attribute, value)?;
        Ok(Reply::Done)
    }
}

impl Allocator for AsyncPool {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.pool.malloc(driver, request.size, request.stream)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        match self.pool.slot(block)? {
            Some(slot) => self.pool.free(driver, slot, stream).map(drop),
            None => {
                self.pool.free_null(block);
                Ok(())
            }
        }
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match notice {
            Notice::RecordStream { block, stream } => {
                if let Some(slot) = self.pool.slot(block)? {
                    self.pool.record(slot, stream);
                }
            }
            Notice::EmptyCache => self.pool.trim(driver, 0)?,
            Notice::Trim { keep } => self.pool.trim(driver, keep)?,
            Notice::ResetPeak => {
                self.pool.set(driver, PoolAttribute::ReservedHigh, 0)?;
                self.pool.set(driver, PoolAttribute::UsedHigh, 0)?;
            }
            Notice::Counters => return self.counters(driver),
            Notice::Set { key, value } => return self.set(driver, key, value),
            Notice::Mark { .. } => {}
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.pool.usage()
    }
}

#[cfg(test)]
mod tests;
