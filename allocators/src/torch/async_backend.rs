//! `backend:cudaMallocAsync`: PyTorch's other allocator, which leaves caching to the driver's stream-ordered pool.
//!
//! Built from the source; not checked against the real one yet. Which block the pool chooses is the driver's affair (see `cuda.async_pool`).
//!
//! | rule | what it says |
//! |---|---|
//! | `first_use` | the release threshold becomes 2^64 − 1 and the three ways of reuse are switched on, before the first malloc or the first memory fraction |
//! | `loaded` | the first `backend` of the settings text chooses; any other in the text, or given while running, must name the same |
//! | `sizes` | not rounded; 0 gets a null pointer, 2^60 bytes and more are out of memory without asking |
//! | `fraction` | a memory fraction, set while running, limits the bytes asked for: fraction × total, cut off to whole bytes; a fraction of 1 is a limit too |
//! | `record_stream` | a block recorded for other streams is freed in a stream that waits for all of them; its own stream does not count |
//! | `empty_cache` | waits for the device, then trims the pool to 0; nothing before the first use |
//! | `statistics` | allocated, active and reserved bytes, as the pool counts them; all other counters are 0 |
//! | `reset` | resetting peaks resets the pool's high marks; resetting accumulated statistics does nothing |
//! | `one_capture` | a private pool's beginning starts a capture, of which there is one at a time; the pool itself has no effect, the driver keeps a graph's memory |
//! | `uncaptured_free` | what was made before a capture and is freed during it goes back at the first malloc after it |
//! | `rejoin` | when the capture ends, its stream waits for each stream in which something was freed during it |
//!
//! Source: `c10/cuda/CUDAMallocAsyncAllocator.cpp` and `c10/cuda/CUDAAllocatorConfig.cpp` of 2026. Snapshots, history and checkpoints are
//! refused by it. Left out: memory nodes of captured graphs (a capture allocates as any other code), peer access.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverExt, PoolAttribute};
use vramlab_sim::units::StreamId;

use super::settings::Settings;
use super::statistics::{Stat, StatByPool, Statistics};
use crate::parts::stream_pool::{StreamPool, follow};

/// Requests from here on are not even asked for (rule `sizes`).
const SIZE_MAX: u64 = 1 << 60;

/// The backend of one device.
#[derive(Debug)]
pub(super) struct AsyncBackend {
    settings: Settings,
    pool: StreamPool,
    /// Bytes that may be asked for.
    limit: u64,
    /// The stream of the capture under way.
    capture: Option<StreamId>,
    /// Was it made during a capture? By slot of the pool.
    captured: Vec<bool>,
    /// Freed during a capture that did not make them (rule `uncaptured_free`), and their bytes.
    deferred: Vec<u32>,
    deferred_bytes: u64,
    /// Where the capture freed something (rule `rejoin`).
    free_streams: Vec<StreamId>,
}

impl AsyncBackend {
    pub(super) fn new(settings: Settings) -> Self {
        let attributes = vec![
            (PoolAttribute::ReleaseThreshold, u64::MAX),
            (PoolAttribute::ReuseFollowEventDependencies, 1),
            (PoolAttribute::ReuseAllowOpportunistic, 1),
            (PoolAttribute::ReuseAllowInternalDependencies, 1),
        ];
        Self {
            settings,
            pool: StreamPool::new(attributes),
            limit: u64::MAX,
            capture: None,
            captured: Vec::new(),
            deferred: Vec::new(),
            deferred_bytes: 0,
            free_streams: Vec::new(),
        }
    }

    /// Rule `uncaptured_free`.
    fn free_deferred(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        while let Some(slot) = self.deferred.first().copied() {
            let bytes = self.pool.size(slot);
            self.pool.free(driver, slot, None)?;
            self.deferred.remove(0);
            self.deferred_bytes -= bytes;
        }
        Ok(())
    }

    fn free_range(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<(), AllocError> {
        if self.capture.is_some() && !self.captured[slot as usize] {
            self.deferred_bytes += self.pool.size(slot);
            self.pool.retire(slot);
            self.deferred.push(slot);
            return Ok(());
        }
        let stream = self.pool.free(driver, slot, None)?;
        if self.capture.is_some() && !self.free_streams.contains(&stream) {
            self.free_streams.push(stream);
        }
        Ok(())
    }

    /// Rules `one_capture` and `rejoin`.
    fn end_capture(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        let Some(capture) = self.capture else {
            return Err(refused(
                "CudaMallocAsync::notifyCaptureAboutToEnd called, but CudaMallocAsync::capture_underway is false.",
            ));
        };
        for stream in &self.free_streams {
            follow(driver, capture, *stream)?;
        }
        self.free_streams.clear();
        self.capture = None;
        Ok(())
    }

    fn set(
        &mut self,
        driver: &mut dyn Driver,
        key: &str,
        value: &str,
    ) -> Result<Reply, AllocError> {
        match key {
            "conf" => {
                let settings = self.settings.with_text(value, false);
                self.settings = settings.map_err(|why| refused(&why))?;
            }
            "memory_fraction" => {
                let fraction = value.trim().parse().ok().filter(|f| (0.0..=1.0).contains(f));
                let Some(fraction): Option<f64> = fraction else {
                    let why = format!("invalid fraction:{value}. Please set within (0, 1).");
                    return Err(refused(&why));
                };
                self.pool.prepare(driver)?;
                let (_, total) = driver.mem_info()?;
                self.limit = (fraction * total as f64) as u64;
            }
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    fn statistics(&mut self, driver: &mut dyn Driver) -> Result<Statistics, AllocError> {
        let mut statistics = Statistics::default();
        if self.pool.is_ready() {
            self.pool.refresh(driver)?;
            let mut stat = |now, high| {
                let mut of = |attribute| self.pool.get(driver, attribute).map(|n| n as i64);
                let all = Stat { current: of(now)?, peak: of(high)?, ..Stat::default() };
                Ok::<_, AllocError>(StatByPool { all, ..StatByPool::default() })
            };
            let used = stat(PoolAttribute::UsedCurrent, PoolAttribute::UsedHigh)?;
            (statistics.allocated_bytes, statistics.active_bytes) = (used, used);
            statistics.reserved_bytes =
                stat(PoolAttribute::ReservedCurrent, PoolAttribute::ReservedHigh)?;
        }
        Ok(statistics)
    }
}

fn refused(why: &str) -> AllocError {
    AllocError::BadSetting(why.into())
}

impl Allocator for AsyncBackend {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let Request { size, stream, .. } = *request;
        if size >= SIZE_MAX {
            let (free, _) = driver.mem_info()?;
            return Err(self.pool.out_of_memory(size, free, Some(SIZE_MAX)));
        }
        if size > 0 && self.capture.is_none() && !self.deferred.is_empty() {
            self.free_deferred(driver)?;
        }
        let asked = self.pool.usage().active;
        if size > 0 && asked + size > self.limit {
            let (free, _) = driver.mem_info()?;
            return Err(self.pool.out_of_memory(size, free, Some(self.limit)));
        }
        let placement = self.pool.malloc(driver, size, stream)?;
        if let Some(slot) = self.pool.slot(placement.block)? {
            if self.captured.len() <= slot as usize {
                self.captured.resize(slot as usize + 1, false);
            }
            self.captured[slot as usize] = self.capture.is_some();
        }
        Ok(placement)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        match self.pool.slot(block)? {
            Some(slot) => self.free_range(driver, slot),
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
            Notice::EmptyCache if self.pool.is_ready() => {
                driver.device_synchronize()?;
                self.pool.trim(driver, 0)?;
            }
            Notice::PoolBegin { stream, .. } => {
                if self.capture.is_some() {
                    return Err(refused("Only one capture at a time is allowed in a process."));
                }
                self.capture = Some(stream);
            }
            Notice::PoolEnd { .. } => self.end_capture(driver)?,
            Notice::Set { key, value } => return self.set(driver, key, value),
            Notice::ResetPeak => {
                self.pool.set(driver, PoolAttribute::ReservedHigh, 0)?;
                self.pool.set(driver, PoolAttribute::UsedHigh, 0)?;
            }
            Notice::Counters => {
                return Ok(Reply::Counters(self.statistics(driver)?.counters()));
            }
            Notice::EmptyCache
            | Notice::PoolRelease { .. }
            | Notice::CaptureBegin { .. }
            | Notice::CaptureEnd { .. }
            | Notice::ResetAccumulated
            | Notice::Mark { .. } => {}
            _ => return Ok(Reply::Unsupported),
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        let usage = self.pool.usage();
        Usage { allocated: usage.allocated - self.deferred_bytes, ..usage }
    }
}

#[cfg(test)]
mod tests;
