//! The instances inside: one for each stream, in order of their making, with the sums of their usage.

use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Placement, Request, Usage};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use crate::options::OptionError;
use crate::registry::Inner;

struct Instance {
    stream: StreamId,
    strategy: Box<dyn Allocator>,
    /// As it was after the last call.
    usage: Usage,
    /// Freed blocks that wait for other streams, in order.
    unfreed: Vec<Block>,
}

/// All instances. Each has a number, from 0 on.
pub(super) struct Instances {
    factory: Inner,
    list: Vec<Instance>,
    sums: Usage,
    /// Settings that changed while running, for instances to come.
    settings: Vec<(String, String)>,
    /// The one that was asked for last.
    last: u32,
}

impl Instances {
    pub(super) fn new(factory: Inner) -> Self {
        Self { factory, list: Vec::new(), sums: Usage::default(), settings: Vec::new(), last: 0 }
    }

    /// A new instance for a stream that has none; gives its number.
    pub(super) fn open(&mut self, stream: StreamId) -> Result<u32, OptionError> {
        let (strategy, unfreed) = ((self.factory)()?, Vec::new());
        self.list.push(Instance { stream, strategy, usage: Usage::default(), unfreed });
        Ok((self.list.len() - 1) as u32)
    }

    /// Numbers of all.
    pub(super) fn all(&self) -> std::ops::Range<u32> {
        0..self.list.len() as u32
    }

    /// The instance of a stream, if it has one.
    pub(super) fn find(&self, stream: StreamId) -> Option<u32> {
        self.list.iter().position(|instance| instance.stream == stream).map(|at| at as u32)
    }

    /// The instance of a stream, which is made if need be.
    #[inline]
    pub(super) fn at(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<u32, AllocError> {
        if self.list[self.last as usize].stream != stream {
            self.last = match self.find(stream) {
                Some(at) => at,
                None => self.open_late(driver, stream)?,
            };
        }
        Ok(self.last)
    }

    fn open_late(&mut self, driver: &mut dyn Driver, stream: StreamId) -> Result<u32, AllocError> {
        let opened = self.open(stream);
        let at = opened.map_err(|error| AllocError::BadSetting(error.to_string().into()))?;
        for (key, value) in self.settings.clone() {
            let notice = Notice::Set { key: &key, value: &value };
            self.with(at, |inner| inner.notice(driver, notice))?;
        }
        Ok(at)
    }

    /// A setting that instances to come must hear of.
    pub(super) fn remember(&mut self, key: &str, value: &str) {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), value.to_owned()));
    }

    /// Calls an instance, and keeps the sums.
    #[inline]
    pub(super) fn with<T>(&mut self, at: u32, call: impl FnOnce(&mut dyn Allocator) -> T) -> T {
        let instance = &mut self.list[at as usize];
        let answer = call(&mut *instance.strategy);
        let (old, new) = (instance.usage, instance.strategy.usage());
        instance.usage = new;
        self.sums = Usage {
            allocated: self.sums.allocated - old.allocated + new.allocated,
            active: self.sums.active - old.active + new.active,
            reserved: self.sums.reserved - old.reserved + new.reserved,
        };
        answer
    }

    /// A request to an instance; gives also by how much it made `allocated` grow.
    #[inline]
    pub(super) fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        at: u32,
        request: &Request,
    ) -> Result<(Placement, u64), AllocError> {
        let before = self.sums.allocated;
        let placement = self.with(at, |inner| inner.alloc(driver, request))?;
        Ok((placement, self.sums.allocated.saturating_sub(before)))
    }

    /// Sums over all.
    #[inline]
    pub(super) fn usage(&self) -> Usage {
        self.sums
    }

    /// Of one.
    pub(super) fn usage_of(&self, at: u32) -> Usage {
        self.list[at as usize].usage
    }

    /// Whose it is.
    #[inline]
    pub(super) fn stream(&self, at: u32) -> StreamId {
        self.list[at as usize].stream
    }

    /// Its waiting list.
    #[inline]
    pub(super) fn unfreed(&mut self, at: u32) -> &mut Vec<Block> {
        &mut self.list[at as usize].unfreed
    }

    /// Lengths of all waiting lists.
    pub(super) fn waiting(&self) -> u64 {
        self.list.iter().map(|instance| instance.unfreed.len() as u64).sum()
    }
}
