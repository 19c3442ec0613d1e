//! Cases about the size of a cache: the pool that `serving.paged` makes of what a device has left, and a request of full length on it.

use serde_json::{Value, json};
use vramlab_sim::driver::DriverExt;
use vramlab_sim::kv::NewSequence;

use super::Tally;
use super::cache::Cache;

/// What a device gives at once (B).
const GRANULE: u64 = 2 << 20;

/// What a row's cache came to.
struct Plan {
    /// Bytes that the server may use in all, if the row says of how many.
    budget: Option<u64>,
    /// Bytes that are left for the cache.
    kv: Option<u64>,
    blocks: u64,
    /// Tokens of a block.
    block_size: u64,
    /// Blocks of one request of full length, or that it does not fit.
    request: Option<Result<u64, u64>>,
}

pub(super) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    let rows = input["rows"].as_array().ok_or("a table without rows")?;
    for check in checks {
        let name = check["row"].as_str().unwrap_or_default();
        let row = rows.iter().find(|row| row["name"] == name);
        let plan = plan(row.ok_or(format!("no row {name}"))?)?;
        compare(&format!("{id} row {name}"), check, &plan, tally);
    }
    Ok(())
}

fn plan(row: &Value) -> Result<Plan, String> {
    let number = |key: &str| row[key].as_u64();
    let gib = |key: &str| row[key].as_f64().map(|gib| (gib * f64::from(1 << 30)) as u64);
    let block_size = number("block_size").unwrap_or(16);
    let heads = ["layers", "kv_heads", "head_dim", "bytes_per_element"].map(number);
    let token_bytes = heads.iter().try_fold(2, |product, n| Some(product * (*n)?)).unwrap_or(64);
    let block_bytes = token_bytes * block_size;
    let mut options = vec![("block_size", block_size.to_string())];
    let taken = ["weights_gib", "non_torch_gib", "activation_gib"].map(gib);
    let taken: u64 = taken.into_iter().flatten().sum();
    let mut share = row["utilization"].as_f64().unwrap_or(1.0);
    let capacity = match (gib("total_gib"), gib("kv_gib"), number("blocks")) {
        (Some(total), ..) => total,
        (None, Some(kv), _) => {
            // the device gives whole granules, so it has a little more
            let capacity = kv.next_multiple_of(GRANULE) + GRANULE;
            share = kv as f64 / capacity as f64;
            capacity
        }
        (None, None, Some(blocks)) => {
            // of the first servers: every block can be used; ours keeps block 0
            options.push(("num_gpu_blocks_override", (blocks + 1).to_string()));
            ((blocks + 1) * block_bytes).next_multiple_of(GRANULE)
        }
        _ => return Err(format!("no size in {row}")),
    };
    options.push(("gpu_memory_utilization", share.to_string()));
    let mut cache = Cache::new(options, capacity)?;
    if taken > 0 {
        cache.machine.malloc(taken).map_err(|e| e.to_string())?;
    }
    let new =
        |tokens| NewSequence { tokens, token_bytes: Some(token_bytes), ..NewSequence::default() };
    // one token makes the pool
    let first = cache.call(|cache, below| cache.begin(below, &new(1)));
    let first = first.map_err(|e| e.to_string())?;
    cache.call(|cache, below| cache.end(below, first.sequence)).map_err(|e| e.to_string())?;
    let usage = cache.usage();
    let (usable, pool) = (usage.free, usage.arena / block_bytes);
    let request = match number("max_model_len") {
        None => None,
        Some(length) => match cache.call(|cache, below| cache.begin(below, &new(length))) {
            Ok(admitted) => Some(Ok(admitted.blocks)),
            Err(error) if error.is_refusal() => Some(Err(length)),
            Err(error) => return Err(error.to_string()),
        },
    };
    let counted = number("blocks").map_or(pool, |_| usable);
    Ok(Plan {
        budget: gib("total_gib").map(|total| (total as f64 * share) as u64),
        kv: gib("total_gib").map(|_| usage.arena),
        blocks: counted,
        block_size,
        request,
    })
}

fn compare(label: &str, check: &Value, plan: &Plan, tally: &mut Tally) {
    let gib = |bytes: Option<u64>| json!(bytes.map(|bytes| bytes as f64 / f64::from(1 << 30)));
    let mut one = |field: &str, tolerance: &Value, found: Value| {
        if !check[field].is_null() {
            let wanted = json!({"field": field, "value": check[field], "tolerance": tolerance.as_f64().unwrap_or(0.0)});
            tally.check(label, &wanted, &found);
        }
    };
    one("budget_gib", &check["tolerance_gib"], gib(plan.budget));
    one("kv_gib", &check["tolerance_gib"], gib(plan.kv));
    one("tokens", &check["tolerance_tokens"], json!(plan.blocks * plan.block_size));
    // blocks are as far off as the tokens in them
    let blocks =
        check["tolerance_tokens"].as_f64().map(|tokens| json!(tokens / plan.block_size as f64));
    let blocks = blocks.unwrap_or_else(|| check["tolerance_blocks"].clone());
    one("blocks", &blocks, json!(plan.blocks));
    if let Some(Ok(needed)) = plan.request {
        one("needed_blocks", &Value::Null, json!(needed));
    }
    if let Some(verdict) = check["verdict"].as_str() {
        let found = match plan.request {
            Some(Err(length)) => format!("too small: {length} needed"),
            _ => "fits".to_owned(),
        };
        tally.check(label, &json!({"value": verdict}), &json!(found));
    }
}
