//! `serving.paged` against what vLLM's KV-cache manager did, and together with the scheduler of `vramlab_workloads::serving` against what its scheduler
//! did. The two crates do not know each other; only this test joins them, as one recording is of both.
#![forbid(unsafe_code)]

mod golden_cases;
#[path = "golden_vllm/serving.rs"]
mod serving;

use std::collections::BTreeMap;

use golden_cases::{Case, Subject};
use serde_json::{Value, json};
use vramlab_allocators::serving::paged::Paged;
use vramlab_allocators::{Options, build};
use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{Allocator, Notice, Reply};
use vramlab_sim::kv::{Below, KeyRun, KvCache, KvError, MoreTokens, NewSequence, Sequence};

/// A request of a case.
struct Request {
    sequence: Sequence,
    /// Prompt and output so far.
    known: Vec<KeyRun>,
    /// Of these, tokens with slots.
    computed: usize,
    outputs: u64,
}

/// The cache of a case.
struct Manager {
    paged: Paged,
    arena: Box<dyn Allocator>,
    machine: SimMachine,
    ordinal: u64,
    block_size: usize,
    dump: bool,
    requests: BTreeMap<u64, Request>,
    /// Ops that found no room.
    refused: u64,
}

/// The numbers of a sequence's blocks, by where they are in the pool.
fn block_numbers(paged: &Paged, layout: Result<Reply, KvError>, sequence: Sequence) -> Vec<u64> {
    let Ok(Reply::Layout(layout)) = layout else { panic!("expected a layout") };
    let (base, size) = (layout.segments[0].address, layout.segments[0].blocks[0].size);
    let table = paged.table(sequence).expect("it is live");
    table.iter().map(|range| (range.address - base) / size).collect()
}

/// A cache with the settings of a case.
fn cache_of(case: &Case) -> Paged {
    let named = |option: &str, key: &str| {
        let value = case.value(&format!("config/{key}"));
        (option.to_owned(), value.map_or("0".to_owned(), ToString::to_string))
    };
    let options = Options::from_pairs([
        named("block_size", "block_size"),
        named("num_gpu_blocks_override", "num_blocks"),
        named("enable_prefix_caching", "enable_prefix_caching"),
        named("watermark", "watermark"),
        named("max_model_len", "max_model_len"),
    ]);
    Paged::from_options(&options).expect("a case's settings are vLLM's")
}

/// Token `j` of stream `s`, as the set's README has it.
fn token(s: u64, j: u64) -> KeyRun {
    KeyRun::token((s * 1_000_003 + j * 7919 + 17) % 50_000)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("expected a number, found {value}"))
}

fn prompt(segments: &Value) -> Vec<KeyRun> {
    let segments = segments.as_array().expect("a prompt is a list of segments");
    let tokens = |segment: &Value| {
        let [s, first, count] = [0, 1, 2].map(|i| number(&segment[i]));
        (first..first + count).map(move |j| token(s, j))
    };
    segments.iter().flat_map(tokens).collect()
}

impl Manager {
    fn of_case(case: &Case) -> Self {
        Self {
            paged: cache_of(case),
            arena: build(&"cuda.malloc".parse().expect("a spec")).expect("builds"),
            machine: case.machine(),
            ordinal: 0,
            block_size: case.number("config/block_size").expect("a block size") as usize,
            dump: case.flag("config/dump_free_queue"),
            requests: BTreeMap::new(),
            refused: 0,
        }
    }

    fn call<T>(&mut self, act: impl FnOnce(&mut Paged, &mut Below<'_>) -> T) -> T {
        let Self { paged, arena, machine, ordinal, .. } = self;
        act(paged, &mut Below { arena: &mut **arena, driver: machine, ordinal })
    }

    /// The numbers of a sequence's blocks.
    fn blocks(&mut self, sequence: Sequence) -> Vec<u64> {
        let layout = self.call(|paged, below| paged.notice(below, Notice::Walk));
        block_numbers(&self.paged, layout, sequence)
    }

    fn new_request(&mut self, id: u64, op: &[Value]) -> Vec<Value> {
        let known = prompt(&op[2]);
        let new = NewSequence {
            tokens: known.len() as u64,
            keys: &known,
            chunk: Some(number(&op[3])).filter(|chunk| *chunk > 0),
            watermark: op.get(4).is_some_and(|run| number(run) == 1),
            token_bytes: Some(64),
            ..NewSequence::default()
        };
        match self.call(|paged, below| paged.begin(below, &new)) {
            Ok(admitted) => {
                let hit = admitted.hit as usize;
                let (sequence, tokens) = (admitted.sequence, known.len() - hit);
                let computed = hit + new.chunk.map_or(tokens, |chunk| tokens.min(chunk as usize));
                let blocks = self.blocks(sequence);
                let (found, taken) = blocks.split_at(hit / self.block_size);
                assert_eq!(taken.len() as u64, admitted.blocks);
                self.requests.insert(id, Request { sequence, known, computed, outputs: 0 });
                vec![json!("A"), json!(hit), json!(found), json!(taken)]
            }
            Err(KvError::Full(full)) => vec![json!("O"), json!(full.hit)],
            Err(error) => panic!("{error}"),
        }
    }

    /// Slots for the next `count` known tokens; the new blocks, or `None` if there is no room.
    fn more(&mut self, id: u64, count: usize) -> Option<Vec<u64>> {
        let Request { sequence, ref known, computed, .. } = self.requests[&id];
        let keys = known[computed..computed + count].to_vec();
        let before = self.blocks(sequence).len();
        let more = MoreTokens { tokens: count as u64, keys: &keys };
        match self.call(|paged, below| paged.more(below, sequence, &more)) {
            Ok(_) => {}
            Err(KvError::Full(_)) => return None,
            Err(error) => panic!("{error}"),
        }
        self.requests.get_mut(&id).expect("it is live").computed += count;
        Some(self.blocks(sequence).split_off(before))
    }

    fn pending(&self, id: u64) -> usize {
        self.requests[&id].known.len() - self.requests[&id].computed
    }

    fn prefill(&mut self, id: u64, most: usize) -> Vec<Value> {
        match self.pending(id).min(most) {
            0 => vec![json!("Z")],
            count => match self.more(id, count) {
                Some(blocks) => vec![json!("B"), json!(blocks)],
                None => vec![json!("O")],
            },
        }
    }

    fn decode(&mut self, id: u64, steps: u64) -> Vec<Value> {
        let (mut done, mut taken) = (0, Vec::new());
        while done < steps {
            if self.pending(id) == 0 {
                let request = self.requests.get_mut(&id).expect("it is live");
                request.known.push(token(id, request.outputs));
                request.outputs += 1;
            }
            let Some(blocks) = self.more(id, self.pending(id)) else { break };
            taken.extend(blocks);
            done += 1;
        }
        vec![json!("D"), json!(done), json!(taken)]
    }
}

impl Subject for Manager {
    fn op(&mut self, op: &[Value]) -> Vec<Value> {
        let id = op.get(1).map_or(0, number);
        let mut row = match op[0].as_str().expect("an op has a name") {
            "new" => self.new_request(id, op),
            "reset" => vec![json!("R"), json!(u64::from(self.paged.reset_prefix_cache()))],
            _ if !self.requests.contains_key(&id) => vec![json!("N")],
            "more" => self.prefill(id, number(&op[2]) as usize),
            "dec" => self.decode(id, number(&op[2])),
            "free" => {
                let Request { sequence, .. } = self.requests.remove(&id).expect("it is live");
                self.call(|paged, below| paged.end(below, sequence)).expect("it is live");
                vec![json!("F")]
            }
            other => panic!("unknown op {other:?}"),
        };
        self.refused += u64::from(row[0] == "O");
        row.extend([json!(self.paged.usage().free), json!(self.paged.cached_contents())]);
        if self.dump {
            row.push(json!(self.paged.free_queue().collect::<Vec<_>>()));
        }
        row
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        vec![("oom", self.refused)]
    }
}

#[test]
fn golden_vllm() {
    golden_cases::golden("vllm", |case| match case.text("allocator") {
        Some("vllm/scheduler") => Some(Box::new(serving::Server::of_case(case))),
        _ => Some(Box::new(Manager::of_case(case))),
    });
}
