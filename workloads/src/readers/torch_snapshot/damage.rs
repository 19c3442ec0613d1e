//! Damaged snapshots: errors or other contents, never a panic, and the same with and without the quick way for entries
//! that look alike.

use serde_json::{Value as Json, json};

use super::pickler::pickled;
use super::tests::{small, told};
use super::*;
use crate::readers::pickle::{Refusal, Sink, Value};

/// A collector that is watched, and may be kept from asking for shapes: then every entry goes through the stack machine.
struct Watched {
    inner: Collector,
    quick: bool,
    /// Entries that came by shape.
    again: usize,
}

impl Sink for Watched {
    fn expect(&mut self, _: u64, _: u64) {}

    fn take_dict(&mut self, heap: &Heap, items: &[Value]) -> Option<u64> {
        self.inner.take_dict(heap, items)
    }

    fn learn(&mut self, heap: &Heap, keys: &[Value]) -> Option<u32> {
        if self.quick { self.inner.learn(heap, keys) } else { None }
    }

    fn take_again(&mut self, heap: &Heap, number: u32, values: &[Value]) -> Option<u64> {
        let handle = self.inner.take_again(heap, number, values);
        self.again += usize::from(handle.is_some());
        handle
    }

    fn take_list(&mut self, heap: &Heap, items: &[Value]) -> Option<u64> {
        self.inner.take_list(heap, items)
    }

    fn more_items(&mut self, heap: &mut Heap, handle: u64, items: &[Value]) -> Refusal {
        self.inner.more_items(heap, handle, items)
    }

    fn more_list(&mut self, heap: &mut Heap, handle: u64, items: &[Value]) -> Refusal {
        self.inner.more_list(heap, handle, items)
    }
}

fn read_watched(bytes: &[u8], quick: bool) -> Result<(Snapshot, usize), SnapshotError> {
    let (mut heap, inner) = begin();
    let mut sink = Watched { inner, quick, again: 0 };
    let total = Some(bytes.len() as u64);
    let root = pickle::read(bytes, total, Limits::default(), &mut heap, &mut sink)?;
    Ok((convert::snapshot(heap, sink.inner, root)?, sink.again))
}

fn read_slowly(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    read_watched(bytes, false).map(|(snapshot, _)| snapshot)
}

/// Numbers from a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// A copy with one to four bytes changed, put in or taken out.
    fn damaged(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] = self.below(256) as u8,
                1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes.insert(at, seed[self.below(seed.len())]),
                3 => drop(bytes.remove(at)),
                _ => bytes[at] = seed[self.below(seed.len())],
            }
        }
        bytes
    }
}

/// Entries that look alike, of two kinds, with stacks shared and not.
fn alike() -> Json {
    let entries: Vec<Json> = (0..40_u64)
        .map(|i| {
            let frame = |line| json!({"name": "f", "filename": "g.py", "line": line});
            let mut entry = json!({
                "action": if i % 2 == 0 { "alloc" } else { "free_requested" },
                "addr": 4096 + 512 * (i / 2), "size": 1_u64 << i, "stream": i % 3, "time_us": 100 + i,
                "user_metadata": if i < 20 { "" } else { "step" }, "pool_id": [0, i / 20],
            });
            if i % 4 != 3 {
                entry["frames"] = json!([frame(1 + i / 16), frame(9)]);
            }
            entry
        })
        .collect();
    json!({"segments": [], "device_traces": [entries[..30], [], entries[20..]]})
}

#[test]
fn entries_that_look_alike_are_read_as_any_other() {
    let bytes = pickled(&alike(), false);
    let (quick, again) = read_watched(&bytes, true).expect("readable");
    assert!(again > 25, "only {again} of 50 entries came by shape");
    assert_eq!(told(&quick), told(&read_slowly(&bytes).expect("readable")));
    assert_eq!((quick.traces[2].len(), quick.stacks.len()), (20, 3));
}

#[test]
fn mutated_snapshots_never_panic_and_read_the_same_both_ways() {
    let seeds = [
        pickled(&small(), false),
        pickled(&small(), true),
        pickled(&alike(), false),
        pickled(&alike(), false),
    ];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut read_whole = 0;
    for round in 0..20_000 {
        let bytes = random.damaged(&seeds[round % seeds.len()]);
        match (from_slice(&bytes), read_slowly(&bytes)) {
            (Ok(quick), Ok(slow)) => {
                read_whole += 1;
                assert_eq!(told(&quick), told(&slow), "in round {round}");
            }
            (Err(quick), Err(slow)) => {
                assert_eq!(quick.to_string(), slow.to_string(), "in round {round}");
            }
            (quick, slow) => panic!("in round {round}: {:?}, but {:?}", quick.err(), slow.err()),
        }
    }
    assert!(read_whole > 100, "only {read_whole} of 20000 were readable");
}

#[test]
fn mutated_json_never_panics() {
    let seed = small().to_string().into_bytes();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut read_whole = 0;
    for _ in 0..20_000 {
        if let Ok(snapshot) = from_slice(&random.damaged(&seed)) {
            read_whole += 1;
            told(&snapshot);
        }
    }
    assert!(read_whole > 100, "only {read_whole} of 20000 were readable");
}
