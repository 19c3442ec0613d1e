//! What goes on to the instances: notices by what they concern, and announced work by whose blocks it uses.

use vramlab_sim::allocator::{AllocError, Block, Layout, Notice, Placement, Reply, Use};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::{PoolId, StreamId};

use super::{Held, State, StreamSafe};
use crate::parts::tokens::mark_pending;

impl StreamSafe {
    pub(super) fn forward(
        &mut self,
        driver: &mut dyn Driver,
        notice: Notice<'_>,
    ) -> Result<Reply, AllocError> {
        match notice {
            Notice::Resize { block, size } => self.resize(driver, block, size),
            Notice::PoolBegin { pool, stream } => {
                let at = self.instances.at(driver, stream)?;
                if self.pool(pool).is_none() {
                    self.pools.push((pool, at));
                }
                self.tell(driver, at, notice)
            }
            Notice::PoolEnd { pool } | Notice::PoolRelease { pool } => match self.pool(pool) {
                Some(at) => self.tell(driver, at, notice),
                None => Ok(Reply::Unsupported),
            },
            Notice::CaptureBegin { stream } | Notice::CaptureEnd { stream } => {
                self.recorded.set_capturing(matches!(notice, Notice::CaptureBegin { .. }));
                let at = self.instances.at(driver, stream)?;
                self.tell(driver, at, notice)?;
                Ok(Reply::Done)
            }
            Notice::Set { key, value } => {
                let reply = self.tell_all(driver, &notice)?;
                if reply != Reply::Unsupported {
                    self.instances.remember(key, value);
                }
                Ok(reply)
            }
            Notice::Mark { .. } | Notice::ResetPeak | Notice::ResetAccumulated => {
                self.tell_all(driver, &notice)
            }
            Notice::Counters => self.counters(driver),
            Notice::Walk => self.walk(driver),
            _ => Ok(Reply::Unsupported),
        }
    }

    fn pool(&self, pool: PoolId) -> Option<u32> {
        self.pools.iter().find(|(known, _)| *known == pool).map(|(_, at)| *at)
    }

    fn tell(
        &mut self,
        driver: &mut dyn Driver,
        at: u32,
        notice: Notice<'_>,
    ) -> Result<Reply, AllocError> {
        self.instances.with(at, |inner| inner.notice(driver, notice))
    }

    /// Tells all; done if one of them did something.
    fn tell_all(
        &mut self,
        driver: &mut dyn Driver,
        notice: &Notice<'_>,
    ) -> Result<Reply, AllocError> {
        let mut reply = Reply::Unsupported;
        for at in self.instances.all() {
            if self.tell(driver, at, notice.clone())? != Reply::Unsupported {
                reply = Reply::Done;
            }
        }
        Ok(reply)
    }

    fn resize(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        size: u64,
    ) -> Result<Reply, AllocError> {
        let Held { inner, instance, size: old, .. } = self.held(block)?;
        let before = self.instances.usage().allocated;
        let reply = self.tell(driver, instance, Notice::Resize { block: inner, size })?;
        let Reply::Placed(placement) = reply else { return Ok(reply) };
        let after = self.instances.usage().allocated;
        let held = self.tokens.get_mut(block)?;
        (held.inner, held.address) = (placement.block, placement.address);
        held.size = (old + after).saturating_sub(before);
        Ok(Reply::Placed(Placement { block, ..placement }))
    }

    /// Sums over the instances, by name.
    fn counters(&mut self, driver: &mut dyn Driver) -> Result<Reply, AllocError> {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        for at in self.instances.all() {
            let Reply::Counters(list) = self.tell(driver, at, Notice::Counters)? else { continue };
            for (name, value) in list {
                match sums.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum = sum.wrapping_add(value),
                    None => sums.push((name, value)),
                }
            }
        }
        sums.push(("unfreed_allocations", self.instances.waiting()));
        Ok(Reply::Counters(sums))
    }

    fn walk(&mut self, driver: &mut dyn Driver) -> Result<Reply, AllocError> {
        let mut layout = Layout::default();
        for at in self.instances.all() {
            let Reply::Layout(part) = self.tell(driver, at, Notice::Walk)? else {
                return Ok(Reply::Unsupported);
            };
            let stream = self.instances.stream(at);
            let mut segments = part.segments;
            segments.iter_mut().for_each(|segment| segment.stream = stream);
            layout.segments.append(&mut segments);
        }
        layout.segments.sort_by_key(|segment| segment.address);
        let waiting = self.tokens.iter().filter(|held| held.state != State::Live);
        mark_pending(&mut layout, waiting.map(|held| held.address).collect());
        Ok(Reply::Layout(layout))
    }

    /// The uses of blocks of an instance, by its tokens, and where each stands in `uses`.
    fn uses_of(&self, at: u32, uses: &[Use]) -> Result<(Vec<usize>, Vec<Use>), AllocError> {
        let (mut places, mut own) = (Vec::new(), Vec::new());
        for (place, used) in uses.iter().enumerate() {
            let held = self.tokens.get(used.block)?;
            if held.instance == at {
                places.push(place);
                own.push(Use { block: held.inner, ..*used });
            }
        }
        Ok((places, own))
    }

    /// Announces work to the instance of its stream, and to those whose blocks it uses.
    pub(super) fn announce(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        let own = self.instances.find(stream);
        for at in self.instances.all() {
            let (places, mut list) = self.uses_of(at, uses)?;
            if list.is_empty() && own != Some(at) {
                continue;
            }
            self.instances.with(at, |inner| inner.before_work(driver, stream, &mut list))?;
            for (place, moved) in places.into_iter().zip(list) {
                uses[place].address = moved.address;
            }
        }
        Ok(())
    }

    /// The same, after the work is queued.
    pub(super) fn announce_done(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        let own = self.instances.find(stream);
        for at in self.instances.all() {
            let (_, list) = self.uses_of(at, uses)?;
            if !list.is_empty() || own == Some(at) {
                self.instances.with(at, |inner| inner.after_work(driver, stream, &list))?;
            }
        }
        Ok(())
    }
}
