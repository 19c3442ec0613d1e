//! The vramlab command: compare, replay, inspect, advise, tables

fn main() {}
