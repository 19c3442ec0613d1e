//! A cache on a device of its own, for tests of rules.

use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{Allocator, Notice, Reply};
use vramlab_sim::kv::{
    Admitted, Below, KeyRun, KvCache, KvError, KvUsage, MoreTokens, NewSequence, Sequence,
};
use vramlab_sim::machine::Machine;

use crate::registry::{build, build_cache};

pub(super) struct Bench {
    pub(super) cache: Box<dyn KvCache>,
    pub(super) arena: Box<dyn Allocator>,
    pub(super) machine: SimMachine,
    ordinal: u64,
}

impl Bench {
    pub(super) fn new(spec: &str, capacity: u64) -> Self {
        let spec = spec.parse().expect(spec);
        let built = (build_cache(&spec), build(&spec));
        let (Ok(cache), Ok(arena)) = built else { panic!("{spec} builds") };
        Self { cache, arena, machine: SimMachine::of_capacity(capacity), ordinal: 0 }
    }

    pub(super) fn call<T>(&mut self, act: impl FnOnce(&mut dyn KvCache, &mut Below<'_>) -> T) -> T {
        let Self { cache, arena, machine, ordinal } = self;
        act(&mut **cache, &mut Below { arena: &mut **arena, driver: machine, ordinal })
    }

    pub(super) fn ask(&mut self, new: &NewSequence<'_>) -> Result<Admitted, KvError> {
        self.call(|cache, below| cache.begin(below, new))
    }

    /// A sequence of the first `tokens` tokens of text `stream`.
    pub(super) fn begin(&mut self, stream: u64, tokens: u64) -> Admitted {
        let keys = [KeyRun { stream, first: 0, count: tokens }];
        let new = NewSequence { tokens, keys: &keys, ..NewSequence::default() };
        self.ask(&new).unwrap_or_else(|e| panic!("a sequence of {tokens} tokens: {e}"))
    }

    /// Tokens `first` and after of text `stream`.
    pub(super) fn more(
        &mut self,
        sequence: Sequence,
        stream: u64,
        first: u64,
        tokens: u64,
    ) -> Result<u64, KvError> {
        let keys = [KeyRun { stream, first, count: tokens }];
        let more = MoreTokens { tokens, keys: &keys };
        self.call(|cache, below| cache.more(below, sequence, &more))
    }

    pub(super) fn fork(&mut self, from: Sequence) -> Result<Admitted, KvError> {
        self.call(|cache, below| cache.fork(below, from))
    }

    pub(super) fn end(&mut self, sequence: Sequence) {
        self.call(|cache, below| cache.end(below, sequence)).expect("it is live");
    }

    pub(super) fn notice(&mut self, notice: Notice<'_>) -> Reply {
        self.call(|cache, below| cache.notice(below, notice)).expect("a notice that is known")
    }

    /// A step of the workload is over.
    pub(super) fn mark(&mut self) {
        self.notice(Notice::Mark { name: "step" });
    }

    pub(super) fn counter(&mut self, name: &str) -> u64 {
        let Reply::Counters(list) = self.notice(Notice::Counters) else { panic!("no counters") };
        list.iter().find(|(n, _)| *n == name).map_or_else(|| panic!("no {name}"), |(_, v)| *v)
    }

    pub(super) fn usage(&self) -> KvUsage {
        self.cache.usage()
    }

    /// Where the tokens are.
    pub(super) fn table(&self, sequence: Sequence) -> Vec<(u64, u64)> {
        let table = self.cache.table(sequence).expect("it is live");
        table.iter().map(|range| (range.address, range.tokens)).collect()
    }

    pub(super) fn machine_reserved(&self) -> u64 {
        self.machine.held().reserved
    }

    /// How often a call was made.
    pub(super) fn calls(&self, name: &str) -> u64 {
        self.machine.calls().get(name)
    }
}
