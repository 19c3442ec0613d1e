//! The state before the first entry of a history, found by walking it backwards from the segments that it ends with.
//!
//! `alloc` backwards removes a live block, `free_completed` puts one back, `segment_alloc` and `segment_map` remove memory,
//! `segment_free` and `segment_unmap` put it back. Free space inside a segment is always fully merged, so the live blocks alone fix the free list.
//!
//! A block put back has an unknown true size, since a large-pool block may keep up to 1 MiB of unsplit rest. Two rules settle it: a gap
//! before the next live block or the segment's end that is too small to be a free piece (at most 1 MiB in the large pool, under 512 B in
//! the small one) belongs to the block; and the first later `alloc` placed close behind the block while it lives shows its true end.

use std::collections::BTreeMap;

use vramlab_sim::allocator::{BlockState, Layout, LayoutBlock, LayoutSegment};
use vramlab_sim::units::{PoolId, StreamId};

use super::{Action, Entries, Entry, NotVerifiable, Recording};

/// Largest unsplit rest of a large-pool block: 1 MiB.
const REST_MAX: u64 = 1 << 20;
/// Blocks are multiples of this.
const BLOCK_MIN: u64 = 512;
/// Segment size of the small pool: 2 MiB.
const SMALL_SEGMENT: u64 = 2 << 20;

/// Rules of the recorded allocator that the walk needs.
pub struct Rules<'a> {
    /// Block size of a request, as its settings round it.
    pub round: &'a dyn Fn(u64) -> u64,
    /// Blocks of at least this size are never split.
    pub max_split: u64,
}

/// A block that was live before the first entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartBlock {
    /// Where.
    pub addr: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of the block.
    pub size: u64,
    /// Stream of its segment.
    pub stream: StreamId,
    /// Freed already, waits for a stream.
    pub pending: bool,
    /// Who asked, where the file says so; 0 is not known.
    pub site: u32,
}

/// What a segment of the end belongs to, as recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handles {
    /// Stream handle.
    pub stream: u64,
    /// Private pool; (0, 0) is the default.
    pub pool: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Live {
    requested: u64,
    /// Known from the final segments; otherwise to be settled.
    size: Option<u64>,
    pending: bool,
    /// Entry of the completion that made it pending, walking backwards.
    completion: Option<usize>,
    /// Counted as a gap: it lies in no segment.
    outside: bool,
}

/// What memory belongs to, in our numbers.
#[derive(Clone, Copy, Debug)]
struct Home {
    stream: StreamId,
    private: Option<PoolId>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    size: u64,
    stream: StreamId,
    small: bool,
    private: Option<PoolId>,
    expandable: bool,
}

impl<E: Entries> Recording<E> {
    /// Finds the state before the first entry. `end` are the segments of this device after the last entry, in address order, and
    /// `handles` the handles of each; their numbers of streams and private pools are filled in.
    pub fn new(entries: E, end: &mut Layout, handles: Vec<Handles>, rules: &Rules<'_>) -> Self {
        let mut streams: Vec<u64> = handles.iter().map(|h| h.stream).collect();
        let mut pools: Vec<(u64, u64)> = handles.iter().map(|h| h.pool).collect();
        for index in 0..entries.len() {
            let entry = entries.entry(index);
            if is_block_action(entry.action) || is_segment_action(entry.action) {
                streams.push(entry.stream);
                // Entries of one pool follow each other: most are known at once.
                if pools.last() != Some(&entry.pool) {
                    pools.push(entry.pool);
                }
            }
        }
        streams.push(0);
        pools.push((0, 0));
        streams.sort_unstable();
        streams.dedup();
        pools.sort_unstable();
        pools.dedup();
        let mut recording = Self {
            deferred: vec![false; entries.len()],
            entries,
            start: Vec::new(),
            layout: Layout::default(),
            streams,
            pools,
            peak_reserved: 0,
            start_reserved: 0,
            gaps: 0,
            trouble: None,
        };
        for (segment, handle) in end.segments.iter_mut().zip(handles) {
            segment.stream = recording.stream(handle.stream);
            segment.private_pool = recording.pool(handle.pool);
        }
        let mut walk = Walk::of(end);
        for index in (0..recording.entries.len()).rev() {
            let entry = recording.entries.entry(index);
            match entry.action {
                Action::FreeRequested => {
                    recording.deferred[index] = !completed_next(&recording.entries, index, entry);
                }
                Action::FreeCompleted => recording.deferred[index] = true,
                _ => {}
            }
            let home = Home {
                stream: recording.stream(entry.stream),
                private: recording.pool(entry.pool),
            };
            if let Some(completion) = walk.undo(entry, home, index) {
                recording.deferred[completion] = false;
            }
        }
        recording.start_reserved = walk.segments.values().map(|s| s.size).sum();
        recording.peak_reserved = peak_reserved(&recording.entries, recording.start_reserved);
        walk.settle(&recording.entries, rules);
        recording.gaps = walk.gaps;
        recording.trouble = walk.trouble.take().map(NotVerifiable);
        walk.finish(&mut recording);
        recording
    }
}

fn is_block_action(action: Action) -> bool {
    matches!(action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted)
}

fn is_segment_action(action: Action) -> bool {
    matches!(
        action,
        Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap
    )
}

fn completed_next<E: Entries>(entries: &E, index: usize, entry: Entry) -> bool {
    index + 1 < entries.len() && {
        let next = entries.entry(index + 1);
        next.action == Action::FreeCompleted && next.addr == entry.addr
    }
}

fn peak_reserved<E: Entries>(entries: &E, start: u64) -> u64 {
    let (mut now, mut peak) = (start, start);
    for index in 0..entries.len() {
        let entry = entries.entry(index);
        match entry.action {
            Action::SegmentAlloc | Action::SegmentMap => now += entry.size,
            Action::SegmentFree | Action::SegmentUnmap => now = now.saturating_sub(entry.size),
            _ => {}
        }
        peak = peak.max(now);
    }
    peak
}

/// The state while walking backwards.
struct Walk {
    live: BTreeMap<u64, Live>,
    segments: BTreeMap<u64, Segment>,
    gaps: u64,
    trouble: Option<String>,
}

impl Walk {
    fn of(end: &Layout) -> Self {
        let mut walk =
            Self { live: BTreeMap::new(), segments: BTreeMap::new(), gaps: 0, trouble: None };
        for segment in &end.segments {
            if segment.blocks.is_empty() && segment.size > 0 {
                walk.trouble(format!(
                    "the segment at {:#x} is listed without blocks",
                    segment.address
                ));
            }
            for block in segment.blocks.iter().filter(|b| b.state != BlockState::Free) {
                let pending = block.state == BlockState::Pending;
                walk.live.insert(
                    block.address,
                    Live {
                        requested: block.requested,
                        size: Some(block.size),
                        pending,
                        completion: None,
                        outside: false,
                    },
                );
            }
            let kept = Segment {
                size: segment.size,
                stream: segment.stream,
                small: segment.pool == "small",
                private: segment.private_pool,
                expandable: segment.expandable,
            };
            walk.segments.insert(segment.address, kept);
        }
        walk
    }

    fn trouble(&mut self, what: String) {
        self.trouble.get_or_insert(what);
    }

    /// Takes an entry back. For an allocation whose free was completed, but never requested: the entry of that completion.
    fn undo(&mut self, entry: Entry, home: Home, index: usize) -> Option<usize> {
        match entry.action {
            Action::Alloc => {
                let gone = self.live.remove(&entry.addr);
                if gone.is_none() && entry.size > 0 {
                    self.trouble(format!(
                        "entry {index} allocates {:#x}, which is neither freed later nor in a segment at the end",
                        entry.addr
                    ));
                }
                // Allocated here, wherever that is: its free is no gap.
                self.gaps -= u64::from(gone.is_some_and(|live| live.outside));
                return gone.filter(|live| live.pending).and_then(|live| live.completion);
            }
            Action::FreeCompleted => {
                let outside = entry.size > 0 && self.segment_of(entry.addr).is_none();
                if outside {
                    self.gaps += 1;
                    self.trouble(format!(
                        "entry {index} frees {:#x}, which is in no segment",
                        entry.addr
                    ));
                }
                // Found pending unless its free_requested is in the window, which undoes that.
                let completion = Some(index);
                let live =
                    Live { requested: entry.size, size: None, pending: true, completion, outside };
                if self.live.insert(entry.addr, live).is_some() {
                    self.trouble(format!(
                        "entry {index} frees {:#x}, which is live again afterwards",
                        entry.addr
                    ));
                }
            }
            Action::FreeRequested => {
                if let Some(live) = self.live.get_mut(&entry.addr) {
                    live.pending = false;
                }
            }
            Action::SegmentAlloc => {
                if self.segments.remove(&entry.addr).is_none() {
                    self.trouble(format!(
                        "entry {index} makes a segment at {:#x}, which is not there afterwards",
                        entry.addr
                    ));
                }
            }
            Action::SegmentFree => {
                let small = entry.size <= SMALL_SEGMENT;
                let segment = Segment {
                    size: entry.size,
                    stream: home.stream,
                    small,
                    private: home.private,
                    expandable: false,
                };
                self.segments.insert(entry.addr, segment);
            }
            Action::SegmentMap => self.unmap(entry, index),
            Action::SegmentUnmap => self.map(entry, home),
            Action::Snapshot | Action::Oom | Action::Other => {}
        }
        None
    }

    /// Takes pages out of a run of mapped pages.
    fn unmap(&mut self, entry: Entry, index: usize) {
        let (start, end) = (entry.addr, entry.addr + entry.size);
        let mut at = start;
        while at < end {
            let Some((&base, &segment)) =
                self.segments.range(..=at).next_back().filter(|(b, s)| *b + s.size > at)
            else {
                self.trouble(format!("entry {index} maps {at:#x}, which is not mapped afterwards"));
                return;
            };
            let stop = (base + segment.size).min(end);
            self.segments.remove(&base);
            if base < at {
                self.segments.insert(base, Segment { size: at - base, ..segment });
            }
            if base + segment.size > stop {
                self.segments.insert(stop, Segment { size: base + segment.size - stop, ..segment });
            }
            at = stop;
        }
    }

    /// Puts pages back; neighbours of the same stream and pool are one run again.
    fn map(&mut self, entry: Entry, home: Home) {
        let Home { stream, private } = home;
        let (mut start, mut end) = (entry.addr, entry.addr + entry.size);
        let small = !entry.size.is_multiple_of(20 << 20);
        let mut segment = Segment { size: 0, stream, small, private, expandable: true };
        if let Some((&base, &before)) = self.segments.range(..start).next_back()
            && before.expandable
            && before.stream == stream
            && base + before.size == start
        {
            (start, segment.small) = (base, before.small);
            self.segments.remove(&base);
        }
        if let Some(&after) = self.segments.get(&end)
            && after.expandable
            && after.stream == stream
        {
            self.segments.remove(&end);
            (end, segment.small) = (end + after.size, after.small);
        }
        segment.size = end - start;
        self.segments.insert(start, segment);
    }

    fn segment_of(&self, addr: u64) -> Option<(u64, Segment)> {
        self.segments
            .range(..=addr)
            .next_back()
            .filter(|(base, s)| **base + s.size > addr)
            .map(|(b, s)| (*b, *s))
    }

    /// Gives every live block its true size.
    fn settle<E: Entries>(&mut self, entries: &E, rules: &Rules<'_>) {
        let unknown: Vec<u64> =
            self.live.iter().filter(|(_, l)| l.size.is_none()).map(|(a, _)| *a).collect();
        if unknown.is_empty() {
            return;
        }
        let mut open: BTreeMap<u64, u64> = BTreeMap::new(); // address → rounded end, of blocks that the gap rule leaves open
        for addr in unknown {
            let Some((base, segment)) = self.segment_of(addr) else {
                self.trouble(format!("block {addr:#x} is in no segment"));
                continue;
            };
            let Some(live) = self.live.get(&addr).copied() else { continue };
            let rounded = (rules.round)(live.requested).max(BLOCK_MIN);
            let end = base + segment.size;
            let next = self.live.range(addr + 1..end).next().map_or(end, |(a, _)| *a);
            let Some(gap) = next.checked_sub(addr + rounded) else {
                self.trouble(format!(
                    "block {addr:#x} of {rounded} bytes reaches into what follows at {next:#x}"
                ));
                continue;
            };
            let whole = addr == base && next == end && segment.size >= rules.max_split;
            let size = if segment.expandable {
                rounded
            } else if whole
                || (segment.small && gap < BLOCK_MIN)
                || (!segment.small && gap <= REST_MAX)
            {
                rounded + gap
            } else {
                if !segment.small {
                    open.insert(addr, addr + rounded);
                }
                rounded
            };
            if let Some(live) = self.live.get_mut(&addr) {
                live.size = Some(size);
            }
        }
        self.settle_by_later_allocs(entries, open);
    }

    /// The first later `alloc` close behind an open block, while it lives, shows its end.
    fn settle_by_later_allocs<E: Entries>(&mut self, entries: &E, mut open: BTreeMap<u64, u64>) {
        for index in 0..entries.len() {
            if open.is_empty() {
                return;
            }
            let entry = entries.entry(index);
            match entry.action {
                Action::FreeCompleted => {
                    open.remove(&entry.addr);
                }
                Action::Alloc => {
                    let before = open.range(..entry.addr).next_back().map(|(a, e)| (*a, *e));
                    if let Some((addr, rounded_end)) = before
                        && (rounded_end..=rounded_end + REST_MAX).contains(&entry.addr)
                    {
                        open.remove(&addr);
                        if let Some(live) = self.live.get_mut(&addr) {
                            live.size = Some(entry.addr - addr);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn finish<E>(self, recording: &mut Recording<E>) {
        for (&address, segment) in &self.segments {
            let end = address + segment.size;
            let (mut blocks, mut at) = (Vec::new(), address);
            for (&addr, live) in self.live.range(address..end) {
                let size = live.size.unwrap_or(BLOCK_MIN);
                if addr > at {
                    blocks.push(free_block(at, addr - at));
                }
                let state = if live.pending { BlockState::Pending } else { BlockState::Allocated };
                blocks.push(LayoutBlock {
                    address: addr,
                    size,
                    requested: live.requested,
                    state,
                    age: 0,
                });
                let pending = live.pending;
                recording.start.push(StartBlock {
                    addr,
                    requested: live.requested,
                    size,
                    stream: segment.stream,
                    pending,
                    site: 0,
                });
                at = addr + size;
            }
            if at < end {
                blocks.push(free_block(at, end - at));
            }
            recording.layout.segments.push(LayoutSegment {
                address,
                size: segment.size,
                stream: segment.stream,
                pool: if segment.small { "small" } else { "large" },
                private_pool: segment.private,
                expandable: segment.expandable,
                registration: None,
                blocks,
            });
        }
    }
}

fn free_block(address: u64, size: u64) -> LayoutBlock {
    LayoutBlock { address, size, requested: 0, state: BlockState::Free, age: 0 }
}
