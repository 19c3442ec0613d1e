//! The recorder in Python, with a stand-in for torch: what it writes can be replayed.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Ended, Fake};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs the recorder; `None` without Python.
fn record(fake: &Fake, torch: &str, args: &[&str]) -> Option<Ended> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("recorder: skipped, no Python here");
        return None;
    }
    let mut command = fake.command("python3");
    command.env("PYTHONPATH", file(torch)).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("VRAMLAB", "echo").arg(file("recorder/vramlab_record.py")).args(args);
    Some(fake.ended(&command.output().expect("it starts")))
}

const TORCH: &str = "tests/python";

/// The recording replays, with so many ops.
fn replays(fake: &Fake, path: &str, ops: u64) {
    let args = ["replay", "--format", "json", "--trace", path];
    let ended = fake.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let row: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!(row["ops"], ops, "{row}");
}

#[test]
fn a_program_is_recorded_and_handed_over() {
    let fake = Fake::new().set("DEVICE", "zero");
    let script = fake.file(
        "train.py",
        "import sys, torch\nprint(sys.argv, __name__)\nfor size in (1000, 600, 40000): torch.ask(size)\nsys.exit(3)\n",
    );
    for name in ["run.pickle", "run.pickle.gz"] {
        let to = fake.path(name);
        let args = ["-o", &to, "--then", "replay --verify", &script, "--epochs", "1"];
        let Some(ended) = record(&fake, TORCH, &args) else { return };
        assert_eq!(ended.code, 3, "the program's own code: {}", ended.err);
        assert!(ended.out.contains("train.py', '--epochs', '1'] __main__"), "{}", ended.out);
        assert!(ended.out.contains(&format!("replay {to} --verify")), "{}", ended.out);
        replays(&fake, &to, 3);
    }
}

#[test]
fn out_of_memory_and_failures_are_recorded_too() {
    let fake = Fake::new().set("DEVICE", "zero");
    let script = fake.file("train.py", "import torch\ntorch.ask(512)\ntorch.ask(1 << 30)\n");
    let to = fake.path("run.pickle.gz");
    let Some(ended) = record(&fake, TORCH, &["-o", &to, &script]) else { return };
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("1073741824 bytes asked on device 0"), "{}", ended.err);
    assert!(ended.err.contains("OutOfMemoryError"), "its own traceback: {}", ended.err);
    // two requests, of which the refused one is dropped at once
    replays(&fake, &fake.path("run.oom.pickle.gz"), 3);
    replays(&fake, &to, 3);
}

#[test]
fn a_part_of_a_program_is_recorded() {
    let fake = Fake::new().set("DEVICE", "zero");
    let to = fake.path("part.pickle");
    let script = fake.file(
        "part.py",
        "import sys, torch\nfrom vramlab_record import record, phase\nwith record(sys.argv[1], stacks='python', max_entries=1000):\n    with phase('one'):\n        torch.ask(512)\ntorch.ask(512)\nassert torch._state['enabled'] == ('all', 'all', 'python', 1000)\n",
    );
    let mut command = fake.command("python3");
    let paths = format!("{}:{}", file(TORCH).display(), file("recorder").display());
    command.env("PYTHONPATH", paths).env("PYTHONDONTWRITEBYTECODE", "1").args([&script, &to]);
    let Ok(output) = command.output() else { return };
    let ended = fake.ended(&output);
    assert_eq!(ended.code, 0, "{}", ended.err);
    replays(&fake, &to, 1);
}

#[test]
fn what_cannot_be_is_told() {
    let fake = Fake::new();
    let script = fake.file("train.py", "import torch\ntorch.ask(512)\n");
    let cases: [(&str, &[&str], i32, &str); 6] = [
        ("tests/python/no_cuda", &[&script], 6, "finds no CUDA device"),
        ("src", &[&script], 6, "torch cannot be imported"),
        (TORCH, &["nowhere.py"], 2, "found no file nowhere.py"),
        (TORCH, &["--max-entries", "0", &script], 2, "expected 1 or more"),
        (
            TORCH,
            &["-o", "/proc/nowhere/x.pickle", &script],
            7,
            "cannot write /proc/nowhere/x.pickle",
        ),
        (TORCH, &[], 2, "required: program"),
    ];
    for (torch, args, code, part) in cases {
        let Some(ended) = record(&fake, torch, args) else { return };
        assert_eq!(ended.code, code, "{args:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{args:?}: {}", ended.err);
        assert!(!ended.err.contains("Traceback"), "{args:?}: {}", ended.err);
    }
}
