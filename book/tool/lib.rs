//! The vramlab book: its chapters, the listings in them, and what builds it.
//!
//! | folder | holds |
//! |---|---|
//! | `src` | chapters, as mdBook reads them |
//! | `listings` | whole programs that the chapters show, a folder a chapter; beside each the output that it printed |
//! | `tool` | this crate: building, checking links, capturing outputs (of README.md too) |
//!
//! No number in a chapter is typed by hand: `cargo test -p vramlab-book` runs every listing and compares its output with the file
//! that the chapter shows, looks for every quantity of the text in them, and runs the Rust blocks that stand in the text itself.
#![forbid(unsafe_code)]

#[path = "../listings/mod.rs"]
pub mod listings;

pub mod links;
pub mod quantities;
pub mod readme;
pub mod render;

/// The chapters, so that their Rust blocks are tests.
#[cfg(doctest)]
pub mod chapters {
    #[doc = include_str!("../src/introduction.md")]
    pub mod introduction {}
    #[doc = include_str!("../src/reserved.md")]
    pub mod reserved {}
}

use std::path::{Path, PathBuf};

/// The book's folder in the repository that this was compiled in.
pub fn book_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where the output of a listing is kept.
pub fn output_file(listing: &str) -> PathBuf {
    book_folder().join("listings").join(listing).with_extension("out")
}
