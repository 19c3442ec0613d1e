//! A first look: why reserved is more than allocated.

pub mod first_look;
pub mod holes;
pub mod others;
pub mod out_of_memory;
