//! Models from their public hyper-parameters, as graphs.

pub mod bert;
mod layers;
pub mod mlp;
pub mod params;
pub mod resnet;
pub mod text_detector;
pub mod text_recogniser;
