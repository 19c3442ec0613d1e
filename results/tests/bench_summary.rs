//! `vramlab bench-summary`: a folder as criterion writes it becomes tables, data and pictures, and one that is damaged is told by its file.

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{Folder, call, rows};

/// Writes a measurement of a benchmark.
fn measured(folder: &Path, path: &str, about: &Value, median: [f64; 3]) {
    let folder = folder.join(path);
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("benchmark.json"), about.to_string()).expect("written");
    let [point, low, high] = median;
    let interval = json!({ "confidence_level": 0.95, "lower_bound": low, "upper_bound": high });
    let median =
        json!({ "confidence_interval": interval, "point_estimate": point, "standard_error": 1.0 });
    let estimates = json!({ "mean": median, "median": median, "slope": null });
    std::fs::write(folder.join("estimates.json"), estimates.to_string()).expect("written");
}

fn about(group: &str, function: Option<&str>, value: Option<&str>, throughput: &Value) -> Value {
    json!({
        "group_id": group, "function_id": function, "value_str": value, "throughput": throughput,
        "full_id": "x", "directory_name": "x", "title": "x"
    })
}

/// Two groups: one of two benchmarks with elements, of which one was saved as `main`; one alone.
fn criterion(folder: &Folder) -> String {
    let root = folder.path("criterion");
    let at = Path::new(&root);
    let elements = json!({ "Elements": 1000 });
    let fast = about("churn", Some("fast"), None, &elements);
    let slow = about("churn", None, Some("slow_&_steady"), &elements);
    measured(at, "churn/fast/new", &fast, [2000.0, 1900.0, 2100.0]);
    measured(at, "churn/fast/main", &fast, [4000.0, 3900.0, 4100.0]);
    measured(at, "churn/slow/new", &slow, [8000.0, 7000.0, 9000.0]);
    measured(at, "step/new", &about("step", None, None, &Value::Null), [5e6, 4e6, 6e6]);
    std::fs::create_dir_all(at.join("churn/report")).expect("made");
    std::fs::write(at.join("churn/report/index.html"), "<html>").expect("written");
    root
}

#[test]
fn medians_intervals_and_throughput_are_those_of_the_files() {
    let folder = Folder::new();
    let root = criterion(&folder);
    let (all, _) = rows(0, &["bench-summary", &root, "--against", "main"]);
    let names: Vec<&str> = all.iter().filter_map(|one| one["benchmark"].as_str()).collect();
    assert_eq!(names, ["fast", "slow_&_steady", "step"]);
    assert_eq!(all[0]["median_ns"], 2000.0);
    assert_eq!((&all[0]["low_ns"], &all[0]["high_ns"]), (&json!(1900.0), &json!(2100.0)));
    assert_eq!(all[0]["throughput"], 5e8);
    assert_eq!(all[0]["throughput_unit"], "elements");
    assert_eq!(all[0]["times"], 0.5, "the saved measurement");
    assert_eq!(all[1]["times"], Value::Null, "nothing was saved");
    assert_eq!(all[2]["throughput"], Value::Null);
    let (all, _) = rows(0, &["bench-summary", &root, "--against", "fast"]);
    let times: Vec<&Value> = all.iter().map(|one| &one["times"]).collect();
    assert_eq!(times, [&json!(1.0), &json!(4.0), &Value::Null], "the benchmark of that name");
}

#[test]
fn all_forms_are_written() {
    let folder = Folder::new();
    let (root, out) = (criterion(&folder), folder.path("out"));
    let (code, text, err) = call(&["bench-summary", &root, "--out", &out, "--against", "fast"]);
    assert_eq!(code, 0, "{err}");
    for part in ["median µs", "times fast", "M elements/s", "500", "slow_&_steady"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let read = |name: &str| std::fs::read_to_string(Path::new(&out).join(name)).expect(name);
    assert!(read("bench.tex").contains("slow\\_\\&\\_steady"));
    assert!(read("bench.csv").starts_with("group,benchmark,median_ns"));
    assert!(read("bench.md").contains("](bench.figure-1.svg)"));
    let svg = read("bench.figure-1.svg");
    let bars = svg.matches("<rect").filter(|_| true).count();
    assert!(bars >= 3 && svg.contains("median of churn: from 2 µs (fast) to 8 µs"), "{svg}");
    assert!(read("bench.figure-2.svg").contains("median of step: 5 ms (step)"));
    let parquet = std::fs::read(Path::new(&out).join("bench.parquet")).expect("written");
    assert!(parquet.starts_with(b"PAR1"));
}

#[test]
fn a_damaged_folder_is_told_by_its_file() {
    let folder = Folder::new();
    let bad = |root: &str, more: &[&str], code: i32, message: &str| {
        let (found, out, err) = call(&[&["bench-summary", root], more].concat());
        assert_eq!(found, code, "{err}");
        assert!(err.contains(message) && out.is_empty(), "{err}");
    };
    std::fs::create_dir_all(folder.path("empty")).expect("made");
    bad(
        &folder.path("empty"),
        &[],
        3,
        "no benchmark in it, expected the folder that criterion writes",
    );
    bad(&folder.path("gone"), &[], 3, "gone: ");
    let root = criterion(&folder);
    bad(&root, &["--against", "man"], 2, "no measurement was saved under that name");
    bad(&root, &["--against", "../churn"], 2, "no measurement was saved under that name");
    let file = format!("{root}/churn/fast/new/estimates.json");
    let whole = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("written");
    bad(&root, &[], 3, "churn/fast/new/estimates.json: EOF");
    std::fs::write(&file, "{\"version\":9}").expect("written");
    bad(&root, &[], 3, "missing field `median`");
    std::fs::write(&file, whole.replace("2000.0", "-1.0")).expect("written");
    bad(&root, &[], 3, "found a median of -1 ns");
    std::fs::remove_file(&file).expect("removed");
    bad(&root, &[], 3, "churn/fast/new/estimates.json: No such file");
    std::fs::write(&file, whole).expect("written");
    let about = format!("{root}/churn/fast/new/benchmark.json");
    let text = std::fs::read_to_string(&about).expect("read");
    std::fs::write(&about, text.replace("Elements", "Furlongs")).expect("written");
    bad(&root, &[], 3, "found the throughput {\"Furlongs\":1000}, expected Elements");
}
