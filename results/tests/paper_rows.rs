//! Published figures with enough conditions to be equal, one function a row: the rows of kind "exact" of the project's list of published tables, and the direction of
//! some of kind "shape". Conditions and sources stand at each.
//!
//! Not here: R8 is in the tests of `serving.elastic_pages`, which look inside a page. R2 (vllm-project/vllm#2031: 7449 blocks, 7351 once what others hold is counted) does not
//! say how much was held; ours with the difference set aside would give the difference back whatever it does.

mod shared;

use vramlab::inputs;
use vramlab::papers::{ROOMY, Rounded, cache_blocks_between, program};
use vramlab::row::Row;
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Step};
use vramlab_sim::units::Nanos;
use vramlab_workloads::live::walk;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;
use vramlab_workloads::rng::Rng;
use vramlab_workloads::serving::model::Model;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const GB: u64 = 1_000_000_000;

fn ops(spec: &str, text: &str) -> Row {
    program(spec, ROOMY, text).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// Reserved and allocated bytes after one request.
fn one(spec: &str, size: u64) -> (u64, u64) {
    let row = ops(spec, &format!("{{\"op\":\"alloc\",\"id\":0,\"size\":{size}}}\n"));
    (row.reserved, row.allocated)
}

/// vllm-project/vllm#11251: 15.77 GiB × 0.90 less weights 7.51, other 0.39 and activations 2.53 GiB leave 3.76 GiB; 3852 blocks; 1.54 requests of 40,000 tokens.
/// 3852 blocks in 3.76 GiB are 1 MiB each: 64 KiB a token.
#[test]
fn r1_a_cache_is_what_the_rest_leaves() {
    let gib = |hundredths| Rounded::hundredths(hundredths, GIB);
    let others = [gib(751), gib(39), gib(253)];
    let [least, most] = cache_blocks_between(gib(1577), 0.9, &others, 64 * KIB).expect("runs");
    assert!((least..=most).contains(&3852), "{least} to {most} blocks");
    // no wider than what four rounded sizes leave open: 0.009 + 3 × 0.01 GiB, and a granule for each
    assert!(most - least <= (0.039 * GIB as f64) as u64 / MIB + 8, "{least} to {most} blocks");
}

/// ROCm/legacy-rocm-build#6333: logits of 17,000 and 19,000 tokens of 303,872 bytes take segments of 4.812 and 5.379 GiB; nothing is in use after, all is cached.
#[test]
fn r3_each_larger_request_takes_a_segment_of_its_own() {
    let mut text = String::new();
    for (id, tokens) in [17_000, 19_000, 20_480].into_iter().enumerate() {
        let size = tokens * 303_872_u64;
        text += &format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":{size}}}\n");
        text += &format!(
            "{{\"op\":\"mark\",\"name\":\"{tokens}\"}}\n{{\"op\":\"free\",\"id\":{id}}}\n"
        );
    }
    let row = ops("torch.caching", &text);
    let reserved: Vec<u64> = row.marks.iter().map(|mark| mark.reserved).collect();
    let steps = [reserved[0], reserved[1] - reserved[0]];
    // as the log has them: GiB, cut to three digits
    assert_eq!(steps.map(|step| step * 1000 / GIB), [4812, 5378]);
    assert_eq!((steps[1] as f64 / GIB as f64 * 1000.0).round(), 5379.0);
    assert_eq!((row.allocated, row.reserved), (0, row.peak_reserved));
    assert!(row.peak_allocated < row.peak_reserved / 2);
}

/// pytorch/pytorch#74213: with 4 divisions the steps from 1024 to 2048 are 1280, 1536 and 1792; 1200 becomes 1280; 1001, 1021 and 1023 become 1024.
#[test]
fn r4_four_divisions_between_powers_of_two() {
    let rounded = |size| one("torch.caching:roundup_power2_divisions=4", size * MIB).1 / MIB;
    assert_eq!([1001, 1021, 1023, 1024].map(rounded), [1024; 4]);
    assert_eq!([1025, 1200, 1280].map(rounded), [1280; 3]);
    assert_eq!([1281, 1536, 1537, 1792, 1793].map(rounded), [1536, 1536, 1792, 1792, 2048]);
}

/// pytorch/pytorch#161139: 514 MiB with 2 divisions reserve 768 MiB; 1 division is ignored. (The 525 MiB of the report are not what the rules give for 514.)
#[test]
fn r5_one_division_is_ignored_and_two_are_not() {
    let reserved = |divisions| {
        one(&format!("torch.caching:roundup_power2_divisions={divisions}"), 514 * MIB).0 / MIB
    };
    assert_eq!((reserved(1), reserved(2)), (514, 768));
}

/// pytorch/pytorch#17120: requests of 1 to 10 MiB take segments of 20 MiB; every segment is a multiple of 2 MiB.
#[test]
fn r6_segments_of_twenty_mib_and_multiples_of_two() {
    let reserved = |size| one("torch.caching", size).0;
    for size in [MIB + 1, 2 * MIB, 5 * MIB + 3, 10 * MIB - 512] {
        assert_eq!(reserved(size), 20 * MIB, "{size}");
    }
    assert_eq!((reserved(1), reserved(MIB)), (2 * MIB, 2 * MIB));
    for size in [10 * MIB, 10 * MIB + 1, 11 * MIB + 7, 777 * MIB + 1] {
        assert_eq!(reserved(size), size.next_multiple_of(2 * MIB), "{size}");
    }
}

/// ovg-project/kvcached `benchmarks/bench_frag`: of blocks of 16 KiB, 128 to a page of 2 MiB, 1024 are kept, each `stride` after the one before: 8 pages when they
/// are packed, 128 when each is on a page with seven others only. Beside them stays the page of the null block, where the run begins.
#[test]
fn r7_kept_blocks_pin_the_pages_they_lie_on() {
    let spec = "serving.elastic_pages:block_size=1,num_layers=1,num_kv_buffers=1,token_bytes=16384,num_blocks=16640,\
        max_reserved_pages=0,min_reserved_pages=0,page_prealloc_enabled=false,enable_prefix_caching=false,max_cached_tokens=0";
    let pages = |stride: usize, kept: usize| {
        // the first page has the null block and 127 others
        let all = 127 + 16_384_usize;
        let mut text = String::new();
        for seq in 0..all {
            text += &format!("{{\"op\":\"kv_new\",\"seq\":{seq},\"tokens\":1}}\n");
        }
        for seq in 0..all {
            let place = seq.checked_sub(127).filter(|place| place % stride == 0);
            if place.is_none_or(|place| place / stride >= kept) {
                text += &format!("{{\"op\":\"kv_free\",\"seq\":{seq}}}\n");
            }
        }
        ops(spec, &text).reserved / (2 * MIB)
    };
    let none = pages(1, 0);
    let found = [1, 2, 4, 8, 16].map(|stride| pages(stride, 1024) - none);
    assert_eq!(found, [8, 16, 32, 64, 128]);
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
        let spec = "serving.elastic_pages:num_layers=36,page_aware=false";
        let row = program(spec, 48 * GIB, &load.ops()).unwrap_or_else(|error| panic!("{error}"));
        row.counters["pages_in_use"]
    };
    let found = [pages(short(4000, 32)), pages(short(5000, 96)), pages(long)];
    println!("idle pages {found:?}, published [27, 27, 73]");
    let [few, more, long] = found;
    assert!(few.abs_diff(more) <= 3 && few >= 16, "{found:?}");
    assert!((2 * few..=3 * few).contains(&long), "{found:?}");
}

/// google/minimalloc's hard instances: the most that is live at once, of a capacity of 1,048,576. (All can be placed in that by exact search, which is not here.)
#[test]
fn r16_lower_bounds_of_the_hard_instances() {
    let Some(folder) = shared::folder("traces/static_plans") else { return };
    let bounds = [
        ("A", 1_048_576),
        ("B", 1_048_576),
        ("C", 1_039_360),
        ("D", 986_112),
        ("E", 1_048_576),
        ("F", 1_048_576),
        ("G", 1_048_576),
        ("H", 1_048_576),
        ("I", 1_048_576),
        ("J", 989_184),
        ("K", 1_048_576),
    ];
    let mut found = 0;
    for (name, bound) in bounds {
        let path = folder.join(format!("minimalloc_{name}.1048576.csv"));
        if !path.is_file() {
            continue;
        }
        let opened = inputs::open(&path).unwrap_or_else(|error| panic!("{error}"));
        let mut source = (opened.inputs()[0].make)().unwrap_or_else(|error| panic!("{error}"));
        let live = walk(&mut *source, |_, _, _| true).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(live.device_peak(), bound, "{name}");
        found += 1;
    }
    match found {
        0 => println!("r16: skipped, no instance of google/minimalloc in {}", folder.display()),
        _ => println!("r16: {found} instances"),
    }
}

/// casys-kaist/LLMServingSim, RTX 4090 run: 25,250,627,584 bytes × 0.9 less 16.06 GB of weights and 1.24 GB of the rest are 2588 blocks of 16 tokens, 41,408 tokens, 5.43 GB.
#[test]
fn r17_the_cache_of_the_rtx_4090_run() {
    let model = Model::find("llama-3.1-8b").expect("a model");
    let (weights, token) = (model.weight_bytes(), model.token_bytes());
    assert_eq!((token, 16 * token), (131_072, 2 * MIB));
    assert_eq!((weights as f64 / 1e7).round(), 1606.0);
    assert_eq!((2588.0_f64 * 16.0 * token as f64 / 1e7).round(), 543.0);
    let others = [Rounded::exact(weights), Rounded::hundredths(124, GB)];
    let card = Rounded::exact(25_250_627_584);
    let [least, most] = cache_blocks_between(card, 0.9, &others, token).expect("runs");
    assert!((least..=most).contains(&2588), "{least} to {most} blocks");
    assert!(most - least <= GB / 100 / (2 * MIB) + 2, "{least} to {most} blocks");
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
    let bytes = weights(&format!("{phase},precision=fp32,passes=int8"));
    let saved = 1.0 - bytes as f64 / full as f64;
    println!("s10: weights of 8 bits save {:.2} %", 100.0 * saved);
    assert!(saved > 0.74 && saved < 0.75, "{saved}");
}

/// CPython before 3.10: arenas of 256 KiB, pools of 4 KiB; later 1 MiB and 16 KiB. A pool of objects of 512 bytes has 48 bytes of its own.
#[test]
fn s11_arenas_and_pools_of_cpython() {
    for (version, arena, pool) in [("3.9", 256 * KIB, 4 * KIB), ("3.11", MIB, 16 * KIB)] {
        let fill = (pool - 48) / 512 * (arena / pool);
        let arenas = |objects: u64| {
            let alloc = |id| format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":512}}\n");
            let text: String = (0..objects).map(alloc).collect();
            ops(&format!("host.pymalloc:version={version}"), &text).peak_reserved / arena
        };
        assert_eq!([1, fill, fill + 1].map(arenas), [1, 1, 2], "{version}");
    }
}

/// `randn(8, n)` for n of 128, 512, 256 and 1024: 4,096 to 32,768 bytes, all in one small segment of 2 MiB.
#[test]
fn s12_a_loop_over_small_batches_leaves_no_holes() {
    let mut text = String::new();
    for step in 0..40 {
        let size = 8 * 4 * [128, 512, 256, 1024][step % 4];
        text += &format!(
            "{{\"op\":\"alloc\",\"id\":{step},\"size\":{size}}}\n{{\"op\":\"free\",\"id\":{step}}}\n"
        );
    }
    let row = ops("torch.caching", &text);
    assert_eq!((row.peak_reserved, row.peak_allocated), (2 * MIB, 32_768));
}
