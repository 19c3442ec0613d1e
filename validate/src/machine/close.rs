//! Giving everything back, in reverse order of making, whatever was left by whom.

use vramlab_sim::driver::{Address, Handle};
use vramlab_sim::machine::RangeKind;
use vramlab_sim::units::StreamId;

use super::CudaMachine;
use super::books::Keep;
use crate::cuda::{Refusal, calls, families};

/// Something that was made and is still there.
#[derive(Clone, Copy)]
enum Left {
    Range(Address),
    HostRange(Address),
    Mapping(Address),
    Handle(u32),
    Pool(u32),
    Stream(StreamId),
    Event(u32),
}

impl CudaMachine {
    /// Gives back all that the run left, and the devices.
    ///
    /// # Errors
    /// The first refusal, after everything was tried.
    pub(crate) fn close(&mut self) -> Result<(), Refusal> {
        let mut first = Ok(());
        for at in (0..self.devices.len()).rev() {
            if self.devices[at].context.is_none() {
                continue;
            }
            let mut note = |done: Result<(), Refusal>| {
                if first.is_ok() {
                    first = done;
                }
            };
            note(self.enter(at));
            note(calls::synchronize());
            if let Some(found) = self.scratch.iter().position(|scratch| scratch.at == at) {
                let scratch = self.scratch.swap_remove(found);
                note(calls::free(scratch.device));
                note(scratch.host.give_back());
            }
            for left in self.left(at) {
                note(self.give_back(at, left));
            }
            if let Some(kernels) = self.devices[at].kernels.take() {
                note(kernels.unload());
            }
            if let Some(context) = self.devices[at].context.take() {
                note(calls::release(self.devices[at].number, context));
            }
        }
        first
    }

    /// What is left on a device, the last made first. Events are the machine's, and go with the last device.
    fn left(&self, at: usize) -> Vec<Left> {
        let device = &self.devices[at];
        let books = &device.books;
        let numbered = |at: usize| at as u32;
        let mut all: Vec<(u64, Left)> = Vec::new();
        all.extend(books.ranges.iter().map(|(start, range)| (range.made, Left::Range(*start))));
        all.extend(books.host.iter().map(|(start, range)| (range.made, Left::HostRange(*start))));
        all.extend(books.mappings.iter().map(|(start, map)| (map.made, Left::Mapping(*start))));
        let handles = books.handles.iter().enumerate().filter(|(_, state)| state.memory.is_some());
        all.extend(handles.map(|(at, state)| (state.made, Left::Handle(numbered(at)))));
        let pools = device.pools.iter().enumerate();
        all.extend(pools.filter_map(|(at, pool)| {
            pool.as_ref().map(|pool| (pool.made, Left::Pool(numbered(at))))
        }));
        all.extend(device.streams.iter().map(|(id, (_, made))| (*made, Left::Stream(*id))));
        if at + 1 == self.devices.len() {
            let events = self.events.iter().enumerate();
            all.extend(events.filter_map(|(at, event)| {
                event.as_ref().map(|(_, made)| (*made, Left::Event(numbered(at))))
            }));
        }
        all.sort_unstable_by_key(|(made, _)| std::cmp::Reverse(*made));
        all.into_iter().map(|(_, left)| left).collect()
    }

    fn give_back(&mut self, at: usize, left: Left) -> Result<(), Refusal> {
        let device = &mut self.devices[at];
        let books = &mut device.books;
        let all = [RangeKind::Malloc, RangeKind::Pool, RangeKind::Managed, RangeKind::Reserved];
        match left {
            Left::Range(address) => match books.take("end", address, &all) {
                Ok(range) if range.kind == RangeKind::Reserved => {
                    families::unreserve(address, range.asked)
                }
                Ok(range) => match range.keep {
                    Keep::Managed(managed) => families::free_managed(managed),
                    _ => calls::free(address),
                },
                Err(_) => Ok(()),
            },
            Left::HostRange(address) => match books.take("end", address, &[RangeKind::Host]) {
                Ok(range) => match range.keep {
                    Keep::Host(host) => host.give_back(),
                    _ => Ok(()),
                },
                Err(_) => Ok(()),
            },
            Left::Mapping(address) => match books.mappings.get(&address).copied() {
                Some(mapping) => {
                    let done = families::unmap(address, mapping.size);
                    books.unmapped(address, mapping.size);
                    done
                }
                None => Ok(()),
            },
            Left::Handle(number) => match books.take_memory("end", Handle(number)) {
                Ok(memory) => families::release_memory(memory),
                Err(_) => Ok(()),
            },
            // the default pool is the device's; what it keeps goes back
            Left::Pool(0) => match device.pools[0].take() {
                Some(state) => families::pool_trim(&state.pool, 0),
                None => Ok(()),
            },
            Left::Pool(number) => match device.pools[number as usize].take() {
                Some(state) => families::pool_destroy(state.pool),
                None => Ok(()),
            },
            Left::Stream(stream) => match device.streams.remove(&stream) {
                Some((stream, _)) => calls::stream_destroy(stream),
                None => Ok(()),
            },
            Left::Event(number) => match self.events[number as usize].take() {
                Some((event, _)) => calls::event_destroy(event),
                None => Ok(()),
            },
        }
    }
}

impl Drop for CudaMachine {
    fn drop(&mut self) {
        // who wants to hear of a refusal calls `close` before
        self.close().ok();
    }
}
