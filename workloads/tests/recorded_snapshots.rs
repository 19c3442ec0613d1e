//! The snapshot reader against recordings that lie beside the repository: every figure that an independent script took
//! from each file must come out the same. No file is known by name here.
//!
//! `facts.json` (public recordings): figures by file. `index.json` (own recordings): set-up and counts by file.
//! The folder is `$VRAMLAB_SHARED`, else `../../shared` seen from this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vramlab_workloads::readers::torch_snapshot::{
    self, Action, BlockState, Entry, Form, SegmentKind, Snapshot, Trace, Warning,
};

fn shared(test: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("VRAMLAB_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
    };
    let lists = ["traces/pytorch/facts.json", "traces/pytorch_recorded/index.json"];
    let found = lists.iter().any(|list| folder.join(list).is_file()).then_some(folder);
    if found.is_none() {
        let required = std::env::var_os("VRAMLAB_REQUIRE_SHARED").is_some_and(|flag| flag == "1");
        assert!(!required, "VRAMLAB_REQUIRE_SHARED=1, but there is no shared folder");
        println!("{test}: skipped, no shared folder");
    }
    found
}

fn load(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files read, entries in them, and what differs.
#[derive(Default)]
struct Tally {
    files: usize,
    entries: usize,
    differences: Vec<String>,
}

impl Tally {
    fn compare(&mut self, file: &str, what: &str, found: &Value, expected: &Value) {
        if found != expected {
            self.differences.push(format!("{file}: {what}: found {found}, expected {expected}"));
        }
    }

    fn open(&mut self, path: &Path) -> Option<Snapshot> {
        self.files += 1;
        match torch_snapshot::open(path) {
            Ok(snapshot) => {
                self.entries += snapshot.entry_count();
                Some(snapshot)
            }
            Err(error) => {
                self.differences.push(error.to_string());
                None
            }
        }
    }
}

#[test]
fn recorded_pytorch_reader() {
    let Some(shared) = shared("recorded_pytorch_reader") else { return };
    let mut tally = Tally::default();
    let mut listed = 0;
    let public = shared.join("traces/pytorch");
    if public.join("facts.json").is_file() {
        let facts = load(&public.join("facts.json"));
        for (file, expected) in facts.as_object().expect("facts by file") {
            listed += 1;
            if let Some(snapshot) = tally.open(&public.join(file)) {
                check_facts(&mut tally, file, &snapshot, expected);
            }
        }
    }
    let own = shared.join("traces/pytorch_recorded");
    if own.join("index.json").is_file() {
        let index = load(&own.join("index.json"));
        for expected in index.as_array().expect("a list of set-ups") {
            listed += 1;
            let file = expected["file"].as_str().expect("a file name");
            if let Some(snapshot) = tally.open(&own.join(file)) {
                check_setup(&mut tally, file, &snapshot, expected);
                let beside = own.join(file.replace(".pickle.gz", ".json"));
                if beside.is_file() {
                    check_setup(&mut tally, file, &snapshot, &load(&beside));
                }
            }
        }
    }
    let Tally { files, entries, differences } = tally;
    let count = differences.len();
    println!(
        "recorded_pytorch_reader: {files} of {listed} files, {entries} entries, {count} differences"
    );
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn check_facts(tally: &mut Tally, file: &str, snapshot: &Snapshot, expected: &Value) {
    let found = facts(snapshot);
    for (name, expected) in expected.as_object().expect("figures by name") {
        if name == "devices" {
            let devices = expected.as_array().expect("devices");
            let counted = json!(snapshot.traces.len());
            tally.compare(file, "devices", &counted, &json!(devices.len()));
            for (index, (trace, expected)) in snapshot.traces.iter().zip(devices).enumerate() {
                check_device(tally, &format!("{file}, device {index}"), snapshot, trace, expected);
            }
        } else {
            tally.compare(file, name, found.get(name).unwrap_or(&Value::Null), expected);
        }
    }
}

fn check_device(
    tally: &mut Tally,
    place: &str,
    snapshot: &Snapshot,
    trace: &Trace,
    expected: &Value,
) {
    let found = device_facts(snapshot, trace);
    // What a replay finds is not the reader's affair.
    for (name, expected) in
        expected.as_object().expect("figures").iter().filter(|f| f.0 != "replay")
    {
        tally.compare(place, name, found.get(name).unwrap_or(&Value::Null), expected);
    }
}

fn counts<K: ToString>(keys: impl Iterator<Item = K>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key.to_string()).or_insert(0) += 1;
    }
    counts
}

fn facts(snapshot: &Snapshot) -> Value {
    let segments = &snapshot.segments;
    let mut by_state: BTreeMap<&str, u64> = BTreeMap::new();
    for block in &snapshot.blocks {
        *by_state.entry(block.state.name()).or_default() += block.size;
    }
    let inactive = snapshot.blocks.iter().filter(|block| block.state == BlockState::Inactive);
    let settings = snapshot.settings.as_ref();
    let mut keys = snapshot.top_level_keys.clone();
    keys.sort();
    let pools = segments.iter().map(|segment| match segment.pool {
        Some(pool) => format!("({}, {})", pool.0, pool.1),
        None => "None".to_owned(),
    });
    let kinds = segments.iter().map(|segment| match segment.kind {
        SegmentKind::Small => "small",
        SegmentKind::Large => "large",
    });
    json!({
        "alloc_conf": settings.and_then(|settings| settings.conf.clone()),
        "blocks": snapshot.blocks.len(),
        "blocks_by_state": counts(snapshot.blocks.iter().map(|block| block.state.name())),
        "expandable_segments": segments.iter().filter(|segment| segment.expandable).count(),
        "external_annotations": snapshot.annotations.len(),
        "form": match snapshot.form { Form::Dict => "dict", Form::SegmentList => "list" },
        "largest_inactive_block": inactive.map(|block| block.size).max().unwrap_or(0),
        "pool_ids": counts(pools),
        "segments": segments.len(),
        "segments_by_device": counts(segments.iter().map(|segment| segment.device)),
        "segments_by_type": counts(kinds),
        "sum_active_size": segments.iter().filter_map(|segment| segment.active_size).sum::<u64>(),
        "sum_allocated_size": segments.iter().filter_map(|segment| segment.allocated_size).sum::<u64>(),
        "sum_block_size_by_state": by_state,
        "sum_requested_size": segments.iter().filter_map(|segment| segment.requested_size).sum::<u64>(),
        "sum_total_size": segments.iter().map(|segment| segment.total_size).sum::<u64>(),
        "top_level_keys": keys,
    })
}

fn device_facts(snapshot: &Snapshot, trace: &Trace) -> Value {
    let mut sizes = BTreeSet::new();
    let (mut bytes, mut net, mut net_max, mut early) = (0_u64, 0_i64, 0_i64, 0);
    let mut live = BTreeSet::new();
    let mut streams = BTreeSet::new();
    for entry in trace.iter() {
        streams.extend(snapshot.tag(entry.tag).map(|tag| tag.stream));
        match entry.action {
            Action::Alloc => {
                bytes += entry.size;
                net += entry.size as i64;
                net_max = net_max.max(net);
                sizes.insert(entry.size);
                live.insert(entry.addr);
            }
            Action::FreeCompleted => {
                net -= entry.size as i64;
                early += u64::from(!live.remove(&entry.addr));
            }
            _ => {}
        }
    }
    let names = trace.actions().iter().map(|action| snapshot.action_name(*action));
    let mut times = trace.iter().filter_map(|entry| entry.time_us);
    json!({
        "alloc_bytes": bytes,
        "alloc_max": sizes.last().copied().unwrap_or(0),
        "by_action": counts(names),
        "distinct_alloc_sizes": sizes.len(),
        "entries": trace.len(),
        "entries_with_frames": trace.iter().filter(|entry| entry.stack.is_some()).count(),
        "first_time_us": times.clone().next(),
        "frees_of_blocks_allocated_before_window": early,
        "last_time_us": times.next_back(),
        "live_at_end_from_window": live.len(),
        "max_net_growth_bytes": net_max,
        "net_bytes_at_end": net,
        "streams": streams.len(),
    })
}

fn check_setup(tally: &mut Tally, file: &str, snapshot: &Snapshot, expected: &Value) {
    let trace = match &snapshot.traces[..] {
        [trace, others @ ..] if others.iter().all(Trace::is_empty) => trace,
        _ => return tally.differences.push(format!("{file}: not one device with entries")),
    };
    tally.compare(file, "entries", &json!(trace.len()), &expected["entries"]);
    let names = trace.actions().iter().map(|action| snapshot.action_name(*action));
    tally.compare(file, "actions", &json!(counts(names)), &expected["actions"]);
    let reserved: u64 = snapshot.segments.iter().map(|segment| segment.total_size).sum();
    tally.compare(file, "end_reserved", &json!(reserved), &expected["end_reserved"]);
    // A snapshot taken while a request fails is older than the end of the run.
    if trace.actions().last() != Some(&Action::Oom) {
        let allocated = snapshot.segments.iter().filter_map(|segment| segment.allocated_size);
        let allocated = json!(allocated.sum::<u64>());
        tally.compare(file, "end_allocated", &allocated, &expected["end_allocated"]);
    }
    let conf = snapshot.settings.as_ref().and_then(|settings| settings.conf.clone());
    tally.compare(file, "alloc_conf", &json!(conf), &expected["device"]["alloc_conf"]);
    if let Some(free) = expected.get("oom_device_free").filter(|free| free.is_number()) {
        let ooms = trace.iter().filter(|entry| entry.action == Action::Oom);
        let found: BTreeSet<u64> = ooms.filter_map(|entry| entry.device_free).collect();
        let listed = free.as_u64().is_some_and(|free| found.contains(&free));
        tally.compare(
            file,
            "oom_device_free is among those recorded",
            &json!(listed),
            &json!(true),
        );
    }
    for (name, found) in [
        ("host_segments", snapshot.host_segments.is_some()),
        ("stacks", trace.has_stacks() == (expected["stacks"] != "none")),
        ("pool ids", trace.iter().all(|e| snapshot.tag(e.tag).is_some_and(|t| t.pool.is_some()))),
        ("no warnings", snapshot.warnings.is_empty()),
    ] {
        tally.compare(file, name, &json!(found), &json!(true));
    }
    let phases = expected.get("phases").and_then(Value::as_array).into_iter().flatten();
    let phases: BTreeMap<u64, &Value> =
        phases.filter_map(|phase| Some((phase["first_entry"].as_u64()?, &phase["text"]))).collect();
    for (first, text) in phases {
        check_phase(tally, file, snapshot, trace.get(first as usize), text);
    }
}

/// Where a phase begins, the entry carries its name, unless another thread made it.
fn check_phase(
    tally: &mut Tally,
    file: &str,
    snapshot: &Snapshot,
    entry: Option<Entry>,
    text: &Value,
) {
    let found = entry.and_then(|entry| snapshot.tag(entry.tag)?.user_metadata);
    let found = found.map_or("", |found| snapshot.text(found));
    if !found.is_empty() {
        tally.compare(file, "phase", &json!(found), text);
    }
}

/// What the folder's README says about the made files: those named `bad_` must be refused (all but the one that is only
/// inconsistent), and those re-encoded must have the content of their originals.
#[test]
fn recorded_pytorch_reader_made_files() {
    let Some(shared) = shared("recorded_pytorch_reader_made_files") else { return };
    let Ok(folder) = std::fs::read_dir(shared.join("traces/pytorch/made")) else { return };
    let (mut files, mut refused) = (0, 0);
    for file in folder.map(|file| file.expect("a file").path()) {
        if file.extension().is_none_or(|extension| extension != "pickle") {
            continue;
        }
        files += 1;
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        match torch_snapshot::open(&file) {
            Ok(snapshot) if name.starts_with("bad_") => {
                let tiles = |warning: &Warning| {
                    matches!(
                        warning,
                        Warning::BlocksDoNotFill { .. } | Warning::BlockOutOfPlace { .. }
                    )
                };
                assert!(snapshot.warnings.iter().any(tiles), "{name} was read without a warning");
            }
            Ok(snapshot) => {
                let unknown = snapshot.unknown_actions.len();
                let warned = snapshot.warnings.iter();
                let warned = warned.filter(|w| matches!(w, Warning::UnknownAction { .. })).count();
                assert_eq!(warned, unknown, "{name}");
                assert_eq!(name.contains("unknown_action"), unknown > 0, "{name}");
            }
            Err(error) => {
                assert!(name.starts_with("bad_"), "{error}");
                println!("refused {}", error.to_string().split_once(&name).expect("named").1);
                refused += 1;
            }
        }
    }
    println!("recorded_pytorch_reader_made_files: {files} files, {refused} refused");
}
