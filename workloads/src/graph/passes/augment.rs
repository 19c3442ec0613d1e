//! `augment`: images come as bytes with a margin, and are made the model's input on the device.
//!
//! | step | makes | source |
//! |---|---|---|
//! | raw | bytes, larger by the margin on each side's sum | `RandomResizedCrop`'s input; 256 for 224 in the usual recipe |
//! | float | the same in fp32 | `to(float32)` |
//! | resample | the model's size: cut out and turned | `RandomCrop`, `RandomHorizontalFlip` of torchvision 0.20 |
//! | scale | mean taken off, then divided: a tensor each | `Normalize` |
//!
//! All but the last are dropped when the next is there. `margin:32` is the margin (px).

use super::reach::Readers;
use super::rewrite::Rewrite;
use super::words::Words;
use super::{Pass, PassError, bad};
use crate::graph::network::Graph;
use crate::graph::op::{Cast, F, Kind, Resample};
use crate::graph::plan::Plan;
use crate::graph::tensor::{DType, Role, TensorId};

pub(super) const PASS: Pass = Pass {
    name: "augment",
    options: "margin:32, or another number of pixels",
    summary: "images come as bytes; cut, turned and scaled on the device",
    apply,
};

fn apply(plan: &mut Plan, option: &str) -> Result<String, PassError> {
    let mut words = Words::of(&PASS, option);
    let margin = words.number("margin", 32, 0..=4096)?;
    words.end()?;
    let old = plan.graph.clone();
    let images: Vec<TensorId> = old
        .of_role(Role::Input)
        .filter(|id| old.get(*id).shape.len() == 4 && old.get(*id).dtype.is_float())
        .filter(|id| is_convolved(&old, *id))
        .collect();
    let Some(image) = images.first().copied() else {
        return Err(bad(PASS.name, "a model without images", "one whose input is images"));
    };
    let mut rewrite = Rewrite::new(&old, |tensor| tensor.dtype)?;
    let changed = prepare(&mut rewrite, &old, image, margin)?;
    for node in old.nodes() {
        rewrite.begin();
        let inputs = rewrite.inputs(node);
        rewrite.replace(node, node.kind.clone(), &inputs)?;
    }
    rewrite.finish().put(plan);
    Ok(changed)
}

/// Is it read by a convolution, as it is or cast? Rotary angles are of four dimensions, too.
fn is_convolved(graph: &Graph, input: TensorId) -> bool {
    let readers = Readers::of(graph);
    let mut seen = vec![input];
    while let Some(id) = seen.pop() {
        for node in readers.all(id).iter().map(|index| &graph.nodes()[*index]) {
            match node.kind {
                Kind::Conv(_) => return true,
                Kind::Cast(_) => seen.extend(&node.outputs),
                _ => {}
            }
        }
    }
    false
}

/// What makes the images, before all else.
fn prepare(
    rewrite: &mut Rewrite<'_>,
    old: &Graph,
    image: TensorId,
    margin: u64,
) -> Result<String, PassError> {
    let (shape, dtype) = (old.get(image).shape.clone(), old.get(image).dtype);
    let (count, channels, size) = (shape[0], shape[1], [shape[2], shape[3]]);
    let raw_size = size.map(|side| side.saturating_add(margin));
    if let Some(known) = rewrite.get(image) {
        rewrite.new.drop_leaf(known);
    }
    let made = rewrite.new.within("augment", |graph| {
        let raw_shape = [count, channels, raw_size[0], raw_size[1]];
        let raw = graph.input("raw", &raw_shape, DType::I8)?;
        let mean = graph.buffer("mean", &[channels, 1, 1], dtype)?;
        let deviation = graph.buffer("deviation", &[channels, 1, 1], dtype)?;
        let float = graph.add(Cast { to: dtype, cached: false }, &[raw])?;
        let cut = graph.add(Resample { size }, &[float])?;
        let centred = graph.add(F::Subtract, &[cut, mean])?;
        graph.add(F::Divide, &[centred, deviation])
    })?;
    rewrite.bind(image, made);
    Ok(format!(
        "images come as bytes of {}x{}, and pass through four tensors to {}x{}",
        raw_size[0], raw_size[1], size[0], size[1]
    ))
}
