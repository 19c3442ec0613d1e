//! A cache beside a model of its memory: which token is in which slot, written by whom, and whether it still is what was written.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use vramlab_allocators::registry::{build, build_cache};
use vramlab_allocators::{STRATEGIES, Spec, Strategy};
use vramlab_sim::allocator::{Allocator, Notice, Reply};
use vramlab_sim::kv::{
    Admitted, Below, KeyRun, KvCache, KvError, KvUsage, MoreTokens, NewSequence, Sequence,
    SlotRange,
};
use vramlab_sim::machine::Machine;
use vramlab_sim::{DeviceOptions, SimMachine};

/// A sequence as the model has it.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) sequence: Sequence,
    /// What it holds, up to and with each of its tokens that have slots.
    prefixes: Vec<u64>,
    /// Prompt tokens without slots.
    pub(crate) waiting: Vec<KeyRun>,
    /// Number of its own text.
    pub(crate) own: u64,
}

impl Live {
    pub(crate) fn tokens(&self) -> u64 {
        self.prefixes.len() as u64
    }
}

/// Why a sequence's first tokens are known.
enum Known {
    /// They were found by their content.
    Found,
    /// The sequence had them; some may have been copied elsewhere.
    Had,
    /// Its parent had them, in these slots; those that have others were copied.
    OfParent(BTreeSet<u64>),
}

impl Known {
    /// Must what such a token is be in its slot already?
    fn is_there(&self, slot: u64) -> bool {
        match self {
            Self::Found => true,
            Self::Had => false,
            Self::OfParent(parents) => parents.contains(&slot),
        }
    }
}

/// A cache under check.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) cache: Box<dyn KvCache>,
    pub(crate) arena: Box<dyn Allocator>,
    pub(crate) machine: SimMachine,
    ordinal: u64,
    pub(crate) live: Vec<Live>,
    /// What was written last to each slot, by its address.
    memory: BTreeMap<u64, u64>,
    /// Free and used blocks together, where there is a fixed pool of them.
    blocks: Option<u64>,
    texts: u64,
}

/// One token after another, each as a run of its own.
pub(crate) fn each(runs: &[KeyRun]) -> Vec<KeyRun> {
    let tokens = |run: &KeyRun| {
        let KeyRun { stream, first, count } = *run;
        (first..first + count).map(move |first| KeyRun { stream, first, count: 1 })
    };
    runs.iter().flat_map(tokens).collect()
}

impl Subject {
    pub(crate) fn new(spec: &str, capacity: u64) -> Self {
        let parsed: Spec = spec.parse().expect(spec);
        Self {
            name: spec.to_owned(),
            cache: build_cache(&parsed).unwrap_or_else(|e| panic!("{spec}: {e}")),
            arena: build(&parsed).unwrap_or_else(|e| panic!("{spec}: {e}")),
            machine: SimMachine::new(DeviceOptions { capacity, ..DeviceOptions::default() }),
            ordinal: 0,
            live: Vec::new(),
            memory: BTreeMap::new(),
            blocks: None,
            texts: 1 << 40,
        }
    }

    /// A text that no sequence has.
    pub(crate) fn new_text(&mut self) -> u64 {
        self.texts += 1;
        self.texts
    }

    pub(crate) fn call<T>(&mut self, act: impl FnOnce(&mut dyn KvCache, &mut Below<'_>) -> T) -> T {
        let Self { cache, arena, machine, ordinal, .. } = self;
        act(&mut **cache, &mut Below { arena: &mut **arena, driver: machine, ordinal })
    }

    /// A new sequence; `false` if it was refused.
    pub(crate) fn begin(&mut self, new: &NewSequence<'_>) -> Result<bool, String> {
        let own = self.new_text();
        let mut keys = each(new.keys);
        keys.truncate(new.tokens as usize);
        for unknown in keys.len() as u64..new.tokens {
            keys.push(KeyRun { stream: own, first: unknown, count: 1 });
        }
        let before = self.snapshot();
        match self.call(|cache, below| cache.begin(below, new)) {
            Ok(Admitted { sequence, hit, .. }) => {
                let count = (new.tokens - hit).min(new.chunk.unwrap_or(u64::MAX)) as usize;
                let waiting = keys.split_off(hit as usize + count);
                let prefixes = prefixes(&[], &keys);
                let live = Live { sequence, prefixes, waiting, own };
                self.written(&live, hit as usize, &Known::Found)?;
                self.live.push(live);
                if self.has_fixed_pool() {
                    self.blocks.get_or_insert(self.usage().free + self.usage().used);
                }
                Ok(true)
            }
            Err(error) => self.refused(error, &before).map(|()| false),
        }
    }

    /// Further tokens of the `at`-th live sequence.
    pub(crate) fn more(&mut self, at: usize, keys: &[KeyRun]) -> Result<bool, String> {
        let before = self.snapshot();
        let sequence = self.live[at].sequence;
        let more = MoreTokens { tokens: keys.len() as u64, keys };
        if let Err(error) = self.call(|cache, below| cache.more(below, sequence, &more)) {
            return self.refused(error, &before).map(|()| false);
        }
        let mut live = self.live[at].clone();
        live.prefixes = prefixes(&live.prefixes, keys);
        let known = live.prefixes.len() - keys.len();
        self.written(&live, known, &Known::Had)?;
        self.live[at] = live;
        Ok(true)
    }

    pub(crate) fn fork(&mut self, at: usize) -> Result<bool, String> {
        let before = self.snapshot();
        let parent = self.live[at].clone();
        match self.call(|cache, below| cache.fork(below, parent.sequence)) {
            Ok(Admitted { sequence, .. }) => {
                let child = Live { sequence, waiting: Vec::new(), ..parent };
                let known = child.prefixes.len();
                let parents = self.slots(parent.sequence)?.into_iter().collect();
                self.written(&child, known, &Known::OfParent(parents))?;
                self.live.push(child);
                Ok(true)
            }
            Err(error) => self.refused(error, &before).map(|()| false),
        }
    }

    pub(crate) fn end(&mut self, at: usize) -> Result<(), String> {
        let Live { sequence, .. } = self.live.swap_remove(at);
        self.call(|cache, below| cache.end(below, sequence)).map_err(|e| e.to_string())?;
        let again = self.call(|cache, below| cache.end(below, sequence));
        if again != Err(KvError::UnknownSequence(sequence)) {
            return Err(format!("an ended sequence ended again: {again:?}"));
        }
        Ok(())
    }

    /// The tokens of a sequence from the `count`-th on were computed just now; those before are known.
    fn written(&mut self, live: &Live, count: usize, known: &Known) -> Result<(), String> {
        let table = self.slots(live.sequence)?;
        if table.len() != live.prefixes.len() {
            return Err(format!("{} tokens have {} slots", live.prefixes.len(), table.len()));
        }
        let mut others = BTreeSet::new();
        for other in self.live.iter().filter(|other| other.sequence != live.sequence) {
            others.extend(self.slots(other.sequence)?);
        }
        for (i, (slot, prefix)) in table.iter().zip(&live.prefixes).enumerate() {
            let holds = self.memory.get(slot) == Some(prefix);
            if i < count && holds {
                continue;
            }
            if i < count && known.is_there(*slot) {
                return Err(format!("token {i} was found in slot {slot:#x}, which holds another"));
            }
            if !holds && others.contains(slot) {
                return Err(format!("token {i} was written to slot {slot:#x} of another sequence"));
            }
            self.memory.insert(*slot, *prefix);
        }
        Ok(())
    }

    /// Is its memory there from the first sequence on?
    fn has_fixed_pool(&self) -> bool {
        ["serving.paged", "serving.radix"].iter().any(|name| self.name.starts_with(name))
    }

    fn slots(&self, sequence: Sequence) -> Result<Vec<u64>, String> {
        let ranges = self.cache.table(sequence).map_err(|e| e.to_string())?;
        let slots =
            |range: SlotRange| (0..range.tokens).map(move |i| range.address + i * range.stride);
        Ok(ranges.into_iter().flat_map(slots).collect())
    }

    pub(crate) fn usage(&self) -> KvUsage {
        self.cache.usage()
    }

    fn snapshot(&mut self) -> (KvUsage, Option<Reply>, Vec<Vec<u64>>) {
        let mut layout = self.call(|cache, below| cache.notice(below, Notice::Walk)).ok();
        let mut usage = self.usage();
        if self.name.starts_with("serving.elastic_pages") {
            // when a page could not be had, pages without blocks may have gone back, and retained blocks may have been freed
            (layout, usage.own, usage.cached) = (None, 0, 0);
        }
        let tables = self.live.iter().filter_map(|live| self.slots(live.sequence).ok()).collect();
        (usage, layout, tables)
    }

    /// A refusal is an answer, and changes nothing (but that the first one may set the size of a token).
    fn refused(
        &mut self,
        error: KvError,
        before: &(KvUsage, Option<Reply>, Vec<Vec<u64>>),
    ) -> Result<(), String> {
        if !error.is_refusal() {
            return Err(error.to_string());
        }
        let after = self.snapshot();
        if before.0.token_bytes != 0 && *before != after {
            return Err(format!(
                "refused ({error}), but changed:\nbefore {before:?}\nafter  {after:?}"
            ));
        }
        Ok(())
    }

    /// The counts agree with what is where, and the bytes with the machine's.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let usage = self.usage();
        let mut slots = BTreeSet::new();
        let mut tokens = 0;
        for live in &self.live {
            let table = self.slots(live.sequence)?;
            for (slot, prefix) in table.iter().zip(&live.prefixes) {
                if self.memory.get(slot) != Some(prefix) {
                    return Err(format!(
                        "slot {slot:#x} holds another token than its sequence thinks"
                    ));
                }
            }
            tokens += table.len() as u64;
            slots.extend(table);
        }
        let same = |what: &str, said: u64, found: u64| {
            if said == found {
                Ok(())
            } else {
                Err(format!("{what}: says {said}, found {found}: {usage:?}"))
            }
        };
        same("sequences", usage.sequences, self.live.len() as u64)?;
        same("tokens", usage.tokens, tokens)?;
        same("filled", usage.filled, slots.len() as u64)?;
        same("held", self.arena.usage().reserved + usage.own, self.machine.held().reserved)?;
        if let Some(blocks) = self.blocks {
            same("free and used blocks", usage.free + usage.used, blocks)?;
        }
        if usage.filled > usage.slots || usage.cached > usage.free {
            return Err(format!("{usage:?}"));
        }
        if usage.slots.saturating_mul(usage.token_bytes) > usage.allocated {
            return Err(format!("slots in less memory than they need: {usage:?}"));
        }
        Ok(())
    }
}

fn prefixes(before: &[u64], keys: &[KeyRun]) -> Vec<u64> {
    let mut all = before.to_vec();
    for key in keys {
        let mut hasher = DefaultHasher::new();
        (all.last(), all.len(), key.stream, key.first).hash(&mut hasher);
        all.push(hasher.finish());
    }
    all
}

/// Does `scenario` for every cache of the registry.
pub(crate) fn for_every_cache(scenario: impl Fn(&Strategy)) {
    let caches: Vec<_> = STRATEGIES.iter().filter(|s| s.is_cache()).collect();
    assert!(!caches.is_empty(), "the registry has no cache");
    caches.into_iter().for_each(scenario);
}
