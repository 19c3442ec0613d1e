//! Dense slots for a trace's own numbers.

use rustc_hash::FxHashMap;

/// The slots of live ids; that of an id that is gone is given to a later one.
#[derive(Debug)]
pub struct Slots {
    /// What has the ids, and the op that begins one, for messages.
    what: &'static str,
    begin: &'static str,
    /// Of each live id.
    slots: FxHashMap<u64, u32>,
    /// Id of each slot.
    names: Vec<u64>,
    unused: Vec<u32>,
}

impl Slots {
    /// None yet. `what` is what has the ids, `begin` the op that begins one, for messages.
    pub fn new(what: &'static str, begin: &'static str) -> Self {
        Self { what, begin, slots: FxHashMap::default(), names: Vec::new(), unused: Vec::new() }
    }

    /// A slot for an id that becomes live.
    ///
    /// # Errors
    /// It is live already; the message names `op`.
    pub fn open(&mut self, op: &str, id: u64) -> Result<u32, String> {
        if self.slots.contains_key(&id) {
            return Err(format!(
                "{op} of {} {id}, which is live already; expected an id that is not in use",
                self.what
            ));
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
        Ok(slot)
    }

    /// The slot of a live id.
    pub fn get(&self, id: u64) -> Option<u32> {
        self.slots.get(&id).copied()
    }

    /// The slot of a live id; `Ok(None)` for a gap, which a trace that is `truncated` may have anywhere, and others before the first id.
    ///
    /// # Errors
    /// It is not live, and no gap; the message names `op`.
    pub fn live(&self, op: &str, id: u64, truncated: bool) -> Result<Option<u32>, String> {
        match self.get(id) {
            Some(slot) => Ok(Some(slot)),
            None if truncated || self.names.is_empty() => Ok(None),
            None => Err(format!(
                "{op} of {} {id}, which is not live; expected an id of an earlier {} that was not freed since",
                self.what, self.begin
            )),
        }
    }

    /// The id is gone; if it was live, its slot is free.
    pub fn close(&mut self, id: u64) {
        if let Some(slot) = self.slots.remove(&id) {
            self.unused.push(slot);
        }
    }

    /// The id that has, or had last, this slot.
    pub fn name(&self, slot: u32) -> u64 {
        self.names.get(slot as usize).copied().unwrap_or(u64::from(slot))
    }
}
