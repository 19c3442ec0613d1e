//! The hardware script, dry: over the stand-in driver, without PyTorch.
#![cfg(target_os = "linux")]

mod support;

use std::path::Path;
use std::time::Duration;

use support::Fake;

/// A command that runs the script.
fn script(fake: &Fake) -> std::process::Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = fake.command("bash");
    command.arg(here.join("hardware/run.sh")).arg(fake.path("out"));
    let bin = Path::new(env!("CARGO_BIN_EXE_vramlab-validate")).parent().expect("a folder");
    command.env("VRAMLAB_BIN", bin).env("VRAMLAB_LIMIT", "20GiB").env("VRAMLAB_REPEATS", "5");
    // none with CUDA, whatever is installed
    command
        .env("PYTHONPATH", here.join("tests/python/no_cuda"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn read(fake: &Fake, name: &str) -> String {
    std::fs::read_to_string(fake.path(&format!("out/{name}"))).unwrap_or_default()
}

#[test]
fn all_steps_run_over_the_stand_in() {
    let fake = Fake::new().set("DEVICE", "h100-80gb").set("JITTER", "0.05");
    let ended = fake.ended(&script(&fake).output().expect("bash starts"));
    let steps = read(&fake, "steps.tsv");
    assert_eq!(ended.code, 0, "{steps}{}", ended.err);
    for step in [
        "probe.json",
        "measure.txt",
        "fit.txt",
        "replay.txt",
        "compare.txt",
        "compare_work.txt",
        "report.md",
    ] {
        assert!(steps.contains(&format!("\n{step}\t0\t")), "{step}: {steps}");
    }
    assert!(steps.contains("left out: no PyTorch with a CUDA device"), "{steps}");
    let pairs = |name: &str| read(&fake, name).lines().count();
    assert_eq!((pairs("replay.jsonl"), pairs("compare.jsonl")), (4 * 8, 4 * 8));
    assert!(read(&fake, "compare.txt").contains(" 32 equal"), "{}", read(&fake, "compare.txt"));
    assert!(Path::new(&fake.path("out.tar.gz")).is_file());
    assert!(Path::new(&fake.path("out/device.toml")).is_file());
}

#[test]
fn without_a_driver_it_says_so_and_ends() {
    let fake = Fake::new().set("", "no_device");
    let ended = fake.ended(&script(&fake).output().expect("bash starts"));
    assert_eq!(ended.code, 6, "{}", ended.err);
    assert!(!read(&fake, "steps.tsv").contains("measure.txt"), "nothing else was tried");
    let mut command = script(&fake);
    let ended = fake.ended(&command.env("VRAMLAB_BIN", "/nowhere").output().expect("bash starts"));
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("found no /nowhere/vramlab-validate"), "{}", ended.err);
}

#[test]
fn it_is_safe_to_stop() {
    let fake = Fake::new().set("DEVICE", "h100-80gb").set("CLOCK", "spin");
    let mut command = script(&fake);
    command.env("VRAMLAB_REPEATS", "100000");
    let child = command.stderr(std::process::Stdio::piped()).spawn().expect("bash starts");
    // in the middle of the measurements, which would take minutes
    let measures = fake.path("out/measure.txt");
    while !Path::new(&measures).exists() {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    let stop = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(stop.expect("kill starts").success());
    let ended = fake.ended(&child.wait_with_output().expect("it ends"));
    let steps = read(&fake, "steps.tsv");
    assert_eq!(ended.code, 4, "{steps}{}", ended.err);
    assert!(steps.contains("compare.txt\t-\t0\tnot begun: stopped"), "{steps}");
    assert!(Path::new(&fake.path("out.tar.gz")).is_file(), "what there is, is packed");
    ended.clean();
}
