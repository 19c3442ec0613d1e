//! Models from their public hyper-parameters, as graphs.

mod layers;
pub mod mlp;
pub mod resnet;
pub mod text_detector;
pub mod text_recogniser;
