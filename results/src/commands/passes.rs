//! `vramlab compare MODEL --passes a,b`: one run of the model for each choice of passes, and what it saved and cost beside none.
//!
//! The peak is that of live requests (no strategy can reserve less), then what the strategy reserved. Time per step is simulated, by a roofline of the device:
//! of the steps after the first; in decoding from the first prompt, when the model is loaded, by the tokens of each sequence.
//!
//! A choice that is refused is a row with the reason, and the others run. A run that went out of memory has no figures: what it held and how long it took is
//! not that of the whole run.

mod table;

use std::path::Path;

use vramlab_allocators::Spec;
use vramlab_workloads::graph::{Plan, listing, passes};
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::registry::{self, Workload};

use super::compare::{CompareArgs, strategies};
use super::{print, remark};
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::frame::metrics;
use crate::inputs::Bad;
use crate::job::{Input, Place};
use crate::made;
use crate::output::{Format, to_csv, to_json, write_whole};
use crate::row::Row;
use crate::runs;
use table::{Base, Gave, table};

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
        if set
            .iter()
            .flat_map(|pairs| pairs.split(','))
            .any(|pair| pair.trim().starts_with("passes="))
        {
            let what = "--set passes=…: passes are given with --passes here, each choice beside the run without any";
            return Err(Failure::usage(what));
        }
        Ok(Self { workload, params, make_plan })
    }

    /// Its plan with these passes, and what each changed.
    ///
    /// # Errors
    /// When a parameter or a pass is refused.
    pub fn plan(&self, passes: &str) -> Result<(Plan, Vec<String>), Failure> {
        let (plan, reports) =
            (self.make_plan)(&self.with_passes(passes)?).map_err(Failure::usage)?;
        let changed = |report: &passes::Report| format!("{}: {}", report.pass, report.changed);
        Ok((plan, reports.iter().map(changed).collect()))
    }

    /// Says which of its parameters do nothing.
    pub fn remark_idle(&self, quiet: bool) {
        made::remark_idle(self.workload, &self.params, quiet);
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
        let name = format!("{} {passes}", self.workload.name);
        made::input(self.workload, &self.with_passes(passes)?, 0, &rates, &name)
    }
}

/// The choices, `none` first, each once.
fn choices(given: &[String]) -> Vec<&str> {
    let mut all = vec!["none"];
    for passes in given {
        if !all.contains(&passes.as_str()) {
            all.push(passes);
        }
    }
    all
}

/// A choice of passes that can be run.
struct Choice<'a> {
    passes: &'a str,
    input: Input<'static>,
    plan: Plan,
    changed: Vec<String>,
}

/// What is asked for with `--passes`, beside the models.
struct Asked<'a> {
    args: &'a CompareArgs,
    specs: Vec<Spec>,
    place: Place,
}

/// Runs what `compare` was asked for with `--passes`.
///
/// # Errors
/// Unknown models, parameters, passes; options that do not go with passes.
pub fn run(args: &CompareArgs, place: &Place, common: &Common) -> Outcome {
    if !args.trace.is_empty() {
        return Err(Failure::usage("--passes change a model's graph, and --trace is a recording"));
    }
    if args.seeds > 1 {
        return Err(Failure::usage(
            "--passes stands without --seeds: a model's steps are the same for every seed",
        ));
    }
    if let Some(out) = &args.out {
        // found out before the work, not after it
        std::fs::create_dir_all(out).map_err(|e| Failure::write(out, &e).with_option("--out"))?;
    }
    for choice in &args.passes {
        passes::parse(choice).map_err(Failure::usage)?;
    }
    let place = Place { min_capacity: args.min_capacity, ..place.clone() };
    let asked = Asked { args, specs: strategies(&args.strategy, &[STRATEGY])?, place };
    let names: Vec<&str> = match args.workloads.as_slice() {
        [] => vec![MODEL],
        names => names.iter().map(String::as_str).collect(),
    };
    let mut bad = Bad::default();
    let (mut tables, mut broke) = (Vec::new(), false);
    for name in names {
        let (mut of_model, partial) = asked.compare(name, &mut bad, common)?;
        tables.append(&mut of_model);
        broke |= partial;
    }
    let all: Vec<Gave> = tables.concat();
    let text = |format: Format| match format {
        Format::Json => to_json(&all),
        Format::Csv => to_csv(&all),
        Format::Table | Format::Markdown | Format::Latex => format.words(|markdown| {
            tables.iter().map(|gave| table(gave, &asked.place, markdown)).collect()
        }),
    };
    print(&text(common.format))?;
    if let Some(out) = &args.out {
        write(out, text, common)?;
    }
    let nothing = !all.iter().any(|gave| gave.refused.is_none());
    runs::end(&bad, nothing, broke, Code::Done)
}

/// Writes the same in all formats.
fn write(out: &Path, text: impl Fn(Format) -> String, common: &Common) -> Result<(), Failure> {
    for (name, format) in [("json", Format::Json), ("csv", Format::Csv), ("md", Format::Markdown)] {
        write_whole(&out.join(format!("compare.{name}")), text(format).as_bytes())?;
    }
    if !common.quiet {
        remark(&format!(
            "written: {0}/compare.json, {0}/compare.csv, {0}/compare.md",
            out.display()
        ));
    }
    Ok(())
}

impl Asked<'_> {
    /// What each choice gave, through each strategy; and whether something is missing.
    fn compare(
        &self,
        name: &str,
        bad: &mut Bad,
        common: &Common,
    ) -> Result<(Vec<Vec<Gave>>, bool), Failure> {
        let model = Model::find(name, &self.args.set)?;
        model.remark_idle(common.quiet);
        let rates = Rates::of(&self.place.profile);
        let (mut ready, mut refused) = (Vec::new(), Vec::new());
        for passes in choices(&self.args.passes) {
            let made = model.plan(passes).and_then(|(plan, changed)| {
                Ok(Choice { passes, input: model.input(passes, rates)?, plan, changed })
            });
            match made {
                Ok(choice) => ready.push(choice),
                // without passes it is the model that is wrong
                Err(failure) if passes == "none" => return Err(failure),
                Err(failure) => refused.push((passes, failure.message)),
            }
        }
        let (mut tables, mut broke) = (Vec::new(), !refused.is_empty());
        for spec in &self.specs {
            let pairs: Vec<_> = ready.iter().map(|c| (&c.input, spec, &self.place)).collect();
            let rows = runs::run_all(&pairs, bad, common.quiet)?;
            broke |= rows.iter().any(Row::broke);
            let mut gave: Vec<Gave> = Vec::new();
            let mut base: Option<Base> = None;
            for (row, choice) in rows.iter().zip(&ready) {
                if !row.ran() {
                    let why = row.reason.as_deref().unwrap_or("no reason given");
                    let run = format!("{name}, passes {}, through {}", choice.passes, row.strategy);
                    bad.add(Failure::input(format!("{run}: {}: {why}", row.outcome)))?;
                    continue;
                }
                let one = self.one(&model, choice, row, base.as_ref())?;
                if choice.passes == "none" {
                    base = Some(Base::of(&one));
                }
                gave.push(one);
            }
            if let Some(first) = gave.first().cloned() {
                let left = refused.iter().map(|(passes, why)| first.refused(passes, why));
                gave.extend(left);
                // as they were asked for
                let order = choices(&self.args.passes);
                gave.sort_by_key(|one| order.iter().position(|passes| *passes == one.passes));
            }
            tables.push(gave);
        }
        Ok((tables, broke))
    }

    fn one(
        &self,
        model: &Model,
        choice: &Choice<'_>,
        row: &Row,
        base: Option<&Base>,
    ) -> Result<Gave, Failure> {
        let run = &choice.plan.run;
        let (per, step_ns) = match run.tokens {
            0 => ("step", metrics::step_ns(row).map(|(_, ns)| ns)),
            tokens => {
                ("token", from(row, run.mark.as_deref().unwrap_or_default()).map(|ns| ns / tokens))
            }
        };
        let done = row.outcome == "ok";
        let figure = |value: u64| done.then_some(value);
        let devices = run.spread.devices();
        let exchanged = match devices {
            1 => 0,
            _ => listing::exchanged(&choice.plan).map_err(Failure::usage)?,
        };
        let gave = Gave {
            model: model.workload.name,
            passes: choice.passes.to_owned(),
            strategy: row.strategy.clone(),
            device: row.device.clone(),
            capacity: row.capacity,
            outcome: row.outcome,
            refused: None,
            peak_requested: figure(row.live_floor),
            peak_reserved: figure(row.peak_reserved),
            min_capacity: row.min_capacity,
            per,
            step_ns: step_ns.filter(|_| done),
            saved: None,
            saved_reserved: None,
            slower: None,
            devices,
            exchanged_bytes: exchanged,
            changed: choice.changed.clone(),
        };
        Ok(gave.beside(base))
    }
}

/// From the first mark that begins so to the run's end (ns).
fn from(row: &Row, mark: &str) -> Option<u64> {
    let begin = row.marks.iter().find(|known| known.name.starts_with(mark))?;
    Some(row.time_ns.saturating_sub(begin.time_ns))
}
