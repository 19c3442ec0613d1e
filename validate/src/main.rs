//! Replays vramlab workloads on the real CUDA driver

fn main() {}
