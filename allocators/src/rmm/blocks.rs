//! Blocks of fixed sizes: bins with a queue of free blocks for each stream, over device memory or over a pool.
//!
//! A freed block goes to the back of its queue and the front is handed out; two queues become one end to end (`fixed_size_free_list`).

use vramlab_sim::allocator::{AllocError, Block, BlockState, LayoutBlock};
use vramlab_sim::driver::{Driver, DriverError};
use vramlab_sim::units::StreamId;

use super::coalescing::DEFAULT_STREAM;
use super::streams::{Lists, Streams};

const NONE: u32 = u32::MAX;

/// A block of a bin; it is never cut.
#[derive(Clone, Copy, Debug)]
struct FixedBlock {
    address: u64,
    /// In use: the bytes asked for; 0: free.
    requested: u64,
    /// In use: the stream of the request.
    stream: StreamId,
    /// Free: the one behind it in its queue.
    next: u32,
    /// Rises with every use.
    generation: u32,
    bin: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    front: u32,
    back: u32,
}

impl Queue {
    const EMPTY: Self = Self { front: NONE, back: NONE };
}

/// Blocks and queues of all bins of a strategy.
#[derive(Debug, Default)]
struct Store {
    blocks: Vec<FixedBlock>,
    queues: Vec<Queue>,
    closed: Vec<u32>,
}

impl Store {
    /// Puts what begins with `front` and ends with `back` behind a queue.
    #[inline]
    fn append(&mut self, queue: u32, front: u32, back: u32) {
        let queue = &mut self.queues[queue as usize];
        let last = std::mem::replace(&mut queue.back, back);
        if last == NONE {
            queue.front = front;
        } else {
            self.blocks[last as usize].next = front;
        }
    }

    /// Takes the front block out of a queue that is not empty.
    #[inline]
    fn pop(&mut self, queue: u32) -> u32 {
        let queue = &mut self.queues[queue as usize];
        let front = queue.front;
        queue.front = std::mem::replace(&mut self.blocks[front as usize].next, NONE);
        if queue.front == NONE {
            queue.back = NONE;
        }
        front
    }
}

impl Lists for Store {
    fn open(&mut self) -> u32 {
        self.closed.pop().unwrap_or_else(|| {
            self.queues.push(Queue::EMPTY);
            (self.queues.len() - 1) as u32
        })
    }

    /// The queue itself stands for its front block.
    #[inline]
    fn find(&mut self, queue: u32, _size: u64) -> Option<u32> {
        (self.queues[queue as usize].front != NONE).then_some(queue)
    }

    fn merge(&mut self, into: u32, from: u32) -> u32 {
        let Queue { front, back } =
            std::mem::replace(&mut self.queues[from as usize], Queue::EMPTY);
        if front != NONE {
            self.append(into, front, back);
        }
        self.closed.push(from);
        into
    }
}

/// A size of blocks.
#[derive(Debug)]
struct Bin {
    size: u64,
    /// Blocks taken at a time.
    batch: u64,
    streams: Streams,
}

/// All bins of a strategy.
#[derive(Debug, Default)]
pub(super) struct Bins {
    /// In order of size.
    bins: Vec<Bin>,
    store: Store,
    free: u64,
}

impl Bins {
    /// Another bin, larger than the ones before; its number.
    pub(super) fn add_bin(&mut self, size: u64, batch: u64, record_merged: bool) -> u32 {
        self.bins.push(Bin { size, batch, streams: Streams::new(record_merged) });
        (self.bins.len() - 1) as u32
    }

    /// The smallest bin whose blocks are large enough.
    #[inline]
    pub(super) fn bin_for(&self, requested: u64) -> Option<u32> {
        let at = self.bins.partition_point(|bin| bin.size < requested);
        (at < self.bins.len()).then_some(at as u32)
    }

    /// Bytes of a block of the bin.
    #[inline]
    pub(super) fn size(&self, bin: u32) -> u64 {
        self.bins[bin as usize].size
    }

    /// Bytes of a batch of the bin.
    pub(super) fn batch_size(&self, bin: u32) -> u64 {
        let bin = &self.bins[bin as usize];
        bin.size * bin.batch
    }

    /// Free blocks of all bins.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Stream waits of all bins.
    pub(super) fn waits(&self) -> u64 {
        self.bins.iter().map(|bin| bin.streams.waits()).sum()
    }

    /// Free lists of all bins.
    pub(super) fn lists(&self) -> u64 {
        self.bins.iter().map(|bin| bin.streams.lists().count() as u64).sum()
    }

    /// Gives a bin its first batch, on the default stream. `batch` takes so many bytes from above and says where they begin.
    ///
    /// # Errors
    /// A driver error, or what `batch` says.
    pub(super) fn preallocate(
        &mut self,
        driver: &mut dyn Driver,
        bin: u32,
        batch: impl FnOnce(&mut dyn Driver, u64) -> Result<u64, AllocError>,
    ) -> Result<(), AllocError> {
        let number = self.bins[bin as usize].streams.number(driver, DEFAULT_STREAM)?;
        let address = batch(driver, self.batch_size(bin))?;
        self.grow(bin, number, address);
        Ok(())
    }

    /// Hands out a block of a bin, with its address. `batch` is as in [`Bins::preallocate`].
    ///
    /// # Errors
    /// A driver error, or what `batch` says.
    #[inline]
    pub(super) fn allocate(
        &mut self,
        driver: &mut dyn Driver,
        bin: u32,
        requested: u64,
        stream: StreamId,
        batch: impl FnOnce(&mut dyn Driver, u64) -> Result<u64, AllocError>,
    ) -> Result<(Block, u64), AllocError> {
        let Bin { size, streams, .. } = &mut self.bins[bin as usize];
        let number = streams.number(driver, stream)?;
        let queue = match streams.search(&mut self.store, driver, number, *size)? {
            Some(queue) => queue,
            None => {
                let address = batch(driver, self.batch_size(bin))?;
                self.grow(bin, number, address)
            }
        };
        let slot = self.store.pop(queue);
        self.free -= 1;
        let block = &mut self.store.blocks[slot as usize];
        (block.requested, block.stream) = (requested, stream);
        block.generation = block.generation.wrapping_add(1);
        Ok((Block(u64::from(block.generation) << 32 | u64::from(slot)), block.address))
    }

    /// Puts a batch behind a stream's queue, in address order; the queue.
    fn grow(&mut self, bin: u32, number: u32, begin: u64) -> u32 {
        let Bin { size, batch, streams } = &mut self.bins[bin as usize];
        let queue = streams.list(&mut self.store, number);
        for at in 0..*batch {
            let slot = self.store.blocks.len() as u32;
            self.store.blocks.push(FixedBlock {
                address: begin + at * *size,
                requested: 0,
                stream: DEFAULT_STREAM,
                next: NONE,
                generation: 0,
                bin,
            });
            self.store.append(queue, slot, slot);
        }
        self.free += *batch;
        queue
    }

    /// Slot and stream of the live block of a token.
    #[inline]
    pub(super) fn find(&self, token: Block) -> Option<(u32, StreamId)> {
        let slot = token.0 as u32;
        let block = self.store.blocks.get(slot as usize)?;
        let live = block.requested > 0 && u64::from(block.generation) == token.0 >> 32;
        live.then_some((slot, block.stream))
    }

    /// A live block comes back on a stream; its bytes.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(super) fn give(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        stream: StreamId,
    ) -> Result<u64, DriverError> {
        let bin = self.store.blocks[slot as usize].bin;
        let Bin { size, streams, .. } = &mut self.bins[bin as usize];
        let number = streams.number(driver, stream)?;
        streams.record(driver, number)?;
        let queue = streams.list(&mut self.store, number);
        self.store.blocks[slot as usize].requested = 0;
        self.store.append(queue, slot, slot);
        self.free += 1;
        Ok(*size)
    }

    /// All blocks, in address order.
    pub(super) fn layout(&self) -> Vec<LayoutBlock> {
        let layout = |block: &FixedBlock| {
            let FixedBlock { address, requested, bin, .. } = *block;
            let free = requested == 0;
            let state = if free { BlockState::Free } else { BlockState::Allocated };
            LayoutBlock { address, size: self.size(bin), requested, state, age: 0 }
        };
        let mut blocks: Vec<LayoutBlock> = self.store.blocks.iter().map(layout).collect();
        blocks.sort_unstable_by_key(|block| block.address);
        blocks
    }
}
