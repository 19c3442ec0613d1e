//! The strategy spec of the command line, and the options in it.
//!
//! ```text
//! torch.caching
//! torch.caching:max_split_size_mb=128,expandable_segments=true
//! torch.caching:conf='max_split_size_mb:128,expandable_segments:True'      a system's own settings text, verbatim
//! paddle.auto_growth+stream_safe+eager_deletion:eager_delete_tensor_gb=0   wrappers, innermost first
//! ```

use std::fmt;

/// Why a spec or an option was refused. The text names what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub String);

/// An option as `list strategies` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDoc {
    /// Its key.
    pub name: &'static str,
    /// What holds where it is not given.
    pub default: &'static str,
    /// What it does and which values it takes, in a line.
    pub help: &'static str,
}

/// Options of one strategy or wrapper, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(String, String)>);

impl Options {
    /// From pairs.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self(pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect())
    }

    /// The last value given for `key`; a spec gives each key once.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// No options at all?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `key` parsed, or `default` if it is absent.
    ///
    /// # Errors
    /// When the value does not parse; the text says what `expected` was.
    pub fn parse<T: std::str::FromStr>(
        &self,
        key: &str,
        expected: &str,
        default: T,
    ) -> Result<T, OptionError> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| OptionError(format!("option {key}={text}: expected {expected}"))),
        }
    }

    /// `key` as a yes or no, or `default` if it is absent.
    ///
    /// # Errors
    /// When the value is neither.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, OptionError> {
        self.get(key).map_or(Ok(default), |text| truth(key, text))
    }

    /// The truth value of a documented option.
    ///
    /// # Errors
    /// As [`Options::flag`].
    pub fn switch(&self, doc: &OptionDoc) -> Result<bool, OptionError> {
        truth(doc.name, self.get(doc.name).unwrap_or(doc.default))
    }

    /// Every key is one of a strategy's options.
    ///
    /// # Errors
    /// Names the unknown key and the nearest known ones.
    pub fn check(&self, strategy: &str, known: &[OptionDoc]) -> Result<(), OptionError> {
        let names = || known.iter().map(|doc| doc.name);
        match self.0.iter().find(|(key, _)| names().all(|name| name != key)) {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => {
                Err(OptionError(format!("{strategy} has no option {key:?}: it takes none")))
            }
            Some((key, _)) => Err(OptionError(format!(
                "{strategy} has no option {key:?}; {}",
                nearest(key, names())
            ))),
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (key, value)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if value.contains([',', '+', ':', '\'', ' ']) {
                write!(f, "{comma}{key}='{value}'")?;
            } else {
                write!(f, "{comma}{key}={value}")?;
            }
        }
        Ok(())
    }
}

/// One name with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// `family.name`, or a wrapper's name.
    pub name: String,
    /// Its options.
    pub options: Options,
}

/// A strategy and its wrappers, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The strategy, then the wrappers; never empty.
    pub parts: Vec<Part>,
}

impl Spec {
    /// A bare strategy with options.
    pub fn new(name: &str, options: Options) -> Self {
        Self { parts: vec![Part { name: name.to_owned(), options }] }
    }

    /// The strategy itself.
    pub fn strategy(&self) -> &Part {
        &self.parts[0]
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            let plus = if i == 0 { "" } else { "+" };
            let colon = if part.options.is_empty() { "" } else { ":" };
            write!(f, "{plus}{}{colon}{}", part.name, part.options)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Spec {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let parts = split_outside_quotes(text, '+')?
            .into_iter()
            .map(|part| parse_part(text, part))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { parts })
    }
}

fn parse_part(whole: &str, text: &str) -> Result<Part, OptionError> {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    if name.is_empty() {
        return Err(OptionError(format!(
            "strategy {whole:?}: a name is missing; expected family.name:option=value,…"
        )));
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in split_outside_quotes(options, ',')?.into_iter().filter(|p| !p.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(OptionError(format!(
                "strategy {whole:?}: {pair:?} is no option; expected option=value"
            )));
        };
        let value = value.strip_prefix('\'').and_then(|v| v.strip_suffix('\'')).unwrap_or(value);
        let key = key.trim();
        if let Some((_, before)) = pairs.iter().find(|(known, _)| known == key) {
            return Err(OptionError(format!(
                "strategy {whole:?}: {key} is given twice, as {before:?} and as {value:?}; expected it once"
            )));
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(Part { name: name.trim().to_owned(), options: Options(pairs) })
}

/// Splits at `separator` outside of single quotes and square brackets.
fn split_outside_quotes(text: &str, separator: char) -> Result<Vec<&str>, OptionError> {
    let (mut parts, mut start, mut quoted, mut depth) = (Vec::new(), 0, false, 0_i32);
    for (i, c) in text.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth -= 1,
            c if c == separator && !quoted && depth <= 0 => {
                parts.push(&text[start..i]);
                start = i + c.len_utf8();
            }
            _ => {}
        }
    }
    if quoted {
        return Err(OptionError(format!("{text:?}: a quote is not closed")));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn truth(key: &str, text: &str) -> Result<bool, OptionError> {
    boolean(text).ok_or_else(|| OptionError(format!("option {key}={text}: expected true or false")))
}

/// A yes or no as people write it: `true`, `True`, `1`, `on`, and their opposites.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "1" | "on" => Some(true),
        "false" | "False" | "FALSE" | "0" | "off" => Some(false),
        _ => None,
    }
}

/// `did you mean a, b or c` for the known names nearest to `found`, or all of them if none is near.
pub fn nearest<'a>(found: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut ranked: Vec<(usize, &str)> =
        known.map(|name| (strsim::levenshtein(found, name), name)).collect();
    ranked.sort_unstable();
    ranked.dedup();
    let limit = (found.chars().count() / 2).max(2);
    let near: Vec<&str> = ranked
        .iter()
        .filter(|(d, name)| *d <= limit || name.contains(found))
        .take(3)
        .map(|(_, n)| *n)
        .collect();
    if near.is_empty() {
        let mut all: Vec<&str> = ranked.iter().map(|(_, n)| *n).collect();
        all.sort_unstable();
        format!("known: {}", all.join(", "))
    } else {
        format!("did you mean {}?", near.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_round_trips() {
        for text in [
            "torch.caching",
            "torch.caching:max_split_size_mb=128,expandable_segments=true",
            "torch.caching:conf='max_split_size_mb:128,expandable_segments:True'",
            "paddle.auto_growth+stream_safe+eager_deletion:eager_delete_tensor_gb=0",
        ] {
            let spec: Spec = text.parse().expect(text);
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn spec_keeps_brackets_and_quotes_whole() {
        let spec: Spec = "torch.caching:roundup_power2_divisions=[64:8,>:1],version=2.9"
            .parse()
            .expect("parses");
        assert_eq!(spec.strategy().options.get("roundup_power2_divisions"), Some("[64:8,>:1]"));
        assert_eq!(spec.strategy().options.get("version"), Some("2.9"));
    }

    #[test]
    fn spec_errors_say_what_was_expected() {
        for (text, want) in [
            ("", "a name is missing"),
            ("torch.caching:x", "expected option=value"),
            ("a:conf='b", "a quote is not closed"),
            ("a:x=1,y=2,x=3", "x is given twice, as \"1\" and as \"3\""),
        ] {
            let error = text.parse::<Spec>().expect_err(text).to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn nearest_offers_close_names_first() {
        assert_eq!(
            nearest("torch.cachin", ["torch.caching", "cuda.malloc"].into_iter()),
            "did you mean torch.caching?"
        );
        assert_eq!(nearest("zzz", ["b", "a"].into_iter()), "known: a, b");
    }
}
