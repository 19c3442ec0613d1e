//! Synthetic workloads and readers of recorded ones for vramlab
#![forbid(unsafe_code)]
pub mod readers;
