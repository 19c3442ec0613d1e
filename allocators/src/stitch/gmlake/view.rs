//! What is told of the state: counters, as PyTorch and GMLake name them, and what is where.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `allocated` | counts rounded requests, those of stitched blocks too; `active` counts the primitive blocks beneath | 1430-1460, 2770-2805, gm05 |
//! | `segments` | one more for each stitched block, and none less when it ends | 2968, gm15 |
//! | `layout` | ours: only primitive blocks are listed, since stitched ones lie over them; of those beneath one in use each has its share of the request |

use vramlab_sim::allocator::{BlockState, Layout};

use super::GmLake;
use super::sizes::UNIT;

impl GmLake {
    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("allocated_bytes", self.rounded),
            ("reserved_bytes", self.reserved),
            ("active_bytes", self.active_units * UNIT),
            ("inactive_split_bytes", self.split.units * UNIT),
            ("inactive_split", self.split.count),
            ("segment", self.segments_made),
            ("num_alloc_retries", self.retries),
            ("num_ooms", self.ooms),
            ("total_fuse_size", self.stitched_bytes),
            ("fused_blocks", self.table.len() as u64),
        ]
    }

    pub(super) fn layout(&self) -> Layout {
        let mut segments = self.pieces.walk("large");
        for (segment, head) in segments.iter_mut().zip(self.pieces.heads()) {
            let set = &self.sets[self.marks[head as usize].set as usize];
            segment.stream = set.stream;
            if set.is_small {
                segment.pool = "small";
            }
            for (block, (slot, _)) in segment.blocks.iter_mut().zip(self.pieces.from(head)) {
                if self.marks[slot as usize].waiting {
                    block.state = BlockState::Pending;
                }
            }
        }
        Layout { segments }
    }
}
