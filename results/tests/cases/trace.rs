//! Cases whose input is a list of ops.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vramlab_allocators::{Options, Spec, build, find};
use vramlab_sim::allocator::{Allocator, BlockState, Layout, Notice, Reply};
use vramlab_sim::device::SimMachine;
use vramlab_sim::engine::{Observer, Outcome, Seen, Setup, run as run_engine};
use vramlab_sim::op::Op;
use vramlab_sim::report::Report;
use vramlab_sim::trace::JsonlSource;

use super::{Tally, our_name, text};

/// Figures at a moment.
#[derive(Clone, Copy, Default)]
struct Moment {
    allocated: u64,
    reserved: u64,
    peak_allocated: u64,
    peak_reserved: u64,
    ooms: u64,
}

/// Remembers what checks may ask for.
#[derive(Default)]
struct Recorder {
    /// Ops that stand before the case's own.
    prepended: u64,
    now: Moment,
    at_op: Vec<(Moment, &'static str)>,
    at_mark: BTreeMap<String, Moment>,
    addresses: BTreeMap<u64, u64>,
}

impl Observer for Recorder {
    fn after(&mut self, seen: &Seen<'_>) {
        let now = &mut self.now;
        now.allocated = seen.usage.allocated;
        now.reserved = seen.held.reserved;
        now.peak_allocated = now.peak_allocated.max(now.allocated);
        now.peak_reserved = seen.held.peak_reserved;
        let result = match seen.outcome {
            Outcome::Refused(_) | Outcome::NoSlots(_) => "oom",
            Outcome::Skipped => "skip",
            Outcome::Done | Outcome::Placed(_) | Outcome::Slots { .. } => "ok",
        };
        if result == "oom" {
            now.ooms += 1;
        }
        if let (Op::Alloc { id, .. }, Outcome::Placed(placement)) = (seen.op, seen.outcome) {
            self.addresses.insert(seen.source.name(*id), placement.address);
        }
        if let Op::Mark { name } = seen.op {
            self.at_mark.insert(seen.source.text(*name).to_owned(), *now);
        }
        if seen.index >= self.prepended {
            self.at_op.push((*now, result));
        }
    }
}

/// What a variant gave.
struct Ran {
    report: Report,
    recorder: Recorder,
    layout: Layout,
    notes: Vec<String>,
}

/// Runs every check of a trace case, each on its variant; a run is made once.
pub(crate) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    let neutral = input["allocator"].as_str().unwrap_or_default();
    let names: Vec<&str> = match neutral {
        "any" | "every strategy" | "any caching strategy" => {
            let able = vramlab_allocators::STRATEGIES.iter().filter(|s| !s.is_cache());
            able.map(|s| s.name).collect()
        }
        other => vec![our_name(other).unwrap_or(other)],
    };
    for name in names {
        find(name).map_err(|_| format!("{name} is not here yet"))?;
        let mut runs: BTreeMap<String, Ran> = BTreeMap::new();
        for check in checks {
            let label = format!("{id} ({name}, {})", check["variant"].as_str().unwrap_or("plain"));
            match found(name, input, check, &mut runs) {
                Ok(found) => tally.check(&label, check, &found),
                Err(why) => tally.skip(&label, format!("{}: {why}", check["field"])),
            }
        }
    }
    Ok(())
}

/// The run that a check means.
fn ran<'r>(
    name: &str,
    input: &Value,
    variant: &str,
    ops_key: &str,
    runs: &'r mut BTreeMap<String, Ran>,
) -> Result<&'r Ran, String> {
    let key = format!("{variant}/{ops_key}");
    if !runs.contains_key(&key) {
        let made = run_variant(name, input, variant, ops_key)?;
        runs.insert(key.clone(), made);
    }
    Ok(&runs[&key])
}

fn found(
    name: &str,
    input: &Value,
    check: &Value,
    runs: &mut BTreeMap<String, Ran>,
) -> Result<Value, String> {
    let variant = check["variant"].as_str().unwrap_or_default();
    let ops_key = check["ops"].as_str().unwrap_or("ops");
    let field = check["field"].as_str().unwrap_or_default();
    if field == "reserved_difference_between_variants" {
        let names: Vec<&str> = input["variants"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|v| v["name"].as_str())
            .collect();
        let [a, b] = names.as_slice() else { return Err("expected two variants".to_owned()) };
        let a = ran(name, input, a, ops_key, runs)?.recorder.now.reserved;
        let b = ran(name, input, b, ops_key, runs)?.recorder.now.reserved;
        return Ok(json!(a.abs_diff(b)));
    }
    let ran = ran(name, input, variant, ops_key, runs)?;
    let r = &ran.recorder;
    let moment = match &check["at"] {
        Value::Number(index) => r
            .at_op
            .get(index.as_u64().unwrap_or(u64::MAX) as usize)
            .map(|(m, _)| *m)
            .ok_or("no such op")?,
        Value::String(mark) if mark == "end" || mark.contains("..") => r.now,
        Value::String(mark) => *r.at_mark.get(mark).ok_or("no such mark")?,
        _ => r.now,
    };
    let counter = |name: &str| {
        ran.report
            .counter(name)
            .map(|v| json!(v))
            .ok_or(format!("the strategy has no counter {name}"))
    };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let rows = |f: fn(&Moment) -> u64| {
        let at = check["at"].as_str().unwrap_or_default();
        let last: usize = at.rsplit("row").next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let row =
            |n: usize| r.at_mark.get(&format!("row{n}")).map_or(Value::Null, |m| json!(mib(f(m))));
        Value::Array((1..=last).map(row).collect())
    };
    Ok(match field {
        "allocated" => json!(moment.allocated),
        "reserved" => json!(moment.reserved),
        "peak_allocated" => json!(moment.peak_allocated),
        "peak_reserved" => json!(moment.peak_reserved),
        "ooms" => json!(moment.ooms),
        "allocated_mib_floor" => json!(moment.allocated >> 20),
        "peak_allocated_mib_rows" => rows(|m| m.peak_allocated),
        "peak_reserved_mib_rows" => rows(|m| m.peak_reserved),
        "first_oom_op_index" => {
            ran.report.first_oom_op.map_or(Value::Null, |op| json!(op - r.prepended))
        }
        "op_result" => {
            let index = check["at"].as_u64().unwrap_or(u64::MAX) as usize;
            json!(r.at_op.get(index).map_or("none", |(_, result)| result))
        }
        "num_alloc_retries" | "gc_released_blocks" => counter(field)?,
        "pool_size" | "free_bytes" | "total_bytes" => counter(field)?,
        "used" => counter("used_bytes")?,
        "upstream_blocks" => {
            let sizes = ran.layout.segments.iter().map(|segment| segment.size);
            json!(sizes.collect::<Vec<_>>())
        }
        "inactive_split_bytes" => counter(field)?,
        "hazards" => json!(ran.report.race_count),
        "same_address" | "different_address" => {
            let ids: Vec<u64> =
                check["value"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
            let addresses: Vec<_> = ids.iter().filter_map(|id| r.addresses.get(id)).collect();
            let same = addresses.windows(2).all(|w| w[0] == w[1]) && addresses.len() == ids.len();
            if same == (field == "same_address") {
                check["value"].clone()
            } else {
                json!(addresses)
            }
        }
        "region_sizes_mib" => {
            let mut sizes: Vec<u64> = ran.layout.segments.iter().map(|s| s.size >> 20).collect();
            sizes.sort_unstable();
            json!(sizes)
        }
        "cached_bytes_on_stream_1" => {
            let own =
                ran.layout.segments.iter().filter(|s| s.stream.0 == 1).flat_map(|s| &s.blocks);
            json!(own.filter(|b| b.state == BlockState::Free).map(|b| b.size).sum::<u64>())
        }
        "os_allocations" => {
            let calls = ran.report.driver_calls.get("cudaMalloc");
            json!(calls + ran.report.driver_work.pool_growths)
        }
        "warning_contains" => {
            let wanted = check["value"].as_str().unwrap_or_default();
            if ran.notes.iter().any(|n| n.contains(wanted)) {
                check["value"].clone()
            } else {
                json!(ran.notes)
            }
        }
        _ => return Err("the field is not known to this runner".to_owned()),
    })
}

fn run_variant(name: &str, input: &Value, variant: &str, ops_key: &str) -> Result<Ran, String> {
    let empty = Value::Null;
    let chosen = input["variants"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|v| v["name"] == variant)
        .unwrap_or(&empty);
    let mut options: BTreeMap<String, String> = BTreeMap::new();
    let (mut private_pool, mut dropped) = (false, Vec::new());
    for config in [&input["config"], &chosen["config"]] {
        for (key, value) in config.as_object().into_iter().flatten() {
            match key.as_str() {
                "private_pool" => private_pool = value == true,
                "rounding" => drop(options.insert("version".to_owned(), "legacy".to_owned())),
                "release_idle_before_device_alloc" => {
                    // what is meant by not releasing is the first version, which never did
                    let option = if value == true {
                        "free_when_no_cache_hit"
                    } else {
                        "allow_free_idle_chunk"
                    };
                    options.insert(option.to_owned(), text(value));
                }
                _ => drop(options.insert(key.clone(), text(value))),
            }
        }
    }
    dropped.extend(chosen["drop_ops_with_id"].as_array().into_iter().flatten());
    let capacity = [&chosen["capacity"], &input["capacity"]]
        .into_iter()
        .find_map(Value::as_u64)
        .unwrap_or(80 << 30);
    let context = [&chosen["context_overhead"], &input["context_overhead"]]
        .into_iter()
        .find_map(Value::as_u64)
        .unwrap_or(0);
    let ops = [&chosen[ops_key], &chosen["ops"], &input[ops_key], &input["ops"]]
        .into_iter()
        .find(|o| o.is_array());
    let mut lines: Vec<String> = Vec::new();
    if private_pool {
        lines.push(json!({"op": "pool_begin", "pool": 1, "stream": 0}).to_string());
    }
    let prepended = lines.len() as u64;
    for op in ops
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|op| op["id"].is_null() || !dropped.contains(&&op["id"]))
    {
        lines.push(op.to_string());
    }
    for repeat in
        [&chosen["repeat"], &input["repeat"]].into_iter().filter(|r| r.is_object()).take(1)
    {
        let first = repeat["id"].as_u64().or(repeat["first_id"].as_u64()).unwrap_or(1_000_000);
        let count = chosen["count"].as_u64().or(repeat["count"].as_u64()).unwrap_or(0);
        for n in 0..count {
            lines.push(json!({"op": "alloc", "id": first + n, "size": repeat["size"], "stream": repeat["stream"].as_u64().unwrap_or(0)}).to_string());
        }
    }
    let spec = Spec::new(name, Options::from_pairs(options));
    let notes = (find(name).map_err(|e| e.to_string())?.inert)(&spec.strategy().options);
    let mut strategies: Vec<Box<dyn Allocator>> = vec![build(&spec).map_err(|e| e.to_string())?];
    let mut machine = SimMachine::of_capacity(capacity + context);
    let mut recorder = Recorder { prepended, ..Recorder::default() };
    let joined = lines.join("\n");
    let mut source = JsonlSource::new(joined.as_bytes(), "case");
    let setup =
        Setup { observer: Some(&mut recorder), ..Setup::new(&mut machine, &mut strategies) };
    let report = run_engine(&mut source, setup).map_err(|e| e.to_string())?;
    let layout = match strategies[0].notice(&mut machine, Notice::Walk) {
        Ok(Reply::Layout(layout)) => layout,
        _ => Layout::default(),
    };
    Ok(Ran { report, recorder, layout, notes })
}
