//! Chapters to pages, by mdBook as a library.

use std::error::Error;
use std::path::Path;

use mdbook_driver::MDBook;

use crate::book_folder;

/// Builds the book into `folder`; what lay there before is replaced.
///
/// # Errors
/// When a chapter or a listing that it names is missing, or the folder cannot be written.
pub fn book(folder: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut book = MDBook::load(book_folder()).map_err(whole)?;
    book.config.build.build_dir = folder.canonicalize()?;
    book.build().map_err(whole)
}

/// The error with its causes, on one line.
fn whole(error: impl std::fmt::Debug + Into<Box<dyn Error>>) -> Box<dyn Error> {
    let error: Box<dyn Error> = error.into();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text.into()
}
