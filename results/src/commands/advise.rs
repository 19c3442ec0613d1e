//! `vramlab advise`: which settings help on this recording, which do nothing, whether any helps at all, what the program itself could do
//! otherwise, and on which card it passes. Every line is a replay.

mod answer;
mod evidence;
mod record;
mod text;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use vramlab_allocators::Spec;

use super::print;
use crate::advise::card::{Card, card};
use crate::advise::iterations;
use crate::advise::rewrite;
use crate::advise::search::search;
use crate::advise::setting::{Family, Setting};
use crate::advise::tape::Tape;
use crate::advise::trial::Trial;
use crate::analysis::category::Categories;
use crate::analysis::lives::Lives;
use crate::cli::{Common, DeviceArgs, parse_spec};
use crate::failure::{Code, Failure, Outcome};
use crate::inputs;
use crate::job::{Input, Place};
use crate::output::{Format, to_csv};
use crate::room;

/// Arguments.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// A recording of any known format.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    place: DeviceArgs,
    /// Whose rules and options: 2.15, 2.9. Without it, those of the recording.
    #[arg(long, value_name = "V")]
    torch_version: Option<String>,
    /// Whose settings are searched: a strategy with the options that are not to be changed. Without it, torch.caching.
    #[arg(long, value_name = "SPEC", value_parser = parse_spec, conflicts_with = "torch_version")]
    strategy: Option<Spec>,
    /// How many settings are tried at most.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    budget: u32,
    /// How many settings the table shows.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Also prints the evidence: what held the peak, why free memory was no use, what each setting tried came to.
    #[arg(long)]
    explain: bool,
}

/// A rewrite, tried with the settings that the run had.
#[derive(Debug)]
struct Rewritten {
    name: String,
    what: String,
    /// With the recording's own settings.
    own: Trial,
    /// Peak reserved against the recording as it is, with the same settings, in bytes.
    saved: i64,
}

/// All that is found for one history.
struct Advice {
    place: Place,
    tried: Vec<Trial>,
    rewritten: Vec<Rewritten>,
    /// Why some rewrites are not tried.
    left_out: Vec<String>,
    cards: Vec<Card>,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or is no recording, a capacity that makes no sense.
pub fn run(args: &AdviseArgs, common: &Common) -> Outcome {
    let opened = inputs::open(&args.file)?;
    let recorded = opened.recorded_spec(args.torch_version.as_deref())?;
    let (family, own) = match &args.strategy {
        Some(spec) => (Family { base: spec.clone() }, String::new()),
        None => Family::of(&recorded),
    };
    if args.strategy.is_some() && family.is_torch() && family.keeps("conf") {
        return Err(Failure::usage(format!(
            "--strategy {}: a conf is what is searched; give what is not to be changed as options, such as torch.caching:max_split_size_mb=200",
            family.base
        )));
    }
    let mut all = Vec::new();
    let mut broke = false;
    let inputs = opened.inputs();
    let several = inputs.len() > 1;
    for (input, recorded) in inputs.iter().zip(opened.recorded()) {
        let place = room::place(input, recorded, &args.place, common.quiet)?;
        let words = common.format != Format::Csv;
        // what is wrong with an input is told of the input itself, not of a tape of it
        Trial::run(input, &place, &family, &Setting::default(), None)?;
        let lives = words.then(|| Lives::read(input)).transpose()?;
        let advice = advise(input, &place, &family, &own, args, common, lives.as_ref())?;
        broke |= advice.tried.iter().any(|trial| trial.row.broke());
        if let Some(lives) = &lives {
            let categories = Categories::of(lives, input);
            let markdown = common.format != Format::Table;
            let subject = if several { format!("{}: ", input.name) } else { String::new() };
            let seen = text::Seen { input, lives, categories: &categories };
            if common.format == Format::Json {
                print(&record::records(&seen, &advice, &family)?)?;
            } else {
                let mut page = text::table(&seen, &advice, args.top, markdown);
                if args.explain {
                    page += &evidence::text(&seen, &advice, &family, markdown)?;
                }
                page += &format!("{subject}{}\n", answer::answer(&seen, &advice));
                print(&common.format.words(|_| page))?;
            }
        }
        all.extend(advice.tried);
    }
    if all.is_empty() {
        return Err(Failure::input(format!(
            "{}: no requests in it, so there is nothing to advise on",
            opened.name()
        )));
    }
    if common.format == Format::Csv {
        print(&to_csv(&all))?;
    }
    opened.remark_warnings(common);
    Ok(if broke { Code::Partial } else { Code::Done })
}

impl Advice {
    /// With the settings that the run had: the recorded ones, or else the defaults.
    fn now(&self) -> Option<&Trial> {
        let recorded = self.tried.iter().find(|trial| trial.verdict == "recorded");
        recorded.or_else(|| self.tried.iter().find(|trial| trial.conf.is_empty()))
    }

    /// What is advised instead of those.
    fn advised(&self) -> Option<&Trial> {
        Trial::advised(&self.tried, self.now().filter(|now| now.ran())?)
    }
}

/// Settings of which the smallest card is looked for, beside the defaults and the recorded ones.
const CARDS: usize = 2;

/// Settings; with the input's lives, what is told in words too: rewrites and cards.
fn advise(
    input: &Input<'_>,
    place: &Place,
    family: &Family,
    own: &str,
    args: &AdviseArgs,
    common: &Common,
    lives: Option<&Lives>,
) -> Result<Advice, Failure> {
    let in_words = lives.is_some();
    let tape = Tape::of(input)?.map(Arc::new);
    let mut advice = match &tape {
        Some(tape) => found(&tape.input(input), place, family, own, args, common, in_words)?,
        None => found(input, place, family, own, args, common, in_words)?,
    };
    if let Some((tape, lives)) = tape.zip(lives) {
        rewrites((input, lives), &tape, family, own, &mut advice)?;
    }
    Ok(advice)
}

/// Settings, and the cards of some of them.
fn found(
    input: &Input<'_>,
    place: &Place,
    family: &Family,
    own: &str,
    args: &AdviseArgs,
    common: &Common,
    in_words: bool,
) -> Result<Advice, Failure> {
    let tried = search(input, place, family, own, args.budget as usize, common.quiet)?;
    let mut advice = Advice {
        place: place.clone(),
        tried,
        rewritten: Vec::new(),
        left_out: Vec::new(),
        cards: Vec::new(),
    };
    if in_words {
        advice.cards = cards(input, family, &advice)?;
    }
    Ok(advice)
}

fn rewrites(
    (input, lives): (&Input<'_>, &Lives),
    tape: &Tape,
    family: &Family,
    own: &str,
    advice: &mut Advice,
) -> Result<(), Failure> {
    let (rewrites, left_out) = rewrite::all(tape, &iterations::find(lives));
    advice.left_out = left_out;
    let setting = if own.is_empty() { Setting::default() } else { Setting::recorded(own) };
    let Some(base) = advice.tried.iter().find(|trial| trial.setting == setting).cloned() else {
        return Ok(());
    };
    for rewrite in rewrites {
        let tape = Arc::new(rewrite.tape);
        let played = tape.input(input);
        let mut tried = Trial::run(&played, &advice.place, family, &setting, None)?;
        tried.judge("", &base);
        advice.rewritten.push(Rewritten {
            name: rewrite.name,
            what: rewrite.what,
            saved: tried.row.peak_reserved as i64 - base.row.peak_reserved as i64,
            own: tried,
        });
    }
    Ok(())
}

/// The smallest cards for the advised setting, the best others, the defaults and the recorded settings.
fn cards(input: &Input<'_>, family: &Family, advice: &Advice) -> Result<Vec<Card>, Failure> {
    let tried = &advice.tried;
    let of = |verdict: &str| tried.iter().find(|trial| trial.verdict == verdict);
    let (default, recorded) = (of("default"), of("recorded"));
    let best = tried.iter().filter(|trial| trial.verdict == "helps");
    let mut chosen: Vec<&Trial> = Vec::new();
    for trial in advice.advised().into_iter().chain(best) {
        if chosen.len() < CARDS && !chosen.iter().any(|other| other.same(trial)) {
            chosen.push(trial);
        }
    }
    for own in [recorded, default].into_iter().flatten().filter(|trial| trial.ran()) {
        if !chosen.iter().any(|other| other.rank == own.rank) {
            chosen.push(own);
        }
    }
    chosen
        .iter()
        .map(|trial| card(input, &advice.place, family, &trial.setting, &trial.row))
        .collect()
}
