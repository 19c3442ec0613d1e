//! `mlp`: dense layers with an activation between them; [`crate::graph::models::mlp`]. The smallest model: the one to read first, and to copy.

use super::{COUNT, MANY, SHARED, Shared, phase};
use crate::graph::models::mlp::Mlp;
use crate::graph::models::params::join;
use crate::graph::op::F;
use crate::graph::passes::Report;
use crate::graph::{Plan, Player};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;

/// Most widths.
const WIDTHS_MAX: usize = 1000;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &join::<3, COUNT, { 3 + COUNT }>(
    [
        doc("batch", "128", "rows", "rows in a batch"),
        doc(
            "widths",
            "784x4096x4096x10",
            "numbers",
            "widths of the layers, from the input's to the number of classes",
        ),
        doc("activation", "relu", "-", "between layers: relu, gelu or tanh"),
    ],
    SHARED,
);

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, _seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let steps = params.count("steps", 1..=REPEATS_MAX)?;
    let (plan, _) = plan(params)?;
    Ok(Box::new(Player::of(plan, steps, *rates)?))
}

/// The graph that its parameters ask for, and what passes changed.
///
/// # Errors
/// When a parameter's value is refused, or shapes do not multiply out.
pub fn plan(params: &Params) -> Result<(Plan, Vec<Report>), ParamError> {
    let (train, dtype) = phase(params)?;
    let activations = [("relu", F::Relu), ("gelu", F::Gelu), ("tanh", F::Tanh)];
    let activation = params.choice("activation", &activations)?;
    let model = Mlp { batch: 1, widths: widths(params)?, activation, dtype, train };
    let batch = params.count("batch", 1..=MANY)?;
    Ok(Shared::read(params)?.plan(batch, |batch| Mlp { batch, ..model.clone() }.graph())?)
}

fn widths(params: &Params) -> Result<Vec<u64>, ParamError> {
    let expected = "two to 1000 widths from 1 to 16777216, such as 784x4096x10";
    let text = params.text("widths");
    let widths: Option<Vec<u64>> = text.split('x').map(|width| width.parse().ok()).collect();
    let fits = |width: &u64| (1..=1 << 24).contains(width);
    widths
        .filter(|all| (2..=WIDTHS_MAX).contains(&all.len()) && all.iter().all(fits))
        .ok_or_else(|| params.bad("widths", expected))
}
