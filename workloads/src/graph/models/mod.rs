//! Models from their public hyper-parameters, as graphs.

pub mod bert;
pub mod decoder;
pub mod mlp;
pub mod params;
