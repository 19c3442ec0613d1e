//! What a policy knows of uses to come.

/// A buffer that announced work uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) slot: u32,
    pub(super) write: bool,
}

/// Foresees uses. Time is counted in announced works; only differences and order mean something.
pub(super) trait Foresight: Send {
    /// A buffer was requested: the `ordinal`-th request, of `size` bytes.
    fn born(&mut self, slot: u32, ordinal: u64, size: u64);

    /// It was freed.
    fn gone(&mut self, slot: u32);

    /// Work that uses these was announced. From here on, uses to come are those after it.
    fn announced(&mut self, uses: &[Used]);

    /// When the buffer is used next.
    fn next_use(&self, slot: u32) -> Option<u64>;

    /// Is it known that what the buffer holds is not used again before it is freed?
    fn is_dead(&self, _slot: u32) -> bool {
        false
    }

    /// Buffers whose next use may have changed since the last call.
    fn changed(&mut self) -> Vec<u32>;

    /// Uses in the next `lead` works, the soonest first.
    fn coming(&self, lead: u64, found: &mut Vec<(u64, u32)>);

    /// Of buffers without a foreseen use, does the one used last leave first?
    fn recent_first(&self) -> bool {
        false
    }

    /// Names and values.
    fn counters(&mut self, counters: &mut Vec<(&'static str, u64)>);
}

/// Foresees nothing: what is left is the order of last uses.
#[derive(Debug, Default)]
pub(super) struct Nothing;

impl Foresight for Nothing {
    fn born(&mut self, _slot: u32, _ordinal: u64, _size: u64) {}

    fn gone(&mut self, _slot: u32) {}

    fn announced(&mut self, _uses: &[Used]) {}

    fn next_use(&self, _slot: u32) -> Option<u64> {
        None
    }

    fn changed(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn coming(&self, _lead: u64, _found: &mut Vec<(u64, u32)>) {}

    fn counters(&mut self, _counters: &mut Vec<(&'static str, u64)>) {}
}
