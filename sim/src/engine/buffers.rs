//! The engine's side table: what it knows of each buffer slot.

use rustc_hash::FxHashMap;

use crate::allocator::{Block, Placement};
use crate::driver::Address;
use crate::race::{BufferHistory, RaceFinder};
use crate::units::{BufferId, DeviceId, StreamId};

/// What became of a slot's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In use.
    Live,
    /// Its request failed.
    Failed,
    /// Its free is deferred, and the strategy knows.
    Deferred,
    /// Its free is deferred, the strategy does not know such a thing: the engine frees it when it completes.
    HeldBack,
}

/// A buffer. Runs look theirs up in no order, so what few buffers have is kept beside: 40 bytes are all that a look-up reads.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) block: Block,
    pub(super) address: Address,
    pub(super) size: u64,
    pub(super) requested: u64,
    /// The stream that asked.
    pub(super) stream: StreamId,
    pub(super) device: DeviceId,
    pub(super) state: State,
}

const _: () = assert!(size_of::<Option<Buffer>>() == 40);

impl Buffer {
    pub(super) fn live(
        device: DeviceId,
        stream: StreamId,
        requested: u64,
        placement: Placement,
    ) -> Self {
        let Placement { block, address, size } = placement;
        Self { block, address, size, requested, stream, device, state: State::Live }
    }

    /// A request that was refused.
    pub(super) fn failed(device: DeviceId) -> Self {
        Self {
            block: Block(0),
            address: 0,
            size: 0,
            requested: 0,
            stream: StreamId(0),
            device,
            state: State::Failed,
        }
    }
}

/// Buffers that are live before the first op: (slot, bytes asked, placement).
#[derive(Clone, Debug, Default)]
pub struct Prelude(pub Vec<(BufferId, u64, Placement)>);

/// All slots.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    slots: Vec<Option<Buffer>>,
    /// By slot, of buffers that were asked for more than they have (or anything, if they failed): the bytes that were refused.
    refused: FxHashMap<BufferId, u64>,
    pub(super) races: RaceFinder,
    watched: bool,
    /// By slot, once races are watched.
    histories: Vec<Option<BufferHistory>>,
}

impl Buffers {
    /// Takes the prelude; gives its requested bytes.
    pub(super) fn adopt(&mut self, prelude: Prelude) -> Vec<u64> {
        let requested = prelude.0.iter().map(|(_, requested, _)| *requested).collect();
        for (id, requested, placement) in prelude.0 {
            self.put(id, Buffer::live(DeviceId(0), StreamId(0), requested, placement));
        }
        requested
    }

    #[inline]
    pub(super) fn is_empty(&self, id: BufferId) -> bool {
        !matches!(self.slots.get(id.0 as usize), Some(Some(_)))
    }

    #[inline]
    pub(super) fn peek(&self, id: BufferId) -> Option<&Buffer> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get(&mut self, id: BufferId) -> Option<&mut Buffer> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn put(&mut self, id: BufferId, buffer: Buffer) {
        let index = id.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(buffer);
    }

    #[inline]
    pub(super) fn take(&mut self, id: BufferId) -> Option<Buffer> {
        self.slots.get_mut(id.0 as usize)?.take()
    }

    /// Bytes that were asked for beyond what the buffer has, and refused, instead of those before.
    pub(super) fn refuse(&mut self, id: BufferId, bytes: u64) {
        if bytes > 0 {
            self.refused.insert(id, bytes);
        }
    }

    /// Bytes that were refused, which are given up.
    #[inline]
    pub(super) fn take_refused(&mut self, id: BufferId) -> u64 {
        if self.refused.is_empty() { 0 } else { self.refused.remove(&id).unwrap_or(0) }
    }

    /// What is known of the uses of a buffer's bytes, to be put back.
    pub(super) fn take_history(&mut self, id: BufferId) -> Option<BufferHistory> {
        self.histories.get_mut(id.0 as usize)?.take()
    }

    pub(super) fn has_history(&self, id: BufferId) -> bool {
        matches!(self.histories.get(id.0 as usize), Some(Some(_)))
    }

    pub(super) fn put_history(&mut self, id: BufferId, history: BufferHistory) {
        let index = id.0 as usize;
        if index >= self.histories.len() {
            self.histories.resize_with(index + 1, || None);
        }
        self.histories[index] = Some(history);
    }

    /// Work has listed its uses: from here on races are watched.
    pub(super) fn watch_races(&mut self) {
        self.watched = true;
    }

    pub(super) fn races_watched(&self) -> bool {
        self.watched
    }
}
