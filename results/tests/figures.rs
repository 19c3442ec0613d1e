//! `vramlab figure`, and the pictures of tables: whole, with the marks that the data asks for, and the same bytes whenever they are drawn.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Folder, call, example};

/// Names of the tags of an SVG, one for each mark. Fails on what is not well-formed.
fn tags(svg: &str) -> Vec<&str> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        let quotes = tag.matches('"').count();
        assert!(quotes.is_multiple_of(2), "{tag}");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else {
            all.push(tag);
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        let stray = text.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "");
        let stray = stray.replace("&quot;", "").replace("&apos;", "");
        assert!(!stray.contains('&'), "{text}");
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

/// Tags with this name and this colour as filling.
fn filled(svg: &str, name: &str, colour: &str) -> usize {
    let fill = format!("fill=\"{colour}\"");
    tags(svg).iter().filter(|tag| tag.starts_with(name) && tag.contains(&fill)).count()
}

/// A number of a tag.
fn number(tag: &str, name: &str) -> f64 {
    let (_, rest) = tag.split_once(&format!(" {name}=\"")).expect(name);
    rest.split('"').next().expect("ends").parse().expect("a number")
}

struct Drawn {
    title: String,
    svg: String,
    /// Lines of the data, cells by column name.
    data: Vec<Vec<String>>,
    titles: Vec<String>,
}

impl Drawn {
    fn column(&self, name: &str) -> Vec<&str> {
        let at = self.titles.iter().position(|title| title == name).expect(name);
        self.data.iter().map(|row| row[at].as_str()).collect()
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.column(name).iter().map(|cell| cell.parse().expect("a number")).collect()
    }
}

/// Draws a picture and gives its parts.
fn draw(args: &[&str]) -> Drawn {
    let folder = Folder::new();
    let out = folder.path("picture.svg");
    let (code, csv, err) =
        call(&[&["figure"], args, &["--out", &out, "--format", "csv", "-q"]].concat());
    assert_eq!(code, 0, "{args:?}: {err}");
    let svg = std::fs::read_to_string(&out).expect("written");
    tags(&svg);
    let (_, title) = svg.split_once("<title>").expect("a title");
    let title = title.split("</title>").next().expect("ends").to_owned();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let titles = reader.headers().expect("titles").iter().map(str::to_owned).collect();
    let row = |record: csv::Result<csv::StringRecord>| -> Vec<String> {
        record.expect("a line").iter().map(str::to_owned).collect()
    };
    let data = reader.records().map(row).collect();
    Drawn { title, svg, data, titles }
}

const BLUE: &str = "#0072B2";
const SKY: &str = "#56B4E9";
const ORANGE: &str = "#E69F00";
const VERMILLION: &str = "#D55E00";

/// Three requests of 4 KiB, and one of 1 MiB that is freed.
const FOUR: &str = r#"{"op":"alloc","id":1,"size":4096}
{"op":"alloc","id":2,"size":4096}
{"op":"alloc","id":3,"size":1048576}
{"op":"free","id":3}
{"op":"alloc","id":4,"size":4096}
"#;

#[test]
fn bars_are_as_long_as_their_figures() {
    let drawn = draw(&[
        "bars",
        "churn",
        "--set",
        "allocs=2000",
        "--seeds",
        "3",
        "--strategy",
        "torch.caching",
        "--strategy",
        "classic.buddy",
        "--strategy",
        "bound.live_floor",
    ]);
    let values = drawn.numbers("value");
    assert_eq!(values.len(), 3);
    let bars: Vec<&str> = tags(&drawn.svg)
        .into_iter()
        .filter(|tag| tag.starts_with("rect") && tag.contains(SKY))
        .collect();
    assert_eq!(bars.len(), 3);
    for (bar, value) in bars.iter().zip(&values) {
        let ratio = number(bar, "width") / number(bars[0], "width");
        assert!((ratio - value / values[0]).abs() < 0.01, "{ratio} {value}");
    }
    let (from, to) = (drawn.numbers("from"), drawn.numbers("to"));
    assert!(from.iter().zip(&to).zip(&values).all(|((from, to), v)| from <= v && v <= to));
    assert!(drawn.title.starts_with("peak reserved: from "), "{}", drawn.title);
    assert!(drawn.title.contains("(bound.live_floor)"), "{}", drawn.title);
}

#[test]
fn memory_over_time_keeps_peaks_and_floor() {
    let folder = Folder::new();
    let file = folder.file("four.jsonl", FOUR);
    let drawn = draw(&["time", &file]);
    let live: Vec<f64> = (0..drawn.data.len())
        .map(|row| {
            let cells = drawn.titles.iter().zip(&drawn.data[row]);
            let live =
                cells.filter(|(title, _)| title.ends_with("_bytes") && *title != "reserved_bytes");
            live.map(|(_, cell)| cell.parse::<f64>().expect("a number")).sum()
        })
        .collect();
    let most = live.iter().copied().fold(0.0, f64::max);
    assert_eq!(most, 1_056_768.0, "the live floor");
    assert_eq!(live.last(), Some(&12_288.0), "what lives at the end");
    let reserved = drawn.numbers("reserved_bytes");
    assert_eq!(reserved.iter().copied().fold(0.0, f64::max), 2_097_152.0);
    let areas = tags(&drawn.svg).iter().filter(|tag| tag.starts_with("polygon")).count();
    assert_eq!(areas, drawn.titles.len() - 3, "one for each category");
    assert!(
        drawn.title.starts_with("Reserved memory peaks at 2 MiB, 1016 KiB (98 %) above"),
        "{}",
        drawn.title
    );
}

#[test]
fn a_refused_request_is_a_cross_and_in_the_title() {
    let oom = example("bert_b64_s512_fp32_oom_16gb.pickle.gz");
    let drawn = draw(&["time", &oom]);
    let refused: f64 = drawn.numbers("refused").iter().sum();
    assert!(refused >= 1.0 && drawn.title.contains("not fit"), "{}", drawn.title);
    let segments = draw(&["segments", &oom]);
    assert!(segments.title.starts_with("A request of "), "{}", segments.title);
    assert!(segments.title.contains(" is refused (op "), "{}", segments.title);
}

#[test]
fn sizes_have_a_bar_for_each_power_of_two() {
    let folder = Folder::new();
    let drawn = draw(&["sizes", &folder.file("four.jsonl", FOUR)]);
    assert_eq!(drawn.column("from_bytes"), ["4096", "1048576"]);
    assert_eq!(drawn.column("requests"), ["3", "1"]);
    assert_eq!(drawn.column("bytes"), ["12288", "1048576"]);
    assert_eq!(filled(&drawn.svg, "rect", BLUE), 2);
    assert_eq!(filled(&drawn.svg, "rect", ORANGE), 2);
    let title = "25 % of 4 requests are for 1 MiB and more; they ask for 99 % of the bytes";
    assert_eq!(drawn.title, title);
}

#[test]
fn maps_show_what_lies_where() {
    let folder = Folder::new();
    let file = folder.file("four.jsonl", FOUR);
    let map = draw(&["map", &file, "--strategy", "torch.caching"]);
    let live = map.column("is").iter().filter(|is| **is == "live").count();
    assert!(live > 0);
    assert_eq!(filled(&map.svg, "rect", SKY), live + 1, "and one in the legend");
    let end = map.numbers("to_byte").into_iter().fold(0.0, f64::max);
    assert!(end <= 2_097_152.0, "{end}");
    let segments = draw(&["segments", &file, "--strategy", "torch.caching", "--at", "end"]);
    let bytes: f64 = segments.numbers("bytes").iter().sum();
    assert_eq!(bytes, 2_097_152.0, "all of what is reserved");
    assert!(segments.title.starts_with("After op 4, "), "{}", segments.title);
}

#[test]
fn latencies_have_their_quantiles_marked() {
    let drawn = draw(&[
        "latency",
        "ocr",
        "--set",
        "pages=20",
        "--strategy",
        "paddle.auto_growth",
        "--strategy",
        "cuda.malloc",
    ]);
    let circles = tags(&drawn.svg).iter().filter(|tag| tag.starts_with("circle")).count();
    assert_eq!(circles, 4, "P50 and P99 of two");
    let shares = drawn.numbers("share");
    assert_eq!(shares.last(), Some(&1.0));
    let runs = drawn.column("run");
    let times = drawn.numbers("ns");
    let rising =
        |pair: &[usize]| runs[pair[0]] != runs[pair[1]] || times[pair[0]] <= times[pair[1]];
    let places: Vec<usize> = (0..runs.len()).collect();
    assert!(places.windows(2).all(rising));
    assert!(drawn.title.starts_with("99 of 100 requests end within "), "{}", drawn.title);
}

#[test]
fn capacities_have_a_point_for_each_device() {
    let folder = Folder::new();
    let file = folder.file("four.jsonl", FOUR);
    let drawn = draw(&["capacity", &file, "--strategy", "torch.caching"]);
    let refused = drawn.numbers("refused").iter().filter(|refused| **refused > 0.0).count();
    let circles = tags(&drawn.svg).iter().filter(|tag| tag.starts_with("circle")).count();
    assert_eq!(circles + refused, drawn.data.len());
    let rooms = drawn.numbers("room_bytes");
    let least = drawn.numbers("least_room_bytes")[0];
    for (room, refused) in rooms.iter().zip(drawn.numbers("refused")) {
        assert!((*room >= least) == (refused == 0.0), "{room} of {least}");
    }
}

#[test]
fn the_same_bytes_come_out_whatever_the_threads() {
    let folder = Folder::new();
    let picture = |name: &str, threads: &str| {
        let out = folder.path(name);
        let status = Command::new(env!("CARGO_BIN_EXE_vramlab"))
            .env("RAYON_NUM_THREADS", threads)
            .args(["figure", "capacity", "fragment", "--set", "rounds=5,rows=512,hold=3"])
            .args(["--strategy", "torch.caching", "--strategy", "classic.best_fit"])
            .args(["--out", &out, "-q"])
            .status();
        assert!(status.expect("runs").success());
        std::fs::read(out).expect("written")
    };
    assert!(picture("a.svg", "1") == picture("b.svg", "2"));
}

/// The README's picture is what the command draws, on every machine.
#[test]
fn the_picture_of_the_readme_is_drawn_again() {
    let drawn = draw(&["map", &example("bert_b8_s128_fp32_python_stacks.pickle.gz")]);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/pictures/map.svg");
    let kept = std::fs::read_to_string(kept).expect("the picture");
    assert!(kept == drawn.svg, "draw it again, with the command that README.md shows");
}

#[test]
fn what_has_nothing_to_show_says_so() {
    let folder = Folder::new();
    let out = folder.path("none.svg");
    let empty = folder.file("empty.jsonl", "{\"op\":\"mark\",\"name\":\"a\"}\n");
    let four = folder.file("four.jsonl", FOUR);
    for (args, code, message) in [
        (vec!["time", &empty], 3, "asks for no memory, so there is nothing to draw"),
        (vec!["latency", &four], 3, "no request is answered in it, so it has no latencies"),
        (vec!["map", &four, "--strategy", "serving.paged"], 3, "through serving.paged: "),
        (vec!["map", &four, "--at", "end"], 2, "has no use for --at"),
        (vec!["segments", &four, "--at", "99"], 2, "it has ops 0 to 4"),
        (vec!["segments", &four, "--at", "oom"], 3, "no request is refused"),
        (vec!["bars", &four, "--figure", "peak_reservd"], 2, "peak_reserved"),
        (vec!["time", "brt"], 2, "no such file, and no such workload"),
        (vec!["time", &four, "--set", "a=1"], 2, "a recording has none"),
    ] {
        let (found, _, err) = call(&[&["figure"], &args[..], &["--out", &out]].concat());
        assert_eq!(found, code, "{args:?}: {err}");
        assert!(err.contains(message), "{args:?}: {err}");
        assert!(!Path::new(&out).exists(), "{args:?}");
    }
}

#[test]
fn names_from_a_recording_reach_a_picture_as_text() {
    let folder = Folder::new();
    let file = folder.file("<b>&\"x.jsonl", FOUR);
    let drawn = draw(&["time", &file]);
    assert!(drawn.svg.contains("&lt;b&gt;&amp;"), "{}", drawn.title);
    assert!(!drawn.svg.contains("<b>"));
}

/// An experiment with pictures of every sort.
const EXPERIMENT: &str = r#"
title = "A small table"

[[run]]
id = "loop_{strategy}"
workload = "fragment"
set = { rounds = 5, rows = 512, hold = 3 }
strategy = { torch = "torch.caching", floor = "bound.live_floor" }

[[run]]
id = "gone"
trace = "shared:no/such/recording.pickle"

[[figure]]
kind = "bars"
runs = ["loop_*", "gone"]
name = "Reserved memory"
figure = "peak_reserved / 2^20"
unit = "MiB"
claimed = [1]

[[figure]]
kind = "time"
runs = ["gone"]

[[figure]]
kind = "map"
runs = ["loop_torch"]
"#;

#[test]
fn a_table_has_its_pictures_and_makes_what_is_missing_again() {
    let folder = Folder::new();
    let (file, out) = (folder.file("small.toml", EXPERIMENT), folder.path("out"));
    let (code, text, err) = call(&["tables", &file, "--out", &out]);
    assert_eq!(code, 0, "{err}");
    assert!(text.contains("picture small.figure-1.svg: Reserved memory: from "), "{text}");
    let read = |name: &str| std::fs::read_to_string(Path::new(&out).join(name)).expect(name);
    let bars = read("small.figure-1.svg");
    assert_eq!(filled(&bars, "rect", SKY), 2);
    assert!(bars.contains("claimed: 1 MiB") && bars.contains("1 runs are not there"), "{bars}");
    let gone = read("small.figure-2.svg");
    tags(&gone);
    assert!(gone.contains("Not drawn: A small table"), "{gone}");
    assert!(gone.contains("no/such/recording.pickle"), "{gone}");
    let map = read("small.figure-3.svg");
    assert!(filled(&map, "rect", SKY) > 1 && read("small.figure-3.csv").starts_with("from_op,"));
    assert!(read("small.md").contains("](small.figure-3.svg)"));
    assert!(tags(&bars).iter().any(|tag| tag.contains(VERMILLION)), "the claimed line");

    let (_, _, again) = call(&["tables", &file, "--out", &out]);
    assert!(again.contains("small: unchanged since it was made"), "{again}");
    std::fs::remove_file(Path::new(&out).join("small.figure-3.svg")).expect("removed");
    let (code, _, _) = call(&["tables", &file, "--out", &out]);
    assert_eq!((code, read("small.figure-3.svg")), (0, map));
}

#[test]
fn mistakes_in_an_experiments_pictures_are_told_with_their_line() {
    let folder = Folder::new();
    for (from, to, message) in [
        ("kind = \"map\"", "kind = \"mop\"", "line 27: unknown variant"),
        ("runs = [\"loop_torch\"]", "runs = [\"loop_*\"]", "2 runs, expected one run"),
        ("runs = [\"loop_torch\"]", "runs = [\"lop_torch\"]", "no run is called \"lop_torch\""),
        ("figure = \"peak_reserved / 2^20\"\n", "", "expected figure and name"),
        ("runs = [\"gone\"]", "runs = [\"gone\"]\nlog = true", "and only there"),
        ("peak_reserved / 2^20", "peak_reserved /", "the figure \"peak_reserved /\""),
        ("peak_reserved / 2^20", "peak_reservd / 2^20", "no figure \"peak_reservd\""),
    ] {
        let file = folder.file("bad.toml", EXPERIMENT.replacen(from, to, 1));
        let (code, _, err) = call(&["tables", &file, "--out", &folder.path("out")]);
        assert_eq!(code, 3, "{to}: {err}");
        assert!(err.contains(message) && err.contains("line "), "{to}: {err}");
    }
}
