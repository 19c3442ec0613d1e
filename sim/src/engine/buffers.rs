//! The engine's side table: what it knows of each buffer slot.

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

/// A buffer.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) block: Block,
    pub(super) address: Address,
    pub(super) size: u64,
    pub(super) requested: u64,
    /// Bytes that were asked for beyond these, and refused.
    pub(super) refused: u64,
    pub(super) device: DeviceId,
    /// The stream that asked.
    pub(super) stream: StreamId,
    pub(super) state: State,
    pub(super) history: Option<BufferHistory>,
}

impl Buffer {
    pub(super) fn live(
        device: DeviceId,
        stream: StreamId,
        requested: u64,
        placement: Placement,
    ) -> Self {
        let Placement { block, address, size } = placement;
        Self {
            block,
            address,
            size,
            requested,
            refused: 0,
            device,
            stream,
            state: State::Live,
            history: None,
        }
    }

    /// A request for `wanted` bytes that was refused.
    pub(super) fn failed(device: DeviceId, wanted: u64) -> Self {
        Self {
            block: Block(0),
            address: 0,
            size: 0,
            requested: 0,
            refused: wanted,
            device,
            stream: StreamId(0),
            state: State::Failed,
            history: None,
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
    pub(super) races: RaceFinder,
    watched: bool,
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

    /// Work has listed its uses: from here on races are watched.
    pub(super) fn watch_races(&mut self) {
        self.watched = true;
    }

    pub(super) fn races_watched(&self) -> bool {
        self.watched
    }
}
