//! A grid as its file says it: axes, and what they belong to. Counted without being built.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vramlab_allocators::Spec;
use vramlab_sim::units::Bytes;
use vramlab_workloads::registry::{self, Workload};

use super::axis::Axis;
use super::identity::entry_text;
use super::text::{Pair, Text, Value};
use crate::commands::compare::strategies;
use crate::failure::Failure;
use crate::inputs::small_text;

/// Most bytes of a grid's file.
const FILE_MAX: Bytes = Bytes::mib(1);
/// Most cells of a grid that does not say `max_cells`.
const CELLS_MAX: u64 = 1_000_000;
/// Most seeds of a workload.
const SEEDS_MAX: u64 = 1_000_000;

/// What a grid's file says.
#[derive(Debug)]
pub struct Grid {
    /// Its own, or the file's.
    pub name: String,
    /// The file, as messages name it.
    pub path: String,
    /// Relative paths in it start here.
    pub folder: PathBuf,
    /// Most cells.
    pub max_cells: u64,
    /// Search for the least capacity of each cell too.
    pub min_capacity: bool,
    /// What is run, one after the other.
    pub entries: Vec<Entry>,
    /// Through what.
    pub strategies: Vec<Family>,
    /// On which devices; empty: where recordings and workloads run if nobody says.
    pub devices: Vec<Named>,
    /// With how many bytes; `None`: the device's, or what a recording tells of.
    pub capacities: Option<Placed<Axis>>,
}

/// Something and its line in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// From 1.
    pub line: usize,
    /// What.
    pub value: T,
}

/// A name in the file.
pub type Named = Placed<String>;

/// Something with a name of its own: a setting's, an option's.
#[derive(Clone, Debug)]
pub struct Keyed {
    /// Its name.
    pub key: String,
    /// In the file.
    pub line: usize,
    /// Its values.
    pub axis: Axis,
}

/// A workload or a recording.
#[derive(Debug)]
pub struct Entry {
    /// In the file.
    pub line: usize,
    /// Which.
    pub what: What,
    /// Settings of a workload.
    pub settings: Vec<Keyed>,
    /// Seeds of a workload; of a recording one value that is not used.
    pub seeds: Axis,
}

/// What is run.
#[derive(Clone, Debug)]
pub enum What {
    /// A generator, a model, a server.
    Workload(&'static Workload),
    /// A recording.
    Trace {
        /// As it is given.
        path: String,
        /// Ops are issued not before their recorded times.
        keep_times: bool,
    },
}

/// A strategy with values for its options.
#[derive(Debug)]
pub struct Family {
    /// In the file.
    pub line: usize,
    /// Without the options that are axes.
    pub base: Spec,
    /// `key` of the strategy, or `wrapper.key`.
    pub options: Vec<Keyed>,
}

impl Grid {
    /// Reads a grid's file.
    ///
    /// # Errors
    /// With file and line: what is no TOML, unknown keys and names, empty axes, things that contradict each other.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = small_text(path, FILE_MAX, "a grid's TOML file")?;
        let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        Self::parse(&text, &path.display().to_string(), &stem, folder)
    }

    /// Reads a grid from its text.
    ///
    /// # Errors
    /// As [`Grid::read`].
    pub fn parse(text: &str, path: &str, name: &str, folder: PathBuf) -> Result<Self, Failure> {
        let ends: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
        let text = Text { path, text, ends: &ends };
        let table = text.parse()?;
        let mut grid = Self {
            name: name.to_owned(),
            path: path.to_owned(),
            folder,
            max_cells: CELLS_MAX,
            min_capacity: false,
            entries: Vec::new(),
            strategies: Vec::new(),
            devices: Vec::new(),
            capacities: None,
        };
        const KEYS: [&str; 8] = [
            "name",
            "max_cells",
            "min_capacity",
            "devices",
            "capacities",
            "strategies",
            "strategy",
            "input",
        ];
        for Pair { key, line, value } in text.known(&table, "a grid", &KEYS)? {
            match key {
                "name" => grid.name = text.string(value, key)?,
                "max_cells" => grid.max_cells = text.count(value, key)?,
                "min_capacity" => grid.min_capacity = text.truth(value, key)?,
                "devices" => grid.devices = named(text.strings(value, key)?),
                "capacities" => {
                    grid.capacities = Some(Placed { line, value: capacities(text, value)? });
                }
                "strategies" => {
                    for (spec, line) in text.strings(value, key)? {
                        grid.strategies.extend(families(text, &spec, line, Vec::new())?);
                    }
                }
                "strategy" => {
                    for one in tables(text, value, key)? {
                        grid.strategies.extend(strategy(text, one)?);
                    }
                }
                _ => {
                    for one in tables(text, value, key)? {
                        grid.entries.extend(entries(text, one)?);
                    }
                }
            }
        }
        if grid.entries.is_empty() {
            return Err(text.bad(1, "no [[input]] in it; give one with a workload or a trace"));
        }
        let mut seen = HashMap::new();
        for entry in &grid.entries {
            if let Some(line) = seen.insert(entry_text(entry, None), entry.line) {
                let what = format!("the same input as in line {line}; leave one out");
                return Err(text.bad(entry.line, what));
            }
        }
        if grid.strategies.is_empty() {
            let what = "no strategies in it; give strategies = [\"torch.caching\"], or a [[strategy]] with spec and options";
            return Err(text.bad(1, what));
        }
        Ok(grid)
    }

    /// How many specs there are.
    pub fn specs(&self) -> u128 {
        self.strategies
            .iter()
            .fold(0, |sum, family| u128::saturating_add(sum, combinations(&family.options)))
    }

    /// How many cells there are, each recording taken as one history.
    pub fn cells(&self) -> u128 {
        let inputs =
            self.entries.iter().fold(0_u128, |sum, entry| sum.saturating_add(entry.runs()));
        inputs.saturating_mul(self.cells_of_a_run())
    }

    /// Cells of an input with settings and seed.
    fn cells_of_a_run(&self) -> u128 {
        let capacities = self.capacities.as_ref().map_or(1, |axis| u128::from(axis.value.len()));
        let devices = self.devices.len().max(1) as u128;
        self.specs().saturating_mul(capacities).saturating_mul(devices)
    }

    /// Refuses more cells than the grid allows.
    ///
    /// # Errors
    /// With the count and what makes it.
    pub fn check_count(&self, cells: u128) -> Result<u64, Failure> {
        match u64::try_from(cells) {
            Ok(cells) if cells <= self.max_cells => Ok(cells),
            _ => Err(Failure::input(format!(
                "{}: {} cells are more than {}: {} inputs with their settings and seeds × {} devices × {} capacities × {} strategies; \
                 give fewer values, or raise the limit with max_cells = {cells} in the grid",
                self.path,
                grouped(cells),
                grouped(self.max_cells.into()),
                grouped(cells / self.cells_of_a_run().max(1)),
                self.devices.len().max(1),
                self.capacities.as_ref().map_or(1, |axis| axis.value.len()),
                grouped(self.specs()),
            ))),
        }
    }

    /// Something is wrong in a line of the file.
    pub(super) fn bad(&self, line: usize, what: impl std::fmt::Display) -> Failure {
        Failure::input(format!("{}:{line}: {what}", self.path))
    }
}

impl Entry {
    /// Settings × seeds.
    pub fn runs(&self) -> u128 {
        combinations(&self.settings).saturating_mul(self.seeds.len().into())
    }
}

/// How many combinations of values there are.
pub(super) fn combinations(axes: &[Keyed]) -> u128 {
    axes.iter().fold(1, |product, one| product.saturating_mul(one.axis.len().into()))
}

/// The `n`-th combination of values, the last axis fastest.
pub(super) fn combination(axes: &[Keyed], mut n: u64) -> Vec<(&str, String)> {
    let mut values: Vec<(&str, String)> = axes
        .iter()
        .rev()
        .map(|one| {
            let value = one.axis.get(n % one.axis.len());
            n /= one.axis.len();
            (one.key.as_str(), value)
        })
        .collect();
    values.reverse();
    values
}

/// `1,000,000`.
pub(super) fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn named(all: Vec<(String, usize)>) -> Vec<Named> {
    all.into_iter().map(|(value, line)| Placed { line, value }).collect()
}

fn tables<'v, 't>(
    text: Text<'t>,
    value: &'v Value<'t>,
    key: &str,
) -> Result<Vec<&'v Value<'t>>, Failure> {
    let list =
        value.get_ref().as_array().filter(|list| list.iter().all(|v| v.get_ref().is_table()));
    let list = list
        .ok_or_else(|| text.expected(value, key, &format!("tables that begin with [[{key}]]")))?;
    Ok(list.iter().collect())
}

fn capacities(text: Text<'_>, value: &Value<'_>) -> Result<Axis, Failure> {
    let axis = text.axis(value, "capacities")?;
    if matches!(axis, Axis::Steps { places: 1.., .. }) {
        let what = "capacities: a range takes whole bytes";
        return Err(text.bad(text.line(value.span()), what));
    }
    for size in axis.ends() {
        size.parse::<Bytes>().map_err(|error| {
            text.bad(text.line(value.span()), format_args!("capacities: {error}"))
        })?;
    }
    Ok(axis)
}

/// Settings or options: each key an axis.
fn axes<'t>(text: Text<'t>, value: &Value<'t>, name: &str) -> Result<Vec<Keyed>, Failure> {
    let pairs = text.pairs(text.table(value, name)?);
    pairs
        .into_iter()
        .map(|Pair { key, line, value }| {
            let axis = text.axis(value, &format!("{name}.{key}"))?;
            Ok(Keyed { key: key.to_owned(), line, axis })
        })
        .collect()
}

/// An `[[input]]`: one entry for each workload or trace in it.
fn entries<'t>(text: Text<'t>, value: &Value<'t>) -> Result<Vec<Entry>, Failure> {
    let here = text.line(value.span());
    let table = text.table(value, "input")?;
    let known = ["workload", "trace", "set", "seeds", "keep_times"];
    let (mut what, mut settings, mut seeds, mut keep_times) = (None, None, None, None);
    for Pair { key, line, value } in text.known(table, "an [[input]]", &known)? {
        match key {
            "workload" | "trace" if what.is_some() => {
                let both = "an [[input]] has a workload or a trace, found both; make two of them";
                return Err(text.bad(line, both));
            }
            "workload" | "trace" => what = Some((key == "trace", text.strings(value, key)?)),
            "set" => settings = Some((line, axes(text, value, "set")?)),
            "seeds" => seeds = Some((line, seeds_of(text, value)?)),
            _ => keep_times = Some((line, text.truth(value, key)?)),
        }
    }
    let Some((is_trace, names)) = what else {
        return Err(text.bad(here, "an [[input]] without workload and trace; give one of them"));
    };
    let not_of = |line: usize, key: &str, of: &str| {
        text.bad(line, format_args!("{key} goes with a {of}; leave it out, or make two inputs"))
    };
    match (is_trace, &settings, &seeds, keep_times) {
        (true, Some((line, _)), ..) => return Err(not_of(*line, "set", "workload")),
        (true, _, Some((line, _)), _) => return Err(not_of(*line, "seeds", "workload")),
        (false, _, _, Some((line, _))) => return Err(not_of(line, "keep_times", "trace")),
        _ => {}
    }
    let settings = settings.map_or_else(Vec::new, |(_, settings)| settings);
    let seeds = seeds.map_or_else(|| Axis::first(1), |(_, seeds)| seeds);
    let keep_times = keep_times.is_some_and(|(_, keep)| keep);
    let entry = |(name, line): (String, usize)| {
        let what = if is_trace {
            What::Trace { path: name, keep_times }
        } else {
            let workload = registry::find(&name).map_err(|error| text.bad(line, error))?;
            check_settings(text, workload, &settings)?;
            What::Workload(workload)
        };
        Ok(Entry { line, what, settings: settings.clone(), seeds: seeds.clone() })
    };
    names.into_iter().map(entry).collect()
}

fn check_settings(text: Text<'_>, workload: &Workload, settings: &[Keyed]) -> Result<(), Failure> {
    for Keyed { key, line, .. } in settings {
        if !workload.params.iter().any(|param| param.name == key) {
            let known = workload.params.iter().map(|param| param.name);
            let offer = vramlab_allocators::options::nearest(key, known);
            let name = workload.name;
            return Err(text.bad(*line, format_args!("{name} has no setting {key:?}; {offer}")));
        }
    }
    Ok(())
}

/// `10`: ten seeds from 0; or a list or range of seeds.
fn seeds_of<'t>(text: Text<'t>, value: &Value<'t>) -> Result<Axis, Failure> {
    let line = text.line(value.span());
    let axis = if value.get_ref().is_integer() {
        Axis::first(text.count(value, "seeds")?)
    } else {
        text.axis(value, "seeds")?
    };
    if axis.is_empty() || axis.len() > SEEDS_MAX {
        let found = axis.len();
        return Err(text.bad(line, format_args!("seeds: found {found}, expected 1 to {SEEDS_MAX}")));
    }
    match axis.ends().iter().find(|seed| seed.parse::<u64>().is_err()) {
        Some(seed) => {
            Err(text.bad(line, format_args!("seeds: found {seed:?}, expected a whole number")))
        }
        None => Ok(axis),
    }
}

/// A `[[strategy]]`.
fn strategy<'t>(text: Text<'t>, value: &Value<'t>) -> Result<Vec<Family>, Failure> {
    let here = text.line(value.span());
    let table = text.table(value, "strategy")?;
    let (mut specs, mut options) = (None, Vec::new());
    for Pair { key, value, .. } in text.known(table, "a [[strategy]]", &["spec", "options"])? {
        match key {
            "spec" => specs = Some(text.strings(value, key)?),
            _ => options = axes(text, value, key)?,
        }
    }
    let specs = specs.ok_or_else(|| text.bad(here, "a [[strategy]] without a spec"))?;
    let mut all = Vec::new();
    for (spec, line) in specs {
        all.extend(families(text, &spec, line, options.clone())?);
    }
    Ok(all)
}

/// A spec with values for its options; `all` is every strategy.
fn families(
    text: Text<'_>,
    spec: &str,
    line: usize,
    options: Vec<Keyed>,
) -> Result<Vec<Family>, Failure> {
    let bases =
        strategies(&[spec.to_owned()], &[]).map_err(|failure| text.bad(line, failure.message))?;
    for base in &bases {
        for Keyed { key, line, .. } in &options {
            let (part, key) = part_of(base, key);
            if base.parts[part].options.get(key).is_some() {
                let what = format!("option {key} stands in the spec {base} and here; give it once");
                return Err(text.bad(*line, what));
            }
        }
    }
    Ok(bases.into_iter().map(|base| Family { line, base, options: options.clone() }).collect())
}

/// Which part of a spec an option belongs to: `wrapper.key` to that wrapper, any other to the strategy.
pub(super) fn part_of<'k>(spec: &Spec, key: &'k str) -> (usize, &'k str) {
    let of_wrapper = key.split_once('.').and_then(|(wrapper, key)| {
        let part = spec.parts.iter().skip(1).position(|part| part.name == wrapper)?;
        Some((part + 1, key))
    });
    of_wrapper.unwrap_or((0, key))
}
