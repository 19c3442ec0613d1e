//! When a claim holds: a rule that its row states, and the word that follows from it.
//!
//! | rule | holds for a figure x |
//! |---|---|
//! | `within P % of X`, `within D of X` | x lies that close to X |
//! | `between A and B` | A ≤ x ≤ B |
//! | `at least X`, `at most X` | x ≥ X, x ≤ X |
//! | `equals X` | x is X to the last digit of an `f64` |
//! | `in order` | the figure is a list `a < b < c`, and its means rise so |
//!
//! | word | when |
//! |---|---|
//! | `agrees` | the rule holds for all runs that the row is about |
//! | `agrees if …` | it holds for some of them, which are named; or it holds, and the row names an assumption that the claim did not state |
//! | `refuted` | it holds for none, and the row's second rule, of what would refute it, holds for all |
//! | `differs` | it holds for none, and nothing says that this refutes it |
//! | `not run: …` | a run is not there (a recording is missing, `--quick` leaves it out), or the row says why no run of ours can tell |
//!
//! A rule is judged by the mean over seeds; where the interval reaches across the rule's border, that is said beside the word.

use std::fmt;
use std::str::FromStr;

/// When a claim holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Least and greatest value.
    Between(f64, f64),
    /// To the last digit.
    Equals(f64),
    /// A list that rises.
    InOrder,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |word: &str| {
            let value: Result<f64, _> = word.parse();
            value.ok().filter(|v| v.is_finite()).ok_or(format!("{word:?} is no number"))
        };
        Ok(match words.as_slice() {
            ["in", "order"] => Self::InOrder,
            ["equals", x] => Self::Equals(number(x)?),
            ["at", "least", x] => Self::Between(number(x)?, f64::INFINITY),
            ["at", "most", x] => Self::Between(f64::NEG_INFINITY, number(x)?),
            ["between", a, "and", b] => {
                let (a, b) = (number(a)?, number(b)?);
                if a > b {
                    return Err(format!("{a} is more than {b}"));
                }
                Self::Between(a, b)
            }
            ["within", p, "%", "of", x] => {
                Self::around(number(x)?, number(p)? / 100.0 * number(x)?)
            }
            ["within", d, "of", x] => Self::around(number(x)?, number(d)?),
            _ => {
                return Err(format!(
                    "found the rule {text:?}, expected within P % of X, within D of X, between A and B, at least X, at most X, equals X or in order"
                ));
            }
        })
    }
}

impl Rule {
    fn around(x: f64, distance: f64) -> Self {
        Self::Between(x - distance.abs(), x + distance.abs())
    }

    /// Does it hold for these means? Lists are for `in order`; other rules look at the last.
    pub fn holds(&self, means: &[f64]) -> bool {
        match *self {
            Self::InOrder => means.windows(2).all(|pair| pair[0] < pair[1]),
            Self::Between(least, most) => means.last().is_some_and(|x| (least..=most).contains(x)),
            Self::Equals(wanted) => means.last().is_some_and(|x| *x == wanted),
        }
    }

    /// Does an interval of this half width reach across its border?
    pub fn crosses(&self, mean: f64, half: f64) -> bool {
        self.holds(&[mean - half]) != self.holds(&[mean])
            || self.holds(&[mean + half]) != self.holds(&[mean])
    }
}

/// The word of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Agrees,
    /// It holds under these conditions.
    AgreesIf(String),
    /// It does not hold.
    Differs,
    /// The contrary holds.
    Refuted,
    /// A run is not there, or there can be none; with the reason.
    NotRun(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agrees => f.write_str("agrees"),
            Self::AgreesIf(condition) => write!(f, "agrees if {condition}"),
            Self::Differs => f.write_str("differs"),
            Self::Refuted => f.write_str("refuted"),
            Self::NotRun(reason) => write!(f, "not run: {reason}"),
        }
    }
}

/// Of more runs that agree, the others are named if they are fewer.
const NAMED_MAX: usize = 8;

/// What a row is judged by.
#[derive(Clone, Debug)]
pub struct Judge<'a> {
    /// When the claim holds.
    pub rule: Rule,
    /// What would refute it.
    pub refuted: Option<Rule>,
    /// An assumption that the claim did not state.
    pub assumes: Option<&'a str>,
}

impl Judge<'_> {
    /// The word for the runs that a row is about: the label and the means of each.
    pub fn verdict(&self, runs: &[(String, Vec<f64>)]) -> Verdict {
        let labels = |wanted: bool| -> Vec<&str> {
            let all = runs.iter().filter(|(_, means)| self.rule.holds(means) == wanted);
            all.map(|(label, _)| label.as_str()).collect()
        };
        let (holding, not) = (labels(true), labels(false));
        if holding.is_empty() {
            let refuted = self.refuted.is_some_and(|rule| runs.iter().all(|(_, m)| rule.holds(m)));
            return if refuted { Verdict::Refuted } else { Verdict::Differs };
        }
        // of many runs it is shorter to name the exceptions
        let some = match not.len() {
            0 => None,
            exceptions if holding.len() > NAMED_MAX && exceptions < holding.len() => {
                Some(format!("not {}", not.join(" nor ")))
            }
            _ => Some(holding.join(" or ")),
        };
        let conditions: Vec<&str> = some.as_deref().into_iter().chain(self.assumes).collect();
        if conditions.is_empty() {
            Verdict::Agrees
        } else {
            Verdict::AgreesIf(conditions.join(", and "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().expect(text)
    }

    #[test]
    fn rules_hold_up_to_their_borders() {
        assert!(rule("within 5 % of 20").holds(&[21.0]));
        assert!(!rule("within 5 % of 20").holds(&[21.1]));
        assert!(rule("within 5 % of -20").holds(&[-21.0]));
        assert!(rule("within 2 of 20").holds(&[18.0]));
        assert!(
            rule("between 30 and 50").holds(&[30.0]) && !rule("between 30 and 50").holds(&[50.1])
        );
        assert!(rule("at least 2").holds(&[2.0]) && !rule("at most 2").holds(&[2.1]));
        assert!(rule("equals 4096").holds(&[4096.0]) && !rule("equals 4096").holds(&[4096.5]));
        assert!(rule("in order").holds(&[1.0, 2.0, 3.0]) && !rule("in order").holds(&[1.0, 1.0]));
        assert!(!rule("at least 0").holds(&[f64::NAN]));
    }

    #[test]
    fn an_interval_across_the_border_is_told() {
        assert!(rule("at least 10").crosses(11.0, 2.0));
        assert!(!rule("at least 10").crosses(11.0, 0.5));
        assert!(rule("between 1 and 2").crosses(0.5, 0.7));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "about 11", "within x % of 3", "between 3 and 2", "equals inf", "at least"]
        {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_word_follows_from_the_rules() {
        let runs = |values: &[f64]| {
            let run = |(i, value): (usize, &f64)| (format!("run {i}"), vec![*value]);
            values.iter().enumerate().map(run).collect::<Vec<_>>()
        };
        let bare = Judge { rule: rule("within 1 of 10"), refuted: None, assumes: None };
        assert_eq!(bare.verdict(&runs(&[10.0, 11.0])), Verdict::Agrees);
        assert_eq!(bare.verdict(&runs(&[10.0, 12.0])), Verdict::AgreesIf("run 0".to_owned()));
        assert_eq!(bare.verdict(&runs(&[12.0])), Verdict::Differs);
        let most = [[10.0; 9].as_slice(), &[12.0, 13.0]].concat();
        let words = bare.verdict(&runs(&most)).to_string();
        assert_eq!(words, "agrees if not run 9 nor run 10");
        let full = Judge { refuted: Some(rule("at least 20")), assumes: Some("warm"), ..bare };
        assert_eq!(full.verdict(&runs(&[12.0])), Verdict::Differs);
        assert_eq!(full.verdict(&runs(&[21.0, 30.0])), Verdict::Refuted);
        assert_eq!(full.verdict(&runs(&[10.0])), Verdict::AgreesIf("warm".to_owned()));
        let both = full.verdict(&runs(&[10.0, 30.0]));
        assert_eq!(both.to_string(), "agrees if run 0, and warm");
    }
}
