//! Arenas, and the order in which they give pools (rules `arena_order`, `arena_release` and `free_pools` of [`super`]).
//!
//! ```text
//! usable      2 free ─ 2 free ─ 5 free ─ 64 free        by rising number of free pools; full arenas are not in it
//! last_with            [2]      [5]      [64]           the last one of each number
//! ```

use vramlab_sim::driver::Address;

use super::geometry::Geometry;

pub(super) const NIL: u32 = u32::MAX;

/// An arena, or a vacant slot (address 0).
#[derive(Clone, Debug, Default)]
pub(super) struct Arena {
    pub(super) address: Address,
    /// Where its first pool begins.
    pub(super) first: Address,
    /// Pools that it has.
    pub(super) pools: u32,
    /// Pools not in use.
    free: u32,
    /// Pools that were ever in use: the ones above are untouched.
    touched: u32,
    /// Pools that were given back, last one on top.
    given_back: Vec<u32>,
    prev: u32,
    next: u32,
}

/// All arenas.
#[derive(Clone, Debug)]
pub(super) struct Arenas {
    list: Vec<Arena>,
    vacant: Vec<u32>,
    /// First of the usable ones.
    usable: u32,
    /// By number of free pools.
    last_with: Vec<u32>,
    geometry: Geometry,
}

impl Arenas {
    pub(super) fn new(geometry: Geometry) -> Self {
        let last_with = vec![NIL; geometry.pools() as usize + 1];
        Self { list: Vec::new(), vacant: Vec::new(), usable: NIL, last_with, geometry }
    }

    pub(super) fn get(&self, arena: u32) -> &Arena {
        &self.list[arena as usize]
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        (self.list.len() - self.vacant.len()) as u32
    }

    /// The live ones, by slot.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, &Arena)> {
        (0..).zip(&self.list).filter(|(_, arena)| arena.address != 0)
    }

    fn at(&mut self, arena: u32) -> &mut Arena {
        &mut self.list[arena as usize]
    }

    fn last(&mut self, free: u32) -> &mut u32 {
        &mut self.last_with[free as usize]
    }

    /// Is no arena usable? Then a new one is needed.
    pub(super) fn none_usable(&self) -> bool {
        self.usable == NIL
    }

    /// A new arena, while none is usable.
    pub(super) fn add(&mut self, address: Address) {
        let pool = u64::from(self.geometry.pool);
        let first = address.next_multiple_of(pool);
        let pools = self.geometry.pools() - u32::from(first != address);
        let arena =
            Arena { address, first, pools, free: pools, prev: NIL, next: NIL, ..Arena::default() };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.list[slot as usize] = arena;
                slot
            }
            None => {
                self.list.push(arena);
                (self.list.len() - 1) as u32
            }
        };
        self.usable = slot;
        *self.last(pools) = slot;
    }

    /// A pool of the first usable arena: the one given back last, or the first untouched one.
    pub(super) fn take_pool(&mut self) -> Option<(u32, u32)> {
        let arena = (self.usable != NIL).then_some(self.usable)?;
        let free = self.get(arena).free;
        if *self.last(free) == arena {
            *self.last(free) = NIL;
        }
        // it had the fewest, so it stays first
        let at = self.at(arena);
        at.free -= 1;
        let next = at.next;
        let pool = at.given_back.pop().unwrap_or_else(|| {
            at.touched += 1;
            at.touched - 1
        });
        if free > 1 {
            *self.last(free - 1) = arena;
        } else {
            self.usable = next;
            if next != NIL {
                self.at(next).prev = NIL;
            }
        }
        Some((arena, pool))
    }

    /// Goes the arena back when one more of its pools is free?
    pub(super) fn leaves(&self, arena: u32) -> bool {
        let Arena { free, pools, next, .. } = *self.get(arena);
        free + 1 == pools && (next != NIL || !self.geometry.keeps_one)
    }

    /// A pool is not in use any more.
    pub(super) fn give_pool(&mut self, arena: u32, pool: u32) {
        let at = self.at(arena);
        at.given_back.push(pool);
        let (old, prev) = (at.free, at.prev);
        at.free += 1;
        let free = at.free;
        let last_old = *self.last(old);
        if last_old == arena {
            let same = prev != NIL && self.get(prev).free == old;
            *self.last(old) = if same { prev } else { NIL };
        }
        if free == 1 {
            self.link_first(arena);
        } else {
            if *self.last(free) == NIL {
                *self.last(free) = arena;
            }
            if last_old != arena {
                self.move_behind(arena, last_old);
            }
        }
    }

    fn link_first(&mut self, arena: u32) {
        let next = self.usable;
        let at = self.at(arena);
        (at.prev, at.next) = (NIL, next);
        if next != NIL {
            self.at(next).prev = arena;
        }
        self.usable = arena;
        if *self.last(1) == NIL {
            *self.last(1) = arena;
        }
    }

    fn unlink(&mut self, arena: u32) {
        let (prev, next) = (self.get(arena).prev, self.get(arena).next);
        if prev == NIL {
            self.usable = next;
        } else {
            self.at(prev).next = next;
        }
        if next != NIL {
            self.at(next).prev = prev;
        }
    }

    fn move_behind(&mut self, arena: u32, before: u32) {
        self.unlink(arena);
        let next = self.get(before).next;
        let at = self.at(arena);
        (at.prev, at.next) = (before, next);
        self.at(before).next = arena;
        if next != NIL {
            self.at(next).prev = arena;
        }
    }

    /// An arena whose pools are all free is gone.
    pub(super) fn remove(&mut self, arena: u32) {
        let Arena { free, prev, .. } = *self.get(arena);
        if *self.last(free) == arena {
            let same = prev != NIL && self.get(prev).free == free;
            *self.last(free) = if same { prev } else { NIL };
        }
        self.unlink(arena);
        self.vacant.push(arena);
        *self.at(arena) = Arena::default();
    }
}
