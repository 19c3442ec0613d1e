//! Parts that several strategies share.

pub mod free_set;
