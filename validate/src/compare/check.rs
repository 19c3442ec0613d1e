//! Two runs side by side: the first is kept, the second is held against it as it goes.

use serde::Serialize;

use crate::watch::{Came, Listener, Step};

/// Differences that are kept in words.
const KEPT: usize = 10;

/// A run, op by op.
#[derive(Default)]
pub(crate) struct Recorded(Vec<Step>);

impl Listener for Recorded {
    fn hear(&mut self, _op: u64, _name: &'static str, step: Step) {
        self.0.push(step);
    }
}

/// Ops of which something differs, by what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Differences {
    pub(crate) placements: u64,
    pub(crate) driver_calls: u64,
    pub(crate) reserved: u64,
    pub(crate) failures: u64,
    /// Ops that only one of the runs came to.
    pub(crate) ops: u64,
    /// The first ones, in words.
    pub(crate) first: Vec<String>,
}

impl Differences {
    pub(crate) fn any(&self) -> bool {
        self.count() > 0
    }

    pub(crate) fn count(&self) -> u64 {
        self.placements + self.driver_calls + self.reserved + self.failures + self.ops
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if self.first.len() < KEPT {
            self.first.push(what());
        }
    }
}

/// Holds a run against one that was recorded.
pub(crate) struct Check {
    expected: Vec<Step>,
    at: usize,
    found: Differences,
}

impl Check {
    pub(crate) fn new(recorded: Recorded) -> Self {
        Self { expected: recorded.0, at: 0, found: Differences::default() }
    }

    /// Ops of the recorded run.
    pub(crate) fn ops(&self) -> u64 {
        self.expected.len() as u64
    }

    /// What differed, with ops that the second run did not come to.
    pub(crate) fn finish(mut self) -> Differences {
        let rest = self.expected.len().saturating_sub(self.at) as u64;
        if rest > 0 {
            self.found.ops += rest;
            let at = self.at;
            self.found
                .say(|| format!("op {at}: the real run ended before it, {rest} ops too early"));
        }
        self.found
    }
}

impl Listener for Check {
    fn hear(&mut self, op: u64, name: &'static str, step: Step) {
        let Some(expected) = self.expected.get(self.at) else {
            self.found.ops += 1;
            self.found.say(|| format!("op {op} ({name}): only the real run came to it"));
            return;
        };
        self.at += 1;
        if *expected == step {
            return;
        }
        let (one, two) = (expected.seen, step.seen);
        let refused = |came: Came| came == Came::Refused;
        if refused(one.outcome) != refused(two.outcome) {
            self.found.failures += 1;
            self.found.say(|| format!("op {op} ({name}): simulated {one}, real {two}"));
        } else if one.outcome != two.outcome {
            self.found.placements += 1;
            self.found.say(|| format!("op {op} ({name}): simulated {one}, real {two}"));
        }
        if expected.calls != step.calls {
            self.found.driver_calls += 1;
            let mut both = expected.calls.iter().zip(&step.calls).enumerate();
            let first = both.find(|(_, (one, two))| one != two);
            let counts = (expected.calls.len(), step.calls.len());
            self.found.say(|| match first {
                Some((at, (one, two))) => {
                    format!("op {op} ({name}): driver call {at}: simulated {one}, real {two}")
                }
                None => format!(
                    "op {op} ({name}): simulated {} driver calls, real {}",
                    counts.0, counts.1
                ),
            });
        }
        if one.reserved != two.reserved {
            self.found.reserved += 1;
            self.found.say(|| {
                let (one, two) = (one.reserved, two.reserved);
                format!("op {op} ({name}): reserved: simulated {one}, real {two}")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::OpSeen;

    fn step(outcome: Came, reserved: u64) -> Step {
        Step { calls: Vec::new(), seen: OpSeen { outcome, reserved } }
    }

    fn found(recorded: &[Step], run: &[Step]) -> Differences {
        let mut check = Check::new(Recorded(recorded.to_vec()));
        for (op, step) in (0..).zip(run) {
            check.hear(op, "alloc", step.clone());
        }
        check.finish()
    }

    #[test]
    fn each_difference_is_counted_as_what_it_is() {
        let (fine, more) = (step(Came::Other, 8), step(Came::Other, 9));
        let refused = step(Came::Refused, 8);
        assert!(!found(&[fine.clone(), refused.clone()], &[fine.clone(), refused.clone()]).any());
        assert_eq!(found(std::slice::from_ref(&fine), &[more]).reserved, 1);
        assert_eq!(found(std::slice::from_ref(&fine), &[refused]).failures, 1);
        let short = found(&[fine.clone(), fine.clone()], std::slice::from_ref(&fine));
        assert_eq!((short.ops, short.count()), (1, 1));
        assert_eq!(found(&[], &[fine]).ops, 1);
    }
}
