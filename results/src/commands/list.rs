//! `vramlab list`: what there is.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use vramlab_allocators::registry::WRAPPERS;
use vramlab_allocators::{OptionDoc, STRATEGIES};
use vramlab_sim::units::Bytes;
use vramlab_workloads::registry::WORKLOADS;

use super::print;
use crate::cli::Common;
use crate::failure::{Code, Outcome};
use crate::job::profile;
use crate::output::{Format, Grid, to_csv, to_json};

/// What to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum What {
    Strategies,
    Workloads,
    Devices,
    Formats,
}

/// Arguments.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// One kind only.
    #[arg(value_enum)]
    what: Option<What>,
    /// With every option and its default.
    #[arg(long)]
    options: bool,
}

/// Recorded formats that are read, with what each carries.
const FORMATS: [(&str, &str); 3] = [
    ("vramlab JSON Lines", "every op of ours; .gz and .zst too"),
    (
        "PyTorch snapshot, pickle",
        "requests, frees, segments, settings, stacks; no work, no uses; .gz and .zst too",
    ),
    ("PyTorch snapshot, JSON", "the same content as JSON"),
];

/// Runs the command.
///
/// # Errors
/// None today; the type is that of every command.
pub fn run(args: &ListArgs, common: &Common) -> Outcome {
    let all = [What::Strategies, What::Workloads, What::Devices, What::Formats];
    let kinds: Vec<What> = args.what.map_or(all.to_vec(), |w| vec![w]);
    let records: Vec<(What, Vec<Value>)> =
        kinds.into_iter().map(|kind| (kind, entries(kind))).collect();
    let text = match common.format {
        Format::Json => to_json(&records.into_iter().flat_map(|(_, r)| r).collect::<Vec<_>>()),
        Format::Csv => to_csv(&records.into_iter().flat_map(|(_, r)| r).collect::<Vec<_>>()),
        Format::Table | Format::Markdown => {
            let markdown = common.format == Format::Markdown;
            records
                .iter()
                .map(|(kind, r)| grid(*kind, r, args.options, markdown))
                .collect::<Vec<_>>()
                .join("\n")
        }
    };
    print(&text)?;
    Ok(Code::Done)
}

fn entries(kind: What) -> Vec<Value> {
    match kind {
        What::Strategies => strategies(),
        What::Workloads => WORKLOADS
            .iter()
            .map(|w| {
                let options: Vec<Value> = w
                    .params
                    .iter()
                    .map(|p| json!({"name": p.name, "default": p.default, "help": format!("{} [{}]", p.help, p.unit)}))
                    .collect();
                json!({"kind": "workload", "name": w.name, "summary": w.summary, "options": options})
            })
            .collect(),
        What::Devices => profile::devices()
            .iter()
            .map(|d| {
                let summary = format!("{}, context {}; costs {}", Bytes(d.options.capacity), Bytes(d.options.context), d.cost_table_name());
                json!({"kind": "device", "name": d.name, "summary": summary, "options": []})
            })
            .collect(),
        What::Formats => {
            FORMATS.iter().map(|(name, carries)| json!({"kind": "format", "name": name, "summary": carries, "options": []})).collect()
        }
    }
}

/// The strategies, then the wrappers as they are joined to a name.
fn strategies() -> Vec<Value> {
    let options = |docs: &[OptionDoc]| -> Vec<Value> {
        docs.iter().map(|o| json!({"name": o.name, "default": o.default, "help": o.help})).collect()
    };
    let strategies = STRATEGIES.iter().map(|s| {
        json!({"kind": "strategy", "name": s.name, "status": s.status.to_string(), "summary": s.summary, "options": options(s.options)})
    });
    let wrappers = WRAPPERS.iter().map(|w| {
        json!({"kind": "wrapper", "name": format!("+{}", w.name), "status": w.status.to_string(), "summary": w.summary, "options": options(w.options)})
    });
    strategies.chain(wrappers).collect()
}

fn grid(kind: What, records: &[Value], with_options: bool, markdown: bool) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let title = match kind {
        What::Strategies => "strategy<",
        What::Workloads => "workload<",
        What::Devices => "device<",
        What::Formats => "format<",
    };
    let status = kind == What::Strategies;
    let mut grid = if status {
        Grid::new(&[title, "checked<", "what it is<"])
    } else {
        Grid::new(&[title, "what it is<"])
    };
    for record in records {
        let mut row = vec![text(&record["name"]), text(&record["summary"])];
        if status {
            row.insert(1, text(&record["status"]));
        }
        grid.row(row);
        for option in record["options"].as_array().into_iter().flatten().filter(|_| with_options) {
            let mut row = vec![
                format!("  {}={}", text(&option["name"]), text(&option["default"])),
                text(&option["help"]),
            ];
            if status {
                row.insert(1, String::new());
            }
            grid.row(row);
        }
    }
    grid.print(markdown) + "\n"
}
