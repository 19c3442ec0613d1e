//! `classic.buddy`: the binary buddy system.
//!
//! | rule | what it says |
//! |---|---|
//! | `order` | a block takes `min_block` bytes times a power of two, 2^order |
//! | `split` | the smallest free block that is large enough is halved until it has the order asked for; the low half is halved on, the high halves are free |
//! | `buddy` | a freed block is joined with its buddy, the other half of the block that both came from, as long as that is free and whole |
//! | `lifo` | of free blocks of one order, the one freed last is taken first |
//! | `grow` | a segment is one block of order `max_order`, or of the request's order if that is larger; the rest as in `pool` beside this file |
//!
//! Source: K. Knowlton, "A fast storage allocator", CACM 8(10), 1965; D. Knuth, The Art of Computer Programming 1, section 2.5, algorithms R and S.
//!
//! ```text
//! offset     0       4       8              16      a block of order k begins at a multiple of 2^k, so the buddy is the
//!            ├───┬───┼───────┼───────────────┤      neighbour above or below, by bit k of the offset
//! order      │ 1 │ 1 │   2   │       3       │
//! ```

use vramlab_sim::allocator::{Allocator, Block, BlockState, LayoutBlock, LayoutSegment, Placement};

use super::options::{Growth, power_of_two};
use super::pool::Pool;
use super::rule::{GRANULE, Need, Rule};
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::last_uses::LastUses;
use crate::parts::pieces::{NIL, Segment, UNIT_SIZE_MIN};
use crate::registry::{Status, Strategy};

/// Offsets are counted in `u32`.
const ORDER_MAX: u32 = 31;

pub(crate) const OPTIONS: &[OptionDoc] = &[MIN_BLOCK, MAX_ORDER];
const MIN_BLOCK: OptionDoc = OptionDoc {
    name: "min_block",
    default: "512",
    help: "size of a block of order 0: a power of two from 256 to 2MiB",
};
const MAX_ORDER: OptionDoc = OptionDoc {
    name: "max_order",
    default: "16",
    help: "order of a segment, from 0 to 31: 16 makes segments of 32 MiB with blocks from 512 B",
};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "classic.buddy",
    new,
    Status::Model,
    OPTIONS,
    "binary buddies: halves of halves",
);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    options.check("classic.buddy", OPTIONS)?;
    let min_block = power_of_two(options, &MIN_BLOCK, UNIT_SIZE_MIN, GRANULE)?;
    let max_order: u32 = options.parse(MAX_ORDER.name, "a number from 0 to 31", 16)?;
    if max_order > ORDER_MAX {
        return Err(OptionError(format!(
            "option max_order={max_order}: expected a number from 0 to {ORDER_MAX}"
        )));
    }
    Ok(Box::new(Pool::shell(Buddy::new(min_block, max_order), Growth::Segments)))
}

const ORDER: u64 = 31;
const STATE: u64 = 3 << 5;
const FREE: u64 = 1 << 5;
const VACANT: u64 = 2 << 5;
const _: () = assert!(ORDER < UNIT_SIZE_MIN && STATE < UNIT_SIZE_MIN, "both fit below an address");

/// A block.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Half {
    /// Bytes; in the low bits the order and the state.
    place: u64,
    /// In blocks of order 0, from the beginning of the segment.
    offset: u32,
    /// Rises with every use of the slot for a block.
    generation: u32,
    /// Neighbours in address order.
    prev: u32,
    next: u32,
    /// Free: the blocks before and after it in its list. In use: the bytes asked for, low and high half.
    a: u32,
    b: u32,
}

const _: () = assert!(size_of::<Half>() == 32, "two share a cache line, and none lies in two");

impl Half {
    #[inline]
    const fn address(&self) -> u64 {
        self.place & !(ORDER | STATE)
    }
    #[inline]
    const fn order(&self) -> u32 {
        (self.place & ORDER) as u32
    }
    #[inline]
    const fn state(&self) -> u64 {
        self.place & STATE
    }
    #[inline]
    const fn is_whole_free(&self) -> bool {
        self.state() == FREE && self.prev == NIL && self.next == NIL
    }
}

/// Halves of segments.
struct Buddy {
    halves: Vec<Half>,
    /// First slot that means nothing; the others follow through `next`.
    vacant: u32,
    /// log2 of `min_block`.
    shift: u32,
    max_order: u32,
    /// Bit k: there is a free block of order k.
    orders: u32,
    heads: [u32; ORDER_MAX as usize + 1],
}

impl Buddy {
    fn new(min_block: u64, max_order: u32) -> Self {
        let shift = min_block.trailing_zeros();
        let heads = [NIL; ORDER_MAX as usize + 1];
        Self { halves: Vec::new(), vacant: NIL, shift, max_order, orders: 0, heads }
    }

    #[inline]
    fn bytes(&self, half: &Half) -> u64 {
        1 << (half.order() + self.shift)
    }

    #[inline]
    fn half(&mut self, slot: u32) -> &mut Half {
        &mut self.halves[slot as usize]
    }

    /// The order of a request (rule `order`).
    #[inline]
    fn order_for(&self, size: u64) -> Option<u32> {
        let last_unit = (size - 1) >> self.shift;
        let order = u64::BITS - last_unit.leading_zeros();
        (order <= ORDER_MAX).then_some(order)
    }

    #[inline]
    fn push(&mut self, slot: u32, order: u32) {
        let head = std::mem::replace(&mut self.heads[(order & ORDER_MAX) as usize], slot);
        let half = self.half(slot);
        (half.a, half.b) = (NIL, head);
        if head != NIL {
            self.half(head).a = slot;
        }
        self.orders |= 1 << order;
    }

    #[inline]
    fn unlink(&mut self, slot: u32, order: u32) {
        let Half { a: before, b: after, .. } = self.halves[slot as usize];
        if after != NIL {
            self.half(after).a = before;
        }
        if before != NIL {
            self.half(before).b = after;
            return;
        }
        self.heads[(order & ORDER_MAX) as usize] = after;
        if after == NIL {
            self.orders &= !(1 << order);
        }
    }

    #[inline]
    fn slot(&mut self, half: Half) -> u32 {
        if self.vacant == NIL {
            self.halves.push(half);
            return (self.halves.len() - 1) as u32;
        }
        let slot = self.vacant;
        let old = self.half(slot);
        let (next, generation) = (old.next, old.generation);
        *old = Half { generation, ..half };
        self.vacant = next;
        slot
    }

    #[inline]
    fn vacate(&mut self, slot: u32) {
        let vacant = std::mem::replace(&mut self.vacant, slot);
        let half = self.half(slot);
        (half.place, half.next) = (VACANT, vacant);
    }

    /// Halves a block that is in no list until it has `order` (rule `split`), and hands it out.
    #[inline(always)]
    fn cut(&mut self, slot: u32, order: u32, size: u64, uses: &mut LastUses) {
        let whole = self.halves[slot as usize];
        let mut next = whole.next;
        for order in (order..whole.order()).rev() {
            let high = self.slot(Half {
                place: (whole.address() + (1 << (order + self.shift))) | FREE | u64::from(order),
                offset: whole.offset + (1 << order),
                generation: 0,
                prev: slot,
                next,
                ..whole
            });
            if next != NIL {
                self.half(next).prev = high;
            }
            next = high;
            uses.cut(slot, high);
            self.push(high, order);
        }
        let half = self.half(slot);
        half.place = whole.address() | u64::from(order);
        half.next = next;
        half.generation = half.generation.wrapping_add(1);
        (half.a, half.b) = (size as u32, (size >> 32) as u32);
    }

    /// The buddy of a block, if it is free and whole (rule `buddy`).
    #[inline]
    fn buddy(&self, half: &Half, order: u32) -> Option<u32> {
        let slot = if half.offset >> order & 1 == 0 { half.next } else { half.prev };
        let other = self.halves.get(slot as usize)?;
        (other.place & (ORDER | STATE) == FREE | u64::from(order)).then_some(slot)
    }

    fn from(&self, slot: u32) -> impl Iterator<Item = &Half> {
        let at = |slot: u32| self.halves.get(slot as usize);
        std::iter::successors(at(slot), move |half| at(half.next))
    }

    fn layout(&self, half: &Half) -> LayoutBlock {
        let free = half.state() == FREE;
        LayoutBlock {
            address: half.address(),
            size: self.bytes(half),
            requested: if free { 0 } else { u64::from(half.b) << 32 | u64::from(half.a) },
            state: if free { BlockState::Free } else { BlockState::Allocated },
            age: 0,
        }
    }
}

impl Rule for Buddy {
    #[inline(always)]
    fn take(&mut self, size: u64, uses: &mut LastUses) -> Option<u32> {
        let order = self.order_for(size)?;
        let orders = self.orders & (u32::MAX << order);
        if orders == 0 {
            return None;
        }
        let from = orders.trailing_zeros();
        let slot = self.heads[from as usize];
        self.unlink(slot, from);
        self.cut(slot, order, size, uses);
        Some(slot)
    }

    fn need(&self, size: u64) -> Option<Need> {
        let bytes = |order: u32| 1_u64 << (order + self.shift);
        let least = bytes(self.order_for(size)?).max(GRANULE);
        // a block of order 31 that is smaller than a granule cannot be
        Some(Need { least, full: least.max(bytes(self.max_order)) })
    }

    fn segment_max(&self) -> u64 {
        1 << (ORDER_MAX + self.shift)
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, segment: Segment, size: u64, uses: &mut LastUses) -> u32 {
        let order = segment.size.trailing_zeros() - self.shift;
        let place = segment.address | FREE | u64::from(order);
        let whole = Half { place, offset: 0, generation: 0, prev: NIL, next: NIL, a: NIL, b: NIL };
        let slot = self.slot(whole);
        uses.fresh(slot);
        let order = self.order_for(size).unwrap_or(order);
        self.cut(slot, order, size, uses);
        slot
    }

    #[inline]
    fn find(&self, token: Block) -> Option<u32> {
        let (slot, generation) = (token.0 as u32, (token.0 >> 32) as u32);
        let half = self.halves.get(slot as usize)?;
        (half.state() == 0 && half.generation == generation).then_some(slot)
    }

    #[inline]
    fn placement(&self, slot: u32) -> Placement {
        let half = &self.halves[slot as usize];
        let block = Block(u64::from(half.generation) << 32 | u64::from(slot));
        Placement { block, address: half.address(), size: self.bytes(half) }
    }

    #[inline(always)]
    fn give(&mut self, slot: u32, uses: &mut LastUses) {
        let mut slot = slot;
        let mut half = self.halves[slot as usize];
        let mut order = half.order();
        while let Some(buddy) = self.buddy(&half, order) {
            self.unlink(buddy, order);
            let other = self.halves[buddy as usize];
            let gone = if other.offset > half.offset {
                half.next = other.next;
                buddy
            } else {
                half = Half {
                    prev: other.prev,
                    place: other.place,
                    offset: other.offset,
                    generation: other.generation,
                    ..half
                };
                std::mem::replace(&mut slot, buddy)
            };
            uses.join(slot, gone);
            self.vacate(gone);
            order += 1;
        }
        half.place = half.address() | FREE | u64::from(order);
        *self.half(slot) = half;
        if half.prev != NIL {
            self.half(half.prev).next = slot;
        }
        if half.next != NIL {
            self.half(half.next).prev = slot;
        }
        self.push(slot, order);
    }

    fn idle(&self) -> Vec<(u32, Segment)> {
        let whole = (0_u32..).zip(&self.halves).filter(|(_, half)| half.is_whole_free());
        let segment = |half: &Half| Segment { address: half.address(), size: self.bytes(half) };
        let mut whole: Vec<_> = whole.map(|(slot, half)| (slot, segment(half))).collect();
        whole.sort_unstable_by_key(|(_, segment)| std::cmp::Reverse(segment.address));
        whole
    }

    fn drop_idle(&mut self, slot: u32, uses: &mut LastUses) {
        let order = self.halves[slot as usize].order();
        self.unlink(slot, order);
        self.vacate(slot);
        uses.forget(slot);
    }

    fn largest_free(&self) -> u64 {
        if self.orders == 0 { 0 } else { 1 << (31 - self.orders.leading_zeros() + self.shift) }
    }

    fn walk(&self) -> Vec<LayoutSegment> {
        let is_head = |half: &Half| half.prev == NIL && half.state() != VACANT;
        let mut segments: Vec<LayoutSegment> = (0_u32..)
            .zip(&self.halves)
            .filter(|(_, half)| is_head(half))
            .map(|(slot, half)| {
                let blocks: Vec<_> = self.from(slot).map(|half| self.layout(half)).collect();
                let size = blocks.iter().map(|block| block.size).sum();
                let address = half.address();
                LayoutSegment { address, size, pool: "buddy", blocks, ..LayoutSegment::default() }
            })
            .collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }
}

#[cfg(test)]
mod tests {
    use crate::classic::testing::{KIB, Probe};

    #[test]
    fn a_block_takes_the_next_power_of_two() {
        let mut probe = Probe::new("classic.buddy");
        for (size, want) in [(1, 512), (512, 512), (513, 1024), (40 << 20, 64 << 20)] {
            assert_eq!(probe.placement(size).size, want, "for {size} bytes");
        }
        assert_eq!(probe.reserved(), 96 << 20, "32 MiB, and 64 MiB for the large one");
    }

    #[test]
    fn only_buddies_are_joined() {
        let mut probe = Probe::new("classic.buddy");
        let blocks = [0; 4].map(|_| probe.alloc(4 * KIB));
        probe.free(blocks[1]);
        probe.free(blocks[2]);
        assert_eq!(probe.place(8 * KIB), 16 * KIB, "4 to 12 KiB are free, but are no buddies");
        probe.free(blocks[0]);
        assert_eq!(probe.place(8 * KIB), 0);
    }

    #[test]
    fn all_free_is_one_block_again() {
        let mut probe = Probe::new("classic.buddy:min_block=1KiB,max_order=15");
        let blocks = [1, 700, 5, 64, 1, 3000].map(|kib| probe.alloc(kib * KIB));
        probe.free_all([3, 0, 5, 1, 4, 2].map(|i| blocks[i]));
        assert_eq!(probe.place(32 << 20), 0);
        assert_eq!(probe.reserved(), 32 << 20);
    }
}
