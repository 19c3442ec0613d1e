//! A driver that answers from a recording.
//!
//! Before each step it is given the driver events that the recording shows between the step before and this one. A malloc gets the next recorded
//! segment; if the next event is a release, or there is none and the request is one that failed, the device was full.

use std::collections::{BTreeMap, VecDeque};

use vramlab_sim::allocator::Layout;
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, Families, Handle};
use vramlab_sim::units::EventId;
use vramlab_workloads::readers::recording::{Action, Driven, Entries, RecordedStep};

/// Where made-up answers lie, far from recorded ones.
const ELSEWHERE: u64 = 0x0100_0000_0000;

/// The driver.
pub(super) struct RecordedDriver {
    total: u64,
    window: VecDeque<Driven>,
    seen: u64,
    matched: u64,
    wrong: Vec<String>,
    /// The step is a request that failed, with the device's free bytes.
    failing: Option<u64>,
    /// Bytes of the front event that pages were unmapped for.
    unmapped: u64,
    /// Known reserved ranges: first address, and the bytes from there on in which pages were mapped so far.
    ranges: BTreeMap<u64, u64>,
    /// Address of the first recorded map outside every known range, from here on.
    next_range: Option<u64>,
    /// Entries before this one name no new range.
    ahead: usize,
    elsewhere: u64,
    handles: u32,
    events: u32,
}

impl RecordedDriver {
    pub(super) fn new(total: u64) -> Self {
        Self {
            total,
            window: VecDeque::new(),
            seen: 0,
            matched: 0,
            wrong: Vec::new(),
            failing: None,
            unmapped: 0,
            ranges: BTreeMap::new(),
            next_range: None,
            ahead: 0,
            elsewhere: ELSEWHERE,
            handles: 0,
            events: 0,
        }
    }

    /// A state that the strategy starts from.
    pub(super) fn adopt(&mut self, layout: &Layout) {
        for segment in layout.segments.iter().filter(|s| s.expandable) {
            self.ranges.insert(segment.address, segment.size);
        }
    }

    /// Remembers where the next new range will lie: one whose first pages could not be made is reserved before it is seen.
    pub(super) fn ranges_ahead(&mut self, entries: &impl Entries, from: usize) {
        self.ahead = self.ahead.max(from);
        while self.ahead < entries.len() {
            let entry = entries.entry(self.ahead);
            if entry.action == Action::SegmentMap && !self.in_range(entry.addr) {
                self.next_range = Some(entry.addr);
                return;
            }
            self.ahead += 1;
        }
        self.next_range = None;
    }

    fn in_range(&self, addr: u64) -> bool {
        self.ranges.range(..=addr).next_back().is_some_and(|(base, size)| addr <= base + size)
    }

    /// The events that belong to the step that comes now.
    pub(super) fn open(&mut self, window: &[Driven], step: &RecordedStep) {
        self.window.extend(window);
        self.seen = window.len() as u64;
        self.matched = 0;
        self.unmapped = 0;
        self.failing = match step {
            RecordedStep::Oom { device_free, .. } => Some(*device_free),
            _ => None,
        };
        if matches!(step, RecordedStep::EmptyCache) {
            // What was taken anew belongs to the request after it.
            let releases = self.window.iter().take_while(|d| is_release(d.action)).count();
            self.window.truncate(releases);
            self.seen = releases as u64;
        }
    }

    /// Events seen, events matched, and what differed.
    pub(super) fn close(&mut self) -> (u64, u64, Vec<String>) {
        for left in std::mem::take(&mut self.window) {
            self.wrong.push(format!(
                "{:?} of {} bytes at {:#x} was recorded, ours did no such thing",
                left.action, left.size, left.addr
            ));
        }
        (self.seen, self.matched, std::mem::take(&mut self.wrong))
    }

    fn pop(&mut self) {
        self.window.pop_front();
        self.matched += 1;
        self.unmapped = 0;
    }

    fn full(&self, asked: u64) -> DriverError {
        DriverError::OutOfMemory { asked, free: self.failing.unwrap_or(0) }
    }

    fn malloc(&mut self, size: u64) -> Result<Answer, DriverError> {
        match self.window.front().copied() {
            Some(next) if next.action == Action::SegmentAlloc => {
                self.pop();
                if next.size != size {
                    self.matched -= 1;
                    self.wrong.push(format!(
                        "a segment of {} bytes was recorded, ours asks for {size}",
                        next.size
                    ));
                }
                Ok(Answer::Address(next.addr))
            }
            Some(next) if is_release(next.action) => Err(self.full(size)),
            None if self.failing.is_some() => Err(self.full(size)),
            other => {
                self.wrong.push(format!(
                    "ours asks for a segment of {size} bytes, recorded was {other:?}"
                ));
                self.elsewhere += size.next_multiple_of(2 << 20);
                Ok(Answer::Address(self.elsewhere - size.next_multiple_of(2 << 20)))
            }
        }
    }

    fn free(&mut self, address: u64) {
        match self.window.iter().position(|d| d.action == Action::SegmentFree && d.addr == address)
        {
            Some(0) => self.pop(),
            Some(at) => {
                self.window.remove(at);
                self.wrong.push(format!("ours gives segment {address:#x} back before others that were recorded before it"));
            }
            None => self.wrong.push(format!(
                "ours gives segment {address:#x} back, which the recording keeps here"
            )),
        }
    }

    fn reserve(&mut self, size: u64) -> Answer {
        let fresh = self.window.front().filter(|d| d.action == Action::SegmentMap).map(|d| d.addr);
        let address = fresh.or(self.next_range).unwrap_or_else(|| {
            self.elsewhere += size;
            self.elsewhere - size
        });
        self.ranges.insert(address, 0);
        Answer::Address(address)
    }

    fn create(&mut self, size: u64) -> Result<Answer, DriverError> {
        match self.window.front().copied() {
            Some(next) if next.action == Action::SegmentMap => {}
            Some(next) if is_release(next.action) => return Err(self.full(size)),
            None if self.failing.is_some() => return Err(self.full(size)),
            other => self
                .wrong
                .push(format!("ours makes a page of {size} bytes, recorded was {other:?}")),
        }
        self.handles += 1;
        Ok(Answer::Handle(Handle(self.handles - 1)))
    }

    fn mapped(&mut self, address: u64, size: u64) {
        if let Some((base, extent)) = self.ranges.range_mut(..=address).next_back() {
            *extent = (*extent).max(address + size - base);
        }
        match self.window.front().copied() {
            Some(next)
                if next.action == Action::SegmentMap
                    && next.addr == address
                    && next.size == size =>
            {
                self.pop()
            }
            other => self
                .wrong
                .push(format!("ours maps {size} bytes at {address:#x}, recorded was {other:?}")),
        }
    }

    fn unmap(&mut self, address: u64, size: u64) {
        match self.window.front().copied() {
            Some(next)
                if next.action == Action::SegmentUnmap && next.addr + self.unmapped == address =>
            {
                self.unmapped += size;
                if self.unmapped >= next.size {
                    if self.unmapped > next.size {
                        self.wrong.push(format!(
                            "ours unmaps more than the {} bytes that were recorded at {:#x}",
                            next.size, next.addr
                        ));
                    }
                    self.pop();
                }
            }
            other => self
                .wrong
                .push(format!("ours unmaps {size} bytes at {address:#x}, recorded was {other:?}")),
        }
    }
}

fn is_release(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}

impl Driver for RecordedDriver {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        Ok(match call {
            Call::Malloc { size } => self.malloc(size)?,
            Call::Free { address } => {
                self.free(address);
                Answer::Done
            }
            Call::Reserve { size } => self.reserve(size),
            Call::Create { size } => self.create(size)?,
            Call::SetAccess { address, size } => {
                self.mapped(address, size);
                Answer::Done
            }
            Call::Unmap { address, size } => {
                self.unmap(address, size);
                Answer::Done
            }
            Call::Unreserve { address } => {
                self.ranges.remove(&address);
                Answer::Done
            }
            Call::Map { .. }
            | Call::Release { .. }
            | Call::StreamSynchronize { .. }
            | Call::DeviceSynchronize
            | Call::EventRecord { .. }
            | Call::EventSynchronize { .. }
            | Call::EventDestroy { .. }
            | Call::WaitEvent { .. } => Answer::Done,
            Call::EventCreate => {
                self.events += 1;
                Answer::Event(EventId(self.events - 1))
            }
            Call::EventQuery { .. } => Answer::Flag(true),
            Call::CaptureStatus { .. } => Answer::Flag(false),
            Call::MemInfo => Answer::Info { free: self.failing.unwrap_or(0), total: self.total },
            other => return Err(DriverError::NotSupported { call: other.name() }),
        })
    }

    fn families(&self) -> Families {
        Families { vmm: true, ..Families::CLASSIC }
    }
}
