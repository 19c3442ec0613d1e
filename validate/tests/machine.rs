//! Runs on the driver, on a machine without one: faults, limits, Ctrl-C, and that everything is given back.
#![cfg(unix)]

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Fake, device, driver_without};

const STRATEGIES: [&str; 7] = [
    "cuda.malloc",
    "cuda.async_pool",
    "cuda.managed",
    "torch.caching",
    "torch.caching:expandable_segments=true",
    "stitch.gmlake",
    "tiered.lru",
];

/// Arguments with each of these strategies.
fn with_strategies<'a>(args: &[&'a str], strategies: &[&'a str]) -> Vec<&'a str> {
    let each = strategies.iter().flat_map(|spec| ["--strategy", *spec]);
    args.iter().copied().chain(each).collect()
}

#[test]
fn a_replay_gives_everything_back() {
    let fake = Fake::new();
    let args = ["replay", "churn", "--set", "allocs=300", "--with-work", "--format", "json"];
    let ended = fake.run(&with_strategies(&args, &STRATEGIES));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(ended.out.lines().count(), STRATEGIES.len());
    for line in ended.out.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(row["outcome"], "ok", "{line}");
        assert!(row["peak_reserved"].as_u64() > Some(0), "{line}");
    }
    for function in ["cuMemAllocFromPoolAsync", "cuMemAllocManaged", "cuMemMap", "cuLaunchKernel"] {
        assert!(ended.report.contains(&format!("called {function} ")), "{}", ended.report);
    }
    ended.clean();
}

#[test]
fn out_of_memory_on_cue_is_a_result() {
    let fake = Fake::new().set("FAIL", "cuMemAlloc_v2#3=out_of_memory");
    let args = ["replay", "churn", "--set", "allocs=50", "--strategy", "cuda.malloc"];
    let ended = fake.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("oom"), "{}", ended.out);
    ended.clean();
}

#[test]
fn an_error_on_cue_ends_the_run_and_all_is_given_back() {
    for (cue, spec, said) in [
        (
            "cuMemMap#3=invalid_value",
            STRATEGIES[4],
            "cuMemMap: invalid value: the driver answered cuMemMap with CUDA_ERROR_INVALID_VALUE",
        ),
        ("cuMemCreate#2=unknown", STRATEGIES[4], "CUDA_ERROR_UNKNOWN"),
        ("cuMemAlloc_v2#2=illegal_address", STRATEGIES[3], "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuMemAllocFromPoolAsync#5=not_supported", STRATEGIES[1], "not supported"),
    ] {
        let fake = Fake::new().set("FAIL", cue);
        let ended = fake.run(&["replay", "churn", "--set", "allocs=50", "--strategy", spec]);
        assert_eq!(ended.code, 4, "{cue}: {}{}", ended.out, ended.err);
        assert!(ended.out.contains(said), "{cue}: {}", ended.out);
        ended.clean();
    }
}

#[test]
fn a_device_that_refuses_at_once_is_released() {
    let fake = Fake::new().set("FAIL", "cuMemGetInfo_v2#1=unknown");
    let ended = fake.run(&["replay", "churn"]);
    assert_eq!(ended.code, 6, "{}", ended.err);
    assert!(ended.err.contains("refused cuMemGetInfo_v2: CUDA_ERROR_UNKNOWN"), "{}", ended.err);
    ended.clean();
}

#[test]
fn the_limit_bounds_what_is_held() {
    let fake = Fake::new();
    let args = ["replay", "churn", "--limit", "64MiB", "--format", "json"];
    let ended = fake.run(&with_strategies(&args, &STRATEGIES));
    for line in ended.out.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(row["limit"], 64 << 20);
        // a pool tells only afterwards by how much it grew
        let over = if row["strategy"] == "cuda.async_pool" { 64 << 20 } else { 0 };
        assert!(row["peak_reserved"].as_u64() <= Some((64 << 20) + over), "{line}");
    }
    ended.clean();
}

#[test]
fn ctrl_c_stops_between_ops_and_gives_everything_back() {
    let fake = Fake::new();
    let args = ["replay", "churn", "--set", "allocs=1000000", "--strategy", "cuda.malloc"];
    let mut child = fake
        .command(env!("CARGO_BIN_EXE_vramlab-validate"))
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // it is in the run by then, or not: both must end well
    std::thread::sleep(Duration::from_millis(1500));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let began = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = fake.ended(&child.wait_with_output().expect("it ended"));
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("stopped; everything was given back"), "{}", ended.err);
    assert!(ended.out.contains("stopped"), "{}", ended.out);
    ended.clean();
}

#[test]
fn each_command_says_what_is_missing_without_a_driver() {
    for args in [&["replay", "churn"][..], &["compare", "churn"], &["measure"]] {
        let fake = Fake::of(b"not a library\n");
        let ended = fake.run(args);
        // a machine that has a driver uses it
        if ended.code != 0 {
            assert_eq!(ended.code, 6, "{args:?}: {}", ended.err);
            assert!(ended.err.contains("What to do: "), "{}", ended.err);
        }
    }
}

#[test]
fn an_old_driver_is_told_by_version_and_by_function() {
    let ended = Fake::new().set("", "old").run(&["replay", "churn"]);
    assert_eq!(ended.code, 6);
    assert!(ended.err.contains("serves CUDA 10.1; at least 10.2 is needed"), "{}", ended.err);
    let ended = Fake::of(&driver_without("cuStreamWaitEvent")).run(&["replay", "churn"]);
    assert_eq!(ended.code, 6);
    assert!(ended.err.contains("has no function cuStreamWaitEvent"), "{}", ended.err);
}

#[test]
fn a_driver_without_a_family_answers_that_it_is_not_supported() {
    let fake = Fake::of(&driver_without("cuMemPoolTrimTo"));
    let args = ["replay", "churn", "--set", "allocs=50"];
    let ended = fake.run(&with_strategies(&args, &["cuda.async_pool", "torch.caching"]));
    assert_eq!(ended.code, 4, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("is not supported by this device"), "{}", ended.out);
    ended.clean();
}

#[test]
fn a_trace_of_several_devices_runs_on_several() {
    let fake = Fake::new().set("DEVICE", "zero").set("COUNT", "2");
    let trace = fake.file(
        "two.jsonl",
        "{\"op\":\"alloc\",\"id\":1,\"size\":1000,\"device\":1}\n{\"op\":\"alloc\",\"id\":2,\"size\":1000}\n{\"op\":\"touch\",\"id\":1,\"device\":1}\n{\"op\":\"free\",\"id\":1,\"device\":1}\n{\"op\":\"copy\",\"stream\":1,\"bytes\":70000000,\"dir\":\"h2d\"}\n",
    );
    let args = ["compare", "--trace", &trace, "--limit", "1GiB", "--with-work", "--device", "zero"];
    let ended = fake.run(&with_strategies(&args, &STRATEGIES[..2]));
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("2 pairs: 2 equal"), "{}", ended.out);
    ended.clean();
    let one = Fake::new().set("DEVICE", "zero").run(&args);
    assert_eq!(one.code, 4, "{}", one.out);
    assert!(one.out.contains("device 1"), "{}", one.out);
}

#[test]
fn a_bad_setting_of_the_fake_is_told() {
    let fake = Fake::new().set("FAIL", "cuMemMap:3");
    let ended = fake.run(&["replay", "churn"]);
    assert_eq!(ended.code, 6);
    assert!(ended.err.contains("expected FUNCTION#N=ERROR"), "{}", ended.err);
}

#[test]
fn bad_input_names_the_file() {
    let fake = Fake::new();
    let trace = fake.file("bad.jsonl", "{\"op\":\"alloc\",\"id\":1,\"size\":-1}\n");
    let ended = fake.run(&["replay", "--trace", &trace]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(ended.err.contains("bad.jsonl") && ended.err.contains("line 1"), "{}", ended.err);
    let ended = fake.run(&["replay"]);
    assert_eq!(ended.code, 2, "{}", ended.err);
    let file = fake.file("d.toml", device(1 << 30, 512, "bump", "volume = 3"));
    let ended = fake.run(&["compare", "churn", "--device", &file]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(ended.err.contains("volume"), "{}", ended.err);
}
