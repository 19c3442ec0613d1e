//! Reads a PyTorch memory snapshot and says what is in it and how fast that went.
//!
//! ```text
//! cargo run --release -p vramlab-workloads --example read_snapshot -- FILE [REPEATS]
//! ```
//!
//! The time told is the best of the repeats (1 if not given).

use std::path::{Path, PathBuf};
use std::time::Instant;

use vramlab_workloads::readers::torch_snapshot::{self, Snapshot};

fn main() {
    let mut args = std::env::args().skip(1);
    let path = PathBuf::from(args.next().unwrap_or_default());
    let repeats = args.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    let (mut snapshot, mut seconds) = timed(&path);
    for _ in 1..repeats {
        let again = timed(&path);
        (snapshot, seconds) = (again.0, seconds.min(again.1));
    }
    let entries = snapshot.entry_count();
    let bytes: usize = snapshot.traces.iter().map(|trace| trace.bytes()).sum();
    let file = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    println!(
        "{entries} entries, {} segments, {} blocks, {} stacks, {} frames, {} strings, {} tags",
        snapshot.segments.len(),
        snapshot.blocks.len(),
        snapshot.stacks.len(),
        snapshot.stacks.frame_count(),
        snapshot.strings.len(),
        snapshot.tags.len()
    );
    println!(
        "{seconds:.4} s, {:.1} MB/s of the file, {:.2} M entries/s, {:.1} B of columns an entry",
        file as f64 / seconds / 1e6,
        entries as f64 / seconds / 1e6,
        bytes as f64 / entries.max(1) as f64
    );
    for warning in snapshot.warnings.iter().take(10) {
        println!("warning: {warning}");
    }
}

fn timed(path: &Path) -> (Snapshot, f64) {
    let start = Instant::now();
    match torch_snapshot::open(path) {
        Ok(snapshot) => (snapshot, start.elapsed().as_secs_f64()),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(3);
        }
    }
}
