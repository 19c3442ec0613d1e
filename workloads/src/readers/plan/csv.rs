//! MiniMalloc's CSV.

use std::io::Read;

use vramlab_sim::source::SourceError;

use super::ids::Ids;
use super::{Placed, Plan, PlanBuffer, keep};
use crate::readers::text::{Csv, Lines, Row};

/// Names of the columns that are needed.
pub(in crate::readers) const ID: [&str; 3] = ["id", "buffer", "buffer_id"];
pub(in crate::readers) const LOWER: [&str; 3] = ["lower", "begin", "start"];
pub(in crate::readers) const UPPER: [&str; 2] = ["upper", "end"];

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
        id: csv.need(&ID)?,
        lower: csv.need(&LOWER)?,
        upper: csv.need(&UPPER)?,
        end_is_last: csv.find(&UPPER[..1]).is_none(),
        size: csv.need(&["size"])?,
        alignment: csv.find(&["alignment"]),
        gaps: csv.find(&["gaps"]),
        offset: csv.find(&["offset"]),
    };
    let (mut plan, mut ids) = (Plan::default(), Ids::default());
    while let Some(row) = csv.next()? {
        let kept = columns.buffer(&row).and_then(|buffer| {
            plan.placed.extend(columns.placed(&row)?);
            let earlier = plan.buffers.iter().map(|buffer| buffer.id);
            let id = ids.add(row.bytes(columns.id), row.digits(columns.id), earlier)?;
            plan.gaps_left_out += u64::from(columns.gaps.is_some_and(|gaps| !row.is_empty(gaps)));
            keep(&mut plan, PlanBuffer { id, ..buffer })
        });
        kept.map_err(|what| csv.error(what))?;
    }
    plan.names = ids.names();
    if !plan.names.is_empty() {
        (0..).zip(&mut plan.buffers).for_each(|(line, buffer)| buffer.id = line);
    }
    Ok(plan)
}

impl Columns {
    /// The buffer of a row, but for its id.
    #[inline]
    fn buffer(&self, row: &Row<'_>) -> Result<PlanBuffer, String> {
        let upper = row.whole(self.upper)?;
        let after = upper.checked_add(u64::from(self.end_is_last));
        Ok(PlanBuffer {
            id: 0,
            lower: row.whole(self.lower)?,
            upper: after.ok_or_else(|| row.named(self.upper, "found 2^64-1, expected less"))?,
            size: row.whole(self.size)?,
        })
    }

    /// Where the buffer of a row is, in a table that has such columns.
    #[inline]
    fn placed(&self, row: &Row<'_>) -> Result<Option<Placed>, String> {
        if self.offset.is_none() && self.alignment.is_none() {
            return Ok(None);
        }
        let optional = |column: Option<usize>| -> Result<Option<u64>, String> {
            column
                .filter(|column| !row.is_empty(*column))
                .map(|column| row.whole(column))
                .transpose()
        };
        let offset = optional(self.offset)?;
        Ok(Some(Placed { offset, alignment: optional(self.alignment)?.unwrap_or(1).max(1) }))
    }
}
