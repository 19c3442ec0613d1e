//! Streams as lines of numbered pieces of work, and who waits for what.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `copy_streams` | copies out of the device, copies into it, and the file each have a stream of their own, made when first used | SwapAdvisor (ASPLOS 2020) 3: one stream each for execution, swap-out, swap-in |
//! | `wait` | a stream that needs another's work waits for the first event recorded there at or after it; one that has waited so far already does not wait again | vDNN (MICRO 2016) 3.2: events between its two streams |
//! | `marks` | once anything has moved, an event is recorded after each announced work, so that a copy need not wait for all that the host has queued since; the latest 256 of a stream are kept | - |

use std::collections::VecDeque;

use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

/// Number of a line.
pub(super) type LineId = usize;

/// Copies from device to host.
pub(super) const OUT: LineId = 0;
/// Copies from host to device.
pub(super) const IN: LineId = 1;
/// Reads and writes of the file.
pub(super) const FILE: LineId = 2;
/// How many lines are not the workload's.
pub(super) const COPIES: usize = 3;

/// Marks kept of a line (rule `marks`).
const MARKS_KEPT: usize = 256;

/// A stream and what was queued on it.
#[derive(Debug, Default)]
struct Line {
    /// Made when first used, if it is a copy stream.
    stream: Option<StreamId>,
    /// Pieces queued so far.
    count: u64,
    /// Events: recorded after so many pieces.
    marks: VecDeque<(u64, EventId)>,
    /// By other line: how many of its pieces are over before what is queued next here.
    heard: Vec<u64>,
}

/// All lines, and events that are not in use.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    spare: Vec<EventId>,
}

impl Lines {
    pub(super) fn new() -> Self {
        let lines = (0..COPIES).map(|_| Line::default()).collect();
        Self { lines, spare: Vec::new() }
    }

    /// The line of a stream of the workload's.
    pub(super) fn of(&mut self, stream: StreamId) -> LineId {
        let known = self.lines[COPIES..].iter().position(|line| line.stream == Some(stream));
        known.map_or_else(
            || {
                self.lines.push(Line { stream: Some(stream), ..Line::default() });
                self.lines.len() - 1
            },
            |at| at + COPIES,
        )
    }

    /// The stream of a line (rule `copy_streams`).
    pub(super) fn stream(
        &mut self,
        driver: &mut dyn Driver,
        line: LineId,
    ) -> Result<StreamId, DriverError> {
        if let Some(stream) = self.lines[line].stream {
            return Ok(stream);
        }
        let stream = driver.stream_create()?;
        self.lines[line].stream = Some(stream);
        Ok(stream)
    }

    /// One more piece was queued; its number. Only events tell others of it.
    pub(super) fn queued(&mut self, line: LineId) -> u64 {
        self.lines[line].count += 1;
        self.lines[line].count
    }

    /// Records an event after all that is queued; the number that stands for it.
    pub(super) fn mark(
        &mut self,
        driver: &mut dyn Driver,
        line: LineId,
    ) -> Result<u64, DriverError> {
        let stream = self.stream(driver, line)?;
        let event = if self.lines[line].marks.len() < MARKS_KEPT {
            self.event(driver)?
        } else {
            self.lines[line].marks.pop_front().expect("marks are kept").1
        };
        if let Err(error) = driver.event_record(event, stream) {
            self.spare.push(event);
            return Err(error);
        }
        let count = self.queued(line);
        self.lines[line].marks.push_back((count, event));
        Ok(count)
    }

    /// What is queued next on `later` comes after the first `count` pieces of `earlier` (rule `wait`).
    pub(super) fn follow(
        &mut self,
        driver: &mut dyn Driver,
        later: LineId,
        earlier: LineId,
        count: u64,
    ) -> Result<(), DriverError> {
        if !self.must_wait(later, earlier, count) {
            return Ok(());
        }
        let (number, event) = self.event_from(driver, earlier, count)?;
        let stream = self.stream(driver, later)?;
        driver.wait_event(stream, event)?;
        let heard = &mut self.lines[later].heard;
        if heard.len() <= earlier {
            heard.resize(earlier + 1, 0);
        }
        heard[earlier] = number;
        Ok(())
    }

    /// What is queued next on `later` comes after all that was queued on `earlier`, by whomever.
    pub(super) fn follow_now(
        &mut self,
        driver: &mut dyn Driver,
        later: LineId,
        earlier: LineId,
    ) -> Result<(), DriverError> {
        if later != earlier {
            let count = self.mark(driver, earlier)?;
            self.follow(driver, later, earlier, count)?;
        }
        Ok(())
    }

    /// Would [`Lines::follow`] queue a wait?
    pub(super) fn must_wait(&self, later: LineId, earlier: LineId, count: u64) -> bool {
        let heard = self.lines[later].heard.get(earlier).copied().unwrap_or_default();
        later != earlier && count > heard
    }

    /// The first event at or after a piece; recorded now if there is none.
    fn event_from(
        &mut self,
        driver: &mut dyn Driver,
        line: LineId,
        count: u64,
    ) -> Result<(u64, EventId), DriverError> {
        let marks = &self.lines[line].marks;
        let at = marks.partition_point(|(number, _)| *number < count);
        if let Some(mark) = marks.get(at) {
            return Ok(*mark);
        }
        self.mark(driver, line)?;
        Ok(*self.lines[line].marks.back().expect("it was recorded just now"))
    }

    /// An event that nobody uses.
    pub(super) fn event(&mut self, driver: &mut dyn Driver) -> Result<EventId, DriverError> {
        match self.spare.pop() {
            Some(event) => Ok(event),
            None => driver.event_create(),
        }
    }

    /// Nobody needs these events any more.
    pub(super) fn spare(&mut self, events: [EventId; 2]) {
        self.spare.extend(events);
    }

    /// The host waits for all that is queued on a line.
    pub(super) fn synchronise(
        &mut self,
        driver: &mut dyn Driver,
        line: LineId,
    ) -> Result<(), DriverError> {
        let stream = self.stream(driver, line)?;
        driver.stream_synchronize(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::testing::ScriptedMachine;

    fn log(machine: &mut ScriptedMachine) -> Vec<String> {
        machine.drain_log().map(|call| call.to_string()).collect()
    }

    #[test]
    fn wait_is_for_the_first_event_at_or_after_it_and_only_once() -> Result<(), DriverError> {
        let (mut lines, mut machine) = (Lines::new(), ScriptedMachine::of_capacity(1 << 20));
        let (s0, s7) = (lines.of(StreamId(0)), lines.of(StreamId(7)));
        let early = lines.queued(s0);
        lines.mark(&mut machine, s0)?;
        let late = lines.queued(s0);
        machine.drain_log();
        lines.follow(&mut machine, s7, s0, early)?;
        assert_eq!(log(&mut machine), ["cudaStreamWaitEvent,,,0,s7,1"], "the event was there");
        lines.follow(&mut machine, s7, s0, early)?;
        lines.follow(&mut machine, s0, s0, late)?;
        assert!(
            log(&mut machine).is_empty(),
            "it was told, and a stream needs no event for itself"
        );
        lines.follow(&mut machine, s7, s0, late)?;
        assert_eq!(log(&mut machine), ["cudaEventRecord,,,0,s0,1", "cudaStreamWaitEvent,,,0,s7,1"]);
        Ok(())
    }

    #[test]
    fn marks_beyond_the_latest_are_used_again() -> Result<(), DriverError> {
        let (mut lines, mut machine) = (Lines::new(), ScriptedMachine::of_capacity(1 << 20));
        let line = lines.of(StreamId(0));
        for _ in 0..3 * MARKS_KEPT {
            lines.mark(&mut machine, line)?;
        }
        assert_eq!(lines.lines[line].marks.len(), MARKS_KEPT);
        assert_eq!(vramlab_sim::Machine::calls(&machine).get("cudaEventCreate"), 256);
        machine.drain_log();
        let later = lines.of(StreamId(7));
        lines.follow(&mut machine, later, line, 1)?;
        let waited = ["cudaStreamWaitEvent,,,0,s7,1"];
        assert_eq!(log(&mut machine), waited, "the oldest mark stands for it");
        Ok(())
    }
}
