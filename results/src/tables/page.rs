//! A finished table, and how it is laid out: claims first, then listings, then how to recompute them.

use super::claims::{Claim, Listing, Target};
use super::numbers;
use super::rule::Verdict;
use crate::figures::Picture;

/// All of a table.
#[derive(Clone, Debug)]
pub struct Page {
    /// Name of the experiment.
    pub name: String,
    /// The command that makes it, without --quick and --row.
    pub again: String,
    /// What it shows.
    pub title: String,
    /// What was assumed.
    pub about: String,
    /// Fewer seeds and smaller runs.
    pub quick: bool,
    /// Claims.
    pub claims: Vec<Claim>,
    /// Plain tables.
    pub listings: Vec<Listing>,
    /// Pictures.
    pub figures: Vec<Picture>,
    /// Devices with their cost tables.
    pub devices: Vec<String>,
    /// Of vramlab.
    pub version: String,
}

/// Titles of the claims' columns; those that end with `<` hold words.
pub const CLAIM_TITLES: [&str; 5] = ["row", "claim<", "ours<", "rule<", "verdict<"];

/// Figures are shown one by one if their labels have no more characters than this; else the least and the greatest.
const LABELS_MAX: usize = 60;

impl Page {
    /// Cells of a claim's line.
    pub fn claim_cells(claim: &Claim) -> Vec<String> {
        let crosses = if claim.crosses { " (the interval reaches across)" } else { "" };
        vec![
            claim.number.to_string(),
            claim.row.claim.clone(),
            ours(claim),
            claim.row.rule.as_ref().clone(),
            format!("{}{crosses}", claim.verdict),
        ]
    }

    /// Titles of a listing's columns.
    pub fn listing_titles(listing: &Listing) -> Vec<String> {
        std::iter::once(format!("{}<", listing.label))
            .chain(listing.columns.iter().cloned())
            .collect()
    }

    /// Cells of a listing, line by line.
    pub fn listing_cells(listing: &Listing) -> Vec<Vec<String>> {
        let cell = |figure: &Option<super::claims::Figure>| {
            figure.as_ref().map_or_else(|| "-".to_owned(), numbers::figure)
        };
        let line = |(label, figures): &(String, Vec<_>)| {
            std::iter::once(label.clone()).chain(figures.iter().map(cell)).collect()
        };
        listing.rows.iter().map(line).collect()
    }

    /// What stands under the claims: how each figure is made, and under which condition.
    pub fn footnotes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for claim in &self.claims {
            let figure = claim.row.figure.as_ref();
            if figure.is_empty() {
                let condition = Some(&claim.row.condition).filter(|text| !text.is_empty());
                notes.extend(condition.map(|text| format!("{}: {text}", claim.number)));
                continue;
            }
            let each = match (claim.row.each.as_slice(), claim.row.over) {
                ([], _) => String::new(),
                (each, None) => format!(" of each of {}", each.join(", ")),
                (each, Some(_)) => format!(", over {}", each.join(", ")),
            };
            let over = claim.row.over.map_or_else(String::new, |o| format!("{} of ", o.text()));
            let mut note = format!("{}: {over}{figure}{each}", claim.number);
            if !claim.row.condition.is_empty() {
                note += &format!("; {}", claim.row.condition);
            }
            let all = claim.targets.len();
            let gone = claim.targets.iter().filter(|target| target.figures.is_err()).count();
            if gone > 0 && !matches!(claim.verdict, Verdict::NotRun(_)) {
                let why = claim.targets.iter().find_map(|t| t.figures.as_ref().err());
                note += &format!("; {gone} of {all} runs are missing: {}", why.map_or("", |w| w));
            }
            notes.push(note);
        }
        notes
    }

    /// Words about seeds, prices, and how to recompute.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let figures =
            self.claims.iter().flat_map(|c| &c.targets).filter_map(|t| t.figures.as_ref().ok());
        let listed =
            self.listings.iter().flat_map(|l| &l.rows).flat_map(|(_, f)| f.iter().flatten());
        let seeds = figures.flatten().chain(listed).map(|figure| figure.seeds).max().unwrap_or(1);
        if seeds > 1 {
            notes.push(format!("± is the 95 % Student-t interval over {seeds} seeds, from 0"));
        }
        if !self.devices.is_empty() {
            notes.push(format!("devices: {}", self.devices.join("; ")));
        }
        if self.quick {
            notes.push("made with --quick: fewer seeds, smaller runs".to_owned());
        }
        let first = self.claims.first().map_or(1, |claim| claim.number);
        let again = self.command(first);
        notes.push(match self.claims.len() {
            0 => format!("vramlab {}; again: {again}", self.version),
            _ => format!(
                "vramlab {}; row {first} again (and others by their number): {again}",
                self.version
            ),
        });
        notes
    }

    /// Title and file of each picture.
    pub fn pictures(&self) -> impl Iterator<Item = (&str, String)> {
        let file = |number| format!("{}.figure-{number}.svg", self.name);
        (1..).zip(&self.figures).map(move |(number, one)| (one.title.as_str(), file(number)))
    }

    /// The command that recomputes a row; the whole table, if it has none.
    pub fn command(&self, row: usize) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        match self.claims.len() {
            0 => format!("{}{quick}", self.again),
            _ => format!("{} --row {row}{quick}", self.again),
        }
    }
}

/// The figure of a claim: one, or a few with their runs, or from least to greatest.
fn ours(claim: &Claim) -> String {
    let unit = &claim.row.unit;
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let list = |target: &Target| {
        let figures = target.figures.as_ref().ok()?;
        Some(figures.iter().map(numbers::figure).collect::<Vec<_>>().join(", "))
    };
    let there: Vec<(&Target, String)> =
        claim.targets.iter().filter_map(|target| Some((target, list(target)?))).collect();
    match there.as_slice() {
        [] => "-".to_owned(),
        [(_, only)] => only.clone() + &unit,
        few if few.iter().map(|(target, _)| target.label.len()).sum::<usize>() <= LABELS_MAX => {
            let each = few.iter().map(|(target, text)| format!("{text}{unit} ({})", target.label));
            each.collect::<Vec<_>>().join(", ")
        }
        many => {
            let means = many
                .iter()
                .filter_map(|(target, _)| Some(target.figures.as_ref().ok()?.last()?.mean));
            let (least, most) =
                means.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
            let (least, most) = (numbers::number(least), numbers::number(most));
            let range = if least == most { least } else { format!("{least} to {most}") };
            format!("{range}{unit} ({} runs)", many.len())
        }
    }
}
