//! `vramlab sweep` and `vramlab merge`: the same bytes however a sweep was cut, and refusals that say what to do.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{Folder, call, example};
use vramlab::frame::Frame;
use vramlab::sweep::sheet::{self, About, GROUP_ROWS, Sheet};

/// 60 cells: a recording and a workload with two settings and two seeds, through six specs on two capacities.
fn grid(folder: &Folder) -> String {
    let text = format!(
        r#"
name = "small"
capacities = ["1GiB", "16GiB"]
strategies = ["bound.live_floor", "cuda.malloc"]

[[strategy]]
spec = "torch.caching"
options = {{ max_split_size_mb = [32, 64], expandable_segments = [false, true] }}

[[input]]
trace = "{}"

[[input]]
workload = "churn"
seeds = [3, 5]
set = {{ allocs = {{ from = 200, to = 800, factor = 4 }} }}
"#,
        example("resnet50_b32_fp32.pickle.gz")
    );
    folder.file("small.toml", text)
}

/// Runs the command, which must end with 0.
fn done(args: &[&str]) -> String {
    let (code, out, err) = call(args);
    assert_eq!(code, 0, "{args:?}: {out}{err}");
    out
}

/// Runs the command, which must end with `code` and say all of `words`.
fn refused(code: i32, args: &[&str], words: &[&str]) -> String {
    let (found, out, err) = call(args);
    assert_eq!(found, code, "{args:?}: {out}{err}");
    for word in words {
        assert!(err.contains(word), "{args:?}: expected {word:?} in {err}");
    }
    assert!(!err.contains("panicked"), "{err}");
    err
}

fn sweep_in(folder: &Folder, grid: &str, out: &str, shards: u64) -> String {
    let out = folder.path(out);
    for index in 0..shards {
        done(&["sweep", grid, "--out", &out, "--shard", &format!("{index}/{shards}"), "--quiet"]);
    }
    out
}

fn merged(folder: &Folder, from: &str) -> Vec<u8> {
    let out = folder.path("merged.parquet");
    done(&["merge", from, "--out", &out, "--quiet"]);
    std::fs::read(out).expect("written")
}

#[test]
fn one_process_and_many_shards_give_the_same_bytes() {
    let folder = Folder::new();
    let grid = grid(&folder);
    let whole = folder.path("whole");
    let out = done(&["sweep", &grid, "--out", &whole, "--quiet", "--format", "json"]);
    let summary: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&summary["cells"], &summary["own"]), (&60.into(), &60.into()), "{out}");
    let expected = merged(&folder, &whole);
    for shards in [4, 7, 61] {
        let parts = sweep_in(&folder, &grid, &format!("in-{shards}"), shards);
        assert!(merged(&folder, &parts) == expected, "{shards} shards");
    }
    let frame = Frame::read(Path::new(&folder.path("merged.parquet"))).expect("a frame");
    let column = |name: &str| frame.data().column(name).expect("a column").clone();
    let outcomes: Vec<String> =
        column("outcome").str().expect("text").iter().flatten().map(str::to_owned).collect();
    assert!(
        outcomes.iter().any(|outcome| outcome == "oom"),
        "1 GiB is too little for the recording"
    );
    assert!(outcomes.iter().any(|outcome| outcome == "ok"));
    let settings: Vec<String> =
        column("settings").str().expect("text").iter().flatten().map(str::to_owned).collect();
    assert!(settings.iter().any(|settings| settings == "allocs=800"), "{:?}", settings.last());
    // cells that differ by their seed are one point
    let seeds = frame.intervals().expect("groups");
    let seeds = seeds.column("seeds").expect("a column").u32().expect("counts").iter().flatten();
    assert_eq!(seeds.max(), Some(2));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let folder = Folder::new();
    let grid = grid(&folder);
    let mut all = Vec::new();
    for threads in ["1", "3"] {
        let out = folder.path(threads);
        let status = Command::new(env!("CARGO_BIN_EXE_vramlab"))
            .args(["sweep", &grid, "--out", &out, "--quiet"])
            .env("RAYON_NUM_THREADS", threads)
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("starts").success());
        all.push(
            std::fs::read(Path::new(&out).join("shard-0000-of-0001.parquet")).expect("written"),
        );
    }
    assert!(all[0] == all[1]);
}

/// A sweep that takes some seconds.
fn long_grid(folder: &Folder) -> String {
    let text = format!(
        "strategies = [\"torch.caching\"]\ncapacities = {{ from = \"8GiB\", to = \"1008GiB\", step = \"1GiB\" }}\n[[input]]\ntrace = {:?}\n",
        example("resnet50_b32_fp32.pickle.gz")
    );
    folder.file("long.toml", text)
}

fn start(grid: &str, out: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vramlab"))
        .args(["sweep", grid, "--out", out, "--quiet", "--resume"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// Waits until the run has kept its first cells.
fn wait_for_a_part(child: &mut Child, out: &str) -> PathBuf {
    let parts = Path::new(out).join("shard-0000-of-0001.parts");
    let began = Instant::now();
    loop {
        let found = std::fs::read_dir(&parts).into_iter().flatten().flatten();
        let mut found =
            found.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "parquet"));
        if found.next().is_some() {
            return parts;
        }
        assert!(child.try_wait().expect("its state").is_none(), "it ended before it was killed");
        assert!(began.elapsed() < Duration::from_secs(200), "no part in 200 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_run_that_is_killed_leaves_whole_files_and_resumes_to_the_same_bytes() {
    let folder = Folder::new();
    let grid = long_grid(&folder);
    let (straight, out) = (folder.path("straight"), folder.path("killed"));
    done(&["sweep", &grid, "--out", &straight, "--quiet"]);
    let expected =
        std::fs::read(folder.path("straight/shard-0000-of-0001.parquet")).expect("written");
    let mut child = start(&grid, &out);
    let parts = wait_for_a_part(&mut child, &out);
    child.kill().expect("killed");
    child.wait().expect("ended");
    let mut kept = 0;
    for entry in std::fs::read_dir(&parts).expect("a folder").flatten() {
        if entry.path().extension().is_some_and(|e| e == "parquet") {
            let part = Sheet::open(&entry.path()).expect("whole");
            kept += part.rows(0, GROUP_ROWS).expect("rows").height();
        }
    }
    assert!(kept > 0);
    // what it was writing when it was killed
    std::fs::write(parts.join(".tmpAbC123"), "half").expect("written");
    refused(3, &["merge", &out, "--out", &folder.path("m.parquet")], &["no shards in"]);
    refused(2, &["sweep", &grid, "--out", &out], &["is there already", "--resume"]);
    let (code, _, err) = call(&["sweep", &grid, "--out", &out, "--resume"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("of 1001 cells are there already"), "{err}");
    let again = std::fs::read(folder.path("killed/shard-0000-of-0001.parquet")).expect("written");
    assert!(again == expected);
    assert!(!parts.exists(), "the parts are gone");
    let before =
        std::fs::metadata(folder.path("killed/shard-0000-of-0001.parquet")).expect("there");
    let (code, out, err) = call(&["sweep", &grid, "--out", &out, "--resume", "--format", "json"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("nothing to run") && out.contains("\"ok\":1001"), "{out}{err}");
    let after = std::fs::metadata(folder.path("killed/shard-0000-of-0001.parquet")).expect("there");
    assert_eq!(before.modified().expect("a time"), after.modified().expect("a time"));
}

#[test]
fn a_part_that_is_damaged_is_run_again() {
    let folder = Folder::new();
    let grid = long_grid(&folder);
    let out = folder.path("out");
    let mut child = start(&grid, &out);
    let parts = wait_for_a_part(&mut child, &out);
    child.kill().expect("killed");
    child.wait().expect("ended");
    let first = std::fs::read_dir(&parts).expect("a folder").flatten().map(|e| e.path());
    let mut all: Vec<PathBuf> =
        first.filter(|p| p.extension().is_some_and(|e| e == "parquet")).collect();
    all.sort();
    let bytes = std::fs::read(&all[0]).expect("read");
    std::fs::write(&all[0], &bytes[..bytes.len() / 2]).expect("written");
    let (code, _, err) = call(&["sweep", &grid, "--out", &out, "--resume"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("cut off") && err.contains("run again"), "{err}");
    done(&["merge", &out, "--out", &folder.path("m.parquet")]);
}

#[test]
fn two_processes_do_not_work_on_one_shard() {
    let folder = Folder::new();
    let grid = long_grid(&folder);
    let out = folder.path("out");
    let mut child = start(&grid, &out);
    wait_for_a_part(&mut child, &out);
    refused(7, &["sweep", &grid, "--out", &out, "--resume"], &["another process", "shard 0/1"]);
    child.kill().expect("killed");
    child.wait().expect("ended");
}

#[test]
fn a_folder_that_vanishes_is_said() {
    let folder = Folder::new();
    let grid = long_grid(&folder);
    let out = folder.path("out");
    let mut child = start(&grid, &out);
    wait_for_a_part(&mut child, &out);
    std::fs::rename(&out, folder.path("elsewhere")).expect("renamed");
    let output = child.wait_with_output().expect("ended");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert!(err.contains("cannot write") && err.contains("No such file"), "{err}");
}

#[test]
fn a_folder_that_cannot_be_written_is_said_before_anything_runs() {
    let folder = Folder::new();
    let grid = long_grid(&folder);
    let file = folder.file("file", "");
    refused(7, &["sweep", &grid, "--out", &format!("{file}/out")], &["cannot write", "--out"]);
    // nothing can be made there, whoever asks
    refused(7, &["sweep", &grid, "--out", "/proc/vramlab-sweep"], &["cannot write", "--out"]);
}

/// A limit on the size of a file stands for a full disk: the write fails half-way through.
#[test]
#[cfg(unix)]
fn a_full_disk_leaves_whole_files_and_says_how_to_go_on() {
    let folder = Folder::new();
    let grid = long_grid(&folder);
    let out = folder.path("out");
    let script = r#"trap "" XFSZ; ulimit -f 8; exec "$0" sweep "$1" --out "$2" --quiet"#;
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_vramlab"), &grid, &out])
        .output()
        .expect("starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert!(err.contains("cannot write") && err.contains("--resume"), "{err}");
    let parts = Path::new(&out).join("shard-0000-of-0001.parts");
    for entry in std::fs::read_dir(parts).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name == "lock" || Sheet::open(&entry.path()).is_ok(), "{name}");
    }
    done(&["sweep", &grid, "--out", &out, "--quiet", "--resume"]);
}

#[test]
fn shards_that_do_not_make_a_sweep_are_refused() {
    let folder = Folder::new();
    let small = grid(&folder);
    let parts = sweep_in(&folder, &small, "parts", 4);
    let to = folder.path("merged.parquet");
    let merge = |dirs: &[&str], words: &[&str]| {
        let args = [&["merge"], dirs, &["--out", &to]].concat();
        refused(3, &args, words)
    };
    let shard = |n: u64| Path::new(&parts).join(format!("shard-{n:04}-of-0004.parquet"));
    let copy = |folder: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(folder).expect("made");
        std::fs::write(Path::new(folder).join(name), bytes).expect("written");
    };
    let bytes = std::fs::read(shard(2)).expect("read");

    // missing
    std::fs::remove_file(shard(2)).expect("removed");
    merge(&[&parts], &["1 of 4 shards are missing", ": 2;", "--shard I/4"]);
    // doubled
    copy(&parts, "shard-0002-of-0004.parquet", &bytes);
    let other = folder.path("other");
    copy(&other, "shard-0002-of-0004.parquet", &bytes);
    merge(&[&parts, &other], &["shard 2/4 is there twice", "other"]);
    // truncated
    for left in [0, 3, bytes.len() / 3, bytes.len() - 1] {
        copy(&parts, "shard-0002-of-0004.parquet", &bytes[..left]);
        merge(&[&parts], &["shard-0002-of-0004.parquet"]);
    }
    // damaged
    for place in (4..bytes.len()).step_by(bytes.len() / 40) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x55;
        copy(&parts, "shard-0002-of-0004.parquet", &damaged);
        let (code, _, err) = call(&["merge", &parts, "--out", &to]);
        assert_eq!(code, 3, "byte {place}: {err}");
        assert!(!err.contains("panicked"), "byte {place}: {err}");
    }
    // a cell less
    let whole = Path::new(&other).join("shard-0002-of-0004.parquet");
    let sheet = Sheet::open(&whole).expect("whole");
    let rows = sheet.rows(0, GROUP_ROWS).expect("rows");
    let rewrite = |about: &About, from: usize, to: usize| {
        let (about, rows) = (about.clone(), rows.slice(from as i64, to - from));
        sheet::write(&shard(2), &about, |put| put(rows)).expect("written");
    };
    let cell = rows.column("cell").expect("cells").u64().expect("numbers").clone();
    let of_first = cell.iter().take_while(|n| *n == cell.get(0)).count();
    rewrite(&sheet.about, of_first, rows.height());
    merge(&[&parts], &["found cell 6, expected cell 2"]);
    let last = cell.iter().last();
    let of_last = cell.iter().filter(|n| Some(*n) == last).count();
    rewrite(&sheet.about, 0, rows.height() - of_last);
    merge(&[&parts], &["shard-0002-of-0004.parquet", "cell"]);
    // of another version
    let version = About { vramlab: "0.0.9".to_owned(), ..sheet.about.clone() };
    rewrite(&version, 0, rows.height());
    merge(&[&parts], &["two versions", "0.0.9"]);
    // of another grid
    rewrite(&sheet.about, 0, rows.height());
    let text = std::fs::read_to_string(&small).expect("read").replace("[3, 5]", "[3, 6]");
    let next = folder.file("small.toml", text);
    let err = refused(
        3,
        &["sweep", &next, "--out", &parts, "--shard", "0/4", "--resume"],
        &["grid small@"],
    );
    assert!(err.contains("--out another folder"), "{err}");
    std::fs::remove_file(shard(0)).expect("removed");
    done(&["sweep", &next, "--out", &parts, "--shard", "0/4", "--quiet"]);
    merge(&[&parts], &["two grids", "small@"]);
    // of another number of shards, a merged file, nothing at all
    done(&["sweep", &next, "--out", &other, "--shard", "0/5", "--quiet"]);
    merge(&[&other], &["two grids"]);
    let empty = folder.path("empty");
    std::fs::create_dir(&empty).expect("made");
    merge(&[&empty], &["no shards in", "empty"]);
    assert!(!Path::new(&to).exists() || Sheet::open(Path::new(&to)).is_ok());
}

#[test]
fn grids_that_make_no_sense_are_refused_with_their_line() {
    let folder = Folder::new();
    let out = folder.path("out");
    let input = "[[input]]\nworkload = \"churn\"\n";
    let cases: &[(&str, &[&str])] = &[
        ("strategies = [", &["g.toml:1:"]),
        ("strategy = 3\n", &["g.toml:1:", "found 3", "[[strategy]]"]),
        ("strategies = [\"torch.cachin\"]\n", &["g.toml:1:", "torch.caching"]),
        ("strategies = [\"torch.caching\"]\n", &["no [[input]]"]),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churm\"\n",
            &["g.toml:3:", "churn"],
        ),
        ("strategies = [\"torch.caching\"]\n[[input]]\nworkload = []\n", &["g.toml:3:", "empty"]),
        ("strategies = []\n[[input]]\nworkload = \"churn\"\n", &["g.toml:1:", "empty"]),
        ("devises = []\n", &["g.toml:1:", "\"devises\"", "devices"]),
        (
            "devices = [\"a100\"]\nstrategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\n",
            &["g.toml:1:", "a100-80gb"],
        ),
        (
            "capacities = [\"1GiB\"]\nstrategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nset = { alocs = 3 }\n",
            &["g.toml:5:", "allocs"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nset = { allocs = \"many\" }\n",
            &["g.toml:3:", "many"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nset = { allocs = [] }\n",
            &["g.toml:4:", "empty"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nset = { allocs = [5, 5] }\n",
            &["g.toml:4:", "twice"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nset = { allocs = { from = 9, to = 3, step = 1 } }\n",
            &["g.toml:4:", "from is above to"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nset = { allocs = { from = 1, to = 3, step = 1, factor = 2 } }\n",
            &["g.toml:4:", "step or factor"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nseeds = 0\n",
            &["g.toml:4:", "seeds"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nkeep_times = true\n",
            &["g.toml:4:", "trace"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\ntrace = \"x\"\nseeds = 3\n",
            &["g.toml:4:", "workload"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\ntrace = \"x\"\nworkload = \"churn\"\n",
            &["g.toml:4:", "both"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\ntrace = \"no-such-file\"\n",
            &["g.toml:3:", "no-such-file"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\ntrace = \"g.toml\"\n",
            &["g.toml:3:", "g.toml"],
        ),
        (
            "strategies = [\"torch.caching\", \"cuda.malloc\", \"torch.caching\"]\n",
            &["g.toml:1:", "twice"],
        ),
        (
            "capacities = [\"0\"]\nstrategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\n",
            &["g.toml:1:", "capacity"],
        ),
        (
            "capacities = [\"16GX\"]\nstrategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\n",
            &["g.toml:1:", "16GX"],
        ),
        (
            "strategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\n[[input]]\nworkload = \"churn\"\n",
            &["g.toml:5:", "line 3"],
        ),
        (
            "max_cells = 5\nstrategies = [\"torch.caching\"]\n[[input]]\nworkload = \"churn\"\nseeds = 6\n",
            &["6 cells", "max_cells = 6"],
        ),
    ];
    let strategy = |options: &str| {
        format!(
            "{input}[[strategy]]\nspec = \"torch.caching:max_split_size_mb=64\"\noptions = {options}\n"
        )
    };
    let cases = cases.iter().map(|(text, words)| ((*text).to_owned(), *words));
    let more: [(String, &[&str]); 4] = [
        (strategy("{ max_split_size_mb = [32, 64] }"), &["g.toml:5:", "once"]),
        (strategy("{ max_split_size_bm = [32, 64] }"), &["g.toml:4:", "max_split_size_mb"]),
        (strategy("{ conf = [\"max_split_size_mb:3\"] }"), &["g.toml:4:", "conf"]),
        (strategy("{ expandable_segments = \"perhaps\" }"), &["g.toml:4:", "perhaps"]),
    ];
    for (text, words) in cases.chain(more) {
        let grid = folder.file("g.toml", &text);
        let err = refused(3, &["sweep", &grid, "--out", &out, "--count"], words);
        assert!(!err.contains("no-such-file") || err.contains("No such file"), "{err}");
    }
    refused(3, &["sweep", &folder.path("none.toml")], &["none.toml"]);
    refused(2, &["sweep", "g.toml", "--shard", "4/4"], &["I/N"]);
}

/// 10^9 cells are counted, not built: the refusal comes at once.
#[test]
fn a_grid_that_is_too_large_is_refused_with_its_count() {
    let folder = Folder::new();
    let text = r#"
strategies = ["torch.caching"]
capacities = { from = 1000000000, to = 1000000999, step = 1 }
[[input]]
workload = "churn"
seeds = 1000
set = { allocs = { from = 1, to = 1000, step = 1 } }
"#;
    let grid = folder.file("huge.toml", text);
    let began = Instant::now();
    let out = folder.path("out");
    refused(
        3,
        &["sweep", &grid, "--out", &out],
        &["1,000,000,000 cells", "1,000,000", "max_cells"],
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(!Path::new(&out).exists());
}
