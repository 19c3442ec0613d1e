//! What a tiered strategy must not lose: a model of the contents of device, host and file, kept beside the machine.
//!
//! Every write of a buffer by work is a new version of it. A copy carries what lies at one end to the other; what is written over is gone.
//! Every access is checked to be ordered, by happens-before, after the accesses that it depends on.

pub(crate) mod program;
pub(crate) mod run;

use std::collections::BTreeMap;

use vramlab_sim::SimMachine;
use vramlab_sim::driver::{Address, Answer, Call, Driver, DriverError, Families};
use vramlab_sim::machine::{Machine, Stamp};
use vramlab_sim::units::StreamId;

/// A stream that nothing is ever queued on: what is ordered before it is what the host knows.
const HOST: StreamId = StreamId(4000);

/// What lies somewhere: which buffer, which version of it.
pub(crate) type Content = Option<(usize, u64)>;

/// Two address spaces: memory, and the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    Memory,
    File,
}

#[derive(Clone, Debug)]
struct Range {
    end: u64,
    content: Content,
    written: Option<Stamp>,
    read: Vec<Stamp>,
}

/// The machine, and what lies in its memory.
pub(crate) struct Model {
    pub(crate) machine: SimMachine,
    ranges: BTreeMap<(Space, u64), Range>,
    /// Bytes copied: device to host, host to device, to the file, from the file.
    pub(crate) copied: [u64; 4],
    /// Calls until one is refused, and how.
    pub(crate) refuse: Option<(u64, bool)>,
    pub(crate) refused: bool,
}

fn fail(what: String) -> DriverError {
    DriverError::Failed { call: "model", what: what.into() }
}

impl Model {
    pub(crate) fn new(machine: SimMachine) -> Self {
        Self { machine, ranges: BTreeMap::new(), copied: [0; 4], refuse: None, refused: false }
    }

    /// Keys of ranges that share a byte with this one.
    fn overlapping(&self, space: Space, start: u64, end: u64) -> Vec<(Space, u64)> {
        let before = self.ranges.range((space, 0)..(space, end));
        before.filter(|(_, range)| range.end > start).map(|(key, _)| *key).collect()
    }

    fn ordered(&self, stamp: Option<&Stamp>, stream: StreamId) -> bool {
        stamp.is_none_or(|stamp| self.machine.ordered(*stamp, stream))
    }

    /// What is read from `start` on, by what comes next on `stream`.
    fn before_read(
        &self,
        space: Space,
        start: u64,
        size: u64,
        stream: StreamId,
    ) -> Result<Content, DriverError> {
        for key in self.overlapping(space, start, start + size) {
            if !self.ordered(self.ranges[&key].written.as_ref(), stream) {
                return Err(fail(format!("stream {stream} reads {key:x?} before it is written")));
            }
        }
        Ok(self.ranges.get(&(space, start)).and_then(|range| range.content))
    }

    fn before_write(
        &self,
        space: Space,
        start: u64,
        size: u64,
        stream: StreamId,
    ) -> Result<(), DriverError> {
        for key in self.overlapping(space, start, start + size) {
            let range = &self.ranges[&key];
            if !self.ordered(range.written.as_ref(), stream) {
                return Err(fail(format!("stream {stream} writes {key:x?} before it is written")));
            }
            if !range.read.iter().all(|stamp| self.ordered(Some(stamp), stream)) {
                let by = &range.read;
                return Err(fail(format!(
                    "stream {stream} writes {key:x?} while it is read: {by:?}"
                )));
            }
        }
        Ok(())
    }

    /// No range goes beyond `at`; what lies there is the lower part's.
    fn split(&mut self, space: Space, at: u64) {
        let Some((_, range)) = self.ranges.range_mut((space, 0)..(space, at)).next_back() else {
            return;
        };
        if range.end > at {
            let upper = Range { content: None, ..range.clone() };
            range.end = at;
            self.ranges.insert((space, at), upper);
        }
    }

    fn note_read(&mut self, space: Space, start: u64, size: u64, stream: StreamId) {
        let stamp = self.machine.stamp(stream).expect("the machine knows");
        self.split(space, start);
        self.split(space, start + size);
        for key in self.overlapping(space, start, start + size) {
            let range = self.ranges.get_mut(&key).expect("it is there");
            range.read.retain(|other| other.stream != stream);
            range.read.push(stamp);
        }
    }

    fn note_written(
        &mut self,
        space: Space,
        start: u64,
        size: u64,
        stream: StreamId,
        content: Content,
    ) {
        self.split(space, start);
        self.split(space, start + size);
        for key in self.overlapping(space, start, start + size) {
            self.ranges.remove(&key);
        }
        let (end, written) = (start + size, self.machine.stamp(stream));
        self.ranges.insert((space, start), Range { end, content, written, read: Vec::new() });
    }

    /// A copy from one place to another, queued on `stream` by `call`.
    fn copy(
        &mut self,
        call: Call,
        from: (Space, u64),
        to: (Space, u64),
        size: u64,
        stream: StreamId,
    ) -> Result<Answer, DriverError> {
        let content = self.before_read(from.0, from.1, size, stream)?;
        self.before_write(to.0, to.1, size, stream)?;
        let answer = self.machine.call(call)?;
        self.note_read(from.0, from.1, size, stream);
        self.note_written(to.0, to.1, size, stream, content);
        Ok(answer)
    }

    /// Before work: what lies where it looks, if the access is ordered.
    pub(crate) fn look(
        &self,
        address: Address,
        size: u64,
        write: bool,
        stream: StreamId,
    ) -> Result<Content, DriverError> {
        if write {
            self.before_write(Space::Memory, address, size, stream)?;
        }
        self.before_read(Space::Memory, address, size, stream)
    }

    /// After work.
    pub(crate) fn worked(
        &mut self,
        address: Address,
        size: u64,
        stream: StreamId,
        written: Content,
    ) {
        if written.is_some() {
            self.note_written(Space::Memory, address, size, stream, written);
        } else {
            self.note_read(Space::Memory, address, size, stream);
        }
    }

    /// A new buffer's memory: what lay there is not its own, who used it counts.
    pub(crate) fn born(&mut self, address: Address, size: u64, content: Content) {
        self.split(Space::Memory, address);
        self.split(Space::Memory, address + size);
        let whole = Range { end: address + size, content, written: None, read: Vec::new() };
        self.ranges.entry((Space::Memory, address)).or_insert(whole).content = content;
    }

    /// Device and host lose what they hold.
    pub(crate) fn wipe(&mut self) {
        for ((space, _), range) in &mut self.ranges {
            if *space == Space::Memory {
                range.content = None;
            }
        }
    }

    /// The latest version of a buffer in the file.
    pub(crate) fn in_file(&self, buffer: usize) -> Option<u64> {
        let file = self.ranges.range((Space::File, 0)..);
        let contents = file.filter_map(|(_, range)| range.content);
        contents.filter(|(owner, _)| *owner == buffer).map(|(_, version)| version).max()
    }

    fn refuses(&mut self, call: Call) -> Option<DriverError> {
        let (left, room) = self.refuse.as_mut()?;
        let gives_memory = matches!(
            call,
            Call::Malloc { .. }
                | Call::Create { .. }
                | Call::MallocHost { .. }
                | Call::MallocAsync { .. }
        );
        if *room && !gives_memory {
            return None;
        }
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let room = *room;
        self.refuse = None;
        self.refused = true;
        Some(if room {
            DriverError::OutOfMemory { asked: 0, free: 0 }
        } else {
            DriverError::Failed { call: call.name(), what: "on cue".into() }
        })
    }
}

impl Driver for Model {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        if let Some(error) = self.refuses(call) {
            return Err(error);
        }
        let memory = |address| (Space::Memory, address);
        match call {
            Call::Copy { from, to, size, direction, stream } => {
                self.copied
                    [usize::from(direction == vramlab_sim::machine::Direction::HostToDevice)] +=
                    size;
                self.copy(call, memory(from), memory(to), size, stream)
            }
            Call::FileWrite { from, offset, size, stream } => {
                self.copied[2] += size;
                self.copy(call, memory(from), (Space::File, offset), size, stream)
            }
            Call::FileRead { offset, to, size, stream } => {
                self.copied[3] += size;
                self.copy(call, (Space::File, offset), memory(to), size, stream)
            }
            Call::FreeHost { address } => {
                // it does not wait, so the host must know that nobody is at it
                self.before_write(Space::Memory, address, 1, HOST)?;
                self.machine.call(call)
            }
            _ => self.machine.call(call),
        }
    }

    fn families(&self) -> Families {
        self.machine.families()
    }
}
