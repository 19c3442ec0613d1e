//! The hot path's hold on the pieces, and how a free set sees them.

use crate::parts::free_set::{Links, Nodes};

use super::piece::{Piece, State};
use super::pieces::{Pieces, Segment, comes_before};

/// The arena's slices at hand, so that the hot path need not look up where they are for each step.
pub(super) struct View<'a> {
    list: &'a mut [Piece],
    segments: &'a [Segment],
    vacant: &'a mut u32,
    by_address: bool,
}

impl<'a> View<'a> {
    #[inline(always)]
    pub(super) fn new(
        list: &'a mut [Piece],
        segments: &'a [Segment],
        vacant: &'a mut u32,
        by_address: bool,
    ) -> Self {
        Self { list, segments, vacant, by_address }
    }

    #[inline(always)]
    fn comes_before(&self, a: u32, b: u32) -> bool {
        comes_before(self.list, self.segments, self.by_address, a, b)
    }

    #[inline(always)]
    fn view(&mut self) -> View<'_> {
        View {
            list: self.list,
            segments: self.segments,
            vacant: self.vacant,
            by_address: self.by_address,
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, piece: u32) -> &Piece {
        &self.list[piece as usize]
    }
    #[inline(always)]
    pub(super) fn get_mut(&mut self, piece: u32) -> &mut Piece {
        &mut self.list[piece as usize]
    }
    #[inline(always)]
    pub(super) fn segment(&self, segment: u32) -> &Segment {
        &self.segments[segment as usize]
    }

    /// Cuts a piece after `units`; the rest becomes a new piece. There must be a vacant slot.
    #[inline(always)]
    pub(super) fn split(&mut self, piece: u32, units: u32, state: State) -> u32 {
        let rest = *self.vacant;
        let front = self.get_mut(piece);
        let Piece { segment, offset, size, after, .. } = *front;
        front.size = units;
        front.after = rest;
        let slot = self.get_mut(rest);
        let vacant = slot.after;
        *slot = Piece {
            segment,
            offset: offset + units,
            size: size - units,
            after,
            ..Piece::behind(piece, state)
        };
        self.get_mut(after).set_prev(rest);
        *self.vacant = vacant;
        rest
    }

    /// As [`Pieces::absorb_next`].
    #[inline(always)]
    pub(super) fn absorb_next(&mut self, piece: u32) {
        let gone = self.get(piece).after;
        let vacant = std::mem::replace(self.vacant, gone);
        let slot = self.get_mut(gone);
        let Piece { size, after, .. } = *slot;
        *slot = Piece { after: vacant, ..Piece::default() };
        let grown = self.get_mut(piece);
        grown.size += size;
        grown.after = after;
        self.get_mut(after).set_prev(piece);
    }
}

macro_rules! nodes {
    ($of:ty, $view:expr) => {
        impl Nodes for $of {
            type Brief<'b>
                = View<'b>
            where
                Self: 'b;
            #[inline(always)]
            fn brief(&mut self) -> View<'_> {
                $view(self)
            }
            #[inline(always)]
            fn size(&self, piece: u32) -> u32 {
                self.get(piece).size
            }
            #[inline(always)]
            fn before(&self, a: u32, b: u32) -> bool {
                self.comes_before(a, b)
            }
            #[inline(always)]
            fn links(&self, piece: u32) -> Links {
                self.get(piece).links
            }
            #[inline(always)]
            fn links_mut(&mut self, piece: u32) -> &mut Links {
                &mut self.get_mut(piece).links
            }
        }
    };
}

nodes!(Pieces, Pieces::view);
nodes!(View<'_>, View::view);
