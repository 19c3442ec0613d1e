//! Readers of recorded formats.

pub mod recording;
