//! Ours beside measured, as lines.

use rayon::prelude::*;
use serde::Serialize;

use super::fit::{self, Fit, Rule, SEEN, fit};
use super::recorded::{Run, Times};
use super::rerun::{RESERVE, RESERVE_ROUNDING, Rerun, rerun, rerun_with};
use crate::failure::Failure;
use crate::output::Grid;

/// One quantity of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The run.
    pub run: String,
    /// What is compared.
    pub quantity: String,
    /// Its unit.
    pub unit: &'static str,
    /// As it was measured; nothing where it was not.
    pub measured: Option<f64>,
    /// Ours, with a straight line for step times, fitted on the first requests of the run ([`Rule::Line`]).
    pub fitted: Option<f64>,
    /// Its error, as a share of what was measured.
    pub fitted_error: Option<f64>,
    /// Ours, with the other rule fitted on them ([`Rule::Longer`]).
    pub longer: Option<f64>,
    /// Its error.
    pub longer_error: Option<f64>,
    /// Ours, with the line that was fitted on another card's run of the same model, by what the two cards' data sheets have in common.
    pub carried: Option<f64>,
    /// Its error.
    pub carried_error: Option<f64>,
    /// Ours, with step times from the card's data sheet alone.
    pub roofline: Option<f64>,
    /// Its error.
    pub roofline_error: Option<f64>,
}

impl Line {
    fn new(
        run: &Run,
        quantity: impl Into<String>,
        unit: &'static str,
        measured: Option<f64>,
        ours: Ours<Option<f64>>,
    ) -> Self {
        Self::paired(run, quantity, unit, measured, ours.map(|ours| ours.map(|o| (o, measured))))
    }

    /// Each of ours with what was measured of the same requests, which its error refers to.
    fn paired(
        run: &Run,
        quantity: impl Into<String>,
        unit: &'static str,
        measured: Option<f64>,
        ours: Ours<Option<(f64, Option<f64>)>>,
    ) -> Self {
        let error = |pair: Option<(f64, Option<f64>)>| {
            let (ours, measured) = pair?;
            Some(ours / measured.filter(|measured| *measured != 0.0)? - 1.0)
        };
        let errors = ours.map(error);
        let [fitted, longer, carried, roofline] = ours.map(|pair| pair.map(|pair| pair.0));
        Self {
            run: run.name.clone(),
            quantity: quantity.into(),
            unit,
            measured,
            fitted,
            fitted_error: errors[0],
            longer,
            longer_error: errors[1],
            carried,
            carried_error: errors[2],
            roofline,
            roofline_error: errors[3],
        }
    }
}

/// By the line, by the longer, carried over from another card, by the roofline.
type Ours<T> = [T; 4];

/// What of a request is compared: its name, and how it is taken.
type Latency = (&'static str, fn(&Times) -> Option<f64>);

const LATENCIES: [Latency; 3] = [
    ("ttft", |times| Some(times.ttft as f64)),
    ("tpot", Times::tpot),
    ("e2e", |times| Some(times.e2e as f64)),
];

/// All lines of all runs.
///
/// # Errors
/// A run that cannot be rerun.
pub fn lines(runs: &[Run]) -> Result<Vec<Line>, Failure> {
    let fits: Vec<[Fit; 2]> = runs
        .par_iter()
        .map(|run| Ok([fit(run, Rule::Line)?, fit(run, Rule::Longer)?]))
        .collect::<Result<_, Failure>>()?;
    let with = |(run, [line, longer]): (&Run, &[Fit; 2])| {
        let other = runs
            .iter()
            .zip(&fits)
            .find(|(other, _)| other.model == run.model && other.device.name != run.device.name);
        let carried = other.map(|(other, [line, _])| fit::carried(line, other, run));
        of_run(run, [Some(*line), Some(*longer), carried, Some(fit::bare(run))])
    };
    let lines: Vec<Vec<Line>> =
        runs.par_iter().zip(&fits).map(with).collect::<Result<_, Failure>>()?;
    Ok(lines.into_iter().flatten().collect())
}

fn of_run(run: &Run, fits: Ours<Option<Fit>>) -> Result<Vec<Line>, Failure> {
    let [a, b, c, d] =
        fits.map(|fit| fit.map(|fit| rerun(run, &fit.step(), usize::MAX)).transpose());
    let reruns = [a?, b?, c?, d?];
    let mut lines = capacities(run, &fits)?;
    lines.extend(constants(run, &fits));
    lines.extend(latencies(run, &reruns));
    lines.extend(curve(run, &reruns));
    Ok(lines)
}

/// Blocks of the cache (the null block with them) at both ends of what is known of the bytes beside the weights.
fn capacities(run: &Run, fits: &Ours<Option<Fit>>) -> Result<Vec<Line>, Failure> {
    let measured = run.blocks.map(|blocks| blocks as f64);
    let at = |reserve: u64| -> Result<Line, Failure> {
        // the cache has its blocks before the first request: one is enough
        let blocks = match fits.iter().flatten().next() {
            Some(fit) => blocks(&rerun_with(run, &fit.step(), 1, reserve)?),
            None => None,
        };
        let ours = fits.map(|fit| fit.and(blocks));
        let cards = match run.copies {
            1 => String::new(),
            copies => format!(" of {copies} cards together"),
        };
        let of_each = if run.copies > 1 { " of each" } else { "" };
        let gb = reserve as f64 / 1e9;
        let quantity = format!("{CAPACITY}{cards}, {gb:.3} GB beside the weights{of_each}");
        Ok(Line::new(run, quantity, "blocks", measured, ours))
    };
    Ok(vec![at(RESERVE + RESERVE_ROUNDING)?, at(RESERVE - RESERVE_ROUNDING)?])
}

fn blocks(rerun: &Rerun) -> Option<f64> {
    let kv = rerun.report.kv?;
    Some((kv.blocks_free + kv.blocks_used.current + 1) as f64)
}

fn each(reruns: &Ours<Option<Rerun>>, of: impl Fn(&Rerun) -> Option<f64>) -> Ours<Option<f64>> {
    reruns.each_ref().map(|rerun| rerun.as_ref().and_then(&of))
}

fn constants(run: &Run, fits: &Ours<Option<Fit>>) -> Vec<Line> {
    let names = ["step", "token", "token looked at"];
    let constant = |i: usize| {
        let ours = fits.map(|fit| fit.map(|fit| fit.constants[i]));
        Line::new(run, format!("{CONSTANT}{}", names[i]), "ns", None, ours)
    };
    let mut lines: Vec<Line> = (0..3).map(constant).collect();
    for (i, part) in ["up to the first token", "from there"].into_iter().enumerate() {
        let left = fits.map(|fit| fit.and_then(|fit| fit.left).map(|left| left[i]));
        lines.push(Line::new(run, format!("left by the fit: {part}"), "-", None, left));
    }
    lines
}

/// How many requests were answered; mean and P99 of each latency, over the requests that the fit did not see and that were answered, ours beside the same ones measured.
fn latencies(run: &Run, reruns: &Ours<Option<Rerun>>) -> Vec<Line> {
    let measured = run.measured();
    let answered = each(reruns, |rerun| Some(rerun.times.iter().flatten().count() as f64));
    let mut lines =
        vec![Line::new(run, ANSWERED, "requests", Some(measured.len() as f64), answered)];
    for (name, of) in LATENCIES {
        for (title, summary) in [("mean", mean as fn(&mut [f64]) -> Option<f64>), ("P99", p99)] {
            let seconds = |mut values: Vec<f64>| summary(&mut values).map(|ns| ns / 1e9);
            let all = seconds(measured.iter().skip(SEEN).filter_map(of).collect());
            let pairs = reruns.each_ref().map(|rerun| {
                let (ours, theirs) = pairs(&rerun.as_ref()?.times, &measured, of);
                Some((seconds(ours)?, seconds(theirs)))
            });
            lines.push(Line::paired(run, format!("{name} {title}"), "s", all, pairs));
        }
    }
    let preempted = each(reruns, |rerun| Some(rerun.report.served?.preemptions as f64));
    lines.push(Line::new(run, "preemptions", "-", None, preempted));
    lines
}

/// A latency of the requests that the fit did not see and that ours answered: ours and the measured ones.
fn pairs(
    ours: &[Option<Times>],
    measured: &[Times],
    of: fn(&Times) -> Option<f64>,
) -> (Vec<f64>, Vec<f64>) {
    let both = ours.iter().zip(measured).skip(SEEN);
    both.filter_map(|(ours, theirs)| Some((of(ours.as_ref()?)?, of(theirs)?))).unzip()
}

fn mean(values: &mut [f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The value that 99 % do not pass.
fn p99(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * 99).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

/// Use of the cache at whole seconds.
fn curve(run: &Run, reruns: &Ours<Option<Rerun>>) -> Vec<Line> {
    if run.curve.is_empty() {
        return Vec::new();
    }
    let average = |points: &[(f64, f64)]| mean(&mut points.iter().map(|p| p.1).collect::<Vec<_>>());
    let far = |rerun: &Rerun| {
        let ours = use_of(rerun);
        let both = run.curve.iter().map(|(t, used)| (used - at(&ours, *t)).abs());
        mean(&mut both.collect::<Vec<_>>())
    };
    let end = |points: &[(f64, f64)]| points.last().map(|p| p.0);
    let line = |quantity, unit, measured, ours| Line::new(run, quantity, unit, measured, ours);
    let means = each(reruns, |rerun| average(&use_of(rerun)));
    let ends = each(reruns, |rerun| end(&use_of(rerun)));
    vec![
        line("KV use, mean", "-", average(&run.curve), means),
        line("KV use, mean distance by second", "-", None, each(reruns, far)),
        line("end", "s", end(&run.curve), ends),
    ]
}

/// By second: the share of blocks in use at the first end of a step after it.
fn use_of(rerun: &Rerun) -> Vec<(f64, f64)> {
    let share = |(used, free): (u64, u64)| used as f64 / (used + free).max(1) as f64;
    let marks = rerun.report.marks.iter();
    marks.map(|mark| ((mark.time.0 / 1_000_000_000) as f64, share(mark.kv_blocks))).collect()
}

/// The last value at or before a time; 0 before the first and after the last.
fn at(points: &[(f64, f64)], time: f64) -> f64 {
    let after = points.partition_point(|(t, _)| *t <= time);
    if after == points.len() && points.last().is_some_and(|(t, _)| *t < time) {
        return 0.0;
    }
    after.checked_sub(1).map_or(0.0, |i| points[i].1)
}

/// Lines as a table.
pub fn print(lines: &[Line], markdown: bool) -> String {
    let titles = [
        "run<",
        "quantity<",
        "unit<",
        "measured",
        "fitted",
        "error",
        "longer",
        "error ",
        "carried",
        "error  ",
        "roofline",
        "error   ",
    ];
    let mut grid = Grid::new(&titles);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    let error = |value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |error| format!("{:+.1} %", error * 100.0))
    };
    for line in lines {
        grid.row(vec![
            line.run.clone(),
            line.quantity.clone(),
            line.unit.to_owned(),
            number(line.measured),
            number(line.fitted),
            error(line.fitted_error),
            number(line.longer),
            error(line.longer_error),
            number(line.carried),
            error(line.carried_error),
            number(line.roofline),
            error(line.roofline_error),
        ]);
    }
    grid.print(markdown) + "\n\n" + &legend(lines)
}

/// What the columns are, and how the fitted constants are given to `compare llm`.
fn legend(lines: &[Line]) -> String {
    let mut text = format!(
        "fitted, longer: step times with three constants, fitted on the first {SEEN} requests of the run; latencies are of the requests after them that were answered, and errors compare the same requests\n\
         \x20 fitted: constant 1 + constant 2 x tokens + constant 3 x tokens looked at; longer: the longer of the first two, + constant 3 x tokens looked at\n\
         carried: the constants fitted on another card's run of the same model, times the ratio of the two data sheets\n\
         roofline: the longer of reading the weights and computing the tokens at the full rates of the data sheet; nothing is fitted\n\
         {CAPACITY}: activations and context are known as 1.24 GB, to half of the last digit, so that ours is a range; all else is at 1.24 GB\n\
         \x20 of several cards together: experts are split among them; all other weights, and the 1.24 GB, are on each\n"
    );
    let mut runs: Vec<&str> = lines.iter().map(|line| line.run.as_str()).collect();
    runs.dedup();
    for run in runs {
        for (name, prefix, of) in STEPS {
            let constants: Vec<String> = lines
                .iter()
                .filter(|line| line.run == run && line.quantity.starts_with(CONSTANT))
                .filter_map(|line| Some(short(of(line)?)))
                .collect();
            if !constants.is_empty() {
                let step = constants.join("/");
                text += &format!("{run}: {name} is compare llm --set step={prefix}{step}\n");
            }
        }
    }
    text
}

/// A column of constants: its title, what stands before them in the workload's parameter, and where they are.
type Step = (&'static str, &'static str, fn(&Line) -> Option<f64>);

const STEPS: [Step; 3] = [
    ("fitted", "", |line| line.fitted),
    ("longer", "longer:", |line| line.longer),
    ("carried", "", |line| line.carried),
];
/// How many requests were answered.
pub const ANSWERED: &str = "answered";
/// What quantities begin with that are sizes of the cache.
pub const CAPACITY: &str = "KV capacity";
/// What quantities begin with that are constants.
const CONSTANT: &str = "constant: ";

/// Four digits, or all of a whole number.
fn short(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value}");
    }
    let digits = value.abs().log10().floor().clamp(-9.0, 15.0) as i32;
    format!("{value:.*}", usize::try_from(3 - digits).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_is_the_nearest_rank() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!((p99(&mut values), mean(&mut values)), (Some(198.0), Some(100.5)));
        assert_eq!((p99(&mut []), mean(&mut []), p99(&mut [7.0])), (None, None, Some(7.0)));
    }

    #[test]
    fn a_request_without_an_answer_is_not_compared() {
        let times = |e2e| Times { ttft: 1, e2e, outputs: 2 };
        let mut ours: Vec<Option<Times>> = (0..SEEN as u64 + 3).map(|n| Some(times(n))).collect();
        ours[SEEN + 1] = None;
        let measured: Vec<Times> = (0..SEEN as u64 + 3).map(|n| times(2 * n)).collect();
        let e2e = pairs(&ours, &measured, |times| Some(times.e2e as f64));
        assert_eq!(e2e, (vec![100.0, 102.0], vec![200.0, 204.0]));
    }

    #[test]
    fn a_curve_is_read_as_steps() {
        let points = [(1.0, 0.5), (3.0, 0.75)];
        assert_eq!([0.5, 1.0, 2.9, 3.0, 4.0].map(|t| at(&points, t)), [0.0, 0.5, 0.5, 0.75, 0.0]);
    }

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!(
            [2588.0, 0.031_66, 91.005_4, 12_345.6].map(short),
            ["2588", "0.03166", "91.01", "12346"]
        );
    }
}
