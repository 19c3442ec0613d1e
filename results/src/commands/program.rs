//! `vramlab inspect MODEL`: what a step of a model runs, by operator, before and after passes.

use serde::Serialize;
use vramlab_workloads::graph::listing::{self, Line, Sum};
use vramlab_workloads::rates::Rates;

use super::passes::Model;
use super::print;
use crate::cli::Common;
use crate::failure::{Code, Failure, Outcome};
use crate::job::Place;
use crate::output::{Format, Grid, mib, to_csv, to_json};

/// Device of the times, unless another is named.
const DEVICE: &str = "a100-80gb";

/// Operators of one name in one phase. Sizes are bytes, times ns.
#[derive(Debug, Serialize)]
struct Operators {
    model: String,
    passes: String,
    phase: String,
    operator: &'static str,
    kernels: u64,
    made_bytes: u64,
    moved_bytes: u64,
    gflop: f64,
    ns: u64,
}

/// One kernel, in order.
#[derive(Debug, Serialize)]
struct Kernel {
    passes: String,
    #[serde(flatten)]
    line: Flat,
}

#[derive(Debug, Serialize)]
struct Flat {
    phase: String,
    operator: &'static str,
    scope: String,
    made_bytes: u64,
    scratch_bytes: u64,
    moved_bytes: u64,
    gflop: f64,
    ns: u64,
}

/// What is asked for.
pub struct Asked<'a> {
    /// The model's name.
    pub name: &'a str,
    /// Its parameters.
    pub set: &'a [String],
    /// Choices of passes; the program without any is shown beside each.
    pub passes: &'a [String],
    /// Device of the times.
    pub device: Option<&'a str>,
    /// Every kernel, not only sums.
    pub each: bool,
}

/// Prints them.
///
/// # Errors
/// Unknown models, parameters, passes, devices.
pub fn inspect(asked: &Asked<'_>, common: &Common) -> Outcome {
    let model = Model::find(asked.name, asked.set)?;
    model.remark_idle(common.quiet);
    let rates = Rates::of(&Place::new(asked.device.unwrap_or(DEVICE), None)?.profile);
    let lines = |passes: &str| -> Result<(Vec<Line>, Vec<String>), Failure> {
        let (plan, changed) = model.plan(passes)?;
        Ok((listing::lines(&plan, &rates).map_err(Failure::usage)?, changed))
    };
    let (before, _) = lines("none")?;
    let mut programs = vec![("none", before, Vec::new())];
    for passes in asked.passes.iter().filter(|passes| *passes != "none") {
        let (after, changed) = lines(passes)?;
        programs.push((passes.as_str(), after, changed));
    }
    print(&match common.format {
        Format::Json if asked.each => to_json(&kernels(&programs)),
        Format::Csv if asked.each => to_csv(&kernels(&programs)),
        Format::Json => to_json(&operators(asked.name, &programs)),
        Format::Csv => to_csv(&operators(asked.name, &programs)),
        Format::Table | Format::Markdown | Format::Latex => common.format.words(|markdown| {
            let shown = programs.iter().skip(usize::from(programs.len() > 1));
            let text = |(passes, after, changed): &(&str, Vec<_>, Vec<_>)| {
                let mut text = page(asked.name, passes, &programs[0].1, after, markdown);
                text.extend(changed.iter().map(|line| format!("{line}\n")));
                if asked.each {
                    text += &format!("\n{}\n", each(after, markdown));
                }
                text
            };
            shown.map(text).collect::<Vec<_>>().join("\n")
        }),
    })?;
    Ok(Code::Done)
}

type Program<'a> = (&'a str, Vec<Line>, Vec<String>);

fn operators(name: &str, programs: &[Program<'_>]) -> Vec<Operators> {
    let of = |(passes, lines, _): &Program<'_>| {
        listing::by_name(lines)
            .into_iter()
            .map(|(phase, operator, sum)| Operators {
                model: name.to_owned(),
                passes: (*passes).to_owned(),
                phase,
                operator,
                kernels: sum.kernels,
                made_bytes: sum.made_bytes,
                moved_bytes: sum.moved_bytes,
                gflop: sum.flops / 1e9,
                ns: sum.ns,
            })
            .collect::<Vec<_>>()
    };
    programs.iter().flat_map(of).collect()
}

fn kernels(programs: &[Program<'_>]) -> Vec<Kernel> {
    let of = |line: &Line| Flat {
        phase: line.phase.clone(),
        operator: line.name,
        scope: line.scope.clone(),
        made_bytes: line.made_bytes,
        scratch_bytes: line.scratch_bytes,
        moved_bytes: line.moved_bytes,
        gflop: line.flops / 1e9,
        ns: line.ns,
    };
    let all = |(passes, lines, _): &Program<'_>| {
        let kernel = |line| Kernel { passes: (*passes).to_owned(), line: of(line) };
        lines.iter().map(kernel).collect::<Vec<_>>()
    };
    programs.iter().flat_map(all).collect()
}

/// Operators before and after, by phase.
fn page(name: &str, passes: &str, before: &[Line], after: &[Line], markdown: bool) -> String {
    let (before, after) = (listing::by_name(before), listing::by_name(after));
    let mut names: Vec<(&str, &'static str)> = Vec::new();
    for (phase, operator, _) in before.iter().chain(&after) {
        if !names.contains(&(phase.as_str(), *operator)) {
            names.push((phase.as_str(), *operator));
        }
    }
    let order = |phase: &str| after.iter().position(|(other, ..)| other == phase);
    names.sort_by_key(|(phase, operator)| (order(phase), *operator));
    let find = |list: &[(String, &'static str, Sum)], phase: &str, operator: &str| {
        let found = list.iter().find(|(p, o, _)| p == phase && *o == operator);
        found.map(|(_, _, sum)| *sum).unwrap_or_default()
    };
    let mut grid =
        Grid::new(&["phase<", "operator<", "kernels", "after", "made MiB", "after", "ms", "after"]);
    let mut total = [Sum::default(); 2];
    let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    let mut row = |phase: &str, operator: &str, [a, b]: [Sum; 2]| {
        let counts = [a.kernels, b.kernels].map(|n| n.to_string());
        let made = [a.made_bytes, b.made_bytes].map(mib);
        let times = [a.ns, b.ns].map(ms);
        let mut cells = vec![phase.to_owned(), operator.to_owned()];
        cells.extend(counts.into_iter().chain(made).chain(times));
        grid.row(cells);
    };
    for (phase, operator) in names {
        let both = [find(&before, phase, operator), find(&after, phase, operator)];
        for (total, one) in total.iter_mut().zip(&both) {
            total.kernels += one.kernels;
            total.made_bytes = total.made_bytes.saturating_add(one.made_bytes);
            total.ns = total.ns.saturating_add(one.ns);
        }
        row(phase, operator, both);
    }
    row("all", "", total);
    let heading = if markdown { "### " } else { "" };
    format!(
        "{heading}{name}, a step after the first, without passes and with {passes}\n\n{}\n",
        grid.print(markdown)
    )
}

/// Every kernel, in order.
fn each(lines: &[Line], markdown: bool) -> String {
    let mut grid =
        Grid::new(&["phase<", "scope<", "operator<", "made MiB", "scratch MiB", "moved MiB", "µs"]);
    for line in lines {
        grid.row(vec![
            line.phase.clone(),
            line.scope.clone(),
            line.name.to_owned(),
            mib(line.made_bytes),
            mib(line.scratch_bytes),
            mib(line.moved_bytes),
            format!("{:.1}", line.ns as f64 / 1e3),
        ]);
    }
    grid.print(markdown)
}
