//! What is known of each live buffer: where it is, which of its copies are the newest, and who touched them.

use vramlab_sim::allocator::{AllocError, Block, Placement};
use vramlab_sim::driver::Address;
use vramlab_sim::units::StreamId;

use super::file::Place;
use super::host::{HostBlock, User};
use super::lines::{COPIES, LineId};
use crate::parts::nulls::NULL_SLOT;

/// What became of a slot's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Vacant,
    Live,
    /// Its free is deferred, and the inner strategy holds the block.
    Deferred,
}

/// Which copies hold what was written last; none of them: nothing was, or it is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) device: bool,
    pub(super) host: bool,
    pub(super) file: bool,
}

/// How far each copy stream had got.
pub(super) type Copies = [u64; COPIES];

/// A copy off the device: so many bytes, compressed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored<P> {
    pub(super) at: P,
    pub(super) bytes: u64,
    pub(super) packed: bool,
}

/// A buffer.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) generation: u32,
    pub(super) state: State,
    pub(super) size: u64,
    pub(super) ordinal: u64,
    /// The stream of its request.
    pub(super) home: (LineId, StreamId),
    /// The inner strategy's.
    pub(super) device: Option<Placement>,
    pub(super) host: Option<Stored<HostBlock>>,
    pub(super) file: Option<Stored<Place>>,
    pub(super) newest: Newest,
    /// The last copies that touched it, by copy line.
    pub(super) copies: Copies,
    /// The last announced use on each line since it came to the device.
    pub(super) uses: Vec<(LineId, u64)>,
    /// Streams that the workload said also use it.
    pub(super) recorded: Vec<StreamId>,
    /// Announcements before it was requested, up to its last use, and up to the one under way if that uses it.
    pub(super) born: u64,
    pub(super) last_use: u64,
    pub(super) pinned: u64,
    /// It lies where it was born, in host memory, and work that named no buffers may have used it since.
    pub(super) newborn: bool,
    /// The last of such work, once that is marked.
    pub(super) birth: Option<User>,
    /// Work that uses it was announced.
    pub(super) announced: bool,
    /// It came ahead of a use that is not there yet.
    pub(super) prefetched: bool,
    /// A captured graph knows its address: it stays.
    pub(super) fixed: bool,
}

impl Buffer {
    /// A new buffer that lies there.
    pub(super) fn born_on_device(mut self, placement: Placement) -> (Self, Address, u64) {
        self.device = Some(placement);
        self.newest = Newest { device: true, ..Newest::default() };
        (self, placement.address, placement.size)
    }

    /// Who may still be at its host copy.
    pub(super) fn host_users(&self) -> impl Iterator<Item = User> + use<> {
        self.copies.into_iter().enumerate().chain(self.birth)
    }

    /// Does a copy off the device hold what was written last?
    pub(super) fn is_clean(&self) -> bool {
        self.newest.host || self.newest.file || !self.newest.device
    }
}

/// All slots.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    slots: Vec<Buffer>,
    vacant: Vec<u32>,
}

impl Buffers {
    /// A slot for a new buffer, and its token.
    pub(super) fn add(&mut self, mut buffer: Buffer) -> (u32, Block) {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Buffer::default());
            (self.slots.len() - 1) as u32
        });
        let old = &mut self.slots[slot as usize];
        buffer.generation = old.generation.wrapping_add(1);
        (buffer.uses, buffer.recorded) =
            (std::mem::take(&mut old.uses), std::mem::take(&mut old.recorded));
        buffer.uses.clear();
        buffer.recorded.clear();
        buffer.copies = [0; COPIES];
        let block = Block(u64::from(buffer.generation) << 32 | u64::from(slot));
        *old = buffer;
        (slot, block)
    }

    /// The slot of a live buffer.
    pub(super) fn find(&self, block: Block) -> Result<u32, AllocError> {
        self.find_in(block, State::Live).ok_or(AllocError::UnknownBlock(block))
    }

    /// The slot of a buffer in this state.
    pub(super) fn find_in(&self, block: Block, state: State) -> Option<u32> {
        let slot = block.0 as u32;
        let buffer = self.slots.get(slot as usize).filter(|_| slot != NULL_SLOT)?;
        let same = buffer.state == state && u64::from(buffer.generation) == block.0 >> 32;
        same.then_some(slot)
    }

    /// The slot means nothing any more.
    pub(super) fn vacate(&mut self, slot: u32) {
        let buffer = &mut self.slots[slot as usize];
        (buffer.state, buffer.device) = (State::Vacant, None);
        self.vacant.push(slot);
    }

    pub(super) fn get(&self, slot: u32) -> &Buffer {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Buffer {
        &mut self.slots[slot as usize]
    }

    /// Slots of live buffers.
    pub(super) fn live(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|slot| self.get(*slot).state == State::Live).collect()
    }
}
