//! The random traces themselves, and the reference model's own books over them.
#![forbid(unsafe_code)]

mod golden_format;
mod random_trace;
mod reference;

use golden_format::{GoldenSubject, State, StepResult, TableSegment, UNDEFINED, read_trace};
use random_trace::{RandomCase, Rng, random_case};
use reference::{Reference, Version};

const SEEDS: std::ops::Range<u64> = 0..150;

#[test]
fn generator_is_pinned() {
    // From the published reference implementation of SplitMix64, seed 0.
    let mut rng = Rng::new(0);
    assert_eq!(rng.next(), 0xe220_a839_7b1d_cdaf);
    assert_eq!(rng.next(), 0x6e78_9e6a_a1b9_65f4);
}

#[test]
fn traces_survive_writing_and_reading() {
    for seed in SEEDS {
        let made = random_case(seed, true);
        let text: String = made.ops.iter().map(|op| op.line() + "\n").collect();
        assert_eq!(read_trace(&text).as_ref(), Ok(&made.ops), "seed {seed}");
    }
}

fn sum(table: &[TableSegment], wanted: impl Fn(State) -> bool) -> i64 {
    let blocks = table.iter().flat_map(|segment| &segment.blocks);
    blocks.filter(|block| wanted(block.state)).map(|block| block.size.cast_signed()).sum()
}

/// Runs a case; true if it ran out of memory.
fn keeps_its_books(version: Version, case: &RandomCase) -> bool {
    let mut reference =
        Reference::new(version, &case.conf, case.capacity).expect("settings that are accepted");
    let mut failed = false;
    for (op, todo) in case.ops.iter().enumerate() {
        match reference.apply(todo) {
            Ok(result) => failed |= result == StepResult::OutOfMemory,
            Err(error) if error.starts_with(UNDEFINED) => return failed,
            Err(error) => panic!("seed {}, op {op}: {error}", case.seed),
        }
        let (stats, table) = (reference.stats(), reference.table());
        let at = format!("{version:?}, seed {}, op {op}", case.seed);
        assert_eq!(
            stats.allocated,
            sum(&table, |state| state == State::Allocated),
            "{at}: allocated"
        );
        assert_eq!(stats.active, sum(&table, |state| state != State::Inactive), "{at}: active");
        assert_eq!(stats.reserved, sum(&table, |_| true), "{at}: reserved");
        assert!(stats.reserved <= stats.device_used, "{at}: reserved");
    }
    failed
}

#[test]
fn reference_keeps_its_books() {
    let mut failures = 0;
    for (version, newer) in [(Version::V2_15, true), (Version::V2_9, false)] {
        failures +=
            SEEDS.filter(|seed| keeps_its_books(version, &random_case(*seed, newer))).count();
    }
    assert!(failures > 100, "expected many traces that run out of memory, found {failures}");
}
