//! The host process: CPython's objects, and what its memory management does to buffers on the device.

pub mod pymalloc;
pub mod refcycle;
