//! Requests as rows of a table.

use std::io::Read;

use vramlab_sim::source::SourceError;

use super::Raw;
use crate::readers::text::{Csv, Row, Unit, date_time};

/// Names of the columns of prompt lengths, in tokens.
pub(in crate::readers) const PROMPT: [&str; 6] = [
    "ContextTokens",
    "num_prefill_tokens",
    "input_toks",
    "input_length",
    "Request tokens",
    "prompt_tokens",
];
/// Names of the columns of answer lengths, in tokens.
pub(in crate::readers) const OUTPUT: [&str; 6] = [
    "GeneratedTokens",
    "num_decode_tokens",
    "output_toks",
    "output_length",
    "Response tokens",
    "output_tokens",
];
/// Names of the columns of arrivals, with their unit. The first may be a date and time.
const ARRIVAL: [(&str, Unit); 4] = [
    ("TIMESTAMP", Unit::Seconds),
    ("arrived_at", Unit::Seconds),
    ("arrival_time", Unit::Seconds),
    ("arrival_time_ns", Unit::Nanos),
];

/// Where the table has what.
pub(super) struct Columns {
    prompt: usize,
    output: usize,
    arrival: Option<(usize, Unit)>,
}

impl Columns {
    /// The columns of a table.
    pub(super) fn of<R: Read>(csv: &Csv<R>) -> Result<Self, SourceError> {
        let find = |(name, unit): &(&str, Unit)| csv.find(&[name]).map(|column| (column, *unit));
        Ok(Self {
            prompt: csv.need(&PROMPT)?,
            output: csv.need(&OUTPUT)?,
            arrival: ARRIVAL.iter().find_map(find),
        })
    }

    /// The request of a row.
    pub(super) fn request(&self, row: &Row<'_>) -> Result<Raw, String> {
        let arrival = |(column, unit): (usize, Unit)| {
            let text = row.bytes(column);
            if text.contains(&b':') {
                return date_time(text).map_err(|what| row.named(column, &what));
            }
            row.nanos(column, unit)
        };
        Ok(Raw {
            arrival: self.arrival.map(arrival).transpose()?,
            prompt_tokens: row.whole(self.prompt)?,
            output_tokens: row.whole(self.output)?,
            measured: None,
        })
    }
}
