//! A TOML file whose values know their lines.

use std::collections::HashSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use vramlab_allocators::options::nearest;

use super::axis::Axis;
use crate::failure::Failure;

/// A value with its place.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// The text of the file, for places in it.
#[derive(Clone, Copy)]
pub(super) struct Text<'t> {
    pub(super) path: &'t str,
    pub(super) text: &'t str,
    /// Where its lines end.
    pub(super) ends: &'t [usize],
}

/// A key of a table with its value.
pub(super) struct Pair<'v, 't> {
    pub(super) key: &'v str,
    pub(super) line: usize,
    pub(super) value: &'v Value<'t>,
}

impl<'t> Text<'t> {
    /// The table that the file is.
    pub(super) fn parse(self) -> Result<DeTable<'t>, Failure> {
        DeTable::parse(self.text).map(Spanned::into_inner).map_err(|error| {
            let line = self.line(error.span().unwrap_or_default());
            self.bad(line, error.message())
        })
    }

    /// Number of the line where `span` begins.
    pub(super) fn line(&self, span: Range<usize>) -> usize {
        self.ends.partition_point(|end| *end < span.start) + 1
    }

    /// Something is wrong in a line.
    pub(super) fn bad(&self, line: usize, what: impl std::fmt::Display) -> Failure {
        Failure::input(format!("{}:{line}: {what}", self.path))
    }

    /// Something else was expected of a value.
    pub(super) fn expected(&self, value: &Value<'_>, name: &str, expected: &str) -> Failure {
        let found = match value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(truth) => truth.to_string(),
            other => format!("a {}", other.type_str()),
        };
        let line = self.line(value.span());
        self.bad(line, format_args!("{name}: found {found}, expected {expected}"))
    }

    /// The pairs of a table in the order of the file.
    pub(super) fn pairs<'v>(&self, table: &'v DeTable<'t>) -> Vec<Pair<'v, 't>> {
        let mut spans: Vec<_> = table.iter().collect();
        spans.sort_by_key(|(key, _)| key.span().start);
        let pair = |(key, value): (&'v Spanned<_>, &'v Value<'t>)| {
            let name: &'v std::borrow::Cow<'t, str> = key.get_ref();
            Pair { key: name, line: self.line(key.span()), value }
        };
        spans.into_iter().map(pair).collect()
    }

    /// The same, of which no key may be another than these.
    pub(super) fn known<'v>(
        &self,
        table: &'v DeTable<'t>,
        of: &str,
        known: &[&str],
    ) -> Result<Vec<Pair<'v, 't>>, Failure> {
        let pairs = self.pairs(table);
        match pairs.iter().find(|pair| !known.contains(&pair.key)) {
            Some(Pair { key, line, .. }) => {
                let offer = nearest(key, known.iter().copied());
                Err(self.bad(*line, format_args!("{of} has no key {key:?}; {offer}")))
            }
            None => Ok(pairs),
        }
    }

    /// A table.
    pub(super) fn table<'v>(
        &self,
        value: &'v Value<'t>,
        name: &str,
    ) -> Result<&'v DeTable<'t>, Failure> {
        value.get_ref().as_table().ok_or_else(|| self.expected(value, name, "a table"))
    }

    /// A text, number or truth value as it is written in options and parameters.
    fn scalar(&self, value: &Value<'_>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => {
                let digits = number.as_str().trim_start_matches('+');
                i128::from_str_radix(digits, number.radix()).ok().map(|n| n.to_string())
            }
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            DeValue::Boolean(truth) => Some(truth.to_string()),
            _ => None,
        }
    }

    /// A text.
    pub(super) fn string(&self, value: &Value<'_>, name: &str) -> Result<String, Failure> {
        let text = value.get_ref().as_str().filter(|text| !text.trim().is_empty());
        text.map(str::to_owned)
            .ok_or_else(|| self.expected(value, name, "a text that is not empty"))
    }

    /// A whole number.
    pub(super) fn count(&self, value: &Value<'_>, name: &str) -> Result<u64, Failure> {
        let number = value.get_ref().is_integer().then(|| self.scalar(value)?.parse().ok());
        number.flatten().ok_or_else(|| self.expected(value, name, "a whole number from 0 on"))
    }

    /// `true` or `false`.
    pub(super) fn truth(&self, value: &Value<'_>, name: &str) -> Result<bool, Failure> {
        value.get_ref().as_bool().ok_or_else(|| self.expected(value, name, "true or false"))
    }

    /// A text, or a list of texts none of which is there twice, with their lines.
    pub(super) fn strings(
        &self,
        value: &Value<'_>,
        name: &str,
    ) -> Result<Vec<(String, usize)>, Failure> {
        let one = |value: &Value<'_>| -> Result<(String, usize), Failure> {
            Ok((self.string(value, name)?, self.line(value.span())))
        };
        let all = match value.get_ref() {
            DeValue::Array(values) => values.iter().map(one).collect::<Result<Vec<_>, _>>()?,
            _ => vec![one(value)?],
        };
        if all.is_empty() {
            return Err(self.empty(value, name));
        }
        let mut seen = HashSet::new();
        for (text, line) in &all {
            if !seen.insert(text) {
                return Err(self.bad(*line, format_args!("{name}: {text:?} is there twice")));
            }
        }
        Ok(all)
    }

    fn empty(&self, value: &Value<'_>, name: &str) -> Failure {
        let line = self.line(value.span());
        let what =
            format!("{name} is empty, so that no cell is left; give a value, or leave it out");
        self.bad(line, what)
    }

    /// A value, a list of values, or a range.
    pub(super) fn axis(&self, value: &Value<'t>, name: &str) -> Result<Axis, Failure> {
        const EXPECTED: &str =
            "a value, a list of values, or a range such as { from = 8, to = 64, step = 8 }";
        match value.get_ref() {
            DeValue::Table(range) => self.range(value, range, name),
            DeValue::Array(values) => {
                let (mut all, mut seen) = (Vec::new(), HashSet::new());
                for one in values.iter() {
                    let text = self.scalar(one);
                    let text = text.ok_or_else(|| self.expected(one, name, "a value"))?;
                    if !seen.insert(text.clone()) {
                        let line = self.line(one.span());
                        return Err(self.bad(line, format_args!("{name}: {text} is there twice")));
                    }
                    all.push(text);
                }
                if all.is_empty() {
                    return Err(self.empty(value, name));
                }
                Ok(Axis::List(all))
            }
            _ => {
                let one = self.scalar(value);
                one.map(Axis::one).ok_or_else(|| self.expected(value, name, EXPECTED))
            }
        }
    }

    fn range(&self, value: &Value<'t>, range: &DeTable<'t>, name: &str) -> Result<Axis, Failure> {
        let pairs =
            self.known(range, &format!("the range of {name}"), &["from", "to", "step", "factor"])?;
        let line = self.line(value.span());
        let get = |wanted: &str| -> Result<Option<String>, Failure> {
            let Some(pair) = pairs.iter().find(|pair| pair.key == wanted) else { return Ok(None) };
            let text = self.scalar(pair.value);
            text.map(Some).ok_or_else(|| self.expected(pair.value, wanted, "a number or a size"))
        };
        let axis = match (get("from")?, get("to")?, get("step")?, get("factor")?) {
            (Some(from), Some(to), Some(step), None) => Axis::steps(&from, &to, &step),
            (Some(from), Some(to), None, Some(factor)) => Axis::powers(&from, &to, &factor),
            _ => Err("a range has from, to, and either step or factor".to_owned()),
        };
        axis.map_err(|what| self.bad(line, format_args!("{name}: {what}")))
    }
}
