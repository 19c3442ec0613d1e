//! The recordings of a grid, decoded once and shared by all cells.

use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;
use vramlab_sim::Source;
use vramlab_workloads::held::{Held, HeldSource};

use super::grid::{Grid, What};
use super::identity::digest;
use crate::cli::DeviceArgs;
use crate::failure::Failure;
use crate::inputs::{Opened, names, open};
use crate::job::{Input, Place};
use crate::room;

/// Most bytes of decoded ops that are held, of all recordings together; what does not fit is read anew for each cell.
const HELD_MAX: u64 = 2 << 30;

/// The files of a grid's recordings.
pub struct Files(Vec<OneFile>);

struct OneFile {
    entry: usize,
    keep_times: bool,
    opened: Opened,
    digest: String,
}

impl Files {
    /// Opens them.
    ///
    /// # Errors
    /// With file and line of the grid: one that cannot be read, is no recording, or has nothing to replay.
    pub fn open(grid: &Grid) -> Result<Self, Failure> {
        let traces: Vec<(usize, bool, PathBuf)> = grid
            .entries
            .iter()
            .enumerate()
            .filter_map(|(n, entry)| match &entry.what {
                What::Trace { path, keep_times } => Some((n, *keep_times, PathBuf::from(path))),
                What::Workload(_) => None,
            })
            .collect();
        let paths: Vec<PathBuf> = traces.iter().map(|(.., path)| path.clone()).collect();
        let file = |((entry, keep_times, path), name): ((usize, bool, PathBuf), String)| {
            let line = grid.entries[entry].line;
            // names come from the paths as the grid has them, wherever it is called from
            let path = grid.folder.join(path);
            let bad = |failure: Failure| grid.bad(line, failure.message);
            let digest = digest(&path).map_err(bad)?;
            let opened = open(&path).map_err(bad)?.called(name);
            if opened.device_numbers().is_empty() {
                let what = "no history of allocations in it: nothing to replay";
                return Err(grid.bad(line, format_args!("{}: {what}", path.display())));
            }
            Ok(OneFile { entry, keep_times, opened, digest })
        };
        let named: Vec<_> = traces.into_iter().zip(names(&paths)).collect();
        let files: Vec<Result<OneFile, Failure>> = named.into_par_iter().map(file).collect();
        files.into_iter().collect::<Result<_, _>>().map(Self)
    }
}

/// A history that cells replay.
pub struct Replayed<'a> {
    entry: usize,
    /// Its ops.
    pub input: Input<'a>,
    /// Where it runs if the grid names no device.
    pub place: Place,
}

/// All histories, and what is in their files.
pub struct Recordings<'a> {
    all: Vec<Replayed<'a>>,
    /// Printed name and digest of each file, by the number of its entry.
    pub(super) digests: Vec<(usize, String, String)>,
}

impl<'a> Recordings<'a> {
    /// Decodes them, in the order of the grid.
    ///
    /// # Errors
    /// One that turns out to be bad.
    pub fn decode(grid: &Grid, files: &'a Files, quiet: bool) -> Result<Self, Failure> {
        let (mut all, mut left) = (Vec::new(), HELD_MAX);
        let sized = grid.capacities.is_some() || !grid.devices.is_empty();
        for file in &files.0 {
            let inputs = file.opened.inputs_timed(file.keep_times);
            for (mut input, recorded) in inputs.into_iter().zip(file.opened.recorded()) {
                let place = match sized {
                    true => Place::for_recording(None, None)?,
                    false => {
                        let args = DeviceArgs { device: None, capacity: None };
                        room::place(&input, recorded, &args, quiet)?
                    }
                };
                let held = Held::read(&mut *(input.make)()?, left).map_err(Failure::input)?;
                if let Some(held) = held {
                    left = left.saturating_sub(held.bytes());
                    let held = Arc::new(held);
                    let source = move || Box::new(HeldSource::new(Arc::clone(&held)));
                    input.make = Box::new(move || Ok(source() as Box<dyn Source>));
                }
                all.push(Replayed { entry: file.entry, input, place });
            }
        }
        let digests = files
            .0
            .iter()
            .map(|file| (file.entry, file.opened.name().to_owned(), file.digest.clone()));
        Ok(Self { all, digests: digests.collect() })
    }

    /// The histories of an entry of the grid.
    pub(super) fn of(&self, entry: usize) -> impl Iterator<Item = &Replayed<'a>> {
        self.all.iter().filter(move |one| one.entry == entry)
    }
}
