//! ONNX Runtime's memory arena.

pub mod arena;
mod options;
mod reserve;
mod streams;
#[cfg(test)]
mod tests;
