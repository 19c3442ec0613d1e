//! Golden cases in one JSON object a file (`case`, `config`, `device`, `stat_columns`, `ops`, `expect`), and the replay of any subject
//! against them. `ops[i]` and `expect[i]` belong together; what stands in them is told by the README of each set.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

#[path = "../shared_folder/mod.rs"]
mod shared_folder;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use vramlab_sim::DeviceOptions;
use vramlab_sim::device::{AddressPlacement, SimMachine};
use vramlab_sim::machine::RangeKind;
use vramlab_sim::{Address, DriverExt as _, Machine as _};

/// One file.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) all: Map<String, Value>,
}

impl Case {
    /// The number at `path` (`"config/align"`), if it is there and not null.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.value(path).and_then(Value::as_u64)
    }

    /// The value at `path`.
    pub(crate) fn value(&self, path: &str) -> Option<&Value> {
        let mut parts = path.split('/');
        let first = self.all.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    }

    /// Is the flag at `path` set?
    pub(crate) fn flag(&self, path: &str) -> bool {
        self.value(path).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The text at `path`.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.value(path).and_then(Value::as_str)
    }

    /// Names of the statistics after each op.
    pub(crate) fn columns(&self) -> Vec<&str> {
        self.list("stat_columns").iter().filter_map(Value::as_str).collect()
    }

    /// The list at a key of the case.
    pub(crate) fn list(&self, key: &str) -> &[Value] {
        self.all.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Its ops; of a case that is one step a row, that many of nothing.
    fn ops(&self) -> Vec<Value> {
        match self.all.get("ops") {
            Some(_) => self.list("ops").to_vec(),
            None => vec![Value::Null; self.list("expect").len()],
        }
    }

    /// A machine with the case's fake device.
    pub(crate) fn machine(&self) -> SimMachine {
        SimMachine::new(self.device())
    }

    /// Address of its first byte.
    pub(crate) fn base(&self) -> Address {
        self.machine().malloc(1).expect("an empty device has a byte")
    }

    /// The case's fake device: capacity, granularity and placement.
    pub(crate) fn device(&self) -> DeviceOptions {
        let granule = self.number("device/granularity").unwrap_or(2 << 20);
        let placement = match self.text("device/placement") {
            Some("bump") => AddressPlacement::Bump,
            _ => AddressPlacement::FirstFit,
        };
        DeviceOptions {
            capacity: self.number("device/capacity").unwrap_or(1 << 40),
            granule,
            placement,
            ..DeviceOptions::default()
        }
    }
}

/// What answers a case's ops.
pub(crate) trait Subject {
    /// Does one op; the answer is the row that `expect` has for it.
    fn op(&mut self, _op: &[Value]) -> Vec<Value> {
        Vec::new()
    }

    /// The row of an op, where rows are no lists. Of a case without ops, which is one step a row, the op is null.
    fn row(&mut self, op: &Value) -> Value {
        Value::Array(self.op(op.as_array().expect("an op is a list")))
    }

    /// What the case has as `init`, for a system whose making is recorded.
    fn init(&mut self) -> Option<Vec<Value>> {
        None
    }

    /// Totals by their names in the case's `summary`; those that a case does not have are not compared. The number of ops is compared anyway.
    fn summary(&mut self) -> Vec<(&'static str, u64)>;

    /// Does the subject have no answer for this total?
    fn leaves_out(&self, _name: &str) -> bool {
        false
    }
}

/// Ordinal of the driver's range and offset in it.
pub(crate) fn origin(machine: &SimMachine, address: Address) -> (RangeKind, u32, u64) {
    let origin = machine.origin(address).expect("a placement lies in a range of the driver");
    (origin.kind, origin.ordinal, origin.offset)
}

/// Runs the committed choice of `system` (where there is one) and the shared set (or says why not). `subject` gives `None` for a case of another allocator.
///
/// Prints `golden_<system>: N of N cases, M ops, 0 differences`.
pub(crate) fn golden(system: &str, subject: impl Fn(&Case) -> Option<Box<dyn Subject>>) {
    golden_called(&format!("golden_{system}"), system, subject);
}

/// The same under another name.
pub(crate) fn golden_called(
    name: &str,
    system: &str,
    subject: impl Fn(&Case) -> Option<Box<dyn Subject>>,
) {
    run(&format!("{name} (committed)"), &shared_folder::committed(system), &subject);
    match shared_folder::shared(&format!("golden/{system}")) {
        Some(folder) => run(name, &folder, &subject),
        None => println!("{name}: skipped, no shared folder"),
    }
}

fn run(name: &str, folder: &Path, subject: &impl Fn(&Case) -> Option<Box<dyn Subject>>) {
    let (mut cases, mut equal, mut ops, mut firsts) = (0, 0, 0, Vec::new());
    for path in files(folder) {
        let case = load(&path);
        let Some(mut subject) = subject(&case) else { continue };
        cases += 1;
        ops += case.ops().len();
        match first_difference(&case, &mut *subject) {
            None => equal += 1,
            Some(difference) => firsts.push(format!("{}: {difference}", case.name)),
        }
    }
    shared_folder::keep(name, cases, equal, ops, firsts.len());
    println!("{name}: {equal} of {cases} cases, {ops} ops, {} differences", firsts.len());
    assert!(cases > 0, "expected cases in {}, found none", folder.display());
    assert!(firsts.is_empty(), "first difference of each case:\n{}", firsts.join("\n"));
}

fn first_difference(case: &Case, subject: &mut dyn Subject) -> Option<String> {
    let (ops, expect) = (case.ops(), case.list("expect"));
    if ops.len() != expect.len() {
        return Some(format!("{} ops, but {} expected rows", ops.len(), expect.len()));
    }
    if let Some(found) = subject.init().map(Value::Array)
        && let Some(want) = case.value("init").filter(|want| **want != found)
    {
        return Some(format!("init: expected {want}\n  found    {found}"));
    }
    for (i, (op, want)) in ops.iter().zip(expect).enumerate() {
        let found = subject.row(op);
        if found != *want {
            let columns = case.columns();
            return Some(format!(
                "op {i} {op}\n  expected {want}\n  found    {found}\n  columns  {columns:?}"
            ));
        }
    }
    summary_difference(case, subject)
}

/// Every total of a case is compared, or known to be left out.
fn summary_difference(case: &Case, subject: &mut dyn Subject) -> Option<String> {
    let mut found = subject.summary();
    found.push(("ops", case.list("ops").len() as u64));
    let wanted = case.value("summary").and_then(Value::as_object).into_iter().flatten();
    for (name, want) in wanted.filter(|(name, _)| !subject.leaves_out(name)) {
        match found.iter().find(|(known, _)| known == name) {
            Some((_, found)) if want.as_u64() == Some(*found) => {}
            Some((_, found)) => {
                return Some(format!("summary: expected {want} of {name}, found {found}"));
            }
            None => return Some(format!("summary: expected {want} of {name}, found no answer")),
        }
    }
    None
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(listed) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = listed
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".json") || name.ends_with(".json.gz")
        })
        .collect();
    files.sort();
    files
}

fn load(path: &Path) -> Case {
    let text = shared_folder::read_text(path).unwrap_or_else(|error| panic!("{error}"));
    let all: Map<String, Value> =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name = all.get("case").and_then(Value::as_str).unwrap_or_default().to_owned();
    Case { name, all }
}
