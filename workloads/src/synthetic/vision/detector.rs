//! `detector`: a text detector; rules and sources: [`crate::graph::models::text_detector`].

use super::{COUNT, MANY, SHARED, Shared, phase, sides};
use crate::graph::models::params::join;
use crate::graph::models::text_detector::TextDetector;
use crate::graph::passes::Report;
use crate::graph::{Plan, Player};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &join::<2, COUNT, { 2 + COUNT }>(
    [
        doc("batch", "8", "pages", "pages in a batch"),
        doc(
            "size",
            "640",
            "px",
            "sides of a page, multiples of 32: 640, or height x width as 640x960",
        ),
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
    let size = sides(params, "size")?;
    Ok(Shared::read(params)?
        .plan(batch, |batch| TextDetector { batch, size, dtype, train }.graph())?)
}
