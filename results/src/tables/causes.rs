//! Why reserved bytes hold nothing, at the peak of a run, as figures: `causes.rounding`, `causes.pinned`, …
//!
//! They are those of [`crate::analysis::causes`], judged by the largest request that took the run to its peak. A strategy that does not tell what is where (a
//! driver's own pool, stitched or moved memory, a cache of sequences) has none, and neither has a run on several devices. What every run has, of the same
//! moment, are `requested_at_peak_reserved`, `allocated_at_peak_reserved` and `active_at_peak_reserved`: inside blocks, waiting, and free.

use vramlab_allocators::Spec;

use crate::analysis::lives::Lives;
use crate::analysis::replayed::Replayed;
use crate::failure::Failure;
use crate::frame::{Metric, Value};
use crate::job::{Input, Place, run_pair};
use crate::row::Row;

/// Runs a pair, and adds what its peak's state tells.
///
/// # Errors
/// Bad options or bad input.
pub fn run(input: &Input<'_>, spec: &Spec, place: &Place) -> Result<(Row, Vec<Metric>), Failure> {
    if input.devices > 1 {
        return Ok((run_pair(input, spec, place, None)?, Vec::new()));
    }
    let run = Replayed::run(input, spec, place, false)?;
    let mut metrics = Vec::new();
    if run.row.ran() && run.peak_reserved > 0 {
        // who dies when does not matter to sums: only pins look at it
        let judged = run.moment(input, spec, place, &Lives::default(), run.peak_op)?;
        if let Some(judged) = judged {
            let named = judged.causes.by_key().into_iter();
            metrics.extend(
                named.map(|(name, bytes)| {
                    Metric::new(format!("causes.{name}"), Value::Exact(bytes))
                }),
            );
        }
    }
    Ok((run.row, metrics))
}
