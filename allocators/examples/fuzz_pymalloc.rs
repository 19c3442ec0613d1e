//! Random traces through an installed CPython's own allocator (an oracle program) and through `host.pymalloc`, compared op by op. Not for
//! CI: it needs a libpython of 3.6 to 3.11.
//!
//! ```text
//! cargo run --release -p vramlab-allocators --example fuzz_pymalloc -- ORACLE.py LIBPYTHON.so --count 1000 --seed 1
//! ```
//!
//! Prints `N traces, M ops, D differences` and the seed and the first differing op of each. Exit: 0 equal, 1 different, 2 usage.
#![forbid(unsafe_code)]

#[path = "../tests/pymalloc_subject/mod.rs"]
mod pymalloc_subject;

use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};

use pymalloc_subject::{ArenaPlacement, PyMalloc, Setup};
use serde_json::{Value, json};
use vramlab_sim::testing::Dice;

struct Arguments {
    oracle: String,
    library: String,
    count: u64,
    seed: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut all = std::env::args().skip(1);
    let oracle = all.next().ok_or("expected the path of the oracle program")?;
    let library = all.next().ok_or("expected the path of a libpython")?;
    let mut read = Arguments { oracle, library, count: 100, seed: 1 };
    while let Some(name) = all.next() {
        let value = all.next().ok_or(format!("{name}: expected a value"))?;
        let number =
            value.parse().map_err(|_| format!("{name}: expected a number, found {value}"))?;
        match name.as_str() {
            "--count" => read.count = number,
            "--seed" => read.seed = number,
            _ => return Err(format!("expected --count or --seed, found {name}")),
        }
    }
    Ok(read)
}

/// Numbers below a bound, from a seed.
struct Draw(Dice);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        ((self.0.bits() >> 32) * bound) >> 32
    }
}

/// A random trace, and the source of arenas for it.
struct Trace {
    placement: ArenaPlacement,
    max_arenas: Option<u64>,
    ops: Vec<Value>,
}

/// Sizes of one trace.
#[derive(Clone, Copy)]
enum Sizes {
    Any,
    /// A few classes.
    Few([u64; 3]),
    /// Large blocks, which fill pools soon.
    Large,
    /// Small ones, each power of two as likely.
    Small,
}

impl Sizes {
    fn draw(self, dice: &mut Draw) -> u64 {
        if dice.below(30) == 0 {
            return [0, 513, 600, 4096, 1 << 20][dice.below(5) as usize];
        }
        match self {
            Self::Any => 1 + dice.below(512),
            Self::Few(sizes) => sizes[dice.below(3) as usize],
            Self::Large => 385 + dice.below(128),
            Self::Small => {
                let top = 1 << dice.below(10);
                1 + dice.below(top)
            }
        }
    }
}

/// Waves of growth and decline over four ways of choosing what to free.
fn trace(seed: u64) -> Trace {
    let dice = &mut Draw(Dice::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let placement = [ArenaPlacement::Aligned, ArenaPlacement::Misaligned, ArenaPlacement::Reuse]
        [dice.below(3) as usize];
    let max_arenas = (dice.below(4) == 0).then(|| 1 + dice.below(4));
    let few = [0; 3].map(|_| 1 + dice.below(512));
    let sizes = [Sizes::Any, Sizes::Few(few), Sizes::Large, Sizes::Small][dice.below(4) as usize];
    let most = 1 << (4 + dice.below(10));
    // how low a decline goes, and how fast: allocs in ten ops
    let (low, slow) = (most / [2, 8, 64, usize::MAX][dice.below(4) as usize], 1 + dice.below(3));
    let length = 500 + dice.below(3000) + 5 * most as u64;
    let (mut ops, mut live, mut id, mut grows) = (Vec::new(), Vec::new(), 0_u64, true);
    let (order, realloc) = (dice.below(4), dice.below(3) * 4);
    while (ops.len() as u64) < length {
        grows = if live.is_empty() { true } else { grows && live.len() < most };
        if dice.below(100) < realloc && !live.is_empty() {
            let at = dice.below(live.len() as u64) as usize;
            ops.push(json!(["r", live[at], sizes.draw(dice)]));
        } else if dice.below(10) < if grows { 8 } else { slow } {
            id += 1;
            live.push(id);
            ops.push(json!(["a", id, sizes.draw(dice)]));
        } else if !live.is_empty() {
            let last = live.len() - 1;
            let at = match order {
                0 => last,
                1 => 0,
                2 => last - dice.below(live.len() as u64 / 8 + 1) as usize,
                _ => dice.below(live.len() as u64) as usize,
            };
            ops.push(json!(["f", live.remove(at)]));
        }
        grows |= live.len() < low;
    }
    Trace { placement, max_arenas, ops }
}

/// Asks the oracle.
fn ask(set: &Arguments, trace: &Trace) -> Result<Value, String> {
    let placement = match trace.placement {
        ArenaPlacement::Aligned => "aligned",
        ArenaPlacement::Misaligned => "misaligned",
        ArenaPlacement::Reuse => "reuse",
    };
    let arena = json!({ "placement": placement, "max_arenas": trace.max_arenas });
    let job = json!({ "arena": arena, "ops": trace.ops }).to_string();
    let said = |error: std::io::Error| format!("{}: {error}", set.oracle);
    let mut child = Command::new("python3")
        .args([&set.oracle, &set.library])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(said)?;
    // it reads all of it before it writes anything
    let mut input = child.stdin.take().ok_or("the oracle has no input")?;
    input.write_all(job.as_bytes()).map_err(said)?;
    drop(input);
    let output = child.wait_with_output().map_err(said)?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{}: {error}", set.oracle))
}

/// Compares; the first difference, if there is one.
fn compare(trace: &Trace, answer: &Value) -> Result<Option<String>, String> {
    let summary = |name: &str| answer["summary"].get(name).ok_or(format!("no {name}"));
    let pool = summary("pool_bytes")?.as_u64().ok_or("expected a pool's size")?;
    let setup = Setup {
        version: summary("version")?.as_str().ok_or("expected a version")?.to_owned(),
        arena: pool * 64,
        pool,
        placement: trace.placement,
        max_arenas: trace.max_arenas,
    };
    let expected = answer["expect"].as_array().ok_or("expected rows")?;
    if expected.len() != trace.ops.len() {
        return Err(format!("{} ops, {} rows", trace.ops.len(), expected.len()));
    }
    let mut subject = PyMalloc::new(setup);
    for (at, (op, want)) in trace.ops.iter().zip(expected).enumerate() {
        let found = Value::Array(subject.op(op.as_array().ok_or("expected a list")?));
        if found != *want {
            return Ok(Some(format!("op {at} {op}: expected {want}, found {found}")));
        }
    }
    Ok(None)
}

fn run(set: &Arguments) -> Result<bool, String> {
    let (mut ops, mut differences, mut arenas, mut version) = (0, 0, 0, String::new());
    for seed in set.seed..set.seed + set.count {
        let trace = trace(seed);
        let answer = ask(set, &trace)?;
        ops += trace.ops.len();
        arenas += answer["summary"]["arenas_freed"].as_u64().unwrap_or(0);
        version = answer["summary"]["version"].as_str().unwrap_or_default().to_owned();
        if let Some(difference) = compare(&trace, &answer)? {
            differences += 1;
            println!("seed {seed}: {difference}");
        }
    }
    println!(
        "CPython {version}: {} traces, {ops} ops, {differences} differences ({arenas} arenas were returned)",
        set.count
    );
    Ok(differences == 0)
}

fn main() -> ExitCode {
    match arguments().and_then(|set| run(&set)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("fuzz_pymalloc: {error}");
            ExitCode::from(2)
        }
    }
}
