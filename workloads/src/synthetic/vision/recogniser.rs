//! `recogniser`: a recogniser of text lines; rules and sources: [`crate::graph::models::text_recogniser`].

use super::{COUNT, MANY, SHARED, Shared, phase};
use crate::graph::models::params::join;
use crate::graph::models::text_recogniser::TextRecogniser;
use crate::graph::passes::Report;
use crate::graph::{Plan, Player};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &join::<4, COUNT, { 4 + COUNT }>(
    [
        doc("batch", "64", "lines", "lines in a batch"),
        doc("width", "320", "px", "width of a line, 48 px high"),
        doc("classes", "6625", "classes", "classes of characters"),
        doc("symbols", "25", "symbols", "symbols of the longest text (training)")
            .only("phase", &["train"]),
    ],
    SHARED,
);

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, _seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let steps = params.count("steps", 1..=REPEATS_MAX)?;
    Ok(Box::new(Player::of(plan(params)?.0, steps, *rates)?))
}

/// The graph that its parameters ask for, and what passes changed.
///
/// # Errors
/// When a parameter's value is refused, or shapes do not multiply out.
pub fn plan(params: &Params) -> Result<(Plan, Vec<Report>), ParamError> {
    let batch = params.count("batch", 1..=MANY)?;
    let (train, dtype) = phase(params)?;
    let width = params.count("width", 1..=MANY)?;
    let (classes, symbols) =
        (params.count("classes", 2..=MANY)?, params.count("symbols", 1..=MANY)?);
    Ok(Shared::read(params)?.plan(batch, |batch| {
        TextRecogniser { batch, width, classes, symbols, dtype, train }.graph()
    })?)
}
