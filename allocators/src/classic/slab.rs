//! `classic.slab`: size classes in slabs.
//!
//! | rule | what it says |
//! |---|---|
//! | `classes` | a request is rounded up to a size class: multiples of 512 B up to 8, then four classes per power of two |
//! | `slab` | a slab is `slab` bytes from the driver, cut into objects of one class; an object never moves to another class while the slab has others in use |
//! | `partial` | a request takes an object of the slab of its class that became partly free last, the object freed last first |
//! | `complete` | a slab with no object in use may serve any class; it is taken when a class has no partial slab, the one that became empty last first |
//! | `large` | above an eighth of `slab`, a request goes to the driver, and its memory goes back as soon as it is freed |
//!
//! Source: J. Bonwick, "The slab allocator: an object-caching kernel memory allocator", USENIX Summer 1994 (slabs, free list of objects, an eighth as the most
//! that a slab may waste). Left out: object construction, colouring. The rest as in `pool` beside this file.

use vramlab_sim::allocator::{Allocator, Block, BlockState, LayoutBlock, LayoutSegment, Placement};
use vramlab_sim::units::Bytes;

use super::options::{Growth, power_of_two};
use super::pool::Pool;
use super::rule::{GRANULE, Need, Rule};
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::{NIL, Segment};
use crate::parts::two_level::TwoLevel;
use crate::registry::{Status, Strategy};

type Levels = TwoLevel<2>;

/// Sizes are counted in units of this many bytes (rule `classes`).
const UNIT: u64 = 512;
/// A slab holds at least this many objects (rule `large`).
const OBJECTS_MIN: u64 = 8;
const SLAB_SIZE_MAX: u64 = Bytes::mib(64).0;

pub(crate) const OPTIONS: &[OptionDoc] = &[SLAB];
const SLAB: OptionDoc = OptionDoc {
    name: "slab",
    default: "2MiB",
    help: "bytes of a slab: a power of two from 2MiB to 64MiB; an eighth of it is the largest object",
};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "classic.slab",
    new,
    Status::Model,
    OPTIONS,
    "size classes in slabs, large requests direct",
);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    options.check("classic.slab", OPTIONS)?;
    let size = power_of_two(options, &SLAB, GRANULE, SLAB_SIZE_MAX)?;
    Ok(Box::new(Pool::shell(Slabs::new(size), Growth::Segments)))
}

/// An object of a slab.
#[derive(Clone, Copy, Debug, Default)]
struct Object {
    /// In use: bytes asked for. Free: the next free object of the slab.
    requested_or_next: u64,
    /// In use: the number of the take. Free: 0.
    generation: u32,
}

/// A slab, or a large request of its own (which is a slab of one object).
#[derive(Debug)]
struct Slab {
    segment: Segment,
    /// Bytes of an object.
    object: u64,
    /// Its list in [`Slabs::partial`].
    class: usize,
    /// Objects that fit.
    count: u32,
    in_use: u32,
    /// First free object that was used before; the others follow.
    freed: u32,
    /// Objects that were ever used since the slab serves this class.
    objects: Vec<Object>,
    /// Neighbours in the list of partial slabs of its class.
    prev: u32,
    next: u32,
}

/// The list of slabs with no object in use comes after those of the classes.
const COMPLETE: usize = Levels::CLASSES;
/// The class of a slab that is a large request, and in no list.
const LARGE: usize = usize::MAX;

struct Slabs {
    slabs: Vec<Slab>,
    vacant: Vec<u32>,
    size: u64,
    /// A slot is the number of a slab and, in so many low bits, that of an object; all ones there mean the slab itself.
    object_bits: u32,
    /// By class: the first slab with both free and used objects; then the first that is complete.
    partial: Vec<u32>,
    /// Counts takes, so that an old token is known.
    takes: u32,
}

impl Slabs {
    fn new(size: u64) -> Self {
        Self {
            slabs: Vec::new(),
            vacant: Vec::new(),
            size,
            object_bits: (size / UNIT).trailing_zeros() + 1,
            partial: vec![NIL; COMPLETE + 1],
            takes: 0,
        }
    }

    /// Class and bytes of an object for a request that is not large.
    #[inline]
    fn class(&self, size: u64) -> Option<(usize, u64)> {
        if size > self.size / OBJECTS_MIN {
            return None;
        }
        let class = Levels::class_above(size.div_ceil(UNIT) as u32);
        Some((class, u64::from(Levels::floor(class)?) * UNIT))
    }

    /// The slot that stands for a slab's memory as a whole.
    const fn whole(&self, slab: u32) -> u32 {
        slab << self.object_bits | ((1 << self.object_bits) - 1)
    }

    /// The slab and the object of a slot.
    #[inline]
    const fn parts(&self, slot: u32) -> (u32, u32) {
        (slot >> self.object_bits, slot & ((1 << self.object_bits) - 1))
    }

    const fn slab_max(&self) -> usize {
        (u32::MAX >> self.object_bits) as usize
    }

    #[inline]
    fn list(&mut self, at: u32) {
        let class = self.slabs[at as usize].class;
        let head = std::mem::replace(&mut self.partial[class], at);
        (self.slabs[at as usize].prev, self.slabs[at as usize].next) = (NIL, head);
        if head != NIL {
            self.slabs[head as usize].prev = at;
        }
    }

    #[inline]
    fn unlist(&mut self, at: u32) {
        let Slab { prev, next, class, .. } = self.slabs[at as usize];
        if next != NIL {
            self.slabs[next as usize].prev = prev;
        }
        if prev == NIL {
            self.partial[class] = next;
        } else {
            self.slabs[prev as usize].next = next;
        }
    }

    /// Makes an empty slab serve a class, and lists it.
    fn dedicate(&mut self, at: u32, class: usize, object: u64) {
        let slab = &mut self.slabs[at as usize];
        slab.class = class;
        slab.object = object;
        slab.count = (slab.segment.size / object) as u32;
        slab.freed = NIL;
        slab.objects.clear();
        self.list(at);
    }

    /// Takes an object of a slab that has a free one.
    #[inline]
    fn take_object(&mut self, at: u32, size: u64, uses: &mut LastUses) -> u32 {
        self.takes = self.takes.checked_add(1).unwrap_or(1);
        let taken = Object { requested_or_next: size, generation: self.takes };
        let slab = &mut self.slabs[at as usize];
        let (object, new) = (slab.freed, slab.freed == NIL);
        let object = if new {
            slab.objects.push(taken);
            (slab.objects.len() - 1) as u32
        } else {
            let entry = std::mem::replace(&mut slab.objects[object as usize], taken);
            slab.freed = entry.requested_or_next as u32;
            object
        };
        slab.in_use += 1;
        let full = slab.in_use == slab.count;
        let slot = at << self.object_bits | object;
        if full && slab.class != LARGE {
            self.unlist(at);
        }
        if new {
            uses.cut(self.whole(at), slot);
        }
        slot
    }

    fn drop_slab(&mut self, at: u32, uses: &mut LastUses) {
        let slab = &mut self.slabs[at as usize];
        slab.segment = Segment { address: 0, size: 0 };
        slab.objects.clear();
        uses.forget(self.whole(at));
        self.vacant.push(at);
    }

    fn layout(&self, slab: &Slab) -> LayoutSegment {
        let Segment { address, size } = slab.segment;
        let used = |object: &Object| object.generation != 0;
        let state = |used| if used { BlockState::Allocated } else { BlockState::Free };
        let mut blocks: Vec<LayoutBlock> = (0_u64..)
            .zip(&slab.objects)
            .map(|(i, object)| LayoutBlock {
                address: address + i * slab.object,
                size: slab.object,
                requested: if used(object) { object.requested_or_next } else { 0 },
                state: state(used(object)),
                age: 0,
            })
            .collect();
        let tail = size - slab.objects.len() as u64 * slab.object;
        if tail > 0 {
            let address = address + size - tail;
            blocks.push(LayoutBlock {
                address,
                size: tail,
                requested: 0,
                state: state(false),
                age: 0,
            });
        }
        let pool = if slab.class == LARGE { "large" } else { "slab" };
        LayoutSegment { address, size, pool, blocks, ..LayoutSegment::default() }
    }
}

impl Rule for Slabs {
    #[inline]
    fn take(&mut self, size: u64, uses: &mut LastUses) -> Option<u32> {
        let (class, object) = self.class(size)?;
        if self.partial[class] == NIL {
            let complete = self.partial[COMPLETE];
            if complete == NIL {
                return None;
            }
            self.unlist(complete);
            self.dedicate(complete, class, object);
        }
        Some(self.take_object(self.partial[class], size, uses))
    }

    fn need(&self, size: u64) -> Option<Need> {
        let bytes = match self.class(size) {
            Some(_) => self.size,
            None => size.checked_next_multiple_of(UNIT)?,
        };
        let room = !self.vacant.is_empty() || self.slabs.len() < self.slab_max();
        room.then_some(Need { least: bytes, full: bytes })
    }

    fn segment_max(&self) -> u64 {
        u64::MAX
    }

    fn add(&mut self, segment: Segment, size: u64, uses: &mut LastUses) -> u32 {
        let slab = Slab {
            segment,
            object: segment.size,
            class: LARGE,
            count: 1,
            in_use: 0,
            freed: NIL,
            objects: Vec::new(),
            prev: NIL,
            next: NIL,
        };
        let at = match self.vacant.pop() {
            Some(at) => at,
            None => self.slabs.len() as u32,
        };
        if at as usize == self.slabs.len() {
            self.slabs.push(slab);
        } else {
            self.slabs[at as usize] = slab;
        }
        uses.fresh(self.whole(at));
        if let Some((class, object)) = self.class(size) {
            self.dedicate(at, class, object);
        }
        self.take_object(at, size, uses)
    }

    #[inline]
    fn find(&self, token: Block) -> Option<u32> {
        let (slot, generation) = (token.0 as u32, (token.0 >> 32) as u32);
        let (at, object) = self.parts(slot);
        let entry = self.slabs.get(at as usize)?.objects.get(object as usize)?;
        (entry.generation == generation && generation != 0).then_some(slot)
    }

    #[inline]
    fn placement(&self, slot: u32) -> Placement {
        let (at, object) = self.parts(slot);
        let slab = &self.slabs[at as usize];
        let generation = slab.objects[object as usize].generation;
        Placement {
            block: Block(u64::from(generation) << 32 | u64::from(slot)),
            address: slab.segment.address + u64::from(object) * slab.object,
            size: slab.object,
        }
    }

    #[inline]
    fn goes_back(&self, slot: u32) -> Option<Segment> {
        let slab = &self.slabs[self.parts(slot).0 as usize];
        (slab.class == LARGE).then_some(slab.segment)
    }

    #[inline]
    fn give(&mut self, slot: u32, uses: &mut LastUses) {
        let (at, object) = self.parts(slot);
        uses.blend(self.whole(at), slot);
        let slab = &mut self.slabs[at as usize];
        let entry = &mut slab.objects[object as usize];
        *entry = Object { requested_or_next: slab.freed.into(), generation: 0 };
        slab.freed = object;
        slab.in_use -= 1;
        if slab.class == LARGE {
            uses.forget(slot);
            return self.drop_slab(at, uses);
        }
        let (was_full, empty) = (slab.in_use + 1 == slab.count, slab.in_use == 0);
        if empty {
            // an object at least an eighth of a slab large has company, so an empty slab was listed
            self.unlist(at);
            self.slabs[at as usize].class = COMPLETE;
            self.list(at);
        } else if was_full {
            self.list(at);
        }
    }

    fn idle(&self) -> Vec<(u32, Segment)> {
        let next = |at: u32| self.slabs.get(at as usize).map(|slab| slab.next);
        let mut idle: Vec<u32> =
            std::iter::successors(Some(self.partial[COMPLETE]), |at| next(*at)).collect();
        idle.pop(); // NIL
        let segment = |at: u32| (at, self.slabs[at as usize].segment);
        let mut idle: Vec<(u32, Segment)> = idle.into_iter().map(segment).collect();
        idle.sort_unstable_by_key(|(_, segment)| std::cmp::Reverse(segment.address));
        idle
    }

    fn drop_idle(&mut self, slot: u32, uses: &mut LastUses) {
        self.unlist(slot);
        for object in 0..self.slabs[slot as usize].objects.len() as u32 {
            uses.forget(slot << self.object_bits | object);
        }
        self.drop_slab(slot, uses);
    }

    fn largest_free(&self) -> u64 {
        if self.partial[COMPLETE] != NIL {
            return self.size / OBJECTS_MIN;
        }
        let listed = self.partial[..COMPLETE].iter().filter(|at| **at != NIL);
        listed.map(|at| self.slabs[*at as usize].object).max().unwrap_or(0)
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        let held = self.slabs.iter().filter(|slab| slab.segment.size > 0);
        let mut segments: Vec<LayoutSegment> = held.map(|slab| self.layout(slab)).collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }
}

#[cfg(test)]
mod tests {
    use crate::classic::testing::{KIB, Probe};

    #[test]
    fn objects_of_a_class_share_a_slab() {
        let mut probe = Probe::new("classic.slab");
        let got = [9, 9, 9].map(|kib| probe.place(kib * KIB) / KIB);
        assert_eq!(got, [0, 10, 20], "a class of 10 KiB");
        assert_eq!(probe.place(64 * KIB), 0, "another class, another slab");
        assert_eq!(probe.reserved(), 4 << 20);
    }

    #[test]
    fn an_empty_slab_serves_another_class() {
        let mut probe = Probe::new("classic.slab");
        let a = probe.alloc(10 * KIB);
        probe.free(a);
        probe.alloc(256 * KIB);
        assert_eq!(probe.reserved(), 2 << 20);
    }

    #[test]
    fn a_large_request_goes_to_the_driver_and_back() {
        let mut probe = Probe::new("classic.slab");
        let a = probe.alloc(256 * KIB + 1);
        assert_eq!(probe.reserved(), 256 * KIB + 512);
        probe.free(a);
        assert_eq!(probe.reserved(), 0);
    }

    #[test]
    fn a_full_slab_takes_the_object_freed_last() {
        let mut probe = Probe::new("classic.slab");
        let objects = [0; 8].map(|_| probe.alloc(256 * KIB));
        probe.alloc(256 * KIB);
        probe.free(objects[2]);
        probe.free(objects[5]);
        let got = [0; 2].map(|_| probe.place(256 * KIB) / (256 * KIB));
        assert_eq!(got, [5, 2]);
    }
}
