//! The pool and the bins over it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::{Device, Resource};
use crate::golden_cases::Case;

const fn align(size: u64) -> u64 {
    (size + 255) & !255
}

/// Streams in the order in which they were first seen.
#[derive(Default)]
struct Order(Vec<u64>);

impl Order {
    fn of(&mut self, stream: u64) -> usize {
        self.0.iter().position(|known| *known == stream).unwrap_or_else(|| {
            self.0.push(stream);
            self.0.len() - 1
        })
    }
}

/// Address and size, in address order.
type List = Vec<(u64, u64)>;

#[derive(Default)]
pub(super) struct Pool {
    maximum: Option<u64>,
    size: u64,
    /// Where device allocations begin.
    heads: BTreeSet<u64>,
    order: Order,
    lists: BTreeMap<usize, List>,
    waited: Vec<u64>,
    waits: u64,
}

fn insert(list: &mut List, heads: &BTreeSet<u64>, block: (u64, u64)) {
    let at = list.iter().position(|other| other.0 > block.0).unwrap_or(list.len());
    list.insert(at, block);
    for low in [at, at.wrapping_sub(1)] {
        if low < list.len() && low + 1 < list.len() {
            let (a, b) = (list[low], list[low + 1]);
            if a.0 + a.1 == b.0 && !heads.contains(&b.0) {
                list[low].1 += b.1;
                list.remove(low + 1);
            }
        }
    }
}

fn best_fit(list: &mut List, size: u64) -> Option<(u64, u64)> {
    let fits = list.iter().filter(|block| block.1 >= size);
    let best = *fits.min_by_key(|block| (block.1, block.0))?;
    list.retain(|block| *block != best);
    Some(best)
}

impl Pool {
    fn wait(&mut self, other: usize) {
        self.waited.push(self.order.0[other]);
        self.waits += 1;
    }

    /// Hands out the low end; the rest goes to a list.
    fn cut(&mut self, list: usize, block: (u64, u64), size: u64) -> u64 {
        if block.1 > size {
            let rest = (block.0 + size, block.1 - size);
            insert(self.lists.entry(list).or_default(), &self.heads, rest);
        }
        block.0
    }

    fn expand(&mut self, device: &mut Device, size: u64) -> Option<(u64, u64)> {
        let mut attempt = match self.maximum {
            None => size.max(self.size),
            Some(maximum) => {
                let rest = align(maximum.saturating_sub(self.size));
                if size <= rest { size.max(rest / 2) } else { 0 }
            }
        };
        while attempt >= size {
            if let Some(address) = device.malloc(attempt) {
                self.size += attempt;
                self.heads.insert(address);
                return Some((address, attempt));
            }
            if attempt == size {
                return None;
            }
            attempt = size.max(attempt / 2);
        }
        None
    }

    fn take(&mut self, device: &mut Device, asked: u64, stream: u64) -> Option<(u64, u64)> {
        let (size, own) = (align(asked), self.order.of(stream));
        self.lists.entry(own).or_default();
        let others: Vec<usize> = self.lists.keys().copied().filter(|other| *other != own).collect();
        for list in std::iter::once(own).chain(others.iter().copied()) {
            if let Some(block) = self.lists.get_mut(&list).and_then(|l| best_fit(l, size)) {
                if list != own {
                    self.wait(list);
                }
                return Some((self.cut(list, block, size), size));
            }
        }
        for other in others {
            self.wait(other);
            for block in self.lists.remove(&other).unwrap_or_default() {
                insert(self.lists.entry(own).or_default(), &self.heads, block);
            }
            if let Some(block) = self.lists.get_mut(&own).and_then(|l| best_fit(l, size)) {
                return Some((self.cut(own, block, size), size));
            }
        }
        let block = self.expand(device, size)?;
        Some((self.cut(own, block, size), size))
    }
}

fn make_pool(case: &Case, device: &mut Device) -> Result<Pool, &'static str> {
    let (initial, maximum) = (case.number("config/initial"), case.number("config/maximum"));
    let initial = initial.unwrap_or_default();
    let unaligned = initial % 256 != 0 || maximum.unwrap_or_default() % 256 != 0;
    if unaligned || maximum.is_some_and(|maximum| initial > maximum) {
        return Err("logic_error");
    }
    let mut pool = Pool { maximum, ..Pool::default() };
    if initial > 0 {
        let address = device.malloc(initial).ok_or("out_of_memory")?;
        pool.heads.insert(address);
        pool.size = initial;
        let own = pool.order.of(0);
        pool.lists.insert(own, vec![(address, initial)]);
    }
    Ok(pool)
}

pub(super) fn pool(case: &Case, device: &mut Device) -> Result<Box<dyn Resource>, &'static str> {
    Ok(Box::new(make_pool(case, device)?))
}

impl Resource for Pool {
    fn alloc(&mut self, device: &mut Device, size: u64, stream: u64) -> Option<(u64, u64)> {
        self.take(device, size, stream)
    }

    fn free(&mut self, address: u64, asked: u64, stream: u64) {
        let own = self.order.of(stream);
        insert(self.lists.entry(own).or_default(), &self.heads, (address, align(asked)));
    }

    fn statistic(&mut self, _device: &Device, name: &str) -> Value {
        let blocks = self.lists.values().flatten();
        match name {
            "reserved" => json!(self.size),
            "n_free_blocks" => json!(blocks.count()),
            "largest_free_block" => json!(blocks.map(|block| block.1).max().unwrap_or_default()),
            "n_lists" => json!(self.lists.len()),
            "waited_streams" => json!(std::mem::take(&mut self.waited)),
            other => panic!("the statistic {other:?} is not known"),
        }
    }
}

#[derive(Default)]
struct Bin {
    size: u64,
    order: Order,
    queues: BTreeMap<usize, VecDeque<u64>>,
}

struct Binning {
    pool: Pool,
    bins: Vec<Bin>,
    waits: u64,
}

impl Binning {
    fn bin(&self, asked: u64) -> Option<usize> {
        self.bins.iter().position(|bin| bin.size >= asked)
    }

    /// 128 more blocks for a stream.
    fn fill(&mut self, device: &mut Device, bin: usize, stream: u64) -> Option<()> {
        let size = self.bins[bin].size;
        let (address, _) = self.pool.take(device, 128 * size, stream)?;
        let own = self.bins[bin].order.of(stream);
        let blocks = (0..128).map(|at| address + at * size);
        self.bins[bin].queues.entry(own).or_default().extend(blocks);
        Some(())
    }
}

pub(super) fn binning(case: &Case, device: &mut Device) -> Result<Box<dyn Resource>, &'static str> {
    let mut binning = Binning { pool: make_pool(case, device)?, bins: Vec::new(), waits: 0 };
    let exponent = |name: &str| case.number(&format!("config/{name}")).expect("an exponent");
    for exponent in exponent("min_exp")..=exponent("max_exp") {
        let size = align(1 << exponent);
        if binning.bins.last().is_none_or(|bin| bin.size != size) {
            binning.bins.push(Bin { size, ..Bin::default() });
            let bin = binning.bins.len() - 1;
            binning.fill(device, bin, 0).ok_or("out_of_memory")?;
        }
    }
    Ok(Box::new(binning))
}

impl Resource for Binning {
    fn alloc(&mut self, device: &mut Device, asked: u64, stream: u64) -> Option<(u64, u64)> {
        let Some(at) = self.bin(asked) else { return self.pool.take(device, asked, stream) };
        let bin = &mut self.bins[at];
        let own = bin.order.of(stream);
        bin.queues.entry(own).or_default();
        let others: Vec<usize> = bin.queues.keys().copied().filter(|other| *other != own).collect();
        for list in std::iter::once(own).chain(others.iter().copied()) {
            if let Some(block) = bin.queues.get_mut(&list).and_then(VecDeque::pop_front) {
                self.waits += u64::from(list != own);
                return Some((block, bin.size));
            }
        }
        // all are empty: merged, with a wait each
        for other in others {
            bin.queues.remove(&other);
            self.waits += 1;
        }
        self.fill(device, at, stream)?;
        let bin = &mut self.bins[at];
        let block = bin.queues.get_mut(&own).and_then(VecDeque::pop_front)?;
        Some((block, bin.size))
    }

    fn free(&mut self, address: u64, asked: u64, stream: u64) {
        let Some(at) = self.bin(asked) else { return self.pool.free(address, asked, stream) };
        let own = self.bins[at].order.of(stream);
        self.bins[at].queues.entry(own).or_default().push_back(address);
    }

    fn statistic(&mut self, device: &Device, name: &str) -> Value {
        let queues = self.bins.iter().flat_map(|bin| bin.queues.values());
        match name {
            "n_bin_free" => json!(queues.map(VecDeque::len).sum::<usize>()),
            "n_waits" => json!(self.waits + self.pool.waits),
            name => self.pool.statistic(device, name),
        }
    }
}
