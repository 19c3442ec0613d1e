//! Text formats: lines, CSV rows, numbers and times, as every reader of text needs them.
//!
//! | rule | what it says |
//! |---|---|
//! | `utf8` | UTF-8 with or without a byte order mark; other encodings are told by their first bytes and refused |
//! | `lines` | lines end with LF or CRLF, the last may end without; none is longer than 16 MiB; empty ones are skipped |
//! | `bounded` | no more than one line is held |
//! | `exact` | sizes and counts are whole numbers; times in seconds, ms or µs become ns digit by digit, without floating point |

mod csv;
mod lines;
mod number;
mod short;
mod time;

pub use csv::{Csv, Row};
pub use lines::{Lines, from_json};
pub use number::{found, signed, whole};
pub(crate) use short::ShortPieces;
pub use time::{Unit, date_time, nanos, time_of_day};
