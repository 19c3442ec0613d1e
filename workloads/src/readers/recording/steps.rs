//! A history as a sequence of ops, each with the driver events that came with it.

use vramlab_sim::units::{PoolId, StreamId};

use super::{Action, Driven, Entries, Recording};

/// One op of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // addresses are the recorded ones, sizes are bytes asked for
pub enum RecordedStep {
    /// A request that was served.
    Alloc { addr: u64, size: u64, stream: StreamId, pool: Option<PoolId>, site: u32 },
    /// A request that failed, with the free bytes of the device then (0 if the file does not say).
    Oom { size: u64, stream: StreamId, device_free: u64 },
    /// The host drops the block, and it is free at once.
    Free { addr: u64 },
    /// The host drops the block, which is free later.
    FreeDeferred { addr: u64 },
    /// A deferred free ended.
    FreeCompleted { addr: u64 },
    /// Cached memory was given back because the program asked for it.
    EmptyCache,
}

/// Walks a recording. `window` holds the driver events of the last step.
pub struct Steps<'a, E> {
    recording: &'a Recording<E>,
    next: usize,
    /// Index of the entry of the last step.
    pub index: usize,
    /// Host time of the last step in ns since the first entry; `None` where the file has no times.
    pub time: Option<u64>,
    /// Driver events between the step before and this one.
    pub window: Vec<Driven>,
    held_back: Option<RecordedStep>,
    reserved: u64,
    first_time: u64,
}

impl<'a, E: Entries> Steps<'a, E> {
    /// From the first entry.
    pub fn new(recording: &'a Recording<E>) -> Self {
        let first_time =
            if recording.entries.is_empty() { 0 } else { recording.entries.entry(0).time_us };
        Self {
            recording,
            next: 0,
            index: 0,
            time: None,
            window: Vec::new(),
            held_back: None,
            reserved: recording.start_reserved,
            first_time,
        }
    }

    /// Goes on where another walk of the same recording was suspended.
    pub(super) fn resume(
        &mut self,
        next: usize,
        window: Vec<Driven>,
        held_back: Option<RecordedStep>,
        reserved: u64,
    ) {
        (self.next, self.window, self.held_back, self.reserved) =
            (next, window, held_back, reserved);
    }

    /// What [`Steps::resume`] needs.
    pub(super) fn suspend(self) -> (usize, Vec<Driven>, Option<RecordedStep>, u64) {
        (self.next, self.window, self.held_back, self.reserved)
    }

    /// The next step; `None` at the end.
    #[allow(clippy::should_implement_trait)] // the window is lent out between steps
    pub fn next(&mut self) -> Option<RecordedStep> {
        if let Some(step) = self.held_back.take() {
            self.window.drain(..self.window.iter().take_while(|d| is_release(d.action)).count());
            return Some(step);
        }
        self.window.clear();
        while self.next < self.recording.entries.len() {
            let entry = self.recording.entries.entry(self.next);
            self.index = self.next;
            self.next += 1;
            let step = match entry.action {
                Action::SegmentAlloc
                | Action::SegmentFree
                | Action::SegmentMap
                | Action::SegmentUnmap => {
                    self.note(Driven {
                        action: entry.action,
                        addr: entry.addr,
                        size: entry.size,
                        stream: entry.stream,
                    });
                    continue;
                }
                Action::Alloc => RecordedStep::Alloc {
                    addr: entry.addr,
                    size: entry.size,
                    stream: self.recording.stream(entry.stream),
                    pool: self.recording.pool(entry.pool),
                    site: entry.site,
                },
                Action::Oom => {
                    let stream = self.recording.stream(entry.stream);
                    RecordedStep::Oom { size: entry.size, stream, device_free: entry.addr }
                }
                Action::FreeRequested if self.recording.deferred[self.index] => {
                    RecordedStep::FreeDeferred { addr: entry.addr }
                }
                Action::FreeRequested => {
                    self.next += 1; // its completion is the next entry
                    RecordedStep::Free { addr: entry.addr }
                }
                Action::FreeCompleted if self.recording.deferred[self.index] => {
                    RecordedStep::FreeCompleted { addr: entry.addr }
                }
                Action::FreeCompleted => RecordedStep::Free { addr: entry.addr }, // nobody requested it
                Action::Snapshot | Action::Other => continue,
            };
            self.time = (entry.time_us > 0)
                .then(|| (entry.time_us - self.first_time.min(entry.time_us)) * 1000);
            if self.emptied_before(&step) {
                self.held_back = Some(step);
                return Some(RecordedStep::EmptyCache);
            }
            return Some(step);
        }
        // What is left over at the end was given back because the program asked for it.
        let emptied = self.window.iter().any(|d| is_release(d.action));
        if emptied {
            self.index = self.recording.entries.len();
            return Some(RecordedStep::EmptyCache);
        }
        None
    }

    fn note(&mut self, driven: Driven) {
        if is_release(driven.action) {
            self.reserved = self.reserved.saturating_sub(driven.size);
        } else {
            self.reserved += driven.size;
        }
        self.window.push(driven);
    }

    /// Does the window begin with memory given back that no failing request explains?
    fn emptied_before(&self, step: &RecordedStep) -> bool {
        let released: u64 =
            self.window.iter().take_while(|d| is_release(d.action)).map(|d| d.size).sum();
        if released == 0 {
            return false;
        }
        let grown: u64 = self.window.iter().filter(|d| !is_release(d.action)).map(|d| d.size).sum();
        match step {
            RecordedStep::Oom { .. } => false,
            RecordedStep::Alloc { .. } if grown > 0 => {
                // `reserved` counts the whole window; before it, `released` more was held and `grown` less.
                let before = self.reserved + released - grown;
                before + grown <= self.recording.peak_reserved
            }
            _ => true,
        }
    }
}

fn is_release(action: Action) -> bool {
    matches!(action, Action::SegmentFree | Action::SegmentUnmap)
}
