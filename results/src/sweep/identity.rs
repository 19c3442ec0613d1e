//! Which grid is it? A hash of all that decides about its cells: what the file says (not how), and the content of the files that it names.
//!
//! Two machines on which the files lie in different folders agree, as long as the content is the same.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;

use super::grid::{Entry, Grid, Keyed, What};
use super::recordings::Recordings;
use crate::failure::Failure;
use crate::output::seal;

/// Rises when the numbers of cells come to mean something else.
const FORM: u32 = 1;

/// Hex digits of a grid's hash.
const HASH_CHARS: usize = 16;

/// SHA-256 of a file, in hex.
///
/// # Errors
/// One that cannot be read, or is no regular file: each part of a sweep reads it anew.
pub(super) fn digest(path: &Path) -> Result<String, Failure> {
    let bad = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|error| bad(error.to_string()))?;
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Err(bad("found no regular file, expected one that can be read again".to_owned()));
    }
    seal::digest(file).map_err(|error| bad(error.to_string()))
}

/// Digests of the files that a grid names, but for its recordings.
#[derive(Default)]
pub(super) struct Digests(BTreeMap<String, String>);

impl Digests {
    /// One more.
    pub(super) fn add(&mut self, name: &str, path: &Path) -> Result<(), Failure> {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), digest(path)?);
        }
        Ok(())
    }
}

/// The grid's name and hash: `NAME@HASH`.
pub(super) fn identity(grid: &Grid, recordings: &Recordings<'_>, digests: &Digests) -> String {
    let mut text = format!("sweep {FORM}\nmin_capacity {}\n", grid.min_capacity);
    for (n, entry) in grid.entries.iter().enumerate() {
        let file = recordings.digests.iter().find(|(of, ..)| *of == n);
        text += &entry_text(entry, file.map(|(_, name, digest)| (&**name, &**digest)));
    }
    for device in &grid.devices {
        line(&mut text, "device", format_args!("{:?}", device.value));
    }
    if let Some(capacities) = &grid.capacities {
        line(&mut text, "capacities", &capacities.value);
    }
    for family in &grid.strategies {
        line(&mut text, "strategy", &family.base);
        axes(&mut text, "option", &family.options);
    }
    for (name, digest) in &digests.0 {
        line(&mut text, "file", format_args!("{name:?} {digest}"));
    }
    let hash = seal::digest(text.as_bytes()).unwrap_or_default(); // reading a text does not fail
    format!("{}@{}", grid.name, &hash[..HASH_CHARS])
}

/// What an entry of a grid is; a recording by the name and digest of its file, or by its path.
pub(super) fn entry_text(entry: &Entry, file: Option<(&str, &str)>) -> String {
    let mut text = String::new();
    match &entry.what {
        What::Workload(workload) => line(&mut text, "workload", workload.name),
        What::Trace { path, keep_times } => {
            let (name, digest) = file.unwrap_or((path, ""));
            line(&mut text, "trace", format_args!("{name:?} {digest} {keep_times}"));
        }
    }
    axes(&mut text, "set", &entry.settings);
    line(&mut text, "seeds", &entry.seeds);
    text
}

fn axes(text: &mut String, of: &str, axes: &[Keyed]) {
    for Keyed { key, axis, .. } in axes {
        line(text, of, format_args!("{key:?} {axis}"));
    }
}

fn line(text: &mut String, what: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{what} {value}"); // writing to a text does not fail
}
