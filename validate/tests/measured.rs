//! What is measured on the fake driver is what its table says; what is fitted is that table; one page holds it all.
#![cfg(unix)]

mod support;

use std::time::Instant;

use support::Fake;

const SMALL: [&str; 2] = ["--limit", "4GiB"];

/// Value and stated error of a price, in ns, in the lines of `fit --format json`.
fn price(lines: &str, what: &str) -> Option<serde_json::Value> {
    let values = lines.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    values.into_iter().find(|value: &serde_json::Value| value["what"] == what)
}

#[test]
fn fit_recovers_the_known_table_within_its_stated_error() {
    let fake = Fake::new().set("DEVICE", "generic").set("JITTER", "0.1");
    let (csv, toml) = (fake.path("m.csv"), fake.path("d.toml"));
    let ended = fake.run(&[&["measure", "--repeats", "40", "-o", &csv], &SMALL[..]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("beside 2 ms of work"), "{}", ended.out);
    ended.clean();
    let ended = fake.run(&["fit", &csv, "-o", &toml, "--format", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let mut compared = 0;
    // what sim/devices/generic.toml says, in ns
    for (what, base, slope) in [
        ("cudaMalloc", 50_000.0, 332.0),
        ("cudaFree", 50_000.0, 332.0),
        ("malloc_packed", 1000.0, 0.0),
        ("cudaMallocHost", 2_200_000.0, 230_000.0),
        ("cudaMallocAsync", 1000.0, 0.0),
        ("pool_grow", 67_000.0, 0.0),
        ("pool_shrink", 49_000.0, 0.0),
        ("cuMemCreate", 29_000.0, 0.0),
        ("cuMemMap", 2000.0, 0.0),
        ("cuMemSetAccess", 36_000.0, 0.0),
        ("cuMemUnmap", 26_000.0, 0.0),
        ("cuMemRelease", 23_000.0, 0.0),
        ("fault_batch", 50_000.0, 77_000.0),
        ("launch", 5000.0, 0.0),
    ] {
        let found = price(&ended.out, what).unwrap_or_else(|| panic!("no {what}: {}", ended.out));
        let number = |key: &str| found[key].as_f64().expect("a number");
        for (key, error, wanted) in
            [("base_ns", "base_error_ns", base), ("slope_ns", "slope_error_ns", slope)]
        {
            let (value, error) = (number(key), number(error));
            assert!((value - wanted).abs() <= error + 1.0, "{what} {key}: {value} ± {error}");
            assert!(error < wanted * 0.2 + 1.0, "{what} {key}: {value} ± {error}");
        }
        compared += 1;
    }
    println!("fit: {compared} prices within their stated error");
    let text = std::fs::read_to_string(&toml).expect("written");
    assert!(text.contains("trust = \"M\"") && text.contains("pack_small = true"), "{text}");

    // times of a trace that the fit has not seen
    let args =
        ["compare", "churn", "--set", "allocs=200", "--device", &toml, "--strategy", "cuda.malloc"];
    let ended = fake.run(&[&args[..], &["--format", "json"]].concat());
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let pair: serde_json::Value = serde_json::from_str(ended.out.trim()).expect("JSON");
    let times = pair["times"].as_array().expect("times");
    let malloc = times.iter().find(|one| one["what"] == "cudaMalloc").expect("it was timed");
    let p50 = |side: &str| malloc[side]["p50"].as_f64().expect("ns");
    assert!((p50("simulated") / p50("real") - 1.0).abs() < 0.05, "{malloc}");
}

#[test]
fn what_was_measured_before_a_refusal_is_kept() {
    let fake = Fake::new().set("DEVICE", "generic").set("FAIL", "cuMemMap#3=invalid_value");
    let csv = fake.path("m.csv");
    let args = ["measure", "--repeats", "5", "--limit", "256MiB", "-o", &csv];
    let ended = fake.run(&args);
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("virtual memory: cuMemMap: invalid value"), "{}", ended.err);
    ended.clean();
    let text = std::fs::read_to_string(&csv).expect("written");
    assert!(text.contains("cudaMalloc,idle") && text.contains("cudaMallocManaged,idle"), "{text}");
}

#[test]
fn one_page_holds_what_the_commands_wrote() {
    let fake = Fake::new().set("DEVICE", "generic");
    let folder = std::path::PathBuf::from(fake.path("record"));
    std::fs::create_dir(&folder).expect("a folder");
    let file = |name: &str| folder.join(name).display().to_string();
    let probe = fake.run(&["probe", "--layout", "--format", "json"]);
    assert_eq!(probe.code, 0, "{}", probe.err);
    std::fs::write(folder.join("probe.json"), &probe.out).expect("written");
    let csv = file("measure.csv");
    let args = ["measure", "--repeats", "5", "-o", &csv];
    assert_eq!(fake.run(&[&args[..], &SMALL[..]].concat()).code, 0);
    assert_eq!(fake.run(&["fit", &csv, "-o", &file("device.toml")]).code, 0);
    for (command, out) in [("compare", "compare.jsonl"), ("replay", "replay.jsonl")] {
        let out = file(out);
        let args = [command, "churn", "--set", "allocs=50", "--out", &out];
        assert_eq!(fake.run(&args).code, 0);
    }
    let page = file("report.md");
    let ended = fake.run(&["report", &folder.display().to_string(), "-o", &page]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let text = std::fs::read_to_string(&page).expect("written");
    for part in [
        "## Device",
        "## Measurements",
        "## Fitted prices",
        "## Simulated and real",
        "### Times",
        "## Replayed",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let ended = fake.run(&["report", &fake.path("nowhere")]);
    assert_eq!(ended.code, 3, "{}", ended.err);
}

#[test]
fn a_layout_is_seen() {
    let fake = Fake::new().set("DEVICE", "generic");
    let ended = fake.run(&["probe", "--layout"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.out.contains("share memory: 64 of 64 KiB took it 2 times"), "{}", ended.out);
    assert!(ended.out.contains("upwards; a place that was freed is taken again"), "{}", ended.out);
    ended.clean();
}

/// With calls that last as long as they cost, the host's own clock measures them; loaded machines only make them longer.
#[test]
fn real_clocks_measure_calls_that_really_last() {
    let fake = Fake::new().set("DEVICE", "generic").set("CLOCK", "spin");
    let csv = fake.path("m.csv");
    let began = Instant::now();
    let few = fake.run(&["measure", "--limit", "40MiB"]);
    assert_eq!(few.code, 2, "{}", few.err);
    let args = ["measure", "--repeats", "5", "--limit", "128MiB", "-o", &csv];
    let ended = fake.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.err);
    ended.clean();
    let text = std::fs::read_to_string(&csv).expect("written");
    let row = text.lines().find(|line| line.starts_with("cudaMalloc,idle,2097152")).expect("a row");
    let least: u64 = row.split(',').nth(6).and_then(|cell| cell.parse().ok()).expect("ns");
    assert!(least >= 50_332, "{row}");
    assert!(began.elapsed().as_secs() < 240);
}
