//! Dense slots for a trace's own numbers.

use rustc_hash::FxHashMap;

/// The slots of live ids; that of an id that is gone is given to a later one.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Of each live id.
    slots: FxHashMap<u64, u32>,
    /// Id of each slot.
    names: Vec<u64>,
    unused: Vec<u32>,
}

impl Slots {
    /// A slot for an id that becomes live; `None` if it is live already.
    pub(super) fn open(&mut self, id: u64) -> Option<u32> {
        if self.slots.contains_key(&id) {
            return None;
        }
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.names[slot as usize] = id;
                slot
            }
            None => {
                self.names.push(id);
                self.names.len() as u32 - 1
            }
        };
        self.slots.insert(id, slot);
        Some(slot)
    }

    /// The slot of a live id.
    pub(super) fn get(&self, id: u64) -> Option<u32> {
        self.slots.get(&id).copied()
    }

    /// Was any id ever live?
    pub(super) fn used(&self) -> bool {
        !self.names.is_empty()
    }

    pub(super) fn close(&mut self, id: u64) {
        if let Some(slot) = self.slots.remove(&id) {
            self.unused.push(slot);
        }
    }

    pub(super) fn name(&self, slot: u32) -> u64 {
        self.names.get(slot as usize).copied().unwrap_or(u64::from(slot))
    }
}
