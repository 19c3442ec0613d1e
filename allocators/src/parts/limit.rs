//! A driver that has no more than a limit, for the strategy within.

use rustc_hash::FxHashMap;
use vramlab_sim::allocator::{AllocError, Allocator, Placement, Request};
use vramlab_sim::driver::{Address, Answer, Call, Driver, DriverError, Families, Handle};

/// Bytes that a strategy took, against a limit.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Bytes.
    limit: u64,
    /// Only `cudaMalloc` is held to it.
    mallocs_only: bool,
    held: u64,
    /// Looked up, never walked.
    ranges: FxHashMap<Address, u64>,
    handles: FxHashMap<Handle, u64>,
    /// The last call for memory was refused by the limit.
    refused: bool,
}

impl Limit {
    /// On all memory of the device.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            mallocs_only: false,
            held: 0,
            ranges: FxHashMap::default(),
            handles: FxHashMap::default(),
            refused: false,
        }
    }

    /// On what `cudaMalloc` gives.
    pub(crate) fn of_mallocs(limit: u64) -> Self {
        Self { mallocs_only: true, ..Self::new(limit) }
    }

    /// The driver within the limit.
    pub(crate) fn around<'a>(&'a mut self, driver: &'a mut dyn Driver) -> Limited<'a> {
        Limited { limit: self, driver }
    }

    /// Asks a strategy within the limit. Out of memory says so where it was the limit that refused.
    ///
    /// # Errors
    /// The strategy's.
    pub(crate) fn alloc(
        &mut self,
        inner: &mut dyn Allocator,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.refused = false;
        let mut answer = inner.alloc(&mut self.around(driver), request);
        if let Err(AllocError::OutOfMemory(numbers)) = &mut answer
            && self.refused
        {
            numbers.limit.get_or_insert(self.limit);
        }
        answer
    }

    /// Bytes that a call asks for, if it is held to the limit.
    const fn asked(&self, call: Call) -> Option<u64> {
        match call {
            Call::Malloc { size } => Some(size),
            Call::MallocAsync { size, .. }
            | Call::MallocManaged { size }
            | Call::Create { size }
                if !self.mallocs_only =>
            {
                Some(size)
            }
            _ => None,
        }
    }

    fn note(&mut self, call: Call, answer: Answer) {
        if let Some(size) = self.asked(call) {
            match answer {
                Answer::Address(address) => self.ranges.insert(address, size),
                Answer::Handle(handle) => self.handles.insert(handle, size),
                _ => return,
            };
            self.held += size;
            return;
        }
        let gone = match call {
            Call::Free { address } | Call::FreeAsync { address, .. } => {
                self.ranges.remove(&address)
            }
            Call::Release { handle } => self.handles.remove(&handle),
            _ => None,
        };
        self.held -= gone.unwrap_or_default();
    }
}

/// A driver whose device seems to have no more than the limit.
pub(crate) struct Limited<'a> {
    limit: &'a mut Limit,
    driver: &'a mut dyn Driver,
}

impl Driver for Limited<'_> {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let left = self.limit.limit - self.limit.held;
        if let Some(asked) = self.limit.asked(call) {
            self.limit.refused = asked > left;
            if asked > left {
                return Err(DriverError::OutOfMemory { asked, free: left });
            }
        }
        let answer = self.driver.call(call)?;
        self.limit.note(call, answer);
        Ok(match answer {
            Answer::Info { free, total } => {
                Answer::Info { free: free.min(left), total: total.min(self.limit.limit) }
            }
            other => other,
        })
    }

    fn families(&self) -> Families {
        self.driver.families()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::driver::DriverExt;
    use vramlab_sim::testing::ScriptedMachine;
    use vramlab_sim::units::StreamId;

    const MIB: u64 = 1 << 20;

    #[test]
    fn all_memory_counts_and_what_is_given_back_does_not() -> Result<(), DriverError> {
        let (mut limit, mut machine) =
            (Limit::new(8 * MIB), ScriptedMachine::of_capacity(64 * MIB));
        let mut driver = limit.around(&mut machine);
        let plain = driver.malloc(2 * MIB)?;
        let handle = driver.create(2 * MIB)?;
        assert_eq!(driver.mem_info()?, (4 * MIB, 8 * MIB));
        let refusal = DriverError::OutOfMemory { asked: 5 * MIB, free: 4 * MIB };
        assert_eq!(driver.malloc(5 * MIB), Err(refusal.clone()));
        assert_eq!(driver.create(5 * MIB), Err(refusal));
        driver.free(plain)?;
        driver.release(handle)?;
        assert_eq!(driver.mem_info()?, (8 * MIB, 8 * MIB));
        Ok(())
    }

    #[test]
    fn of_mallocs_physical_memory_is_not_held_to_it() -> Result<(), DriverError> {
        let mut machine = ScriptedMachine::of_capacity(64 * MIB);
        let mut limit = Limit::of_mallocs(2 * MIB);
        let mut driver = limit.around(&mut machine);
        driver.create(4 * MIB)?;
        driver.malloc(2 * MIB)?;
        assert!(driver.malloc(1).is_err());
        Ok(())
    }

    #[test]
    fn out_of_memory_names_the_limit_only_if_that_refused() {
        for (limit, device, named) in [(2, 8, Some(2 * MIB)), (8, 2, None), (2, 2, Some(2 * MIB))] {
            let mut inner = crate::build(&"cuda.malloc".parse().expect("a spec")).expect("builds");
            let mut machine = ScriptedMachine::of_capacity(device * MIB);
            let request = Request { size: 4 * MIB, stream: StreamId(0), ordinal: 0 };
            let answer = Limit::new(limit * MIB).alloc(&mut *inner, &mut machine, &request);
            let Err(AllocError::OutOfMemory(numbers)) = answer else { panic!("{answer:?}") };
            assert_eq!(numbers.limit, named, "{limit} MiB of {device}");
        }
    }
}
