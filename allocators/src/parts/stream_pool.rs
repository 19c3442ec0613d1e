//! Every request is a range of one of the driver's stream-ordered pools, freed in stream order.
//!
//! | rule | what it says |
//! |---|---|
//! | `default_pool` | the device's default pool, whose attributes are set before its first use |
//! | `free_in_stream` | a range that nobody recorded is freed in the stream it was made for, or in the one that the free names |
//! | `unify` | one that other streams were recorded for is freed in a stream of its own that waits for all of them: one event each, made, recorded, waited for and destroyed |
//! | `held` | what the pool holds is asked of it where live bytes outgrow what is known of it, after a trim, and for a report; it may change at any time, and no system asks it at each malloc |
//!
//! `unify` is PyTorch's way (`c10/cuda/CUDAMallocAsyncAllocator.cpp`, `free_impl`): `cudaFreeAsync` takes one stream, and another order would
//! make the range's own stream wait for the others.

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{AllocError, Block, OutOfMemory, Placement, Usage};
use vramlab_sim::driver::{Address, DEFAULT_POOL, Driver, DriverError, DriverExt, PoolAttribute};
use vramlab_sim::units::StreamId;

use super::nulls::Nulls;

#[derive(Clone, Copy, Debug)]
struct Range {
    /// 0 while the slot is vacant.
    address: Address,
    size: u64,
    stream: StreamId,
    generation: u32,
}

/// The live ranges of a pool.
#[derive(Debug)]
pub(crate) struct StreamPool {
    /// Attributes still to be set (rule `default_pool`).
    due: Vec<(PoolAttribute, u64)>,
    ranges: Vec<Range>,
    vacant: Vec<u32>,
    nulls: Nulls,
    /// Streams other than its own, by slot. Looked up, never walked.
    recorded: FxHashMap<u32, Vec<StreamId>>,
    /// Where ranges with recorded streams are freed (rule `unify`), once there was one.
    unifier: Option<StreamId>,
    used: u64,
    reserved: u64,
}

impl StreamPool {
    /// A pool whose attributes are set to these.
    pub(crate) fn new(attributes: Vec<(PoolAttribute, u64)>) -> Self {
        Self {
            due: attributes,
            ranges: Vec::new(),
            vacant: Vec::new(),
            nulls: Nulls::default(),
            recorded: FxHashMap::default(),
            unifier: None,
            used: 0,
            reserved: 0,
        }
    }

    /// Are the attributes set?
    pub(crate) fn is_ready(&self) -> bool {
        self.due.is_empty()
    }

    /// Sets the attributes, if they are not set yet.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn prepare(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        while let Some((attribute, value)) = self.due.first().copied() {
            driver.pool_set(DEFAULT_POOL, attribute, value)?;
            self.due.remove(0);
        }
        Ok(())
    }

    /// Sets an attribute from now on.
    pub(crate) fn set(
        &mut self,
        driver: &mut dyn Driver,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<(), DriverError> {
        self.prepare(driver)?;
        driver.pool_set(DEFAULT_POOL, attribute, value)
    }

    /// Reads an attribute.
    pub(crate) fn get(
        &self,
        driver: &mut dyn Driver,
        attribute: PoolAttribute,
    ) -> Result<u64, DriverError> {
        driver.pool_get(DEFAULT_POOL, attribute)
    }

    /// Asks what the pool holds (rule `held`).
    pub(crate) fn refresh(&mut self, driver: &mut dyn Driver) -> Result<(), DriverError> {
        self.reserved = self.get(driver, PoolAttribute::ReservedCurrent)?;
        Ok(())
    }

    /// A new range.
    pub(crate) fn malloc(
        &mut self,
        driver: &mut dyn Driver,
        size: u64,
        stream: StreamId,
    ) -> Result<Placement, AllocError> {
        if size == 0 {
            return Ok(self.nulls.place());
        }
        if !self.due.is_empty() {
            self.prepare(driver)?;
        }
        let address = match driver.malloc_async(DEFAULT_POOL, size, stream) {
            Ok(address) => address,
            Err(DriverError::OutOfMemory { asked, free }) => {
                self.refresh(driver)?; // it may have given memory back in vain
                return Err(self.out_of_memory(asked, free, None));
            }
            Err(error) => return Err(error.into()),
        };
        if self.used + size > self.reserved
            && let Err(error) = self.refresh(driver)
        {
            driver.free_async(address, stream)?;
            return Err(error.into());
        }
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.ranges.push(Range { address: 0, size: 0, stream, generation: 0 });
            (self.ranges.len() - 1) as u32
        });
        let range = &mut self.ranges[slot as usize];
        let generation = range.generation.wrapping_add(1);
        *range = Range { address, size, stream, generation };
        self.used += size;
        let block = Block(u64::from(generation) << 32 | u64::from(slot));
        Ok(Placement { block, address, size })
    }

    /// The answer to a request that finds no room. What lies free where is the driver's secret.
    pub(crate) fn out_of_memory(&self, asked: u64, free: u64, limit: Option<u64>) -> AllocError {
        let (reserved, active) = (self.reserved, self.used);
        let oom =
            OutOfMemory { asked, device_free: free, reserved, active, largest_free: 0, limit };
        oom.into()
    }

    /// The slot of a live token; `None` of a live null placement.
    pub(crate) fn slot(&self, block: Block) -> Result<Option<u32>, AllocError> {
        let slot = block.0 as u32;
        let live = self.ranges.get(slot as usize).is_some_and(|range| {
            range.address != 0 && u64::from(range.generation) == block.0 >> 32
        });
        if live {
            Ok(Some(slot))
        } else if self.nulls.is_live(block) {
            Ok(None)
        } else {
            Err(AllocError::UnknownBlock(block))
        }
    }

    /// Takes a null placement back.
    pub(crate) fn free_null(&mut self, block: Block) {
        self.nulls.take(block);
    }

    /// The token of a live range means nothing from here on; the range stays.
    pub(crate) fn retire(&mut self, slot: u32) {
        let range = &mut self.ranges[slot as usize];
        range.generation = range.generation.wrapping_add(1);
    }

    /// Bytes of a live range.
    pub(crate) fn size(&self, slot: u32) -> u64 {
        self.ranges[slot as usize].size
    }

    /// The range is also used on a stream.
    pub(crate) fn record(&mut self, slot: u32, stream: StreamId) {
        if self.ranges[slot as usize].stream == stream {
            return;
        }
        let streams = self.recorded.entry(slot).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }

    /// Frees a live range: rules `free_in_stream` and `unify`. The stream in which it was freed.
    pub(crate) fn free(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        by: Option<StreamId>,
    ) -> Result<StreamId, AllocError> {
        let Range { address, size, stream, .. } = self.ranges[slot as usize];
        let many = !self.recorded.is_empty() && self.recorded.contains_key(&slot);
        let last = if many { self.unify(driver, slot, by)? } else { by.unwrap_or(stream) };
        driver.free_async(address, last)?;
        if many {
            self.recorded.remove(&slot);
        }
        self.ranges[slot as usize].address = 0;
        self.vacant.push(slot);
        self.used -= size;
        Ok(last)
    }

    /// A stream that waits for all users of a range.
    fn unify(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        by: Option<StreamId>,
    ) -> Result<StreamId, DriverError> {
        let unifier = match self.unifier {
            Some(stream) => stream,
            None => driver.stream_create()?,
        };
        self.unifier = Some(unifier);
        let own = self.ranges[slot as usize].stream;
        let recorded = self.recorded.get(&slot).into_iter().flatten().copied();
        for stream in [own].into_iter().chain(recorded).chain(by.filter(|by| *by != own)) {
            follow(driver, unifier, stream)?;
        }
        Ok(unifier)
    }

    /// Gives unused memory above `keep` bytes back.
    pub(crate) fn trim(&mut self, driver: &mut dyn Driver, keep: u64) -> Result<(), DriverError> {
        driver.pool_trim(DEFAULT_POOL, keep)?;
        self.refresh(driver)
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage { allocated: self.used, active: self.used, reserved: self.reserved }
    }
}

/// Makes `later` wait for what `earlier` was given so far.
pub(crate) fn follow(
    driver: &mut dyn Driver,
    later: StreamId,
    earlier: StreamId,
) -> Result<(), DriverError> {
    let event = driver.event_create()?;
    driver.event_record(event, earlier)?;
    driver.wait_event(later, event)?;
    driver.event_destroy(event)
}
