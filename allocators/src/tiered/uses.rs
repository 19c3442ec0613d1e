//! Work is announced: its buffers come to the device, others come ahead of their use, and what is written makes its copies old.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `resident` | all buffers of a piece of work are on the device before it is queued; those that are not come now, and its stream waits for them | - |
//! | `fresh` | a buffer that still lies where it was born in host memory, and is written and not read, comes without a copy | - |
//! | `prefetch` | buffers of the next `prefetch_lead` works that are foreseen come back ahead, the soonest first | vDNN 3.3, prefetch; ZeRO-Infinity 6.2, overlap |
//! | `write_through` | what is written is copied to host memory and to the file at once; a stream that writes again waits for the copy; a write for which the host has no room reaches neither, and is counted in `writes_not_persisted` | - |

use vramlab_sim::allocator::{AllocError, Use};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use super::foresight::Used;
use super::lines::{IN, LineId, OUT};
use super::settings::{Persistent, RestartAt};
use super::stopwatch::Stopwatch;
use super::strategy::Tiered;
use crate::parts::nulls::Nulls;

impl Tiered {
    /// Before work is queued.
    pub(super) fn announce(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        if self.settings.restart_at == Some(RestartAt::Work(self.work)) {
            self.restart_due = true;
            self.settings.restart_at = None;
        }
        if std::mem::take(&mut self.restart_due) {
            self.restart(driver)?;
        }
        let used = self.look_up(uses)?;
        self.work += 1;
        for Used { slot, .. } in &used {
            self.buffers.get_mut(*slot).pinned = self.work;
        }
        self.foresight.announced(&used);
        for slot in self.foresight.changed() {
            self.rank(slot);
        }
        let line = self.lines.of(stream);
        let done = self.bring_all(driver, line, stream, &used);
        for announced in uses.iter_mut().filter(|announced| !Nulls::owns(announced.block)) {
            let slot = self.buffers.find(announced.block)?;
            if let Some(placement) = self.buffers.get(slot).device {
                announced.address = placement.address;
            }
        }
        done
    }

    /// The buffers that are used, null ones left out.
    fn look_up(&self, uses: &[Use]) -> Result<Vec<Used>, AllocError> {
        let real = uses.iter().filter(|used| !Nulls::owns(used.block));
        real.map(|used| Ok(Used { slot: self.buffers.find(used.block)?, write: used.write }))
            .collect()
    }

    fn bring_all(
        &mut self,
        driver: &mut dyn Driver,
        line: LineId,
        stream: StreamId,
        used: &[Used],
    ) -> Result<(), AllocError> {
        self.meet_prefetched(driver, line, stream, used)?;
        let off = |it: &Self| used.iter().any(|u| it.buffers.get(u.slot).device.is_none());
        let waits = self.moving && (off(self) || self.must_wait(line, used));
        let before =
            if waits { Some(Stopwatch::start(driver, &mut self.lines, stream)?) } else { None };
        let done = self.bring_missing(driver, line, used);
        if let Some(before) = before {
            self.watch.stop(driver, &mut self.lines, stream, before, 0)?;
        }
        done?;
        self.prefetch(driver)
    }

    fn bring_missing(
        &mut self,
        driver: &mut dyn Driver,
        line: LineId,
        used: &[Used],
    ) -> Result<(), AllocError> {
        for Used { slot, .. } in used {
            if self.buffers.get(*slot).device.is_none() {
                let reads = used.iter().any(|u| u.slot == *slot && !u.write);
                self.bring(driver, *slot, reads)?;
                self.lines.follow_now(driver, line, self.buffers.get(*slot).home.0)?;
            }
        }
        for Used { slot, write } in used {
            let copies = self.buffers.get(*slot).copies;
            self.lines.follow(driver, line, IN, copies[IN])?;
            if *write {
                self.lines.follow(driver, line, OUT, copies[OUT])?;
            }
        }
        Ok(())
    }

    /// Must the line wait for copies of buffers that are there?
    fn must_wait(&self, line: LineId, used: &[Used]) -> bool {
        used.iter().any(|Used { slot, write }| {
            let copies = self.buffers.get(*slot).copies;
            let out = *write && self.lines.must_wait(line, OUT, copies[OUT]);
            out || self.lines.must_wait(line, IN, copies[IN])
        })
    }

    /// Buffers that came ahead are used: were they there in time?
    fn meet_prefetched(
        &mut self,
        driver: &mut dyn Driver,
        line: LineId,
        stream: StreamId,
        used: &[Used],
    ) -> Result<(), AllocError> {
        let (mut met, mut latest, mut waits) = (0, 0, false);
        for Used { slot, .. } in used {
            let buffer = self.buffers.get_mut(*slot);
            if std::mem::take(&mut buffer.prefetched) {
                met += 1;
                latest = buffer.copies[IN].max(latest);
                waits |= self.lines.must_wait(line, IN, buffer.copies[IN]);
            }
        }
        if !waits {
            self.counters.prefetch_ready += met;
            return Ok(());
        }
        let before = Stopwatch::start(driver, &mut self.lines, stream)?;
        self.lines.follow(driver, line, IN, latest)?;
        Ok(self.watch.stop(driver, &mut self.lines, stream, before, met)?)
    }

    /// Brings a buffer to the device now.
    fn bring(&mut self, driver: &mut dyn Driver, slot: u32, reads: bool) -> Result<(), AllocError> {
        let buffer = self.buffers.get(slot);
        let fresh = buffer.newborn && !reads;
        if buffer.newest.file && !buffer.newest.host && !self.stage(driver, slot)? {
            return Err(self.no_host_room(driver, slot)?);
        }
        if fresh {
            self.mark_birth(driver, slot)?;
            self.drop_host(slot); // whoever leaves for it may need the room
        }
        let placement = self.find_place(driver, &self.request(slot))?;
        self.arrive(driver, slot, placement)?;
        if self.buffers.get(slot).newest.host {
            self.counters.fetches += 1;
            self.copy_in(driver, slot)?;
        }
        self.buffers.get_mut(slot).newest.device = true;
        self.rank(slot);
        Ok(())
    }

    /// Rule `prefetch`.
    fn prefetch(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        let mut coming = Vec::new();
        self.foresight.coming(self.settings.prefetch_lead, &mut coming);
        for (work, slot) in coming {
            let buffer = self.buffers.get(slot);
            let off = buffer.device.is_none() && (buffer.newest.host || buffer.newest.file);
            if !off || !buffer.announced {
                continue; // what was never used need not come with a copy
            }
            if !buffer.newest.host && !self.stage(driver, slot)? {
                return Ok(());
            }
            self.buffers.get_mut(slot).pinned = self.work;
            let Some(placement) = self.find_place_ahead(driver, slot, work)? else {
                return Ok(());
            };
            self.arrive(driver, slot, placement)?;
            self.copy_in(driver, slot)?;
            self.buffers.get_mut(slot).prefetched = true;
            self.counters.prefetches += 1;
            self.rank(slot);
        }
        Ok(())
    }

    /// After work was queued.
    pub(super) fn used(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        let line = self.lines.of(stream);
        let count =
            if self.moving { self.lines.mark(driver, line)? } else { self.lines.queued(line) };
        for Used { slot, write } in self.look_up(uses)? {
            let buffer = self.buffers.get_mut(slot);
            match buffer.uses.iter_mut().find(|(other, _)| *other == line) {
                Some(last) => last.1 = count,
                None => buffer.uses.push((line, count)),
            }
            buffer.last_use = self.work;
            buffer.announced = true;
            if write {
                buffer.newest.file = false;
                self.drop_host(slot);
            }
            self.rank(slot);
        }
        if self.settings.persistent == Persistent::WriteThrough {
            for Used { slot, write } in self.look_up(uses)? {
                if write && !self.buffers.get(slot).newest.host {
                    let copied = self.copy_out(driver, slot, false)?;
                    self.counters.writes_not_persisted += u64::from(!copied);
                }
            }
        }
        Ok(())
    }
}
