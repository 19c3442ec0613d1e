//! Memory of the host process: CPython's objects.

pub mod pymalloc;
