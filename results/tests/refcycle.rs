//! Recordings of PyTorch programs that drop buffers in reference cycles: CPython's collector in front of the caching allocator reaches their peaks.

mod shared;

use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::Value;
use vramlab::inputs::{self, Opened};
use vramlab_allocators::options::Part;
use vramlab_allocators::{Options, Spec};
use vramlab_sim::SimMachine;
use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply, Request};
use vramlab_sim::units::StreamId;
use vramlab_workloads::readers::torch_snapshot::{Action, Entry, Trace};

/// Objects of one dead cycle beside its tensors: the owner, and its list of them.
const OTHERS: &str = "2";
/// Parts in a hundred by which a peak may differ.
const TOLERANCE: f64 = 3.0;

/// What is known of a recording beside its history.
struct About {
    /// `none`: no cycles; `auto`: cycles, and the collector's defaults; `off`: cycles, and no collector.
    collector: String,
    capacity: u64,
    peaks: [u64; 2],
    /// First entry of each phase, and is it one of the program's iterations?
    phases: Vec<(usize, bool)>,
    /// First entry of the phase that begins with `gc.collect()`.
    collect: Option<usize>,
}

impl About {
    fn read(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("the file beside a recording can be read");
        let all: Value = serde_json::from_str(&text).expect("it is JSON");
        let number = |value: &Value| value.as_u64().expect("a number");
        let phases = all["phases"].as_array().expect("a list");
        let named = |phase: &&Value| phase["text"].as_str() == Some("gc.collect");
        let phase = |phase: &Value| {
            let text = phase["text"].as_str().expect("a name");
            (number(&phase["first_entry"]) as usize, text.starts_with("iteration"))
        };
        let device = &all["device"];
        Self {
            collector: all["gc"].as_str().expect("the collector's state").to_owned(),
            capacity: number(&device["capacity_bytes"]) - number(&device["context_bytes"]),
            peaks: ["max_memory_allocated", "max_memory_reserved"].map(|key| number(&all[key])),
            phases: phases.iter().map(phase).collect(),
            collect: phases.iter().find(named).map(|phase| number(&phase["first_entry"]) as usize),
        }
    }

    fn phase(&self, entry: usize) -> usize {
        self.phases.partition_point(|(first, _)| *first <= entry)
    }
}

/// What the program does. A buffer has the number of its request.
enum Act {
    Alloc {
        size: u64,
        stream: StreamId,
    },
    Drop(usize),
    /// The iteration ends, and these go in one cycle.
    DropInCycle(Vec<usize>),
    Collect,
}

/// A request in a recording.
struct Asked {
    entry: usize,
    /// Where its memory came back.
    freed: Option<usize>,
}

/// All requests, and the request of each free by entry.
fn requests(trace: &Trace) -> (Vec<Asked>, FxHashMap<usize, usize>) {
    let (mut all, mut live, mut frees) =
        (Vec::<Asked>::new(), FxHashMap::default(), FxHashMap::default());
    for (at, entry) in trace.iter().enumerate() {
        match (entry.action, entry.addr) {
            (Action::Alloc, Some(address)) => {
                live.insert(address, all.len());
                all.push(Asked { entry: at, freed: None });
            }
            (Action::FreeRequested, Some(address)) => {
                let number = live.remove(&address).expect("what is freed was allocated");
                all[number].freed = Some(at);
                frees.insert(at, number);
            }
            _ => {}
        }
    }
    (all, frees)
}

/// The program's acts, and the number of requests before the first collection that the recording shows.
///
/// A buffer that outlives the iteration in which it was asked for was dropped at its end, in a cycle, last one first, as a list drops its items.
fn acts(trace: &Trace, streams: &[u64], about: &About) -> (Vec<Act>, Option<usize>) {
    let (asked, frees) = requests(trace);
    let in_cycle = |number: usize| {
        let Asked { entry, freed } = asked[number];
        let in_iteration = about.phases.get(about.phase(entry).wrapping_sub(1));
        in_iteration.is_some_and(|(_, iteration)| *iteration)
            && match freed {
                Some(freed) => about.phase(freed) > about.phase(entry),
                None => about.collector == "off",
            }
    };
    let (mut acts, mut dying, mut number, mut first) = (Vec::new(), Vec::new(), 0, None);
    for (at, entry) in trace.iter().enumerate() {
        if about.phases.iter().any(|(begin, _)| *begin == at) {
            dying.reverse();
            acts.push(Act::DropInCycle(std::mem::take(&mut dying)));
        }
        if about.collect == Some(at) {
            acts.push(Act::Collect);
        }
        let Entry { action, size, tag, .. } = entry;
        match action {
            Action::Alloc | Action::Oom => {
                let stream = StreamId(streams[tag.0 as usize] as u32);
                acts.push(Act::Alloc { size, stream });
                if action == Action::Alloc {
                    if in_cycle(number) {
                        dying.push(number);
                    }
                    number += 1;
                }
            }
            Action::FreeRequested if in_cycle(frees[&at]) => {
                first = first.or(Some(number).filter(|_| about.collect.is_none_or(|c| at < c)));
            }
            Action::FreeRequested => acts.push(Act::Drop(frees[&at])),
            _ => {}
        }
    }
    (acts, first)
}

/// The allocator with the collector before it, and what it placed.
struct Program {
    strategy: Box<dyn Allocator>,
    machine: SimMachine,
    blocks: Vec<Option<Block>>,
    refused: usize,
}

impl Program {
    fn new(spec: &Spec, options: &[(&str, &str)], capacity: u64) -> Self {
        let mut spec = spec.clone();
        let options = Options::from_pairs(options.iter().copied());
        spec.parts.push(Part { name: "refcycle".to_owned(), options });
        let strategy = vramlab_allocators::build(&spec).unwrap_or_else(|e| panic!("{spec}: {e}"));
        let machine = SimMachine::of_capacity(capacity);
        Self { strategy, machine, blocks: Vec::new(), refused: 0 }
    }

    fn set(&mut self, key: &str, value: &str) {
        let reply = self.strategy.notice(&mut self.machine, Notice::Set { key, value });
        assert_eq!(reply, Ok(Reply::Done), "{key}={value}");
    }

    fn free(&mut self, number: usize) {
        let block = self.blocks[number].take().expect("what is dropped was placed");
        self.strategy.free(&mut self.machine, block, None).expect("is live");
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Alloc { size, stream } => {
                let ordinal = self.blocks.len() as u64;
                let request = Request { size: *size, stream: *stream, ordinal };
                match self.strategy.alloc(&mut self.machine, &request) {
                    Ok(placement) => self.blocks.push(Some(placement.block)),
                    Err(AllocError::OutOfMemory(_)) => {
                        self.blocks.push(None);
                        self.refused += 1;
                    }
                    Err(other) => panic!("a request for {size} bytes: {other}"),
                }
            }
            Act::Drop(number) => self.free(*number),
            Act::DropInCycle(numbers) if numbers.is_empty() => {}
            Act::DropInCycle(numbers) => {
                self.set("cycle", OTHERS);
                numbers.iter().for_each(|number| self.free(*number));
                self.set("cycle", "0");
            }
            Act::Collect => self.set("gc.collect", "2"),
        }
    }

    fn counter(&mut self, name: &str) -> u64 {
        let reply = self.strategy.notice(&mut self.machine, Notice::Counters);
        let Ok(Reply::Counters(all)) = reply else { panic!("expected counters, found {reply:?}") };
        all.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

/// Objects counted at the program's start: not in a recording, so the number with which the first collection comes when it came.
fn count_at_start(acts: &[Act], first: usize, mut program: Program) -> u64 {
    let mut requests = 0;
    for act in acts {
        program.act(act);
        requests += usize::from(matches!(act, Act::Alloc { .. }));
        if requests == first {
            break;
        }
    }
    701_u64.saturating_sub(program.counter("gc_count0"))
}

/// Runs a recording's requests; differences of both peaks in parts in a hundred.
fn differences(file: &Path) -> [f64; 2] {
    let about = About::read(file);
    let opened = inputs::open(&file.with_extension("pickle.gz")).unwrap_or_else(|e| panic!("{e}"));
    let spec = opened.recorded_spec(None).unwrap_or_else(|e| panic!("{e}"));
    let Opened::Snapshot(input) = &opened else { panic!("{} is no snapshot", file.display()) };
    let streams: Vec<u64> = input.snapshot.tags.iter().map(|tag| tag.stream).collect();
    let (acts, first) = acts(&input.snapshot.traces[0], &streams, &about);
    let count = first.map_or(0, |first| {
        count_at_start(&acts, first, Program::new(&spec, &[("threshold0", "0")], about.capacity))
    });
    let (count, enabled) = (count.to_string(), (about.collector != "off").to_string());
    let options = [("count0", count.as_str()), ("enabled", &enabled)];
    let mut program = Program::new(&spec, &options, about.capacity);
    acts.iter().for_each(|act| program.act(act));
    let peaks = ["allocated_peak", "reserved_peak"].map(|name| program.counter(name));
    let found = [0, 1].map(|i| (peaks[i] as f64 / about.peaks[i] as f64 - 1.0) * 100.0);
    let collections =
        ["gc_collections0", "gc_collections1", "gc_collections2"].map(|name| program.counter(name));
    println!(
        "  {}: peaks {peaks:?}, recorded {:?}; {collections:?} collections, {count} objects at the start, {} refused",
        input.name, about.peaks, program.refused
    );
    found
}

#[test]
fn recorded_refcycle() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let entries = std::fs::read_dir(&folder).expect("the folder can be read");
    let is_one = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("refcycle_") && name.ends_with(".json")
    };
    let mut files: Vec<_> = entries.map(|e| e.expect("an entry").path()).filter(is_one).collect();
    files.sort();
    let found: Vec<[f64; 2]> = files.iter().map(|file| differences(file)).collect();
    let worst = found.iter().flatten().fold(0.0_f64, |worst, found| worst.max(found.abs()));
    println!("recorded_refcycle: {} files, peaks within {worst:.2} %", files.len());
    assert!(!files.is_empty(), "no refcycle_* in {}", folder.display());
    assert!(worst <= TOLERANCE, "peaks differ by up to {worst:.2} %: {found:?}");
}
