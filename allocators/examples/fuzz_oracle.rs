//! Random traces through the real allocator (an oracle program) and through ours, compared to the last digit. Not for CI: the
//! oracle is built from a large download.
//!
//! ```text
//! cargo run --release -p vramlab-allocators --example fuzz_oracle -- ORACLE --count 1000 --seed 1 --version 2.15 --subject torch
//! ```
//!
//! Prints `N traces, M ops, D differences` and the seed of each difference; `--shrink` also prints the shortest trace that it
//! finds. A trace at which the oracle ends with an error (an internal check of the real allocator, a call that no driver would
//! accept) is counted as left out, one at which ours finds that the real one breaks its own books as cut short. Exit: 0 equal, 1 different, 2 usage.
#![forbid(unsafe_code)]

#[path = "../tests/golden_format/mod.rs"]
mod golden_format;
#[path = "../tests/random_trace/mod.rs"]
mod random_trace;
#[path = "../tests/reference/mod.rs"]
mod reference;
#[path = "../tests/torch_subject/mod.rs"]
mod torch_subject;

use golden_format::{Case, CaseReport, Difference, GoldenSubject, TraceOp, compare};
use random_trace::{RandomCase, random_case};
use reference::{Reference, Version};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

struct Arguments {
    oracle: PathBuf,
    count: u64,
    seed: u64,
    version: String,
    subject: String,
    shrink: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut all = std::env::args().skip(1);
    let oracle = all.next().ok_or("expected the path of the oracle program")?.into();
    let mut read = Arguments {
        oracle,
        count: 100,
        seed: 1,
        version: "2.15".into(),
        subject: "torch".into(),
        shrink: false,
    };
    while let Some(name) = all.next() {
        let mut value = || all.next().ok_or(format!("{name}: expected a value"));
        let number = |text: String| {
            text.parse().map_err(|_| format!("{name}: expected a number, found {text}"))
        };
        match name.as_str() {
            "--count" => read.count = number(value()?)?,
            "--seed" => read.seed = number(value()?)?,
            "--version" => read.version = value()?,
            "--subject" => read.subject = value()?,
            "--shrink" => read.shrink = true,
            _ => return Err(format!("expected an option, found {name}")),
        }
    }
    Ok(read)
}

/// The allocators that can be compared.
fn subject(name: &str, case: &Case) -> Result<Box<dyn GoldenSubject>, String> {
    match name {
        "reference" => {
            Ok(Box::new(Reference::new(Version::parse(&case.torch)?, &case.conf, case.capacity)?))
        }
        "torch" => torch_subject::TorchSubject::for_case(case),
        other => Err(format!("expected the subject reference or torch, found {other}")),
    }
}

/// Runs the oracle. `None`: it ended with an error.
fn run_oracle(set: &Arguments, random: &RandomCase, folder: &Path) -> Result<Option<Case>, String> {
    let text: String = random.ops.iter().map(|op| op.line() + "\n").collect();
    let trace = folder.join("trace.jsonl");
    std::fs::write(&trace, text).map_err(|error| format!("{}: {error}", trace.display()))?;
    let status = Command::new(&set.oracle)
        .arg("run")
        .args([&trace, folder])
        .arg("--full-snapshots")
        .env("FAKECUDA_CAPACITY", random.capacity.to_string())
        .env("PYTORCH_CUDA_ALLOC_CONF", &random.conf)
        .stderr(Stdio::null())
        .status()
        .map_err(|error| format!("{}: {error}", set.oracle.display()))?;
    if !status.success() {
        return Ok(None);
    }
    let (name, about) =
        (format!("seed {}", random.seed), (set.version.as_str(), random.conf.as_str()));
    Case::assemble(folder, name, about, random.capacity, random.ops.clone()).map(Some)
}

/// Runs both. `None`: the oracle ended with an error.
fn trial(
    set: &Arguments,
    random: &RandomCase,
    folder: &Path,
) -> Result<Option<CaseReport>, String> {
    let Some(case) = run_oracle(set, random, folder)? else { return Ok(None) };
    let compared = catch_unwind(AssertUnwindSafe(|| compare(&case, subject(&set.subject, &case))));
    Ok(Some(compared.unwrap_or_else(|_| {
        let (expected, found) = ("an answer".into(), "a panic".into());
        let first = Difference {
            case: case.name,
            file: "trace",
            line: 0,
            column: "op".into(),
            expected,
            found,
        };
        CaseReport { differences: 1, first: Some(first), ..CaseReport::default() }
    })))
}

/// Why ours finds a trace to be not defined, if it does.
fn alone(set: &Arguments, random: &RandomCase) -> Option<String> {
    let about = (set.version.as_str(), random.conf.as_str());
    let none = Path::new("no such folder");
    let case =
        Case::assemble(none, "alone".into(), about, random.capacity, random.ops.clone()).ok()?;
    compare(&case, subject(&set.subject, &case)).undefined
}

/// Leaves out operations, in ever smaller pieces, as long as a difference remains.
fn shrink(
    set: &Arguments,
    random: &RandomCase,
    folder: &Path,
) -> Result<(RandomCase, Difference), String> {
    let differs = |random: &RandomCase| {
        Ok::<_, String>(trial(set, random, folder)?.and_then(|report| report.first))
    };
    let mut best = random.clone();
    let mut first = differs(&best)?.ok_or("expected a difference, found none")?;
    let mut piece = best.ops.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < best.ops.len() {
            let mut shorter = best.clone();
            shorter.ops.drain(at..(at + piece).min(best.ops.len()));
            match differs(&shorter)? {
                Some(found) => (best, first) = (shorter, found),
                None => at += piece,
            }
        }
        piece /= 2;
    }
    Ok((best, first))
}

fn run(set: &Arguments) -> Result<bool, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("temporary folder: {error}"))?;
    let newer = set.version.starts_with("2.15");
    let (mut ops, mut differences, mut left_out, mut cut_short, mut ooms) = (0, 0, 0, 0, 0);
    for seed in set.seed..set.seed + set.count {
        let random = random_case(seed, newer);
        let Some(report) = trial(set, &random, folder.path())? else {
            left_out += 1;
            let why = alone(set, &random).unwrap_or("for a reason that ours does not see".into());
            println!("seed {seed}: left out, the oracle ended with an error: {why}");
            continue;
        };
        ops += report.ops;
        cut_short += usize::from(report.undefined.is_some());
        ooms += usize::from(folder.path().join("last_oom.txt").exists());
        let _ = std::fs::remove_file(folder.path().join("last_oom.txt"));
        let Some(first) = report.first else { continue };
        differences += 1;
        println!("{first}; capacity {}, conf {}", random.capacity, random.conf);
        if set.shrink {
            let (short, first) = shrink(set, &random, folder.path())?;
            println!("  {first}");
            short.ops.iter().map(TraceOp::line).for_each(|line| println!("  {line}"));
        }
    }
    let traces = set.count - left_out;
    println!(
        "{traces} traces, {ops} ops, {differences} differences ({ooms} ran out of memory, {left_out} left out, {cut_short} cut short)"
    );
    Ok(differences == 0)
}

fn main() -> ExitCode {
    match arguments().and_then(|set| run(&set)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("fuzz_oracle: {error}");
            ExitCode::from(2)
        }
    }
}
