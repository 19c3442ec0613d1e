//! Trace entries as columns: 30 bytes an entry, 34 with stacks.

use std::ops::Range;

/// What an entry records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// A request was served; `size` is as requested, not rounded.
    Alloc,
    /// The program dropped a buffer.
    FreeRequested,
    /// The block of a dropped buffer became reusable.
    FreeCompleted,
    /// Memory taken from the driver.
    SegmentAlloc,
    /// Memory given back to the driver.
    SegmentFree,
    /// Pages mapped inside an expandable segment.
    SegmentMap,
    /// Pages unmapped inside an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken; `size` is the active bytes then.
    Snapshot,
    /// A request failed; `size` is the rounded request.
    Oom,
    /// An action that is not known here: index into [`Snapshot::unknown_actions`](super::Snapshot::unknown_actions),
    /// whose last possible place (255) stands for all further names.
    Unknown(u8),
}

impl Action {
    /// The known actions, in the order of the format's words.
    pub const KNOWN: [Action; 9] = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
        Action::SegmentFree,
        Action::SegmentMap,
        Action::SegmentUnmap,
        Action::Snapshot,
        Action::Oom,
    ];

    /// The word used in snapshots, or `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Action::Alloc => "alloc",
            Action::FreeRequested => "free_requested",
            Action::FreeCompleted => "free_completed",
            Action::SegmentAlloc => "segment_alloc",
            Action::SegmentFree => "segment_free",
            Action::SegmentMap => "segment_map",
            Action::SegmentUnmap => "segment_unmap",
            Action::Snapshot => "snapshot",
            Action::Oom => "oom",
            Action::Unknown(_) => "unknown",
        }
    }
}

/// Names a stack of [`Stacks`](super::Stacks).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Names a [`Tag`](super::Tag): stream, pool and texts of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TagId(pub u32);

/// One entry, put together from the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub action: Action,
    /// Device address; `None` for `oom`.
    pub addr: Option<u64>,
    /// Bytes; see [`Action`] for which.
    pub size: u64,
    /// Microseconds since 1970; `None` before 2024.
    pub time_us: Option<u64>,
    /// Call stack, if one was recorded and is not empty.
    pub stack: Option<StackId>,
    /// Stream, pool and texts.
    pub tag: TagId,
    /// Bytes free on the device, as the driver reported at an `oom`.
    pub device_free: Option<u64>,
}

/// Room is never made for more rows than this at once: sizes of files can be lies (sparse ones).
const ROWS_GUESS_MAX: usize = 1 << 25;
const NO_STACK: u32 = u32::MAX;
const NO_NUMBER: u64 = u64::MAX;

/// The entries of one device, oldest first.
#[derive(Debug, Default, Clone)]
pub struct Trace {
    actions: Vec<Action>,
    /// Address; for `oom`, which has none, the free bytes of the device.
    addrs: Vec<u64>,
    sizes: Vec<u64>,
    /// Empty if no entry has a time.
    times: Vec<u64>,
    /// Empty if no entry has a stack. While reading: slots of stacks that may still grow.
    stacks: Vec<u32>,
    tags: Vec<u32>,
}

impl Trace {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The entry at `index`, 0 being the oldest.
    pub fn get(&self, index: usize) -> Option<Entry> {
        let action = *self.actions.get(index)?;
        let number = |value: u64| (value != NO_NUMBER).then_some(value);
        let place = number(self.addrs[index]);
        let is_oom = action == Action::Oom;
        let stack = self.stacks.get(index).filter(|stack| **stack != NO_STACK);
        Some(Entry {
            action,
            addr: place.filter(|_| !is_oom),
            size: self.sizes[index],
            time_us: self.times.get(index).and_then(|time| number(*time)),
            stack: stack.map(|stack| StackId(*stack)),
            tag: TagId(self.tags[index]),
            device_free: place.filter(|_| is_oom),
        })
    }

    /// All entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Entry> + DoubleEndedIterator + Clone + '_ {
        let blank = Entry {
            action: Action::Unknown(u8::MAX),
            addr: None,
            size: 0,
            time_us: None,
            stack: None,
            tag: TagId(0),
            device_free: None,
        };
        (0..self.len()).map(move |index| self.get(index).unwrap_or(blank))
    }

    /// What happened, as a column.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Addresses as a column. For `oom` the value is the free bytes of the device; `u64::MAX` means absent.
    pub fn addrs(&self) -> &[u64] {
        &self.addrs
    }

    /// Sizes in bytes as a column.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// Microseconds since 1970 as a column; empty if no entry has a time, `u64::MAX` where one has none.
    pub fn times(&self) -> &[u64] {
        &self.times
    }

    /// Tags as a column of [`TagId`] numbers.
    pub fn tags(&self) -> &[u32] {
        &self.tags
    }

    /// Number of entries with this action.
    pub fn count(&self, action: Action) -> usize {
        self.actions.iter().filter(|a| **a == action).count()
    }

    /// Whether any entry has a call stack.
    pub fn has_stacks(&self) -> bool {
        !self.stacks.is_empty()
    }

    /// Bytes that the columns hold.
    pub fn bytes(&self) -> usize {
        self.actions.len() * size_of::<Action>()
            + (self.addrs.len() + self.sizes.len() + self.times.len()) * size_of::<u64>()
            + (self.stacks.len() + self.tags.len()) * size_of::<u32>()
    }

    /// Makes room for `rows` in all, and a little more, so that columns need not move while they grow. A guess: that it
    /// cannot be had is no error.
    pub(super) fn expect(&mut self, rows: usize) {
        fn make_room<T>(column: &mut Vec<T>, more: usize) {
            let _ = column.try_reserve_exact(more);
        }
        let rows = rows.min(ROWS_GUESS_MAX);
        if rows <= self.actions.capacity() {
            return;
        }
        let more = (rows + rows / 32).saturating_sub(self.actions.len());
        make_room(&mut self.actions, more);
        make_room(&mut self.addrs, more);
        make_room(&mut self.sizes, more);
        make_room(&mut self.tags, more);
        if !self.times.is_empty() {
            make_room(&mut self.times, more);
        }
        if !self.stacks.is_empty() {
            make_room(&mut self.stacks, more);
        }
    }

    #[inline]
    pub(super) fn push(&mut self, entry: &Entry) {
        let row = self.actions.len();
        self.actions.push(entry.action);
        let place = if entry.action == Action::Oom { entry.device_free } else { entry.addr };
        self.addrs.push(place.unwrap_or(NO_NUMBER));
        self.sizes.push(entry.size);
        self.tags.push(entry.tag.0);
        push_late(&mut self.times, row, entry.time_us, NO_NUMBER);
        push_late(&mut self.stacks, row, entry.stack.map(|stack| stack.0), NO_STACK);
    }

    pub(super) fn set(&mut self, row: usize, entry: &Entry) {
        let mut one = Trace::default();
        one.push(entry);
        if row >= self.len() {
            return;
        }
        self.actions[row] = one.actions[0];
        self.addrs[row] = one.addrs[0];
        self.sizes[row] = one.sizes[0];
        self.tags[row] = one.tags[0];
        let rows = self.len();
        set_late(&mut self.times, rows, row, one.times.first().copied(), NO_NUMBER);
        set_late(&mut self.stacks, rows, row, one.stacks.first().copied(), NO_STACK);
    }

    /// Replaces each stack slot by what `stack_of` says.
    pub(super) fn settle_stacks(&mut self, stack_of: impl Fn(u32) -> Option<StackId>) {
        for stack in self.stacks.iter_mut().filter(|stack| **stack != NO_STACK) {
            *stack = stack_of(*stack).map_or(NO_STACK, |stack| stack.0);
        }
        if self.stacks.iter().all(|stack| *stack == NO_STACK) {
            self.stacks = Vec::new();
        }
    }

    /// Cuts off the rows from `start` up.
    pub(super) fn split_off(&mut self, start: usize) -> Trace {
        fn tail<T>(column: &mut Vec<T>, start: usize) -> Vec<T> {
            match start {
                // All of it: moved, where `split_off` would copy.
                0 => std::mem::take(column),
                _ if column.len() <= start => Vec::new(),
                _ => column.split_off(start),
            }
        }
        Trace {
            actions: tail(&mut self.actions, start),
            addrs: tail(&mut self.addrs, start),
            sizes: tail(&mut self.sizes, start),
            times: tail(&mut self.times, start),
            stacks: tail(&mut self.stacks, start),
            tags: tail(&mut self.tags, start),
        }
    }

    /// A copy of the rows named.
    pub(super) fn gather(&self, rows: impl Iterator<Item = u32>) -> Trace {
        let mut trace = Trace::default();
        for entry in rows.filter_map(|row| self.get(row as usize)) {
            trace.push(&entry);
        }
        trace
    }

    /// Drops columns in which nothing is present, and spare room.
    pub(super) fn tidy(&mut self) {
        if self.times.iter().all(|time| *time == NO_NUMBER) {
            self.times.clear();
        }
        if self.stacks.iter().all(|stack| *stack == NO_STACK) {
            self.stacks.clear();
        }
        self.actions.shrink_to_fit();
        self.addrs.shrink_to_fit();
        self.sizes.shrink_to_fit();
        self.times.shrink_to_fit();
        self.stacks.shrink_to_fit();
        self.tags.shrink_to_fit();
    }
}

/// Pushes into a column that stays empty until its first value.
#[inline]
fn push_late<T: Copy>(column: &mut Vec<T>, row: usize, value: Option<T>, absent: T) {
    match value {
        Some(value) if column.len() == row => column.push(value),
        Some(value) => {
            column.resize(row, absent);
            column.push(value);
        }
        None if column.is_empty() => {}
        None => column.push(absent),
    }
}

fn set_late<T: Copy>(column: &mut Vec<T>, rows: usize, row: usize, value: Option<T>, absent: T) {
    if value.is_some() && column.is_empty() {
        column.resize(rows, absent);
    }
    if let Some(slot) = column.get_mut(row) {
        *slot = value.unwrap_or(absent);
    }
}

/// Rows `start..end`, if `rows` counts up by one.
pub(super) fn as_range(mut rows: impl Iterator<Item = u32>) -> Option<Range<u32>> {
    let Some(start) = rows.next() else { return Some(0..0) };
    let mut end = start + 1;
    for row in rows {
        if row != end {
            return None;
        }
        end += 1;
    }
    Some(start..end)
}
