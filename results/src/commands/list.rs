//! `vramlab list`: what there is.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use vramlab_allocators::registry::WRAPPERS;
use vramlab_allocators::{OptionDoc, STRATEGIES};
use vramlab_sim::units::Bytes;
use vramlab_workloads::graph::passes::PASSES;
use vramlab_workloads::readers::format::{Carries, FORMATS};
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
    Passes,
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

/// Runs the command.
///
/// # Errors
/// None today; the type is that of every command.
pub fn run(args: &ListArgs, common: &Common) -> Outcome {
    let all = [What::Strategies, What::Workloads, What::Devices, What::Formats, What::Passes];
    let kinds: Vec<What> = args.what.map_or(all.to_vec(), |w| vec![w]);
    let records: Vec<(What, Vec<Value>)> =
        kinds.into_iter().map(|kind| (kind, entries(kind))).collect();
    let text = match common.format {
        Format::Json => to_json(&records.into_iter().flat_map(|(_, r)| r).collect::<Vec<_>>()),
        Format::Csv => to_csv(&records.into_iter().flat_map(|(_, r)| r).collect::<Vec<_>>()),
        Format::Table | Format::Markdown | Format::Latex => common.format.words(|markdown| {
            records
                .iter()
                .map(|(kind, r)| grid(*kind, r, args.options, markdown))
                .collect::<Vec<_>>()
                .join("\n")
        }),
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
        What::Formats => FORMATS
            .iter()
            .map(|doc| {
                let carries = match doc.carries {
                    Carries::Ops => "replayed",
                    Carries::Requests => "requests",
                    Carries::Sizes => "sizes",
                    Carries::State => "inspected",
                };
                json!({"kind": "format", "name": doc.name, "carries": carries, "summary": doc.summary, "options": []})
            })
            .collect(),
        What::Passes => PASSES
            .iter()
            .map(|pass| {
                json!({"kind": "pass", "name": pass.name, "takes": pass.options, "summary": pass.summary, "options": []})
            })
            .collect(),
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
        What::Formats => "format (.gz and .zst too)<",
        What::Passes => "pass<",
    };
    // What stands between name and summary, where something does.
    let between = match kind {
        What::Strategies => Some(("checked<", "status")),
        What::Formats => Some(("is<", "carries")),
        What::Passes => Some(("takes after =<", "takes")),
        What::Workloads | What::Devices => None,
    };
    let mut grid = match between {
        Some((heading, _)) => Grid::new(&[title, heading, "what it is<"]),
        None => Grid::new(&[title, "what it is<"]),
    };
    for record in records {
        let mut row = vec![text(&record["name"]), text(&record["summary"])];
        if let Some((_, key)) = between {
            row.insert(1, text(&record[key]));
        }
        grid.row(row);
        for option in record["options"].as_array().into_iter().flatten().filter(|_| with_options) {
            let mut row = vec![
                format!("  {}={}", text(&option["name"]), text(&option["default"])),
                text(&option["help"]),
            ];
            if between.is_some() {
                row.insert(1, String::new());
            }
            grid.row(row);
        }
    }
    grid.print(markdown) + "\n"
}
