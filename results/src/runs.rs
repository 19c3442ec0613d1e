//! Many pairs: what ran is rows, what is wrong with an input is told, and the others run all the same.

use rayon::prelude::*;
use vramlab_allocators::Spec;

use crate::commands::remark;
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::Bad;
use crate::job::{Input, Place, run_pair};
use crate::least;
use crate::progress::Progress;
use crate::row::Row;

/// An input, a strategy, a device.
pub type Pair<'r, 'a> = (&'r Input<'a>, &'r Spec, &'r Place);

/// Runs all of them; bad inputs are added to `bad`.
///
/// # Errors
/// What is no fault of an input.
pub fn run_all(pairs: &[Pair<'_, '_>], bad: &mut Bad, quiet: bool) -> Result<Vec<Row>, Failure> {
    let progress = Progress::new(pairs.len() as u64, quiet);
    let ran: Vec<Result<Row, Failure>> = pairs
        .par_iter()
        .map(|(input, spec, place)| {
            let row = run_one(input, spec, place);
            progress.step();
            row
        })
        .collect();
    progress.finish();
    let mut rows = Vec::with_capacity(ran.len());
    for one in ran {
        match one {
            Ok(row) => rows.push(row),
            Err(failure) => bad.add(failure)?,
        }
    }
    Ok(rows)
}

/// Runs a pair, and searches for its least capacity if its place says so.
///
/// # Errors
/// Bad options or bad input.
pub fn run_one(input: &Input<'_>, spec: &Spec, place: &Place) -> Result<Row, Failure> {
    let mut row = run_pair(input, spec, place, None)?;
    if place.min_capacity && row.ran() {
        let found = least::least(input, spec, place, &row)?;
        least::note(&mut row, found);
    }
    Ok(row)
}

/// How a command ends that gave results for some inputs: with what is wrong with the others.
///
/// # Errors
/// When there are bad inputs and nothing else.
pub fn end(bad: &Bad, nothing_else: bool, broke: bool, code: Code) -> Outcome {
    match bad.message() {
        Some(message) if nothing_else => return Err(Failure::input(message)),
        Some(message) => remark(&format!("vramlab: {message}")),
        None if !broke => return Ok(code),
        None => {}
    }
    Ok(if code == Code::Done { Code::Partial } else { code })
}
