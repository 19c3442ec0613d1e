//! Who used which range of a region last, so that another stream that gets part of it can be made to wait.
//!
//! While there is one stream nothing is kept. Then each freed range remembers the users of its block; a block remembers those of all ranges
//! that it lies on. What no range covers was used by the first stream at most.

use std::collections::BTreeMap;

use vramlab_sim::driver::{Driver, DriverError};
use vramlab_sim::units::StreamId;

use super::last_uses::LastUses;

/// Of [`LastUses`]: nobody but the first stream, before there was a second. Never given out.
const FIRST: u32 = u32::MAX;

/// The past of a region. Users are named by number.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) uses: LastUses,
    /// Freed ranges that do not overlap: end and users, by beginning.
    ranges: BTreeMap<u64, (u64, u32)>,
    vacant: Vec<u32>,
    numbers: u32,
    /// Was anything freed before there were two streams?
    unknown: bool,
}

impl Past {
    fn number(&mut self) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.numbers += 1;
            self.numbers - 1
        })
    }

    fn drop(&mut self, users: u32) {
        self.uses.forget(users);
        self.vacant.push(users);
    }

    /// The range goes to `stream`, which is made to wait for those who used any of it; gives a number for its users.
    pub(crate) fn hand_out(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        begin: u64,
        end: u64,
    ) -> Result<u32, DriverError> {
        self.uses.see(stream);
        if !self.uses.is_many() {
            return Ok(FIRST);
        }
        let users = self.number();
        self.uses.fresh(users);
        let known = self.blend_and_clip(users, begin, end);
        if self.unknown && known < end - begin {
            self.uses.blend(users, FIRST);
        }
        self.uses.hand_out(driver, users, stream)?;
        Ok(users)
    }

    /// Ranges give what lies between `begin` and `end` up; says how much that is.
    fn blend_and_clip(&mut self, users: u32, begin: u64, end: u64) -> u64 {
        let mut known = 0;
        while let Some((&from, &(to, other))) = self.ranges.range(..end).next_back()
            && to > begin
        {
            known += to.min(end) - from.max(begin);
            self.ranges.remove(&from);
            self.uses.blend(users, other);
            if to > end {
                let above = self.number();
                self.uses.cut(other, above);
                self.ranges.insert(end, (to, above));
            }
            if from < begin {
                self.ranges.insert(from, (begin, other));
            } else {
                self.drop(other);
            }
        }
        known
    }

    /// The block of these users is also used on `stream`.
    pub(crate) fn record(&mut self, users: &mut u32, stream: StreamId) {
        self.uses.see(stream);
        if self.uses.is_many() {
            if *users == FIRST {
                *users = self.first();
            }
            self.uses.record(*users, stream);
        }
    }

    /// The range is freed, ordered in `stream` if one is given.
    pub(crate) fn freed(&mut self, users: u32, stream: Option<StreamId>, begin: u64, end: u64) {
        if let Some(stream) = stream {
            self.uses.see(stream);
        }
        if !self.uses.is_many() {
            self.unknown = true;
            return;
        }
        let users = if users == FIRST { self.first() } else { users };
        self.uses.freed(users, stream);
        self.ranges.insert(begin, (end, users));
    }

    /// A number for what the first stream used while it was alone.
    fn first(&mut self) -> u32 {
        let users = self.number();
        self.uses.cut(FIRST, users);
        users
    }

    /// The region was given back, which waits for the device.
    pub(crate) fn clear(&mut self) {
        for (_, users) in std::mem::take(&mut self.ranges).into_values() {
            self.drop(users);
        }
        self.unknown = false;
        self.uses.device_waited();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::ScriptedMachine;

    const S: [StreamId; 3] = [StreamId(0), StreamId(1), StreamId(2)];

    struct Probe {
        past: Past,
        machine: ScriptedMachine,
    }

    impl Probe {
        fn new() -> Self {
            let machine = ScriptedMachine::of_capacity(1 << 30);
            Self { past: Past::default(), machine }
        }

        /// Takes a range; gives its users, and how many streams it waited for.
        fn take(&mut self, stream: usize, begin: u64, end: u64) -> (u32, u64) {
            let before = self.past.uses.waits();
            let users = self.past.hand_out(&mut self.machine, S[stream], begin, end);
            (users.expect("no driver error"), self.past.uses.waits() - before)
        }

        fn pass(&mut self, stream: usize, begin: u64, end: u64) -> u64 {
            let (users, waits) = self.take(stream, begin, end);
            self.past.freed(users, None, begin, end);
            waits
        }
    }

    #[test]
    fn a_range_waits_for_those_who_used_a_part_of_it() {
        let mut probe = Probe::new();
        probe.pass(0, 0, 10);
        assert_eq!(probe.pass(1, 20, 30), 1, "the first stream may have used it");
        assert_eq!(probe.pass(2, 40, 50), 1);
        assert_eq!(probe.pass(1, 20, 30), 0, "its own");
        assert_eq!(probe.pass(0, 25, 45), 2);
        assert_eq!(probe.pass(0, 20, 25), 0, "waited for already");
    }

    #[test]
    fn parts_of_a_range_keep_its_users() {
        let mut probe = Probe::new();
        probe.take(0, 90, 91);
        probe.pass(1, 0, 30);
        assert_eq!(probe.pass(0, 10, 20), 1);
        for (begin, end) in [(0, 10), (20, 30)] {
            let mut fresh = Probe::new();
            fresh.take(0, 90, 91);
            fresh.pass(1, 0, 30);
            fresh.pass(1, 10, 20);
            assert_eq!(fresh.pass(2, begin, end), 1, "{begin} to {end}");
        }
    }

    #[test]
    fn recorded_streams_are_users_and_so_is_that_of_the_free() {
        let mut probe = Probe::new();
        let (mut users, _) = probe.take(0, 0, 10);
        probe.past.record(&mut users, S[1]);
        probe.past.freed(users, Some(S[2]), 0, 10);
        assert_eq!(probe.pass(0, 0, 10), 2);
    }

    #[test]
    fn numbers_are_used_again() {
        let mut probe = Probe::new();
        probe.take(1, 900, 901);
        for round in 0..100 {
            probe.pass(round % 3, (round as u64 * 7) % 50, (round as u64 * 7) % 50 + 9);
        }
        assert!(probe.past.numbers < 40, "{} numbers", probe.past.numbers);
    }
}
