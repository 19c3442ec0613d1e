//! The driver beside the simulated device: a planted difference is found, and where none is planted there is none, for every strategy of
//! device memory over golden traces, recordings and workloads.
#![cfg(unix)]

mod support;
mod traces;

use serde_json::Value;
use support::{Ended, Fake, device};
use traces::{Case, committed_cases, examples, shared_cases, shared_recordings};
use vramlab_allocators::STRATEGIES;
use vramlab_sim::machine::Memory;

/// With options that take other calls of the driver.
const VARIANTS: [&str; 3] = [
    "torch.caching:expandable_segments=true",
    "torch.caching:max_split_size_mb=32",
    "paddle.auto_growth+stream_safe",
];

/// Strategies that between them make every driver call of memory.
const EACH_FAMILY: [&str; 6] = [
    "cuda.malloc",
    "cuda.async_pool",
    "cuda.managed",
    "torch.caching",
    "torch.caching:expandable_segments=true",
    "stitch.gmlake",
];

/// Those whose memory is a device's, and variants. The host's is wherever the host puts it.
fn device_strategies() -> Vec<String> {
    let of_device = STRATEGIES.iter().filter(|strategy| strategy.memory != Memory::Host);
    of_device.map(|strategy| strategy.name).chain(VARIANTS).map(str::to_owned).collect()
}

/// What came of a comparison.
#[derive(Default)]
struct Sum {
    pairs: u64,
    equal: u64,
    skipped: u64,
    ops: u64,
    differences: u64,
}

impl Sum {
    /// Adds the pairs of a run, and prints those that are not equal.
    fn add(&mut self, what: &str, ended: &Ended) {
        if ended.code == 0 && ended.out.trim().is_empty() {
            println!("{what}: nothing in it to be run");
            return;
        }
        assert!(ended.code <= 4 && ended.code != 2 && ended.code != 3, "{what}: {}", ended.err);
        ended.clean();
        for line in ended.out.lines() {
            let pair: Value = serde_json::from_str(line).expect("JSON");
            let found = &pair["differences"];
            let count: u64 = ["placements", "driver_calls", "reserved", "failures", "ops"]
                .iter()
                .map(|key| found[*key].as_u64().unwrap_or(0))
                .sum();
            self.pairs += 1;
            self.ops += pair["ops"].as_u64().unwrap_or(0);
            self.differences += count;
            match pair["outcome"].as_str() {
                // both were ended by the same error, of the strategy or of the driver
                Some("equal" | "ended") => self.equal += 1,
                Some("skipped") => self.skipped += 1,
                _ => {
                    self.differences += u64::from(count == 0);
                    println!("{what}: {line}");
                }
            }
        }
    }

    fn none(&self, what: &str) {
        let Self { pairs, equal, skipped, ops, differences } = self;
        println!(
            "{what}: {pairs} pairs, {equal} equal, {skipped} skipped, {ops} ops, {differences} differences"
        );
        assert!(*equal > 0, "{what}: nothing was compared");
        assert_eq!((*differences, equal + skipped), (0, *pairs), "{what}: listed above");
    }
}

/// Arguments of a comparison of these traces through these strategies on the device of a file.
fn compare(fake: &Fake, traces: &[String], specs: &[String], limit: u64) -> Ended {
    let (limit, file) = (limit.to_string(), fake.path("device.toml"));
    let mut args = vec!["compare", "--format", "json", "--limit", &limit, "--device", &file];
    traces.iter().for_each(|trace| args.extend(["--trace", trace]));
    specs.iter().for_each(|spec| args.extend(["--strategy", spec]));
    fake.run(&args)
}

/// A fake driver of a device of this kind, and its file.
fn fake_of(capacity: u64, granule: u64, placement: &str) -> Fake {
    let fake = Fake::new();
    let file = fake.file("device.toml", device(capacity, granule, placement, ""));
    fake.set("DEVICE", file)
}

/// Every device strategy over the cases of a golden set. Cases of the same device go together.
fn golden(what: &str, cases: Vec<Case>) {
    let (mut sum, mut cases) = (Sum::default(), cases);
    cases.sort_by(|a, b| a.kind().cmp(&b.kind()).then_with(|| a.name.cmp(&b.name)));
    let count = cases.len();
    for group in cases.chunk_by(|a, b| a.kind() == b.kind()) {
        let Case { capacity, granule, placement, .. } = &group[0];
        let fake = fake_of(*capacity, *granule, placement);
        let write = |case: &Case| fake.file(&format!("{}.jsonl", case.name), &case.text);
        let traces: Vec<String> = group.iter().map(write).collect();
        sum.add(what, &compare(&fake, &traces, &device_strategies(), *capacity));
    }
    println!("{what}: {count} cases");
    sum.none(what);
}

#[test]
fn golden_traces_have_no_differences() {
    golden("compare, golden (committed)", committed_cases());
}

#[test]
fn shared_golden_traces_have_no_differences() {
    if let Some(cases) = shared_cases() {
        golden("compare, golden", cases);
    }
}

/// Device of recordings.
const CAPACITY: u64 = 80 << 30;
const GRANULE: u64 = 2 << 20;

#[test]
fn example_recordings_have_no_differences() {
    let fake = fake_of(CAPACITY, GRANULE, "first_fit");
    let mut sum = Sum::default();
    let examples = examples();
    sum.add("compare, examples", &compare(&fake, &examples, &device_strategies(), CAPACITY));
    sum.none(&format!("compare, {} examples", examples.len()));
}

#[test]
fn shared_recordings_have_no_differences() {
    let Some(recordings) = shared_recordings() else { return };
    let fake = fake_of(CAPACITY, GRANULE, "first_fit");
    let mut sum = Sum::default();
    // every strategy over every recording takes a quarter of an hour
    let specs = match std::env::var("VRAMLAB_LONG").is_ok_and(|value| value == "1") {
        true => device_strategies(),
        false => EACH_FAMILY.map(str::to_owned).to_vec(),
    };
    for recording in &recordings {
        let one = std::slice::from_ref(recording);
        let ended = compare(&fake, one, &specs, CAPACITY);
        if ended.code == 3 && ended.err.contains("found no recording that can be replayed") {
            println!("{recording}: left out, no ops");
            continue;
        }
        sum.add(recording, &ended);
    }
    sum.none(&format!("compare, {} recordings, {} strategies", recordings.len(), specs.len()));
}

#[test]
fn workloads_have_no_differences_with_work_and_prices() {
    // prices and work make events complete late, so that what waits for them is compared too
    let fake = Fake::new();
    let prices = "[cost.cudaMalloc]\nbase = { value = 50, unit = \"us\", source = \"a test\", date = \"2026-11-30\", trust = \"?\" }\n[cost.launch]\nbase = { value = 5, unit = \"us\", source = \"a test\", date = \"2026-11-30\", trust = \"?\" }";
    let file = fake.file("device.toml", device(8 << 30, GRANULE, "first_fit", prices));
    let fake = fake.set("DEVICE", &file);
    let mut sum = Sum::default();
    for workload in [
        &["churn", "--set", "allocs=2000"][..],
        &["varlen", "--set", "steps=2"],
        &["ocr", "--set", "pages=2"],
        &["llm", "--set", "requests=10"],
    ] {
        let mut args = vec![
            "compare",
            "--format",
            "json",
            "--limit",
            "8GiB",
            "--with-work",
            "--device",
            &file,
        ];
        args.extend(workload);
        let specs = device_strategies();
        specs.iter().for_each(|spec| args.extend(["--strategy", spec]));
        sum.add(workload[0], &fake.run(&args));
    }
    sum.none("compare, workloads");
}

#[test]
fn a_planted_difference_is_found() {
    // the driver refuses a call that the simulated device serves
    let fake = Fake::new().set("DEVICE", "zero").set("FAIL", "cuMemAlloc_v2#5=out_of_memory");
    let args = ["compare", "churn", "--set", "allocs=50", "--device", "zero", "--limit", "8GiB"];
    let with = |more: &[&'static str]| [&args[..], more].concat();
    let ended = fake.run(&with(&["--strategy", "cuda.malloc"]));
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("real refused"), "{}", ended.out);
    assert!(
        ended.out.contains("cudaMalloc of") && ended.out.contains(": out of memory"),
        "{}",
        ended.out
    );
    ended.clean();

    let ended = fake.run(&with(&["--strategy", "cuda.malloc", "--format", "json"]));
    let pair: Value = serde_json::from_str(ended.out.trim()).expect("JSON");
    let found = &pair["differences"];
    assert_eq!((&pair["outcome"], &found["failures"]), (&"different".into(), &1.into()));
    // one malloc less, and those after it have other ordinals
    assert!(found["placements"].as_u64() > Some(10), "{found}");
    assert!(found["reserved"].as_u64() > Some(0), "{found}");

    // a failure that the simulated device does not have ends the run
    let fake = Fake::new().set("DEVICE", "zero").set("FAIL", "cuMemMap#4=unknown");
    let ended = fake.run(&with(&["--strategy", "torch.caching:expandable_segments=true"]));
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("only the real run ended"), "{}", ended.out);
    ended.clean();
}

#[test]
fn times_that_differ_are_shown_with_their_error() {
    let prices = |ns: u64| {
        format!(
            "[cost.cudaMalloc]\nbase = {{ value = {ns}, unit = \"ns\", source = \"a test\", date = \"2026-11-30\", trust = \"?\" }}"
        )
    };
    let fake = Fake::new();
    let real = fake.file("real.toml", device(8 << 30, GRANULE, "first_fit", &prices(50_000)));
    let simulated = fake.file("sim.toml", device(8 << 30, GRANULE, "first_fit", &prices(60_000)));
    let fake = fake.set("DEVICE", real);
    let args = ["compare", "churn", "--set", "allocs=50", "--device", &simulated];
    let ended = fake.run(&[&args[..], &["--strategy", "cuda.malloc"]].concat());
    assert_eq!(ended.code, 0, "times are no rule: {}{}", ended.out, ended.err);
    assert!(ended.out.contains("+20.0 %"), "{}", ended.out);
}
