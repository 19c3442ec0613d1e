//! Cases whose input is requests of a paged cache: one after the other here, side by side in `scheduled`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vramlab_sim::kv::{Admitted, KeyRun, NewSequence};

use super::cache::Cache;
use super::{Tally, scheduled};

/// Bytes of a token; no figure of a case depends on it.
const TOKEN_BYTES: u64 = 64;

/// What a request did.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    hit_blocks: u64,
    /// Contents whose blocks it took.
    evicted: Vec<String>,
}

/// Runs a case of requests one after the other.
pub(crate) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    let Some(requests) = input["requests_sequential"].as_array() else {
        return scheduled::run(id, input, checks, tally);
    };
    let runs = input["repeat_runs"].as_u64().unwrap_or(1).max(1);
    let outcomes: Vec<Vec<Seen>> =
        (0..runs).map(|_| Server::new(input)?.serve(requests)).collect::<Result<_, String>>()?;
    for check in checks {
        match found(check, requests, &outcomes) {
            Ok(found) => tally.check(id, check, &found),
            Err(why) => tally.skip(id, format!("{}: {why}", check["field"])),
        }
    }
    Ok(())
}

fn found(check: &Value, requests: &[Value], outcomes: &[Vec<Seen>]) -> Result<Value, String> {
    let field = check["field"].as_str().unwrap_or_default();
    if field == "distinct_outcomes_over_runs" {
        let mut different: Vec<&Vec<Seen>> = Vec::new();
        for outcome in outcomes {
            if !different.contains(&outcome) {
                different.push(outcome);
            }
        }
        return Ok(json!(different.len()));
    }
    let at = check["at"].as_str().and_then(|at| at.strip_prefix("request "));
    let at: Option<u64> = at.and_then(|id| id.parse().ok());
    let index = requests.iter().position(|request| request["id"].as_u64() == at);
    let seen = index.and_then(|index| outcomes[0].get(index)).ok_or("no such request")?;
    match field {
        "prefix_hit_blocks" => Ok(json!(seen.hit_blocks)),
        "evicted_block_content" => Ok(json!(seen.evicted.join(" "))),
        _ => Err("the field is not known to this runner".to_owned()),
    }
}

/// A cache that serves one request at a time.
struct Server {
    cache: Cache,
    block_size: u64,
    /// What the block at each address held last.
    contents: BTreeMap<u64, String>,
}

impl Server {
    fn new(input: &Value) -> Result<Self, String> {
        let block_size = input["block_size"].as_u64().unwrap_or(0).max(1);
        Ok(Self { cache: Cache::of_case(input)?, block_size, contents: BTreeMap::new() })
    }

    fn serve(mut self, requests: &[Value]) -> Result<Vec<Seen>, String> {
        requests.iter().map(|request| self.request(request)).collect()
    }

    fn request(&mut self, request: &Value) -> Result<Seen, String> {
        let names: Vec<&str> = request["prompt_blocks"]
            .as_array()
            .ok_or("a request without prompt_blocks")?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let mut keys: Vec<KeyRun> = Vec::new();
        for name in &names {
            let stream = name.bytes().fold(0, |sum, byte| sum << 8 | u64::from(byte));
            keys.push(KeyRun { stream, first: 0, count: self.block_size });
        }
        let new = NewSequence {
            tokens: names.len() as u64 * self.block_size,
            keys: &keys,
            chunk: (request["lookup_only"] == true).then_some(0),
            token_bytes: Some(TOKEN_BYTES),
            ..NewSequence::default()
        };
        let begun = self.cache.call(|cache, below| cache.begin(below, &new));
        let Admitted { sequence, hit, .. } = begun.map_err(|e| e.to_string())?;
        let hit_blocks = hit / self.block_size;
        let table = self.cache.call(|cache, _| cache.table(sequence)).map_err(|e| e.to_string())?;
        let taken = table.iter().zip(&names).skip(hit_blocks as usize);
        let evicted = taken
            .filter_map(|(range, name)| self.contents.insert(range.address, (*name).to_owned()))
            .collect();
        self.cache.call(|cache, below| cache.end(below, sequence)).map_err(|e| e.to_string())?;
        Ok(Seen { hit_blocks, evicted })
    }
}
