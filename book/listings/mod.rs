//! The programs that the chapters show. To add one: a file in its chapter's folder, a line in the folder's `mod.rs`, a line here,
//! then `cargo run -p vramlab-book -- capture`.

pub mod reserved;

/// What a listing gives; what it has to say it prints.
pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A listing's program.
pub type Main = fn() -> Outcome;

/// Every listing: `chapter/file`, and its `main`.
pub const LISTINGS: &[(&str, Main)] = &[
    ("reserved/first_look", reserved::first_look::main),
    ("reserved/holes", reserved::holes::main),
    ("reserved/out_of_memory", reserved::out_of_memory::main),
    ("reserved/others", reserved::others::main),
];
