//! What a walk says, against the strategy's own sums.

use crate::allocator::{BlockState, Layout, Usage};

/// Segments in address order without overlap, tiled by their blocks; sums as in the usage.
///
/// # Errors
/// Names the first segment or block that breaks it.
pub(super) fn check(layout: &Layout, usage: Usage) -> Result<(), String> {
    let (mut end, mut sums) = (0, Usage::default());
    for segment in &layout.segments {
        if segment.address < end {
            return Err(format!("walks the segment at {:#x} out of order", segment.address));
        }
        end = segment.address;
        for block in &segment.blocks {
            if block.address != end {
                return Err(format!(
                    "walks a block at {:#x}, expected it at {end:#x}",
                    block.address
                ));
            }
            if block.size == 0 || block.requested > block.size {
                return Err(format!("walks {block:?}"));
            }
            end += block.size;
            sums.reserved += block.size;
            sums.active += if block.state == BlockState::Free { 0 } else { block.size };
            sums.allocated += if block.state == BlockState::Allocated { block.size } else { 0 };
        }
        if end != segment.address + segment.size {
            return Err(format!(
                "walks a segment of {} bytes at {:#x} with {} bytes of blocks",
                segment.size,
                segment.address,
                end - segment.address
            ));
        }
    }
    if sums == usage {
        return Ok(());
    }
    Err(format!("walks blocks with the sums {sums:?}, but says {usage:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::{LayoutBlock, LayoutSegment};

    #[test]
    fn sums_and_tiling_are_held_to() {
        let block =
            |address, size, state| LayoutBlock { address, size, requested: 0, state, age: 0 };
        let blocks =
            vec![block(512, 512, BlockState::Allocated), block(1024, 1024, BlockState::Free)];
        let segment =
            LayoutSegment { address: 512, size: 1536, blocks, ..LayoutSegment::default() };
        let mut layout = Layout { segments: vec![segment] };
        let usage = Usage { allocated: 512, active: 512, reserved: 1536 };
        assert_eq!(check(&layout, usage), Ok(()));
        let said = check(&layout, Usage { active: 1024, ..usage }).expect_err("a wrong sum");
        assert!(said.contains("active: 512"), "{said}");
        layout.segments[0].blocks[1].address = 1536;
        let said = check(&layout, usage).expect_err("a hole");
        assert!(said.contains("at 0x600, expected it at 0x400"), "{said}");
    }
}
