//! Synthetic workloads and readers of recorded ones for vramlab
#![forbid(unsafe_code)]

pub(crate) mod arrivals;
pub mod examples;
pub mod graph;
pub mod held;
pub mod live;
pub mod params;
pub mod rates;
pub mod readers;
pub mod registry;
pub mod rng;
pub mod serving;
pub mod setup;
pub mod synthetic;
