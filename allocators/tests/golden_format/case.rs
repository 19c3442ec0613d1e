//! A case folder, loaded. Every file may be gzipped; only `case.json` and the trace must be there.

use super::ops::{TraceOp, read_trace};
use super::rows::Csv;
use super::shared_folder::read_text;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Version text of torch, such as `2.15.0+cu132`.
    pub(crate) torch: String,
    pub(crate) conf: String,
    pub(crate) capacity: u64,
    pub(crate) ops: Vec<TraceOp>,
    pub(crate) steps: Option<Csv>,
    pub(crate) calls: Option<Csv>,
    pub(crate) digests: Option<Csv>,
    /// Lines of `snapshots.jsonl`.
    pub(crate) snapshots: Vec<Value>,
    pub(crate) last: Option<Value>,
}

impl Case {
    /// Loads the case in a folder that has a `case.json`.
    pub(crate) fn load(folder: &Path) -> Result<Case, String> {
        let about = read(folder, "case.json")?
            .ok_or_else(|| format!("{}: expected case.json", folder.display()))?;
        let about: Value = json(&about, "case.json")?;
        let text = |field: &str| about.get(field).and_then(Value::as_str);
        let trace = text("trace").ok_or("case.json: expected a trace")?;
        let capacity = about
            .get("capacity")
            .and_then(Value::as_u64)
            .ok_or("case.json: expected a capacity")?;
        let path = folder.join(trace);
        let trace = read_text(&path)?;
        let name =
            folder.file_name().map_or("case".into(), |name| name.to_string_lossy().into_owned());
        let parts = (text("torch").unwrap_or("2.15.0"), text("conf").unwrap_or_default());
        Case::assemble(folder, name, parts, capacity, read_trace(&trace)?)
    }

    /// A case from a folder that holds results only, as the oracle writes them.
    pub(crate) fn assemble(
        folder: &Path,
        name: String,
        (torch, conf): (&str, &str),
        capacity: u64,
        ops: Vec<TraceOp>,
    ) -> Result<Case, String> {
        let csv = |file: &str| Ok::<_, String>(read(folder, file)?.map(|text| Csv::parse(&text)));
        let snapshots = read(folder, "snapshots.jsonl")?.unwrap_or_default();
        Ok(Case {
            name,
            torch: torch.to_owned(),
            conf: conf.to_owned(),
            capacity,
            ops,
            steps: csv("steps.csv")?,
            calls: csv("calls.csv")?,
            digests: csv("digests.csv")?,
            snapshots: snapshots
                .lines()
                .map(|line| json(line, "snapshots.jsonl"))
                .collect::<Result<_, _>>()?,
            last: read(folder, "final.json")?.map(|text| json(&text, "final.json")).transpose()?,
        })
    }

    /// The folders under `root` that have a `case.json`, in order of name, at any depth.
    pub(crate) fn folders(root: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
        let mut found: Vec<PathBuf> = Vec::new();
        for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
            if path.join("case.json").is_file() || path.join("case.json.gz").is_file() {
                found.push(path);
            } else {
                found.extend(Case::folders(&path));
            }
        }
        found.sort();
        found
    }
}

/// The text of a file or of its gzipped form, `None` if neither is there.
fn read(folder: &Path, name: &str) -> Result<Option<String>, String> {
    for path in [folder.join(name), folder.join(format!("{name}.gz"))] {
        if path.is_file() {
            return read_text(&path).map(Some);
        }
    }
    Ok(None)
}

fn json(text: &str, file: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{file}: {error}"))
}
