//! A server of a language model over its cache: requests per second of simulation, the cache's work included.
//!
//! ```text
//! cargo bench -p vramlab-allocators --bench serving            a drawn load, and the whole public conversation trace of Azure, if it is there
//! cargo bench -p vramlab-allocators --bench serving -- --test  the drawn load once
//! ```
//!
//! One thread; engine, `serving.paged` with prefix caching, simulated device, full accounting after every op. The trace is looked for in
//! `$VRAMLAB_SHARED/traces/llm_serving`, or `../shared` beside the repository; its time is the wall time of one run, reading included.
#![forbid(unsafe_code)]

#[path = "../tests/shared_folder/mod.rs"]
mod shared_folder;

use std::path::PathBuf;
use std::time::Instant;

use criterion::{Criterion, Throughput};
use vramlab_allocators::build;
use vramlab_allocators::registry::build_cache;
use vramlab_sim::device::profile;
use vramlab_sim::report::Report;
use vramlab_sim::{Setup, SimMachine, run};
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::find;

/// Requests of the drawn load.
const DRAWN: u64 = 1_000;
const TRACE: &str = "azure_llm_2023_conv.csv.gz";

fn serve(params: &str) -> Report {
    let rates = Rates::of(&profile::device("a100-80gb").expect("a device"));
    let mut source =
        find("llm").expect("a workload").source(params, 0, &rates).expect("parameters of it");
    let spec = "serving.paged".parse().expect("a spec");
    let mut machine = SimMachine::new(profile::device("a100-80gb").expect("a device").options);
    let mut strategies = [build(&spec).expect("builds")];
    let mut caches = [build_cache(&spec).expect("builds")];
    let setup = Setup { caches: &mut caches, ..Setup::new(&mut machine, &mut strategies) };
    run(&mut *source, setup).expect("it ends well")
}

fn trace() -> Option<PathBuf> {
    Some(shared_folder::shared("traces/llm_serving")?.join(TRACE)).filter(|path| path.is_file())
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("serving");
    group.sample_size(10).throughput(Throughput::Elements(DRAWN));
    let params = format!("requests={DRAWN}");
    group.bench_function("llm, drawn", |bencher| bencher.iter(|| serve(&params)));
    group.finish();
    criterion.final_summary();
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let Some(path) = trace() else {
        println!("{TRACE}: skipped, no shared folder");
        return;
    };
    let begin = Instant::now();
    let report = serve(&format!("trace={}", path.display()));
    let (wall, served) = (begin.elapsed().as_secs_f64(), report.served.unwrap_or_default());
    println!(
        "{TRACE}: {} requests, {} ops, {} steps in {wall:.2} s: {:.0} requests/s",
        served.requests,
        report.ops,
        served.steps,
        served.requests as f64 / wall
    );
}
