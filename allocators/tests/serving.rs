//! A server of a language model over caches: who is served, who is turned away, and that it always comes to an end.
#![forbid(unsafe_code)]

use vramlab_allocators::build;
use vramlab_allocators::registry::build_cache;
use vramlab_sim::SimMachine;
use vramlab_sim::device::profile;
use vramlab_sim::engine::{RunError, Setup, run};
use vramlab_sim::report::{Report, Served};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;

/// A small model's server: 60 requests on a card whose cache is far too small for them.
const CROWD: &str =
    "requests=60,rate=50,weights=1MiB,activations=1MiB,prompt_median=200,output_median=60,mark=0";

fn try_run(spec: &str, params: &str, seed: u64) -> Result<Report, RunError> {
    let workload = find("llm").expect("a workload");
    let rates = Rates::of(&profile::device("a100-80gb").expect("a device"));
    let mut source = workload.source(params, seed, &rates).expect("parameters of it");
    let spec = spec.parse().expect("a spec");
    let mut machine = SimMachine::new(profile::device("zero").expect("a device").options);
    let mut strategies = [build(&spec).expect("builds")];
    let mut caches = [build_cache(&spec).expect("builds")];
    let setup = Setup {
        caches: &mut caches,
        keep_marks: true,
        ..Setup::new(&mut machine, &mut strategies)
    };
    run(&mut *source, setup)
}

fn served(spec: &str, params: &str) -> (Served, Report) {
    let report = try_run(spec, params, 0).unwrap_or_else(|error| panic!("{spec}: {error}"));
    (report.served.expect("it is a server"), report)
}

/// So many blocks of 16 tokens.
fn paged(blocks: u64) -> String {
    format!("serving.paged:num_gpu_blocks_override={blocks}")
}

#[test]
fn progress_every_request_is_answered_or_refused_whatever_the_settings() {
    for setting in [
        "",
        "async_scheduling=false",
        "enable_chunked_prefill=false,max_model_len=4096",
        "scheduler_reserve_full_isl=false",
        "scheduler_reserve_full_isl=false,async_scheduling=false,max_num_batched_tokens=64",
        "long_prefill_token_threshold=100,max_num_batched_tokens=300",
        "preemption=swap,async_scheduling=false",
        "reservation=static",
        "batching=static",
        "shared_prefix=100,shared_texts=3",
        "arrivals=bursty",
        "arrivals=diurnal,period=10",
        "max_num_seqs=1",
    ] {
        for blocks in [2, 40, 100, 5000] {
            let (served, report) = served(&paged(blocks), &format!("{CROWD},{setting}"));
            let case = format!("{setting}, {blocks} blocks: {served:?}");
            assert_eq!((served.requests, served.finished + served.refused), (60, 60), "{case}");
            assert_eq!(
                (report.ooms, report.invalid_sizes),
                (served.refused_memory, served.refused_limit),
                "who never fits is refused with numbers: {case}"
            );
            assert_eq!(report.kv.map(|kv| kv.sequences.current), Some(0), "{case}");
            // the longest takes 70 to 110 blocks
            assert!((served.refused == 0) == (blocks > 100) || blocks == 100, "{case}");
            assert_eq!(report.total.allocated.current, 0, "{case}");
        }
    }
}

#[test]
fn preemption_recomputes_or_swaps_and_a_static_reservation_does_neither() {
    let crowd = format!("{CROWD},async_scheduling=false");
    let (recompute, _) = served(&paged(150), &crowd);
    assert!(recompute.preemptions > 0 && recompute.swaps == 0, "{recompute:?}");
    assert!(recompute.recomputed_tokens > 0, "{recompute:?}");
    let (swap, report) = served(&paged(150), &format!("{crowd},preemption=swap"));
    assert!(swap.swaps > 0 && swap.swaps == swap.preemptions, "{swap:?}");
    assert_eq!(swap.recomputed_tokens, 0);
    assert!(report.first_oom.is_none(), "{:?}", report.first_oom);
    let (fixed, _) = served(&paged(150), &format!("{crowd},reservation=static"));
    assert_eq!((fixed.preemptions, fixed.finished), (0, 60));
    assert!(fixed.most_running < recompute.most_running, "{fixed:?}");
}

#[test]
fn a_refusal_stands_in_the_figures_with_its_numbers() {
    let (served, report) = served(&paged(3), &format!("{CROWD},requests=1"));
    assert_eq!((served.refused, report.ooms), (1, 1));
    let words = report.first_oom.expect("the words of it");
    assert!(words.contains("blocks needed, 2 free"), "{words}");
}

/// It kept the budget that chunks allow, and refused every longer prompt.
#[test]
fn without_chunks_a_step_takes_the_longest_prompt_and_a_smaller_budget_is_refused() {
    let long = format!(
        "{CROWD},requests=1,prompt_median=3000,prompt_sigma=0,enable_chunked_prefill=false"
    );
    assert_eq!(served("serving.paged", &long).0.finished, 1);
    let workload = find("llm").expect("a workload");
    let rates = Rates::of(&profile::device("a100-80gb").expect("a device"));
    let source = |params: &str| workload.source(&format!("{long},{params}"), 0, &rates);
    let small = source("max_model_len=4096,max_num_batched_tokens=2048").err();
    let why = small.expect("it is refused").to_string();
    assert!(why.contains("2048") && why.contains("4096 (max_model_len) or more"), "{why}");
    assert!(source("max_model_len=2048,max_num_batched_tokens=2048").is_ok());
}

/// It preempted all others, one after the other, each time that it was asked for one token more.
#[test]
fn a_request_that_outgrows_the_cache_is_refused_and_preempts_nobody() {
    let long = format!("{CROWD},prompt_median=90,prompt_sigma=0,output_median=20,output_sigma=0");
    let (served, report) = served("serving.paged:max_model_len=100", &long);
    assert_eq!((served.refused, served.finished, served.preemptions), (60, 0, 0));
    let words = report.first_oom.expect("the words of it");
    assert_eq!(words, "a sequence of 101 tokens; the cache takes at most 100");
}

#[test]
fn a_model_that_does_not_fit_serves_nobody() {
    let (served, report) = served("serving.paged", &format!("{CROWD},weights=90GiB"));
    assert_eq!((served.refused, served.requests, report.ooms), (60, 60, 1));
}

#[test]
fn prefix_caching_finds_what_prompts_share() {
    let shared =
        format!("{CROWD},shared_prefix=160,shared_texts=1,prompt_median=300,prompt_sigma=0.1");
    let hits =
        |spec: &str| served(spec, &shared).1.kv.and_then(|kv| kv.hit_rate()).expect("a rate");
    assert!(hits(&paged(5000)) > 0.4, "{}", hits(&paged(5000)));
    assert_eq!(hits(&format!("{},enable_prefix_caching=false", paged(5000))), 0.0);
}

#[test]
fn every_cache_serves_all_requests() {
    for strategy in vramlab_allocators::STRATEGIES.iter().filter(|s| s.is_cache()) {
        let (served, _) = served(strategy.name, &format!("{CROWD},prompt_sigma=0.3"));
        assert_eq!(served.finished, 60, "{}: {served:?}", strategy.name);
    }
}

#[test]
fn same_seed_same_figures() {
    let run = |seed| try_run(&paged(150), CROWD, seed).expect("runs").served;
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn latency_is_that_of_a_lone_request_by_hand() {
    // 10 tokens in steps of 4 at 1 ms and 1 µs a token looked at: 4, 8 and 10 of them, and then 11 and 12 for two more tokens
    let alone = "requests=1,weights=1MiB,activations=1MiB,prompt_median=10,prompt_sigma=0,output_median=3,output_sigma=0,max_num_batched_tokens=4,step=1000000/0/1000,async_scheduling=false";
    let (served, _) = served("serving.paged", alone);
    assert_eq!((served.steps, served.output_tokens, served.prefill_tokens), (5, 3, 10));
    assert_eq!(served.ttft.mean, 3_000_000 + 22_000);
    assert_eq!(served.tpot.mean, (2_000_000 + 23_000) / 2);
    assert_eq!(served.e2e.mean, 5_000_000 + 45_000);
}
