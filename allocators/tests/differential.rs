//! `torch.caching` against the slow reference model, op by op: results, statistics, device calls and the whole block table.
#![forbid(unsafe_code)]

mod golden_format;
mod random_trace;
mod reference;
mod torch_subject;

use golden_format::{GoldenSubject, UNDEFINED, step_row};
use random_trace::{RandomCase, random_case};
use reference::{Reference, Version};
use torch_subject::TorchSubject;

/// Traces of each version; a few hundred take seconds.
const SEEDS: std::ops::Range<u64> = 5000..5300;

/// Runs both over a case; the number of ops, or the first difference.
fn differs(version: Version, name: &str, case: &RandomCase) -> Result<usize, String> {
    let mut slow = Reference::new(version, &case.conf, case.capacity)?;
    let mut fast = TorchSubject::new(name, &case.conf, case.capacity)?;
    for (at, op) in case.ops.iter().enumerate() {
        let place = || format!("op {at}, {}", op.line());
        match (slow.apply(op), fast.apply(op)) {
            (Ok(want), Ok(found)) => {
                let (want, found) =
                    (step_row(at, &want, &slow.stats()), step_row(at, &found, &fast.stats()));
                same(&place, "row", &want, &found)?;
            }
            (Err(want), Err(found)) => {
                let undefined = want.starts_with(UNDEFINED);
                same(&place, "undefined", &undefined, &found.starts_with(UNDEFINED))?;
                return Ok(at);
            }
            (want, found) => {
                return Err(format!("{}: expected {want:?}, found {found:?}", place()));
            }
        }
        same(&place, "calls", &slow.calls(), &fast.calls())?;
        let (mut want, mut found) = (slow.table(), fast.table());
        // Each of the two may leave the registration out where the version has none.
        for (want, found) in want.iter_mut().zip(&mut found) {
            if want.registration.is_none() || found.registration.is_none() {
                (want.registration, found.registration) = (None, None);
            }
        }
        same(&place, "table", &want, &found)?;
    }
    same(&|| "end".into(), "counters", &slow.counters(), &fast.counters())?;
    Ok(case.ops.len())
}

fn same<T: PartialEq + std::fmt::Debug>(
    place: &dyn Fn() -> String,
    what: &str,
    want: &T,
    found: &T,
) -> Result<(), String> {
    if want == found {
        return Ok(());
    }
    Err(format!("{}: {what}: expected {want:?}, found {found:?}", place()))
}

fn run(version: Version, name: &str, newer: bool) {
    let mut ops = 0;
    for seed in SEEDS {
        let case = random_case(seed, newer);
        match differs(version, name, &case) {
            Ok(count) => ops += count,
            Err(first) => panic!("version {name}, seed {seed}, conf {}: {first}", case.conf),
        }
    }
    println!("differential {name}: {} traces, {ops} ops, 0 differences", SEEDS.end - SEEDS.start);
}

#[test]
fn differential_2_15() {
    run(Version::V2_15, "2.15.0", true);
}

#[test]
fn differential_2_9() {
    run(Version::V2_9, "2.9.1", false);
}
