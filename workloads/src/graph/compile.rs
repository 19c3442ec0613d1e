//! From a program to ops: liveness, ids, durations. What comes out is played without further thought.
//!
//! Storages that do not outlive the program take ids from a stack, so that ids stay dense. When the dead are freed is the run's
//! [`Release`]:
//!
//! | way | what it says | source |
//! |---|---|---|
//! | `immediate` | after the last step that names them | reference counts, as PyTorch's |
//! | `streams` | the allocator is told of a storage's use on another stream than its own, once | `record_stream`, PyTorch 2.15 |
//! | `delayed` | when those that wait exceed the threshold, all; and at the program's end | `paddle/fluid/framework/garbage_collector.cc`, Paddle 2.6 |
//! | `at_end` | at the program's end | Paddle with `FLAGS_eager_delete_tensor_gb=-1` |
//! | `planned` | storages that are never live together share one buffer: largest first, each takes the first that is free in its time | `greedy_by_size` for shared objects (Pisarchyk and Lee 2020, section 4.3) |

use rustc_hash::FxHashMap;
use vramlab_sim::op::{BufferUse, NameId, Op};
use vramlab_sim::units::{BufferId, StreamId};

use super::network::Graph;
use super::plan::Release;
use super::program::{Kernel, Program, Step, StorageId};
use super::programs::Ids;
use super::tensor::ScopeId;
use crate::rates::Rates;

/// Marks get name numbers from here on, so that they never meet a site's.
pub(crate) const MARK_NAME_FIRST: u32 = 1 << 24;

/// A phase's name, and whether the step's number stands before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) text: String,
    pub(crate) numbered: bool,
}

/// The ops of a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compiled {
    /// Each with the end of its uses in `uses`.
    pub(crate) ops: Vec<(Op, u32)>,
    pub(crate) uses: Vec<BufferUse>,
    pub(crate) marks: Vec<Mark>,
}

/// The names of sites, each once.
#[derive(Clone, Debug)]
pub(crate) struct Sites {
    ids: FxHashMap<String, NameId>,
    texts: Vec<String>,
}

impl Sites {
    pub(crate) fn new() -> Self {
        Self { ids: FxHashMap::default(), texts: vec![String::new()] }
    }

    pub(crate) fn text(&self, name: NameId) -> &str {
        self.texts.get(name.0 as usize).map_or("", String::as_str)
    }

    fn name(&mut self, graph: &Graph, scope: ScopeId, part: &'static str) -> NameId {
        let text = match (graph.scope_text(scope), part) {
            ("", part) => part.to_owned(),
            (path, "") => path.to_owned(),
            (path, part) => format!("{path}.{part}"),
        };
        let texts = &mut self.texts;
        *self.ids.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone());
            NameId(texts.len() as u32 - 1)
        })
    }
}

/// What turns programs into ops.
pub(super) struct Compiler<'a> {
    pub(super) graph: &'a Graph,
    pub(super) rates: &'a Rates,
    pub(super) sites: &'a mut Sites,
    pub(super) release: Release,
    pub(super) ids: Ids,
}

/// Where a storage stands while ops are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Unborn,
    Live(BufferId),
    Dead,
}

struct Writer<'c, 'a> {
    compiler: &'c mut Compiler<'a>,
    program: &'c Program,
    out: Compiled,
    places: Vec<Place>,
    /// By storage of this program: the stream on which it was asked for.
    made_on: Vec<Option<StreamId>>,
    /// Other streams that the allocator was told of.
    recorded: Vec<(StorageId, StreamId)>,
    last_use: Vec<u32>,
    ids_free: Vec<BufferId>,
    ids_next: u32,
    waiting: Vec<BufferId>,
    waiting_bytes: u64,
    shared: Option<Shared>,
    /// What the kernels of the first stream take so far.
    busy_ns: u64,
}

impl Compiler<'_> {
    pub(super) fn compile(&mut self, program: &Program) -> Compiled {
        let last_use = last_uses(program);
        let shared = (self.release == Release::Planned).then(|| Shared::of(program, &last_use));
        let place = |i: usize| match (&program.storages[i].fixed, program.storages[i].found) {
            (Some(number), true) => Place::Live(BufferId(self.ids.fixed + *number)),
            _ => Place::Unborn,
        };
        let mut writer = Writer {
            places: (0..program.storages.len()).map(place).collect(),
            ids_next: self.ids.others,
            compiler: self,
            program,
            out: Compiled::default(),
            made_on: vec![None; program.storages.len()],
            recorded: Vec::new(),
            last_use,
            ids_free: Vec::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            shared,
            busy_ns: 0,
        };
        for (at, step) in program.steps.iter().enumerate() {
            writer.step(at as u32, step);
        }
        writer.free_waiting();
        writer.out
    }
}

/// How long a device waits for others, whose kernels took `busy` for `of` parts, while they do so many parts (ns).
pub(super) fn idle_ns(busy: u64, parts: u64, of: u64) -> u64 {
    let idle = u128::from(busy) * u128::from(parts) / u128::from(of.max(1));
    u64::try_from(idle).unwrap_or(u64::MAX)
}

/// The last step that names each storage.
fn last_uses(program: &Program) -> Vec<u32> {
    let mut last = vec![0; program.storages.len()];
    for (at, step) in program.steps.iter().enumerate() {
        for id in step.named() {
            last[id.0 as usize] = at as u32;
        }
    }
    last
}

impl Writer<'_, '_> {
    fn step(&mut self, at: u32, step: &Step) {
        match step {
            Step::Run(kernel) => self.kernel(at, kernel),
            Step::Copy { from, to, bytes, direction, stream } => {
                if let Some(to) = to {
                    self.make(*to, *stream);
                }
                for id in from.iter().chain(to) {
                    self.shared_with(*id, *stream);
                }
                self.op(Op::Copy { stream: *stream, direction: *direction, bytes: *bytes });
            }
            Step::Hold(_) => {}
            Step::Record(id, stream) => self.record(*id, *stream),
            Step::Free(id) => self.drop_now(*id),
            Step::Mark { text, numbered } => {
                let name = NameId(self.out.marks.len() as u32);
                self.out.marks.push(Mark { text: text.clone(), numbered: *numbered });
                self.op(Op::Mark { name });
            }
            Step::Idle { parts, of } => {
                let duration = idle_ns(self.busy_ns, *parts, *of);
                self.op(Op::Work { stream: StreamId(0), duration });
            }
            Step::Op(op) => self.op(*op),
        }
        for id in step.named() {
            if self.last_use[id.0 as usize] == at && self.program.get(id).fixed.is_none() {
                self.bury(id, at);
            }
        }
    }

    fn kernel(&mut self, at: u32, kernel: &Kernel) {
        for id in kernel.writes.iter().chain(&kernel.scratch) {
            self.make(*id, kernel.stream);
        }
        let bytes = self.program.moved(kernel);
        let duration = self.compiler.rates.duration(kernel.flops, kernel.math, bytes);
        for id in kernel.reads.iter().chain(&kernel.writes) {
            self.shared_with(*id, kernel.stream);
        }
        for id in &kernel.reads {
            self.used(*id, false);
        }
        for id in kernel.writes.iter().chain(&kernel.scratch) {
            self.used(*id, true);
        }
        self.busy_ns += if kernel.stream == StreamId(0) { duration } else { 0 };
        self.op(Op::Work { stream: kernel.stream, duration });
        for id in kernel.scratch.iter().rev() {
            if self.program.get(*id).fixed.is_none() {
                self.bury(*id, at);
            }
        }
    }

    fn op(&mut self, op: Op) {
        self.out.ops.push((op, self.out.uses.len() as u32));
    }

    fn used(&mut self, id: StorageId, write: bool) {
        if let Place::Live(id) = self.places[id.0 as usize] {
            self.out.uses.push(BufferUse { id, write });
        }
    }

    /// Asks for a storage that is not there.
    fn make(&mut self, id: StorageId, stream: StreamId) {
        if self.places[id.0 as usize] != Place::Unborn {
            return;
        }
        let storage = self.program.get(id);
        let mut size = storage.bytes;
        let buffer = match (storage.fixed, &mut self.shared) {
            (Some(number), _) => BufferId(self.compiler.ids.fixed + number),
            (None, Some(shared)) => match shared.buffer(id) {
                (_, Some(there)) => {
                    self.places[id.0 as usize] = Place::Live(there);
                    return;
                }
                (bytes, None) => {
                    size = bytes;
                    let buffer = self.next_id();
                    if let Some(shared) = &mut self.shared {
                        shared.born(id, buffer);
                    }
                    buffer
                }
            },
            (None, None) => self.next_id(),
        };
        self.places[id.0 as usize] = Place::Live(buffer);
        self.made_on[id.0 as usize] = Some(stream);
        let site = self.compiler.sites.name(self.compiler.graph, storage.scope, storage.part);
        self.op(Op::Alloc { id: buffer, stream, site, size });
    }

    /// A storage of this program is used on another stream than it was asked for on (rule `streams`).
    fn shared_with(&mut self, id: StorageId, stream: StreamId) {
        let place = id.0 as usize;
        if self.made_on[place].is_some_and(|made| made != stream)
            && !self.recorded.contains(&(id, stream))
        {
            self.recorded.push((id, stream));
            self.record(id, stream);
        }
    }

    fn record(&mut self, id: StorageId, stream: StreamId) {
        if let Place::Live(id) = self.places[id.0 as usize] {
            self.op(Op::RecordStream { id, stream });
        }
    }

    fn next_id(&mut self) -> BufferId {
        self.ids_free.pop().unwrap_or_else(|| {
            self.ids_next += 1;
            BufferId(self.ids_next - 1)
        })
    }

    /// A storage without further use.
    fn bury(&mut self, id: StorageId, at: u32) {
        self.recorded.retain(|(known, _)| *known != id);
        let Place::Live(buffer) = std::mem::replace(&mut self.places[id.0 as usize], Place::Dead)
        else {
            return;
        };
        match self.compiler.release {
            Release::Immediate => self.free(buffer),
            Release::AtEnd => self.waiting.push(buffer),
            Release::Planned => {
                if self.shared.as_ref().is_none_or(|shared| shared.ends(id, at)) {
                    self.free(buffer);
                }
            }
            Release::Delayed(threshold) => {
                self.waiting.push(buffer);
                self.waiting_bytes += self.program.get(id).bytes;
                if self.waiting_bytes > threshold {
                    self.free_waiting();
                }
            }
        }
    }

    fn free_waiting(&mut self) {
        self.waiting_bytes = 0;
        for id in std::mem::take(&mut self.waiting) {
            self.free(id);
        }
    }

    fn free(&mut self, id: BufferId) {
        self.ids_free.push(id);
        self.op(Op::Free { id, stream: None });
    }

    fn drop_now(&mut self, id: StorageId) {
        if let Place::Live(buffer) = std::mem::replace(&mut self.places[id.0 as usize], Place::Dead)
        {
            self.op(Op::Free { id: buffer, stream: None });
        }
    }
}

/// Buffers that storages share (way `planned`).
struct Shared {
    /// By storage: its buffer.
    of: Vec<Option<u32>>,
    buffers: Vec<SharedBuffer>,
}

struct SharedBuffer {
    bytes: u64,
    /// Steps from which and to which its storages live.
    taken: Vec<(u32, u32)>,
    last: u32,
    id: Option<BufferId>,
}

impl Shared {
    fn of(program: &Program, last_use: &[u32]) -> Self {
        let mut first: Vec<Option<u32>> = vec![None; program.storages.len()];
        for (at, step) in program.steps.iter().enumerate() {
            for id in step.named() {
                first[id.0 as usize].get_or_insert(at as u32);
            }
        }
        let mut order: Vec<usize> =
            (0..first.len()).filter(|i| program.storages[*i].fixed.is_none()).collect();
        order.sort_by_key(|i| (std::cmp::Reverse(program.storages[*i].bytes), *i));
        let mut shared = Self { of: vec![None; first.len()], buffers: Vec::new() };
        for i in order {
            if let Some(begin) = first[i] {
                shared.of[i] = Some(shared.take((begin, last_use[i]), program.storages[i].bytes));
            }
        }
        shared
    }

    /// The first buffer that is free from step to step, or a new one.
    fn take(&mut self, (begin, end): (u32, u32), bytes: u64) -> u32 {
        let fits = |buffer: &SharedBuffer| buffer.taken.iter().all(|(a, b)| *b < begin || end < *a);
        let place = self.buffers.iter().position(fits).unwrap_or_else(|| {
            self.buffers.push(SharedBuffer { bytes, taken: Vec::new(), last: 0, id: None });
            self.buffers.len() - 1
        });
        let buffer = &mut self.buffers[place];
        buffer.taken.push((begin, end));
        buffer.last = buffer.last.max(end);
        place as u32
    }

    fn buffer(&self, id: StorageId) -> (u64, Option<BufferId>) {
        let buffer = self.of[id.0 as usize].map(|place| &self.buffers[place as usize]);
        buffer.map_or((0, None), |buffer| (buffer.bytes, buffer.id))
    }

    fn born(&mut self, id: StorageId, buffer: BufferId) {
        if let Some(place) = self.of[id.0 as usize] {
            self.buffers[place as usize].id = Some(buffer);
        }
    }

    /// Is this the end of the storage's buffer too?
    fn ends(&self, id: StorageId, at: u32) -> bool {
        self.of[id.0 as usize].is_none_or(|place| self.buffers[place as usize].last == at)
    }
}
