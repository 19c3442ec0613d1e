//! Models from their public hyper-parameters, as graphs.

pub mod mlp;
pub mod resnet;
