//! PyTorch snapshots as pickles, written byte by byte: what `torch.cuda.memory._snapshot()` gives, without a PyTorch.
#![allow(dead_code, reason = "shared by several programs, each of which uses a part")]

use std::collections::HashMap;

/// A pickle that is being written (protocol 4): texts and stacks are written once, and then referred to by the memo, as CPython does.
pub(crate) struct Pickle {
    out: Vec<u8>,
    known: HashMap<String, u32>,
    stored: u32,
}

impl Pickle {
    pub(crate) fn new() -> Self {
        Self { out: b"\x80\x04".to_vec(), known: HashMap::new(), stored: 0 }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out.push(b'.');
        self.out
    }

    /// Refers to what is stored under a name, or stores what `write` begins (its `]`, or its text).
    fn once(&mut self, name: &str, begin: impl FnOnce(&mut Vec<u8>)) -> bool {
        if let Some(number) = self.known.get(name) {
            self.out.push(b'j');
            self.out.extend_from_slice(&number.to_le_bytes());
            return false;
        }
        begin(&mut self.out);
        self.out.push(0x94);
        self.known.insert(name.to_owned(), self.stored);
        self.stored += 1;
        true
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.once(text, |out| {
            out.push(b'X');
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        });
    }

    pub(crate) fn int(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(byte) => self.out.extend_from_slice(&[b'K', byte]),
            Err(_) => {
                self.out.extend_from_slice(&[0x8a, 9]);
                self.out.extend_from_slice(&value.to_le_bytes());
                self.out.push(0);
            }
        }
    }

    pub(crate) fn none(&mut self) {
        self.out.push(b'N');
    }

    pub(crate) fn list(&mut self, items: impl FnOnce(&mut Self)) {
        self.out.extend_from_slice(b"](");
        items(self);
        self.out.push(b'e');
    }

    pub(crate) fn dict(&mut self, pairs: impl FnOnce(&mut Self)) {
        self.out.extend_from_slice(b"}(");
        pairs(self);
        self.out.push(b'u');
    }

    pub(crate) fn number(&mut self, key: &str, value: u64) {
        self.text(key);
        self.int(value);
    }

    pub(crate) fn word(&mut self, key: &str, value: &str) {
        self.text(key);
        self.text(value);
    }

    /// A stack under `frames`, innermost first: file, line, function.
    pub(crate) fn frames(&mut self, name: &str, frames: &[(String, u64, String)]) {
        self.text("frames");
        if self.once(&format!("stack {name}"), |out| out.push(b']')) {
            self.out.push(b'(');
            for (file, line, function) in frames {
                self.dict(|frame| {
                    frame.word("filename", file);
                    frame.number("line", *line);
                    frame.word("name", function);
                });
            }
            self.out.push(b'e');
        }
    }
}

/// File, line and function.
pub(crate) type Frame = (String, u64, String);

/// One entry of a history.
pub(crate) struct Event<'a> {
    pub(crate) action: &'a str,
    pub(crate) addr: u64,
    pub(crate) size: u64,
    /// None: the entry has no time, as before 2024.
    pub(crate) time_us: Option<u64>,
    /// A stack and its name; none: no `frames` at all.
    pub(crate) stack: Option<(&'a str, &'a [Frame])>,
}

impl Event<'_> {
    pub(crate) fn write(&self, to: &mut Pickle) {
        to.dict(|entry| {
            entry.word("action", self.action);
            entry.number(if self.action == "oom" { "device_free" } else { "addr" }, self.addr);
            entry.number("size", self.size);
            entry.number("stream", 0);
            if let Some(time) = self.time_us {
                entry.number("time_us", time);
            }
            if let Some((name, frames)) = self.stack {
                entry.frames(name, frames);
            }
        });
    }
}

/// A large segment of one device with its blocks in a row: size, whether it is in use, and the stack of who asked.
pub(crate) struct Held<'a> {
    pub(crate) device: u64,
    pub(crate) address: u64,
    pub(crate) blocks: Vec<Block<'a>>,
}

/// Size, in use, and a stack with its name.
pub(crate) type Block<'a> = (u64, bool, Option<(&'a str, &'a [(String, u64, String)])>);

impl Held<'_> {
    pub(crate) fn write(&self, to: &mut Pickle) {
        let total: u64 = self.blocks.iter().map(|(size, ..)| size).sum();
        to.dict(|segment| {
            segment.number("device", self.device);
            segment.number("address", self.address);
            segment.number("total_size", total);
            segment.number("stream", 0);
            segment.word("segment_type", "large");
            segment.text("blocks");
            segment.list(|list| {
                let mut address = self.address;
                for (size, in_use, stack) in &self.blocks {
                    list.dict(|block| {
                        block.number("address", address);
                        block.number("size", *size);
                        block.number("requested_size", if *in_use { *size } else { 0 });
                        block.word("state", if *in_use { "active_allocated" } else { "inactive" });
                        if let Some((name, frames)) = stack {
                            block.frames(name, frames);
                        }
                    });
                    address += size;
                }
            });
        });
    }
}

/// The whole file: histories by device, and segments.
pub(crate) fn snapshot(histories: &[Vec<Event<'_>>], segments: &[Held<'_>]) -> Vec<u8> {
    let mut pickle = Pickle::new();
    pickle.dict(|top| {
        top.text("segments");
        top.list(|list| segments.iter().for_each(|segment| segment.write(list)));
        top.text("device_traces");
        top.list(|list| {
            for history in histories {
                list.list(|entries| history.iter().for_each(|event| event.write(entries)));
            }
        });
    });
    pickle.finish()
}

/// A stack of one frame.
pub(crate) fn frame(file: &str, line: u64, function: &str) -> Vec<(String, u64, String)> {
    vec![(file.to_owned(), line, function.to_owned())]
}
