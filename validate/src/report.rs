//! `report`: one page, in Markdown, of what lies in a folder: `probe.json`, `*.csv` of measure, `*.toml` of fit, `*.jsonl` of compare and replay.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use vramlab_sim::device::profile::Profile;
use vramlab_sim::units::Bytes;

use crate::failure::{Code, Failure, Outcome};
use crate::measure::{self, Measured};
use crate::output::{print, table, time, write_whole};

/// Most bytes of a file that is taken in.
const MOST: u64 = 64 << 20;

/// Arguments.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The folder that the other commands wrote to.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The page to write; without it, standard output.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn command(args: &ReportArgs) -> Outcome {
    let folder = &args.folder;
    let bad = |what: String| Failure::input(format!("{}: {what}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(|e| bad(e.to_string()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut page = String::from("# The simulation beside a real device\n");
    let mut parts = 0;
    for (ending, part) in [
        ("json", probe as fn(&Path, &str) -> Result<String, Failure>),
        ("csv", measurements),
        ("toml", device),
        ("jsonl", runs),
    ] {
        for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == ending)) {
            let text = read(file)?;
            page += &part(file, &text)?;
            parts += 1;
        }
    }
    if parts == 0 {
        return Err(bad(
            "found no file that probe, measure, fit, replay or compare writes".to_owned()
        ));
    }
    match &args.out {
        Some(path) => write_whole(path, &page)?,
        None => print(&page)?,
    }
    Ok(Code::Done)
}

fn read(file: &Path) -> Result<String, Failure> {
    let bad = |what: String| Failure::input(format!("{}: {what}", file.display()));
    let length = std::fs::metadata(file).map_err(|e| bad(e.to_string()))?.len();
    if length > MOST {
        return Err(bad(format!("found {}, expected at most {}", Bytes(length), Bytes(MOST))));
    }
    std::fs::read_to_string(file).map_err(|e| bad(e.to_string()))
}

fn name(file: &Path) -> String {
    file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// What `probe --format json` printed.
fn probe(file: &Path, text: &str) -> Result<String, Failure> {
    let found: Value = serde_json::from_str(text.trim())
        .map_err(|e| Failure::input(format!("{}: {e}", file.display())))?;
    let mut page =
        format!("\n## Device ({})\n\nCUDA driver {}\n\n", name(file), word(&found["driver"]));
    let devices = found["devices"].as_array().map_or(&[][..], Vec::as_slice);
    let row = |device: &Value| {
        let bytes =
            |key: &str| device[key].as_u64().map_or("-".to_owned(), |b| Bytes(b).to_string());
        vec![
            word(&device["device"]),
            word(&device["name"]),
            word(&device["compute"]),
            bytes("total"),
            bytes("free"),
            bytes("granularity"),
        ]
    };
    let titles = ["device", "name<", "compute", "total", "free", "granule"];
    page += &(table(&titles, &devices.iter().map(row).collect::<Vec<_>>(), true) + "\n");
    Ok(page)
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn measurements(file: &Path, text: &str) -> Result<String, Failure> {
    let measured = Measured::parse(text)
        .map_err(|what| Failure::input(format!("{}: {what}", file.display())))?;
    let head = &measured.head;
    Ok(format!(
        "\n## Measurements ({})\n\n{}, CUDA driver {}, {}\n\n{}\n",
        name(file),
        head.device,
        head.driver,
        head.date,
        measure::command::shown(&measured, true)
    ))
}

fn device(file: &Path, text: &str) -> Result<String, Failure> {
    let profile = Profile::parse(text)
        .map_err(|what| Failure::input(format!("{}: {what}", file.display())))?;
    let figures = profile.figures.iter().filter(|figure| figure.source.starts_with("measured"));
    let rows: Vec<Vec<String>> = figures
        .map(|figure| {
            let range = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.1}"));
            vec![
                figure.key.clone(),
                format!("{:.1}", figure.value),
                figure.unit.clone(),
                range(figure.low),
                range(figure.high),
                figure.source.clone(),
            ]
        })
        .collect();
    let titles = ["figure<", "value", "unit<", "p10", "p90", "source<"];
    Ok(format!(
        "\n## Fitted prices ({})\n\n{}: {}\n\n{}\n",
        name(file),
        profile.title,
        profile.cost_table_name(),
        table(&titles, &rows, true)
    ))
}

/// Lines of compare and of replay.
fn runs(file: &Path, text: &str) -> Result<String, Failure> {
    let bad = |line: usize, what: String| {
        Failure::input(format!("{}: line {line}: {what}", file.display()))
    };
    let (mut compared, mut times, mut replayed, mut words) =
        (Vec::new(), Vec::new(), Vec::new(), String::new());
    for (number, line) in text.lines().enumerate() {
        let run: Value = serde_json::from_str(line).map_err(|e| bad(number + 1, e.to_string()))?;
        let head = [&run["input"], &run["strategy"], &run["outcome"]].map(word);
        let count = |value: &Value| value.as_u64().map_or("-".to_owned(), |n| n.to_string());
        if run.get("differences").is_some() {
            let mut row = head.to_vec();
            row.push(count(&run["ops"]));
            for key in ["placements", "driver_calls", "reserved", "failures"] {
                row.push(count(&run["differences"][key]));
            }
            compared.push(row);
            for what in run["differences"]["first"].as_array().into_iter().flatten() {
                words += &format!("- {} through {}: {}\n", head[0], head[1], word(what));
            }
            for one in run["times"].as_array().into_iter().flatten() {
                times.push(time_row(&head, one));
            }
        } else {
            let mut row = head.to_vec();
            row.extend([count(&run["ops"]), count(&run["ooms"])]);
            row.push(
                run["peak_reserved"].as_u64().map_or("-".to_owned(), |b| Bytes(b).to_string()),
            );
            row.push(run["time_ns"].as_u64().map_or("-".to_owned(), |ns| time(ns as f64)));
            replayed.push(row);
        }
    }
    let mut page = String::new();
    if !compared.is_empty() {
        let titles = [
            "input<",
            "strategy<",
            "outcome<",
            "ops",
            "placements",
            "driver calls",
            "reserved",
            "failures",
        ];
        page +=
            &format!("\n## Simulated and real ({})\n\nOps that differ, by what.\n\n", name(file));
        page += &(table(&titles, &compared, true) + "\n");
        if !words.is_empty() {
            page += &format!("\nThe first differences:\n\n{words}");
        }
        let titles = [
            "input<",
            "strategy<",
            "what<",
            "calls",
            "p50 simulated",
            "real",
            "error",
            "p90 simulated",
            "real",
            "error",
        ];
        page += &format!("\n### Times\n\n{}\n", table(&titles, &times, true));
    }
    if !replayed.is_empty() {
        let titles = ["input<", "strategy<", "outcome<", "ops", "ooms", "peak reserved", "time"];
        page += &format!("\n## Replayed ({})\n\n{}\n", name(file), table(&titles, &replayed, true));
    }
    Ok(page)
}

fn time_row(head: &[String; 3], one: &Value) -> Vec<String> {
    let of = |side: &str, key: &str| one[side][key].as_u64().unwrap_or(0);
    let mut row = vec![head[0].clone(), head[1].clone(), word(&one["what"])];
    row.push(of("real", "count").to_string());
    for key in ["p50", "p90"] {
        let (simulated, real) = (of("simulated", key), of("real", key));
        row.extend([time(simulated as f64), time(real as f64)]);
        row.push(crate::compare::error(simulated, real));
    }
    row
}
