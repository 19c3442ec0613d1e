//! The tidy frame as files: what is written is read back, by us and by others.

use std::path::Path;
use std::process::Command;

use polars::prelude::{ChunkCompareEq, IntoLazy, col, lit};
use vramlab::frame::{Frame, Metric, Run, Value};
use vramlab::row::Row;

/// Runs with everything that could go wrong in a file: quotes, commas, empty and absent values, the largest numbers.
fn runs() -> Vec<Run> {
    let mut row = Row::new("churn", "torch.caching:conf='a:1,b:2'");
    row.options.insert("conf".to_owned(), "a:1,\"b\":2".to_owned());
    row.outcome = "ok";
    row.capacity = 80 << 30;
    let run = |id: &str, seed: Option<u64>, peak: u64, share: f64| {
        let mut row = row.clone();
        (row.seed, row.peak_reserved, row.overhead) = (seed, peak, Some(share));
        let mut run = Run::new("t", id, &row);
        run.settings = "steps=1,lengths=1/2".to_owned();
        run
    };
    let mut left_out = Run::new("t", "c", &row.clone().skipped("no cache,\nnot \"here\""));
    left_out.seed = None;
    vec![
        run("a", Some(0), 2, 1.0 / 3.0),
        run("a", Some(1), 4, 2.0),
        run("a", Some(2), 6, 1e-300),
        run("b", Some(u64::MAX), u64::MAX, 1.5),
        left_out,
    ]
}

fn same(a: &Frame, b: &Frame) -> bool {
    a.data().equals_missing(b.data())
}

#[test]
fn a_frame_comes_back_from_csv_and_parquet_as_it_was() {
    let folder = tempfile::tempdir().expect("folder");
    let frame = Frame::of(&runs()).expect("frame");
    for name in ["frame.csv", "deep/er/frame.parquet"] {
        let path = folder.path().join(name);
        frame.write(&path).expect("written");
        let back = Frame::read(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(same(&frame, &back), "{name}\n{:?}\n{:?}", frame.data(), back.data());
    }
    let stacked = Frame::stack([frame.clone(), frame.clone()]).expect("stacked");
    assert_eq!(stacked.len(), 2 * frame.len());
}

#[test]
fn a_damaged_file_is_refused_by_its_name() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("frame.parquet");
    Frame::of(&runs()).expect("frame").write(&path).expect("written");
    let whole = std::fs::read(&path).expect("read");
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).expect("written");
        let message = Frame::read(&path).expect_err("truncated").message;
        assert!(message.contains("frame.parquet"), "{message}");
    }
    let csv = folder.path().join("frame.csv");
    std::fs::write(&csv, "a,b\n1,2\n").expect("written");
    let message = Frame::read(&csv).expect_err("other columns").message;
    assert!(message.contains("frame.csv") && message.contains("no column experiment"), "{message}");
    let other = Frame::read(Path::new("frame.txt")).expect_err("ending").message;
    assert!(other.contains(".parquet"), "{other}");
}

/// Bytes flipped anywhere, and cuts anywhere: each is told, and nothing panics.
#[test]
fn a_damaged_parquet_file_never_panics() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("frame.parquet");
    Frame::of(&runs()).expect("frame").write(&path).expect("written");
    let whole = std::fs::read(&path).expect("read");
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let told = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).expect("written");
        let read = std::panic::catch_unwind(|| Frame::read(&path));
        let read = read.unwrap_or_else(|_| panic!("{what}: a panic"));
        let message = read.err().unwrap_or_else(|| panic!("{what}: read as if whole")).message;
        let words = ["frame.parquet: ", "make it again"];
        assert!(words.iter().all(|word| message.contains(word)), "{what}: {message}");
    };
    for at in (0..whole.len()).step_by(7).chain(whole.len() - 12..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random(8);
        told(&bytes, &format!("byte {at}"));
    }
    for _ in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..=random(8) {
            let at = random(bytes.len());
            bytes[at] = bytes[at].wrapping_add(1 + random(255) as u8);
        }
        bytes.truncate(1 + random(whole.len()));
        if bytes != whole {
            told(&bytes, "several");
        }
    }
    told(&[], "empty");
    told(&[whole.as_slice(), &[0]].concat(), "one byte more");
}

#[test]
fn groups_over_seeds_have_means_and_student_intervals() {
    let frame = Frame::of(&runs()).expect("frame");
    let groups = frame.intervals().expect("groups").lazy();
    let of = |run: &str| {
        let wanted = col("run").eq(lit(run)).and(col("metric").eq(lit("peak_reserved")));
        groups.clone().filter(wanted).collect().expect("one row")
    };
    let number = |run: &str, column: &str| of(run).column(column).unwrap().f64().unwrap().get(0);
    assert_eq!(number("a", "mean"), Some(4.0));
    // t(2) is 4.303, the deviation 2, of three values
    let half = number("a", "half").expect("an interval");
    assert!((half - 4.303 * 2.0 / 3.0_f64.sqrt()).abs() < 1e-9, "{half}");
    assert_eq!((number("a", "least"), number("a", "most")), (Some(2.0), Some(6.0)));
    assert_eq!(number("b", "half"), None);
    let metric = frame.data().column("metric").unwrap().str().unwrap().equal("ran");
    assert_eq!(metric.sum(), Some(5), "every run is there, with whether it ran");
}

#[test]
fn exact_figures_stay_exact() {
    let largest = Metric::new("peak_reserved", Value::Exact(u64::MAX));
    assert!(runs()[3].metrics.contains(&largest));
    let frame = Frame::of(&runs()).expect("frame");
    let exact = frame.data().column("exact").unwrap().u64().unwrap().clone();
    assert_eq!(exact.iter().flatten().max(), Some(u64::MAX));
}

/// The Python that has duckdb: `$VRAMLAB_PYTHON`, or `python3`.
fn python() -> Option<Command> {
    let name = std::env::var("VRAMLAB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = Command::new(&name).args(["-c", "import duckdb"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(Command::new(name));
    }
    let required = std::env::var("VRAMLAB_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
    assert!(!required, "{name} has no duckdb, and VRAMLAB_REQUIRE_TOOLS=1: pip install duckdb");
    println!("others_read_the_frame: skipped, {name} has no duckdb (pip install duckdb)");
    None
}

#[test]
fn others_read_the_frame() {
    let Some(mut python) = python() else { return };
    let folder = tempfile::tempdir().expect("folder");
    let frame = Frame::of(&runs()).expect("frame");
    frame.write(&folder.path().join("frame.parquet")).expect("written");
    frame.write(&folder.path().join("frame.csv")).expect("written");
    let script = r#"
import duckdb
for name in ("frame.parquet", "frame.csv"):
    rows = duckdb.sql(f"select run, seed, exact, value from '{name}' where metric = 'peak_reserved' order by run, seed").fetchall()
    assert [(r[0], r[1], r[2]) for r in rows] == [("a", 0, 2), ("a", 1, 4), ("a", 2, 6), ("b", 2**64 - 1, 2**64 - 1)], rows
    shares = duckdb.sql(f"select value from '{name}' where metric = 'overhead' order by run, seed").fetchall()
    assert [s[0] for s in shares] == [1 / 3, 2.0, 1e-300, 1.5], shares
    left = duckdb.sql(f"select outcome, reason, seed from '{name}' where run = 'c'").fetchall()
    assert left == [("skipped", 'no cache,\nnot "here"', None)], left
"#;
    let output = python.arg("-c").arg(script).current_dir(folder.path()).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
