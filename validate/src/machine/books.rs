//! What a run holds of one device: live ranges, physical allocations, and where they are mapped. All of it is the machine's own
//! bookkeeping; the driver is asked for nothing here.

use std::collections::BTreeMap;

use vramlab_sim::driver::{Address, DriverError, Handle};
use vramlab_sim::machine::{Held, Origin, Physical, RangeKind};

use crate::cuda::calls::Physical as Memory;
use crate::cuda::host::{HostRange, ManagedRange};

/// Ranges of a pool have this physical identity, since what lies below them is the driver's affair.
const POOLED: u64 = u64::MAX;

/// What keeps a range alive, where that is more than its address.
pub(super) enum Keep {
    Address,
    Managed(ManagedRange),
    Host(HostRange),
}

/// A live range.
pub(super) struct Range {
    pub(super) kind: RangeKind,
    /// Bytes asked for.
    pub(super) asked: u64,
    /// Bytes that count against the limit.
    pub(super) taken: u64,
    /// Order of making, over all that the machine makes.
    pub(super) made: u64,
    ordinal: u32,
    physical: u64,
    /// Mappings inside.
    pub(super) mapped: u32,
    pub(super) keep: Keep,
}

/// A physical allocation.
pub(super) struct HandleState {
    /// `None`: released.
    pub(super) memory: Option<Memory>,
    pub(super) made: u64,
    size: u64,
    physical: u64,
    mapped: u32,
}

/// Where one is mapped.
#[derive(Clone, Copy)]
pub(super) struct Mapping {
    pub(super) size: u64,
    pub(super) made: u64,
    handle: u32,
}

/// The books of one device.
#[derive(Default)]
pub(super) struct Books {
    pub(super) held: Held,
    /// Bytes that count against the limit, pools and managed ranges included.
    pub(super) taken: u64,
    /// Of these, what the pools hold.
    pooled: u64,
    /// Bytes of live ranges of the pools.
    pool_used: u64,
    pub(super) ranges: BTreeMap<Address, Range>,
    pub(super) host: BTreeMap<Address, Range>,
    pub(super) handles: Vec<HandleState>,
    pub(super) mappings: BTreeMap<Address, Mapping>,
    ordinals: [u32; 5],
    next_physical: u64,
}

pub(super) fn invalid(call: &'static str, what: impl Into<Box<str>>) -> DriverError {
    DriverError::InvalidValue { call, what: what.into() }
}

impl Books {
    /// A new range.
    pub(super) fn add(
        &mut self,
        address: Address,
        (kind, asked, taken): (RangeKind, u64, u64),
        made: u64,
        keep: Keep,
    ) {
        let ordinal = self.ordinals[kind as usize];
        self.ordinals[kind as usize] += 1;
        let physical = match kind {
            RangeKind::Pool => POOLED,
            _ => {
                self.next_physical += 1;
                self.next_physical - 1
            }
        };
        let range = Range { kind, asked, taken, made, ordinal, physical, mapped: 0, keep };
        self.count(&range, true);
        let of = if kind == RangeKind::Host { &mut self.host } else { &mut self.ranges };
        of.insert(address, range);
    }

    /// Takes a live range of one of these kinds out of the books.
    pub(super) fn take(
        &mut self,
        call: &'static str,
        address: Address,
        kinds: &[RangeKind],
    ) -> Result<Range, DriverError> {
        let of = if kinds.contains(&RangeKind::Host) { &mut self.host } else { &mut self.ranges };
        let range = match of.remove(&address) {
            Some(range) if kinds.contains(&range.kind) => range,
            other => {
                if let Some(range) = other {
                    of.insert(address, range);
                }
                let what =
                    format!("found address {address:#x}, expected the beginning of a live range");
                return Err(invalid(call, what));
            }
        };
        self.count(&range, false);
        Ok(range)
    }

    fn count(&mut self, range: &Range, add: bool) {
        let change = |value: &mut u64, by: u64| {
            *value = if add { value.saturating_add(by) } else { value.saturating_sub(by) };
        };
        change(&mut self.taken, range.taken);
        match range.kind {
            RangeKind::Malloc => {
                change(&mut self.held.reserved, range.asked);
                change(&mut self.held.device_used, range.taken);
            }
            RangeKind::Managed => change(&mut self.held.managed, range.asked),
            RangeKind::Host => change(&mut self.held.host, range.asked),
            RangeKind::Pool => change(&mut self.pool_used, range.asked),
            RangeKind::Reserved => {}
        }
        self.peaks();
    }

    fn peaks(&mut self) {
        let held = &mut self.held;
        held.peak_reserved = held.peak_reserved.max(held.reserved);
        held.peak_device_used = held.peak_device_used.max(held.device_used);
        held.peak_managed = held.peak_managed.max(held.managed);
        held.peak_host = held.peak_host.max(held.host);
    }

    /// Bytes that the pools hold and nobody uses.
    pub(super) fn pool_free(&self) -> u64 {
        self.pooled.saturating_sub(self.pool_used)
    }

    /// The pools hold so much now.
    pub(super) fn set_pooled(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.pooled, bytes);
        for value in [&mut self.held.reserved, &mut self.held.device_used, &mut self.taken] {
            *value = value.saturating_sub(before).saturating_add(bytes);
        }
        self.peaks();
    }

    /// A new physical allocation.
    pub(super) fn add_handle(&mut self, memory: Memory, made: u64) -> Handle {
        let (handle, size) = (Handle(self.handles.len() as u32), memory.size());
        let physical = self.next_physical;
        self.next_physical += 1;
        let memory = Some(memory);
        self.handles.push(HandleState { memory, made, size, physical, mapped: 0 });
        for value in [&mut self.held.reserved, &mut self.held.device_used, &mut self.taken] {
            *value = value.saturating_add(size);
        }
        self.peaks();
        handle
    }

    /// The memory of a live handle.
    pub(super) fn memory(
        &self,
        call: &'static str,
        handle: Handle,
    ) -> Result<&Memory, DriverError> {
        let state = self.handles.get(handle.0 as usize);
        state
            .and_then(|state| state.memory.as_ref())
            .ok_or_else(|| invalid(call, format!("found h{}, expected a live handle", handle.0)))
    }

    /// Takes the memory of a live handle, which is released now.
    pub(super) fn take_memory(
        &mut self,
        call: &'static str,
        handle: Handle,
    ) -> Result<Memory, DriverError> {
        self.memory(call, handle)?;
        let memory = self.handles.get_mut(handle.0 as usize).and_then(|state| state.memory.take());
        self.settle(handle.0);
        memory.ok_or_else(|| invalid(call, "found a released handle, expected a live one"))
    }

    /// Bytes count until the handle is released and mapped nowhere.
    fn settle(&mut self, handle: u32) {
        let state = &self.handles[handle as usize];
        if state.memory.is_none() && state.mapped == 0 {
            let size = state.size;
            for value in [&mut self.held.reserved, &mut self.held.device_used, &mut self.taken] {
                *value = value.saturating_sub(size);
            }
        }
    }

    /// A handle was mapped.
    pub(super) fn mapped(&mut self, address: Address, handle: Handle, made: u64) {
        let Some(state) = self.handles.get_mut(handle.0 as usize) else { return };
        state.mapped += 1;
        let mapping = Mapping { size: state.size, made, handle: handle.0 };
        self.mappings.insert(address, mapping);
        if let Some((_, range)) = self.range_around_mut(address) {
            range.mapped += 1;
        }
    }

    /// What was mapped in a part was unmapped.
    pub(super) fn unmapped(&mut self, address: Address, size: u64) {
        let end = address.saturating_add(size);
        let gone: Vec<Address> = self.mappings.range(address..end).map(|(at, _)| *at).collect();
        for at in gone {
            let Some(mapping) = self.mappings.remove(&at) else { continue };
            self.handles[mapping.handle as usize].mapped -= 1;
            self.settle(mapping.handle);
            if let Some((_, range)) = self.range_around_mut(at) {
                range.mapped = range.mapped.saturating_sub(1);
            }
        }
    }

    fn range_around_mut(&mut self, address: Address) -> Option<(Address, &mut Range)> {
        let (start, range) = self.ranges.range_mut(..=address).next_back()?;
        (address - *start < range.asked.max(range.taken)).then_some((*start, range))
    }

    /// The live range around an address.
    pub(super) fn range_around(&self, address: Address) -> Option<(Address, &Range)> {
        let within = |of: &'_ BTreeMap<Address, Range>| {
            let (start, range) = of.range(..=address).next_back()?;
            (address - *start < range.asked.max(range.taken)).then_some(*start)
        };
        match within(&self.ranges) {
            Some(start) => Some((start, &self.ranges[&start])),
            None => within(&self.host).map(|start| (start, &self.host[&start])),
        }
    }

    pub(super) fn origin(&self, address: Address) -> Option<Origin> {
        let (start, range) = self.range_around(address)?;
        Some(Origin { kind: range.kind, ordinal: range.ordinal, offset: address - start })
    }

    pub(super) fn physical(&self, address: Address) -> Option<Physical> {
        let mapping = self.mappings.range(..=address).next_back();
        if let Some((start, mapping)) = mapping.filter(|(at, m)| address - **at < m.size) {
            let handle = self.handles[mapping.handle as usize].physical;
            let offset = address - start;
            return Some(Physical { handle, offset, run: mapping.size - offset });
        }
        let (start, range) = self.range_around(address)?;
        let offset = address - start;
        let run = range.asked.max(range.taken) - offset;
        match range.kind {
            RangeKind::Reserved | RangeKind::Host => None,
            RangeKind::Pool => Some(Physical { handle: POOLED, offset: address, run }),
            _ => Some(Physical { handle: range.physical, offset, run }),
        }
    }
}
