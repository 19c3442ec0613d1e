//! Models from their public hyper-parameters, as graphs.

pub mod bert;
pub mod mlp;
pub mod params;
