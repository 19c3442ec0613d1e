//! PyTorch's `torch.cuda.memory_summary()`, read by the reader of such tables.

use vramlab_workloads::readers::states::summary::MemorySummary;

use crate::explain::message::{Framework, Kind, Message, Value};

/// Most lines of a table.
const LINES_MAX: u32 = 120;

/// Tables of a log, one at a time.
#[derive(Debug, Default)]
pub struct Table {
    open: Option<(MemorySummary, u64, u32)>,
}

impl Table {
    /// Is a table being read?
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes a line; gives the table that ends before or with it.
    pub fn take(&mut self, text: &str, line: u64) -> Option<Message> {
        if let Some(Ok(table)) = MemorySummary::begin(text.as_bytes()) {
            return self.open.replace((table, line, 0)).and_then(message);
        }
        let (table, _, lines) = self.open.as_mut()?;
        // a damaged row is stepped over
        let _ = table.take(text.as_bytes());
        *lines += 1;
        let over = *lines > LINES_MAX || !text.contains('|');
        if over { self.finish() } else { None }
    }

    /// The table that is being read.
    pub fn finish(&mut self) -> Option<Message> {
        self.open.take().and_then(message)
    }
}

fn message((table, line, _): (MemorySummary, u64, u32)) -> Option<Message> {
    let units = table.rows.iter().any(|row| row.name.starts_with("Requested"));
    let era = if units { "memory_summary since 1.13" } else { "memory_summary before 1.13" };
    let mut message = Message { line, kind: Kind::State, ..Message::new(Framework::Pytorch, era) };
    message.versions = match units {
        true => (Some((1, 13)), None),
        false => (Some((1, 4)), Some((1, 13))),
    };
    let figures = &mut message.figures;
    for (row, current, peak) in [
        ("Allocated memory", "allocated_current_bytes", "allocated_peak_bytes"),
        ("Active memory", "active_current_bytes", "active_peak_bytes"),
        ("Requested memory", "requested_current_bytes", "requested_peak_bytes"),
        ("GPU reserved memory", "reserved_current_bytes", "reserved_peak_bytes"),
        ("Non-releasable memory", "inactive_split_current_bytes", "inactive_split_peak_bytes"),
    ] {
        if let Some(row) = table.row(row) {
            figures.keep(current, Value::Bytes(row.current));
            figures.keep(peak, Value::Bytes(row.peak));
        }
    }
    if let Some(row) = table.row("GPU reserved segments") {
        figures.keep("segments", Value::Count(row.current.bytes));
    }
    if figures.is_empty() {
        return None;
    }
    figures.keep("cudamalloc_retries", Value::Count(table.retries));
    figures.keep("ooms", Value::Count(table.ooms));
    figures.keep("gpu", Value::Count(table.device));
    Some(message)
}
