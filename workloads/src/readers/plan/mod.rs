//! Instances of static placement: buffers with a size and a life, all known beforehand.
//!
//! | format | what it has | source |
//! |---|---|---|
//! | MiniMalloc CSV | `id` (`buffer`, `buffer_id`), `lower` (`begin`, `start`), `upper` or `end`, `size`; perhaps `alignment`, `gaps`, `offset` | google/minimalloc, src/converter.cc |
//! | lifetime log | three numbers a line, separated by blanks: op of the request, op of the free, bytes | Lin-Mao/allocatorSim 5718151c13e1, input |
//!
//! | rule | what it says |
//! |---|---|
//! | `half_open` | a buffer lives from `lower` on, up to before `upper`: one that ends where another begins makes room for it |
//! | `end_is_last` | a column called `end` names the last time at which the buffer is live, so `upper` is one more |
//! | `order` | times are an order, no ns: ops follow each other at once; at equal times frees come first |
//! | `unique` | each `id` has one line |
//! | `kept` | `offset` and `alignment` are kept beside, so that plans can be compared; `gaps` are not: a buffer with gaps is taken to live through them |

pub(super) mod csv;
mod ids;
mod lifetimes;
mod order;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

use vramlab_sim::source::SourceError;

use super::bytes::{self, FileError};
use super::events::Events;
use super::text::Lines;
pub(super) use lifetimes::is_lifetime;

/// Most buffers that are held.
const BUFFERS_MAX: usize = 20_000_000;

/// One buffer of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanBuffer {
    /// Its number in the file; that of its line (from 0) where the file has names.
    pub id: u64,
    /// First time at which it is live.
    pub lower: u64,
    /// First time at which it is live no more.
    pub upper: u64,
    /// Bytes (or the units of the file).
    pub size: u64,
}

/// Where one buffer of an instance is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where the file's own plan puts it, if it has one.
    pub offset: Option<u64>,
    /// What its offset has to be a multiple of.
    pub alignment: u64,
}

/// An instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of the file.
    pub buffers: Vec<PlanBuffer>,
    /// Of each buffer, where the file says something of it; else empty.
    pub placed: Vec<Placed>,
    /// Their names, where these are not all numbers.
    pub names: Vec<Box<str>>,
    /// Buffers whose `gaps` were left out.
    pub gaps_left_out: u64,
}

impl Plan {
    /// Requests and frees in order of time.
    pub fn events(&self) -> Events {
        order::events(&self.buffers)
    }

    /// Bytes that the file's own plan needs: the highest end of a buffer; `None` if a buffer has no offset.
    pub fn planned_bytes(&self) -> Option<u64> {
        if self.placed.len() != self.buffers.len() {
            return None;
        }
        let mut ends = self
            .buffers
            .iter()
            .zip(&self.placed)
            .map(|(buffer, placed)| placed.offset?.checked_add(buffer.size));
        ends.try_fold(0, |most, end| Some(most.max(end?)))
    }
}

/// Reads a file of either format, plain or compressed.
///
/// # Errors
/// It cannot be read, or a line is bad; the error names the file.
pub fn open(path: &Path) -> Result<Plan, FileError> {
    let named = |error: SourceError| FileError::new(path, error);
    read(bytes::open(path)?, "plan").map_err(named)
}

/// As [`open`], from anywhere; `origin` names it in messages.
///
/// # Errors
/// It cannot be read, or a line is bad: line, found, expected.
pub fn read(input: impl Read, origin: &str) -> Result<Plan, SourceError> {
    let lines = Lines::new(input, origin)?;
    match is_lifetime(lines.rest()) {
        true => lifetimes::read(lines),
        false => csv::read(lines),
    }
}

/// Keeps a buffer, if there is room and its life is one.
#[inline]
fn keep(plan: &mut Plan, buffer: PlanBuffer) -> Result<(), String> {
    if buffer.upper < buffer.lower {
        let PlanBuffer { lower, upper, .. } = buffer;
        return Err(format!(
            "found a life from {lower} to {upper}, expected an end that is not before its beginning"
        ));
    }
    if plan.buffers.len() == BUFFERS_MAX {
        return Err(format!("found over {BUFFERS_MAX} buffers, expected fewer"));
    }
    plan.buffers.push(buffer);
    Ok(())
}
