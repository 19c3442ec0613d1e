//! The runs that an experiment asks for: axes crossed, ids and labels made, names checked.

use std::collections::BTreeMap;

use vramlab_allocators::{STRATEGIES, Spec};
use vramlab_sim::units::Bytes;
use vramlab_workloads::registry;

use super::experiment::{Axis, Experiment, RunSpec, Source};
use super::{files, program};
use crate::cli::parse_spec;
use crate::failure::Failure;

/// What a run is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A workload with its settings (passes among them).
    Workload {
        /// Its name.
        name: String,
        /// `k=v,…`.
        settings: String,
        /// Its passes; empty for none.
        passes: String,
    },
    /// A recording.
    Trace(String),
    /// Ops in JSON Lines.
    Ops(String),
    /// A JSON file of figures that were recorded.
    Facts(String),
    /// What was measured of a set-up or a server.
    Measured(String),
    /// A snapshot that says where the real allocator placed what.
    Verify(String),
}

/// A run, without its seed.
#[derive(Clone, Debug)]
pub struct Cell {
    /// As expressions name it.
    pub id: String,
    /// As conditions name it.
    pub label: String,
    /// What is run.
    pub what: What,
    /// Through which strategy.
    pub spec: Spec,
    /// On which device; none: the kind's own.
    pub device: Option<String>,
    /// Its bytes, if not its own.
    pub capacity: Option<Bytes>,
    /// How many seeds, from 0.
    pub seeds: u64,
    /// Search for the least capacity too, of so many first seeds.
    pub min_capacity: u64,
    /// Add the causes of fragmentation.
    pub causes: bool,
    /// Add the graph's figures.
    pub graph: bool,
    /// Left out with `--quick`.
    pub skipped: bool,
    /// The name of its value on each axis.
    pub axes: BTreeMap<String, String>,
    /// Where in the file.
    pub at: usize,
}

/// Strategy of a run that names none.
const STRATEGY: &str = "torch.caching";
/// Most runs of one experiment, seeds counted.
pub const RUNS_MAX: usize = 100_000;

/// All runs of an experiment.
///
/// # Errors
/// With file and line: unknown names, ids that are given twice, axes that an id does not name.
pub fn cells(experiment: &Experiment, quick: bool) -> Result<Vec<Cell>, Failure> {
    let file = &experiment.file;
    let mut all: Vec<Cell> = Vec::new();
    for run in &experiment.runs {
        let at = run.span().start;
        expand(file, at, run.as_ref(), quick, &mut all)?;
        if all.len() > RUNS_MAX {
            return Err(file.bad(at, format!("more than {RUNS_MAX} runs up to here")));
        }
    }
    let runs: u64 = all.iter().map(|cell| cell.seeds).fold(0, u64::saturating_add);
    if runs > RUNS_MAX as u64 {
        return Err(file.bad(0, format!("{runs} runs, expected {RUNS_MAX} at most")));
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for cell in &all {
        if let Some(before) = seen.insert(&cell.id, cell.at) {
            let first = file.text[..before].matches('\n').count() + 1;
            let message = format!("the run id {:?} is there already, from line {first}", cell.id);
            return Err(file.bad(cell.at, message));
        }
    }
    Ok(all)
}

/// An axis with the place that its value has in an id.
type Values = Vec<(String, String)>;

fn values(field: &str, axis: &Axis) -> Values {
    let given: Values = match axis {
        Axis::One(one) => vec![(one.text(), one.text())],
        Axis::List(list) => list.iter().map(|one| (one.text(), one.text())).collect(),
        Axis::Named(named) => named.iter().map(|(name, one)| (name.clone(), one.text())).collect(),
    };
    let each = given.into_iter().flat_map(|(name, value)| match field {
        "strategy" if value == "all" => {
            STRATEGIES.iter().map(|one| (one.name.to_owned(), one.name.to_owned())).collect()
        }
        "trace" | "facts" | "measured" | "verify" if value.contains('*') => files::listed(&value),
        _ => vec![(name, value)],
    });
    each.collect()
}

/// Letters, digits and `_` of a value's name.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn expand(
    file: &Source,
    at: usize,
    run: &RunSpec,
    quick: bool,
    all: &mut Vec<Cell>,
) -> Result<(), Failure> {
    let mut axes: Vec<(String, Values, bool)> = Vec::new();
    let mut add = |name: &str, axis: &Axis, field: &str| {
        let values = values(field, axis);
        let crossed = !matches!(axis, Axis::One(_)) || values.len() > 1;
        axes.push((name.to_owned(), values, crossed));
    };
    let mut set = run.set.clone();
    if quick {
        set.extend(run.quick.set.clone());
    }
    set.iter().for_each(|(name, axis)| add(name, axis, "set"));
    let fields = [
        ("trace", &run.trace),
        ("facts", &run.facts),
        ("measured", &run.measured),
        ("verify", &run.verify),
        ("passes", &run.passes),
        ("strategy", &run.strategy),
        ("device", &run.device),
        ("capacity", &run.capacity),
    ];
    for (name, axis) in fields.iter().filter_map(|(name, axis)| Some((*name, axis.as_ref()?))) {
        add(name, axis, name);
    }
    for (name, values, crossed) in &axes {
        if values.is_empty() {
            return Err(file.bad(at, format!("the axis {name} of run {:?} has no value", run.id)));
        }
        let braced = format!("{{{name}}}");
        if *crossed && values.len() > 1 && !run.id.contains(&braced) {
            return Err(file.bad(
                at,
                format!("run {:?} has the axis {name}; expected {braced} in its id", run.id),
            ));
        }
    }
    let count = axes.iter().try_fold(1_usize, |product, axis| product.checked_mul(axis.1.len()));
    let count = count.filter(|count| *count <= RUNS_MAX).ok_or_else(|| {
        file.bad(at, format!("the axes of run {:?} cross to more than {RUNS_MAX} runs", run.id))
    })?;
    for index in 0..count {
        let mut left = index;
        let mut chosen: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
        let (mut id, mut label) = (run.id.clone(), run.label.clone().unwrap_or_default());
        let mut named = Vec::new();
        for (name, values, crossed) in axes.iter().rev() {
            let (value_name, value) = &values[left % values.len()];
            left /= values.len();
            chosen.insert(name, (value_name, value));
            id = id.replace(&format!("{{{name}}}"), &plain(value_name));
            label = label.replace(&format!("{{{name}}}"), value_name);
            if *crossed {
                named.push(format!("{name} {value_name}"));
            }
        }
        if run.label.is_none() {
            named.reverse();
            label = if named.is_empty() { id.clone() } else { named.join(", ") };
        }
        all.push(cell(file, at, run, quick, (id, label), &chosen)?);
    }
    Ok(())
}

fn cell(
    file: &Source,
    at: usize,
    run: &RunSpec,
    quick: bool,
    (id, label): (String, String),
    chosen: &BTreeMap<&str, (&str, &str)>,
) -> Result<Cell, Failure> {
    let bad = |message: &dyn std::fmt::Display| file.bad(at, format!("run {id:?}: {message}"));
    if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(bad(&"expected an id of letters, digits and _, with {…} for axes only"));
    }
    let value = |name: &str| chosen.get(name).map(|(_, value)| (*value).to_owned());
    let mut kinds: Vec<What> = Vec::new();
    if let Some(name) = &run.workload {
        kinds.push(workload(run, quick, name, chosen).map_err(|e| bad(&e))?);
    }
    if let Some(ops) = &run.ops {
        kinds.push(What::Ops(program::text(ops).map_err(|e| bad(&e))?));
    }
    type OfFile = fn(String) -> What;
    let of_file: [(&str, OfFile); 4] = [
        ("trace", What::Trace),
        ("facts", What::Facts),
        ("measured", What::Measured),
        ("verify", What::Verify),
    ];
    kinds.extend(of_file.into_iter().filter_map(|(name, what)| value(name).map(what)));
    let (Some(what), true) = (kinds.pop(), kinds.is_empty()) else {
        return Err(bad(&"expected one of workload, trace, ops, facts, measured and verify"));
    };
    if !matches!(what, What::Workload { .. }) {
        if !run.set.is_empty() || run.passes.is_some() {
            return Err(bad(&"set and passes go with a workload"));
        }
        if run.seeds != 1 || run.graph {
            return Err(bad(&"seeds and graph go with a workload"));
        }
    }
    let spec = parse_spec(value("strategy").as_deref().unwrap_or(STRATEGY)).map_err(|e| bad(&e))?;
    vramlab_allocators::registry::check(&spec).map_err(|e| bad(&e))?;
    let capacity = value("capacity").map(|text| text.parse::<Bytes>()).transpose();
    let seeds = run.quick.seeds.filter(|_| quick).unwrap_or(run.seeds);
    if seeds == 0 {
        return Err(bad(&"seeds is 0, expected 1 at least"));
    }
    Ok(Cell {
        what,
        spec,
        device: value("device"),
        capacity: capacity.map_err(|e| bad(&e))?,
        seeds,
        min_capacity: run
            .quick
            .min_capacity
            .filter(|_| quick)
            .unwrap_or(run.min_capacity)
            .of(seeds),
        causes: run.causes,
        graph: run.graph,
        skipped: quick && run.quick.skip,
        axes: chosen
            .iter()
            .map(|(axis, (name, _))| ((*axis).to_owned(), (*name).to_owned()))
            .collect(),
        at,
        id,
        label,
    })
}

fn workload(
    run: &RunSpec,
    quick: bool,
    name: &str,
    chosen: &BTreeMap<&str, (&str, &str)>,
) -> Result<What, String> {
    let workload = registry::find(name).map_err(|e| e.to_string())?;
    let set =
        run.set.keys().chain(quick.then_some(&run.quick.set).into_iter().flat_map(|s| s.keys()));
    let mut pairs: BTreeMap<&str, &str> = BTreeMap::new();
    for key in set {
        if !workload.params.iter().any(|param| param.name == key) {
            let known = workload.params.iter().map(|param| param.name);
            let hint = vramlab_allocators::options::nearest(key, known);
            return Err(format!("{name} has no parameter {key:?}; {hint}"));
        }
        pairs.insert(key, chosen[key.as_str()].1);
    }
    let passes = chosen.get("passes").map_or("", |(_, value)| value);
    let settings: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    Ok(What::Workload {
        name: name.to_owned(),
        settings: settings.join(","),
        passes: passes.to_owned(),
    })
}

/// Does `pattern`, in which `*` stands for anything, match the whole of `text`?
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let between = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    let Some(mut left) = between else { return false };
    // the first place of each part leaves most for the next
    middle.split('*').all(|part| match left.find(part) {
        Some(at) => {
            left = &left[at + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, quick: bool) -> Result<Vec<Cell>, String> {
        let text = format!("title = \"t\"\n{text}");
        let file = Source { name: "t".to_owned(), path: "t.toml".to_owned(), text };
        let experiment = Experiment::parse(file).map_err(|f| f.message)?;
        cells(&experiment, quick).map_err(|f| f.message)
    }

    #[test]
    fn axes_are_crossed_and_named() {
        let text = "[[run]]\nid = \"b{batch}_{strategy}\"\nworkload = \"bert\"\nset = { batch = [1, 2], steps = 1 }\nstrategy = { ours = \"torch.caching\", floor = \"bound.live_floor\" }";
        let all = parsed(text, false).expect("cells");
        let ids: Vec<&str> = all.iter().map(|cell| cell.id.as_str()).collect();
        assert_eq!(ids, ["b1_floor", "b1_ours", "b2_floor", "b2_ours"]);
        assert_eq!(all[1].label, "batch 1, strategy ours");
        let What::Workload { settings, .. } = &all[3].what else { panic!("{:?}", all[3]) };
        assert_eq!(settings, "batch=2,steps=1");
    }

    #[test]
    fn quick_runs_are_smaller() {
        let text = "[[run]]\nid = \"a\"\nworkload = \"ocr\"\nset = { pages = 200 }\nseeds = 10\nquick = { seeds = 2, set = { pages = 20 } }";
        let settings = |quick| match &parsed(text, quick).expect("cells")[0] {
            Cell { what: What::Workload { settings, .. }, seeds, .. } => (settings.clone(), *seeds),
            other => panic!("{other:?}"),
        };
        assert_eq!(settings(false), ("pages=200".to_owned(), 10));
        assert_eq!(settings(true), ("pages=20".to_owned(), 2));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, message) in [
            (
                "[[run]]\nid = \"a\"\nworkload = \"bret\"",
                "t.toml: line 2: run \"a\": unknown workload \"bret\"",
            ),
            (
                "[[run]]\nid = \"a\"\nworkload = \"bert\"\nset = { bach = 1 }",
                "t.toml: line 2: run \"a\": bert has no parameter \"bach\"",
            ),
            (
                "[[run]]\nid = \"a\"\nworkload = \"bert\"\nset = { batch = [1, 2] }",
                "t.toml: line 2: run \"a\" has the axis batch; expected {batch} in its id",
            ),
            (
                "[[run]]\nid = \"a\"\nworkload = \"bert\"\nset = { batch = [] }",
                "t.toml: line 2: the axis batch of run \"a\" has no value",
            ),
            (
                "[[run]]\nid = \"a\"\nworkload = \"bert\"\nstrategy = \"torch\"",
                "t.toml: line 2: run \"a\": ",
            ),
            (
                "[[run]]\nid = \"a b\"\nworkload = \"bert\"",
                "t.toml: line 2: run \"a b\": expected an id",
            ),
            ("[[run]]\nid = \"a\"\n", "t.toml: line 2: run \"a\": expected one of workload"),
            (
                "[[run]]\nid = \"a\"\nworkload = \"bert\"\n[[run]]\nid = \"a\"\nworkload = \"bert\"",
                "t.toml: line 5: the run id \"a\" is there already, from line 2",
            ),
        ] {
            let found = parsed(text, false).expect_err(text);
            assert!(found.starts_with(message), "{found}\nexpected {message}");
        }
    }

    #[test]
    fn stars_match_anything() {
        assert!(matches("*", "") && matches("a*c", "abbc") && matches("a_*", "a_b_c"));
        assert!(!matches("a*c", "abb") && !matches("a", "ab") && matches("*b*", "abc"));
    }
}
