//! vLLM's scheduler over `serving.paged`: one row a step, as the set's README has it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use vramlab_allocators::build;
use vramlab_allocators::serving::paged::Paged;
use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{Allocator, Notice};
use vramlab_sim::kv::{Below, KeyRun, KvCache, KvError, MoreTokens, NewSequence, Sequence};
use vramlab_sim::source::Answered;
use vramlab_workloads::serving::scheduler::{
    Ask, Config, Kind, NewSlots, Pending, Policy, RequestId, Scheduler,
};

use crate::golden_cases::{Case, Subject};
use crate::{block_numbers, cache_of, number, prompt, token};

/// A request of the case.
struct Served {
    id: u64,
    /// Prompt and output so far.
    known: Vec<KeyRun>,
    sequence: Option<Sequence>,
    /// Blocks that it got in this step, or its whole table when it was admitted.
    blocks: Vec<u64>,
    hits: u64,
}

/// The server of a case.
pub(crate) struct Server {
    paged: Paged,
    arena: Box<dyn Allocator>,
    machine: SimMachine,
    ordinal: u64,
    dump: bool,
    /// Of the pool, with the null block.
    blocks: u32,
    scheduler: Scheduler,
    /// Not arrived yet, the next one last: when, and the request.
    coming: Vec<(u64, u64, Vec<KeyRun>, Pending)>,
    served: BTreeMap<RequestId, Served>,
    steps: u64,
    requests: u64,
    preemptions: u64,
    finished: u64,
    hit_tokens: u64,
    min_free: u64,
}

impl Server {
    pub(crate) fn of_case(case: &Case) -> Self {
        let setting = |key: &str| case.number(&format!("config/{key}"));
        let on = |key: &str| {
            case.value(&format!("config/{key}")).and_then(Value::as_bool).unwrap_or(true)
        };
        let config = Config {
            max_num_seqs: setting("max_num_seqs").expect("a case says it"),
            max_num_batched_tokens: setting("max_num_batched_tokens").expect("a case says it"),
            max_model_len: setting("max_model_len"),
            long_prefill_token_threshold: setting("long_prefill_token_threshold").unwrap_or(0),
            enable_chunked_prefill: on("enable_chunked_prefill"),
            scheduler_reserve_full_isl: on("scheduler_reserve_full_isl"),
            policy: match case.text("config/policy") {
                Some("priority") => Policy::Priority,
                _ => Policy::Fcfs,
            },
            ..Config::default()
        };
        let coming = case.list("requests").iter().map(|request| {
            let known = prompt(&request["prompt"]);
            let pending = Pending {
                prompt: known.len() as u64,
                max_tokens: number(&request["max_tokens"]),
                priority: request["priority"].as_i64().unwrap_or(0),
            };
            (number(&request["arrive"]), number(&request["id"]), known, pending)
        });
        let mut coming: Vec<_> = coming.collect();
        coming.sort_by_key(|(arrive, ..)| *arrive);
        coming.reverse();
        Self {
            paged: cache_of(case),
            arena: build(&"cuda.malloc".parse().expect("a spec")).expect("builds"),
            machine: case.machine(),
            ordinal: 0,
            dump: case.flag("config/dump_free_queue"),
            blocks: setting("num_blocks").expect("a case says it") as u32,
            scheduler: Scheduler::new(config),
            coming,
            served: BTreeMap::new(),
            steps: 0,
            requests: 0,
            preemptions: 0,
            finished: 0,
            hit_tokens: 0,
            min_free: u64::MAX,
        }
    }

    fn call<T>(&mut self, act: impl FnOnce(&mut Paged, &mut Below<'_>) -> T) -> T {
        let Self { paged, arena, machine, ordinal, .. } = self;
        act(paged, &mut Below { arena: &mut **arena, driver: machine, ordinal })
    }

    fn arrive(&mut self) {
        while self.coming.last().is_some_and(|(arrive, ..)| *arrive <= self.steps) {
            let Some((_, id, known, pending)) = self.coming.pop() else { return };
            let request = self.scheduler.add(pending);
            self.requests += 1;
            let served = Served { id, known, sequence: None, blocks: Vec::new(), hits: 0 };
            self.served.insert(request, served);
        }
    }

    /// The blocks of a request's sequence after the first `skip`.
    fn blocks(&mut self, sequence: Sequence, skip: usize) -> Vec<u64> {
        let layout = self.call(|paged, below| paged.notice(below, Notice::Walk));
        block_numbers(&self.paged, layout, sequence).split_off(skip)
    }

    fn begin(&mut self, ask: NewSlots) -> Answered {
        let known = self.served[&ask.request].known.clone();
        let new = NewSequence {
            tokens: ask.tokens,
            keys: &known,
            chunk: ask.chunk,
            whole: ask.whole,
            headroom: ask.reserve.then_some(0),
            watermark: ask.watermark,
            token_bytes: Some(64),
            ..NewSequence::default()
        };
        match self.call(|paged, below| paged.begin(below, &new)) {
            Ok(admitted) => {
                let blocks = self.blocks(admitted.sequence, 0);
                let served = self.served.get_mut(&ask.request).expect("it waits");
                (served.sequence, served.blocks) = (Some(admitted.sequence), blocks);
                served.hits = admitted.hit;
                Answered::Slots { hit: admitted.hit, blocks: admitted.blocks }
            }
            Err(error) => refused(&error),
        }
    }

    fn more(&mut self, request: RequestId, from: u64, tokens: u64) -> Answered {
        let served = &self.served[&request];
        let sequence = served.sequence.expect("it runs");
        let keys = served.known[from as usize..(from + tokens) as usize].to_vec();
        let before = self.paged.table(sequence).expect("it is live").len();
        let more = MoreTokens { tokens, keys: &keys };
        match self.call(|paged, below| paged.more(below, sequence, &more)) {
            Ok(blocks) => {
                let new = self.blocks(sequence, before);
                self.served.get_mut(&request).expect("it runs").blocks = new;
                Answered::Slots { hit: 0, blocks }
            }
            Err(error) => refused(&error),
        }
    }

    fn free(&mut self, request: RequestId) {
        let sequence = self.served.get_mut(&request).and_then(|served| served.sequence.take());
        self.call(|paged, below| paged.end(below, sequence.expect("it runs"))).expect("it is live");
    }

    /// The rows of a planned step.
    fn rows(&mut self) -> Vec<Value> {
        let mut rows = Vec::new();
        for part in self.scheduler.plan() {
            let served = &self.served[&part.request];
            let kind = match part.kind {
                Kind::Running => "run",
                Kind::New => "new",
                Kind::Resumed => "res",
            };
            if part.kind == Kind::New {
                self.hit_tokens += served.hits;
            }
            rows.push(json!([served.id, part.tokens, part.computed, kind, served.blocks]));
        }
        rows
    }

    /// The step gives its tokens; who is finished.
    fn complete(&mut self) -> Vec<RequestId> {
        self.scheduler.launch();
        self.scheduler.complete();
        let mut finished = Vec::new();
        for output in self.scheduler.outputs() {
            let served = self.served.get_mut(&output.request).expect("it runs");
            served.known.push(token(served.id, output.number - 1));
            if output.finished {
                finished.push(output.request);
            }
        }
        finished
    }

    /// Free blocks in order. Before its first sequence the pool is not there: then all but the null block.
    fn free_queue(&self) -> Vec<u32> {
        match self.paged.usage().token_bytes {
            0 => (1..self.blocks).collect(),
            _ => self.paged.free_queue().collect(),
        }
    }

    fn ids(&self, requests: impl Iterator<Item = RequestId>) -> Vec<u64> {
        requests.map(|request| self.served[&request].id).collect()
    }
}

fn refused(error: &KvError) -> Answered {
    assert!(error.is_refusal(), "{error}");
    Answered::OutOfMemory
}

impl Subject for Server {
    fn row(&mut self, _: &Value) -> Value {
        let mut row = Map::new();
        row.insert("s".to_owned(), json!(self.steps));
        self.arrive();
        let (mut answer, mut finished) = (Answered::Done, Vec::new());
        loop {
            match self.scheduler.next(std::mem::take(&mut answer)) {
                Ask::New(ask) => answer = self.begin(ask),
                Ask::More { request, from, tokens } => answer = self.more(request, from, tokens),
                Ask::Free(request) => self.free(request),
                Ask::SwapIn { .. } | Ask::SwapOut { .. } => panic!("no case swaps"),
                Ask::Planned => {
                    row.insert("sched".to_owned(), json!(self.rows()));
                    let preempted = self.scheduler.preempted().iter().copied();
                    let mut preempted = self.ids(preempted);
                    preempted.sort_unstable();
                    self.preemptions += preempted.len() as u64;
                    if !preempted.is_empty() {
                        row.insert("preempted".to_owned(), json!(preempted));
                    }
                    finished = self.complete();
                }
                Ask::Idle => break,
            }
        }
        if !finished.is_empty() {
            self.finished += finished.len() as u64;
            row.insert("finished".to_owned(), json!(self.ids(finished.iter().copied())));
        }
        row.insert("running".to_owned(), json!(self.ids(self.scheduler.running().iter().copied())));
        row.insert("waiting".to_owned(), json!(self.ids(self.scheduler.waiting())));
        let queue = self.free_queue();
        self.min_free = self.min_free.min(queue.len() as u64);
        row.insert("free".to_owned(), json!(queue.len()));
        if self.dump {
            row.insert("free_queue".to_owned(), json!(queue));
        }
        finished.iter().for_each(|request| _ = self.served.remove(request));
        self.steps += 1;
        Value::Object(row)
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        vec![
            ("steps", self.steps),
            ("requests", self.requests),
            ("preemptions", self.preemptions),
            ("finished", self.finished),
            ("hit_tokens", self.hit_tokens),
            ("min_free", self.min_free),
        ]
    }
}
