//! Cells per second of a sweep over a recording, on one core and on two, beside a plain loop of replays in this process. Cores are given by `taskset`: a sweep
//! on one thread would still write its files on another.
//!
//! ```sh
//! cargo bench -p vramlab --bench sweep -- FILE [CELLS] [ROUNDS]
//! ```
//!
//! Wall time on a shared machine is worth little: the three take turns, each round gives a ratio of its own, and the median of the ratios is what counts. The
//! load is printed beside them. A sweep is measured as its user sees it: the program's start, decoding and the last file are in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use vramlab::cli::parse_spec;
use vramlab::inputs::open;
use vramlab::job::{Place, run_pair};
use vramlab_allocators::Spec;

/// Values of two options; capacities make up the rest of the cells.
const SPLITS: [u64; 5] = [32, 64, 128, 256, 512];
const EXPANDABLE: [bool; 2] = [false, true];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let once = std::env::args().any(|arg| arg == "--test");
    let example = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../workloads/examples/resnet50_b32_fp32.pickle.gz");
    let number =
        |n: usize, default: u64| args.get(n).map_or(default, |t| t.parse().expect("a number"));
    let file =
        args.first().map_or(example, PathBuf::from).canonicalize().expect("the file is there");
    let cells = number(1, if once { 20 } else { 10_000 });
    let rounds = number(2, if once { 1 } else { 5 });
    let ops = loop_of_replays(&file, 1).0;
    println!("{}: {ops} ops, {cells} cells, {rounds} rounds", file.display());
    println!("load       loop, cells/s    1 core  of loop    2 cores  of 1");
    let (mut of_loop, mut of_one) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let plain = loop_of_replays(&file, (cells / 20).max(1)).1;
        let [one, two] = ["0", "0,1"].map(|cores| sweep(&file, cells, cores));
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("?");
        println!(
            "{load:<10} {plain:>13.0}  {one:>8.0}  {:>7.2}  {two:>9.0}  {:>4.2}",
            one / plain,
            two / one
        );
        of_loop.push(one / plain);
        of_one.push(two / one);
    }
    println!(
        "medians: {:.2} of the loop, {:.2} from 1 to 2 cores",
        median(of_loop),
        median(of_one)
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn specs() -> Vec<Spec> {
    let both = SPLITS.iter().flat_map(|split| EXPANDABLE.map(|expandable| (split, expandable)));
    let spec = |(split, expandable)| {
        parse_spec(&format!(
            "torch.caching:max_split_size_mb={split},expandable_segments={expandable}"
        ))
        .expect("a spec")
    };
    both.map(spec).collect()
}

/// Ops of a run, and runs per second.
fn loop_of_replays(file: &Path, runs: u64) -> (u64, f64) {
    let opened = open(file).expect("a recording");
    let input = opened.inputs().into_iter().next().expect("a history");
    let place = Place::for_recording(None, None).expect("a device");
    let specs = specs();
    let began = Instant::now();
    let mut ops = 0;
    for spec in specs.iter().cycle().take(runs as usize) {
        ops = run_pair(&input, spec, &place, None).expect("runs").ops;
    }
    (ops, runs as f64 / began.elapsed().as_secs_f64())
}

/// Cells per second of the program on these cores.
fn sweep(file: &Path, cells: u64, cores: &str) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let grid = folder.path().join("grid.toml");
    let capacities = cells.div_ceil(10).max(1);
    let text = format!(
        "capacities = {{ from = \"24GiB\", to = {}, step = \"2MiB\" }}\n[[strategy]]\nspec = \"torch.caching\"\n\
         options = {{ max_split_size_mb = {SPLITS:?}, expandable_segments = {EXPANDABLE:?} }}\n[[input]]\ntrace = {:?}\n",
        (24_u64 << 30) + ((capacities - 1) << 21),
        file.display().to_string()
    );
    std::fs::write(&grid, text).expect("written");
    let began = Instant::now();
    let threads = cores.split(',').count().to_string();
    let status = Command::new("taskset")
        .args(["-c", cores, env!("CARGO_BIN_EXE_vramlab"), "sweep"])
        .arg(&grid)
        .arg("--out")
        .arg(folder.path().join("out"))
        .arg("--quiet")
        .env("RAYON_NUM_THREADS", &threads)
        .env("POLARS_MAX_THREADS", &threads)
        .stdout(Stdio::null())
        .status()
        .expect("starts");
    assert!(status.success(), "{status}");
    (capacities * 10) as f64 / began.elapsed().as_secs_f64()
}
