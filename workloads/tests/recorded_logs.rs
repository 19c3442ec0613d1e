//! Every file of the shared folder's traces that is no snapshot: told by its content, read to its end, and held to what it says of itself.
//!
//! Witness: totals that the recorded program wrote (`total_allocated`, `InUse`), and `facts.json` of the placement instances. Exact.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use vramlab_workloads::live::live_peak;
use vramlab_workloads::readers::events::{EventSource, Events};
use vramlab_workloads::readers::format::{Carries, Format, HEAD_BYTES, detect};
use vramlab_workloads::readers::states::{bfc, summary, timeline};
use vramlab_workloads::readers::{bytes, plan, profiler, requests, sizes};

/// The files of a folder of traces, in order; none without the shared folder, which is a failure if it is required.
fn files(kind: &str) -> Vec<PathBuf> {
    let shared = std::env::var_os("VRAMLAB_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    let folder = shared.join("traces").join(kind);
    let Ok(listed) = std::fs::read_dir(&folder) else {
        let required = std::env::var("VRAMLAB_REQUIRE_SHARED").is_ok_and(|v| v == "1");
        assert!(!required, "{kind}: no folder {}, and VRAMLAB_REQUIRE_SHARED=1", folder.display());
        println!("recorded {kind}: skipped, no shared folder");
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

fn format(path: &Path) -> Option<Format> {
    let mut input = bytes::open(path).expect("a file of the shared folder");
    detect(&input.head(HEAD_BYTES).expect("reads"))
}

/// Files of these formats, with their name.
fn of(kind: &str, formats: &[Format]) -> Vec<(String, PathBuf, Format)> {
    let files = files(kind);
    let none = files.is_empty();
    let told = files.into_iter().filter_map(|path| {
        let format = format(&path).filter(|format| formats.contains(format))?;
        Some((path.file_name()?.to_string_lossy().into_owned(), path, format))
    });
    let told: Vec<_> = told.collect();
    assert!(none || !told.is_empty(), "{kind}: no file is told as {formats:?}");
    told
}

fn peak(events: &Arc<Events>) -> u64 {
    live_peak(&mut EventSource::new(Arc::clone(events), false)).expect("holds together").bytes
}

#[test]
fn recorded_static_plans() {
    let found = of("static_plans", &[Format::StaticPlan]);
    let facts = files("static_plans").into_iter().find(|path| path.ends_with("facts.json"));
    let facts = facts.map_or(Value::Null, |path| {
        serde_json::from_slice(&std::fs::read(path).expect("reads")).expect("JSON")
    });
    for (name, path, _) in &found {
        let plan = plan::open(path).unwrap_or_else(|error| panic!("{error}"));
        let peak = peak(&Arc::new(plan.events()));
        assert_eq!(facts[name]["buffers"].as_u64(), Some(plan.buffers.len() as u64), "{name}");
        assert_eq!(facts[name]["peak_live_half_open"].as_u64(), Some(peak), "{name}");
    }
    println!("recorded_static_plans: {} instances, peaks as in facts.json", found.len());
}

#[test]
fn recorded_lifetimes() {
    let found = of("lifetimes", &[Format::Lifetimes]);
    for (name, path, _) in &found {
        let plan = plan::open(path).unwrap_or_else(|error| panic!("{error}"));
        // Another way to the peak: the highest sum at a request, buffer by buffer.
        let live_at = |time| {
            let live = plan.buffers.iter().filter(|b| b.lower <= time && time < b.upper);
            live.map(|b| b.size).sum::<u64>()
        };
        let peak_by_hand = plan.buffers.iter().map(|b| live_at(b.lower)).max();
        assert_eq!(Some(peak(&Arc::new(plan.events()))), peak_by_hand, "{name}");
        println!("{name}: {} buffers, peak {} B", plan.buffers.len(), peak_by_hand.unwrap_or(0));
    }
    println!("recorded_lifetimes: {} logs", found.len());
}

#[test]
fn recorded_profiler() {
    let found = of("profiler", &[Format::ProfilerTrace, Format::ProfilerList]);
    for (name, path, _) in &found {
        let profile = profiler::open(path).unwrap_or_else(|error| panic!("{error}"));
        for device in &profile.devices {
            let peak = peak(&device.events);
            println!(
                "{name} device {}: {} requests and frees, {} blocks and {} B at the start, peak {peak} B, recorded {:?}, {} gaps",
                device.device,
                device.events.len(),
                device.start_blocks,
                device.start_bytes,
                device.peak_allocated,
                device.events.gaps()
            );
            assert_eq!(device.events.gaps(), 0, "{name}");
            if let Some(recorded) = device.peak_allocated {
                assert_eq!(peak, recorded, "{name}: sums as the allocator counted them");
            }
        }
        assert!(profile.host_events > 0 || !profile.devices.is_empty(), "{name}");
    }
    println!("recorded_profiler: {} traces", found.len());
}

#[test]
fn recorded_timelines() {
    let found = of("profiler", &[Format::Timeline]);
    for (name, path, _) in &found {
        let input = bytes::open(path).expect("opens");
        let line = timeline::read(input, name).unwrap_or_else(|error| panic!("{error}"));
        let peak = line.peak().expect("points");
        println!("{name}: {} points, peak {} B", line.points.len(), peak.total());
        assert!(line.points.iter().all(|point| point.total() >= 0), "{name}: never below 0");
    }
    println!("recorded_timelines: {} exports", found.len());
}

#[test]
fn recorded_requests() {
    let mut count = 0;
    for kind in ["llm_serving", "vllm_measured"] {
        for (name, path, _) in of(kind, &[Format::Requests]) {
            let log = requests::RequestLog::read(&path).unwrap_or_else(|error| panic!("{error}"));
            let (tokens, last) = (
                |of: fn(&requests::Request) -> u64| log.requests().iter().map(of).sum::<u64>(),
                log.requests().last(),
            );
            println!(
                "{name}: {} requests over {:?}, {} tokens in, {} out, {} blocks of keys, measured: {}",
                log.len(),
                last.and_then(|request| request.arrival),
                tokens(|request| request.prompt_tokens),
                tokens(|request| request.output_tokens),
                (0..log.len()).map(|index| log.keys(index).len()).sum::<usize>(),
                log.requests().iter().filter(|request| request.measured.is_some()).count(),
            );
            assert!(log.len() > 100, "{name}");
            assert!(
                kind != "vllm_measured" || log.requests().iter().all(|r| r.measured.is_some()),
                "{name}"
            );
            for (index, request) in log.requests().iter().enumerate() {
                let known: u64 = log.keys(index).iter().map(|run| run.count).sum();
                assert!(known <= request.prompt_tokens, "{name}: request {index}");
            }
            count += 1;
        }
    }
    println!("recorded_requests: {count} files");
}

#[test]
fn recorded_sizes() {
    let found = of("ocr_sizes", &[Format::Sizes]);
    for (name, path, _) in &found {
        let list = sizes::open(path).unwrap_or_else(|error| panic!("{error}"));
        let largest = list.sizes.iter().map(|size| size.width).max();
        println!("{name}: {} sizes, parts: {}, widest {largest:?}", list.sizes.len(), list.parts);
        assert!(!list.sizes.is_empty(), "{name}");
    }
    println!("recorded_sizes: {} lists", found.len());
}

/// The chunks of a dump add up to what the allocator counted.
#[test]
fn recorded_bfc_dumps() {
    let found = of("oom_messages", &[Format::BfcDump]);
    for (name, path, _) in &found {
        let input = bytes::open(path).expect("opens");
        for dump in bfc::read(input, name).unwrap_or_else(|error| panic!("{error}")) {
            let (used, free) = dump.chunk_bytes();
            println!(
                "{name}: {} bins, {} chunks, {used} B used, {free} B free",
                dump.bins.len(),
                dump.chunks.len()
            );
            assert_eq!(
                (Some(used), Some(used + free)),
                (dump.stats.in_use, dump.stats.limit),
                "{name}"
            );
            let mut chunks = dump.chunks.clone();
            chunks.sort_by_key(|chunk| chunk.address);
            assert!(
                chunks.windows(2).all(|pair| pair[0].address + pair[0].size == pair[1].address),
                "{name}: no gap"
            );
            let by_bin: u64 = dump.bins.iter().map(|bin| bin.in_use).sum();
            assert_eq!(
                by_bin as usize,
                chunks.iter().filter(|chunk| chunk.in_use).count(),
                "{name}"
            );
        }
    }
    println!("recorded_bfc_dumps: {} logs", found.len());
}

/// Posted tables and pieces of dumps: their numbers as they were read off by hand, as exactly as they are printed.
#[test]
fn recorded_states_in_messages() {
    let (mut tables, mut dumps) = (0, 0);
    for path in
        files("oom_messages").iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl"))
    {
        let text = std::fs::read_to_string(path).expect("reads");
        for line in text.lines() {
            let posted: Value = serde_json::from_str(line).expect("JSON");
            let message = posted["message"].as_str().unwrap_or_default().as_bytes();
            let number = |name: &str| posted["numbers"][name].as_u64();
            if summary::is_summary(message) {
                let read = summary::read(message, "t").unwrap_or_else(|error| panic!("{error}"));
                for (row, field) in [
                    ("Allocated memory", "allocated_current_bytes"),
                    ("GPU reserved memory", "reserved_current_bytes"),
                    ("Non-releasable memory", "inactive_split_current_bytes"),
                ] {
                    let current = read[0].row(row).map(|row| row.current.bytes);
                    assert_eq!(current, number(field), "{field}");
                }
                assert_eq!(
                    (Some(read[0].ooms), Some(read[0].retries)),
                    (number("ooms"), number("cudamalloc_retries"))
                );
                tables += 1;
            } else if posted["message"].as_str().is_some_and(|text| text.contains("InUse:")) {
                let read = bfc::read(message, "t").unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(
                    (read[0].stats.limit, read[0].stats.in_use),
                    (number("limit_bytes"), number("in_use_bytes"))
                );
                dumps += 1;
            }
        }
    }
    assert!(tables > 0 && dumps > 0 || files("oom_messages").is_empty(), "{tables}, {dumps}");
    println!("recorded_states_in_messages: {tables} tables, {dumps} pieces of dumps");
}

/// What is in the folders of one kind is told as that kind, whatever its name.
#[test]
fn recorded_formats_are_told() {
    for (kind, carries) in [
        ("static_plans", Carries::Ops),
        ("lifetimes", Carries::Ops),
        ("llm_serving", Carries::Requests),
        ("ocr_sizes", Carries::Sizes),
    ] {
        for path in files(kind) {
            let other = path.extension().is_some_and(|e| e == "md" || e == "json");
            if !other {
                assert_eq!(
                    format(&path).map(|f| f.doc().carries),
                    Some(carries),
                    "{}",
                    path.display()
                );
            }
        }
    }
}
