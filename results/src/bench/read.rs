//! A folder that criterion wrote.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `places` | each benchmark has a folder, as deep as its names; in it `new` holds the last measurement, other folders those that were saved under a name (`--save-baseline`) | criterion 0.8.2, `src/analysis/mod.rs`, `src/lib.rs` |
//! | `benchmark` | `benchmark.json`: `group_id`, `function_id`, `value_str`, and `throughput` with one unit, as `{"Elements":1000}` | `src/report.rs` |
//! | `estimates` | `estimates.json`: of `median` the point estimate and its confidence interval, in ns of one iteration | `src/estimate.rs` |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use vramlab_sim::units::Bytes;

use crate::failure::Failure;
use crate::inputs::small_text;

/// Most bytes of a file of criterion that is read here.
const FILE_MAX: Bytes = Bytes::mib(1);
/// Folders are nested so deep at most: group, function, value, measurement.
const DEPTH_MAX: usize = 6;
/// Most benchmarks of a folder.
const BENCHMARKS_MAX: usize = 10_000;
/// Name of the folder with the last measurement.
const LAST: &str = "new";

/// A time with its interval, in ns of one iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Median {
    pub ns: f64,
    pub low: f64,
    pub high: f64,
    /// Of the interval, such as 0.95.
    pub level: f64,
}

/// What an iteration gets through.
#[derive(Clone, Debug, PartialEq)]
pub struct Throughput {
    /// `elements`, `bytes`, `bits`.
    pub unit: &'static str,
    /// In one iteration.
    pub count: u64,
}

/// One benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct Benchmark {
    /// Its group.
    pub group: String,
    /// Its name in the group.
    pub name: String,
    /// What it measured last.
    pub median: Median,
    /// What an iteration gets through, one line for each unit.
    pub throughput: Option<Throughput>,
    /// Where it lies.
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct About {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
    throughput: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    confidence_level: f64,
    lower_bound: f64,
    upper_bound: f64,
}

/// All benchmarks of a folder, by group and name.
///
/// # Errors
/// A folder that cannot be read, has none, or too many; a file of it that is cut or of another form.
pub fn read(folder: &Path) -> Result<Vec<Benchmark>, Failure> {
    let mut found = Vec::new();
    walk(folder, 0, &mut found)?;
    found.sort();
    if found.is_empty() {
        return Err(Failure::input(format!(
            "{}: no benchmark in it, expected the folder that criterion writes, target/criterion, with …/{LAST}/benchmark.json and estimates.json; cargo bench makes it",
            folder.display()
        )));
    }
    let mut all: Vec<Benchmark> = found.iter().map(|at| benchmark(at)).collect::<Result<_, _>>()?;
    all.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    let twice =
        all.windows(2).find(|two| (&two[0].group, &two[0].name) == (&two[1].group, &two[1].name));
    match twice {
        Some([one, other]) => Err(Failure::input(format!(
            "{} and {}: both are {} of {}; remove the one that is left over",
            one.folder.display(),
            other.folder.display(),
            one.name,
            one.group
        ))),
        _ => Ok(all),
    }
}

/// Folders of benchmarks: those that have a last measurement.
fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let bad = |e: std::io::Error| Failure::input(format!("{}: {e}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(bad)? {
        let entry = entry.map_err(bad)?;
        // links are not followed: they may lead in a circle
        if !entry.file_type().map_err(bad)?.is_dir() {
            continue;
        }
        let path = entry.path();
        if entry.file_name() == LAST {
            if path.join("benchmark.json").exists() || path.join("estimates.json").exists() {
                found.push(folder.to_owned());
            }
        } else if depth < DEPTH_MAX {
            walk(&path, depth + 1, found)?;
        }
        if found.len() > BENCHMARKS_MAX {
            return Err(Failure::input(format!(
                "{}: more than {BENCHMARKS_MAX} benchmarks up to here; give the folder of some of them",
                folder.display()
            )));
        }
    }
    Ok(())
}

/// A JSON file of criterion.
fn parsed<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = small_text(path, FILE_MAX, "a JSON file of criterion")?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::input(format!(
            "{}: {error}; expected what criterion 0.5 to 0.8 writes; measure again",
            path.display()
        ))
    })
}

fn benchmark(folder: &Path) -> Result<Benchmark, Failure> {
    let path = folder.join(LAST).join("benchmark.json");
    let about: About = parsed(&path)?;
    let parts: Vec<String> = about.function_id.into_iter().chain(about.value_str).collect();
    let name = if parts.is_empty() { about.group_id.clone() } else { parts.join("/") };
    let throughput = about.throughput.map(|throughput| read_throughput(&path, &throughput));
    Ok(Benchmark {
        group: about.group_id,
        name,
        median: median(&folder.join(LAST))?,
        throughput: throughput.transpose()?,
        folder: folder.to_owned(),
    })
}

fn read_throughput(
    path: &Path,
    throughput: &BTreeMap<String, serde_json::Value>,
) -> Result<Throughput, Failure> {
    let first = throughput.iter().next();
    let unit = first.and_then(|(unit, _)| match unit.as_str() {
        "Elements" => Some("elements"),
        "Bytes" | "BytesDecimal" => Some("bytes"),
        "Bits" => Some("bits"),
        _ => None,
    });
    let both =
        || first.filter(|(unit, _)| *unit == "ElementsAndBytes")?.1.get("elements")?.as_u64();
    let count = || unit.zip(first?.1.as_u64());
    match count().or_else(|| Some(("elements", both()?))) {
        Some((unit, count)) if throughput.len() == 1 => Ok(Throughput { unit, count }),
        _ => Err(Failure::input(format!(
            "{}: found the throughput {}, expected Elements, Bytes, BytesDecimal, Bits or ElementsAndBytes with a whole number",
            path.display(),
            serde_json::json!(throughput)
        ))),
    }
}

/// The median of a measurement: the last one, or one that was saved.
///
/// # Errors
/// A file that is missing, cut, or holds no time.
pub fn median(folder: &Path) -> Result<Median, Failure> {
    let path = folder.join("estimates.json");
    let Estimates { median } = parsed(&path)?;
    let Interval { confidence_level: level, lower_bound: low, upper_bound: high } =
        median.confidence_interval;
    let ns = median.point_estimate;
    if !(ns.is_finite() && ns > 0.0 && low.is_finite() && high.is_finite() && low <= high) {
        return Err(Failure::input(format!(
            "{}: found a median of {ns} ns from {low} to {high}, expected a time above 0 with its interval",
            path.display()
        )));
    }
    Ok(Median { ns, low, high, level })
}
