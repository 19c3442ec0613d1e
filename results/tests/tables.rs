//! `vramlab tables`: experiment files become tables, whose words follow from rules, and mistakes are told with file and line.

mod support;

use std::path::Path;
use std::process::Command;

use support::call as run;

/// A small experiment: a scaled loop over allocators, and a workload with seeds.
const SMALL: &str = r#"
title = "A small table & its 50 %"
about = "Nothing is assumed."

[[run]]
id = "loop_{strategy}"
workload = "fragment"
set = { rounds = 10, rows = 8192, hold = 3 }
strategy = { torch = "torch.caching", floor = "bound.live_floor" }

[[run]]
id = "random"
workload = "churn"
set = { allocs = 2000 }
seeds = 3
quick = { seeds = 2 }

[[run]]
id = "gone"
trace = "shared:no/such/recording.pickle"

[[row]]
claim = "the floor holds no more than is live"
figure = "loop_floor.overhead"
unit = "ratio"
rule = "equals 1"

[[row]]
claim = "both hold no more than is live"
each = ["loop_*"]
figure = "overhead"
rule = "equals 1"

[[row]]
claim = "the floor is above the cache"
figure = "loop_torch.peak_reserved / 2^20 < loop_floor.peak_reserved / 2^20"
rule = "in order"

[[row]]
claim = "nothing is reserved"
figure = "random.peak_reserved / 2^20"
unit = "MiB"
rule = "equals 0"
refuted = "at least 1"

[[row]]
claim = "of a recording that nobody has"
figure = "gone.peak_reserved"
rule = "at least 0"

[[listing]]
title = "All runs"
runs = ["*"]
columns = [{ name = "reserved MiB", figure = "peak_reserved / 2^20" }]
"#;

fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("small.toml");
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

fn verdicts(csv: &str) -> Vec<(u64, String)> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let titles = reader.headers().expect("titles").clone();
    let column = |name: &str| titles.iter().position(|title| title == name).expect(name);
    let (row, verdict) = (column("row"), column("verdict"));
    reader
        .records()
        .map(|record| {
            let record = record.expect("record");
            (record[row].parse().expect("a number"), record[verdict].to_owned())
        })
        .collect()
}

#[test]
fn words_follow_from_rules() {
    let folder = tempfile::tempdir().expect("folder");
    let (path, out) = (file(folder.path(), SMALL), folder.path().join("out"));
    let out = out.display().to_string();
    let (code, csv, _) = run(&["tables", &path, "--out", &out, "--format", "csv", "-q"]);
    assert_eq!(code, 0);
    let found = verdicts(&csv);
    let of = |row: u64| &found.iter().find(|(number, _)| *number == row).expect("row").1;
    assert_eq!(of(1), "agrees");
    assert_eq!(of(2), "agrees if strategy floor");
    assert_eq!(of(3), "differs");
    assert_eq!(of(4), "refuted");
    assert!(
        of(5).starts_with("not run: the recording no/such/recording.pickle is not in "),
        "{}",
        of(5)
    );
}

#[test]
fn all_forms_are_written_and_a_second_run_changes_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let (path, out) = (file(folder.path(), SMALL), folder.path().join("out"));
    let text = out.display().to_string();
    let files = || {
        let mut all: Vec<(String, Vec<u8>)> = std::fs::read_dir(&out)
            .expect("folder")
            .map(|entry| entry.expect("entry").path())
            .map(|p| {
                (p.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&p).unwrap())
            })
            .collect();
        all.sort();
        all
    };
    let (code, first, said) = run(&["tables", &path, "--out", &text]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("6 runs in"), "{said}");
    assert!(first.contains(&format!("vramlab tables {path} --row 1")), "{first}");
    assert!(first.contains("over 3 seeds"), "{first}");
    let before = files();
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    for name in [
        "small.csv",
        "small.json",
        "small.key",
        "small.listing-1.csv",
        "small.listing-1.parquet",
        "small.md",
        "small.parquet",
        "small.runs.csv",
        "small.runs.parquet",
        "small.tex",
        "small.txt",
    ] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    let (_, again, said) = run(&["tables", &path, "--out", &text]);
    assert!(said.contains("unchanged since it was made"), "{said}");
    assert_eq!(first, again);
    // interrupted: the key is written last
    std::fs::remove_file(out.join("small.key")).expect("removed");
    std::fs::write(out.join("small.md"), "half a").expect("written");
    let (_, _, said) = run(&["tables", &path, "--out", &text]);
    assert!(said.contains("6 runs in"), "{said}");
    assert_eq!(before, files());
    // another text is another table
    std::fs::write(&path, SMALL.replace("rounds = 10", "rounds = 11")).expect("written");
    let (_, _, said) = run(&["tables", &path, "--out", &text]);
    assert!(said.contains("6 runs in"), "{said}");
}

#[test]
fn one_row_is_computed_again_from_what_it_needs() {
    let folder = tempfile::tempdir().expect("folder");
    let path = file(folder.path(), SMALL);
    let (code, csv, _) = run(&["tables", &path, "--row", "4", "--format", "csv", "-q"]);
    assert_eq!((code, verdicts(&csv)), (0, vec![(4, "refuted".to_owned())]));
    let (code, _, said) = run(&["tables", &path, "--row", "9"]);
    assert_eq!(code, 2);
    assert!(said.contains("--row 9") && said.contains("rows 1 to 5"), "{said}");
}

/// Ops that are repeated, one figure of several runs, and a row that says why nothing is run for it.
const OTHER: &str = r#"
title = "Other kinds"

[[run]]
id = "many_{strategy}"
strategy = { torch = "torch.caching", floor = "bound.live_floor" }
ops = [
    '{"op":"alloc","id":0,"size":4194304}',
    { repeat = 3, from = 1, ops = ['{"op":"alloc","id":{n},"size":4194304}'] },
    { repeat = 2, ops = ['{"op":"free","id":{n}}'] },
]

[[row]]
claim = "sixteen MiB are live at the peak, eight at the end"
figure = "many_floor.live_floor / 2^20 - many_floor.requested / 2^20"
rule = "equals 8"

[[row]]
claim = "the mean of 16 and 20 MiB"
each = ["many_*"]
over = "mean"
figure = "peak_reserved / 2^20"
unit = "MiB"
rule = "equals 18"

[[row]]
claim = "the greatest of them"
each = ["many_*"]
over = "greatest"
figure = "peak_reserved / 2^20"
rule = "equals 20"

[[row]]
claim = "one beside the other"
each = ["*_torch"]
figure = "peak_reserved / 2^20 - {*}_floor.peak_reserved / 2^20"
rule = "equals 4"

[[row]]
claim = "nobody knows"
because = "it was never told"
"#;

#[test]
fn other_kinds_of_runs_and_rows() {
    let folder = tempfile::tempdir().expect("folder");
    let path = file(folder.path(), OTHER);
    let out = folder.path().join("out").display().to_string();
    let (code, csv, said) = run(&["tables", &path, "--out", &out, "--format", "csv", "-q"]);
    assert_eq!(code, 0, "{said}");
    let agrees = "agrees".to_owned();
    let not_run = "not run: it was never told".to_owned();
    let expected = [1, 2, 3, 4].map(|row| (row, agrees.clone())).into_iter();
    let expected: Vec<_> = expected.chain([(5, not_run)]).collect();
    assert_eq!(verdicts(&csv), expected);
    let text = std::fs::read_to_string(folder.path().join("out/small.txt")).expect("written");
    assert!(text.contains("2: mean of peak_reserved / 2^20, over many_*"), "{text}");
    for (found, instead, message) in [
        (
            "because = \"it was never told\"",
            "",
            "line 40: expected a figure and a rule, or because",
        ),
        (
            "because = \"it was never told\"",
            "because = \"why\"\nrule = \"equals 1\"",
            "line 40: a row with because has no each, figure or rule",
        ),
        ("over = \"mean\"", "over = \"middle\"", "unknown variant `middle`"),
        ("each = [\"many_*\"]", "", "over goes with each"),
        (
            "{*}_floor.peak",
            "{*}_flor.peak",
            "run many_torch has no figure \"many_flor.peak_reserved\"",
        ),
        ("repeat = 3", "repeat = 30000000000", "the ops are longer than 16777216 B"),
        (
            "title =",
            "[[run]]\nid = \"x\"\nmeasured = \"a.json\"\nfacts = \"b.json\"\n#",
            "expected one of workload",
        ),
    ] {
        let text = OTHER.replacen(found, instead, 1);
        let text = if found == "title =" { format!("title = \"t\"\n{text}") } else { text };
        let path = file(folder.path(), &text);
        let (code, _, said) = run(&["tables", &path, "--out", &out]);
        assert!(said.contains(message), "{said}\nexpected {message}");
        assert_eq!(code, 3, "{said}");
    }
}

/// Every built-in table is made with `--quick`.
#[test]
fn all_built_in_tables_are_made() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().display().to_string();
    let (code, _, said) = run(&["tables", "--quick", "--out", &out]);
    assert_eq!(code, 0, "{said}");
    for (name, _) in vramlab::tables::built_in::ALL {
        assert!(folder.path().join(format!("{name}.key")).is_file(), "{name}: {said}");
    }
}

#[test]
fn mistakes_are_told_with_file_and_line() {
    let folder = tempfile::tempdir().expect("folder");
    for (found, instead, message) in [
        (
            "rounds = 10",
            "rouds = 10",
            "small.toml: line 5: run \"loop_floor\": fragment has no parameter \"rouds\"",
        ),
        (
            "loop_floor.overhead",
            "lop_floor.overhead",
            "small.toml: line 24: lop_floor.overhead: no run is called \"lop_floor\"",
        ),
        (
            "loop_floor.overhead",
            "loop_floor.overhed",
            "small.toml: line 24: run loop_floor has no figure \"overhed\"; did you mean",
        ),
        (
            "loop_floor.overhead",
            "loop_floor.overhead +",
            "small.toml: line 24: the figure \"loop_floor.overhead +\": character 22: expected",
        ),
        (
            "rule = \"equals 1\"",
            "rule = \"about 1\"",
            "small.toml: line 26: found the rule \"about 1\"",
        ),
        ("each = [\"loop_*\"]", "each = [\"lop_*\"]", "no run is called \"lop_*\""),
        (
            "rows = 8192",
            "rows = 0",
            "small.toml: line 5: run \"loop_floor\": parameter rows: found \"0\"",
        ),
        ("seeds = 3", "sedes = 3", "unknown field `sedes`"),
        ("seeds = 3", "seeds = 1000000000", "1000000003 runs, expected 100000 at most"),
    ] {
        let path = file(folder.path(), &SMALL.replacen(found, instead, 1));
        let out = folder.path().join("out").display().to_string();
        let (code, _, said) = run(&["tables", &path, "--out", &out]);
        assert!(
            said.contains(message.trim_start_matches("small.toml: ")),
            "{said}\nexpected {message}"
        );
        assert_eq!(code, 3, "{said}");
    }
    let (code, _, said) = run(&["tables", "s01_bert"]);
    assert_eq!(code, 2);
    assert!(said.contains("s01_bert_peak"), "{said}");
}

#[test]
fn latex_compiles() {
    if Command::new("pdflatex").arg("--version").output().is_err() {
        let required = std::env::var("VRAMLAB_REQUIRE_TOOLS").is_ok_and(|v| v == "1");
        assert!(
            !required,
            "no pdflatex, and VRAMLAB_REQUIRE_TOOLS=1: install texlive-latex-recommended"
        );
        println!(
            "latex_compiles: skipped, no pdflatex (apt-get install texlive-latex-recommended)"
        );
        return;
    }
    let folder = tempfile::tempdir().expect("folder");
    let path = file(folder.path(), SMALL);
    let out = folder.path().display().to_string();
    let (code, _, said) = run(&["tables", &path, "--out", &out, "-q"]);
    assert_eq!(code, 0, "{said}");
    let document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\\input{small}\\end{document}\n";
    std::fs::write(folder.path().join("all.tex"), document).expect("written");
    let made = Command::new("pdflatex")
        .args(["-interaction=nonstopmode", "-halt-on-error", "all.tex"])
        .current_dir(folder.path())
        .output()
        .expect("runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    assert!(folder.path().join("all.pdf").is_file());
}

/// Claims that are exact: what CPython's arenas are, and the loop that PyTorch serves from one segment.
#[test]
fn exact_claims_have_their_words() {
    let folder = tempfile::tempdir().expect("folder");
    let out = folder.path().display().to_string();
    let words = |name: &str| {
        let (code, csv, said) = run(&["tables", name, "--out", &out, "--format", "csv", "-q"]);
        assert_eq!(code, 0, "{said}");
        let mut words = verdicts(&csv);
        words.dedup();
        words
    };
    let arenas = words("s11_cpython");
    let old = "agrees if CPython 3.6, 1 object or CPython 3.9, 1 object";
    assert_eq!(arenas[0], (1, old.to_owned()));
    assert_eq!(arenas[2], (3, "agrees".to_owned()));
    assert_eq!(words("s12_fragmentation_loop")[0], (1, "refuted".to_owned()));
    let bytes = words("s10_precision");
    assert_eq!(bytes[0], (1, "agrees".to_owned()), "two bytes are half of four");
}
