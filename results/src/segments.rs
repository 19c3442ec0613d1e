//! What a recorded state holds: in use, free, and what pins it.

use serde::Serialize;
use vramlab_sim::allocator::{BlockState, Layout, LayoutSegment};

/// Sums over a state, in bytes.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs)]
pub struct Held {
    pub reserved: u64,
    pub segments: u64,
    pub allocated: u64,
    pub pending: u64,
    pub free: u64,
    /// Free bytes of segments with nothing live in them: they can go back to the device.
    pub free_whole: u64,
    pub largest_free: u64,
    /// Segments with the most free bytes that live buffers keep from going back.
    pub pinned: Vec<Pinned>,
}

/// A segment that cannot go back.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Pinned {
    pub address: u64,
    pub size: u64,
    pub free: u64,
    pub pool: String,
    pub stream: u32,
    /// Bytes of the smallest live buffer in it.
    pub smallest_pin: u64,
    pub smallest_pin_address: u64,
}

/// Sums up a state; the `top` most wasteful segments are named.
pub fn held(layout: &Layout, top: usize) -> Held {
    let mut held = Held { segments: layout.segments.len() as u64, ..Held::default() };
    for segment in &layout.segments {
        held.reserved += segment.size;
        let of = |state| segment.blocks.iter().filter(move |b| b.state == state);
        let free: u64 = of(BlockState::Free).map(|b| b.size).sum();
        held.allocated += of(BlockState::Allocated).map(|b| b.size).sum::<u64>();
        held.pending += of(BlockState::Pending).map(|b| b.size).sum::<u64>();
        held.free += free;
        held.largest_free =
            held.largest_free.max(of(BlockState::Free).map(|b| b.size).max().unwrap_or(0));
        match pin(segment) {
            None => held.free_whole += free,
            Some((size, address)) if free > 0 => held.pinned.push(Pinned {
                address: segment.address,
                size: segment.size,
                free,
                pool: segment.pool.to_owned(),
                stream: segment.stream.0,
                smallest_pin: size,
                smallest_pin_address: address,
            }),
            Some(_) => {}
        }
    }
    held.pinned.sort_by_key(|p| (std::cmp::Reverse(p.free), p.address));
    held.pinned.truncate(top);
    held
}

/// The smallest block that is not free: bytes and address.
fn pin(segment: &LayoutSegment) -> Option<(u64, u64)> {
    let live = segment.blocks.iter().filter(|b| b.state != BlockState::Free);
    live.map(|b| (b.size, b.address)).min()
}
