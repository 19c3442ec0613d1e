//! Readers beside what cannot be avoided: finding the lines, parsing the JSON, or touching the bytes of a pickle.
//!
//! ```text
//! cargo bench -p vramlab-workloads --bench readers                     all; pages in target/criterion/report
//! cargo bench -p vramlab-workloads --bench readers -- --fastest [NAME] a table of the fastest of ten runs, for a busy machine
//! cargo bench -p vramlab-workloads --bench readers -- --test           each body once
//! ```
//!
//! Inputs are made beforehand from a fixed seed, as the programs write them, uncompressed and in memory. A run reads all of an input and, where
//! it is a workload, plays it to its end. The pickles are the recordings in the repository, uncompressed. Anchors: `sum` adds up all bytes, `lines` counts line ends with the crate `memchr`; `json` parses every line into what `serde_json` has
//! for any JSON. Rates are bytes of text a second, on one thread.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group};
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::Nanos;
use vramlab_workloads::examples;
use vramlab_workloads::readers::events::EventSource;
use vramlab_workloads::readers::requests::Requests;
use vramlab_workloads::readers::{bytes, plan, profiler, rmm, sizes, torch_snapshot};
use vramlab_workloads::rng::Rng;

/// Runs of each body for the table.
const RUNS: usize = 10;
/// How long each is repeated, at least.
const STRETCH: Duration = Duration::from_millis(100);
/// Name of the snapshots in the table.
const PICKLES: &str = "snapshots.pickle";
/// Bytes of an input, about.
const INPUT_BYTES: usize = 32 << 20;

struct Case {
    name: &'static str,
    text: String,
    read: fn(&str) -> u64,
    anchor: (&'static str, fn(&str) -> u64),
}

/// The recordings in the repository, uncompressed.
fn pickles() -> Vec<&'static [u8]> {
    let content = |packed: &'static [u8]| {
        let mut content = Vec::new();
        let mut input = bytes::decompressed(packed, None).expect("gzip");
        input.read_to_end(&mut content).expect("reads");
        &*content.leak()
    };
    examples::ALL.iter().map(|(_, packed)| content(packed)).collect()
}

fn read_pickles(all: &[&'static [u8]]) -> u64 {
    let open = |content: &&'static [u8]| bytes::decompressed(*content, None).expect("opens");
    let read = |content| torch_snapshot::read(open(content)).expect("a snapshot");
    all.iter().map(|content| read(content).traces.len() as u64).sum()
}

fn sum(all: &[&'static [u8]]) -> u64 {
    all.iter().flat_map(|content| *content).map(|byte| u64::from(*byte)).sum()
}

/// Writes lines until the input is long enough.
fn fill(header: &str, mut line: impl FnMut(&mut String, u64, &mut Rng)) -> String {
    let (mut text, mut rng) = (header.to_owned(), Rng::new(0, "bench.readers"));
    for number in 0.. {
        if text.len() >= INPUT_BYTES {
            break;
        }
        line(&mut text, number, &mut rng);
    }
    text
}

fn plan_text() -> String {
    fill("id,lower,upper,size\n", |text, number, rng| {
        let (lower, size) = (rng.between(0, 1 << 20), rng.between(1, 1 << 30));
        let _ = writeln!(text, "{number},{lower},{},{size}", lower + rng.between(1, 9999));
    })
}

fn cases() -> Vec<Case> {
    let lines: (&str, fn(&str) -> u64) =
        ("lines", |text| memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64);
    let json: (&str, fn(&str) -> u64) = ("json", |text| {
        let parsed = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        text.lines().filter(|line| parsed(line)).count() as u64
    });
    let whole_json: (&str, fn(&str) -> u64) =
        ("json", |text| u64::from(serde_json::from_str::<serde_json::Value>(text).is_ok()));
    vec![
        Case {
            name: "azure.csv",
            text: fill("TIMESTAMP,ContextTokens,GeneratedTokens\n", |text, number, rng| {
                let (seconds, ns) = (number / 10 % 3600, number % 10 * 1_000_000);
                let (m, s) = (seconds / 60, seconds % 60);
                let (h, day) = (number / 36_000 % 24, 1 + number / 864_000);
                let (input, output) = (rng.between(1, 9000), rng.between(1, 999));
                let _ = writeln!(
                    text,
                    "2023-11-{day:02} {h:02}:{m:02}:{s:02}.{ns:07},{input},{output}"
                );
            }),
            read: requests,
            anchor: lines,
        },
        Case {
            name: "rmm.csv",
            text: fill("Thread,Time,Action,Pointer,Size,Stream\n", |text, number, rng| {
                let (address, action) = (number / 2, ["allocate", "free"][(number % 2) as usize]);
                let (size, address) = (rng.between(1, 1 << 30), 0x7f20_4000_0000 + address * 512);
                let _ = writeln!(text, "2342727,15:47:02.841961,{action},{address:#x},{size},0x0");
            }),
            read: |text| play(rmm::RmmSource::new(text.as_bytes(), "rmm", true).expect("opens")),
            anchor: lines,
        },
        Case {
            name: "plan.csv",
            text: plan_text(),
            read: |text| plan::read(text.as_bytes(), "plan").expect("reads").buffers.len() as u64,
            anchor: lines,
        },
        Case {
            name: "plan.csv, played",
            text: plan_text(),
            read: |text| {
                let plan = plan::read(text.as_bytes(), "plan").expect("reads");
                play(EventSource::new(Arc::new(plan.events()), false))
            },
            anchor: lines,
        },
        Case {
            name: "sizes.csv",
            text: fill("image_index,line_width,line_height,text_len\n", |text, number, rng| {
                let (width, height) = (rng.between(1, 4000), rng.between(1, 400));
                let _ = writeln!(text, "{},{width},{height},{}", number / 50, width / height);
            }),
            read: |text| sizes::read(text.as_bytes(), "sizes").expect("reads").sizes.len() as u64,
            anchor: lines,
        },
        Case {
            name: "mooncake.jsonl",
            text: fill("", |text, number, rng| {
                let blocks = rng.between(1, 40);
                let ids: Vec<u64> = (0..blocks).map(|block| number * 20 + block).collect();
                let _ = writeln!(
                    text,
                    r#"{{"timestamp": {}, "input_length": {}, "output_length": 100, "hash_ids": {ids:?}}}"#,
                    number * 3,
                    blocks * 512 - 7
                );
            }),
            read: requests,
            anchor: json,
        },
        Case {
            name: "trace.jsonl",
            text: fill("", |text, number, rng| {
                let size = rng.between(1, 1 << 30);
                let _ =
                    writeln!(text, r#"{{"op":"alloc","id":{number},"size":{size},"t":{number}}}"#);
                let _ = writeln!(text, r#"{{"op":"free","id":{number}}}"#);
            }),
            read: |text| play(JsonlSource::new(text.as_bytes(), "trace")),
            anchor: json,
        },
        Case {
            name: "profiler.json",
            text: fill("{\"schemaVersion\": 1, \"traceEvents\": [\n", |text, number, rng| {
                let (kind, size) = (number % 10, rng.between(1, 1 << 20) * 512);
                let _ = match kind {
                    0 | 5 => writeln!(
                        text,
                        r#"{{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 0, "ts": {number}.25, "args": {{"Ev Idx": {number}, "Device Type": 1, "Device Id": 0, "Addr": {}, "Bytes": {}, "Total Allocated": {size}, "Total Reserved": 12782141440}}}},"#,
                        4096 + number / 10 * 512,
                        if kind == 0 { size as i64 } else { -(size as i64) },
                    ),
                    _ => writeln!(
                        text,
                        r#"{{"ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 1, "tid": 0, "ts": {number}, "dur": 17, "args": {{"External id": {number}, "Ev Idx": {number}, "Input Dims": [[32, 512], []]}}}},"#,
                    ),
                };
            }) + "{}]}",
            read: |text| {
                let profile = profiler::read(text.as_bytes(), "trace").expect("reads");
                let device = profile.devices.into_iter().next().expect("one");
                play(EventSource::new(device.events, true))
            },
            anchor: whole_json,
        },
    ]
}

fn requests(text: &str) -> u64 {
    let mut requests = Requests::new(text.as_bytes(), "requests").expect("opens");
    let mut tokens = 0;
    while let Some(request) = requests.next().expect("reads") {
        tokens += request.prompt_tokens + requests.keys().len() as u64;
    }
    tokens
}

fn play(mut source: impl Source) -> u64 {
    let mut steps = 0;
    while source.next(Nanos(0), Answered::Done).expect("reads") != Step::End {
        steps += 1;
    }
    steps
}

fn all(criterion: &mut Criterion) {
    for case in cases() {
        let mut group = criterion.benchmark_group(case.name);
        group.throughput(Throughput::Bytes(case.text.len() as u64)).sample_size(10);
        group.bench_function("vramlab", |b| b.iter(|| (case.read)(black_box(&case.text))));
        group.bench_function(case.anchor.0, |b| b.iter(|| (case.anchor.1)(black_box(&case.text))));
        group.finish();
    }
    let pickles = pickles();
    let mut group = criterion.benchmark_group(PICKLES);
    let length = pickles.iter().map(|content| content.len()).sum::<usize>();
    group.throughput(Throughput::Bytes(length as u64)).sample_size(10);
    group.bench_function("vramlab", |b| b.iter(|| read_pickles(black_box(&pickles))));
    group.bench_function("sum", |b| b.iter(|| sum(black_box(&pickles))));
    group.finish();
}

/// Time that this thread was on a processor (ns), where the system tells it: other programs then cost less.
fn on_processor() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Seconds of a run, repeated until they can be measured: the system counts processor time in steps of some ms.
fn seconds(run: impl Fn() -> u64) -> f64 {
    let (start, began, mut runs) = (Instant::now(), on_processor(), 0.0);
    while start.elapsed() < STRETCH {
        black_box(run());
        runs += 1.0;
    }
    let used = began.and_then(|began| Some((on_processor()? - began) as f64 / 1e9));
    used.unwrap_or_else(|| start.elapsed().as_secs_f64()) / runs
}

/// A table of the fastest of ten runs.
fn fastest(wanted: Option<&str>) {
    println!("{:<18} {:>8} {:>12} {:>14}", "input", "MB/s", "anchor", "anchor MB/s");
    for case in cases().iter().filter(|case| wanted.is_none_or(|name| case.name.contains(name))) {
        let rate = |run: fn(&str) -> u64| {
            let fastest =
                (0..RUNS).map(|_| seconds(|| run(black_box(&case.text)))).fold(f64::MAX, f64::min);
            case.text.len() as f64 / fastest / 1e6
        };
        let (ours, anchor) = (rate(case.read), rate(case.anchor.1));
        println!("{:<18} {ours:>8.0} {:>12} {anchor:>14.0}", case.name, case.anchor.0);
    }
    if wanted.is_none_or(|name| PICKLES.contains(name)) {
        let pickles = pickles();
        let length = pickles.iter().map(|content| content.len()).sum::<usize>() as f64;
        let rate = |run: fn(&[&'static [u8]]) -> u64| {
            let times = (0..RUNS).map(|_| seconds(|| run(black_box(&pickles))));
            length / times.fold(f64::MAX, f64::min) / 1e6
        };
        let (ours, anchor) = (rate(read_pickles), rate(sum));
        println!("{PICKLES:<18} {ours:>8.0} {:>12} {anchor:>14.0}", "sum");
    }
}

criterion_group!(benches, all);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--fastest") {
        return fastest(
            args.get(at + 1).map(String::as_str).filter(|name| !name.starts_with("--")),
        );
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}
