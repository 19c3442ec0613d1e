//! Room on the device and in host memory: who leaves.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `victim` | when a request or work needs room, buffers leave in the policy's order until it is there: without a foreseen use the one used longest ago, then the one used again last | Belady (IBM Systems Journal 1966), MIN; SwapAdvisor 4.2 |
//! | `same_size` | of the 64 that leave next, one of just the wanted size goes first, so that the hole it leaves is filled | SwapAdvisor 4.1: victims come from the size class of the request |
//! | `clean` | a buffer of which host or file hold the newest contents leaves without a copy | - |
//! | `small` | buffers below `min_bytes` leave only when no other is left | DeepSpeed: `stage3_param_persistence_threshold` |
//! | `refused` | once the device has refused, it is not asked for more than it then had, used or free, but for a last time when nobody else can leave | - |
//! | `spare_first` | when the host needs room, copies of what is also on the device go first; then, with a persistent tier, what was used longest ago goes to the file | ZeRO-Infinity 5.2 (GPU, CPU, NVMe) |

use vramlab_sim::allocator::{AllocError, Notice, OutOfMemory, Placement, Request, Usage};
use vramlab_sim::driver::{Driver, DriverExt};

use super::host::HostBlock;
use super::lines::{IN, LineId, OUT};
use super::order::{Key, class};
use super::settings::Persistent;
use super::strategy::Tiered;

/// How many of those that leave next are looked at for one of the wanted size (rule `same_size`).
const LOOKED_AT: usize = 64;

/// Is a buffer with this key used later than `work`, as far as is known?
fn is_later((class, rank): Key, work: u64) -> bool {
    class == class::UNFORESEEN || class == class::FORESEEN && u64::MAX - rank > work
}

impl Tiered {
    /// A place on the device; buffers leave for it that need not stay.
    ///
    /// # Errors
    /// Out of memory when all that may leave has left, or a driver error.
    pub(super) fn find_place(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let (mut gone, mut only_clean, mut refusal) = (u64::MAX, false, None);
        loop {
            if gone >= request.size && self.may_fit(request.size) {
                match self.ask(driver, request) {
                    // free memory is in pieces: as much again must leave
                    Err(error @ AllocError::OutOfMemory(_)) => (refusal, gone) = (Some(error), 0),
                    answer => return answer,
                }
            }
            let Some(victim) = self.next_victim(request.size, only_clean, None) else {
                return match refusal.filter(|_| gone == 0) {
                    Some(refusal) => Err(refusal),
                    None => self.ask(driver, request),
                };
            };
            if self.leave(driver, victim)? {
                gone = gone.saturating_add(self.buffers.get(victim).size);
            } else {
                only_clean = true; // the host is full
            }
        }
    }

    /// The same ahead of a use at `work`: only buffers leave that are used later, if at all, and only if that makes the room.
    pub(super) fn find_place_ahead(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        work: u64,
    ) -> Result<Option<Placement>, AllocError> {
        let request = self.request(slot);
        if !self.room_ahead(request.size, work) {
            return Ok(None);
        }
        while !self.may_fit(request.size) {
            let Some(victim) = self.next_victim(request.size, false, Some(work)) else {
                return Ok(None);
            };
            if !self.leave(driver, victim)? {
                return Ok(None);
            }
        }
        match self.ask(driver, &request) {
            Ok(placement) => Ok(Some(placement)),
            Err(AllocError::OutOfMemory(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Would there be room if all left that are used later than `work`?
    fn room_ahead(&self, size: u64, work: u64) -> bool {
        let used = self.inner.usage().active;
        let room = self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(used));
        let mut missing = size.saturating_sub(room);
        for (_, slot) in self.order.iter().take_while(|(key, _)| is_later(*key, work)) {
            if missing == 0 {
                break;
            }
            if !self.stays(slot) {
                missing = missing.saturating_sub(self.buffers.get(slot).size);
            }
        }
        missing == 0
    }

    /// The request for a place of a buffer that there is.
    pub(super) fn request(&self, slot: u32) -> Request {
        let buffer = self.buffers.get(slot);
        Request { size: buffer.size, stream: buffer.home.1, ordinal: buffer.ordinal }
    }

    /// Who leaves next (rules `victim`, `same_size`); with `work` only one that is used later than that, if at all.
    fn next_victim(&self, wanted: u64, only_clean: bool, work: Option<u64>) -> Option<u32> {
        let in_time = |(key, _): &(Key, u32)| work.is_none_or(|work| is_later(*key, work));
        let may_leave =
            |slot: &u32| !self.stays(*slot) && (!only_clean || self.buffers.get(*slot).is_clean());
        let slots = self.order.iter().take_while(in_time).map(|(_, slot)| slot);
        let mut first = slots.filter(may_leave).take(LOOKED_AT);
        let next = first.next()?;
        let same = |slot: &u32| self.buffers.get(*slot).size == wanted;
        if same(&next) { Some(next) } else { first.find(same).or(Some(next)) }
    }

    /// A buffer leaves the device; false if what it holds has no place to go.
    pub(super) fn leave(&mut self, driver: &mut dyn Driver, slot: u32) -> Result<bool, AllocError> {
        let clean = self.buffers.get(slot).is_clean() || self.foresight.is_dead(slot);
        if !clean && !self.copy_out(driver, slot, true)? {
            return Ok(false);
        }
        let buffer = self.buffers.get_mut(slot);
        let Some(placement) = buffer.device else { return Ok(true) };
        self.watch.leaves(driver, &mut self.lines)?;
        // what its home stream does next may be given the memory
        let home = buffer.home.0;
        for (line, count) in &buffer.uses {
            self.lines.follow(driver, home, *line, *count)?;
        }
        self.lines.follow(driver, home, IN, buffer.copies[IN])?;
        self.lines.follow(driver, home, OUT, buffer.copies[OUT])?;
        self.inner.free(&mut self.limit.around(driver), placement.block, None)?;
        buffer.device = None;
        buffer.newest.device = false;
        buffer.uses.clear();
        self.counters.not_resident(buffer.size, std::mem::take(&mut buffer.prefetched));
        self.counters.evictions += 1;
        self.counters.evictions_clean += u64::from(clean);
        self.rank(slot);
        Ok(true)
    }

    /// The buffer is on the device from here on; its streams are as they were told.
    pub(super) fn arrive(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        placement: Placement,
    ) -> Result<(), AllocError> {
        let buffer = self.buffers.get_mut(slot);
        buffer.device = Some(placement);
        self.counters.resident(buffer.size);
        for stream in &buffer.recorded {
            let recorded = Notice::RecordStream { block: placement.block, stream: *stream };
            self.inner.notice(&mut self.limit.around(driver), recorded)?;
        }
        Ok(())
    }

    /// A block of host memory for `user` to write to (rule `spare_first`).
    pub(super) fn host_room(
        &mut self,
        driver: &mut dyn Driver,
        bytes: u64,
        user: LineId,
    ) -> Result<Option<HostBlock>, AllocError> {
        loop {
            if let Some(block) = self.host.take(driver, &mut self.lines, bytes, user)? {
                return Ok(Some(block));
            }
            let Some(slot) = self.next_host_victim() else { return Ok(None) };
            let buffer = self.buffers.get(slot);
            if !(buffer.newest.device || buffer.newest.file) {
                self.persist(driver, slot)?;
            }
            self.drop_host(slot);
        }
    }

    /// The host has no room to read a buffer's contents into.
    pub(super) fn no_host_room(
        &self,
        driver: &mut dyn Driver,
        slot: u32,
    ) -> Result<AllocError, AllocError> {
        let Usage { active, reserved, .. } = self.inner.usage();
        Ok(AllocError::from(OutOfMemory {
            asked: self.buffers.get(slot).size,
            device_free: driver.mem_info()?.0,
            reserved,
            active,
            largest_free: 0,
            limit: Some(self.settings.host_bytes),
        }))
    }

    fn next_host_victim(&self) -> Option<u32> {
        let persistent = self.settings.persistent != Persistent::None;
        let spare_or_kept =
            self.host_order.iter().take_while(|((class, _), _)| *class == 0 || persistent);
        let mut slots = spare_or_kept.map(|((class, _), slot)| (class == 0, slot));
        slots.find(|(spare, slot)| *spare || !self.stays(*slot)).map(|(_, slot)| slot)
    }
}
