//! What is where in a pool of blocks.

use vramlab_sim::allocator::{BlockState, Layout, LayoutBlock, LayoutSegment};

use super::pool::{Pool, Run};

/// A segment for each run of memory, tiled by its blocks. `filled` are the bytes of tokens in each block.
pub(super) fn of_blocks(pool: &impl Pool, block_bytes: u64, filled: &[u64]) -> Layout {
    let segment = |run: &Run| {
        let Run { address, size, first, first_address, count } = *run;
        let piece = |address, size, requested, state| LayoutBlock {
            address,
            size,
            requested,
            state,
            age: 0,
        };
        let mut blocks = Vec::new();
        if first_address > address {
            blocks.push(piece(address, first_address - address, 0, BlockState::Free));
        }
        for (n, block) in (first..first + count).enumerate() {
            let held = pool.holders(block) > 0;
            let state = if held { BlockState::Allocated } else { BlockState::Free };
            let requested = if held { filled[block as usize] } else { 0 };
            blocks.push(piece(
                first_address + n as u64 * block_bytes,
                block_bytes,
                requested,
                state,
            ));
        }
        let end = first_address + u64::from(count) * block_bytes;
        if address + size > end {
            blocks.push(piece(end, address + size - end, 0, BlockState::Free));
        }
        LayoutSegment { address, size, pool: "blocks", blocks, ..LayoutSegment::default() }
    };
    Layout { segments: pool.runs().iter().map(segment).collect() }
}

/// One segment, whose pages are joined where they are alike. `filled` are the bytes of tokens in each page; the first is never free.
pub(super) fn of_pages(address: u64, size: u64, page_bytes: u64, filled: &[u64]) -> Layout {
    let mut blocks: Vec<LayoutBlock> = Vec::new();
    for (n, requested) in filled.iter().enumerate() {
        let held = *requested > 0 || n == 0;
        let state = if held { BlockState::Allocated } else { BlockState::Free };
        match blocks.last_mut().filter(|last| last.state == state) {
            Some(last) => {
                (last.size, last.requested) = (last.size + page_bytes, last.requested + requested)
            }
            None => {
                let address = address + n as u64 * page_bytes;
                blocks.push(LayoutBlock {
                    address,
                    size: page_bytes,
                    requested: *requested,
                    state,
                    age: 0,
                });
            }
        }
    }
    let segment =
        LayoutSegment { address, size, pool: "pages", blocks, ..LayoutSegment::default() };
    Layout { segments: if size > 0 { vec![segment] } else { Vec::new() } }
}
