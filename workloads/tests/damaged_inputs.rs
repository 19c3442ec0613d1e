//! Damaged input of every reader: an error or other content, never a panic, and the same whatever pieces the input comes in.
//!
//! Seeds are `tests/seeds/`, one file or more a reader, each read to its end when whole. `VRAMLAB_LONG=1` goes on for a minute; a failure prints what to
//! run again: the seed's name and the number of the try.
#![forbid(unsafe_code)]

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::Nanos;
use vramlab_workloads::readers::bytes::decompressed;
use vramlab_workloads::readers::events::EventSource;
use vramlab_workloads::readers::requests::{RequestLog, Requests};
use vramlab_workloads::readers::states::{bfc, summary, timeline};
use vramlab_workloads::readers::{format, plan, profiler, rmm, sizes, torch_snapshot};
use vramlab_workloads::rng::Rng;

/// Tries of each seed.
const TRIES: u64 = 400;
/// How long it takes with `VRAMLAB_LONG=1`, in all.
const LONG: Duration = Duration::from_secs(60);

type Outcome = Result<String, String>;

/// A seed, and what reads it: the content as text, or the error.
struct Target {
    name: &'static str,
    seed: &'static [u8],
    read: fn(Pieces) -> Outcome,
}

macro_rules! target {
    ($name:literal, $read:expr) => {
        Target { name: $name, seed: include_bytes!(concat!("seeds/", $name)), read: $read }
    };
}

fn targets() -> Vec<Target> {
    vec![
        target!("azure.csv", requests),
        target!("lengths.csv", requests),
        target!("mooncake.jsonl", requests),
        target!("vllm.jsonl", requests),
        target!("rmm.csv", |input| {
            let source = rmm::RmmSource::new(input, "seed", true).map_err(text)?;
            play(source)
        }),
        target!("plan.csv", plan),
        target!("lifetimes.log", plan),
        target!("profiler.json", profile),
        target!("profiler.csv", profile),
        target!("sizes.csv", |input| sizes::read(input, "seed").map(shown).map_err(text)),
        target!("bfc.txt", |input| bfc::read(input, "seed").map(shown).map_err(text)),
        target!("summary.txt", |input| summary::read(input, "seed").map(shown).map_err(text)),
        target!("timeline.json", |input| timeline::read(input, "seed").map(shown).map_err(text)),
        target!("timeline_raw.json", |input| timeline::read(input, "seed")
            .map(shown)
            .map_err(text)),
        target!("trace.jsonl", |input| play(JsonlSource::new(
            std::io::BufReader::new(input),
            "seed"
        ))),
        target!("snapshot.json", |input| {
            let bytes = decompressed(input, None).map_err(|error| error.to_string())?;
            torch_snapshot::read(bytes)
                .map(|s| s.entry_count().to_string())
                .map_err(|e| e.to_string())
        }),
    ]
}

fn text(error: SourceError) -> String {
    error.to_string()
}

fn shown(value: impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

fn requests(input: Pieces) -> Outcome {
    Requests::new(input, "seed").and_then(RequestLog::collect).map(shown).map_err(text)
}

fn plan(input: Pieces) -> Outcome {
    let plan = plan::read(input, "seed").map_err(text)?;
    play(EventSource::new(Arc::new(plan.events()), false))
}

fn profile(input: Pieces) -> Outcome {
    let profile = profiler::read(input, "seed").map_err(text)?;
    let devices = profile.devices.into_iter();
    devices.map(|device| play(EventSource::new(device.events, true))).collect()
}

fn play(mut source: impl Source) -> Outcome {
    let mut all = String::new();
    loop {
        match source.next(Nanos(0), Answered::Done).map_err(text)? {
            Step::End => return Ok(all),
            step => all += &format!("{step:?}\n"),
        }
    }
}

/// Input that comes in pieces.
struct Pieces {
    bytes: std::io::Cursor<Vec<u8>>,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.piece.min(buffer.len());
        self.bytes.read(&mut buffer[..count])
    }
}

fn read(target: &Target, bytes: &[u8], piece: usize) -> Outcome {
    (target.read)(Pieces { bytes: std::io::Cursor::new(bytes.to_vec()), piece })
}

/// A copy with some bytes changed, put in, taken out, doubled or cut off.
fn damaged(seed: &[u8], rng: &mut Rng) -> Vec<u8> {
    /// Bytes that mean something in one of the formats.
    const TELLING: &[u8] = b"{}[]\",:;.-+eE0123456789\n\r \t|()x\\\x00\xff\xef";
    let mut bytes = seed.to_vec();
    for _ in 0..rng.between(1, 3) {
        let place =
            |rng: &mut Rng, length: usize| rng.between(0, length.max(1) as u64 - 1) as usize;
        let at = place(rng, bytes.len());
        let telling = TELLING[place(rng, TELLING.len())];
        match rng.between(0, 8) {
            _ if bytes.is_empty() => bytes.push(telling),
            0 => bytes[at] = rng.between(0, 255) as u8,
            1 => bytes[at] ^= 1 << rng.between(0, 7),
            2 => bytes[at] = telling,
            3 => bytes.insert(at, telling),
            4 => drop(bytes.remove(at)),
            5 => bytes.truncate(at),
            6 => {
                let end = (at + place(rng, 40)).min(bytes.len());
                let doubled = bytes[at..end].to_vec();
                bytes.splice(at..at, doubled);
            }
            7 => {
                let end = (at + place(rng, 40)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => bytes.insert(at, b'9'),
        }
    }
    bytes
}

#[test]
fn whole_seeds_are_read() {
    for target in targets() {
        let whole = read(&target, target.seed, usize::MAX);
        let content = whole.unwrap_or_else(|error| panic!("{}: {error}", target.name));
        assert!(!content.is_empty(), "{}", target.name);
        for piece in [1, 2, 3, 7, 64] {
            assert_eq!(read(&target, target.seed, piece), Ok(content.clone()), "{}", target.name);
        }
        // CRLF and a byte order mark say the same.
        let dressed = String::from_utf8_lossy(target.seed).replace('\n', "\r\n");
        let dressed = format!("\u{feff}{dressed}");
        if !target.name.starts_with("snapshot") {
            let same = read(&target, dressed.as_bytes(), usize::MAX);
            assert_eq!(same, Ok(content), "{}: with CRLF and a byte order mark", target.name);
        }
    }
}

#[test]
fn other_encodings_are_refused() {
    for target in targets() {
        let seed = String::from_utf8_lossy(target.seed);
        let utf16: Vec<u8> =
            std::iter::once(0xfeff).chain(seed.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        let error = read(&target, &utf16, usize::MAX).expect_err("refused");
        assert!(!error.is_empty(), "{}: {error}", target.name);
    }
}

#[test]
fn folders_are_refused() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let errors = [
        requests_error(folder),
        rmm::open(folder, false).err().map(|e| e.to_string()),
        plan::open(folder).err().map(|e| e.to_string()),
        profiler::open(folder).err().map(|e| e.to_string()),
        sizes::open(folder).err().map(|e| e.to_string()),
    ];
    for error in errors {
        let error = error.expect("refused");
        assert!(error.ends_with("found a folder, expected a file"), "{error}");
    }
}

fn requests_error(folder: &std::path::Path) -> Option<String> {
    RequestLog::read(folder).err().map(|error| error.to_string())
}

#[test]
fn damaged_input_is_an_error_or_other_content() {
    let long = std::env::var("VRAMLAB_LONG").is_ok_and(|v| v == "1");
    let (began, mut tries, mut refused, mut round) = (Instant::now(), 0_u64, 0_u64, 0);
    loop {
        for target in targets() {
            for number in round * TRIES..(round + 1) * TRIES {
                let mut rng = Rng::new(number, target.name);
                let bytes = damaged(target.seed, &mut rng);
                let piece = rng.between(1, 100) as usize;
                let ran = std::panic::catch_unwind(|| {
                    let _ = format::detect(&bytes);
                    (read(&target, &bytes, usize::MAX), read(&target, &bytes, piece))
                });
                let (whole, in_pieces) =
                    ran.unwrap_or_else(|_| panic!("{}: try {number} panics", target.name));
                assert_eq!(whole, in_pieces, "{}: try {number}", target.name);
                tries += 1;
                refused += u64::from(whole.is_err());
            }
        }
        round += 1;
        if !long || began.elapsed() > LONG {
            break;
        }
    }
    println!("damaged_inputs: {tries} tries, {refused} refused");
    assert!(refused * 10 > tries && refused * 10 < tries * 9, "{refused} of {tries} refused");
}
