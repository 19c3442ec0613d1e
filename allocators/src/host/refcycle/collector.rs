//! Generations, counts, and the dead cycles that wait for a collection.
//!
//! ```text
//! births    1 2 3 4 5 │ 6 7 8 │ 9 10                a collection makes all objects older that were born before it, so an object's
//! generation    2     │   1   │   0                 generation follows from its number and from when each generation was last left
//! ```

use vramlab_sim::allocator::Block;
use vramlab_sim::units::StreamId;

use super::options::Settings;

/// A cycle that dies or is dead.
#[derive(Clone, Debug)]
pub(super) struct Cycle {
    /// In the order in which they were dropped; with the stream of the free.
    pub(super) buffers: Vec<(Block, Option<StreamId>)>,
    /// Number of its oldest object.
    oldest: u64,
    /// Objects beside the buffers.
    others: u64,
}

impl Cycle {
    pub(super) fn add(&mut self, block: Block, born: u64, stream: Option<StreamId>) {
        self.oldest = self.oldest.min(born);
        self.buffers.push((block, stream));
    }

    fn objects(&self) -> u64 {
        self.buffers.len() as u64 + self.others
    }
}

/// The collector.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    thresholds: [u64; 3],
    pub(super) enabled: bool,
    /// Of the youngest generation: objects; of the others: collections of the one before.
    counts: [u64; 3],
    /// Number of the next object.
    next: u64,
    /// Objects born before this are not in the youngest generation; before that, in the oldest.
    left: [u64; 2],
    /// Objects in each generation, dead ones too.
    objects: [u64; 3],
    /// Objects that joined the oldest generation since its last collection.
    pending: u64,
    /// Objects that survived that.
    long_lived: u64,
    /// Dead cycles by generation, in order of death.
    dead: [Vec<Cycle>; 3],
    collections: [u64; 3],
    collected: u64,
}

impl Collector {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            thresholds: settings.thresholds,
            enabled: settings.enabled,
            counts: [settings.count0, 0, 0],
            next: 1,
            left: [1, 1],
            objects: [0, 0, settings.long_lived],
            pending: 0,
            long_lived: settings.long_lived,
            dead: Default::default(),
            collections: [0; 3],
            collected: 0,
        }
    }

    /// Number of the next object.
    pub(super) fn clock(&self) -> u64 {
        self.next
    }

    fn generation(&self, born: u64) -> usize {
        self.left.iter().filter(|left| born < **left).count()
    }

    /// New objects; the generation to be collected now (rules `threshold0`, `older`, `quarter`, `enabled`).
    pub(super) fn born(&mut self, count: u64) -> Option<usize> {
        self.next += count;
        self.objects[0] += count;
        self.counts[0] += count;
        let due = |generation: &usize| {
            let quarter = self.pending < self.long_lived / 4;
            self.counts[*generation] > self.thresholds[*generation]
                && !(*generation == 2 && quarter)
        };
        let full = self.enabled && self.thresholds[0] > 0 && self.counts[0] > self.thresholds[0];
        if full { (0..3).rev().find(due) } else { None }
    }

    /// Objects of an adopted state, which are old; their number.
    pub(super) fn adopted(&mut self, count: u64) -> u64 {
        self.objects[2] += count;
        self.long_lived += count;
        0
    }

    /// An object went with its last reference (rule `refcount`).
    pub(super) fn died(&mut self, born: u64) {
        self.objects[self.generation(born)] -= 1;
        self.counts[0] = self.counts[0].saturating_sub(1);
    }

    /// A cycle that begins to die; its `others` are the next objects.
    pub(super) fn cycle(&self, others: u64) -> Cycle {
        Cycle { buffers: Vec::new(), oldest: self.next, others }
    }

    /// A cycle is dead.
    pub(super) fn dead(&mut self, cycle: Cycle) {
        let generation = self.generation(cycle.oldest);
        self.dead[generation].push(cycle);
    }

    /// Collects a generation and all younger ones; the cycles that are found (rules `promotion`, `cycle`, `order`).
    pub(super) fn collect(&mut self, generation: usize) -> Vec<Cycle> {
        let older = (generation + 1).min(2);
        if generation < 2 {
            self.counts[older] += 1;
        }
        self.counts[..=generation].fill(0);
        let mut found = std::mem::take(&mut self.dead[generation]);
        found.extend(self.dead[..generation].iter_mut().flat_map(std::mem::take));
        let dead: u64 = found.iter().map(Cycle::objects).sum();
        let survivors = self.objects[..=generation].iter().sum::<u64>() - dead;
        self.objects[..=generation].fill(0);
        self.objects[older] += survivors;
        for left in &mut self.left[..older] {
            *left = self.next;
        }
        match generation {
            1 => self.pending += survivors,
            2 => (self.pending, self.long_lived) = (0, survivors),
            _ => {}
        }
        self.collections[generation] += 1;
        self.collected += dead;
        found
    }

    pub(super) fn counters(&self) -> [(&'static str, u64); 7] {
        [
            ("gc_count0", self.counts[0]),
            ("gc_count1", self.counts[1]),
            ("gc_count2", self.counts[2]),
            ("gc_collections0", self.collections[0]),
            ("gc_collections1", self.collections[1]),
            ("gc_collections2", self.collections[2]),
            ("gc_collected", self.collected),
        ]
    }
}
