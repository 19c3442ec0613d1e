//! Runs one case. Forms, fields and neutral names: `cases/README.md` of the shared sets.

mod cache;
mod kv;
mod messages;
mod planned;
mod pymalloc;
mod scheduled;
mod snapshot;
mod table;
mod trace;

use serde_json::Value;

/// Derived values (not from a report) that the recorded rules of the real system contradict: case, field, why.
const ARGUED: &[(&str, &str, &str)] = &[(
    "s17-variable-needs-two-copies",
    "peak_allocated",
    "the second block is handed out whole, since 22 MiB would be left and 128 MiB are needed (golden case bf04), and counts in full",
)];

/// What was run and what differed.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) cases: u64,
    pub(crate) run: u64,
    pub(crate) checks: u64,
    pub(crate) skipped: Vec<String>,
    /// Derived values that the real system contradicts.
    pub(crate) argued: Vec<String>,
    pub(crate) differences: Vec<String>,
}

impl Tally {
    pub(crate) fn skip(&mut self, id: &str, why: impl std::fmt::Display) {
        self.skipped.push(format!("{id}: {why}"));
    }

    /// Compares, by the check's own `cmp`.
    pub(crate) fn check(&mut self, id: &str, check: &Value, found: &Value) {
        self.checks += 1;
        let want = &check["value"];
        let number = |v: &Value| v.as_f64();
        let good = match check["cmp"].as_str() {
            Some("ge") => number(want).is_some() && number(found) >= number(want),
            Some("le") => number(found).is_some() && number(found) <= number(want),
            Some("between") => {
                number(&want[0]) <= number(found) && number(found) <= number(&want[1])
            }
            _ => match (number(found), number(want), number(&check["tolerance"])) {
                (Some(found), Some(want), Some(tolerance)) => (found - want).abs() <= tolerance,
                (Some(found), Some(want), None) => {
                    (found - want).abs() < f64::EPSILON * want.abs().max(1.0)
                }
                _ => found == want,
            },
        };
        if good {
            return;
        }
        let argued = ARGUED.iter().find(|(case, field, _)| {
            id.starts_with(case) && check["field"] == *field && check["basis"] == "derived"
        });
        match argued {
            Some((_, field, why)) => {
                self.argued.push(format!("{id}: {field}: found {found}: {why}"));
            }
            None => self.differences.push(format!("{id}: {check}: found {found}")),
        }
    }
}

/// Runs a case, or says why not.
pub(crate) fn run_case(case: &Value, tally: &mut Tally) {
    tally.cases += 1;
    let id = case["id"].as_str().unwrap_or("(no id)");
    let input = &case["input"];
    let checks: Vec<&Value> = case["expect"].as_array().into_iter().flatten().collect();
    let ran = match input["form"].as_str().unwrap_or_default() {
        "trace" => trace::run(id, input, &checks, tally),
        "table" => table::run(id, input, &checks, tally),
        "snapshot_json" | "pickle_hex" => snapshot::run(id, input, &checks, tally),
        "kv" => kv::run(id, input, &checks, tally),
        "oom_messages" => messages::run(id, input, &checks, tally),
        "pymalloc" => pymalloc::run(id, input, &checks, tally),
        other => Err(format!("form {other:?} is not known")),
    };
    match ran {
        Ok(()) => tally.run += 1,
        Err(why) => tally.skip(id, why),
    }
}

/// Our name of a strategy.
pub(crate) fn our_name(neutral: &str) -> Option<&'static str> {
    let name = match neutral {
        "torch_native" => "torch.caching",
        "buddy" => "classic.buddy",
        "cuda_async_pool" => "cuda.async_pool",
        "tf_bfc" => "tensorflow.bfc",
        "ort_bfc_arena" => "onnxruntime.arena",
        "cupy_pool" => "cupy.pool",
        "rmm_pool" => "rmm.pool",
        "torch_pinned_host" => "torch.pinned_host",
        other => {
            return vramlab_allocators::STRATEGIES
                .iter()
                .map(|s| s.name)
                .find(|n| n.replace('.', "_") == other);
        }
    };
    Some(name)
}

/// A JSON scalar as option text.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
