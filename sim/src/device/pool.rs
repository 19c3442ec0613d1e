//! One stream-ordered pool: its blocks, and which of the free ones a stream may use. The rules are those of [`super::pools`].
//!
//! ```text
//! chunk   │ used │ free, by stream 1 │ free, for anyone │ used │     pieces: linked to their neighbours
//!                                    └ seam: two free pieces that are not one, since their owners differ
//! ```

use rustc_hash::FxHashMap;

use super::timeline::{Moment, Slot, Timeline};
use crate::driver::Address;
use crate::free_set::{FreeSet, Links, NONE, Nodes};

/// Owner of a free piece that every stream may use (rule `synced`).
pub(super) const ANYONE: Slot = Slot::MAX;
/// Bytes that a piece's size is counted in (rule `step`).
pub(super) const UNIT: u64 = 512;

/// A used or free part of a chunk.
#[derive(Clone, Debug, Default)]
pub(super) struct Piece {
    pub(super) start: Address,
    /// Size in units; 0 of a vacant slot.
    pub(super) units: u32,
    /// Neighbours in the chunk.
    pub(super) prev: u32,
    pub(super) next: u32,
    pub(super) chunk: u32,
    /// Bytes asked for; 0 if it is free.
    pub(super) asked: u64,
    /// It is among the free ones.
    listed: bool,
    /// Of a free one: whose it is, and when that stream passes the free.
    owner: Slot,
    moment: Moment,
    links: Links,
}

impl Piece {
    /// A free piece behind `prev` and before `next`.
    pub(super) fn between(prev: u32, next: u32, start: Address, units: u32, chunk: u32) -> Self {
        Self { start, units, prev, next, chunk, ..Self::default() }
    }

    pub(super) fn end(&self) -> Address {
        self.start + u64::from(self.units) * UNIT
    }
}

/// The pieces of all pools of a device. Slot 0 is none.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    slots: Vec<Piece>,
    vacant: Vec<u32>,
    /// Those in use, by address. Looked up, never walked.
    used: FxHashMap<Address, u32>,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self { slots: vec![Piece::default()], vacant: Vec::new(), used: FxHashMap::default() }
    }

    pub(super) fn get(&self, slot: u32) -> &Piece {
        &self.slots[slot as usize]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Piece {
        &mut self.slots[slot as usize]
    }

    /// The piece in use that begins here.
    pub(super) fn used_at(&self, address: Address) -> Option<u32> {
        self.used.get(&address).copied()
    }

    /// The piece serves a request.
    pub(super) fn hand_out(&mut self, slot: u32, asked: u64) {
        let piece = self.get_mut(slot);
        piece.asked = asked;
        let start = piece.start;
        self.used.insert(start, slot);
    }

    /// The piece serves no longer; the bytes that were asked for.
    pub(super) fn take_back(&mut self, slot: u32) -> u64 {
        let piece = self.get_mut(slot);
        let (start, asked) = (piece.start, std::mem::take(&mut piece.asked));
        self.used.remove(&start);
        asked
    }

    /// A new piece between two neighbours.
    pub(super) fn add(&mut self, piece: Piece) -> u32 {
        let (prev, next) = (piece.prev, piece.next);
        let slot = match self.vacant.pop() {
            Some(slot) => {
                *self.get_mut(slot) = piece;
                slot
            }
            None => {
                self.slots.push(piece);
                (self.slots.len() - 1) as u32
            }
        };
        if prev != NONE {
            self.get_mut(prev).next = slot;
        }
        if next != NONE {
            self.get_mut(next).prev = slot;
        }
        slot
    }

    /// The piece's bytes become the end of the one before.
    fn absorb(&mut self, slot: u32) {
        let Piece { units, prev, next, .. } = *self.get(slot);
        let before = self.get_mut(prev);
        before.units += units;
        before.next = next;
        if next != NONE {
            self.get_mut(next).prev = prev;
        }
        self.drop(slot);
    }

    /// The piece is no more.
    pub(super) fn drop(&mut self, slot: u32) {
        *self.get_mut(slot) = Piece::default();
        self.vacant.push(slot);
    }

    /// How many of the piece's neighbours are free.
    fn free_neighbours(&self, slot: u32) -> u32 {
        let Piece { prev, next, .. } = *self.get(slot);
        u32::from(self.get(prev).listed) + u32::from(self.get(next).listed)
    }

    /// By size, then by address.
    fn order(&self, slot: u32) -> (u32, Address) {
        let piece = self.get(slot);
        (piece.units, piece.start)
    }

    /// The first of two in order, either of which may be none.
    fn first_of(&self, a: u32, b: u32) -> u32 {
        if a == NONE || b != NONE && self.order(b) < self.order(a) { b } else { a }
    }
}

impl Nodes for &mut Pieces {
    type Brief<'a>
        = &'a mut Pieces
    where
        Self: 'a;

    fn brief(&mut self) -> &mut Pieces {
        self
    }

    fn size(&self, node: u32) -> u32 {
        self.get(node).units
    }

    fn before(&self, a: u32, b: u32) -> bool {
        self.get(a).start < self.get(b).start
    }

    fn links(&self, node: u32) -> Links {
        self.get(node).links
    }

    fn links_mut(&mut self, node: u32) -> &mut Links {
        &mut self.get_mut(node).links
    }
}

/// Free pieces of one owner.
#[derive(Clone, Debug, Default)]
struct Owned {
    set: FreeSet,
    /// No free here is over before this, in ns, nor has an earlier epoch; so a stream that has no hope need not look.
    first_at: u64,
    first_epoch: u64,
}

impl Owned {
    /// May `slot` use something of `owner`'s here?
    fn has_hope(&self, pool: &Pool, time: &Timeline, owner: Slot, slot: Slot) -> bool {
        let over = pool.opportunistic && self.first_at <= time.now;
        let follows = || pool.follow && time.ordered(owner, self.first_epoch, Some(slot));
        !self.set.is_empty() && (over || follows())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) release_threshold: u64,
    pub(super) follow: bool,
    pub(super) opportunistic: bool,
    pub(super) internal: bool,
    pub(super) reserved: u64,
    pub(super) reserved_high: u64,
    pub(super) used: u64,
    pub(super) used_high: u64,
    pub(super) destroyed: bool,
    /// Free pieces for anyone, and by owner's slot.
    anyone: Owned,
    owned: Vec<Option<Box<Owned>>>,
    /// How often two free pieces of different owners meet.
    seams: u32,
    /// Chunks without a used piece.
    pub(super) idle: u32,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            release_threshold: 0,
            follow: true,
            opportunistic: true,
            internal: true,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            destroyed: false,
            anyone: Owned::default(),
            owned: Vec::new(),
            seams: 0,
            idle: 0,
        }
    }

    fn owned_mut(&mut self, owner: Slot) -> &mut Owned {
        if owner == ANYONE {
            return &mut self.anyone;
        }
        let at = owner as usize;
        if self.owned.len() <= at {
            self.owned.resize_with(at + 1, || None);
        }
        self.owned[at].get_or_insert_default()
    }

    /// Owners of free pieces, but for anyone.
    fn owners(&self) -> impl Iterator<Item = (Slot, &Owned)> {
        (0..).zip(&self.owned).filter_map(|(owner, owned)| Some((owner, owned.as_deref()?)))
    }

    /// Puts a piece among the free ones of an owner, beside whatever its neighbours are.
    pub(super) fn put_free(&mut self, pieces: &mut Pieces, slot: u32, owner: Slot, moment: Moment) {
        let owned = self.owned_mut(owner);
        if owned.set.is_empty() {
            (owned.first_at, owned.first_epoch) = (u64::MAX, u64::MAX);
        }
        owned.first_at = owned.first_at.min(moment.at);
        owned.first_epoch = owned.first_epoch.min(moment.epoch_on(owner));
        let piece = pieces.get_mut(slot);
        (piece.listed, piece.owner, piece.moment) = (true, owner, moment);
        owned.set.insert(&mut &mut *pieces, slot);
        self.seams += pieces.free_neighbours(slot);
    }

    /// Takes a piece out of the free ones; its owner and moment.
    pub(super) fn take_free(&mut self, pieces: &mut Pieces, slot: u32) -> (Slot, Moment) {
        let piece = pieces.get_mut(slot);
        piece.listed = false;
        let (owner, moment) = (piece.owner, std::mem::take(&mut piece.moment));
        self.owned_mut(owner).set.remove(&mut &mut *pieces, slot);
        self.seams -= pieces.free_neighbours(slot);
        (owner, moment)
    }

    /// Puts a piece beside those of the same owner, as one.
    pub(super) fn put_joined(
        &mut self,
        pieces: &mut Pieces,
        slot: u32,
        owner: Slot,
        mut moment: Moment,
    ) {
        let Piece { prev, next, .. } = *pieces.get(slot);
        let is_owned = |piece: &Piece| piece.listed && piece.owner == owner;
        let mut whole = slot;
        if is_owned(pieces.get(next)) {
            moment.join(&self.take_free(pieces, next).1);
            pieces.absorb(next);
        }
        if is_owned(pieces.get(prev)) {
            moment.join(&self.take_free(pieces, prev).1);
            pieces.absorb(slot);
            whole = prev;
        }
        self.put_free(pieces, whole, owner, moment);
    }

    /// May `slot` use this free piece without a wait?
    fn is_usable(&self, time: &Timeline, slot: Slot, piece: &Piece) -> bool {
        let Piece { owner, moment, .. } = piece;
        *owner == slot
            || *owner == ANYONE
            || self.follow && time.is_after(Some(slot), moment)
            || self.opportunistic && moment.at <= time.now
    }

    /// The smallest piece of at least `units` that `slot` may use: rules `own` and `synced`, then `follow` and `opportunistic`.
    pub(super) fn find(&self, pieces: &mut Pieces, time: &Timeline, slot: Slot, units: u32) -> u32 {
        let own = self.owned.get(slot as usize).and_then(Option::as_ref);
        let own = own.map_or(NONE, |owned| owned.set.find(&pieces, units));
        let best = pieces.first_of(own, self.anyone.set.find(&pieces, units));
        if best != NONE {
            return best;
        }
        let mut best = NONE;
        for (owner, owned) in self.owners().filter(|(owner, _)| *owner != slot) {
            if owned.has_hope(self, time, owner, slot) {
                let usable = |at: &u32| self.is_usable(time, slot, pieces.get(*at));
                let found = owned.set.from(&pieces, units).find(usable).unwrap_or(NONE);
                best = pieces.first_of(best, found);
            }
        }
        best
    }

    /// The smallest free piece of at least `units`, whosever it is (rule `internal`).
    pub(super) fn find_any(&self, pieces: &mut Pieces, units: u32) -> u32 {
        let anyone = self.anyone.set.find(&pieces, units);
        self.owners().fold(anyone, |best, (_, owned)| {
            let found = owned.set.find(&pieces, units);
            pieces.first_of(best, found)
        })
    }

    /// Joins neighbours that `slot` may use until one piece has `units`; the piece. `chunks` are the first pieces of the pool's chunks, by address.
    pub(super) fn gather(
        &mut self,
        pieces: &mut Pieces,
        time: &Timeline,
        slot: Slot,
        units: u32,
        chunks: impl Iterator<Item = u32>,
    ) -> u32 {
        if self.seams == 0 {
            return NONE;
        }
        for chunk in chunks {
            let (mut at, mut first, mut sum) = (chunk, NONE, 0_u64);
            while at != NONE {
                let piece = pieces.get(at);
                if !piece.listed || !self.is_usable(time, slot, piece) {
                    (first, sum) = (NONE, 0);
                } else {
                    sum += u64::from(piece.units);
                    if first == NONE {
                        first = at;
                    } else if sum >= u64::from(units) {
                        self.join(pieces, first, at, slot);
                        return first;
                    }
                }
                at = piece.next;
            }
        }
        NONE
    }

    /// Makes one free piece of all from `first` to `last`.
    fn join(&mut self, pieces: &mut Pieces, first: u32, last: u32, owner: Slot) {
        let (_, mut whole) = self.take_free(pieces, first);
        let mut at = NONE;
        while at != last {
            at = pieces.get(first).next;
            whole.join(&self.take_free(pieces, at).1);
            pieces.absorb(at);
        }
        self.put_free(pieces, first, owner, whole);
    }

    /// A synchronisation returned to the host: what the host knows to be over is for anyone (rule `synced`).
    pub(super) fn synchronised(&mut self, pieces: &mut Pieces, time: &Timeline) {
        let mut known = Vec::new();
        let hope = |(owner, owned): &(Slot, &Owned)| {
            owned.first_at <= time.now && time.ordered(*owner, owned.first_epoch, None)
        };
        for (_, owned) in self.owners().filter(hope) {
            let over = |at: &u32| time.is_after(None, &pieces.get(*at).moment);
            known.extend(owned.set.from(&pieces, 1).filter(over));
        }
        known.sort_unstable_by_key(|at| pieces.get(*at).start);
        for at in known {
            self.take_free(pieces, at);
            self.put_joined(pieces, at, ANYONE, Moment::default());
        }
    }

    /// Are the frees of all pieces from `first` on, to the end of its chunk, over?
    pub(super) fn is_over(&self, pieces: &Pieces, time: &Timeline, first: u32) -> bool {
        let mut at = first;
        while at != NONE {
            let piece = pieces.get(at);
            if piece.moment.at > time.now {
                return false;
            }
            at = piece.next;
        }
        true
    }
}
