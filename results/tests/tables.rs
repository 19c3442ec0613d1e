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

/// Strategies down, loops across; one of the pairs does not fit.
const MATRIX: &str = r#"
title = "small"

[[run]]
id = "{workload}_{strategy}"
workload = "fragment"
set = { rounds = { a = 10, b = 20 } }
strategy = ["all", "torch.caching:max_split_size_mb=128"]
causes = true
min_capacity = true

[[matrix]]
title = "both"
down = "strategy"
across = [{ name = "a", runs = ["a_*"] }, { name = "b", runs = ["b_*"] }]
figures = [
    { name = "MiB", figure = "peak_reserved / 2^20" },
    { name = "over static", figure = "peak_reserved / {across}_bound_best_static.peak_reserved" },
    { name = "least", figure = "min_capacity" },
    { name = "held", figure = "(causes.rounding + causes.unsplit_remainder + causes.waiting + causes.wrong_pool + causes.wrong_stream + causes.cached + causes.split_remainder + causes.pinned + causes.outside) - (peak_reserved - requested_at_peak_reserved)" },
]
"#;

#[test]
fn a_matrix_is_a_table_for_each_figure_and_each_group() {
    let folder = tempfile::tempdir().expect("folder");
    let text = MATRIX.replace("{workload}_{strategy}", "{rounds}_{strategy}");
    let (path, out) = (file(folder.path(), &text), folder.path().join("out"));
    let (code, shown, said) = run(&["tables", &path, "--out", &out.display().to_string()]);
    assert_eq!(code, 0, "{said}");
    let listing = |number: u64| {
        let text = std::fs::read_to_string(out.join(format!("small.listing-{number}.csv")));
        let text = text.unwrap_or_else(|e| panic!("listing {number}: {e}"));
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
        let titles: Vec<String> = lines.next().expect("titles");
        (titles, lines.collect::<Vec<Vec<String>>>())
    };
    let (titles, rows) = listing(1);
    assert_eq!(titles, ["strategy", "a", "b"]);
    let named = |name: &str| rows.iter().find(|row| row[0] == name);
    for name in ["bound.live_floor", "torch.caching", "torch.caching:max_split_size_mb=128"] {
        assert!(named(name).is_some(), "{name}: {rows:?}");
    }
    assert_eq!(named("torch.caching").expect("there")[1], "2.0");
    assert!(named("serving.paged").is_none(), "a cache without sequences");
    assert!(shown.contains("not there: serving.paged, ") && shown.contains(" (a, b):"), "{shown}");
    assert_eq!(shown.matches("not there: serving.paged, ").count(), 1, "told once");
    let (titles, rows) = listing(5);
    assert_eq!(titles, ["strategy", "MiB", "over static", "least", "held"]);
    let told = rows.iter().filter(|row| !row[4].is_empty());
    let told: Vec<&Vec<String>> = told.collect();
    assert!(told.iter().any(|row| row[0] == "torch.caching"), "{told:?}");
    assert!(told.iter().all(|row| row[4].parse::<f64>() == Ok(0.0)), "causes add up: {told:?}");
    assert!(!out.join("small.listing-7.csv").exists());
    for (found, instead, message) in [
        ("down = \"strategy\"", "down = \"seed\"", "has no axis \"seed\""),
        ("runs = [\"b_*\"]", "runs = [\"*\"]", "the group \"b\" has several runs of strategy"),
        ("name = \"least\"", "name = \"MiB\"", "the name \"MiB\" is there already"),
        ("min_capacity\" }", "min_capacty\" }", "has no figure \"min_capacty\""),
    ] {
        let path = file(folder.path(), &text.replacen(found, instead, 1));
        let (code, _, said) = run(&["tables", &path, "--out", &out.display().to_string()]);
        assert_eq!(code, 3, "{said}");
        assert!(said.contains(message), "{said}\nexpected {message}");
    }
}

/// The least device is searched for on the first seeds only, and the figure is of those.
#[test]
fn capacities_of_the_first_seeds_are_a_figure() {
    let folder = tempfile::tempdir().expect("folder");
    let text = "title = \"t\"\n[[run]]\nid = \"a\"\nworkload = \"churn\"\nset = { allocs = 200 }\nseeds = 4\nmin_capacity = 2\n[[row]]\nclaim = \"c\"\nfigure = \"a.min_capacity / 2^20\"\nrule = \"at least 0\"\n";
    let path = file(folder.path(), text);
    let (code, csv, said) = run(&["tables", &path, "--row", "1", "--format", "csv", "-q"]);
    assert_eq!(code, 0, "{said}");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let titles = reader.headers().expect("titles").clone();
    let record = reader.records().next().expect("a record").expect("a record");
    let seeds = titles.iter().position(|title| title == "seeds").expect("seeds");
    assert_eq!(&record[seeds], "2");
}

/// Killed at any moment: what is there is whole, and going on gives the same bytes.
#[test]
fn a_killed_command_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().expect("folder");
    let names = ["s12_fragmentation_loop", "s10_precision", "s11_cpython"];
    let all = |out: &Path| {
        let entries = std::fs::read_dir(out).into_iter().flatten().flatten();
        let mut files: Vec<(String, Vec<u8>)> = entries
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
            .filter(|(name, _)| !name.starts_with(".tmp"))
            .map(|(name, path)| (name, std::fs::read(path).expect("read")))
            .collect();
        files.sort();
        files
    };
    let args = |out: &Path| {
        let mut args: Vec<String> =
            vec!["tables".to_owned(), "--quick".to_owned(), "-q".to_owned()];
        args.extend(names.map(str::to_owned));
        args.extend(["--out".to_owned(), out.display().to_string()]);
        args
    };
    let whole = folder.path().join("whole");
    let given = args(&whole);
    let began = std::time::Instant::now();
    let (code, _, said) = run(&given.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(code, 0, "{said}");
    let (took, expected) = (began.elapsed(), all(&whole));
    for part in [2, 5, 8] {
        let out = folder.path().join(format!("killed-{part}"));
        let given = args(&out);
        let mut child = Command::new(env!("CARGO_BIN_EXE_vramlab"))
            .args(&given)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("starts");
        std::thread::sleep(took * part / 10);
        child.kill().expect("killed");
        child.wait().expect("ended");
        for (name, bytes) in all(&out) {
            let same = expected.iter().find(|(known, _)| *known == name).expect(&name);
            assert!(same.1 == bytes, "{name} is not whole");
        }
        let (code, _, said) = run(&given.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, 0, "{said}");
        assert!(all(&out) == expected, "killed after {part}/10");
    }
}

#[test]
fn a_record_says_how_it_was_made_and_is_gone_on_with() {
    let folder = tempfile::tempdir().expect("folder");
    let record = |folder: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_vramlab"))
            .args(["tables", "s12_fragmentation_loop", "--record", "-q"])
            .current_dir(folder)
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), said)
    };
    let (code, said) = record(folder.path());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("start it in the repository's folder"), "{said}");
    std::fs::create_dir_all(folder.path().join("results/experiments")).expect("made");
    assert_eq!(record(folder.path()), (0, String::new()));
    let records = folder.path().join("results/record");
    let only = || {
        let mut all = std::fs::read_dir(&records).expect("records").map(|e| e.expect("one").path());
        let one = all.next().expect("a record");
        assert!(all.next().is_none(), "one record");
        one
    };
    let made = only();
    let name = made.file_name().expect("name").to_string_lossy().into_owned();
    let readme = std::fs::read_to_string(made.join("README.md")).expect("there");
    assert!(readme.contains("`vramlab tables s12_fragmentation_loop --record`"), "{readme}");
    assert!(readme.contains(env!("CARGO_PKG_VERSION")) && readme.contains(", costs "), "{readme}");
    assert!(name.ends_with("-cores") && name.starts_with("20"), "{name}");
    let there = |ending: &str| made.join(format!("s12_fragmentation_loop.{ending}")).exists();
    assert!(there("md") && there("tex") && there("parquet") && there("runs.parquet"));
    assert!(!there("key") && !there("runs.csv"));
    // an older one that was not ended is gone on with
    let older = records.join(format!("2001-01-01{}", &name[10..]));
    std::fs::rename(&made, &older).expect("renamed");
    std::fs::remove_file(older.join("README.md")).expect("removed");
    assert_eq!(record(folder.path()).0, 0);
    assert_eq!(only(), older);
    let again = std::fs::read_to_string(older.join("README.md")).expect("there");
    assert_eq!(
        again.lines().skip(1).collect::<String>(),
        readme.lines().skip(1).collect::<String>()
    );
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
    let compare = ["compare", "fragment", "llm", "--set", "requests=3", "--strategy", "all"];
    let (_, tables, _) = run(&[&compare[..], &["--format", "latex", "-q"]].concat());
    std::fs::write(folder.path().join("compare.tex"), tables).expect("written");
    let (_, listed, _) = run(&["list", "--format", "latex"]);
    std::fs::write(folder.path().join("list.tex"), listed).expect("written");
    let wide = MATRIX.replace("{workload}_{strategy}", "{rounds}_{strategy}");
    let (_, wide, said) =
        run(&["tables", &file(folder.path(), &wide), "--out", &out, "-q", "--format", "latex"]);
    assert!(wide.contains("\\toprule"), "{said}");
    std::fs::write(folder.path().join("wide.tex"), wide).expect("written");
    let (_, built_in, _) =
        run(&["tables", "s01_bert_peak", "--quick", "--out", &out, "-q", "--format", "latex"]);
    std::fs::write(folder.path().join("built_in.tex"), built_in).expect("written");
    let document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\\input{small}\\input{compare}\\input{list}\\input{wide}\\input{built_in}\\end{document}\n";
    std::fs::write(folder.path().join("all.tex"), document).expect("written");
    let made = Command::new("pdflatex")
        .args(["-interaction=nonstopmode", "-halt-on-error", "all.tex"])
        .current_dir(folder.path())
        .output()
        .expect("runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    assert!(folder.path().join("all.pdf").is_file());
    let log = String::from_utf8_lossy(&made.stdout);
    let wide: Vec<&str> = log.lines().filter(|line| line.starts_with("Overfull \\hbox")).collect();
    assert!(wide.is_empty(), "{}", wide.join("\n"));
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
