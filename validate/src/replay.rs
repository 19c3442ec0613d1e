//! `replay`: workloads and recordings through strategies, on the driver.

use clap::Args;
use serde::Serialize;
use vramlab_allocators::Spec;
use vramlab_sim::report::Summary;
use vramlab_sim::units::Bytes;

use crate::failure::{Code, Failure, Outcome};
use crate::inputs::Input;
use crate::machine::{CudaMachine, Wanted};
use crate::options::RunArgs;
use crate::output::{Format, print, remark, table, time, write_whole};
use crate::plugin::{self, PluginArgs};
use crate::run::{How, Ran, run};
use crate::stop::Stop;
use crate::watch::{Listener, Step};

/// Version of the JSON objects' shape.
const SCHEMA: u32 = 1;

/// Arguments.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    plugin: PluginArgs,
}

/// What a run gave. Sizes are bytes, times ns.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Row {
    schema: u32,
    vramlab: &'static str,
    input: String,
    strategy: String,
    /// `ok`, `oom`, `skipped`, `driver_error`, `stopped`.
    outcome: &'static str,
    reason: Option<String>,
    limit: u64,
    ops: u64,
    ooms: u64,
    live_floor: u64,
    peak_reserved: u64,
    alloc_ns: Summary,
    time_ns: u64,
    driver_calls: std::collections::BTreeMap<&'static str, u64>,
    call_ns: std::collections::BTreeMap<&'static str, Summary>,
}

/// Nobody listens.
pub(crate) struct Silence;

impl Listener for Silence {
    fn hear(&mut self, _op: u64, _name: &'static str, _step: Step) {}
}

/// Runs the command.
pub(crate) fn command(args: &ReplayArgs, format: Format, stop: &Stop) -> Outcome {
    if let Some(library) = &args.plugin.plugin {
        return plugin::command(library, &args.plugin, &args.run, format, stop);
    }
    let args = &args.run;
    let profile = args.profile()?;
    let (inputs, specs) = (args.inputs(&profile)?, args.specs()?);
    let mut rows = Vec::new();
    for (input, spec) in inputs.iter().flat_map(|input| specs.iter().map(move |spec| (input, spec)))
    {
        if !stop.asked() {
            rows.push(row(input, spec, args, stop)?);
        }
    }
    show(&rows, args, format, stop)
}

/// Prints rows and ends the command.
pub(crate) fn show(rows: &[Row], args: &RunArgs, format: Format, stop: &Stop) -> Outcome {
    let json = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
    let json = json.map_err(|e| Failure::new(Code::CannotWrite, e))?.join("\n") + "\n";
    match format {
        Format::Json => print(&json)?,
        format => print(&text(rows, format == Format::Markdown))?,
    }
    if let Some(path) = &args.out {
        write_whole(path, &json)?;
    }
    if stop.asked() {
        remark("stopped; everything was given back");
    }
    let broke = rows.iter().any(|row| row.outcome == "driver_error");
    Ok(if stop.asked() || broke { Code::Partial } else { Code::Done })
}

fn row(input: &Input, spec: &Spec, args: &RunArgs, stop: &Stop) -> Result<Row, Failure> {
    let wanted = Wanted { devices: input.devices, limit: args.limit(), with_work: args.with_work };
    let mut machine = CudaMachine::open(wanted)?;
    let how = How { devices: machine.count(), host_ns: 0, with_work: args.with_work };
    let mut row = Row::new(input, spec.to_string(), machine.limit());
    row.fill(run(input, spec, &mut machine, how, &mut Silence, stop)?, stop);
    row.close(&mut machine);
    Ok(row)
}

impl Row {
    pub(crate) fn new(input: &Input, strategy: String, limit: u64) -> Self {
        Self {
            schema: SCHEMA,
            vramlab: env!("CARGO_PKG_VERSION"),
            input: input.name.clone(),
            strategy,
            limit,
            ..Self::default()
        }
    }

    /// What came of the run.
    pub(crate) fn fill(&mut self, ran: Ran, stop: &Stop) {
        match ran {
            Ran::Skipped(why) => (self.outcome, self.reason) = ("skipped", Some(why.to_owned())),
            Ran::Ended(why) => (self.outcome, self.reason) = ("driver_error", Some(why)),
            Ran::Done(report, times) => {
                self.outcome = match report.ooms {
                    _ if stop.asked() => "stopped",
                    0 => "ok",
                    _ => "oom",
                };
                self.reason.clone_from(&report.first_oom);
                (self.ops, self.ooms, self.time_ns) = (report.ops, report.ooms, report.time.0);
                self.live_floor = report.total.live_floor();
                self.peak_reserved = report.total.reserved.peak;
                self.alloc_ns = report.alloc_ns;
                self.driver_calls = report.driver_calls.iter().collect();
                self.call_ns = times.into_iter().collect();
            }
        }
    }

    /// Gives everything back.
    pub(crate) fn close(&mut self, machine: &mut CudaMachine) {
        if let Err(refusal) = machine.close() {
            let (call, error) = (refusal.call, refusal.error());
            let why = format!("{call} answered {error} while things were given back");
            (self.outcome, self.reason) = ("driver_error", Some(why));
        }
    }
}

fn text(rows: &[Row], markdown: bool) -> String {
    let titles = [
        "input<",
        "strategy<",
        "outcome<",
        "ops",
        "ooms",
        "live floor",
        "peak reserved",
        "alloc p50",
        "p99",
        "driver calls",
        "time",
    ];
    let cells = |row: &Row| {
        vec![
            row.input.clone(),
            row.strategy.clone(),
            row.outcome.to_owned(),
            row.ops.to_string(),
            row.ooms.to_string(),
            Bytes(row.live_floor).to_string(),
            Bytes(row.peak_reserved).to_string(),
            time(row.alloc_ns.p50 as f64),
            time(row.alloc_ns.p99 as f64),
            row.driver_calls.values().sum::<u64>().to_string(),
            time(row.time_ns as f64),
        ]
    };
    let mut text = table(&titles, &rows.iter().map(cells).collect::<Vec<_>>(), markdown) + "\n";
    for row in rows.iter().filter(|row| row.reason.is_some()) {
        let reason = row.reason.as_deref().unwrap_or_default();
        text += &format!("\n{} through {}: {}: {reason}\n", row.input, row.strategy, row.outcome);
    }
    text
}
