//! Passes: changes to a graph, or to how it is run; each on its own, in any order.
//!
//! A choice of passes is written `amp+checkpoint=sqrt`; `none` is no pass. Each reports in one line what it changed.

mod accumulate;
mod allreduce;
mod amp;
mod augment;
mod budget;
mod checkpoint;
mod cse;
mod fold;
mod fusion;
mod inplace;
mod int8;
mod offload;
mod pipeline;
mod prefetch;
mod reach;
mod release;
mod rewrite;
mod words;
mod zero;

pub use rewrite::Rewrite;

use super::network::GraphError;
use super::plan::Plan;

/// A pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// What the user calls it.
    pub name: &'static str,
    /// What may stand after `=`, the default first.
    pub options: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// Changes the plan, with the text after `=` (empty, if there is none); what it changed.
    pub apply: fn(&mut Plan, &str) -> Result<String, PassError>,
}

/// All passes.
pub const PASSES: &[Pass] = &[
    accumulate::PASS,
    allreduce::PASS,
    amp::PASS,
    augment::PASS,
    checkpoint::PASS,
    cse::PASS,
    fold::PASS,
    fusion::PASS,
    inplace::PASS,
    int8::PASS,
    offload::PASS,
    pipeline::PASS,
    prefetch::PASS,
    release::PASS,
    zero::PASS,
];

/// Why a pass was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassError {
    /// No such pass.
    #[error("unknown pass {name:?}; {offer}")]
    Unknown {
        /// What was given.
        name: String,
        /// What there is.
        offer: String,
    },
    /// A text after `=` that the pass does not take.
    #[error("pass {pass}: found {found:?}, expected {expected}")]
    BadOption {
        /// Which pass.
        pass: &'static str,
        /// What was given.
        found: String,
        /// What it takes.
        expected: String,
    },
    /// A pass changed the graph so that it does not multiply out.
    #[error("pass {pass}: {error}")]
    Changed {
        /// Which pass.
        pass: &'static str,
        /// The layer, and what was found there.
        error: GraphError,
    },
    /// The graph does not multiply out.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl PassError {
    /// The same, of this pass.
    fn within(self, pass: &'static str) -> Self {
        match self {
            Self::Graph(error) => Self::Changed { pass, error },
            other => other,
        }
    }
}

/// A pass and the text after `=`.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Which.
    pub pass: &'static Pass,
    /// Its option; empty if none was given.
    pub option: String,
}

/// What a pass changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which pass.
    pub pass: &'static str,
    /// In one line.
    pub changed: String,
}

/// Reads `amp+checkpoint=sqrt`; `none` and an empty text are no pass.
///
/// # Errors
/// When there is no such pass.
pub fn parse(text: &str) -> Result<Vec<Chosen>, PassError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let pieces = text.split('+').map(str::trim).filter(|piece| *piece != "none");
    pieces
        .map(|piece| {
            let (name, option) = match piece.split_once('=') {
                Some((name, option)) => (name, Some(option)),
                None => (piece, None),
            };
            let pass = PASSES.iter().find(|pass| pass.name == name).ok_or_else(|| {
                let offer = crate::params::nearest(name, PASSES.iter().map(|pass| pass.name));
                PassError::Unknown { name: name.to_owned(), offer }
            })?;
            match option {
                Some("") if pass.options.is_empty() => Err(bad(pass.name, "=", "no option")),
                Some("") => Err(bad(pass.name, "=", &format!("{}, or no =", pass.options))),
                option => Ok(Chosen { pass, option: option.unwrap_or_default().to_owned() }),
            }
        })
        .collect()
}

/// The choice in the order in which it is applied: that given, but that `amp` stands before `int8`, which makes weights wide again in the type that products
/// have then. So the two give the same in either order.
fn in_effect(chosen: &[Chosen]) -> Vec<&Chosen> {
    let is = |chosen: &Chosen, pass: &Pass| chosen.pass.name == pass.name;
    let mut order: Vec<&Chosen> = chosen.iter().collect();
    let mut from = 0;
    while let Some(amp) = order[from..].iter().position(|one| is(one, &amp::PASS)) {
        from += amp + 1;
        if let Some(int8) = order[..from].iter().position(|one| is(one, &int8::PASS)) {
            order[int8..from].rotate_right(1);
        }
    }
    order
}

/// Applies passes in the given order.
///
/// # Errors
/// When an option is refused, or the changed graph does not multiply out.
pub fn apply(plan: &mut Plan, chosen: &[Chosen]) -> Result<Vec<Report>, PassError> {
    let apply_one = |chosen: &Chosen| {
        let pass = chosen.pass.name;
        let mut changed =
            (chosen.pass.apply)(plan, &chosen.option).map_err(|error| error.within(pass))?;
        let moved = plan.graph.settle(plan.run.train, &plan.run.again);
        if moved > 0 {
            changed += &format!("; {moved} results can no longer be written over an input");
        }
        Ok(Report { pass, changed })
    };
    let reports =
        in_effect(chosen).into_iter().map(apply_one).collect::<Result<Vec<Report>, PassError>>()?;
    zero::check(plan)?;
    offload::check(plan)?;
    Ok(reports)
}

/// Most parts of a batch.
const PARTS_MAX: u64 = 1 << 20;

/// Parts in which these passes run a batch of this size, one after the other: the model is built with so much smaller ones.
///
/// # Errors
/// When an option is refused, or the parts do not divide the batch.
pub fn batches(chosen: &[Chosen], batch: u64) -> Result<u64, PassError> {
    let mut all = 1_u64;
    for chosen in chosen {
        let parts = match chosen.pass.name {
            name if name == accumulate::PASS.name => accumulate::parts(&chosen.option)?,
            name if name == pipeline::PASS.name => pipeline::parts(&chosen.option)?,
            _ => 1,
        };
        all = all.saturating_mul(parts);
        if all > PARTS_MAX {
            let expected = format!("at most {PARTS_MAX} parts of a batch in all");
            return Err(bad(chosen.pass.name, &all.to_string(), &expected));
        }
        if !batch.is_multiple_of(all) {
            let found = format!("{all} parts");
            let expected = format!("parts that divide batch={batch}");
            return Err(bad(chosen.pass.name, &found, &expected));
        }
    }
    Ok(all)
}

/// Refuses what only training has.
fn needs_training(plan: &Plan, pass: &'static str, what: &str) -> Result<(), PassError> {
    let refused = || bad(pass, "a run without backward", &format!("training, which has {what}"));
    plan.run.train.then_some(()).ok_or_else(refused)
}

fn bad(pass: &'static str, found: &str, expected: &str) -> PassError {
    PassError::BadOption { pass, found: found.to_owned(), expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_with_a_hole_in_it_is_refused() {
        for (text, part) in [
            ("++", "unknown pass \"\""),
            ("amp+", "unknown pass \"\""),
            ("checkpoint=", r#"pass checkpoint: found "=", expected all, sqrt"#),
            ("int8=", r#"pass int8: found "=", expected no option"#),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn amp_goes_before_int8() {
        let order = |text: &str| {
            let chosen = parse(text).expect(text);
            in_effect(&chosen).iter().map(|one| one.pass.name).collect::<Vec<_>>().join("+")
        };
        assert_eq!(order("int8+fusion+amp+cse"), "amp+int8+fusion+cse");
        assert_eq!(order("cse+amp+int8"), "cse+amp+int8");
        assert_eq!(order("int8+amp+amp"), "amp+amp+int8");
    }

    #[test]
    fn a_choice_is_read_in_order() {
        let chosen = parse("checkpoint=sqrt+amp").unwrap();
        let texts: Vec<_> = chosen.iter().map(|c| (c.pass.name, c.option.as_str())).collect();
        assert_eq!(texts, [("checkpoint", "sqrt"), ("amp", "")]);
        assert!(parse("none").unwrap().is_empty() && parse("").unwrap().is_empty());
        let error = parse("checkpont").unwrap_err().to_string();
        assert_eq!(error, r#"unknown pass "checkpont"; did you mean checkpoint"#);
    }
}
