//! Advice, held to replays: what helps lowers the peak in one, what does nothing is equal byte for byte, what is exhaustion is called so.
#![forbid(unsafe_code)]

mod shared;
mod support;

use std::path::PathBuf;
use std::sync::Arc;

use vramlab::advise::search::search;
use vramlab::advise::setting::{Family, Setting};
use vramlab::advise::tape::Tape;
use vramlab::advise::trial::Trial;
use vramlab::inputs::{self, Opened};
use vramlab::job::{Input, Place, run_pair};
use vramlab_allocators::{Options, Spec};
use vramlab_sim::engine::{Observer, Outcome, Seen};
use vramlab_sim::units::Bytes;

use support::{Folder, call, example, of_kind, rows};

const OOM: &str = "bert_b64_s512_fp32_oom_16gb.pickle.gz";
const STACKS: &str = "bert_b8_s128_fp32_python_stacks.pickle.gz";

/// Every placement of a run, in full.
#[derive(Default)]
struct Placements(Vec<(u64, u64, u64)>);

impl Observer for Placements {
    fn after(&mut self, seen: &Seen<'_>) {
        match seen.outcome {
            Outcome::Placed(p) => self.0.push((seen.index, p.address, p.size)),
            Outcome::Refused(_) => self.0.push((seen.index, u64::MAX, 0)),
            _ => {}
        }
    }
}

fn placements(input: &Input<'_>, spec: &Spec, place: &Place) -> (Placements, u64) {
    let mut seen = Placements::default();
    let row = run_pair(input, spec, place, Some(&mut seen)).expect("runs");
    (seen, row.peak_reserved)
}

/// Searches settings for every history of a file; checks each verdict by a replay of its own. Gives how many helped and did nothing.
fn check(opened: &Opened, budget: usize) -> [usize; 3] {
    let recorded = opened.recorded_spec(None).unwrap_or_else(|e| panic!("{e}"));
    let (family, own) = Family::of(&recorded);
    let mut counts = [0; 3];
    for (input, recorded) in opened.inputs().iter().zip(opened.recorded()) {
        let capacity = recorded.capacity.or(recorded.peak_reserved.map(|peak| peak + (1 << 30)));
        let capacity = Some(Bytes(capacity.unwrap_or(80 << 30).max(1 << 30)));
        let place = Place::for_recording(None, capacity).expect("a device");
        let tape = Arc::new(Tape::of(input).expect("reads").expect("can be taped"));
        // long recordings have fewer settings, so that the test ends
        let budget = budget.min(1_500_000 / tape.steps.len().max(1)).max(8);
        let tried = search(&tape.input(input), &place, &family, &own, budget, true).expect("runs");
        let default = Setting::default();
        let (base, peak) = placements(input, &family.spec(&default), &place);
        let found = tried.iter().find(|t| t.verdict == "default").expect("the defaults are tried");
        for trial in tried.iter().filter(|t| t.ran()) {
            let told = format!("{}: {} {}", input.name, trial.conf, trial.verdict);
            match trial.verdict {
                "helps" => {
                    counts[0] += 1;
                    let (_, now) = placements(input, &family.spec(&trial.setting), &place);
                    let fewer = trial.row.failed() < found.row.failed();
                    assert!(trial.row.failed() == 0 && (now < peak || fewer), "{told}");
                    assert_eq!(now, trial.row.peak_reserved, "{told}");
                }
                "does nothing here" => {
                    counts[1] += 1;
                    let (now, _) = placements(input, &family.spec(&trial.setting), &place);
                    assert!(now.0 == base.0, "{told}: another placement");
                }
                _ => counts[2] += 1,
            }
        }
    }
    counts
}

#[test]
fn verdicts_hold_in_replays_of_the_built_in_recordings() {
    let mut all = [0; 3];
    for opened in inputs::examples().expect("the built-in recordings can be read") {
        let counts = check(&opened, 60);
        all.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
    assert!(all.iter().all(|n| *n > 0), "{all:?}");
}

fn files(kind: &str) -> Option<Vec<PathBuf>> {
    let folder = shared::folder(&format!("traces/{kind}"))?;
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let named = |p: &PathBuf| p.is_file() && p.to_string_lossy().contains(".pickle");
    let mut files: Vec<_> = entries.map(|e| e.expect("an entry").path()).filter(named).collect();
    files.sort();
    Some(files)
}

#[test]
fn recorded_advice() {
    let (mut count, mut all) = (0, [0; 3]);
    for kind in ["pytorch", "pytorch_recorded"] {
        let Some(files) = files(kind) else { return };
        for file in files {
            let opened = inputs::open(&file).unwrap_or_else(|e| panic!("{e}"));
            let counts = check(&opened, 45);
            all.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            count += 1;
        }
    }
    let [helps, nothing, other] = all;
    println!(
        "recorded_advice: {count} recordings, {helps} settings help and do in a replay, {nothing} do nothing and are equal byte for byte, {other} others"
    );
    assert!(count > 0 && helps > 0 && nothing > 0);
}

/// The issue's two recordings; skipped where the shared folder has other ones.
#[test]
fn recorded_exhaustion_and_fragmentation() {
    let Some(folder) = shared::folder("traces") else { return };
    let path = |name: &str| folder.join(name).display().to_string();
    let (exhausted, fragmented) = (
        path("pytorch/expandable_oom_4gpu.pickle.gz"),
        path("pytorch_recorded/bert_varlen_b16_oom_12gb.pickle.gz"),
    );
    for file in [&exhausted, &fragmented] {
        if !std::path::Path::new(file).is_file() {
            println!("recorded_exhaustion_and_fragmentation: skipped, no {file}");
            return;
        }
    }
    let (code, out, err) = call(&["advise", &exhausted]);
    assert_eq!(code, 0, "{err}");
    let line = out.lines().find(|line| line.contains("exhaustion")).expect("it is exhaustion");
    assert!(line.contains("device 1: no setting helps"), "{line}");
    assert!(out.contains("it needs 4838.6 MiB"), "{out}");
    let (tried, _) = rows(0, &["advise", &fragmented]);
    let best: Vec<_> = tried.iter().filter(|row| row["verdict"] == "helps").take(3).collect();
    assert!(best.len() == 3, "{} settings let it pass", best.len());
    for row in best {
        let conf = row["conf"].as_str().expect("a text");
        let spec = format!("torch.caching:version=2.15,conf='{conf}'");
        let (ran, _) = rows(0, &["replay", &fragmented, "--strategy", &spec, "--fail-on-oom"]);
        assert_eq!((&ran[0]["outcome"], &ran[0]["ooms"]), (&"ok".into(), &0.into()), "{conf}");
    }
    println!("recorded_exhaustion_and_fragmentation: as they should be");
}

/// A setting that a version lacks is refused, and nothing that contains it is advised.
#[test]
fn nothing_is_advised_that_the_version_lacks() {
    let (tried, _) = rows(0, &["advise", &example(STACKS), "--torch-version", "2.9"]);
    let lacking = |row: &&serde_json::Value| {
        row["conf"].as_str().is_some_and(|c| c.contains("large_segment_size_mb"))
    };
    assert!(tried.iter().any(|row| lacking(&row)), "it was tried");
    for row in tried.iter().filter(lacking) {
        assert_eq!(row["verdict"], "not in this version");
    }
}

#[test]
fn the_budget_is_kept_and_the_same_settings_are_tried_again() {
    let args = ["advise", &example(STACKS), "--budget", "20"];
    let (first, _) = rows(0, &args);
    let (again, _) = rows(0, &args);
    assert_eq!(first, again);
    assert_eq!(of_kind(first, "setting").len(), 20);
}

#[test]
fn settings_of_another_allocator_are_searched() {
    let args = ["advise", &example(STACKS), "--strategy", "tensorflow.bfc", "--budget", "12"];
    let tried = of_kind(rows(0, &args).0, "setting");
    assert!(
        tried.len() > 2
            && tried.iter().all(|row| row["strategy"]
                .as_str()
                .is_some_and(|s| s.starts_with("tensorflow.bfc")))
    );
    let (code, out, _) =
        call(&["advise", &example(STACKS), "--strategy", "tensorflow.bfc", "--budget", "12"]);
    assert_eq!(code, 0);
    assert!(out.contains("the smallest card on which no request fails"), "{out}");
}

#[test]
fn the_evidence_is_printed_on_request() {
    let (_, plain, _) = call(&["advise", &example(OOM)]);
    let (code, out, err) = call(&["advise", &example(OOM), "--explain"]);
    assert_eq!(code, 0, "{err}");
    for part in ["held at the peak of", "reserved and not asked for", "settings that were tried"] {
        assert!(out.contains(part) && !plain.contains(part), "{part}: {out}");
    }
}

/// Steps of lengths that vary, with marks: what the program could do otherwise is tried, and a warm-up of the longest helps.
/// A program heard of settings alone: all that a person reads was in words only.
#[test]
fn all_that_is_told_is_in_the_records() {
    let args = ["advise", &example(STACKS), "--budget", "40"];
    let (_, words, _) = call(&args);
    let (all, _) = rows(0, &args);
    let of = |kind: &str| of_kind(all.clone(), kind);
    let answer = &of("answer")[0];
    let paste = answer["paste"].as_str().expect("something helps");
    assert!(words.contains(&format!("advice: {paste}\n")), "{words}");
    assert!(words.contains(answer["text"].as_str().expect("words")), "{words}");
    assert_eq!(answer["since"], "2.1");
    for rewrite in of("rewrite") {
        let name = rewrite["rewrite"].as_str().expect("a name");
        assert!(words.contains(name) && rewrite["peak_reserved"].as_u64().is_some(), "{rewrite}");
    }
    assert!(!of("rewrite").is_empty() || answer["not_tried"][0].is_string(), "{answer}");
    for card in of("card") {
        let size = |name: &str| card[name].as_u64().expect("bytes");
        assert_eq!(size("card"), size("least") + size("context") + size("margin"), "{card}");
        assert!(card["reason"].as_str().is_some_and(|text| text.contains("left")), "{card}");
    }
    let evidence = &of("evidence")[0];
    let states = evidence["states"].as_array().expect("states");
    assert_eq!(states.len(), 2, "as it was, and as advised");
    assert!(states[0]["causes"]["rounding"].is_u64() && !evidence["peak"]["by_site"].is_null());
    let (_, help, _) = call(&["advise", "--help"]);
    for field in ["not_tried", "fails_again", "more_bytes", "conf_now", "states"] {
        assert!(help.contains(field), "{field}");
    }
}

#[test]
fn a_recording_with_steps_is_rewritten() {
    let folder = Folder::new();
    let mut lines = Vec::new();
    for (step, mib) in [30_u64, 42, 34, 58, 38, 74, 46, 90].into_iter().enumerate() {
        lines.push(format!(r#"{{"op":"mark","name":"step {step}"}}"#));
        for id in 0..4 {
            lines.push(format!(r#"{{"op":"alloc","id":{id},"size":{}}}"#, mib << 20));
        }
        lines.extend((0..4).map(|id| format!(r#"{{"op":"free","id":{id}}}"#)));
    }
    let trace = folder.file("steps.jsonl", lines.join("\n"));
    let (code, out, err) = call(&["advise", &trace, "--format", "markdown"]);
    assert_eq!(code, 0, "{err}");
    for name in
        ["empty_cache after every iteration", "largest first", "warm-up", "lengths in 2 buckets"]
    {
        assert!(out.contains(name), "{name}: {out}");
    }
    assert!(out.contains("in the program: "), "{out}");
    let empty = folder.file("none.jsonl", "{\"op\":\"mark\",\"name\":\"m\"}\n");
    assert_eq!(call(&["advise", &empty]).0, 0);
}

/// An option that was not to be changed was searched, and was missing in what was to be pasted.
#[test]
fn options_given_with_the_strategy_stay() {
    let advise = |spec: &str| {
        let args = ["advise", &example(STACKS), "--strategy", spec, "--budget", "12"];
        of_kind(rows(0, &args).0, "setting")
    };
    for row in advise("torch.caching:max_split_size_mb=200") {
        let (conf, paste) = (row["conf"].as_str(), row["paste"].as_str().expect("a text"));
        assert!(conf.is_some_and(|conf| !conf.contains("max_split_size_mb")), "{row}");
        assert_eq!(paste.matches("max_split_size_mb:200").count(), 1, "{row}");
    }
    for row in advise("tensorflow.bfc:allow_growth=true") {
        assert_eq!(row["strategy"].as_str().map(|s| s.matches("allow_growth").count()), Some(1));
    }
    let spec = "torch.caching:conf='max_split_size_mb:200'";
    let (code, _, err) = call(&["advise", &example(STACKS), "--strategy", spec]);
    assert!(code == 2 && err.contains("max_split_size_mb=200"), "{err}");
}

/// Where the defaults are the advice, their card was searched and shown twice.
#[test]
fn each_card_is_searched_once() {
    let folder = Folder::new();
    let header =
        "{\"vramlab_trace\":1,\"torch_version\":\"2.15\",\"conf\":\"large_segment_size_mb:512\"}";
    let requests = "{\"op\":\"alloc\",\"id\":1,\"size\":2097152}\n{\"op\":\"free\",\"id\":1}";
    let trace = folder.file("t.jsonl", format!("{header}\n{requests}\n"));
    let (code, out, err) = call(&["advise", &trace, "--budget", "12"]);
    assert!(code == 0 && out.contains("advice: leave out the settings"), "{out}{err}");
    let (_, cards) = out.split_once("the smallest card").expect("cards");
    assert_eq!(cards.lines().filter(|line| line.starts_with(" (defaults) ")).count(), 1, "{cards}");
}

/// The page advised the setting with the least peak, `advise` the simplest of those within a hundredth of it.
#[test]
fn a_report_advises_what_advise_does() {
    let folder = Folder::new();
    let mut advised = 0;
    for name in [OOM, STACKS, "resnet50_b32_fp32.pickle.gz"] {
        let (_, out, _) = call(&["advise", &example(name), "--budget", "60"]);
        let page = folder.path("page.html");
        let (_, told, _) = call(&["report", &example(name), "--budget", "60", "-o", &page]);
        let advice = out.lines().find_map(|line| line.strip_prefix("advice: "));
        advised += usize::from(advice.is_some());
        let text = advice.unwrap_or("what helps: No setting");
        assert!(
            told.contains(&format!("{text}\n")) || advice.is_none() && told.contains(text),
            "{name}: {out}{told}"
        );
    }
    assert!(advised > 0);
}

/// Speed, printed: settings a second on a recording of some 20,000 entries.
#[test]
fn recorded_advice_speed() {
    let Some(files) = files("pytorch_recorded") else { return };
    let sized = files.iter().filter_map(|file| {
        let Ok(Opened::Snapshot(snapshot)) = inputs::open(file) else { return None };
        let entries = snapshot.snapshot.entry_count();
        (15_000..25_000).contains(&entries).then_some((entries, snapshot))
    });
    let Some((entries, snapshot)) = sized.max_by_key(|(entries, _)| *entries) else {
        println!("recorded_advice_speed: skipped, no recording of some 20,000 entries");
        return;
    };
    let name = snapshot.name.clone();
    let opened = Opened::Snapshot(snapshot);
    let family = Family { base: Spec::new("torch.caching", Options::default()) };
    let input = opened.inputs().remove(0);
    let place = Place::for_recording(None, None).expect("a device");
    let tape = Arc::new(Tape::of(&input).expect("reads").expect("can be taped"));
    let start = std::time::Instant::now();
    let tried: Vec<Trial> =
        search(&tape.input(&input), &place, &family, "", 200, true).expect("runs");
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "recorded_advice_speed: {name}, {entries} entries: {} settings in {seconds:.2} s, {:.0} settings/s",
        tried.len(),
        tried.len() as f64 / seconds
    );
    assert!(tried.len() > 50);
}
