//! Recordings of the real allocator: everything that it placed, we place.

mod shared;

use std::path::PathBuf;

use vramlab::check::check;
use vramlab::inputs::{self, Opened};

/// Files of a folder, not of its subfolders, that look like snapshots.
fn snapshots(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .expect("the folder can be read")
        .map(|e| e.expect("an entry").path());
    let named =
        |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().contains(".pickle"));
    let mut files: Vec<PathBuf> = entries.filter(|p| p.is_file() && named(p)).collect();
    files.sort();
    files
}

fn verify(kind: &str) {
    let Some(folder) = shared::folder(&format!("traces/{kind}")) else { return };
    let files = snapshots(&folder);
    let (mut placed, mut matched, mut mismatches, mut unverifiable) = (0, 0, 0, 0);
    for file in &files {
        let opened = inputs::open(file).unwrap_or_else(|e| panic!("{e}"));
        let spec = opened.recorded_spec(None).unwrap_or_else(|e| panic!("{e}"));
        let Opened::Snapshot(snapshot) = &opened else {
            panic!("{} is no snapshot", file.display())
        };
        for device in &snapshot.devices {
            let found = check(device, &spec, None).unwrap_or_else(|e| panic!("{e}"));
            for what in &found.mismatches {
                println!("recorded_{kind}: {} device {}: {what}", snapshot.name, device.device);
            }
            placed += found.placed;
            matched += found.matched;
            mismatches += found.mismatch_count;
            unverifiable += u64::from(found.not_verifiable.is_some());
        }
    }
    println!(
        "recorded_{kind}: {} files, placed {placed}, matched {matched}, {mismatches} mismatches, {unverifiable} not verifiable",
        files.len()
    );
    assert!(!files.is_empty(), "no snapshot in {}", folder.display());
    assert_eq!(mismatches, 0, "mismatches, listed above");
    assert!(placed > 0, "no request in any of {} files was checked", files.len());
    assert_eq!(placed, matched, "requests placed elsewhere than recorded");
}

#[test]
fn recorded_pytorch() {
    verify("pytorch");
}

#[test]
fn recorded_pytorch_recorded() {
    verify("pytorch_recorded");
}

/// The recordings that are built in prove themselves on a fresh clone.
#[test]
fn built_in_recordings_match() {
    for opened in inputs::examples().expect("the built-in recordings can be read") {
        let spec = opened.recorded_spec(None).expect("their settings are known");
        let Opened::Snapshot(snapshot) = &opened else { panic!("a snapshot") };
        for device in &snapshot.devices {
            let found = check(device, &spec, None).expect("it is checked");
            assert_eq!(found.mismatches, Vec::<String>::new(), "{}", snapshot.name);
            assert!(
                found.placed > 300
                    && found.placed == found.matched
                    && found.not_verifiable.is_none(),
                "{found:?}"
            );
        }
    }
}
