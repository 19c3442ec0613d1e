//! Writes a made-up PyTorch memory snapshot without stacks, of any length, to measure readers with.
//!
//! ```text
//! cargo run --release -p vramlab-workloads --example write_snapshot -- 1000000 out.pickle
//! ```
//!
//! A training loop on one device, as torch 2.15 would record it from an empty allocator: weights, then steps of forward
//! (activations stay), backward (they go in reverse order, gradients come), optimiser (temporaries). Addresses come from
//! first fit over a list of holes in one big segment; blocks are multiples of 512 bytes. The pickle has the shape that
//! CPython's protocol 4 gives it: memoized dicts and pool ids, keys by memo. The same count gives the same bytes.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

const SEGMENT_ADDRESS: u64 = 0x7000_0000_0000;
const BLOCK_BYTES_MIN: u64 = 512;
const TIME_US_START: u64 = 1_796_008_000_000_000;
const KEYS: [&str; 8] =
    ["action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "pool_id"];

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let count = args.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let path = args.next().unwrap_or_else(|| "snapshot.pickle".to_owned());
    let file = BufWriter::new(std::fs::File::create(path)?);
    let entries = Training::default().entries(count);
    let mut pickle = Pickle { out: file, memo: BTreeMap::new(), stored: 0 };
    pickle.snapshot(&entries)?;
    pickle.out.flush()
}

struct Entry {
    action: &'static str,
    addr: u64,
    size: u64,
    phase: &'static str,
}

/// First fit in one segment, as large as it takes.
#[derive(Default)]
struct Training {
    entries: Vec<Entry>,
    /// Free ranges below `top`: start to bytes.
    holes: BTreeMap<u64, u64>,
    live: BTreeMap<u64, u64>,
    top: u64,
    random: u64,
    phase: &'static str,
}

impl Training {
    fn entries(mut self, count: usize) -> (Vec<Entry>, u64, BTreeMap<u64, u64>) {
        self.phase = "model to device";
        let sizes: Vec<u64> = (0..200).map(|_| self.size()).collect();
        let weights = sizes.len().min(count);
        for size in &sizes[..weights] {
            self.alloc(*size);
        }
        while self.entries.len() < count {
            self.step(&sizes, count);
        }
        self.entries.truncate(count);
        (self.entries, self.top, self.live)
    }

    fn step(&mut self, sizes: &[u64], count: usize) {
        let batch = 1 + self.next(8);
        self.phase = "forward";
        let mut kept = Vec::new();
        for size in sizes {
            let temporary = self.alloc(size / 2 + 64);
            kept.push((self.alloc(size * batch), size * batch));
            self.free(temporary, size / 2 + 64);
        }
        // The autograd thread sees no phase name.
        self.phase = "";
        let mut gradients = Vec::new();
        for (activation, bytes) in kept.into_iter().rev() {
            gradients.push((self.alloc(bytes / batch), bytes / batch));
            self.free(activation, bytes);
        }
        self.phase = "optimizer";
        for (gradient, bytes) in gradients {
            let temporary = self.alloc(bytes);
            self.free(temporary, bytes);
            self.free(gradient, bytes);
        }
        // What does not fit any more is left live: whole pairs of frees only.
        if self.entries.len() > count {
            self.undo_beyond(count);
        }
    }

    /// Takes back what lies beyond `count`, so that the state fits the last entry kept.
    fn undo_beyond(&mut self, count: usize) {
        for entry in self.entries.drain(count..).rev() {
            match entry.action {
                "alloc" => self.live.remove(&entry.addr),
                "free_completed" => self.live.insert(entry.addr, entry.size),
                _ => None,
            };
        }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn size(&mut self) -> u64 {
        let scale = self.next(14);
        4 * (1 + self.next(512 << scale))
    }

    fn alloc(&mut self, size: u64) -> u64 {
        let bytes = block_bytes(size);
        let hole =
            self.holes.iter().find(|(_, room)| **room >= bytes).map(|(at, room)| (*at, *room));
        let addr = match hole {
            Some((at, room)) => {
                self.holes.remove(&at);
                if room > bytes {
                    self.holes.insert(at + bytes, room - bytes);
                }
                at
            }
            None => {
                self.top += bytes;
                SEGMENT_ADDRESS + self.top - bytes
            }
        };
        self.live.insert(addr, size);
        self.entries.push(Entry { action: "alloc", addr, size, phase: self.phase });
        addr
    }

    fn free(&mut self, addr: u64, size: u64) {
        for action in ["free_requested", "free_completed"] {
            self.entries.push(Entry { action, addr, size, phase: self.phase });
        }
        self.live.remove(&addr);
        let (mut start, mut bytes) = (addr, block_bytes(size));
        if let Some((before, room)) = self.holes.range(..addr).next_back().map(|(a, r)| (*a, *r))
            && before + room == addr
        {
            self.holes.remove(&before);
            (start, bytes) = (before, bytes + room);
        }
        if let Some(room) = self.holes.remove(&(start + bytes)) {
            bytes += room;
        }
        self.holes.insert(start, bytes);
    }
}

fn block_bytes(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES_MIN).max(1) * BLOCK_BYTES_MIN
}

/// Writes opcodes of protocol 4 (without frames, which readers may ignore).
struct Pickle<W> {
    out: W,
    memo: BTreeMap<String, u32>,
    stored: u32,
}

impl<W: Write> Pickle<W> {
    fn snapshot(&mut self, run: &(Vec<Entry>, u64, BTreeMap<u64, u64>)) -> io::Result<()> {
        let (entries, top, live) = run;
        self.out.write_all(b"\x80\x04}")?;
        self.memoize()?;
        self.out.write_all(b"(")?;
        self.text("segments")?;
        self.segments(*top, live)?;
        self.text("device_traces")?;
        self.out.write_all(b"]")?;
        self.memoize()?;
        self.out.write_all(b"]")?;
        self.memoize()?;
        let mut at = TIME_US_START;
        for batch in entries.chunks(1000) {
            self.out.write_all(b"(")?;
            for entry in batch {
                at += 3 + entry.size % 7;
                self.entry(entry, at)?;
            }
            self.out.write_all(b"e")?;
        }
        self.out.write_all(b"au.")
    }

    fn entry(&mut self, entry: &Entry, time_us: u64) -> io::Result<()> {
        self.out.write_all(b"}")?;
        self.memoize()?;
        self.out.write_all(b"(")?;
        let [action, addr, size, stream, time, context, metadata, pool] = KEYS;
        self.text(action)?;
        self.text(entry.action)?;
        self.pair(addr, entry.addr)?;
        self.pair(size, entry.size)?;
        self.pair(stream, 0)?;
        self.pair(time, time_us)?;
        self.text(context)?;
        self.text("N/A")?;
        self.text(metadata)?;
        self.text(entry.phase)?;
        self.text(pool)?;
        self.out.write_all(b"K\x00K\x00\x86")?;
        self.memoize()?;
        self.out.write_all(b"u")
    }

    /// One segment with the live blocks and the holes between them.
    fn segments(&mut self, top: u64, live: &BTreeMap<u64, u64>) -> io::Result<()> {
        self.out.write_all(b"]")?;
        self.memoize()?;
        if top == 0 {
            return Ok(());
        }
        self.out.write_all(b"(}")?;
        self.memoize()?;
        self.out.write_all(b"(")?;
        let allocated = live.values().map(|size| block_bytes(*size)).sum();
        self.pair("device", 0)?;
        self.pair("address", SEGMENT_ADDRESS)?;
        self.pair("total_size", top)?;
        self.pair("allocated_size", allocated)?;
        self.pair("active_size", allocated)?;
        self.pair("requested_size", live.values().sum())?;
        self.pair("stream", 0)?;
        self.text("segment_type")?;
        self.text("large")?;
        self.text("blocks")?;
        self.out.write_all(b"]")?;
        self.memoize()?;
        self.out.write_all(b"(")?;
        let mut next = SEGMENT_ADDRESS;
        for (addr, size) in live {
            self.hole(next, *addr)?;
            self.block(*addr, block_bytes(*size), *size, "active_allocated")?;
            next = addr + block_bytes(*size);
        }
        self.hole(next, SEGMENT_ADDRESS + top)?;
        self.out.write_all(b"eue")
    }

    fn hole(&mut self, start: u64, end: u64) -> io::Result<()> {
        if start < end { self.block(start, end - start, 0, "inactive") } else { Ok(()) }
    }

    fn block(&mut self, addr: u64, size: u64, requested: u64, state: &str) -> io::Result<()> {
        self.out.write_all(b"}")?;
        self.memoize()?;
        self.out.write_all(b"(")?;
        self.pair("address", addr)?;
        self.pair("size", size)?;
        self.pair("requested_size", requested)?;
        self.text("state")?;
        self.text(state)?;
        self.out.write_all(b"u")
    }

    fn pair(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.text(key)?;
        self.int(value)
    }

    fn memoize(&mut self) -> io::Result<()> {
        self.stored += 1;
        self.out.write_all(b"\x94")
    }

    fn int(&mut self, value: u64) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        match value {
            0..=0xff => self.out.write_all(&[b'K', bytes[0]]),
            0x100..=0xffff => self.out.write_all(&[b'M', bytes[0], bytes[1]]),
            0x1_0000..=0x7fff_ffff => {
                self.out.write_all(b"J")?;
                self.out.write_all(&bytes[..4])
            }
            _ => {
                // One bit more than the number needs, for the sign.
                let length = (65 - value.leading_zeros() as usize).div_ceil(8);
                self.out.write_all(&[0x8a, length as u8])?;
                self.out.write_all(&bytes[..length.min(8)])?;
                if length > 8 { self.out.write_all(&[0]) } else { Ok(()) }
            }
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(index) = self.memo.get(text) {
            return match u8::try_from(*index) {
                Ok(index) => self.out.write_all(&[b'h', index]),
                Err(_) => {
                    self.out.write_all(b"j")?;
                    self.out.write_all(&index.to_le_bytes())
                }
            };
        }
        self.memo.insert(text.to_owned(), self.stored);
        self.out.write_all(&[0x8c, text.len() as u8])?;
        self.out.write_all(text.as_bytes())?;
        self.memoize()
    }
}
