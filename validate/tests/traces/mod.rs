//! Golden traces and recordings as inputs of the program.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// A golden trace: what is asked, and of which device.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) capacity: u64,
    pub(crate) granule: u64,
    pub(crate) placement: String,
    /// JSON Lines of ours.
    pub(crate) text: String,
}

impl Case {
    pub(crate) fn kind(&self) -> (u64, u64, &str) {
        (self.capacity, self.granule, &self.placement)
    }
}

/// Sets of device allocators in one JSON object a file.
const SETS: [&str; 4] = ["bfc", "gmlake", "paddle", "rmm"];
/// Ops of a PyTorch trace that make sense for any allocator; the others are a harness's.
const PYTORCH_OPS: [&str; 9] = [
    "alloc",
    "free",
    "record_stream",
    "empty_cache",
    "pool_begin",
    "pool_end",
    "pool_release",
    "capture_begin",
    "capture_end",
];

/// First line of our JSON Lines.
const HEADER: &str = "{\"vramlab_trace\":1}\n";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A folder of the shared sets. Without it: a line, and a failure if `VRAMLAB_REQUIRE_SHARED=1`.
fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("VRAMLAB_SHARED")
        .map_or_else(|| repository().join("../shared"), PathBuf::from);
    let folder = root.join(name);
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var("VRAMLAB_REQUIRE_SHARED").is_ok_and(|v| v == "1");
    assert!(!required, "{name}: no folder {}, and VRAMLAB_REQUIRE_SHARED=1", folder.display());
    println!("{name}: skipped, no shared folder");
    None
}

pub(crate) fn committed_cases() -> Vec<Case> {
    cases(&repository().join("allocators/tests/golden"))
}

pub(crate) fn shared_cases() -> Option<Vec<Case>> {
    shared("golden").map(|folder| cases(&folder))
}

/// The recordings in the repository.
pub(crate) fn examples() -> Vec<String> {
    let gzipped = |path: &PathBuf| path.extension().is_some_and(|e| e == "gz");
    let files = files(&repository().join("workloads/examples")).into_iter().filter(gzipped);
    files.map(|path| path.display().to_string()).collect()
}

/// All recordings of the shared sets that can be replayed: what the program refuses as none is left out.
pub(crate) fn shared_recordings() -> Option<Vec<String>> {
    let mut all = Vec::new();
    for kind in ["pytorch_recorded", "pytorch", "profiler", "lifetimes", "static_plans"] {
        let files = files(&shared(&format!("traces/{kind}"))?);
        let known = [".pickle", ".pickle.gz", ".csv", ".csv.gz", ".log", "excerpt300.json"];
        let named = |path: &PathBuf| {
            let name = path.to_string_lossy();
            known.iter().any(|ending| name.ends_with(ending))
        };
        all.extend(files.into_iter().filter(named).map(|path| path.display().to_string()));
    }
    Some(all)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    let read = match bytes.starts_with(&[0x1f, 0x8b]) {
        true => flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut text),
        false => (&*bytes).read_to_string(&mut text),
    };
    read.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text
}

fn cases(golden: &Path) -> Vec<Case> {
    let mut all = Vec::new();
    for set in SETS {
        let json = |path: &PathBuf| path.to_string_lossy().contains(".json");
        let files = files(&golden.join(set)).into_iter().filter(json);
        all.extend(files.map(|path| listed(&path)));
    }
    let traces = files(&golden.join("pytorch/traces")).into_iter();
    all.extend(traces.map(|path| pytorch(&path)));
    all
}

fn name(path: &Path) -> String {
    let name = path.file_name().expect("a file").to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// A case in one JSON object: requests, frees, streams that use a buffer, caches that are emptied. Ops of a harness are left out.
fn listed(path: &Path) -> Case {
    let case: Value = serde_json::from_str(&text(path)).expect("JSON");
    let set = path.parent().and_then(Path::file_name).expect("a set").to_string_lossy();
    let mut lines = HEADER.to_owned();
    for op in case["ops"].as_array().map_or(&[][..], Vec::as_slice) {
        let stream = if set == "bfc" { None } else { op.get(3).and_then(Value::as_u64) };
        let line = match op[0].as_str() {
            Some("a") => {
                json!({"op": "alloc", "id": op[1], "size": op[2], "stream": stream.unwrap_or(0)})
            }
            Some("f") => json!({"op": "free", "id": op[1]}),
            Some("s") => json!({"op": "record_stream", "id": op[1], "stream": op[2]}),
            Some("e") if set == "gmlake" => json!({"op": "empty_cache"}),
            _ => continue,
        };
        lines += &format!("{line}\n");
    }
    let device = &case["device"];
    Case {
        name: name(path),
        capacity: device["capacity"].as_u64().unwrap_or(1 << 40),
        granule: device["granularity"].as_u64().unwrap_or(2 << 20),
        placement: device["placement"].as_str().unwrap_or("first_fit").to_owned(),
        text: lines,
    }
}

/// A trace of the PyTorch set, on a device that it does not fill and one that it may.
fn pytorch(path: &Path) -> Case {
    let keeps = |line: &&str| {
        let op: Value = serde_json::from_str(line).unwrap_or_default();
        op["op"].as_str().is_some_and(|op| PYTORCH_OPS.contains(&op))
    };
    let lines: Vec<String> = text(path).lines().filter(keeps).map(str::to_owned).collect();
    Case {
        name: name(path),
        capacity: 100 << 20,
        granule: 2 << 20,
        placement: "first_fit".to_owned(),
        text: format!("{HEADER}{}\n", lines.join("\n")),
    }
}
