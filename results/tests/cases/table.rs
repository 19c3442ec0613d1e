//! Cases whose input is a function with rows.

use serde_json::{Value, json};
use vramlab_allocators::{Options, Spec, build};
use vramlab_sim::allocator::{AllocError, Request};
use vramlab_sim::device::SimMachine;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::{Nanos, StreamId};

use super::{Tally, our_name, planned};

/// Runs the rows of the functions that are here.
pub(crate) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    if input["function"] == "kv_plan" {
        return planned::run(id, input, checks, tally);
    }
    let allocator = input["allocator"].as_str().unwrap_or_default();
    let name = our_name(allocator)
        .filter(|n| vramlab_allocators::find(n).is_ok())
        .ok_or(format!("{allocator} is not here yet"))?;
    match input["function"].as_str().unwrap_or_default() {
        "alloc" => alloc_rows(id, name, input, checks, tally),
        "round_size" => round_rows(id, name, checks, tally),
        "chunk_size" => chunk_rows(id, name, input, checks, tally),
        other => return Err(format!("function {other:?} is not known")),
    }
    Ok(())
}

/// Each size on a fresh device: what it gives, and that a refusal changes nothing.
fn alloc_rows(id: &str, name: &str, input: &Value, checks: &[&Value], tally: &mut Tally) {
    let capacity = input["capacity"].as_u64().unwrap_or(80 << 30);
    for check in checks.iter().filter(|c| c["row"].is_string()) {
        let row = check["row"].as_str().unwrap_or_default();
        let label = format!("{id} row {row}");
        let (result, size) = match read_size(row) {
            None => ("error:invalid_size", None),
            Some(size) => {
                let mut strategy =
                    build(&Spec::new(name, Options::default())).expect("a bare strategy builds");
                let mut machine = SimMachine::of_capacity(capacity);
                let before = strategy.usage();
                match strategy
                    .alloc(&mut machine, &Request { size, stream: StreamId(0), ordinal: 0 })
                {
                    Ok(placement) => ("ok", Some(placement.size)),
                    Err(error) => {
                        tally.check(
                            &format!("{label}: usage after a refusal"),
                            &json!({"value": true}),
                            &json!(strategy.usage() == before),
                        );
                        match error {
                            AllocError::OutOfMemory(_) => ("error:out_of_memory", None),
                            _ => ("error:invalid_size", None),
                        }
                    }
                }
            }
        };
        let wanted = check["result"].as_str().unwrap_or_default();
        let good = if wanted.starts_with("ok") {
            result == "ok"
        } else if wanted.starts_with("error:") {
            wanted.contains(result)
        } else {
            result.starts_with("error")
        };
        tally.check(
            &label,
            &json!({"value": wanted, "good": true}),
            &if good { json!(wanted) } else { json!(result) },
        );
        if let (Some(rounded), Some(size)) = (check["rounded"].as_u64(), size) {
            tally.check(&label, &json!({"value": rounded}), &json!(size));
        }
    }
}

/// Bytes of a CUDA context that the measured process sizes of the case agree on (its note has 370.7 and 370.5 MiB).
const CONTEXT_MIB: f64 = 370.6;

/// Fraction of the device → MiB of the chunk that the first request makes, and what a process with so many of them shows.
fn chunk_rows(id: &str, name: &str, input: &Value, checks: &[&Value], tally: &mut Tally) {
    let total_mib = input["total_mib"].as_u64().unwrap_or(0);
    for check in checks.iter().filter(|c| c["row"].is_number()) {
        let fraction = check["row"].to_string();
        let label = format!("{id} row {fraction}");
        let options = Options::from_pairs([("fraction_of_gpu_memory_to_use", fraction)]);
        let mut strategy = build(&Spec::new(name, options)).expect("a fraction is an option");
        let mut machine = SimMachine::of_capacity(total_mib << 20);
        let request = Request { size: 1, stream: StreamId(0), ordinal: 0 };
        strategy.alloc(&mut machine, &request).expect("an empty device has a byte");
        let chunk = strategy.usage().reserved as f64 / f64::from(1 << 20);
        let wanted = json!({"value": check["chunk_mib"], "tolerance": 0.001});
        tally.check(&label, &wanted, &json!(chunk));
        let process = chunk * check["chunks"].as_f64().unwrap_or(1.0) + CONTEXT_MIB;
        let tolerance = check["tolerance_mib"].as_f64().unwrap_or(0.5);
        let wanted = json!({"value": check["process_mib"], "tolerance": tolerance});
        tally.check(&format!("{label}: process"), &wanted, &json!(process));
    }
}

/// The size of a request as a strategy gets it: what the reader of traces makes of this text, if it takes it.
fn read_size(text: &str) -> Option<u64> {
    let line = format!("{{\"op\":\"alloc\",\"id\":1,\"size\":{text}}}");
    match JsonlSource::new(line.as_bytes(), "row").next(Nanos(0), Answered::Done) {
        Ok(Step::Op(Op::Alloc { size, .. })) => Some(size),
        Ok(other) => panic!("{line} was read as {other:?}"),
        Err(_) => None,
    }
}

/// [size, divisions] → block size. The block of a fresh device is cut to the rounded size in every row of at least 512 B of rest.
fn round_rows(id: &str, name: &str, checks: &[&Value], tally: &mut Tally) {
    for check in checks.iter().filter(|c| c["row"].is_array()) {
        let (size, divisions) =
            (check["row"][0].as_u64().unwrap_or(0), check["row"][1].as_u64().unwrap_or(0));
        let classes: Vec<(u64, u64)> = if divisions == 0 {
            Vec::new()
        } else {
            (0..=16).map(|n| (1 << n, divisions)).collect()
        };
        assert_eq!(name, "torch.caching", "the one strategy with this function");
        let rounded = vramlab_allocators::torch::rounded(&classes, size);
        tally.check(&format!("{id} row {}", check["row"]), check, &json!(rounded));
        tally.check(
            &format!("{id}: a multiple of 512"),
            &json!({"value": 0}),
            &json!(rounded % 512),
        );
    }
}
