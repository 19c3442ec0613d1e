//! `host.pymalloc` on a source of arenas like that of the recordings, answering their ops.

#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use vramlab_allocators::{Options, Spec};
use vramlab_sim::allocator::{Allocator, Block, Notice, Placement, Reply, Request};
use vramlab_sim::driver::{Address, Answer, Call, Driver, DriverError, Families};
use vramlab_sim::units::StreamId;

/// Where arenas begin relative to pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArenaPlacement {
    /// On a pool's boundary, each at a new address.
    Aligned,
    /// 4 to 12 KiB past one.
    Misaligned,
    /// On a boundary, at the lowest address that is free.
    Reuse,
}

/// What the source of arenas is like.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) version: String,
    pub(crate) arena: u64,
    pub(crate) pool: u64,
    pub(crate) placement: ArenaPlacement,
    pub(crate) max_arenas: Option<u64>,
}

const ARENAS: Address = 1 << 40;
const RAW: Address = 1 << 50;

/// Host memory: arenas from a list of slots, everything else one range each.
struct Host {
    setup: Setup,
    /// By slot: which arena it is, counting all that were made.
    arenas: FxHashMap<u64, u64>,
    made: u64,
    raw: u64,
    /// Does the op at hand ask for a small block? Then a request of an arena's size is for an arena.
    small: bool,
}

impl Host {
    /// Bytes from the beginning of one slot to that of the next.
    fn step(&self) -> u64 {
        2 * self.setup.arena
    }

    fn begin(&self, slot: u64) -> Address {
        let shift = match self.setup.placement {
            ArenaPlacement::Misaligned => 4096 * (1 + slot % 3),
            ArenaPlacement::Aligned | ArenaPlacement::Reuse => 0,
        };
        ARENAS + slot * self.step() + shift
    }

    fn malloc(&mut self, size: u64) -> Result<Address, DriverError> {
        if !(self.small && size == self.setup.arena) {
            self.raw += 1;
            return Ok(RAW + self.raw * (1 << 13));
        }
        if self.setup.max_arenas.is_some_and(|most| self.arenas.len() as u64 >= most) {
            return Err(DriverError::OutOfMemory { asked: size, free: 0 });
        }
        let slot = match self.setup.placement {
            ArenaPlacement::Reuse => (0..).find(|slot| !self.arenas.contains_key(slot)),
            ArenaPlacement::Aligned | ArenaPlacement::Misaligned => Some(self.made),
        };
        let slot = slot.expect("there is always a free slot");
        self.arenas.insert(slot, self.made);
        self.made += 1;
        Ok(self.begin(slot))
    }

    /// Arena, pool and offset of a block, or nothing for a raw one.
    fn place(&self, address: Address) -> Option<[u64; 3]> {
        let slot = (address < RAW).then(|| (address - ARENAS) / self.step())?;
        let first = self.begin(slot).next_multiple_of(self.setup.pool);
        let pool = self.setup.pool;
        Some([self.arenas[&slot], (address - first) / pool, address % pool])
    }
}

impl Driver for Host {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        match call {
            Call::MallocHost { size, pinned: false } => self.malloc(size).map(Answer::Address),
            Call::FreeHost { address } => {
                if address < RAW {
                    self.arenas.remove(&((address - ARENAS) / self.step()));
                }
                Ok(Answer::Done)
            }
            other => Err(DriverError::NotSupported { call: other.name() }),
        }
    }

    fn families(&self) -> Families {
        Families { host: true, ..Families::CLASSIC }
    }
}

/// The subject.
pub(crate) struct PyMalloc {
    strategy: Box<dyn Allocator>,
    host: Host,
    live: FxHashMap<u64, Placement>,
    /// Blocks that were asked of the raw allocator.
    raw: u64,
    /// Bytes of live small blocks.
    small: u64,
    /// Most arenas, pools in use, small blocks, and bytes of these, after an op.
    peaks: [u64; 4],
}

impl PyMalloc {
    pub(crate) fn new(setup: Setup) -> Self {
        let options = Options::from_pairs([("version", setup.version.as_str())]);
        let strategy = vramlab_allocators::build(&Spec::new("host.pymalloc", options));
        Self {
            strategy: strategy.expect("a version that is known"),
            host: Host { setup, arenas: FxHashMap::default(), made: 0, raw: 0, small: false },
            live: FxHashMap::default(),
            raw: 0,
            small: 0,
            peaks: [0; 4],
        }
    }

    /// Totals by the names that recordings have for them.
    pub(crate) fn summary(&self) -> Vec<(&'static str, u64)> {
        let [arenas, pools, blocks, bytes] = self.peaks;
        let Host { made, arenas: live, .. } = &self.host;
        vec![
            ("arenas_allocated", *made),
            ("arenas_freed", made - live.len() as u64),
            ("peak_arenas", arenas),
            ("peak_pools", pools),
            ("peak_small_blocks", blocks),
            ("peak_small_bytes", bytes),
            ("raw", self.raw),
        ]
    }

    fn now_live(&mut self, id: u64, placement: Placement) {
        self.small += bytes_if_small(&placement);
        if let Some(old) = self.live.insert(id, placement) {
            self.small -= bytes_if_small(&old);
        }
    }

    fn placed(&mut self, placement: Placement) -> Vec<Value> {
        match self.host.place(placement.address) {
            None => {
                self.raw += 1;
                vec![json!("R")]
            }
            Some([arena, pool, offset]) => {
                vec![json!("A"), json!(arena), json!(pool), json!(offset)]
            }
        }
    }

    fn alloc(&mut self, id: u64, size: u64) -> Vec<Value> {
        let request = Request { size, stream: StreamId(0), ordinal: 0 };
        let placement = self.strategy.alloc(&mut self.host, &request).expect("the host has room");
        self.now_live(id, placement);
        self.placed(placement)
    }

    fn free(&mut self, block: Block) {
        self.strategy.free(&mut self.host, block, None).expect("is live");
    }

    fn resize(&mut self, id: u64, size: u64) -> Vec<Value> {
        let old = self.live[&id];
        let notice = Notice::Resize { block: old.block, size };
        let reply = self.strategy.notice(&mut self.host, notice).expect("the host has room");
        let Reply::Placed(new) = reply else { panic!("expected a placement") };
        self.now_live(id, new);
        if old.address >= RAW {
            return vec![json!("R")];
        }
        if new.address == old.address {
            return vec![json!("K")];
        }
        let mut row = vec![json!("M")];
        row.extend(self.placed(new));
        row
    }

    /// Live arenas, pools in use, small blocks.
    fn statistics(&mut self) -> [u64; 3] {
        let reply = self.strategy.notice(&mut self.host, Notice::Counters);
        let Ok(Reply::Counters(counters)) = reply else { panic!("expected counters") };
        ["arenas_allocated_current", "pools_in_use", "small_blocks"]
            .map(|wanted| counters.iter().find(|(name, _)| *name == wanted).expect("is counted").1)
    }

    /// One op of a recording, and its row.
    pub(crate) fn op(&mut self, op: &[Value]) -> Vec<Value> {
        let number = |at: usize| op.get(at).and_then(Value::as_u64);
        let (id, size) = (number(1).expect("an id"), number(2).unwrap_or(0));
        self.host.small = (1..=512).contains(&size);
        let mut row = match op[0].as_str() {
            Some("a") => self.alloc(id, size),
            Some("f") => match self.live.remove(&id) {
                None => vec![json!("N")],
                Some(placement) => {
                    self.small -= bytes_if_small(&placement);
                    self.free(placement.block);
                    vec![json!("F")]
                }
            },
            Some("r") => self.resize(id, size),
            other => panic!("expected a, f or r, found {other:?}"),
        };
        let [arenas, pools, blocks] = self.statistics();
        for (peak, now) in self.peaks.iter_mut().zip([arenas, pools, blocks, self.small]) {
            *peak = now.max(*peak);
        }
        row.extend([arenas, pools, blocks].map(Value::from));
        row
    }
}

fn bytes_if_small(placement: &Placement) -> u64 {
    if placement.address < RAW { placement.size } else { 0 }
}
