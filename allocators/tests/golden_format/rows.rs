//! Rows of `steps.csv` and `calls.csv` exactly as the golden files hold them, the digest over them, and those files as tables.

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// A request of more than 0 bytes was served.
    Placed {
        segment: String,
        offset: u64,
        block: u64,
    },
    /// Any other operation was carried out.
    Done,
    OutOfMemory,
    Null,
    Skip,
}

/// The state after an operation, in the order of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepStats {
    pub(crate) allocated: i64,
    pub(crate) allocated_peak: i64,
    pub(crate) active: i64,
    pub(crate) active_peak: i64,
    pub(crate) reserved: i64,
    pub(crate) reserved_peak: i64,
    pub(crate) inactive_split: i64,
    pub(crate) inactive_split_peak: i64,
    pub(crate) requested: i64,
    pub(crate) segments: i64,
    pub(crate) blocks_active: i64,
    pub(crate) blocks_inactive_split: i64,
    pub(crate) retries: i64,
    pub(crate) ooms: i64,
    pub(crate) device_used: i64,
}

/// One call that the device saw. `place` is a segment label and an offset, `reference` a handle or a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallRow {
    pub(crate) call: &'static str,
    pub(crate) place: Option<(String, u64)>,
    pub(crate) size: u64,
    pub(crate) reference: String,
    pub(crate) ok: bool,
}

pub(crate) const STEP_COLUMNS: [&str; 20] = [
    "op",
    "result",
    "segment",
    "offset",
    "block",
    "allocated",
    "allocated_peak",
    "active",
    "active_peak",
    "reserved",
    "reserved_peak",
    "inactive_split",
    "inactive_split_peak",
    "requested",
    "segments",
    "blocks_active",
    "blocks_inactive_split",
    "retries",
    "ooms",
    "device_used",
];

pub(crate) const CALL_COLUMNS: [&str; 7] = ["op", "call", "segment", "offset", "size", "ref", "ok"];

/// The full row of an operation, without the end of the line.
pub(crate) fn step_row(op: usize, result: &StepResult, s: &StepStats) -> String {
    let head = match result {
        StepResult::Placed { segment, offset, block } => format!("ok,{segment},{offset},{block}"),
        StepResult::Done => "ok,,,0".into(),
        StepResult::OutOfMemory => "oom,,,0".into(),
        StepResult::Null => "null,,,0".into(),
        StepResult::Skip => "skip,,,0".into(),
    };
    format!(
        "{op},{head},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
        s.allocated,
        s.allocated_peak,
        s.active,
        s.active_peak,
        s.reserved,
        s.reserved_peak,
        s.inactive_split,
        s.inactive_split_peak,
        s.requested,
        s.segments,
        s.blocks_active,
        s.blocks_inactive_split,
        s.retries,
        s.ooms,
        s.device_used
    )
}

impl CallRow {
    /// The row, without the end of the line.
    pub(crate) fn row(&self, op: usize) -> String {
        let place = self
            .place
            .as_ref()
            .map_or(",".to_owned(), |(segment, offset)| format!("{segment},{offset}"));
        format!("{op},{},{place},{},{},{}", self.call, self.size, self.reference, u8::from(self.ok))
    }
}

pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// 64-bit FNV-1a, continued from `state`.
pub(crate) fn fnv(text: &str, state: u64) -> u64 {
    text.bytes().fold(state, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A table of text cells with named columns: all that the golden CSV files need (no cell holds a comma or a quote).
#[derive(Clone, Debug, Default)]
pub(crate) struct Csv {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Csv {
    pub(crate) fn parse(text: &str) -> Csv {
        let split = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        let mut lines = text.lines();
        let header = lines.next().map(split).unwrap_or_default();
        Csv { header, rows: lines.map(split).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// A cell, `None` if there is no such row or column.
    pub(crate) fn cell(&self, row: usize, column: &str) -> Option<&str> {
        let index = self.header.iter().position(|name| name == column)?;
        self.rows.get(row)?.get(index).map(String::as_str)
    }

    /// The number of the operation that a row belongs to.
    pub(crate) fn op(&self, row: usize) -> Option<usize> {
        self.cell(row, "op")?.parse().ok()
    }

    /// Line of a row in the file, counted from 1.
    pub(crate) fn line(row: usize) -> usize {
        row + 2
    }
}
