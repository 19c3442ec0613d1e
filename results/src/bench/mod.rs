//! Benchmarks that criterion measured, as tables and pictures: `vramlab bench-summary target/criterion`.
//!
//! | module | holds |
//! |---|---|
//! | [`read`] | a folder of criterion |
//! | [`against`] | ratios to a saved baseline, or to one of the benchmarks |
//! | [`table`] | groups as tables, records and pictures |

pub mod against;
pub mod read;
pub mod table;
