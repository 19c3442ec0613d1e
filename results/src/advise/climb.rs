//! Does live memory climb from iteration to iteration? Then no allocator is at fault, and a setting or a larger card only puts off the end.
//!
//! Rule `climb`: of the iterations between the first, which makes what stays, and the last, which may have stopped on its way, at least `SHARE_MIN`
//! leave something that is never freed, and all of that is at least `BYTES_MIN` of the peak.

use serde::Serialize;
use vramlab_sim::units::Bytes;

use super::iterations;
use crate::analysis::lives::Lives;

/// Share of the iterations that leave something.
const SHARE_MIN: f64 = 0.75;
/// What they leave, as a share of the peak.
const BYTES_MIN: f64 = 0.05;
/// So few iterations show nothing.
const COUNT_MIN: usize = 4;

/// What iterations leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Climb {
    /// Iterations between the first and the last.
    pub iterations: usize,
    /// Of these, those that leave something.
    pub leave: usize,
    /// All that they leave (B).
    pub bytes: u64,
}

/// Rule `climb`.
pub fn climb(lives: &Lives) -> Option<Climb> {
    let all = iterations::find(lives).ok()?;
    let middle = all.get(1..all.len() - 1).filter(|middle| middle.len() >= COUNT_MIN)?;
    let leave = middle.iter().filter(|one| one.kept > 0).count();
    let bytes = middle.iter().map(|one| one.kept).fold(0, u64::saturating_add);
    let climbs = leave as f64 >= SHARE_MIN * middle.len() as f64
        && bytes as f64 >= BYTES_MIN * lives.peak_bytes as f64;
    climbs.then_some(Climb { iterations: middle.len(), leave, bytes })
}

impl Climb {
    /// In a sentence.
    pub fn words(&self) -> String {
        format!(
            "live buffers climb: {} of the {} iterations between the first and the last leave something that is never freed, {} each on the mean, {} in all. Look for what is kept from step to step (tensors in lists, losses summed up without .item(), reference cycles that wait for the garbage collector): a setting or a larger card only puts off the end",
            self.leave,
            self.iterations,
            Bytes(self.bytes / self.leave.max(1) as u64),
            Bytes(self.bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::lives::tests::input;

    /// Steps of 1000 bytes, of which each that `leaves` says keeps 200.
    fn steps(count: u64, leaves: impl Fn(u64) -> bool) -> Option<Climb> {
        let mut lines = Vec::new();
        for n in 0..count {
            lines.push(format!(r#"{{"op":"mark","name":"step {n}"}}"#));
            lines.push(format!(r#"{{"op":"alloc","id":{},"size":800}}"#, 2 * n));
            lines.push(format!(r#"{{"op":"alloc","id":{},"size":200}}"#, 2 * n + 1));
            if !leaves(n) {
                lines.push(format!(r#"{{"op":"free","id":{}}}"#, 2 * n + 1));
            }
            lines.push(format!(r#"{{"op":"free","id":{}}}"#, 2 * n));
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        climb(&Lives::read(&input(&lines)).expect("reads"))
    }

    #[test]
    fn what_each_step_leaves_is_a_climb() {
        let found = steps(10, |_| true).expect("a climb");
        assert_eq!(found, Climb { iterations: 8, leave: 8, bytes: 1600 });
        assert!(found.words().contains("8 of the 8 iterations"), "{}", found.words());
    }

    #[test]
    fn what_the_first_step_makes_or_few_leave_is_none() {
        assert_eq!(steps(10, |n| n == 0), None);
        assert_eq!(steps(10, |n| n > 6), None, "the garbage of the last steps");
        assert_eq!(steps(4, |_| true), None, "too short to tell");
    }
}
