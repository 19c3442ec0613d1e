//! Parameters of a workload: `key=value` pairs, checked against what the workload documents.
//!
//! A workload lists its parameters once, as [`ParamDoc`]s with default, unit and help; [`Params`] holds what the user gave and
//! answers with the default for the rest. Errors name the key, what was found and what was expected; an unknown key is
//! answered with the nearest known ones. Lists are written with `/`, since `,` already separates pairs: `lengths=128/512`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use vramlab_sim::units::Bytes;

use crate::graph::passes::PassError;

/// Most steps, rounds or pages of a workload: more would take days.
pub(crate) const REPEATS_MAX: u64 = 10_000_000;
/// Most requests of a workload that counts in those.
pub(crate) const ALLOCS_MAX: u64 = 10_000_000_000;

/// One parameter, as `vramlab list workloads` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamDoc {
    /// What the user writes before `=`.
    pub name: &'static str,
    /// The value when the user writes none.
    pub default: &'static str,
    /// Unit of the value; `-` for words and plain counts.
    pub unit: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// When it does something; always, if there is none.
    pub only: Option<Only>,
}

/// A parameter does something only while another has one of these values, or none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Only {
    /// The other.
    pub key: &'static str,
    /// Its values.
    pub values: &'static [&'static str],
    /// One of them, or none of them?
    pub one_of: bool,
}

impl ParamDoc {
    /// The same, of a parameter that does something only with one of these values of another.
    pub(crate) const fn only(self, key: &'static str, values: &'static [&'static str]) -> Self {
        Self { only: Some(Only { key, values, one_of: true }), ..self }
    }

    /// The same, of one that does nothing with these.
    pub(crate) const fn unless(self, key: &'static str, values: &'static [&'static str]) -> Self {
        Self { only: Some(Only { key, values, one_of: false }), ..self }
    }
}

/// A table row for [`ParamDoc`].
pub(crate) const fn doc(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    help: &'static str,
) -> ParamDoc {
    ParamDoc { name, default, unit, help, only: None }
}

/// Why parameters were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No such workload.
    #[error("unknown workload {name:?}; {offer}")]
    UnknownWorkload {
        /// What was asked for.
        name: String,
        /// The nearest known names.
        offer: String,
    },
    /// The workload has no such parameter.
    #[error("unknown parameter {key:?}; {offer}")]
    UnknownKey {
        /// What was given.
        key: String,
        /// The nearest known names.
        offer: String,
    },
    /// A value that the parameter does not take.
    #[error("parameter {key}: found {found:?}, expected {expected}")]
    BadValue {
        /// Which parameter.
        key: &'static str,
        /// What was given.
        found: String,
        /// What it takes.
        expected: String,
    },
    /// A file that a parameter names cannot be read, or is not what it should be.
    #[error("{message}")]
    BadFile {
        /// Which file, where in it, what was found, and what was expected.
        message: String,
    },
    /// Shapes that do not multiply out.
    #[error(transparent)]
    Graph(#[from] crate::graph::GraphError),
    /// Passes that were refused.
    #[error("parameter passes: {0}")]
    Pass(PassError),
    /// Not a pair.
    #[error("parameter {text:?}: expected key=value")]
    NoPair {
        /// What was given.
        text: String,
    },
}

impl From<PassError> for ParamError {
    fn from(error: PassError) -> Self {
        match error {
            PassError::Graph(error) => Self::Graph(error),
            other => Self::Pass(other),
        }
    }
}

/// The parameters of one workload: given ones and defaults.
#[derive(Clone, Debug)]
pub struct Params {
    docs: &'static [ParamDoc],
    given: Vec<(&'static str, String)>,
}

impl Params {
    /// All defaults.
    pub fn defaults(docs: &'static [ParamDoc]) -> Self {
        Self { docs, given: Vec::new() }
    }

    /// Sets one parameter; the last value counts.
    ///
    /// # Errors
    /// When the workload has no such parameter.
    pub fn set(&mut self, key: &str, value: impl Into<String>) -> Result<(), ParamError> {
        let Some(doc) = self.docs.iter().find(|doc| doc.name == key) else {
            return Err(ParamError::UnknownKey {
                key: key.to_owned(),
                offer: nearest(key, self.docs.iter().map(|doc| doc.name)),
            });
        };
        self.given.retain(|(name, _)| *name != key);
        self.given.push((doc.name, value.into()));
        Ok(())
    }

    /// Sets parameters from `key=value,key=value`.
    ///
    /// # Errors
    /// When a piece is no pair or a key is unknown.
    pub fn set_text(&mut self, text: &str) -> Result<(), ParamError> {
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| ParamError::NoPair { text: pair.to_owned() })?;
            self.set(key.trim(), value.trim())?;
        }
        Ok(())
    }

    /// All parameters in the documented order, with the value in force.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.docs.iter().map(|doc| (doc.name, self.text(doc.name)))
    }

    /// Of the given parameters, those that do nothing beside the others: each with the reason.
    pub fn idle(&self) -> Vec<String> {
        let reason = |doc: &ParamDoc| {
            let Only { key, values, one_of } = doc.only?;
            let given = self.given.iter().any(|(name, _)| *name == doc.name);
            let other = self.text(key);
            if !given || values.contains(&other) == one_of {
                return None;
            }
            let with = if one_of { "with" } else { "without" };
            let values = values.join(" or ");
            let name = doc.name;
            Some(format!(
                "parameter {name} does nothing with {key}={other}; only {with} {key}={values}"
            ))
        };
        self.docs.iter().filter_map(reason).collect()
    }

    /// The value in force, as text.
    ///
    /// # Panics
    /// When the workload asks for a parameter that it does not document.
    pub fn text(&self, key: &'static str) -> &str {
        let given = self.given.iter().find(|(name, _)| *name == key);
        match (given, self.docs.iter().find(|doc| doc.name == key)) {
            (Some((_, value)), _) => value,
            (None, Some(doc)) => doc.default,
            (None, None) => panic!("{key} is not documented by this workload"),
        }
    }

    /// An error about this parameter's value.
    pub(crate) fn bad(&self, key: &'static str, expected: impl Display) -> ParamError {
        let found = self.text(key).to_owned();
        ParamError::BadValue { key, found, expected: expected.to_string() }
    }

    /// A whole number within `range`.
    ///
    /// # Errors
    /// When it is none, or outside.
    pub fn count(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<u64, ParamError> {
        match self.text(key).parse::<u64>() {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => {
                let (low, high) = range.into_inner();
                Err(self.bad(key, format_args!("a whole number from {low} to {high}")))
            }
        }
    }

    /// A number within `range`.
    ///
    /// # Errors
    /// When it is none, or outside.
    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Result<f64, ParamError> {
        match self.text(key).parse::<f64>() {
            Ok(value) if range.contains(&value) => Ok(value),
            _ => {
                let (low, high) = range.into_inner();
                Err(self.bad(key, format_args!("a number from {low} to {high}")))
            }
        }
    }

    /// A size such as `64MiB`.
    ///
    /// # Errors
    /// When it is none.
    pub fn bytes(&self, key: &'static str) -> Result<u64, ParamError> {
        Bytes::from_str(self.text(key))
            .map(|bytes| bytes.0)
            .map_err(|_| self.bad(key, "a size in bytes, or with a unit such as 64MiB"))
    }

    /// `true` or `false` (also `1`, `0`, `yes`, `no`, `on`, `off`).
    ///
    /// # Errors
    /// When it is neither.
    pub fn flag(&self, key: &'static str) -> Result<bool, ParamError> {
        match self.text(key) {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(self.bad(key, "true or false")),
        }
    }

    /// The value that one of these words stands for.
    ///
    /// # Errors
    /// When it is another word.
    pub fn choice<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<T, ParamError> {
        let found = self.text(key);
        words.iter().find(|(word, _)| *word == found).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.bad(key, words.join(", "))
        })
    }

    /// A list of whole numbers within `range`, separated by `/`.
    ///
    /// # Errors
    /// When it is empty, or one is no number or outside.
    pub fn counts(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Vec<u64>, ParamError> {
        let parsed: Option<Vec<u64>> = self
            .text(key)
            .split('/')
            .map(|piece| piece.trim().parse().ok().filter(|value| range.contains(value)))
            .collect();
        parsed.filter(|list| !list.is_empty()).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            self.bad(key, format_args!("whole numbers from {low} to {high}, separated by /"))
        })
    }
}

/// `did you mean a or b` for the known names nearest to `found`, or all of them if none is near.
pub(crate) fn nearest<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> String {
    let edits =
        |name: &str| strsim::levenshtein(&found.to_ascii_lowercase(), &name.to_ascii_lowercase());
    let mut ranked: Vec<(usize, &str)> = known.map(|name| (edits(name), name)).collect();
    ranked.sort_unstable();
    let limit = found.len().div_ceil(3).max(1);
    let near: Vec<&str> =
        ranked.iter().filter(|(d, _)| *d <= limit).take(3).map(|(_, name)| *name).collect();
    if near.is_empty() {
        let mut all: Vec<&str> = ranked.into_iter().map(|(_, name)| name).collect();
        all.sort_unstable();
        return format!("known: {}", all.join(", "));
    }
    format!("did you mean {}", near.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &[ParamDoc] = &[
        doc("batch", "8", "sequences", ""),
        doc("mode", "cycle", "-", ""),
        doc("lengths", "128/512", "tokens", ""),
        doc("size", "2MiB", "B", ""),
    ];

    #[test]
    fn a_given_parameter_of_another_mode_is_named() {
        const OF_MODES: &[ParamDoc] = &[
            doc("mode", "cycle", "-", ""),
            doc("lengths", "7", "-", "").only("mode", &["cycle"]),
            doc("mu", "5", "-", "").unless("mode", &["cycle", "padded"]),
        ];
        let idle = |text: &str| {
            let mut params = Params::defaults(OF_MODES);
            params.set_text(text).expect(text);
            params.idle()
        };
        assert_eq!(idle("lengths=9"), [""; 0]);
        assert_eq!(idle("mode=drawn,mu=1"), [""; 0]);
        assert_eq!(idle("mode=drawn"), [""; 0], "what nobody gave is not named");
        assert_eq!(
            idle("mode=padded,lengths=9,mu=3"),
            [
                "parameter lengths does nothing with mode=padded; only with mode=cycle",
                "parameter mu does nothing with mode=padded; only without mode=cycle or padded",
            ]
        );
    }

    #[test]
    fn values_default_and_override() {
        let mut params = Params::defaults(DOCS);
        assert_eq!(params.count("batch", 1..=100), Ok(8));
        params.set_text("batch=4, lengths=7/9").unwrap();
        params.set("batch", "5").unwrap();
        assert_eq!(params.count("batch", 1..=100), Ok(5));
        assert_eq!(params.counts("lengths", 1..=10), Ok(vec![7, 9]));
        assert_eq!(params.bytes("size"), Ok(2 << 20));
        assert_eq!(
            params.iter().collect::<Vec<_>>(),
            [("batch", "5"), ("mode", "cycle"), ("lengths", "7/9"), ("size", "2MiB")]
        );
    }

    #[test]
    fn errors_name_key_found_and_expected() {
        let mut params = Params::defaults(DOCS);
        let message = |error: ParamError| error.to_string();
        assert_eq!(
            message(params.set("bach", "1").unwrap_err()),
            r#"unknown parameter "bach"; did you mean batch"#
        );
        assert_eq!(
            message(params.set("zzz", "1").unwrap_err()),
            r#"unknown parameter "zzz"; known: batch, lengths, mode, size"#
        );
        assert_eq!(
            message(params.set_text("batch").unwrap_err()),
            r#"parameter "batch": expected key=value"#
        );
        params.set_text("batch=x,mode=cycles,lengths=1//2,size=big").unwrap();
        assert_eq!(
            message(params.count("batch", 1..=9).unwrap_err()),
            r#"parameter batch: found "x", expected a whole number from 1 to 9"#
        );
        assert_eq!(
            message(params.choice("mode", &[("cycle", 0), ("padded", 1)]).unwrap_err()),
            r#"parameter mode: found "cycles", expected cycle, padded"#
        );
        assert_eq!(
            message(params.counts("lengths", 1..=9).unwrap_err()),
            r#"parameter lengths: found "1//2", expected whole numbers from 1 to 9, separated by /"#
        );
        assert_eq!(
            message(params.bytes("size").unwrap_err()),
            r#"parameter size: found "big", expected a size in bytes, or with a unit such as 64MiB"#
        );
    }
}
