//! Collecting idle stitched blocks: their ranges end, their pieces stay.
//!
//! | rule | what it says | lines |
//! |---|---|---|
//! | `by_age` | blocked ones first; from round 1 on usable ones too; each in order of (last free, size, address) | 2554-2690, gm14 |
//! | `complete` | it stops at the first whose last free the device has not reached | 2568, 2649, gm19 |
//! | `enough` | rounds 0 and 1 stop the blocked part at 4 and 16 times the need | 2612 |
//! | `sum` | collected sizes are taken from the running sum of stitched sizes; those of blocks that go with a released primitive block are not | 1751-1758, 3396-3470, gm15 |
//!
//! Departure: the real one records an event at every free. Only those of stitched blocks are ever looked at, so only those are recorded here.

use vramlab_sim::driver::{Driver, DriverError, DriverExt};

use super::GmLake;
use super::memory;
use super::sizes::PIECE;

impl GmLake {
    /// Ends idle stitched blocks.
    pub(super) fn collect(
        &mut self,
        driver: &mut dyn Driver,
        round: u32,
        need: u64,
    ) -> Result<(), DriverError> {
        let enough = |collected: u64| match round {
            0 | 1 if need > 0 => collected >= need.saturating_mul(4 << (2 * round)),
            _ => false,
        };
        let mut collected = 0_u64;
        for blocked in [true, false] {
            if !blocked && round == 0 {
                break;
            }
            for set in 0..self.sets.len() as u32 {
                for id in self.table.idle(set).by_age(blocked) {
                    let block = self.table.get(id);
                    let bytes = u64::from(block.pieces) * PIECE;
                    if let Some(event) = block.event
                        && !driver.event_query(event)?
                    {
                        break;
                    }
                    self.drop_stitched(driver, id)?;
                    collected += bytes;
                    self.stitched_bytes -= bytes;
                    if blocked && enough(collected) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// An idle stitched block ends.
    pub(super) fn drop_stitched(
        &mut self,
        driver: &mut dyn Driver,
        id: u32,
    ) -> Result<(), DriverError> {
        let block = self.table.get(id);
        memory::unmap(driver, block.address, u64::from(block.pieces))?;
        let (runs, event) = self.table.remove(id);
        for run in runs {
            self.segments.get_mut(run.segment).covers.retain(|cover| cover.stitched != id);
        }
        self.waiting.idle.extend(event);
        Ok(())
    }
}
