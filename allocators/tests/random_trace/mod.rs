//! Random traces in the golden trace format, with random settings and capacities that run out often.
//!
//! The same seed gives the same case for ever (own generator, pinned by a test of the values). What the real allocator leaves to
//! chance is avoided: a buffer used on another stream during a capture is freed before the capture ends, since otherwise the
//! real allocator remembers that use by the address of a block record that may be used again; and at most one buffer with such
//! uses is freed during a capture, since the real one keeps them in a table ordered by the address of the record.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

mod settings;

use crate::golden_format::TraceOp;
use settings::SettingsMaker;
use std::collections::BTreeSet;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A case made from a seed.
#[derive(Clone, Debug)]
pub(crate) struct RandomCase {
    pub(crate) seed: u64,
    pub(crate) conf: String,
    pub(crate) capacity: u64,
    pub(crate) ops: Vec<TraceOp>,
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; the slight bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("an index")]
    }
}

/// What a trace may do besides alloc and free, and how big its requests are.
struct Flavour {
    streams: u64,
    /// Chance in percent that an allocation follows rather than a free.
    growth: u64,
    record: bool,
    pools: bool,
    captures: bool,
    conf: bool,
    fraction: bool,
    other: bool,
    emptying: u64,
    sizes: [u64; 5],
    /// Largest of the large requests.
    large: u64,
}

struct Maker {
    rng: Rng,
    settings: SettingsMaker,
    flavour: Flavour,
    capacity: u64,
    ops: Vec<TraceOp>,
    live: Vec<u64>,
    next_id: u64,
    /// Sizes asked before: often asked again.
    seen: Vec<u64>,
    next_pool: u64,
    /// Pools with uses left, and (pool, stream) of those that requests go to.
    pools: Vec<(u64, u64)>,
    routes: Vec<(u64, u64)>,
    capture: Option<u64>,
    /// Buffers that were ever used on another stream.
    recorded: BTreeSet<u64>,
    /// The buffer that was used on another stream during this capture.
    recorded_in_capture: Option<u64>,
    /// Whether a buffer with such uses may still be freed, or get one, during this capture.
    may_defer: bool,
}

/// Makes the case of a seed. `newer` is for 2.15, else 2.9 with its fewer options.
pub(crate) fn random_case(seed: u64, newer: bool) -> RandomCase {
    let mut rng = Rng::new(seed);
    let capacity = match rng.below(10) {
        0 => 80 << 30,
        1 => rng.between(2 * MIB, 300 * MIB),
        2 | 3 => 2 * MIB * rng.between(10, 40),
        _ => 2 * MIB * rng.between(40, 200),
    };
    let streams = rng.pick(&[1, 1, 2, 3, 4]);
    let flavour = Flavour {
        streams,
        growth: rng.pick(&[45, 50, 52, 55, 60, 70]),
        record: rng.chance(40),
        pools: rng.chance(20),
        captures: rng.chance(15),
        conf: rng.chance(25),
        fraction: rng.chance(15),
        other: rng.chance(15),
        emptying: rng.pick(&[0, 1, 1, 3, 8]),
        sizes: [(); 5].map(|()| rng.below(4)),
        large: (capacity.min(400 * MIB) / rng.pick(&[2, 3, 4, 8])).max(11 * MIB),
    };
    let mut settings = SettingsMaker::new(newer, &mut rng);
    let conf = settings.text(&mut rng, true);
    let count = rng.pick(&[20, 40, 80, 150, 300, 600]);
    let mut maker = Maker {
        rng,
        settings,
        flavour,
        capacity,
        ops: Vec::new(),
        live: Vec::new(),
        next_id: 1,
        seen: Vec::new(),
        next_pool: 1,
        pools: Vec::new(),
        routes: Vec::new(),
        capture: None,
        recorded: BTreeSet::new(),
        recorded_in_capture: None,
        may_defer: true,
    };
    while maker.ops.len() < count {
        maker.step();
    }
    RandomCase { seed, conf, capacity, ops: maker.ops }
}

impl Maker {
    fn step(&mut self) {
        match self.rng.below(100) {
            0..70 => {
                if self.rng.chance(self.flavour.growth) || self.live.is_empty() {
                    self.alloc();
                } else {
                    self.free();
                }
            }
            70..84 if self.flavour.record => self.record_or_complete(),
            84..88 if self.flavour.pools => self.pool(),
            88..90 if self.flavour.captures => self.capture(),
            90..92 if self.flavour.conf => {
                let conf = self.settings.text(&mut self.rng, false);
                self.ops.push(TraceOp::SetConf { conf });
            }
            92 => self.rare(),
            93..95 if self.rng.chance(30) => self.free_many(),
            95..100 if self.rng.chance(10 * self.flavour.emptying) => {
                self.ops.push(TraceOp::EmptyCache);
            }
            _ => {}
        }
    }

    fn stream(&mut self) -> u64 {
        // During a capture most requests are on its stream, as they would be.
        match self.capture {
            Some(stream) if self.rng.chance(70) => stream,
            _ => self.rng.below(self.flavour.streams),
        }
    }

    fn size(&mut self) -> u64 {
        if !self.seen.is_empty() && self.rng.chance(30) {
            let seen = self.seen.clone();
            let size = self.rng.pick(&seen);
            return if self.rng.chance(60) { size } else { size + self.rng.below(4 * KIB) };
        }
        let total: u64 = self.flavour.sizes.iter().sum::<u64>().max(1);
        let mut draw = self.rng.below(total);
        let kind = self.flavour.sizes.iter().position(|weight| {
            let here = draw < *weight;
            draw = draw.saturating_sub(*weight);
            here
        });
        let size = match kind {
            Some(0) => self.rng.between(1, 64 * KIB),
            Some(1) => self.rng.between(64 * KIB, 2 * MIB),
            Some(2) => self.rng.between(MIB, 12 * MIB),
            Some(3) => MIB * self.rng.between(1, self.flavour.large / MIB),
            _ => self.rng.between(5 * MIB, self.flavour.large),
        };
        let size = match self.rng.below(40) {
            0 => self.rng.pick(&[
                0,
                1,
                511,
                512,
                513,
                MIB - 511,
                MIB,
                MIB + 1,
                10 * MIB - 512,
                10 * MIB - 511,
                10 * MIB,
            ]),
            1 => size.next_power_of_two(),
            2 => self.rng.between(1, self.capacity.min(2 << 30)),
            3 if self.rng.chance(10) => {
                self.rng.pick(&[self.capacity, self.capacity * 9 / 8 + 1, 1 << 45, 1 << 62])
            }
            _ => size,
        };
        self.seen.push(size);
        size
    }

    fn alloc(&mut self) {
        let (id, size, stream) = (self.next_id, self.size(), self.stream());
        self.next_id += 1;
        self.may_defer |= size > 0 && !self.in_capture();
        self.live.push(id);
        self.ops.push(TraceOp::Alloc { id, size, stream });
    }

    fn in_capture(&self) -> bool {
        self.capture.is_some() || !self.routes.is_empty()
    }

    fn pick_live(&mut self) -> Option<u64> {
        let count = self.live.len() as u64;
        if count == 0 {
            return None;
        }
        let newest = self.rng.chance(30);
        let at =
            if newest { count - 1 - self.rng.below(count.min(4)) } else { self.rng.below(count) };
        Some(self.live[usize::try_from(at).expect("an index")])
    }

    fn free_id(&mut self, id: u64) {
        if self.in_capture() && self.recorded.contains(&id) && self.recorded_in_capture != Some(id)
        {
            if !self.may_defer {
                return;
            }
            self.may_defer = false;
        }
        self.live.retain(|live| *live != id);
        self.ops.push(TraceOp::Free { id });
    }

    fn free(&mut self) {
        // Now and then one that is not live.
        let stray = self.rng.below(200) == 0;
        let id = if stray { Some(self.rng.between(1, self.next_id)) } else { self.pick_live() };
        if let Some(id) = id {
            self.free_id(id);
        }
    }

    fn free_many(&mut self) {
        let count = self.rng.between(1, self.live.len() as u64 + 1);
        for _ in 0..count {
            if let Some(id) = self.pick_live() {
                self.free_id(id);
            }
        }
    }

    fn record_or_complete(&mut self) {
        match self.rng.below(10) {
            0..6 if !self.live.is_empty() => {
                let live = self.live.clone();
                let (id, stream) = (self.rng.pick(&live), self.rng.below(4));
                if self.in_capture() {
                    if !self.may_defer {
                        return;
                    }
                    self.may_defer = false;
                    self.recorded_in_capture = Some(id);
                }
                self.recorded.insert(id);
                self.ops.push(TraceOp::RecordStream { id, stream });
            }
            6..9 => {
                let stream = self.rng.below(4);
                self.ops.push(TraceOp::Complete { stream });
            }
            9 => self.ops.push(TraceOp::CompleteAll),
            _ => {}
        }
    }

    /// See the head of this file.
    fn free_recorded(&mut self) {
        if let Some(id) = self.recorded_in_capture
            && self.live.contains(&id)
        {
            self.free_id(id);
        }
        self.recorded_in_capture = None;
    }

    fn pool(&mut self) {
        match self.rng.below(4) {
            0 if self.routes.len() < 2 => {
                let known = self
                    .pools
                    .iter()
                    .map(|(pool, _)| *pool)
                    .find(|pool| self.routes.iter().all(|route| route.0 != *pool));
                let pool = match known {
                    Some(pool) if self.rng.chance(50) => pool,
                    _ => {
                        self.next_pool += 1;
                        self.next_pool - 1
                    }
                };
                match self.pools.iter_mut().find(|(other, _)| *other == pool) {
                    Some((_, uses)) => *uses += 1,
                    None => self.pools.push((pool, 1)),
                }
                let stream = self.rng.below(self.flavour.streams);
                self.routes.push((pool, stream));
                self.ops.push(TraceOp::PoolBegin { pool, stream });
            }
            1 | 2 if !self.routes.is_empty() => {
                self.free_recorded();
                let at = self.rng.below(self.routes.len() as u64);
                let (pool, _) = self.routes.remove(usize::try_from(at).expect("an index"));
                self.ops.push(TraceOp::PoolEnd { pool });
            }
            3 => {
                // Released only when no requests go to it.
                let idle =
                    |(pool, _): &(u64, u64)| self.routes.iter().all(|route| route.0 != *pool);
                if let Some(at) = self.pools.iter().position(idle) {
                    let (pool, uses) = &mut self.pools[at];
                    *uses -= 1;
                    self.ops.push(TraceOp::PoolRelease { pool: *pool });
                    if *uses == 0 {
                        self.pools.remove(at);
                    }
                }
            }
            _ => {}
        }
    }

    fn capture(&mut self) {
        match self.capture.take() {
            None => {
                let stream = self.rng.below(self.flavour.streams);
                self.capture = Some(stream);
                self.ops.push(TraceOp::CaptureBegin { stream });
            }
            Some(stream) => {
                self.free_recorded();
                self.ops.push(TraceOp::CaptureEnd { stream });
            }
        }
    }

    fn rare(&mut self) {
        match self.rng.below(5) {
            0 => self.ops.push(TraceOp::ResetPeak),
            1 => self.ops.push(TraceOp::ResetAccumulated),
            2 | 3 if self.flavour.fraction => {
                let fraction =
                    self.rng.pick(&[0.1, 0.25, 0.333, 0.5, 0.6, 0.75, 0.9, 0.95, 0.999, 1.0, 0.0]);
                self.ops.push(TraceOp::SetMemoryFraction { fraction });
            }
            4 if self.flavour.other => {
                let bytes = if self.rng.chance(30) { 0 } else { self.rng.below(self.capacity) };
                self.ops.push(TraceOp::OtherProcess { bytes });
            }
            _ => {}
        }
    }
}
