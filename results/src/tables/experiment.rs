//! An experiment file: what is run, and which rows a table has. One file, one table.
//!
//! ```toml
//! title = "BERT-base at batch 32: which combination gives which peak"
//! about = "What was assumed, in a few sentences."
//!
//! [[run]]                               # ids: letters, digits, _; axes as {name}
//! id = "{precision}_{attention}"
//! workload = "bert"                     # or trace = "shared:…" | "example:…" | a path; facts = a JSON file of figures (`golden:…` too);
//!                                       # measured = a set-up or a server's measured run, verify = a snapshot: see `beside`;
//!                                       # ops = ["{…}", { repeat = 8, ops = […] }, …], see `program`
//! set = { batch = 32, precision = ["fp32", "amp16"], attention = { eager = "eager", efficient = "sdpa" } }
//! passes = "none"                       # a list is an axis, all axes are crossed; a table is an axis whose values have names
//! strategy = "torch.caching"            # "all" stands for every strategy, wrappers left out; files: "shared:DIR/*.json" for all of a folder
//! device = "v100-16gb"
//! capacity = "80GiB"
//! seeds = 10
//! min_capacity = 3                      # search for the least device too, of so many first seeds (true: of all)
//! causes = true                         # say why reserved bytes hold nothing, at the peak: see `causes`
//! quick = { seeds = 2, set = { steps = 1 } }   # with --quick; skip = true leaves the run out
//!
//! [[row]]                               # one claim
//! claim = "about 11 GB"
//! each = ["fp32_*"]                     # the row is about each of these; METRIC is theirs
//!                                       # with each = ["*_paddle"] the figure may name {*}_torch: another run beside each
//! over = "mean"                         # with each: one figure of them all, their mean, median or greatest
//! figure = "live_floor / 1e9"           # see `expression`
//! unit = "GB"
//! rule = "within 5 % of 11"             # see `rule`
//!
//! [[row]]                               # one that cannot be judged
//! claim = "a published figure"
//! because = "why no run of ours can tell"
//!
//! [[listing]]                           # a plain table of runs
//! title = "all combinations"
//! runs = ["*"]
//! columns = [{ name = "peak GB", figure = "live_floor / 1e9" }]
//!
//! [[figure]]                            # a picture: bars of a figure of runs, or another kind (see `crate::figures`) of runs themselves
//! kind = "bars"
//! runs = ["*"]
//! name = "live memory at its peak"      # of bars: what the figure is, its text and unit; and, if need be,
//! figure = "live_floor / 1e9"
//! unit = "GB"
//! claimed = [11, 7.8]                   # published figures, as lines
//! log = true                            # a logarithmic scale
//! more_is_better = true                 # the title begins with the greatest
//! [[matrix]]                            # a table for each figure (runs down by an axis, groups of runs across), and one for each group
//! title = "strategies by workloads"
//! down = "strategy"
//! across = [{ name = "bert", runs = ["bert_*"] }]
//! figures = [{ name = "over static", figure = "peak_reserved / {across}_bound_best_static.peak_reserved" }]
//! ```
//!
//! An unknown key, run, workload, parameter, strategy or figure is an error with its file and line.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::failure::Failure;
use crate::figures::Kind;

/// A file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Experiment {
    pub title: String,
    #[serde(default)]
    pub about: String,
    #[serde(default, rename = "run")]
    pub runs: Vec<Spanned<RunSpec>>,
    #[serde(default, rename = "row")]
    pub rows: Vec<Spanned<RowSpec>>,
    #[serde(default, rename = "listing")]
    pub listings: Vec<Spanned<ListingSpec>>,
    #[serde(default, rename = "figure")]
    pub figures: Vec<Spanned<FigureSpec>>,
    #[serde(default, rename = "matrix")]
    pub matrices: Vec<Spanned<MatrixSpec>>,
    /// Where it stands and what it says, for messages.
    #[serde(skip)]
    pub file: Source,
}

/// A file's name and text.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Name of the table.
    pub name: String,
    /// As messages name it.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// What is run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RunSpec {
    pub id: String,
    /// As conditions name it; without one, the values of its axes.
    pub label: Option<String>,
    pub workload: Option<String>,
    pub trace: Option<Axis>,
    pub ops: Option<Vec<Piece>>,
    pub facts: Option<Axis>,
    pub measured: Option<Axis>,
    pub verify: Option<Axis>,
    #[serde(default)]
    pub set: BTreeMap<String, Axis>,
    pub passes: Option<Axis>,
    pub strategy: Option<Axis>,
    pub device: Option<Axis>,
    pub capacity: Option<Axis>,
    #[serde(default = "one")]
    pub seeds: u64,
    /// Search for the least capacity too.
    #[serde(default)]
    pub min_capacity: Seeds,
    /// Add the causes of fragmentation.
    #[serde(default)]
    pub causes: bool,
    /// Add the figures of a model's graph: kernels and bytes by phase.
    #[serde(default)]
    pub graph: bool,
    #[serde(default)]
    pub quick: Quick,
}

const fn one() -> u64 {
    1
}

/// Of which seeds something is done.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum Seeds {
    /// Of all, or none.
    All(bool),
    /// Of so many first ones.
    First(u64),
}

impl Default for Seeds {
    fn default() -> Self {
        Self::All(false)
    }
}

impl Seeds {
    /// How many of `seeds` those are.
    pub fn of(self, seeds: u64) -> u64 {
        match self {
            Self::All(all) => u64::from(all) * seeds,
            Self::First(count) => count.min(seeds),
        }
    }
}

/// Ops in JSON Lines: one, or several that are repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Piece {
    /// One.
    One(String),
    /// Several, again and again.
    Again(Again),
}

/// Ops that are repeated; `{n}` in them is the number of the repetition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Again {
    /// How often.
    pub repeat: u64,
    /// The first number.
    #[serde(default)]
    pub from: u64,
    /// What is repeated.
    pub ops: Vec<String>,
}

/// What is smaller with `--quick`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Quick {
    #[serde(default)]
    pub set: BTreeMap<String, Axis>,
    pub seeds: Option<u64>,
    pub min_capacity: Option<Seeds>,
    #[serde(default)]
    pub skip: bool,
}

/// One value, or several that are crossed with those of other axes.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Axis {
    /// One.
    One(Scalar),
    /// Several; the name of each is its text.
    List(Vec<Scalar>),
    /// Several with names.
    Named(BTreeMap<String, Scalar>),
}

/// A value.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Scalar {
    Text(String),
    Integer(i64),
    Real(f64),
    Truth(bool),
}

impl Scalar {
    /// As the command line would have it.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Real(number) => number.to_string(),
            Self::Truth(truth) => truth.to_string(),
        }
    }
}

/// A claim.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct RowSpec {
    pub claim: String,
    /// Runs that it is about, by id with `*`; the figure's bare names are theirs.
    #[serde(default)]
    pub each: Vec<String>,
    /// One figure of them all, instead of one each.
    pub over: Option<Over>,
    #[serde(default = "nothing")]
    pub figure: Spanned<String>,
    #[serde(default)]
    pub unit: String,
    #[serde(default = "nothing")]
    pub rule: Spanned<String>,
    /// Instead of runs, figure and rule: why no run of ours can tell.
    pub because: Option<String>,
    /// What would refute it.
    pub refuted: Option<Spanned<String>>,
    /// What the claim did not state, and what the runs suppose.
    pub assumes: Option<String>,
    /// Under which our figure holds.
    #[serde(default)]
    pub condition: String,
}

/// How the figures of a row's runs become one.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Their mean.
    Mean,
    /// The one in the middle, or the mean of the two there.
    Median,
    /// The greatest.
    Greatest,
}

impl Over {
    /// Of these, one at least.
    pub fn of(self, values: &[f64]) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match self {
            Self::Mean => sorted.iter().sum::<f64>() / sorted.len() as f64,
            Self::Median if sorted.len().is_multiple_of(2) => {
                (sorted[middle - 1] + sorted[middle]) / 2.0
            }
            Self::Median => sorted[middle],
            Self::Greatest => sorted.last().copied().unwrap_or(f64::NAN),
        }
    }

    /// As notes say it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Greatest => "greatest",
        }
    }
}

fn nothing() -> Spanned<String> {
    Spanned::new(0..0, String::new())
}

/// A plain table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ListingSpec {
    pub title: String,
    #[serde(default)]
    pub about: String,
    pub runs: Vec<String>,
    pub columns: Vec<ColumnSpec>,
}

/// A column of a plain table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ColumnSpec {
    pub name: String,
    pub figure: Spanned<String>,
}

/// A picture.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct FigureSpec {
    pub kind: Kind,
    /// By id with `*`.
    pub runs: Vec<String>,
    pub name: Option<String>,
    pub figure: Option<Spanned<String>>,
    pub unit: Option<String>,
    #[serde(default)]
    pub claimed: Vec<f64>,
    #[serde(default)]
    pub log: bool,
    #[serde(default)]
    pub more_is_better: bool,
}

/// Tables of one figure of many runs: a run for each value of an axis, and each group of runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct MatrixSpec {
    pub title: String,
    #[serde(default)]
    pub about: String,
    /// The axis whose values go down.
    pub down: String,
    pub across: Vec<GroupSpec>,
    /// In a figure's text `{across}` stands for the group's name.
    pub figures: Vec<ColumnSpec>,
}

/// Runs that stand under each other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct GroupSpec {
    pub name: String,
    pub runs: Vec<String>,
}

impl Source {
    /// An error at a place of the file.
    pub fn bad(&self, at: usize, message: impl std::fmt::Display) -> Failure {
        let line = self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
        Failure::input(format!("{}: line {line}: {message}", self.path))
    }
}

impl Experiment {
    /// How many plain tables its page has.
    pub fn tables(&self) -> usize {
        let of = |matrix: &Spanned<MatrixSpec>| {
            matrix.as_ref().figures.len() + matrix.as_ref().across.len()
        };
        self.listings.len() + self.matrices.iter().map(of).sum::<usize>()
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// When it is no TOML, or has keys that are not known here.
    pub fn parse(file: Source) -> Result<Self, Failure> {
        let parsed: Result<Self, toml::de::Error> = toml::from_str(&file.text);
        match parsed {
            Ok(experiment) => Ok(Self { file, ..experiment }),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                Err(file.bad(at, error.message()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Experiment, String> {
        let file =
            Source { name: "t".to_owned(), path: "t.toml".to_owned(), text: text.to_owned() };
        Experiment::parse(file).map_err(|failure| failure.message)
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line() {
        let message = parse("title = \"t\"\n\n[[run]]\nid = \"a\"\nworkloat = \"bert\"\n")
            .expect_err("unknown key");
        assert!(message.starts_with("t.toml: line 5: unknown field `workloat`"), "{message}");
    }

    #[test]
    fn many_figures_become_one() {
        let of = |over: Over, values: &[f64]| over.of(values);
        assert_eq!(of(Over::Mean, &[1.0, 2.0, 6.0]), 3.0);
        assert_eq!(of(Over::Median, &[6.0, 1.0, 2.0]), 2.0);
        assert_eq!(of(Over::Median, &[6.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(of(Over::Greatest, &[6.0, 1.0]), 6.0);
    }

    #[test]
    fn values_are_scalars_lists_or_named() {
        let text = "title = \"t\"\n[[run]]\nid = \"a\"\nset = { a = 1, b = [true, 2.5], c = { x = \"y\" } }";
        let found = parse(text).expect("parses");
        let set = &found.runs[0].as_ref().set;
        assert!(matches!(&set["a"], Axis::One(one) if one.text() == "1"));
        assert!(matches!(&set["b"], Axis::List(list) if list[1].text() == "2.5"));
        assert!(matches!(&set["c"], Axis::Named(named) if named["x"].text() == "y"));
    }
}
