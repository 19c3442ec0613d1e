//! MiniMalloc's CSV.

use std::io::Read;

use rustc_hash::FxHashMap;
use vramlab_sim::source::SourceError;

use super::{Plan, PlanBuffer, keep};
use crate::readers::text::{Csv, Lines, Row};

/// Where the table has what.
struct Columns {
    id: usize,
    lower: usize,
    upper: usize,
    /// Is `upper` the last time of a life, not the first after it?
    end_is_last: bool,
    size: usize,
    alignment: Option<usize>,
    gaps: Option<usize>,
    offset: Option<usize>,
}

pub(super) fn read<R: Read>(lines: Lines<R>) -> Result<Plan, SourceError> {
    let mut csv = Csv::new(lines)?;
    let columns = Columns {
        id: csv.need(&["id", "buffer", "buffer_id"])?,
        lower: csv.need(&["lower", "begin", "start"])?,
        upper: csv.need(&["upper", "end"])?,
        end_is_last: csv.find(&["upper"]).is_none(),
        size: csv.need(&["size"])?,
        alignment: csv.find(&["alignment"]),
        gaps: csv.find(&["gaps"]),
        offset: csv.find(&["offset"]),
    };
    let (mut plan, mut seen) = (Plan::default(), FxHashMap::default());
    while let Some(row) = csv.next()? {
        let kept = columns.buffer(&row).and_then(|buffer| {
            plan.gaps_left_out += u64::from(columns.gaps.is_some_and(|gaps| !row.is_empty(gaps)));
            if let Some(first) = seen.insert(buffer.name.clone(), plan.buffers.len() + 1) {
                return Err(format!(
                    "found id {:?} again (first of buffer {first}), expected each once",
                    buffer.name
                ));
            }
            keep(&mut plan, buffer)
        });
        kept.map_err(|what| csv.error(what))?;
    }
    Ok(plan)
}

impl Columns {
    fn buffer(&self, row: &Row<'_>) -> Result<PlanBuffer, String> {
        let name = std::str::from_utf8(row.bytes(self.id).trim_ascii())
            .map_err(|_| row.named(self.id, "found bytes that are no UTF-8, expected text"))?;
        let upper = row.whole(self.upper)?;
        let after = upper.checked_add(u64::from(self.end_is_last));
        let optional = |column: Option<usize>| -> Result<Option<u64>, String> {
            column
                .filter(|column| !row.is_empty(*column))
                .map(|column| row.whole(column))
                .transpose()
        };
        Ok(PlanBuffer {
            name: name.into(),
            lower: row.whole(self.lower)?,
            upper: after.ok_or_else(|| row.named(self.upper, "found 2^64-1, expected less"))?,
            size: row.whole(self.size)?,
            offset: optional(self.offset)?,
            alignment: optional(self.alignment)?.unwrap_or(1).max(1),
        })
    }
}
