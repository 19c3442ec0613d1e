//! What the strategy of the device tier sees of the device: no more than `device_bytes`.

use rustc_hash::FxHashMap;
use vramlab_sim::driver::{Address, Answer, Call, Driver, DriverError, Families, Handle};

/// Bytes that the inner strategy took, against a limit.
#[derive(Debug)]
pub(super) struct Fence {
    limit: u64,
    held: u64,
    /// Looked up, never walked.
    ranges: FxHashMap<Address, u64>,
    handles: FxHashMap<Handle, u64>,
}

impl Fence {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, held: 0, ranges: FxHashMap::default(), handles: FxHashMap::default() }
    }

    /// The driver within the fence.
    pub(super) fn around<'a>(&'a mut self, driver: &'a mut dyn Driver) -> Fenced<'a> {
        Fenced { fence: self, driver }
    }

    fn note(&mut self, call: Call, answer: Answer) {
        match (call, answer) {
            (
                Call::Malloc { size }
                | Call::MallocAsync { size, .. }
                | Call::MallocManaged { size },
                Answer::Address(address),
            ) => {
                self.ranges.insert(address, size);
                self.held += size;
            }
            (Call::Create { size }, Answer::Handle(handle)) => {
                self.handles.insert(handle, size);
                self.held += size;
            }
            (Call::Free { address } | Call::FreeAsync { address, .. }, _) => {
                self.held -= self.ranges.remove(&address).unwrap_or_default();
            }
            (Call::Release { handle }, _) => {
                self.held -= self.handles.remove(&handle).unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// A driver whose device seems to have no more than the limit.
pub(super) struct Fenced<'a> {
    fence: &'a mut Fence,
    driver: &'a mut dyn Driver,
}

impl Driver for Fenced<'_> {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let left = self.fence.limit.saturating_sub(self.fence.held);
        match call {
            Call::Malloc { size }
            | Call::MallocAsync { size, .. }
            | Call::MallocManaged { size }
            | Call::Create { size }
                if size > left =>
            {
                return Err(DriverError::OutOfMemory { asked: size, free: left });
            }
            _ => {}
        }
        let answer = self.driver.call(call)?;
        self.fence.note(call, answer);
        Ok(match answer {
            Answer::Info { free, total } => {
                Answer::Info { free: free.min(left), total: total.min(self.fence.limit) }
            }
            other => other,
        })
    }

    fn families(&self) -> Families {
        self.driver.families()
    }
}
