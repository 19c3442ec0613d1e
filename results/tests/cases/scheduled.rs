//! Cases whose requests run side by side: vLLM's scheduler over a paged cache, step by step.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vramlab_sim::kv::{Admitted, KeyRun, KvError, MoreTokens, NewSequence, Sequence};
use vramlab_sim::source::Answered;
use vramlab_workloads::serving::scheduler::{
    Ask, Config, Kind, NewSlots, Pending, RequestId, Scheduler,
};

use super::Tally;
use super::cache::Cache;

/// Bytes of a token; no figure of a case depends on it.
const TOKEN_BYTES: u64 = 64;
/// Steps after which a run does not end by itself.
const STEPS_MAX: u64 = 100_000;

/// What a run did.
#[derive(Debug, Default)]
struct Ran {
    steps: u64,
    completed: u64,
    peak_blocks: u64,
    /// Who was preempted, by the case's number, with the tokens of it that were computed.
    preempted: Vec<(u64, u64)>,
    /// Tokens that the resumed requests computed in the step that resumed them.
    resumed: Vec<u64>,
}

impl Ran {
    fn get(&self, field: &str) -> Option<Value> {
        Some(match field {
            "preemptions" => json!(self.preempted.len()),
            "preempted_request" => json!(self.preempted.first().map(|(id, _)| id)),
            "computed_tokens_lost" => json!(self.preempted.iter().map(|(_, n)| n).sum::<u64>()),
            "prefill_tokens_on_resume" => json!(self.resumed.iter().sum::<u64>()),
            "steps" => json!(self.steps),
            "peak_blocks" => json!(self.peak_blocks),
            "completed" => json!(self.completed),
            _ => return None,
        })
    }
}

/// Runs each variant once, and checks what it did.
pub(super) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    let mut runs: BTreeMap<&str, Ran> = BTreeMap::new();
    for check in checks {
        let variant = check["variant"].as_str().unwrap_or_default();
        if !runs.contains_key(variant) {
            runs.insert(variant, Server::new(&varied(input, variant))?.serve()?);
        }
        let label = format!("{id} ({variant})");
        match runs[variant].get(check["field"].as_str().unwrap_or_default()) {
            Some(found) => tally.check(&label, check, &found),
            None => tally.skip(&label, format!("{}: the field is not known", check["field"])),
        }
    }
    Ok(())
}

/// The input with what a variant changes.
fn varied(input: &Value, variant: &str) -> Value {
    let mut input = input.clone();
    let changes = input["variants"].as_array().into_iter().flatten();
    let changes = changes.filter(|v| v["name"] == variant).find_map(Value::as_object).cloned();
    for (key, value) in changes.into_iter().flatten() {
        input[key] = value;
    }
    input
}

/// A request of the case.
struct Served {
    number: u64,
    sequence: Option<Sequence>,
    computed: u64,
}

struct Server {
    cache: Cache,
    scheduler: Scheduler,
    served: BTreeMap<RequestId, Served>,
    ran: Ran,
}

impl Server {
    fn new(input: &Value) -> Result<Self, String> {
        let mut scheduler = Scheduler::new(Config::default());
        let mut served = BTreeMap::new();
        let requests = input["requests"].as_array().ok_or("a case without requests")?;
        for request in requests {
            let number = |key: &str| request[key].as_u64().ok_or(format!("no {key} in {request}"));
            let pending =
                Pending { prompt: number("prompt")?, max_tokens: number("new")?, priority: 0 };
            let one = Served { number: number("id")?, sequence: None, computed: 0 };
            served.insert(scheduler.add(pending), one);
        }
        Ok(Self { cache: Cache::of_case(input)?, scheduler, served, ran: Ran::default() })
    }

    fn serve(mut self) -> Result<Ran, String> {
        let mut answer = Answered::Done;
        let mut idle = 0;
        loop {
            answer = match self.scheduler.next(answer) {
                Ask::New(ask) => self.begin(ask)?,
                Ask::More { request, from, tokens } => self.more(request, from, tokens)?,
                Ask::Free(request) => self.free(request)?,
                Ask::SwapOut { .. } | Ask::SwapIn { .. } => Answered::Done,
                Ask::Planned => {
                    idle = if self.scheduler.plan().is_empty() { idle + 1 } else { 0 };
                    self.planned();
                    Answered::Done
                }
                Ask::Idle if idle > 1 => return Ok(self.ran),
                Ask::Idle => Answered::Done,
            };
            if self.ran.steps > STEPS_MAX {
                return Err(format!("no end after {STEPS_MAX} steps"));
            }
        }
    }

    /// The step is computed: who gets how many tokens.
    fn planned(&mut self) {
        for part in self.scheduler.plan() {
            if let Some(served) = self.served.get_mut(&part.request) {
                served.computed = part.computed + part.tokens;
            }
            if part.kind == Kind::Resumed {
                self.ran.resumed.push(part.tokens);
            }
        }
        for request in self.scheduler.preempted() {
            if let Some(served) = self.served.get_mut(request) {
                let lost = std::mem::take(&mut served.computed);
                self.ran.preempted.push((served.number, lost));
            }
        }
        self.ran.steps += u64::from(!self.scheduler.plan().is_empty());
        self.ran.peak_blocks = self.ran.peak_blocks.max(self.cache.usage().used);
        self.scheduler.launch();
        self.scheduler.complete();
        let ended = self.scheduler.outputs().iter().filter(|output| output.finished);
        self.ran.completed += ended.count() as u64;
    }

    /// What the tokens of a request are: like no other's.
    fn keys(&self, request: RequestId, first: u64, count: u64) -> [KeyRun; 1] {
        [KeyRun { stream: self.served[&request].number + 1, first, count }]
    }

    fn begin(&mut self, ask: NewSlots) -> Result<Answered, String> {
        let keys = self.keys(ask.request, 0, ask.tokens);
        let new = NewSequence {
            tokens: ask.tokens,
            keys: &keys,
            chunk: ask.chunk,
            whole: ask.whole,
            headroom: ask.reserve.then_some(0),
            watermark: ask.watermark,
            token_bytes: Some(TOKEN_BYTES),
            ..NewSequence::default()
        };
        match self.cache.call(|cache, below| cache.begin(below, &new)) {
            Ok(Admitted { sequence, hit, blocks }) => {
                self.served.get_mut(&ask.request).ok_or("no such request")?.sequence =
                    Some(sequence);
                Ok(Answered::Slots { hit, blocks })
            }
            Err(error) => refused(&error),
        }
    }

    fn more(&mut self, request: RequestId, from: u64, tokens: u64) -> Result<Answered, String> {
        let keys = self.keys(request, from, tokens);
        let sequence = self.served[&request].sequence.ok_or("it does not run")?;
        let more = MoreTokens { tokens, keys: &keys };
        match self.cache.call(|cache, below| cache.more(below, sequence, &more)) {
            Ok(blocks) => Ok(Answered::Slots { hit: 0, blocks }),
            Err(error) => refused(&error),
        }
    }

    fn free(&mut self, request: RequestId) -> Result<Answered, String> {
        let sequence = self.served.get_mut(&request).and_then(|served| served.sequence.take());
        let sequence = sequence.ok_or("it does not run")?;
        let ended = self.cache.call(|cache, below| cache.end(below, sequence));
        ended.map(|()| Answered::Done).map_err(|e| e.to_string())
    }
}

/// No room is an answer.
fn refused(error: &KvError) -> Result<Answered, String> {
    match error.is_refusal() {
        true => Ok(Answered::OutOfMemory),
        false => Err(error.to_string()),
    }
}
