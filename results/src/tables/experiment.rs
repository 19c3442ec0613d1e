//! An experiment file: what is run, and which rows a table has. One file, one table.
//!
//! ```toml
//! title = "BERT-base at batch 32: which combination gives which peak"
//! about = "What was assumed, in a few sentences."
//!
//! [[run]]                               # ids: letters, digits, _; axes as {name}
//! id = "{precision}_{attention}"
//! workload = "bert"                     # or trace = "shared:…" | "example:…" | a path; ops = ["{…}", …]; facts = a JSON file of figures
//! set = { batch = 32, precision = ["fp32", "amp16"], attention = { eager = "eager", efficient = "sdpa" } }
//! passes = "none"                       # a list is an axis, all axes are crossed; a table is an axis whose values have names
//! strategy = "torch.caching"
//! device = "v100-16gb"
//! capacity = "80GiB"
//! seeds = 10
//! quick = { seeds = 2, set = { steps = 1 } }   # with --quick; skip = true leaves the run out
//!
//! [[row]]                               # one claim
//! claim = "about 11 GB"
//! each = ["fp32_*"]                     # the row is about each of these; METRIC is theirs
//! figure = "live_floor / 1e9"           # see `expression`
//! unit = "GB"
//! rule = "within 5 % of 11"             # see `rule`
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
    pub ops: Option<Vec<String>>,
    pub facts: Option<Axis>,
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
    pub min_capacity: bool,
    /// Add the figures of a model's graph: kernels and bytes by phase.
    #[serde(default)]
    pub graph: bool,
    #[serde(default)]
    pub quick: Quick,
}

const fn one() -> u64 {
    1
}

/// What is smaller with `--quick`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Quick {
    #[serde(default)]
    pub set: BTreeMap<String, Axis>,
    pub seeds: Option<u64>,
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
    pub figure: Spanned<String>,
    #[serde(default)]
    pub unit: String,
    pub rule: Spanned<String>,
    /// What would refute it.
    pub refuted: Option<Spanned<String>>,
    /// What the claim did not state, and what the runs suppose.
    pub assumes: Option<String>,
    /// Under which our figure holds.
    #[serde(default)]
    pub condition: String,
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

impl Source {
    /// An error at a place of the file.
    pub fn bad(&self, at: usize, message: impl std::fmt::Display) -> Failure {
        let line = self.text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
        Failure::input(format!("{}: line {line}: {message}", self.path))
    }
}

impl Experiment {
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
    fn values_are_scalars_lists_or_named() {
        let text = "title = \"t\"\n[[run]]\nid = \"a\"\nset = { a = 1, b = [true, 2.5], c = { x = \"y\" } }";
        let found = parse(text).expect("parses");
        let set = &found.runs[0].as_ref().set;
        assert!(matches!(&set["a"], Axis::One(one) if one.text() == "1"));
        assert!(matches!(&set["b"], Axis::List(list) if list[1].text() == "2.5"));
        assert!(matches!(&set["c"], Axis::Named(named) if named["x"].text() == "y"));
    }
}
