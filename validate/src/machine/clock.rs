//! The host's clock of a run on a driver.
//!
//! | rule | what it says |
//! |---|---|
//! | `host` | time passes as it does, in ns since the machine was made; the last one that can be told is the end |
//! | `aside` | what the machine asks of the driver for its own books takes no time of the run |
//! | `skip` | a workload that waits until a later time is not waited for: the clock goes there at once; with work on the device it is waited for, since the device must come along |
//! | `stand_in` | a stand-in driver may bring a clock of its own, which is then the clock of the run |

use std::time::{Duration, Instant};

use crate::cuda::clock::StandIn;

/// The clock.
pub(super) enum Clock {
    /// The host's own.
    Host {
        start: Instant,
        /// ns that are none of the run's.
        aside: u64,
        /// ns that were not waited for.
        skipped: u64,
        /// Wait for later times.
        paced: bool,
    },
    /// A stand-in driver's.
    StandIn(StandIn),
}

impl Clock {
    /// The driver has begun. `paced`: later times are waited for.
    pub(super) fn new(paced: bool) -> Self {
        match StandIn::find() {
            Some(clock) => Self::StandIn(clock),
            None => Self::Host { start: Instant::now(), aside: 0, skipped: 0, paced },
        }
    }

    pub(super) fn now(&self) -> u64 {
        match self {
            Self::Host { start, aside, skipped, .. } => {
                let real = start.elapsed().as_nanos() as u64;
                real.saturating_sub(*aside).saturating_add(*skipped)
            }
            Self::StandIn(clock) => clock.now(),
        }
    }

    pub(super) fn wait_until(&mut self, time: u64) {
        let ahead = time.saturating_sub(self.now());
        match self {
            Self::Host { paced: true, .. } => std::thread::sleep(Duration::from_nanos(ahead)),
            Self::Host { skipped, .. } => *skipped = skipped.saturating_add(ahead),
            Self::StandIn(clock) => clock.wait_until(time),
        }
    }

    pub(super) fn spend(&mut self, ns: u64) {
        match self {
            Self::Host { paced: true, .. } => {
                let end = self.now().saturating_add(ns);
                while self.now() < end {
                    std::hint::spin_loop();
                }
            }
            Self::Host { skipped, .. } => *skipped = skipped.saturating_add(ns),
            Self::StandIn(clock) => clock.spend(ns),
        }
    }

    pub(super) fn thread(&mut self, thread: u32) {
        if let Self::StandIn(clock) = self {
            clock.thread(thread);
        }
    }

    /// All since `start` took no time (rule `aside`).
    pub(super) fn forget_since(&mut self, start: u64) {
        let past = self.now().saturating_sub(start);
        match self {
            Self::Host { aside, .. } => *aside = aside.saturating_add(past),
            Self::StandIn(clock) => clock.set(start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use std::time::Instant;

    #[test]
    fn the_last_time_that_can_be_told_is_the_end() {
        let mut clock = Clock::Host { start: Instant::now(), aside: 0, skipped: 0, paced: false };
        clock.wait_until(u64::MAX);
        clock.spend(u64::MAX);
        assert_eq!(clock.now(), u64::MAX);
        clock.forget_since(0);
        clock.forget_since(0);
        assert_eq!(clock.now(), u64::MAX);
    }
}
