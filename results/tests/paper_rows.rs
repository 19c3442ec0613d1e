//! Published figures with enough conditions to be equal: the rows of kind "exact" of the project's list of published tables, as the experiments of
//! `results/experiments` have them, with their conditions and sources. And the direction of some of kind "shape".

mod shared;
mod support;

use std::path::Path;

use assert_cmd::Command;
use support::{Folder, rows};
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Step};
use vramlab_sim::units::Nanos;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;
use vramlab_workloads::rng::Rng;

/// The word of each row of a table, in order; of a row about several runs its word stands once for each.
fn words(table: &str, root: Option<&Path>) -> Vec<(usize, String)> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    command.args(["tables", table, "--quick", "-q", "--format", "csv", "--out"]).arg(folder.path());
    if let Some(root) = root {
        command.env("VRAMLAB_SHARED", root);
    }
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{table}: {}", String::from_utf8_lossy(&output.stderr));
    let mut reader = csv::Reader::from_reader(output.stdout.as_slice());
    let titles = reader.headers().expect("titles").clone();
    let column = |name: &str| titles.iter().position(|title| title == name).expect(name);
    let (row, verdict) = (column("row"), column("verdict"));
    let records = reader.records().map(|record| record.expect("a record"));
    records
        .map(|record| (record[row].parse().expect("a number"), record[verdict].to_owned()))
        .collect()
}

/// These rows of a table agree, without a condition.
fn agree(table: &str, rows: &[usize], root: Option<&Path>) -> Vec<(usize, String)> {
    let found = words(table, root);
    for wanted in rows {
        let mut words = found.iter().filter(|(row, _)| row == wanted).peekable();
        assert!(words.peek().is_some(), "{table} has no row {wanted}");
        words.for_each(|(_, word)| assert_eq!(word, "agrees", "{table}, row {wanted}"));
    }
    found
}

/// R1, R2 and R17: blocks of vLLM's cache are what the rest of the card leaves.
#[test]
fn a_cache_is_what_the_rest_leaves() {
    agree("r01_cache_blocks", &[1, 2, 3, 4], None);
    agree("r02_counted_memory", &[3], None);
    agree("r17_cache_of_a_4090", &[1, 2, 3], None);
}

/// R3: each larger request takes a segment of its own, and all is cached at the end.
#[test]
fn logits_take_segments_of_their_own() {
    agree("r03_growing_logits", &[1, 2, 3, 4], None);
}

/// R4 and R5: steps between powers of two. (The 525 MiB of R5's report are not what the rules give for 514.)
#[test]
fn sizes_are_rounded_to_steps() {
    let found = agree("r04_rounding", &[1, 2, 3, 4, 5, 6, 8], None);
    assert!(found.contains(&(7, "differs".to_owned())), "{found:?}");
}

/// R6: segments of 20 MiB, and of multiples of 2 MiB.
#[test]
fn segments_have_their_sizes() {
    agree("r06_segments", &[1, 2, 3], None);
}

/// R7: kept blocks pin the pages that they lie on. R8: page by page, whole pages come free where age alone frees few.
#[test]
fn kept_blocks_pin_pages() {
    agree("r07_pages", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], None);
}

/// A load of kvcached's `bench_idle_footprint`: so many requests, of which `at_once` run, each with a hot beginning or a cold prompt of its own.
struct Idle {
    requests: u64,
    at_once: usize,
    /// How many hot beginnings there are in the end, and their tokens.
    hot: [u64; 2],
    /// Share of requests with one.
    ratio: f64,
    /// Least and most tokens of an answer.
    answer: [u64; 2],
}

impl Idle {
    /// Steps of a server: each that runs gets a token, then others come in as far as 2048 tokens a step go.
    fn ops(&self) -> String {
        use std::fmt::Write;
        let mut rng = Rng::new(1234, "test.idle");
        let (mut text, mut running, mut come) = (String::new(), Vec::<(u64, u64)>::new(), 0);
        while come < self.requests || !running.is_empty() {
            let mut budget = 2048_u64.saturating_sub(running.len() as u64);
            for (seq, left) in &mut running {
                *left -= 1;
                writeln!(text, r#"{{"op":"kv_more","seq":{seq},"tokens":1}}"#).expect("in memory");
            }
            for (seq, _) in running.iter().filter(|(_, left)| *left == 0) {
                writeln!(text, r#"{{"op":"kv_free","seq":{seq}}}"#).expect("in memory");
            }
            running.retain(|(_, left)| *left > 0);
            while budget > 0 && come < self.requests && running.len() < self.at_once {
                let [texts, begin] = self.hot;
                let known = texts.min(1 + texts * come / (self.requests - 1));
                let own = 1000 + come;
                let (keys, tokens) = match rng.chance(self.ratio) {
                    true => {
                        let hot = rng.between(0, known - 1);
                        (format!("[{hot},0,{begin}],[{own},0,64]"), begin + 64)
                    }
                    false => {
                        let tokens = rng.between(192, 1024);
                        (format!("[{own},0,{tokens}]"), tokens)
                    }
                };
                writeln!(text, r#"{{"op":"kv_new","seq":{come},"tokens":{tokens},"keys":[{keys}],"token_bytes":147456}}"#)
                    .expect("in memory");
                running.push((come, rng.between(self.answer[0], self.answer[1])));
                budget = budget.saturating_sub(tokens);
                come += 1;
            }
        }
        text
    }
}

/// ovg-project/kvcached `benchmarks/bench_idle_footprint`, README: pages in use when nothing runs any more, Qwen3-4B (36 layers, 64 blocks a page), 1000 blocks cached:
/// 27 after 4000 requests of which 32 run, 27 after 5000 of which 96 run, both with 4 output tokens; 73 after 2500 with 16 to 256; before page-aware eviction (#390); ours are 26, 25 and 62. The
/// prompts of the first two are not given, and are the script's defaults here. Held to: the first two alike, the third two to three times as many.
#[test]
fn r9_answers_of_different_lengths_scatter_what_stays_cached() {
    let short =
        |requests, at_once| Idle { requests, at_once, hot: [24, 256], ratio: 0.5, answer: [4, 4] };
    let long = Idle { requests: 2500, at_once: 96, hot: [16, 128], ratio: 0.3, answer: [16, 256] };
    let pages = |load: Idle| {
        let folder = Folder::new();
        let file = folder.file("idle.jsonl", load.ops());
        let device = ["--device", "zero", "--capacity", "48GiB"];
        let spec = ["--strategy", "serving.elastic_pages:num_layers=36,page_aware=false"];
        let (rows, _) = rows(0, &[&["replay", &file, "-q"], &device[..], &spec[..]].concat());
        rows[0]["counters"]["pages_in_use"].as_u64().expect("a counter")
    };
    let found = [pages(short(4000, 32)), pages(short(5000, 96)), pages(long)];
    println!("idle pages {found:?}, published [27, 27, 73]");
    let [few, more, long] = found;
    assert!(few.abs_diff(more) <= 3 && few >= 16, "{found:?}");
    assert!((2 * few..=3 * few).contains(&long), "{found:?}");
}

/// S11: arenas and pools of CPython before 3.10 and after.
#[test]
fn arenas_of_cpython() {
    agree("s11_cpython", &[5, 6, 7, 8], None);
}

/// R16 and section D: the most that is live at once, of the instances that are at hand.
#[test]
fn lower_bounds_of_static_plans() {
    let Some(folder) = shared::folder("traces/static_plans") else { return };
    let root = folder.parent().and_then(Path::parent).expect("it has two folders above it");
    let found = words("d_static_plans", Some(root));
    let bounds: Vec<_> = found.iter().filter(|(row, _)| (1..=11).contains(row)).collect();
    let absent = |word: &str| word.starts_with("not run: the recording");
    assert!(bounds.iter().all(|(_, word)| word == "agrees" || absent(word)), "{bounds:?}");
    let there = bounds.iter().filter(|(_, word)| !absent(word)).count();
    println!("{there} of {} instances", bounds.len());
}

/// H11: our models beside recorded set-ups. (Measured servers are in the tests of `measured`.)
#[test]
fn recorded_peaks() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let root = folder.parent().and_then(Path::parent).expect("it has two folders above it");
    let found = words("h10_estimates", Some(root));
    let of = |row: usize| &found.iter().find(|(number, _)| *number == row).expect("a row").1;
    for row in [1, 2, 3] {
        assert!(
            of(row) == "agrees" || of(row).starts_with("not run: the recording"),
            "{}",
            of(row)
        );
    }
    assert!(of(7).starts_with("not run: the other estimators"), "{}", of(7));
}

/// Bytes of a model's weights when they are on the device.
fn weights(params: &str) -> u64 {
    let mut source =
        find("gpt2").expect("a model").source(params, 0, &Rates::free()).expect("built");
    let (mut live, mut phases) = (0, 0);
    loop {
        match source.next(Nanos(0), Answered::Done).expect("goes on") {
            Step::Op(Op::Alloc { size, .. }) => live += size,
            Step::Op(Op::Mark { .. }) => phases += 1,
            Step::End => panic!("no phase after the weights"),
            _ => {}
        }
        if phases == 2 {
            return live;
        }
    }
}

/// 4, 2 and 1 bytes a parameter: half precision saves half of the weights, whole numbers of 8 bits three quarters, less what stays in full (norms, scales).
#[test]
fn s10_weights_by_bytes_of_a_parameter() {
    let phase = "phase=inference,steps=1,batch=1,seq=16";
    let full = weights(&format!("{phase},precision=fp32"));
    let half = weights(&format!("{phase},precision=fp16"));
    assert_eq!(full, 2 * half);
    // GPT-2's 124,439,808 parameters
    assert_eq!(full / 4, 124_439_808);
    // of each of 12 layers: queries, keys and values, output, and both matrices of the inner part, without biases; a scale for each of their rows
    let dense = 12 * 12 * 768 * 768;
    let scales = 12 * (3 + 1 + 4 + 1) * 768 * 4;
    let whole = weights(&format!("{phase},precision=fp32,passes=int8"));
    assert_eq!(full - whole, 3 * dense - scales);
    // 74.9 %: three quarters less the scales. The shared table of words is read by row and stays
    let saved = 100.0 * (full - whole) as f64 / (4 * dense) as f64;
    assert!((74.5..75.0).contains(&saved), "{saved} %");
}
