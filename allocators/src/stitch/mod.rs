//! Memory put together from pieces, and memory planned from one iteration for the next.

pub mod gmlake;
pub mod stalloc;
