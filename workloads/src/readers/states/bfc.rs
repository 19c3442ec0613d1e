//! What TensorFlow's BFC allocator logs when it runs out of memory.
//!
//! | line | field |
//! |---|---|
//! | `Allocator (NAME) ran out of memory trying to allocate 74.16MiB (rounded to N)` | [`BfcDump::allocator`], [`BfcDump::asked`]; begins a dump |
//! | `BFCAllocator dump for NAME` | [`BfcDump::allocator`] |
//! | `Bin (256): Total Chunks: 4, Chunks in use: 4. 1.0KiB allocated for chunks. 1.0KiB in use in bin. 520B client-requested in use in bin.` | [`Bin`] |
//! | `Next region of size N` | [`BfcDump::regions`] |
//! | `Chunk at 0x… of size N`, `InUse at … of size N`, `Free at … of size N` | [`Chunk`] |
//! | `Limit:`, `InUse:`, `MaxInUse:`, `NumAllocs:`, `MaxAllocSize:`, `Reserved:`, `PeakReserved:`, `LargestFreeBlock:` | [`Stats`] |
//!
//! What stands before `] ` (time, file, line) is left off, other lines are stepped over, and a log may hold several dumps.
//! Source: tensorflow `core/common_runtime/bfc_allocator.cc` 1.0 to 2.15 and `tsl/framework/bfc_allocator.cc` since 2.12.

use std::io::Read;

use rustc_hash::FxHashSet;
use vramlab_sim::source::SourceError;

use super::Quantity;
use crate::readers::text::{Lines, found, whole};

/// Most chunks, bins and regions of a log.
const PARTS_MAX: usize = 20_000_000;
/// Most dumps of a log.
const DUMPS_MAX: usize = 10_000;
/// Most bytes of an allocator's name.
const NAME_MAX: usize = 100;

/// The state at one failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BfcDump {
    /// Its name, such as `GPU_0_bfc`.
    pub allocator: Option<String>,
    /// What was asked for, as printed.
    pub asked: Option<Quantity>,
    /// What was asked for, rounded up (B), in newer versions.
    pub asked_rounded: Option<u64>,
    /// By size.
    pub bins: Vec<Bin>,
    /// Sizes of the regions (B), in newer versions.
    pub regions: Vec<u64>,
    /// In the order of the log.
    pub chunks: Vec<Chunk>,
    /// The allocator's own counters.
    pub stats: Stats,
    /// What a whole dump has and this one lacks: its log was cut, or is an excerpt.
    pub missing: Vec<String>,
}

/// Chunks of at least `size` bytes, and less than the next bin's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Least size of its chunks (B).
    pub size: u64,
    /// Chunks in all.
    pub chunks: u64,
    /// Chunks that are in use.
    pub in_use: u64,
    /// Bytes of all chunks.
    pub bytes: Quantity,
    /// Bytes of those in use.
    pub bytes_in_use: Quantity,
    /// Bytes that were asked for of those in use.
    pub requested: Quantity,
}

/// A piece of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Or free.
    pub in_use: bool,
}

/// The allocator's own counters (B, but for `allocations`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the log
pub struct Stats {
    pub limit: Option<u64>,
    pub in_use: Option<u64>,
    pub max_in_use: Option<u64>,
    pub allocations: Option<u64>,
    pub max_alloc_size: Option<u64>,
    pub reserved: Option<u64>,
    pub peak_reserved: Option<u64>,
    pub largest_free_block: Option<u64>,
}

impl BfcDump {
    /// Bytes of the chunks that are in use, and of those that are free.
    pub fn chunk_bytes(&self) -> (u64, u64) {
        let sum = |in_use| {
            let own = self.chunks.iter().filter(|chunk| chunk.in_use == in_use);
            own.fold(0_u64, |sum, chunk| sum.saturating_add(chunk.size))
        };
        (sum(true), sum(false))
    }

    /// The largest chunk that is free (B).
    pub fn largest_free(&self) -> Option<u64> {
        self.chunks.iter().filter(|chunk| !chunk.in_use).map(|chunk| chunk.size).max()
    }

    /// What is missing: chunks that bins or regions count, counters.
    fn find_missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let counted = self.bins.iter().fold(0_u64, |sum, bin| sum.saturating_add(bin.chunks));
        let there = self.chunks.len() as u64;
        let regions = self.regions.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
        let (in_use, free) = self.chunk_bytes();
        let bytes = in_use.saturating_add(free);
        if there < counted {
            missing
                .push(format!("{} of the {counted} chunks that its bins count", counted - there));
        } else if bytes < regions {
            missing.push(format!("chunks of {} of its regions' {regions} B", regions - bytes));
        }
        let stats = &self.stats;
        let counters = [
            ("Limit", stats.limit),
            ("InUse", stats.in_use),
            ("MaxInUse", stats.max_in_use),
            ("NumAllocs", stats.allocations),
            ("MaxAllocSize", stats.max_alloc_size),
        ];
        let absent: Vec<&str> =
            counters.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
        if !absent.is_empty() {
            missing.push(format!("the statistics {}", absent.join(", ")));
        }
        missing
    }

    fn is_empty(&self) -> bool {
        *self
            == Self {
                allocator: self.allocator.clone(),
                asked: self.asked,
                asked_rounded: self.asked_rounded,
                ..Self::default()
            }
    }
}

/// Does this text look like such a log?
pub fn is_dump(text: &[u8]) -> bool {
    let has = |word: &str| memchr::memmem::find(text, word.as_bytes()).is_some();
    has("bfc_allocator.cc:")
        || has("BFCAllocator dump for")
        || (has("Bin (") && has("Total Chunks:"))
}

/// The dumps of a log, in order; `origin` names it in messages.
///
/// # Errors
/// It cannot be read, a line of a dump is damaged, or there is no dump in it.
pub fn read(input: impl Read, origin: &str) -> Result<Vec<BfcDump>, SourceError> {
    let mut lines = Lines::new(input, origin)?;
    let (mut log, mut cut) = (Log::default(), None);
    while lines.advance()? {
        match log.line(lines.line()) {
            // the log was cut within it
            Err(what) if lines.unended() => {
                cut = Some(lines.error(format!("{what}; the log ends early")));
                break;
            }
            done => done.map_err(|what| lines.error(what))?,
        }
    }
    let begun = log.dump.allocator.is_some();
    log.next_dump().map_err(|what| lines.error(what))?;
    if let Some(error) = cut.filter(|_| log.dumps.is_empty()) {
        return Err(error);
    }
    if log.dumps.is_empty() {
        let early = if begun { "the log ends early: " } else { "" };
        let what = "found no bins, chunks or statistics, expected those of a BFC allocator";
        return Err(lines.error(format!("{early}{what}")));
    }
    Ok(log.dumps)
}

/// Leaves off `2020-01-01 00:00:00: I …bfc_allocator.cc:627] `.
fn without_place(line: &[u8]) -> &[u8] {
    let end = memchr::memmem::find(line, b"bfc_allocator.cc:");
    let end = end.and_then(|at| Some(at + memchr::memmem::find(&line[at..], b"] ")? + 2));
    line[end.unwrap_or(0)..].trim_ascii()
}

/// What a line of a dump says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A request failed; a dump begins.
    Failure {
        /// The allocator's name.
        allocator: String,
        /// What was asked for, as printed.
        asked: Option<Quantity>,
        /// What was asked for, rounded up (B), in newer versions.
        rounded: Option<u64>,
    },
    /// Whose dump it is.
    Name(String),
    /// Chunks of a size.
    Bin(Bin),
    /// Size of a region (B).
    Region(u64),
    /// A piece of a region.
    Chunk(Chunk),
    /// One of the allocator's own counters, by its name in the log.
    Counter(&'a [u8], u64),
}

/// What a line says, without its time and place; `None` if it is none of a dump.
///
/// # Errors
/// It begins like one of a dump and is damaged: what was found, what was expected.
pub fn part(line: &[u8]) -> Result<Option<Part<'_>>, String> {
    let line = without_place(line);
    if let Some(rest) = line.strip_prefix(b"Allocator (")
        && let Some((name, text)) = between(rest, b") ran out of memory trying to allocate ")
    {
        let end = text.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'.');
        let size = &text[..end.unwrap_or(text.len())];
        let rounded = between(text, b"(rounded to ").and_then(|(_, rest)| {
            let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
            whole(&rest[..end]).ok()
        });
        let allocator = allocator_name(name)?;
        let asked = Quantity::parse(size.strip_suffix(b".").unwrap_or(size));
        return Ok(Some(Part::Failure { allocator, asked, rounded }));
    }
    if let Some(name) = line.strip_prefix(b"BFCAllocator dump for ") {
        return allocator_name(name).map(|name| Some(Part::Name(name)));
    }
    if line.starts_with(b"Bin (") {
        let bin = bin(line).ok_or_else(|| unlike(line, "a bin with its counts and sizes"))?;
        return Ok(Some(Part::Bin(bin)));
    }
    if let Some(size) = line.strip_prefix(b"Next region of size ") {
        return whole(size).map(|size| Some(Part::Region(size)));
    }
    if let Some((kind, rest)) = between(line, b" at ") {
        let in_use = match kind.trim_ascii() {
            b"Chunk" | b"InUse" => true,
            b"Free" => false,
            _ => return Ok(None),
        };
        let chunk =
            chunk(rest, in_use).ok_or_else(|| unlike(line, "a chunk with address and size"))?;
        return Ok(Some(Part::Chunk(chunk)));
    }
    match between(line, b":") {
        Some((name, value)) if Stats::default().named(name).is_some() => {
            whole(value).map(|value| Some(Part::Counter(name, value)))
        }
        _ => Ok(None),
    }
}

#[derive(Default)]
struct Log {
    dumps: Vec<BfcDump>,
    dump: BfcDump,
    addresses: FxHashSet<u64>,
    parts: usize,
}

impl Log {
    fn next_dump(&mut self) -> Result<(), String> {
        let mut dump = std::mem::take(&mut self.dump);
        self.addresses.clear();
        if dump.is_empty() {
            return Ok(());
        }
        dump.missing = dump.find_missing();
        if self.dumps.len() == DUMPS_MAX {
            return Err(format!("found over {DUMPS_MAX} dumps, expected fewer"));
        }
        self.dumps.push(dump);
        Ok(())
    }

    /// One chunk, bin or region more.
    fn count(&mut self) -> Result<(), String> {
        self.parts += 1;
        match self.parts > PARTS_MAX {
            true => Err(format!("found over {PARTS_MAX} chunks, bins and regions, expected fewer")),
            false => Ok(()),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        match part(line)? {
            Some(Part::Failure { allocator, asked, rounded }) => {
                self.next_dump()?;
                self.dump.allocator = Some(allocator);
                (self.dump.asked, self.dump.asked_rounded) = (asked, rounded);
            }
            Some(Part::Name(name)) => {
                if !self.dump.is_empty() {
                    self.next_dump()?;
                }
                self.dump.allocator = Some(name);
            }
            Some(Part::Bin(bin)) => {
                self.count()?;
                self.dump.bins.push(bin);
            }
            Some(Part::Region(size)) => {
                self.count()?;
                self.dump.regions.push(size);
            }
            Some(Part::Chunk(chunk)) => self.keep(chunk)?,
            Some(Part::Counter(name, value)) => {
                self.dump.stats.keep(name, value);
            }
            None => {}
        }
        Ok(())
    }

    fn keep(&mut self, chunk: Chunk) -> Result<(), String> {
        if !self.addresses.insert(chunk.address) {
            return Err(format!(
                "found a chunk at {:#x} again, expected each address once",
                chunk.address
            ));
        }
        self.count()?;
        self.dump.chunks.push(chunk);
        Ok(())
    }
}

impl Stats {
    /// Keeps a counter by its name in the log; false if there is none of that name.
    pub fn keep(&mut self, name: &[u8], value: u64) -> bool {
        self.named(name).map(|counter| *counter = Some(value)).is_some()
    }

    fn named(&mut self, name: &[u8]) -> Option<&mut Option<u64>> {
        Some(match name {
            b"Limit" => &mut self.limit,
            b"InUse" => &mut self.in_use,
            b"MaxInUse" => &mut self.max_in_use,
            b"NumAllocs" => &mut self.allocations,
            b"MaxAllocSize" => &mut self.max_alloc_size,
            b"Reserved" => &mut self.reserved,
            b"PeakReserved" => &mut self.peak_reserved,
            b"LargestFreeBlock" => &mut self.largest_free_block,
            _ => return None,
        })
    }
}

/// What stands before and behind a mark.
fn between<'a>(text: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, mark)?;
    Some((&text[..at], &text[at + mark.len()..]))
}

fn bin(line: &[u8]) -> Option<Bin> {
    let (size, rest) = between(line.strip_prefix(b"Bin (")?, b"):")?;
    let (_, rest) = between(rest, b"Total Chunks:")?;
    let (chunks, rest) = between(rest, b", Chunks in use:")?;
    let (in_use, rest) = between(rest, b". ")?;
    let (bytes, rest) = between(rest, b" allocated for chunks. ")?;
    let (bytes_in_use, rest) = between(rest, b" in use in bin. ")?;
    let (requested, _) = between(rest, b" client-requested in use in bin.")?;
    Some(Bin {
        size: whole(size).ok()?,
        chunks: whole(chunks).ok()?,
        in_use: whole(in_use).ok()?,
        bytes: Quantity::parse(bytes)?,
        bytes_in_use: Quantity::parse(bytes_in_use)?,
        requested: Quantity::parse(requested)?,
    })
}

fn chunk(rest: &[u8], in_use: bool) -> Option<Chunk> {
    let (address, rest) = between(rest, b" of size ")?;
    let size = rest.split(|byte| *byte == b' ').next()?;
    let digits = std::str::from_utf8(address.trim_ascii()).ok()?;
    let address = u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()?;
    Some(Chunk { address, size: whole(size).ok()?, in_use })
}

fn allocator_name(name: &[u8]) -> Result<String, String> {
    if name.len() > NAME_MAX {
        return Err(unlike(name, &format!("a name of at most {NAME_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn unlike(line: &[u8], expected: &str) -> String {
    format!("found {}, expected {expected}", found(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "W tensorflow/core/common_runtime/bfc_allocator.cc:273] Allocator (GPU_0_bfc) ran out of memory trying to allocate 74.16MiB.  Current allocation summary follows.\r
I tensorflow/core/common_runtime/bfc_allocator.cc:627] Bin (256): \tTotal Chunks: 4, Chunks in use: 3. 1.0KiB allocated for chunks. 768B in use in bin. 520B client-requested in use in bin.
2020-05-01 10:00:00.1: I tensorflow/core/common_runtime/bfc_allocator.cc:661] Chunk at 0x905a40000 of size 1280
I tensorflow/core/common_runtime/bfc_allocator.cc:670] Free at 0x9063ac500 of size 69648384
Limit:                   285474816
InUse:                   208404480
MaxInUse:                208404481
NumAllocs:                      26
MaxAllocSize:            121448704
W tensorflow/core/common_runtime/bfc_allocator.cc:277] ****_____xxxxxx
";

    #[test]
    fn every_field_of_an_old_dump() {
        let dumps = read(LOG.as_bytes(), "t").expect("reads");
        let quantity = |bytes, step| Quantity { bytes, step };
        let expected = BfcDump {
            allocator: Some("GPU_0_bfc".to_owned()),
            asked: Some(quantity(77_762_396, 10_486)),
            asked_rounded: None,
            bins: vec![Bin {
                size: 256,
                chunks: 4,
                in_use: 3,
                bytes: quantity(1024, 103),
                bytes_in_use: quantity(768, 1),
                requested: quantity(520, 1),
            }],
            regions: vec![],
            chunks: vec![
                Chunk { address: 0x9_05a4_0000, size: 1280, in_use: true },
                Chunk { address: 0x9_063a_c500, size: 69_648_384, in_use: false },
            ],
            stats: Stats {
                limit: Some(285_474_816),
                in_use: Some(208_404_480),
                max_in_use: Some(208_404_481),
                allocations: Some(26),
                max_alloc_size: Some(121_448_704),
                ..Stats::default()
            },
            missing: vec!["2 of the 4 chunks that its bins count".to_owned()],
        };
        assert_eq!(dumps, [expected]);
        assert_eq!(
            (dumps[0].chunk_bytes(), dumps[0].largest_free()),
            ((1280, 69_648_384), Some(69_648_384))
        );
        assert!(is_dump(LOG.as_bytes()) && !is_dump(b"id,lower,upper,size"));
    }

    /// A log that was cut read as a small state.
    #[test]
    fn a_log_that_ends_early_says_what_is_missing() {
        let cut = |before: &str| {
            let end = LOG.find(before).expect("a line of the log");
            read(&LOG.as_bytes()[..end], "t")
        };
        let missing = |before| cut(before).expect("usable").remove(0).missing;
        let statistics = "the statistics Limit, InUse, MaxInUse, NumAllocs, MaxAllocSize";
        assert_eq!(missing("2020-05"), ["4 of the 4 chunks that its bins count", statistics]);
        assert_eq!(missing("69648384")[0], "3 of the 4 chunks that its bins count");
        assert_eq!(missing("MaxInUse:")[1], "the statistics MaxInUse, NumAllocs, MaxAllocSize");
        let error = |before| cut(before).expect_err("nothing is left").to_string();
        assert!(error("I tensorflow").contains("the log ends early: found no bins"));
        let within = error("B in use in bin");
        assert!(
            within.contains("expected a bin with its counts")
                && within.ends_with("; the log ends early"),
            "{within}"
        );
    }

    #[test]
    fn newer_dumps_and_several() {
        let text = "x tsl/framework/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 392.00MiB (rounded to 411041792)requested by op a
x tsl/framework/bfc_allocator.cc:1039] BFCAllocator dump for GPU_0_bfc
x tsl/framework/bfc_allocator.cc:1095] Next region of size 1024
x tsl/framework/bfc_allocator.cc:1095] InUse at 7f2040000000 of size 256 next 1
x tsl/framework/bfc_allocator.cc:1095] Free  at 7f2040000100 of size 768 by op Add action_count 5 step 0 next 18446744073709551615
Reserved:                            1
PeakReserved:                        2
LargestFreeBlock:                    3
x tsl/framework/bfc_allocator.cc:497] BFCAllocator dump for other
Limit: 5
";
        let dumps = read(text.as_bytes(), "t").expect("reads");
        assert_eq!(dumps.len(), 2);
        assert_eq!(
            (dumps[0].asked_rounded, &dumps[0].regions[..]),
            (Some(411_041_792), &[1024][..])
        );
        assert_eq!(dumps[0].chunk_bytes(), (256, 768));
        let Stats { reserved, peak_reserved, largest_free_block, .. } = dumps[0].stats;
        assert_eq!([reserved, peak_reserved, largest_free_block], [Some(1), Some(2), Some(3)]);
        assert_eq!((dumps[1].allocator.as_deref(), dumps[1].stats.limit), (Some("other"), Some(5)));
    }

    #[test]
    fn bad_logs_are_refused() {
        let error = |text: &str| read(text.as_bytes(), "t").expect_err("bad input").to_string();
        assert_eq!(
            error("hello\n"),
            "t: line 2: found no bins, chunks or statistics, expected those of a BFC allocator"
        );
        assert!(error("").contains("found no bins"));
        let long = format!("BFCAllocator dump for {}\n", "x".repeat(NAME_MAX + 1));
        assert!(error(&long).contains("a name of at most 100 bytes"), "{}", error(&long));
        assert!(error("Bin (256): \tTotal Chunks: 4, Chu").contains("line 1: found \"Bin (256)"));
        assert!(
            error("Free at 0xzz of size 4\n").contains("expected a chunk with address and size")
        );
        assert!(
            error("Chunk at 0x8 of size -4\n").contains("expected a chunk with address and size")
        );
        assert_eq!(
            error("Chunk at 0x8 of size 4\nFree at 0x8 of size 4\n"),
            "t: line 2: found a chunk at 0x8 again, expected each address once"
        );
        assert!(error("Limit: nan\n").contains("found \" nan\", expected a whole number"));
    }
}
