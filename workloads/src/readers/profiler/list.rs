//! Memory events as CSV.

use std::io::Read;

use vramlab_sim::source::SourceError;

use super::{DeviceKey, Kept, MemoryEvent, total};
use crate::readers::text::{Csv, Lines, Row, Unit};

pub(super) fn read<R: Read>(lines: Lines<R>, kept: &mut Kept) -> Result<(), SourceError> {
    let mut csv = Csv::new(lines)?;
    let columns = Columns {
        time: csv.need(&["ts_us"])?,
        device_type: csv.need(&["device_type"])?,
        device: csv.need(&["device_id"])?,
        bytes: csv.need(&["bytes"])?,
        addr: csv.find(&["addr"]),
        allocated: csv.find(&["total_allocated"]),
        reserved: csv.find(&["total_reserved"]),
    };
    while let Some(row) = csv.next()? {
        let taken = columns.event(&row).and_then(|(device, event)| kept.keep(device, event));
        taken.map_err(|what| csv.error(what))?;
    }
    Ok(())
}

struct Columns {
    time: usize,
    device_type: usize,
    device: usize,
    bytes: usize,
    addr: Option<usize>,
    allocated: Option<usize>,
    reserved: Option<usize>,
}

impl Columns {
    fn event(&self, row: &Row<'_>) -> Result<(DeviceKey, MemoryEvent), String> {
        let given = |column: Option<usize>| column.filter(|column| !row.is_empty(*column));
        let sum = |column| -> Result<Option<u64>, String> {
            let value = given(column).map(|column| row.signed(column)).transpose()?;
            Ok(value.and_then(total))
        };
        let event = MemoryEvent {
            time: row.nanos(self.time, Unit::Micros)?,
            addr: given(self.addr).map_or(Ok(0), |column| row.whole(column))?,
            bytes: row.signed(self.bytes)?,
            allocated: sum(self.allocated)?,
            reserved: sum(self.reserved)?,
            failed: false,
        };
        Ok(((row.signed(self.device_type)?, row.signed(self.device)?), event))
    }
}
