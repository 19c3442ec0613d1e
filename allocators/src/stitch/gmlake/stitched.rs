//! Stitched blocks: ranges of addresses over pieces of several primitive blocks, and which of them can be used.
//!
//! ```text
//! segments    s0 ├────free────┤──used──┤          s1 ├──free──┤
//!                     ▲  ▲                               ▲
//! stitched    a: [s0 0..5] [s1 0..4]   usable: none of its pieces is in use
//!             b: [s0 3..8]             blocked: some are
//! ```
//! Each block counts the pieces under it that are in use, by whomever; a segment knows the blocks that lie over it ([`Cover`]). So a
//! primitive block that is taken or freed costs a look at its segment, and nothing where nothing was ever stitched.

use std::collections::BTreeSet;

use vramlab_sim::driver::Address;
use vramlab_sim::units::EventId;

/// Pieces of a segment, in order of address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) segment: u32,
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Run {
    /// Pieces that lie in `other` too.
    pub(super) fn overlap(&self, other: &Self) -> u32 {
        let end = (self.first + self.count).min(other.first + other.count);
        end.saturating_sub(self.first.max(other.first))
    }
}

/// A stitched block lies over this part of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cover {
    pub(super) run: Run,
    pub(super) stitched: u32,
}

/// What a stitched block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Vacant,
    /// New, or handed out; its leading pieces are in use.
    Active,
    /// Freed, waits for other streams.
    Waiting,
    /// Idle, and all of its pieces are free.
    Usable,
    /// Idle, and some of its pieces are in use.
    Blocked,
}

#[derive(Clone, Debug)]
pub(super) struct Stitched {
    pub(super) state: State,
    pub(super) generation: u32,
    /// The set of its stream.
    pub(super) set: u32,
    pub(super) address: Address,
    pub(super) pieces: u32,
    /// Pieces in use, by whomever.
    pub(super) busy: u32,
    /// In the order of its addresses.
    pub(super) runs: Vec<Run>,
    /// While it is handed out: the primitive blocks under its leading pieces.
    pub(super) parts: Vec<u32>,
    /// Number of its last free, among all frees of stitched blocks.
    pub(super) freed: u64,
    /// Recorded at its last free.
    pub(super) event: Option<EventId>,
}

/// Idle stitched blocks of one stream. The numbers are (pieces, address, block) and (number of the last free, pieces, address, block).
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    pub(super) usable: BTreeSet<(u32, Address, u32)>,
    usable_by_age: BTreeSet<(u64, u32, Address, u32)>,
    blocked_by_age: BTreeSet<(u64, u32, Address, u32)>,
    /// Pieces of all of them.
    pub(super) pieces: u64,
}

impl Idle {
    /// Blocks that are `blocked`, or else usable, longest idle first.
    pub(super) fn by_age(&self, blocked: bool) -> Vec<u32> {
        let list = if blocked { &self.blocked_by_age } else { &self.usable_by_age };
        list.iter().map(|(_, _, _, id)| *id).collect()
    }
}

/// All stitched blocks.
#[derive(Debug, Default)]
pub(super) struct Table {
    list: Vec<Stitched>,
    vacant: Vec<u32>,
    /// By set.
    idle: Vec<Idle>,
    /// Frees so far.
    pub(super) frees: u64,
}

impl Table {
    pub(super) fn get(&self, id: u32) -> &Stitched {
        &self.list[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Stitched {
        &mut self.list[id as usize]
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.list.len() - self.vacant.len()
    }

    /// The block of a token that is handed out.
    pub(super) fn find(&self, id: u32, generation: u32) -> Option<u32> {
        let block = self.list.get(id as usize)?;
        (block.state == State::Active && block.generation == generation).then_some(id)
    }

    /// Idle blocks of a set.
    pub(super) fn idle(&mut self, set: u32) -> &mut Idle {
        if self.idle.len() <= set as usize {
            self.idle.resize_with(set as usize + 1, Idle::default);
        }
        &mut self.idle[set as usize]
    }

    /// The block is handed out; gives the generation of its token.
    pub(super) fn hand_out(&mut self, id: u32) -> u32 {
        self.leave(id);
        let block = self.get_mut(id);
        block.state = State::Active;
        block.generation = block.generation.wrapping_add(1);
        block.generation
    }

    /// A new block, all of whose pieces are in use; it is in no list.
    pub(super) fn add(&mut self, set: u32, address: Address, runs: Vec<Run>) -> u32 {
        let pieces = runs.iter().map(|run| run.count).sum();
        let block = Stitched {
            state: State::Active,
            generation: 0,
            set,
            address,
            pieces,
            busy: pieces,
            runs,
            parts: Vec::new(),
            freed: 0,
            event: None,
        };
        match self.vacant.pop() {
            Some(id) => {
                let generation = self.get(id).generation;
                self.list[id as usize] = Stitched { generation, ..block };
                id
            }
            None => {
                self.list.push(block);
                (self.list.len() - 1) as u32
            }
        }
    }

    /// An idle block is gone; gives its runs and its event.
    pub(super) fn remove(&mut self, id: u32) -> (Vec<Run>, Option<EventId>) {
        self.leave(id);
        self.vacant.push(id);
        let block = self.get_mut(id);
        block.state = State::Vacant;
        (std::mem::take(&mut block.runs), block.event.take())
    }

    /// Out of the lists of idle blocks.
    pub(super) fn leave(&mut self, id: u32) {
        let Stitched { state, set, pieces, address, freed, .. } = *self.get(id);
        let idle = self.idle(set);
        let left = match state {
            State::Usable => {
                idle.usable.remove(&(pieces, address, id));
                idle.usable_by_age.remove(&(freed, pieces, address, id))
            }
            State::Blocked => idle.blocked_by_age.remove(&(freed, pieces, address, id)),
            _ => false,
        };
        if left {
            idle.pieces -= u64::from(pieces);
        }
    }

    /// Into the list of idle blocks that it belongs to.
    pub(super) fn rest(&mut self, id: u32) {
        let block = self.get_mut(id);
        block.state = if block.busy == 0 { State::Usable } else { State::Blocked };
        let Stitched { state, set, pieces, address, freed, .. } = *block;
        let idle = self.idle(set);
        idle.pieces += u64::from(pieces);
        if state == State::Usable {
            idle.usable.insert((pieces, address, id));
            idle.usable_by_age.insert((freed, pieces, address, id));
        } else {
            idle.blocked_by_age.insert((freed, pieces, address, id));
        }
    }

    /// So many more pieces under it are in use, or (`used` is false) fewer.
    pub(super) fn count(&mut self, id: u32, pieces: u32, used: bool) {
        let block = self.get_mut(id);
        let before = block.busy;
        block.busy = if used { before + pieces } else { before - pieces };
        let idle = matches!(block.state, State::Usable | State::Blocked);
        if idle && (before == 0) != (block.busy == 0) {
            self.leave(id);
            self.rest(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_of_runs() {
        let run = |first, count| Run { segment: 0, first, count };
        for (a, b, want) in [
            (run(0, 5), run(5, 3), 0),
            (run(0, 5), run(4, 3), 1),
            (run(2, 2), run(0, 9), 2),
            (run(7, 2), run(0, 3), 0),
        ] {
            assert_eq!((a.overlap(&b), b.overlap(&a)), (want, want));
        }
    }

    #[test]
    fn a_block_is_usable_while_none_of_its_pieces_is_in_use() {
        let mut table = Table::default();
        let id = table.add(0, 1 << 40, vec![Run { segment: 0, first: 0, count: 8 }]);
        let generation = table.hand_out(id);
        assert_eq!(table.find(id, generation), Some(id));
        assert_eq!(table.find(id, generation + 1), None);
        table.count(id, 6, false);
        table.rest(id);
        assert_eq!((table.get(id).state, table.find(id, generation)), (State::Blocked, None));
        table.count(id, 2, false);
        assert_eq!(table.get(id).state, State::Usable);
        assert_eq!(table.idle(0).by_age(false), [id]);
        table.count(id, 1, true);
        assert_eq!(table.idle(0).by_age(true), [id]);
        assert_eq!(table.idle(0).pieces, 8);
        table.remove(id);
        assert_eq!((table.len(), table.idle(0).pieces), (0, 0));
    }
}
