//! A grid made ready to run: names and values checked, recordings decoded, cells numbered.
//!
//! A cell is a run. Cells are numbered from 0: inputs in the order of the file, then their settings, devices, capacities, strategies with
//! their options, seeds; what stands last changes fastest. Cells that differ by their seed alone are one *point*; its number is the `run` of the frame.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use vramlab_allocators::registry::check;
use vramlab_allocators::{Options, Spec};
use vramlab_sim::units::Bytes;
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::Workload;

use super::grid::{Entry, Family, Grid, What, combination, combinations, part_of};
use super::identity::{Digests, identity};
use super::recordings::{Recordings, Replayed};
use crate::commands::compare::WORKLOAD_DEVICE;
use crate::failure::{Code, Failure};
use crate::frame::Run;
use crate::job::{Input, Place};
use crate::made;
use crate::runs::run_one;

/// A grid that can be run, cell by cell.
pub struct Plan<'p, 'a> {
    grid: &'p Grid,
    blocks: Vec<Block<'p, 'a>>,
    specs: u64,
    /// Of workloads, one per device of the grid.
    places: Vec<Place>,
    cells: u64,
    grid_id: String,
}

/// One history or workload with its settings and seeds.
struct Block<'p, 'a> {
    entry: &'p Entry,
    what: Played<'p, 'a>,
    first_cell: u64,
    first_point: u64,
}

#[derive(Clone, Copy)]
enum Played<'p, 'a> {
    Workload(&'static Workload),
    Recording(&'p Replayed<'a>),
}

/// Where a cell lies on each axis.
struct Cell<'c, 'p, 'a> {
    block: &'c Block<'p, 'a>,
    /// Which combination of settings.
    settings: u64,
    device: usize,
    capacity: Option<Bytes>,
    spec: u64,
    seed: u64,
    point: u64,
}

impl<'p, 'a> Plan<'p, 'a> {
    /// Checks a grid against what there is.
    ///
    /// # Errors
    /// With file and line: more cells than allowed, values that are refused, devices that nothing fits on.
    pub fn new(grid: &'p Grid, recordings: &'p Recordings<'a>) -> Result<Self, Failure> {
        let specs = grid.check_count(grid.specs())?;
        check_specs(grid)?;
        let places = places(grid)?;
        let mut plan =
            Self { grid, blocks: Vec::new(), specs, places, cells: 0, grid_id: String::new() };
        let mut points = 0;
        for (n, entry) in grid.entries.iter().enumerate() {
            let all: Vec<Played<'p, 'a>> = match &entry.what {
                What::Workload(workload) => vec![Played::Workload(workload)],
                What::Trace { .. } => recordings.of(n).map(Played::Recording).collect(),
            };
            for what in all {
                let block = Block { entry, what, first_cell: plan.cells, first_point: points };
                let own = combinations(&entry.settings) * plan.choices();
                points = grid.check_count(own + u128::from(points))?;
                let cells = own.saturating_mul(entry.seeds.len().into());
                plan.cells = grid.check_count(cells + u128::from(plan.cells))?;
                plan.blocks.push(block);
            }
        }
        plan.check_settings()?;
        let mut digests = Digests::default();
        for (name, path) in plan.files() {
            digests.add(&name, &path)?;
        }
        plan.grid_id = identity(grid, recordings, &digests);
        Ok(plan)
    }

    /// How many cells there are.
    pub fn cells(&self) -> u64 {
        self.cells
    }

    /// The grid's name and a hash of all that decides about its cells, and of the files that it names.
    pub fn grid_id(&self) -> &str {
        &self.grid_id
    }

    /// Devices × capacities × specs.
    fn choices(&self) -> u128 {
        let capacities = self.grid.capacities.as_ref().map_or(1, |axis| axis.value.len());
        u128::from(self.specs) * u128::from(capacities) * self.places.len() as u128
    }

    /// Where a cell that is there lies.
    fn cell(&self, number: u64) -> Cell<'_, 'p, 'a> {
        let after = self.blocks.partition_point(|block| block.first_cell <= number);
        let block = &self.blocks[after - 1];
        let mut rest = number - block.first_cell;
        let mut digit = |of: u64| {
            let digit = rest % of;
            rest /= of;
            digit
        };
        let seeds = block.entry.seeds.len();
        let seed = digit(seeds);
        let spec = digit(self.specs);
        let capacities = self.grid.capacities.as_ref().map(|axis| &axis.value);
        let capacity = digit(capacities.map_or(1, |axis| axis.len()));
        let device = digit(self.places.len() as u64) as usize;
        Cell {
            block,
            settings: rest,
            device,
            capacity: capacities.and_then(|axis| axis.get(capacity).parse().ok()),
            spec,
            seed: block.entry.seeds.get(seed).parse().unwrap_or(0),
            point: block.first_point + (number - block.first_cell) / seeds,
        }
    }

    /// Runs a cell.
    ///
    /// # Errors
    /// A bad input; the message names the cell.
    pub fn run(&self, number: u64) -> Result<Run, Failure> {
        let cell = self.cell(number);
        let spec = spec(self.grid, cell.spec);
        let place = self.place(&cell);
        let ran = match cell.block.what {
            Played::Recording(recording) => run_one(&recording.input, &spec, &place),
            Played::Workload(workload) => {
                let rates = Rates::of(&place.profile);
                self.input(workload, cell.block.entry, cell.settings, cell.seed, rates)
                    .and_then(|input| run_one(&input, &spec, &place))
            }
        };
        let row = ran.map_err(|failure| Failure {
            code: if failure.code == Code::Usage { Code::BadInput } else { failure.code },
            message: format!("{}: cell {number}, {spec}: {}", self.grid.path, failure.message),
        })?;
        let mut run = Run::new(&self.grid.name, &cell.point.to_string(), &row);
        match cell.block.what {
            Played::Recording(recording) => run.trace.clone_from(&recording.input.name),
            Played::Workload(workload) => {
                let given = combination(&cell.block.entry.settings, cell.settings);
                let settings = given.iter().filter(|(key, _)| *key != "passes");
                let settings: Vec<String> =
                    settings.map(|(key, value)| format!("{key}={value}")).collect();
                workload.name.clone_into(&mut run.workload);
                run.settings = settings.join(",");
                run.passes = given
                    .into_iter()
                    .find_map(|(key, value)| (key == "passes").then_some(value))
                    .unwrap_or_default();
            }
        }
        Ok(run)
    }

    fn place(&self, cell: &Cell<'_, '_, '_>) -> Place {
        let base = match cell.block.what {
            Played::Recording(recording) if self.grid.devices.is_empty() => &recording.place,
            _ => &self.places[cell.device],
        };
        let mut place = base.clone();
        place.capacity = cell.capacity.map(|bytes| bytes.0).or(place.capacity);
        place.min_capacity = self.grid.min_capacity;
        place
    }

    /// A workload with a combination of settings.
    fn input(
        &self,
        workload: &'static Workload,
        entry: &Entry,
        settings: u64,
        seed: u64,
        rates: Rates,
    ) -> Result<Input<'static>, Failure> {
        let mut params = Params::defaults(workload.params);
        for (key, value) in combination(&entry.settings, settings) {
            let path = names_file(workload, key, &value).then(|| self.grid.folder.join(&value));
            let value = path.map_or(value, |path| path.display().to_string());
            params.set(key, value).map_err(Failure::input)?;
        }
        Ok(made::untried(workload, params, seed, rates, workload.name))
    }

    /// Builds each workload with each combination of settings once: what it refuses is known before anything runs.
    fn check_settings(&self) -> Result<(), Failure> {
        let rates = Rates::of(&self.places[0].profile);
        for block in &self.blocks {
            let Played::Workload(workload) = block.what else { continue };
            let entry = block.entry;
            let seed = entry.seeds.get(0).parse().unwrap_or(0);
            let build = |settings: u64| -> Result<(), Failure> {
                let input = self.input(workload, entry, settings, seed, rates)?;
                (input.make)().map(drop).map_err(|failure| {
                    let given = combination(&entry.settings, settings);
                    let given: Vec<_> = given.iter().map(|(k, v)| format!("{k}={v}")).collect();
                    let name = workload.name;
                    self.grid.bad(
                        entry.line,
                        format_args!("{name} with {}: {}", given.join(","), failure.message),
                    )
                })
            };
            let count = combinations(&entry.settings) as u64; // no more than the cells, which were counted
            let refused = (0..count).into_par_iter().map(build).find_map_first(Result::err);
            refused.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// The files that cells depend on, but for recordings: as they are named, and where they are.
    fn files(&self) -> Vec<(String, PathBuf)> {
        let mut names: Vec<String> = Vec::new();
        for entry in &self.grid.entries {
            let What::Workload(workload) = entry.what else { continue };
            let settings = entry.settings.iter();
            for setting in settings.filter(|setting| takes_file(workload, &setting.key)) {
                let values = (0..setting.axis.len()).map(|n| setting.axis.get(n));
                names.extend(values.filter(|value| names_file(workload, &setting.key, value)));
            }
        }
        let devices = self.grid.devices.iter().map(|device| device.value.clone());
        names.extend(devices.filter(|name| is_path(name)));
        names.into_iter().map(|name| (name.clone(), self.grid.folder.join(name))).collect()
    }
}

/// Is a setting the name of a file?
fn takes_file(workload: &Workload, key: &str) -> bool {
    workload.params.iter().any(|param| param.name == key && param.unit == "file")
}

/// Is it one with this value? The default stands for none.
fn names_file(workload: &Workload, key: &str, value: &str) -> bool {
    let default = workload.params.iter().any(|param| param.name == key && param.default == value);
    takes_file(workload, key) && !default
}

/// As [`Place::new`] tells a device's file from a device's name.
fn is_path(name: &str) -> bool {
    let path = Path::new(name);
    path.components().count() > 1 || path.extension().is_some_and(|ending| ending == "toml")
}

/// The devices of a grid, for workloads; also checks that every capacity leaves room on each.
fn places(grid: &Grid) -> Result<Vec<Place>, Failure> {
    let bad = |line: usize| move |failure: Failure| grid.bad(line, failure.message);
    let capacities = match &grid.capacities {
        None => vec![None],
        Some(axis) => axis.value.ends().iter().map(|size| size.parse().ok()).collect(),
    };
    let line = grid.capacities.as_ref().map(|axis| axis.line);
    let mut places = Vec::new();
    if grid.devices.is_empty() {
        let has_workloads = grid.entries.iter().any(|e| matches!(e.what, What::Workload(_)));
        for capacity in &capacities {
            let place = match has_workloads {
                true => Place::new(WORKLOAD_DEVICE, *capacity),
                false => Place::for_recording(None, *capacity),
            };
            place.map_err(bad(line.unwrap_or(1)))?;
        }
        return Ok(vec![Place::new(WORKLOAD_DEVICE, None)?]);
    }
    for device in &grid.devices {
        let name = match is_path(&device.value) {
            true => grid.folder.join(&device.value).display().to_string(),
            false => device.value.clone(),
        };
        places.push(Place::new(&name, None).map_err(bad(device.line))?);
        for capacity in &capacities {
            Place::new(&name, *capacity).map_err(bad(line.unwrap_or(device.line)))?;
        }
    }
    Ok(places)
}

/// The `n`-th spec of a grid that has so many.
fn spec(grid: &Grid, mut n: u64) -> Spec {
    let mut families = grid.strategies.iter();
    loop {
        let Some(family) = families.next() else { unreachable!("specs are counted") };
        let count = combinations(&family.options) as u64;
        if n < count {
            return member(family, n);
        }
        n -= count;
    }
}

/// The `n`-th spec of a family.
fn member(family: &Family, n: u64) -> Spec {
    let mut spec = family.base.clone();
    for (key, value) in combination(&family.options, n) {
        let (part, key) = part_of(&family.base, key);
        let options = &mut spec.parts[part].options;
        let all = options.iter().chain([(key, value.as_str())]);
        *options = Options::from_pairs(all);
    }
    spec
}

/// Every spec is one that the registry takes, and is there once.
fn check_specs(grid: &Grid) -> Result<(), Failure> {
    let mut seen = HashMap::new();
    for family in &grid.strategies {
        for n in 0..combinations(&family.options) as u64 {
            let spec = member(family, n);
            check(&spec)
                .map_err(|error| grid.bad(family.line, format_args!("strategy {spec}: {error}")))?;
            if let Some(line) = seen.insert(spec.to_string(), family.line) {
                return Err(grid.bad(
                    family.line,
                    format_args!("strategy {spec} is there twice, first in line {line}"),
                ));
            }
        }
    }
    Ok(())
}
