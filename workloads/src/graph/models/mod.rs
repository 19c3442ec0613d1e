//! Models from their public hyper-parameters, as graphs.

mod attention;
pub mod bert;
pub mod decoder;
mod layers;
pub mod mlp;
pub mod params;
pub mod resnet;
pub mod text_detector;
pub mod text_recogniser;
