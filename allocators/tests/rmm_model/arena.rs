//! The arena.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use vramlab_sim::driver::DriverExt;

use super::{Device, Resource};
use crate::golden_cases::Case;

const MIB: u64 = 1 << 20;

struct Superblock {
    size: u64,
    /// None: the global arena.
    owner: Option<u64>,
    /// Address and size of free blocks.
    free: BTreeMap<u64, u64>,
}

impl Superblock {
    fn new(address: u64, size: u64, owner: Option<u64>) -> Self {
        Self { size, owner, free: BTreeMap::from([(address, size)]) }
    }

    fn is_empty(&self) -> bool {
        self.free.values().copied().collect::<Vec<_>>() == [self.size]
    }
}

struct Arena {
    size: u64,
    superblocks: BTreeMap<u64, Superblock>,
    stream_syncs: u64,
    device_syncs: u64,
}

pub(super) fn arena(case: &Case, device: &mut Device) -> Result<Box<dyn Resource>, &'static str> {
    let half = device.machine.mem_info().expect("the device says").0 / 2;
    let size = case.number("config/arena_size").unwrap_or(half) / 256 * 256;
    if size < MIB {
        return Err("logic_error");
    }
    let address = device.malloc(size).ok_or("out_of_memory")?;
    let superblocks = BTreeMap::from([(address, Superblock::new(address, size, None))]);
    Ok(Box::new(Arena { size, superblocks, stream_syncs: 1, device_syncs: 0 }))
}

impl Arena {
    /// The first superblock of an owner that has a free block of `size` bytes.
    fn fitting(&self, owner: Option<u64>, size: u64) -> Option<u64> {
        let mut own = self.superblocks.iter().filter(|(_, superblock)| superblock.owner == owner);
        let fits = |superblock: &Superblock| superblock.free.values().any(|free| *free >= size);
        own.find(|(_, superblock)| fits(superblock)).map(|(address, _)| *address)
    }

    /// The first superblock of the global arena that fits, split if it is empty and both parts keep 1 MiB.
    fn global(&mut self, size: u64) -> Option<u64> {
        let address = self.fitting(None, size)?;
        let (head, superblock) = (size.max(MIB), self.superblocks.get(&address)?);
        if superblock.is_empty() && superblock.size >= head + MIB {
            let (rest, whole) = (address + head, superblock.size);
            self.superblocks.insert(rest, Superblock::new(rest, whole - head, None));
            self.superblocks.insert(address, Superblock::new(address, head, None));
        }
        Some(address)
    }

    fn first_fit(&mut self, superblock: u64, size: u64) -> Option<u64> {
        let free = &mut self.superblocks.get_mut(&superblock)?.free;
        let (address, whole) =
            free.iter().find(|(_, free)| **free >= size).map(|(a, s)| (*a, *s))?;
        free.remove(&address);
        if whole > size {
            free.insert(address + size, whole - size);
        }
        Some(address)
    }

    fn try_alloc(&mut self, size: u64, stream: u64) -> Option<u64> {
        let superblock = if size > MIB {
            self.global(size)?
        } else {
            match self.fitting(Some(stream), size) {
                Some(own) => own,
                None => {
                    let acquired = self.global(size)?;
                    self.superblocks.get_mut(&acquired)?.owner = Some(stream);
                    acquired
                }
            }
        };
        self.first_fit(superblock, size)
    }

    /// Joins empty neighbours of the global arena, wherever there are any.
    fn coalesce(&mut self) {
        let addresses: BTreeSet<u64> = self.superblocks.keys().copied().collect();
        for address in addresses.into_iter().rev() {
            let low = &self.superblocks[&address];
            let next = address + low.size;
            let joins = |s: &Superblock| s.owner.is_none() && s.is_empty();
            if joins(low) && self.superblocks.get(&next).is_some_and(joins) {
                let both = low.size + self.superblocks[&next].size;
                self.superblocks.remove(&next);
                self.superblocks.insert(address, Superblock::new(address, both, None));
            }
        }
    }
}

impl Resource for Arena {
    fn alloc(&mut self, _device: &mut Device, asked: u64, stream: u64) -> Option<(u64, u64)> {
        let size = asked.next_multiple_of(256);
        let address = self.try_alloc(size, stream).or_else(|| {
            self.device_syncs += 1;
            self.superblocks.values_mut().for_each(|superblock| superblock.owner = None);
            self.coalesce();
            self.try_alloc(size, stream)
        })?;
        Some((address, size))
    }

    fn free(&mut self, address: u64, asked: u64, stream: u64) {
        let size = asked.next_multiple_of(256);
        let (_, holder) = self.superblocks.range_mut(..=address).next_back().expect("it is inside");
        let (large, owner) = (size > MIB, holder.owner);
        holder.free.insert(address, size);
        let all: Vec<(u64, u64)> = holder.free.iter().map(|(a, s)| (*a, *s)).collect();
        holder.free.clear();
        for (address, size) in all {
            match holder.free.iter_mut().next_back() {
                Some((low, bytes)) if low + *bytes == address => *bytes += size,
                _ => drop(holder.free.insert(address, size)),
            }
        }
        self.stream_syncs += u64::from(large);
        let done = if large { owner.is_none() } else { false } || owner == Some(stream);
        self.stream_syncs += u64::from(!done);
        self.coalesce();
    }

    fn statistic(&mut self, _device: &Device, name: &str) -> Value {
        let free = self.superblocks.values().flat_map(|superblock| superblock.free.values());
        let global = self.superblocks.values().filter(|s| s.owner.is_none()).count();
        match name {
            "reserved" => json!(self.size),
            "n_free_blocks" => json!(free.count()),
            "largest_free_block" => json!(free.max().copied().unwrap_or_default()),
            "n_global_superblocks" => json!(global),
            "n_stream_superblocks" => json!(self.superblocks.len() - global),
            "n_stream_syncs" => json!(self.stream_syncs),
            "n_device_syncs" => json!(self.device_syncs),
            other => panic!("the statistic {other:?} is not known"),
        }
    }
}
