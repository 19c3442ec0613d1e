//! TensorFlow: the BFC allocator's log, read by the reader of such dumps, and the error of an operator.
//!
//! | line | figure |
//! |---|---|
//! | `Allocator (GPU_0_bfc) ran out of memory trying to allocate 74.16MiB`, `Ran out of memory trying to allocate …` (1.0) | request |
//! | bins, chunks, regions, `Limit:` and the other counters | limit, in use, free bytes and the largest free piece |
//! | `Total bytes in pool: N memory_limit_: N available bytes: N curr_region_allocation_bytes_: N` | what the regions have, what the limit leaves, what the next region would be |
//! | `totalMemory: A freeMemory: B` | the card, and what was free of it when the process began |
//! | `OOM when allocating tensor with shape[128,225,225,3] and type float on …/device:GPU:0` | request: elements times bytes of an element |
//!
//! A dump has a line for each chunk; only sums are kept. A sum or limit that it has already begins the next one. Source: tensorflow `core/common_runtime/bfc_allocator.cc`, 0.8 to 2.15; `tsl/framework/bfc_allocator.cc`.

use vramlab_workloads::readers::states::bfc::{self, Part};

use crate::explain::message::{Figures, Framework, Kind, Message, Value};
use crate::explain::tokens::{
    Like::{Number, Size, Word},
    Token, find, tokens,
};

/// Lines without a word of a dump, after which it has ended.
const QUIET_LINES: u64 = 400;

/// Dumps of a log, one at a time.
#[derive(Debug, Default)]
pub struct Dump {
    figures: Figures,
    /// Of the card, when the process began.
    card: Figures,
    first_line: u64,
    last_line: u64,
    used: u64,
    free: u64,
    largest: u64,
    pieces: u64,
    failed: bool,
}

impl Dump {
    /// Is a dump being read?
    pub const fn is_open(&self) -> bool {
        self.first_line > 0
    }

    /// Takes a line; gives the dump that ends before it.
    pub fn take(&mut self, text: &str, number: u64) -> Option<Message> {
        let quiet = number > self.last_line + QUIET_LINES;
        let before = if quiet { self.finish() } else { None };
        let has = |words: &str| text.contains(words);
        if has("totalMemory:") && has("freeMemory:") {
            self.card(text);
        }
        let part = bfc::part(text.as_bytes()).ok().flatten();
        let sums = has("in-use chunks") || has("memory_limit_:");
        let old = has("bfc_allocator") && has("Ran out of memory trying to allocate");
        if part.is_none() && !sums && !old {
            return before;
        }
        let begins = old
            || matches!(part, Some(Part::Failure { .. }))
            || has("in-use chunks") && self.figures.get("in_use_chunks_bytes").is_some()
            || matches!(part, Some(Part::Counter(b"Limit", _)) if self.figures.get("in_use_bytes").is_some());
        let ended = before.or_else(|| if begins { self.finish() } else { None });
        if self.first_line == 0 {
            // a counter alone, such as `Limit: 5`, may be of anything
            if matches!(part, Some(Part::Counter(..) | Part::Region(_))) && !has("bfc_allocator") {
                return ended;
            }
            self.first_line = number;
        }
        self.last_line = number;
        match part {
            Some(part) => self.part(part),
            None => self.sums(text),
        }
        ended
    }

    fn card(&mut self, text: &str) {
        let tokens = tokens(text);
        self.card = Figures::default();
        for (name, word) in
            [("capacity_bytes", "totalMemory"), ("free_at_start_bytes", "freeMemory")]
        {
            self.card.read(name, &tokens, &[Word(word), Size], 1);
        }
    }

    fn part(&mut self, part: Part<'_>) {
        let figures = &mut self.figures;
        match part {
            Part::Failure { allocator, asked, rounded } => {
                self.failed = true;
                if let Some(asked) = asked {
                    figures.keep("tried_bytes", Value::Bytes(asked));
                }
                if let Some(rounded) = rounded {
                    figures.keep("rounded_bytes", Value::bytes(rounded));
                }
                keep_device(figures, &allocator);
            }
            Part::Name(name) => keep_device(figures, &name),
            Part::Chunk(chunk) if chunk.in_use => self.used = self.used.saturating_add(chunk.size),
            Part::Chunk(chunk) => {
                self.free = self.free.saturating_add(chunk.size);
                self.largest = self.largest.max(chunk.size);
                self.pieces += 1;
            }
            Part::Counter(name, value) => {
                let name = match name {
                    b"Limit" => "limit_bytes",
                    b"InUse" => "in_use_bytes",
                    b"MaxInUse" => "max_in_use_bytes",
                    b"NumAllocs" => {
                        figures.keep("num_allocs", Value::Count(value));
                        return;
                    }
                    b"MaxAllocSize" => "max_alloc_bytes",
                    // these are printed as 0 where nobody counts them
                    b"LargestFreeBlock" if value > 0 => "largest_free_bytes",
                    _ => return,
                };
                figures.keep(name, Value::bytes(value));
            }
            Part::Bin(_) | Part::Region(_) => {}
        }
    }

    fn sums(&mut self, text: &str) {
        let tokens = tokens(text);
        self.figures.read("tried_bytes", &tokens, &[Word("to"), Word("allocate"), Size], 2);
        self.figures.read("in_use_chunks_bytes", &tokens, &[Word("chunks"), Size], 1);
        for (name, word) in [
            ("region_bytes", "total_region_allocated_bytes_"),
            ("limit_bytes", "memory_limit_"),
            ("curr_region_allocation_bytes", "curr_region_allocation_bytes_"),
        ] {
            self.whole(name, &tokens, &[Word(word), Number]);
        }
        self.whole("pool_bytes", &tokens, &[Word("in"), Word("pool"), Number]);
        self.whole("available_bytes", &tokens, &[Word("available"), Word("bytes"), Number]);
        self.failed = true;
    }

    /// Whole bytes without a unit, at the end of a pattern.
    fn whole(
        &mut self,
        name: &'static str,
        tokens: &[Token<'_>],
        pattern: &[crate::explain::tokens::Like],
    ) {
        if let Some(Token::Number(number)) = find(tokens, pattern, pattern.len() - 1)
            && let Some(bytes) = number.whole()
        {
            self.figures.keep(name, Value::bytes(bytes));
        }
    }

    /// The dump that is being read.
    pub fn finish(&mut self) -> Option<Message> {
        let card = self.card.clone();
        let dump = std::mem::replace(self, Self { card: card.clone(), ..Self::default() });
        let Self { mut figures, first_line, used, free, largest, pieces, failed, .. } = dump;
        if used > 0 || free > 0 {
            figures.keep("chunks_in_use_bytes", Value::bytes(used));
            figures.keep("chunks_free_bytes", Value::bytes(free));
            figures.replace("largest_free_bytes", Value::bytes(largest));
            figures.keep("free_pieces", Value::Count(pieces));
        }
        if figures.is_empty() {
            return None;
        }
        card.iter().for_each(|(name, value)| figures.keep(name, value.clone()));
        let era = match () {
            () if figures.get("pool_bytes").is_some() => "2.13 or later (tsl, BFC dump)",
            () if figures.get("region_bytes").is_some() => "2.4 to 2.12 (BFC dump)",
            () if figures.get("limit_bytes").is_some() || pieces > 0 => "0.8 or later (BFC dump)",
            () => "0.8 or later (BFC allocator)",
        };
        let kind = if failed { Kind::Refused } else { Kind::State };
        let message = Message::new(Framework::Tensorflow, era);
        Some(Message { line: first_line, kind, figures, ..message })
    }
}

/// Number of the device, from a name such as `GPU_0_bfc`.
fn keep_device(figures: &mut Figures, allocator: &str) {
    let number = allocator.strip_prefix("GPU_").and_then(|rest| rest.split('_').next());
    if let Some(gpu) = number.and_then(|number| number.parse().ok()) {
        figures.keep("gpu", Value::Count(gpu));
    }
}

/// An operator's error: what its tensor needs.
pub(super) fn read(text: &str) -> Option<Message> {
    let lower = text.to_ascii_lowercase();
    let mut message =
        Message::new(Framework::Tensorflow, "0.8 or later (OOM when allocating tensor)");
    let shape = lower.split_once("shape[").and_then(|(_, rest)| rest.split_once(']'));
    if let Some((shape, rest)) = shape {
        let elements = shape
            .split(',')
            .map(|size| size.trim().parse::<u64>().ok())
            .try_fold(1_u64, |product, size| product.checked_mul(size?));
        let name = rest.split_once("type ").map(|(_, name)| name);
        let name = name.and_then(|name| name.split([' ', '\n', '[']).next());
        let bytes = name.and_then(element_bytes);
        if let Some(bytes) = elements.zip(bytes).and_then(|(n, size)| n.checked_mul(size)) {
            message.figures.keep("tried_bytes", Value::bytes(bytes));
        }
    }
    if let Some((_, rest)) = lower.split_once("device:gpu:") {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(gpu) = digits.parse() {
            message.figures.keep("gpu", Value::Count(gpu));
        }
    }
    Some(message)
}

/// Bytes of an element of this type, by TensorFlow's names.
fn element_bytes(name: &str) -> Option<u64> {
    Some(match name {
        "float" | "float32" | "int32" | "uint32" | "qint32" => 4,
        "double" | "float64" | "int64" | "uint64" | "complex64" => 8,
        "half" | "float16" | "bfloat16" | "int16" | "uint16" => 2,
        "int8" | "uint8" | "bool" | "qint8" | "quint8" => 1,
        "complex128" => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_needs_its_elements() {
        let text = "OOM when allocating tensor with shape[10,20,3] and type half on /job:localhost/device:GPU:2 by allocator GPU_2_bfc";
        let message = read(text).expect("a message");
        assert_eq!(message.figures.bytes("tried_bytes"), Some(1200));
        assert_eq!(message.figures.count("gpu"), Some(2));
        for bad in ["shape[]", "shape[9999999999,9999999999] and type float", "shape[2] and type x"]
        {
            let message = read(bad).expect("a message");
            assert_eq!(message.figures.bytes("tried_bytes"), None, "{bad}");
        }
    }

    #[test]
    fn only_sums_of_a_dump_are_kept() {
        let mut dump = Dump::default();
        let lines = [
            "name: X totalMemory: 4.00GiB freeMemory: 1.00GiB",
            "bfc_allocator.cc:1] Allocator (GPU_1_bfc) ran out of memory trying to allocate 1.5KiB.  Current",
            "bfc_allocator.cc:1] Chunk at 0x100 of size 512",
            "bfc_allocator.cc:1] Free at 0x300 of size 1024",
            "bfc_allocator.cc:1] Free at 0x900 of size 256",
            "bfc_allocator.cc:1] Free at 0xzz of size",
            "Limit: 2048",
        ];
        for (number, line) in lines.iter().enumerate() {
            assert_eq!(dump.take(line, number as u64 + 1), None);
        }
        let message = dump.finish().expect("a dump");
        let bytes = |name| message.figures.bytes(name);
        assert_eq!(
            [bytes("tried_bytes"), bytes("chunks_free_bytes"), bytes("largest_free_bytes")],
            [Some(1536), Some(1280), Some(1024)]
        );
        assert_eq!(
            [bytes("limit_bytes"), bytes("free_at_start_bytes")],
            [Some(2048), Some(1 << 30)]
        );
        assert_eq!((message.line, message.figures.count("gpu")), (2, Some(1)));
        assert_eq!(dump.finish(), None);
    }
}
