//! From a device's memory events to requests and frees.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{DeviceHistory, MemoryEvent};
use crate::readers::events::Builder;

/// The history of a device; times count from `first`.
pub(super) fn of(
    device_type: i64,
    device: u16,
    mut events: Vec<MemoryEvent>,
    first: u64,
) -> DeviceHistory {
    events.sort_by_key(|event| event.time); // stable: equal times stay as they are
    let start = Start::of(&events);
    let mut live = Live { builder: Builder::timed(), by_key: FxHashMap::default() };
    for (addr, size) in &start.blocks {
        live.alloc(0, *addr, *size);
    }
    if start.rest > 0 {
        live.builder.alloc(0, 0, start.rest);
    }
    for event in &events {
        live.take(event, event.time - first);
    }
    let most = |of: fn(&MemoryEvent) -> Option<u64>| events.iter().filter_map(of).max();
    DeviceHistory {
        device_type,
        device,
        start_blocks: start.blocks.len() as u64,
        start_bytes: start
            .blocks
            .iter()
            .fold(start.rest, |sum, (_, size)| sum.saturating_add(*size)),
        peak_allocated: most(|event| event.allocated),
        peak_reserved: most(|event| event.reserved),
        events: Arc::new(live.builder.finish()),
    }
}

/// What was live before the first event.
struct Start {
    /// Address (0 if unknown) and size of each block that is freed later.
    blocks: Vec<(u64, u64)>,
    /// Bytes beyond these, by the first total.
    rest: u64,
}

impl Start {
    fn of(events: &[MemoryEvent]) -> Self {
        let mut blocks = Vec::new();
        let mut counts: FxHashMap<Key, u64> = FxHashMap::default();
        let mut seen: FxHashSet<u64> = FxHashSet::default();
        for event in events.iter().filter(|event| !event.failed) {
            let key = Key::of(event);
            let count = counts.entry(key).or_default();
            let new = seen.insert(event.addr) || event.addr == 0;
            if event.bytes > 0 {
                *count += 1;
            } else if *count > 0 {
                *count -= 1;
            } else if event.bytes < 0 && new {
                blocks.push((event.addr, event.bytes.unsigned_abs()));
            }
        }
        let known = blocks.iter().fold(0_u64, |sum, (_, size)| sum.saturating_add(*size));
        let before = |event: &MemoryEvent| {
            u64::try_from(i128::from(event.allocated?) - i128::from(event.bytes)).ok()
        };
        let base = events.iter().find(|event| !event.failed).and_then(before);
        Self { blocks, rest: base.unwrap_or(0).saturating_sub(known) }
    }
}

/// What a free finds its request by: the address, or the size where the file has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Address(u64),
    Size(u64),
}

impl Key {
    fn of(event: &MemoryEvent) -> Self {
        Self::new(event.addr, event.bytes.unsigned_abs())
    }

    fn new(addr: u64, size: u64) -> Self {
        if addr == 0 { Self::Size(size) } else { Self::Address(addr) }
    }
}

/// Buffers that are live.
struct Live {
    builder: Builder,
    /// Slots, the latest last.
    by_key: FxHashMap<Key, Vec<u32>>,
}

impl Live {
    fn alloc(&mut self, time: u64, addr: u64, size: u64) {
        let slot = self.builder.alloc(time, addr, size);
        self.by_key.entry(Key::new(addr, size)).or_default().push(slot);
    }

    fn take(&mut self, event: &MemoryEvent, time: u64) {
        let size = event.bytes.unsigned_abs();
        if event.failed {
            return self.builder.failed(time, size);
        }
        let known = self.by_key.get_mut(&Key::of(event));
        if event.bytes < 0 {
            match known.and_then(Vec::pop) {
                Some(slot) => self.builder.free(time, slot),
                None => self.builder.gap(),
            }
        } else if event.bytes > 0 {
            if let Some(lost) = known.filter(|_| event.addr != 0).and_then(Vec::pop) {
                self.builder.free(time, lost);
                self.builder.gap();
            }
            self.alloc(time, event.addr, size);
        }
    }
}
