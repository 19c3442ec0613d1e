//! The discrete-event core of vramlab: units, ops, engine, devices, figures
#![forbid(unsafe_code)]
