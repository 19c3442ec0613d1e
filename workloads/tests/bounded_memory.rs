//! Long inputs are streamed: reading hundreds of megabytes takes a few of memory.
//!
//! Measured is the most memory that this process ever held (`VmHWM` of Linux; elsewhere nothing is measured, but all is read).
#![forbid(unsafe_code)]

use std::io::Read;

use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::Nanos;
use vramlab_workloads::readers::requests::Requests;
use vramlab_workloads::readers::{profiler, rmm};

/// Bytes of each input.
const INPUT_BYTES: u64 = 100 << 20;
/// How much more memory may be held at the end than at the beginning (kB).
const GROWTH_MAX: u64 = 16 << 10;

/// A header, and then one block of lines again and again.
fn endless(header: &'static str, block: &'static str) -> impl Read {
    header.as_bytes().chain(Again { block: block.as_bytes(), at: 0 }).take(INPUT_BYTES)
}

struct Again {
    block: &'static [u8],
    at: usize,
}

impl Read for Again {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let rest = &self.block[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at = (self.at + count) % self.block.len();
        Ok(count)
    }
}

/// The most memory that was held, in kB.
fn most_held() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[test]
fn long_inputs_are_streamed() {
    let before = most_held();
    for (header, line) in [
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "2023-11-16 18:15:46.6805900,374,44\n"),
        (
            "",
            "{\"timestamp\": 27, \"input_length\": 1024, \"output_length\": 490, \"hash_ids\": [0, 14]}\n",
        ),
    ] {
        let mut requests = Requests::new(endless(header, line), "t").expect("opens");
        let mut count = 0_u64;
        // The last line is cut off.
        while requests.next().is_ok_and(|request| request.is_some()) {
            count += 1;
        }
        assert!(count >= INPUT_BYTES / line.len() as u64 - 1, "{count} requests");
    }
    let pair = "1,15:47:02.841961,allocate,0x10012400000,1048576,0x0\n1,15:47:02.841977,free,0x10012400000,1048576,0x0\n";
    let input = endless("Thread,Time,Action,Pointer,Size,Stream\n", pair);
    let mut source = rmm::RmmSource::new(input, "t", true).expect("opens");
    while source.next(Nanos(0), Answered::Done).is_ok_and(|step| step != Step::End) {}
    assert!(source.line() > 1_000_000, "{} lines", source.line());

    let work = "{\"ph\": \"X\", \"name\": \"aten::add\", \"ts\": 17, \"args\": {\"Input Dims\": [[3], []]}},\n";
    let cut = profiler::read(endless("{\"traceEvents\": [", work), "t").expect_err("it is cut off");
    assert!(cut.to_string().contains("the file ends in the middle"), "{cut}");

    let growth = most_held() - before;
    println!("bounded_memory: {growth} kB more after 400 MiB of input");
    assert!(growth < GROWTH_MAX, "{growth} kB");
}
