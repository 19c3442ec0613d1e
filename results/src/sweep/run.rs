//! Runs cells on all cores and hands them over in order.
//!
//! A worker takes the next cell as soon as it is done with the last, so that no core waits for the slowest of a batch. How far workers may be ahead of
//! the oldest cell that is not done is bounded, and with it memory.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;
use crate::frame::Run;

/// How many cells workers may be ahead.
const AHEAD_MAX: u64 = 1024;

#[derive(Default)]
struct State {
    /// The next that nobody has taken.
    next: u64,
    /// The next that is handed over.
    oldest: u64,
    done: BTreeMap<u64, Result<Run, Failure>>,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next to run, if any.
    fn take(&self, end: u64) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if state.stop || state.next == end {
                return None;
            }
            if state.next < state.oldest + AHEAD_MAX {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.wait(state);
        }
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }
}

/// Ends the others when its thread panics, so that nobody waits for what will not come.
struct Guard<'s>(&'s Shared);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// Runs `run` of each number of `from..end`, and gives `each` what it gave, in order. After an error no further one is begun. Not to be called by a
/// thread of rayon's pool, which it would take out of the work.
///
/// # Errors
/// The first, in the order of the numbers.
pub fn in_order(
    from: u64,
    end: u64,
    run: impl Fn(u64) -> Result<Run, Failure> + Sync,
    mut each: impl FnMut(u64, Run) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let state = State { next: from, oldest: from, ..State::default() };
    let shared = Shared { state: Mutex::new(state), changed: Condvar::new() };
    let work = || {
        let _guard = Guard(&shared);
        while let Some(number) = shared.take(end) {
            let ran = run(number);
            shared.lock().done.insert(number, ran);
            shared.changed.notify_all();
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 0..rayon::current_num_threads() {
            scope.spawn(|_| work());
        }
        for number in from..end {
            let handed = match shared.hand(number) {
                Some(ran) => ran.and_then(|run| each(number, run)),
                None => return Ok(()), // a worker panics, which the scope passes on
            };
            if handed.is_err() {
                shared.stop();
                return handed;
            }
        }
        Ok(())
    })
}

impl Shared {
    /// What this number gave; `None` if it will not come.
    fn hand(&self, number: u64) -> Option<Result<Run, Failure>> {
        let mut state = self.lock();
        loop {
            if let Some(ran) = state.done.remove(&number) {
                state.oldest = number + 1;
                self.changed.notify_all();
                return Some(ran);
            }
            if state.stop {
                return None;
            }
            state = self.wait(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(number: u64) -> Run {
        Run { run: number.to_string(), ..Run::default() }
    }

    #[test]
    fn runs_are_handed_over_in_order_whatever_their_length() {
        let mut seen = Vec::new();
        let slow = |number: u64| {
            std::thread::sleep(std::time::Duration::from_micros(number * 7919 % 300));
            Ok(run(number))
        };
        in_order(5, 3000, slow, |number, run| {
            assert_eq!(run.run, number.to_string());
            seen.push(number);
            Ok(())
        })
        .expect("no errors");
        assert_eq!(seen, (5..3000).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_error_in_order_is_the_one_that_is_told() {
        let fails = |number: u64| match number {
            40.. => Err(Failure::input(format!("number {number}"))),
            _ => Ok(run(number)),
        };
        let mut seen = 0;
        let error = in_order(0, 5000, fails, |_, _| {
            seen += 1;
            Ok(())
        });
        assert_eq!(error.expect_err("an error").message, "number 40");
        assert_eq!(seen, 40);
    }

    #[test]
    fn what_is_handed_over_may_end_it() {
        let full = in_order(
            0,
            5000,
            |number| Ok(run(number)),
            |number, _| match number {
                7 => Err(Failure::usage("full")),
                _ => Ok(()),
            },
        );
        assert_eq!(full.expect_err("an error").message, "full");
    }

    #[test]
    #[should_panic(expected = "a bug")]
    fn a_panic_of_a_run_is_passed_on() {
        let _ = in_order(
            0,
            5000,
            |number| {
                assert!(number != 33, "a bug");
                Ok(run(number))
            },
            |_, _| Ok(()),
        );
    }

    /// One that takes long does not let the others pile up results.
    #[test]
    fn nobody_runs_far_ahead() {
        let furthest = Mutex::new(0);
        let one_is_slow = |number: u64| {
            if number == 0 {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            let mut furthest = furthest.lock().expect("no panic");
            *furthest = number.max(*furthest);
            Ok(run(number))
        };
        in_order(0, 100_000, one_is_slow, |number, _| {
            if number == 0 {
                assert!(*furthest.lock().expect("no panic") <= 2 * AHEAD_MAX);
            }
            Ok(())
        })
        .expect("no errors");
    }
}
