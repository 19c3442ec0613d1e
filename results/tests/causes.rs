//! Fragmentation by cause: every byte between requested and reserved has one, whatever the strategy, the workload and the moment.

mod shared;

use std::path::Path;

use vramlab::analysis::causes::{Judged, What};
use vramlab::analysis::lives::Lives;
use vramlab::analysis::recorded::judge_end;
use vramlab::analysis::replayed::Replayed;
use vramlab::cli::parse_spec;
use vramlab::failure::Failure;
use vramlab::inputs::{self, Opened};
use vramlab::job::{Input, Place};
use vramlab_allocators::{STRATEGIES, Spec};
use vramlab_sim::Source;
use vramlab_sim::trace::JsonlSource;

/// Strategies whose memory lies outside of what they tell of: in a pool of the driver, on the host, or in blocks of a cache.
const TOLD_ELSEWHERE: [&str; 4] = ["cuda.", "tiered.", "serving.", "torch.pinned_host"];

fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// Requests of all sizes on three streams, freed in no order.
fn program(seed: u64) -> Input<'static> {
    let (mut state, mut live, mut lines) = (seed, Vec::new(), Vec::new());
    for id in 0..400_u64 {
        let bits = random(&mut state, 25);
        let size = 1 + random(&mut state, 1 << bits);
        let stream = random(&mut state, 12).saturating_sub(9);
        lines.push(format!(
            r#"{{"op":"alloc","id":{id},"size":{size},"stream":{stream},"site":"s{}"}}"#,
            id % 7
        ));
        live.push(id);
        while live.len() as u64 > 20 + random(&mut state, 60) {
            let at = random(&mut state, live.len() as u64) as usize;
            let gone = live.swap_remove(at);
            lines.push(format!(r#"{{"op":"free","id":{gone}}}"#));
        }
        if random(&mut state, 150) == 0 {
            lines.push(r#"{"op":"empty_cache"}"#.to_owned());
        }
    }
    let text = lines.join("\n");
    let make = move || -> Result<Box<dyn Source>, Failure> {
        Ok(Box::new(JsonlSource::new(std::io::Cursor::new(text.clone()), "t")))
    };
    Input::new(format!("program {seed}"), Box::new(make))
}

/// A state adds up: causes to what is reserved and not requested, pieces to their segment, each piece to its cause.
fn check(judged: &Judged, tells_all: bool, label: &str) {
    let causes = judged.causes;
    assert_eq!(causes.total(), judged.reserved - judged.requested, "{label}: {causes:?}");
    if tells_all {
        assert_eq!(causes.outside, 0, "{label}: {causes:?}");
    }
    let mut sums = 0;
    for segment in &judged.segments {
        let mut at = segment.address;
        for piece in &segment.pieces {
            assert!(piece.address >= at, "{label}: pieces lie in order");
            at = piece.address + piece.size;
        }
        assert!(at <= segment.address + segment.size, "{label}: pieces lie in their segment");
        let of = |what: fn(&What) -> bool| -> u64 {
            segment.pieces.iter().filter(|p| what(&p.what)).map(|p| p.size).sum()
        };
        assert_eq!(of(|what| matches!(what, What::Pinned)), segment.causes.pinned, "{label}");
        assert_eq!(of(|what| matches!(what, What::Requested(_))), segment.requested, "{label}");
        assert!(segment.pin.is_some() || segment.causes.stuck() == 0, "{label}");
        sums += segment.requested + segment.causes.total();
    }
    assert!(sums <= judged.reserved, "{label}: segments hold no more than is reserved");
    assert!(judged.largest_free_for_wanted <= judged.largest_free);
}

/// Judges many moments of a run; gives how many there were, and whether all strategies' states could be judged.
fn moments(input: &Input<'_>, spec: &Spec, place: &Place, every: u64) -> u64 {
    let lives = Lives::read(input).expect("reads");
    let run = Replayed::run(input, spec, place, true).expect("runs");
    let mut ops: Vec<u64> = (0..lives.ops).filter(|op| op % every == 0).collect();
    ops.extend([run.peak_op, lives.ops - 1]);
    let name = &spec.strategy().name;
    let tells_all = !TOLD_ELSEWHERE.iter().any(|other| name.starts_with(other));
    let mut seen = 0;
    let see = &mut |op: u64, judged: Judged| {
        check(&judged, tells_all, &format!("{} {spec} op {op}", input.name));
        let at = run.levels.partition_point(|level| level.op <= op);
        let level = run.levels[..at].last().copied().unwrap_or_default();
        let found = (judged.reserved, judged.requested);
        assert_eq!(found, (level.reserved, level.requested), "{spec} op {op}");
        seen += 1;
    };
    run.moments(input, spec, place, &lives, &ops, see).expect("runs again");
    seen
}

#[test]
fn the_causes_sum_up_for_every_strategy() {
    let place = Place::for_recording(None, None).expect("a device");
    let (mut judged, mut silent) = (0, Vec::new());
    for strategy in STRATEGIES.iter().filter(|s| !s.accesses && !s.is_cache()) {
        let spec = Spec::new(strategy.name, Default::default());
        let seen: u64 = (0..3).map(|seed| moments(&program(seed), &spec, &place, 37)).sum();
        judged += seen;
        if seen == 0 {
            silent.push(strategy.name);
        }
    }
    println!("causes: {judged} moments judged; cannot tell what is where: {}", silent.join(", "));
    for name in
        ["torch.caching", "classic.best_fit", "tensorflow.bfc", "rmm.pool", "paddle.auto_growth"]
    {
        assert!(!silent.contains(&name), "{name} can tell what is where");
    }
}

#[test]
fn the_causes_sum_up_for_settings_of_the_caching_allocator() {
    let place =
        Place::for_recording(None, Some("96MiB".parse().expect("a size"))).expect("a device");
    for options in [
        "",
        ":expandable_segments=true",
        ":max_split_size_mb=20",
        ":roundup_power2_divisions=4",
        ":large_segment_size_mb=32,expandable_segments=true",
        ":version=2.9",
        ":version=legacy",
        ":backend=cudaMallocAsync",
    ] {
        let spec = parse_spec(&format!("torch.caching{options}")).expect("a spec");
        let seen: u64 = (5..8).map(|seed| moments(&program(seed), &spec, &place, 11)).sum();
        assert!(seen > 100 || options.contains("backend"), "{spec}: {seen}");
    }
}

fn recordings(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let named = |p: &std::path::PathBuf| p.is_file() && p.to_string_lossy().contains(".pickle");
    let mut files: Vec<_> = entries.map(|e| e.expect("an entry").path()).filter(named).collect();
    files.sort();
    files
}

/// Of recordings: moments of a replay, and the recorded state at the end, whose sums the file itself tells.
#[test]
fn recorded_causes() {
    let (mut files, mut states, mut judged) = (0, 0, 0);
    for kind in ["pytorch", "pytorch_recorded"] {
        let Some(folder) = shared::folder(&format!("traces/{kind}")) else { return };
        for file in recordings(&folder) {
            let opened = inputs::open(&file).unwrap_or_else(|e| panic!("{e}"));
            let Opened::Snapshot(snapshot) = &opened else { continue };
            files += 1;
            let spec = opened.recorded_spec(None).unwrap_or_else(|e| panic!("{e}"));
            for (device, input) in snapshot.devices.iter().zip(opened.inputs()) {
                let lives = Lives::read(&input).expect("reads");
                let end = judge_end(device, &spec, &lives, None).expect("settings");
                let sum: u64 = device.end.segments.iter().map(|segment| segment.size).sum();
                if let Some(end) = end {
                    assert_eq!(end.reserved, sum);
                    check(&end, device.recording.trouble().is_none(), &input.name);
                    states += 1;
                }
                if lives.ops == 0 {
                    continue;
                }
                let place = Place::for_recording(None, Some("80GiB".parse().expect("a size")));
                let every = (lives.ops / 5).max(1);
                judged += moments(&input, &spec, &place.expect("a device"), every);
            }
        }
    }
    println!("recorded_causes: {files} files, {states} states, {judged} moments");
    assert!(files > 0 && states > 0 && judged > 0);
}
