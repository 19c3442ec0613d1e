//! `resnet`: residual networks; rules and sources: [`crate::graph::models::resnet`].
//!
//! Held to recordings of PyTorch 2.15 (`tests/recorded_vision.rs`): ResNet-50, batches of 32 and 128 at 224 px: the highest sum of live requests
//! is the recorded one, and so is the number of requests where no convolution is tried twice (`benchmark`).

use super::{COUNT, MANY, SHARED, Shared, phase, sides};
use crate::graph::models::params::join;
use crate::graph::models::resnet::ResNet;
use crate::graph::passes::{self, PassError, Report};
use crate::graph::{Plan, Player};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &join::<5, COUNT, { 5 + COUNT }>(
    [
        doc("batch", "32", "images", "images in a batch"),
        doc("size", "224", "px", "sides of an image: 224, or height x width as 224x320"),
        doc("depth", "50", "layers", "18, 34, 50, 101 or 152"),
        doc("classes", "1000", "classes", "classes of images"),
        doc("last_batch", "0", "images", "images in the last step's batch; 0: as in the others"),
    ],
    SHARED,
);

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, _seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let steps = params.count("steps", 1..=REPEATS_MAX)?;
    let batch = params.count("batch", 1..=MANY)?;
    let last = match params.count("last_batch", 0..=MANY)? {
        0 => batch,
        last => last,
    };
    let asked = Asked::read(params)?;
    let parts = passes::batches(&asked.shared.chosen, batch)?;
    if !last.is_multiple_of(parts) {
        let expected =
            format!("a multiple of {parts}, the parts in which passes run a batch, or 0");
        return Err(params.bad("last_batch", expected));
    }
    asked.plan(last)?;
    let make = Box::new(move |batch| {
        let (mut plan, _) = asked.plan(batch)?;
        plan.run.label = format!("batch {batch}");
        Ok(plan)
    });
    let keys = (1..=steps).map(move |step| if step == steps { last } else { batch });
    Ok(Box::new(Player::new(make, Box::new(keys), steps, *rates)?))
}

/// The graph that its parameters ask for, and what passes changed.
///
/// # Errors
/// When a parameter's value is refused, or shapes do not multiply out.
pub fn plan(params: &Params) -> Result<(Plan, Vec<Report>), ParamError> {
    let batch = params.count("batch", 1..=MANY)?;
    Ok(Asked::read(params)?.plan(batch)?)
}

/// What the parameters ask for, for batches of any size.
struct Asked {
    net: ResNet,
    shared: Shared,
}

impl Asked {
    fn read(params: &Params) -> Result<Self, ParamError> {
        let (train, dtype) = phase(params)?;
        let (size, classes) = (sides(params, "size")?, params.count("classes", 1..=MANY)?);
        let depth = params.count("depth", 1..=MANY)?;
        let net = ResNet::of_depth(depth, 1, dtype)
            .ok_or_else(|| params.bad("depth", "18, 34, 50, 101 or 152"))?;
        Ok(Self { net: ResNet { size, classes, train, ..net }, shared: Shared::read(params)? })
    }

    fn plan(&self, batch: u64) -> Result<(Plan, Vec<Report>), PassError> {
        self.shared.plan(batch, |batch| ResNet { batch, ..self.net.clone() }.graph())
    }
}
