//! `vramlab compare MODEL --passes a,b`: one run of the model for each choice of passes, and what it saved and cost beside none.
//!
//! The peak is that of live requests (no strategy can reserve less), then what the strategy reserved. Time per step is simulated, by a roofline of the device:
//! from the first step's forward to the run's end, divided by the steps.

use serde::Serialize;
use vramlab_allocators::Spec;
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::{self, Workload};

use super::compare::{CompareArgs, strategies};
use super::print;
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::inputs::Bad;
use crate::job::{Input, Place, Times};
use crate::output::{Format, Grid, mib, percent, to_csv, to_json};
use crate::row::Row;
use crate::runs;

/// Strategy and model, unless others are named.
const STRATEGY: &str = "torch.caching";
const MODEL: &str = "bert";

/// A model and its parameters.
pub struct Model {
    workload: &'static Workload,
    params: Params,
    make_plan: registry::MakePlan,
}

impl Model {
    /// The model of this name, with parameters set from `key=value`.
    ///
    /// # Errors
    /// When it is no model, or a parameter is unknown.
    pub fn find(name: &str, set: &[String]) -> Result<Self, Failure> {
        let workload = registry::find(name).map_err(Failure::usage)?;
        let Some(make_plan) = workload.plan else {
            let models = registry::WORKLOADS.iter().filter(|w| w.plan.is_some()).map(|w| w.name);
            let models: Vec<&str> = models.collect();
            return Err(Failure::usage(format!(
                "{name} has no graph that passes could change; models: {}",
                models.join(", ")
            )));
        };
        let params = workload.params_from(&set.join(",")).map_err(Failure::usage)?;
        Ok(Self { workload, params, make_plan })
    }

    /// Its plan with these passes, and what each changed.
    ///
    /// # Errors
    /// When a parameter or a pass is refused.
    pub fn plan(
        &self,
        passes: &str,
    ) -> Result<(vramlab_workloads::graph::Plan, Vec<String>), Failure> {
        let (plan, reports) =
            (self.make_plan)(&self.with_passes(passes)?).map_err(Failure::usage)?;
        let changed = |report: &vramlab_workloads::graph::passes::Report| {
            format!("{}: {}", report.pass, report.changed)
        };
        Ok((plan, reports.iter().map(changed).collect()))
    }

    fn with_passes(&self, passes: &str) -> Result<Params, Failure> {
        let mut params = self.params.clone();
        params.set("passes", passes).map_err(Failure::usage)?;
        Ok(params)
    }

    /// Its run with these passes.
    ///
    /// # Errors
    /// When a parameter or a pass is refused.
    pub fn input(&self, passes: &str, rates: Rates) -> Result<Input<'static>, Failure> {
        let (workload, params) = (self.workload, self.with_passes(passes)?);
        let make = move || {
            let source = (workload.build)(&params, 0, &rates).map_err(Failure::usage)?;
            Ok(source as Box<dyn vramlab_sim::Source>)
        };
        make()?;
        Ok(Input {
            seed: Some(0),
            accesses: workload.carries.accesses,
            times: Times::AsGiven,
            ..Input::new(format!("{} {passes}", workload.name), Box::new(make))
        })
    }
}

/// What a choice of passes gave. Sizes are bytes, times ns.
#[derive(Clone, Debug, Serialize)]
struct Gave {
    model: &'static str,
    passes: String,
    strategy: String,
    device: String,
    outcome: &'static str,
    peak_requested: u64,
    peak_reserved: u64,
    step_ns: u64,
    /// Of the peak without passes.
    saved: f64,
    /// Of the reserved peak without passes.
    saved_reserved: f64,
    /// Step time beside that without passes, minus 1.
    slower: f64,
    changed: Vec<String>,
}

/// The choices, `none` first.
fn choices(given: &[String]) -> Vec<&str> {
    let given = given.iter().map(String::as_str).filter(|passes| *passes != "none");
    std::iter::once("none").chain(given).collect()
}

/// Runs what `compare` was asked for with `--passes`.
///
/// # Errors
/// Unknown models, parameters, passes; options that do not go with passes.
pub fn run(args: &CompareArgs, place: &Place, common: &Common) -> Outcome {
    if !args.trace.is_empty() {
        return Err(Failure::usage("--passes change a model's graph, and --trace is a recording"));
    }
    if args.out.is_some() || args.min_capacity || args.seeds > 1 {
        return Err(Failure::usage("--passes stands without --out, --min-capacity and --seeds"));
    }
    let specs = strategies(&args.strategy, &[STRATEGY])?;
    let names: Vec<&str> = match args.workloads.as_slice() {
        [] => vec![MODEL],
        names => names.iter().map(String::as_str).collect(),
    };
    compare(&names, &args.set, &args.passes, &specs, place, common)
}

fn compare(
    names: &[&str],
    set: &[String],
    passes: &[String],
    specs: &[Spec],
    place: &Place,
    common: &Common,
) -> Outcome {
    let mut text = String::new();
    let mut bad = Bad::default();
    let (mut all, mut broke) = (Vec::new(), false);
    let rates = Rates::of(&place.profile);
    for name in names {
        let model = Model::find(name, set)?;
        let mut inputs = Vec::new();
        for passes in choices(passes) {
            inputs.push((passes, model.input(passes, rates)?, model.plan(passes)?.1));
        }
        for spec in specs {
            let pairs: Vec<_> = inputs.iter().map(|(_, input, _)| (input, spec, place)).collect();
            let rows = runs::run_all(&pairs, &mut bad, common.quiet)?;
            broke |= rows.iter().any(Row::broke);
            let mut gave: Vec<Gave> = Vec::new();
            for (row, (passes, _, changed)) in rows.iter().zip(&inputs) {
                if row.ran() {
                    gave.push(one(&model, passes, row, changed.clone(), gave.first()));
                    continue;
                }
                let why = row.reason.as_deref().unwrap_or("no reason given");
                let run = format!("{name}, passes {passes}, through {}", row.strategy);
                bad.add(Failure::input(format!("{run}: {}: {why}", row.outcome)))?;
            }
            text += &table(&gave, common.format == Format::Markdown);
            all.extend(gave);
        }
    }
    print(&match common.format {
        Format::Json => to_json(&all),
        Format::Csv => to_csv(&all),
        Format::Table | Format::Markdown => text,
    })?;
    runs::end(&bad, all.is_empty(), broke, Code::Done)
}

fn one(model: &Model, passes: &str, row: &Row, changed: Vec<String>, none: Option<&Gave>) -> Gave {
    let begin = row.marks.iter().find(|mark| mark.name.starts_with("step 0 "));
    let begin = begin.map_or(0, |mark| mark.time_ns);
    let steps = model.params.text("steps").parse().unwrap_or(1_u64);
    let step_ns = row.time_ns.saturating_sub(begin) / steps.max(1);
    let part = |mine: u64, of: fn(&Gave) -> u64| {
        none.map_or(1.0, |none| mine as f64 / of(none).max(1) as f64)
    };
    Gave {
        model: model.workload.name,
        passes: passes.to_owned(),
        strategy: row.strategy.clone(),
        device: row.device.clone(),
        outcome: row.outcome,
        peak_requested: row.live_floor,
        peak_reserved: row.peak_reserved,
        step_ns,
        saved: 1.0 - part(row.live_floor, |none| none.peak_requested),
        saved_reserved: 1.0 - part(row.peak_reserved, |none| none.peak_reserved),
        slower: part(step_ns, |none| none.step_ns) - 1.0,
        changed,
    }
}

fn table(gave: &[Gave], markdown: bool) -> String {
    let Some(first) = gave.first() else { return String::new() };
    let mut heading = format!("{} through {}, on {}", first.model, first.strategy, first.device);
    if markdown {
        heading = format!("### {heading}\n");
    }
    let mut grid = Grid::new(&[
        "passes<",
        "outcome<",
        "peak MiB",
        "saved",
        "reserved MiB",
        "saved",
        "ms/step",
        "time",
    ]);
    for (i, one) in gave.iter().enumerate() {
        let against = |value: f64| if i == 0 { "-".to_owned() } else { percent(Some(value)) };
        grid.row(vec![
            one.passes.clone(),
            one.outcome.to_owned(),
            mib(one.peak_requested),
            against(one.saved),
            mib(one.peak_reserved),
            against(one.saved_reserved),
            format!("{:.1}", one.step_ns as f64 / 1e6),
            if i == 0 { "-".to_owned() } else { format!("{:+.1} %", one.slower * 100.0) },
        ]);
    }
    let mut text = format!("{heading}\n{}\n", grid.print(markdown));
    text += "\n";
    for one in gave {
        for changed in &one.changed {
            let several = one.passes.contains('+');
            let before = if several { format!("{}: ", one.passes) } else { String::new() };
            text += &format!("{}{before}{changed}\n", if markdown { "- " } else { "" });
        }
    }
    text + "\n"
}
