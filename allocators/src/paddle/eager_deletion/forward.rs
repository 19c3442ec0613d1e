//! What goes on to the strategy inside: notices and announced work, with its tokens.
//!
//! A deferred free goes straight to it: its end is told from outside, so there is nothing to collect.

use vramlab_sim::allocator::{AllocError, Block, Notice, Placement, Reply, Use};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use super::{EagerDeletion, State, Tensor};
use crate::parts::tokens::mark_pending;

impl EagerDeletion {
    pub(super) fn forward(
        &mut self,
        driver: &mut dyn Driver,
        notice: Notice<'_>,
    ) -> Result<Reply, AllocError> {
        match notice {
            Notice::Walk => return self.walk(driver),
            Notice::Counters => return self.counters(driver),
            Notice::Adopt(_) => return Ok(Reply::Unsupported),
            Notice::Mark { .. } => self.end_run(driver)?,
            _ => self.between_operators(driver)?,
        }
        match notice {
            Notice::RecordStream { block, stream } => {
                let block = self.live(block)?.inner;
                self.inner.notice(driver, Notice::RecordStream { block, stream })
            }
            Notice::FreeDeferred { block } => self.defer(driver, block),
            Notice::Completed { block } => self.complete(driver, block),
            Notice::Resize { block, size } => self.resize(driver, block, size),
            Notice::EmptyCache | Notice::Trim { .. } => {
                if self.policy.on_pressure {
                    self.flush(driver)?;
                    while self.wait_for_batch(driver)? {}
                }
                self.inner.notice(driver, notice)
            }
            Notice::Mark { .. } => {
                self.inner.notice(driver, notice)?;
                Ok(Reply::Done)
            }
            other => self.inner.notice(driver, other),
        }
    }

    fn defer(&mut self, driver: &mut dyn Driver, block: Block) -> Result<Reply, AllocError> {
        let inner = self.live(block)?.inner;
        let reply = self.inner.notice(driver, Notice::FreeDeferred { block: inner })?;
        if reply != Reply::Unsupported {
            self.tensors.get_mut(block)?.state = State::Deferred;
        }
        Ok(reply)
    }

    fn complete(&mut self, driver: &mut dyn Driver, block: Block) -> Result<Reply, AllocError> {
        let tensor = self.tensors.get(block).ok().filter(|t| t.state == State::Deferred);
        let Some(Tensor { inner, .. }) = tensor.copied() else { return Ok(Reply::Done) };
        let reply = self.inner.notice(driver, Notice::Completed { block: inner })?;
        self.tensors.remove(block);
        Ok(reply)
    }

    fn resize(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        size: u64,
    ) -> Result<Reply, AllocError> {
        let Tensor { inner, size: old, .. } = self.live(block)?;
        let before = self.inner.usage().allocated;
        let reply = self.inner.notice(driver, Notice::Resize { block: inner, size })?;
        let Reply::Placed(placement) = reply else { return Ok(reply) };
        let after = self.inner.usage().allocated;
        let tensor = self.tensors.get_mut(block)?;
        (tensor.inner, tensor.address) = (placement.block, placement.address);
        tensor.size = (old + after).saturating_sub(before);
        Ok(Reply::Placed(Placement { block, ..placement }))
    }

    fn walk(&mut self, driver: &mut dyn Driver) -> Result<Reply, AllocError> {
        let reply = self.inner.notice(driver, Notice::Walk)?;
        let Reply::Layout(mut layout) = reply else { return Ok(reply) };
        let dead = self.tensors.iter().filter(|tensor| tensor.state == State::Dead);
        mark_pending(&mut layout, dead.map(|tensor| tensor.address).collect());
        Ok(Reply::Layout(layout))
    }

    fn counters(&mut self, driver: &mut dyn Driver) -> Result<Reply, AllocError> {
        let mut list = match self.inner.notice(driver, Notice::Counters)? {
            Reply::Counters(list) => list,
            _ => Vec::new(),
        };
        let batches: usize = self.batches.iter().map(|batch| batch.queue.len()).sum();
        let tensors = self.queue.len() + self.kept.len() + batches;
        list.push(("gc_pending_bytes", self.queue.bytes()));
        list.push(("gc_pending_tensors", tensors as u64));
        Ok(Reply::Counters(list))
    }

    /// The uses by the inner tokens, in a list that is kept for the next time.
    fn translate(&mut self, uses: &[Use]) -> Result<Vec<Use>, AllocError> {
        let mut list = std::mem::take(&mut self.uses);
        list.clear();
        for used in uses {
            list.push(Use { block: self.tensors.get(used.block)?.inner, ..*used });
        }
        Ok(list)
    }

    pub(super) fn announce(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        let mut list = self.translate(uses)?;
        let answer = self.inner.before_work(driver, stream, &mut list);
        for (used, moved) in uses.iter_mut().zip(&list) {
            used.address = moved.address;
        }
        self.uses = list;
        answer
    }

    pub(super) fn announce_done(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        let list = self.translate(uses)?;
        let answer = self.inner.after_work(driver, stream, &list);
        self.uses = list;
        answer
    }
}
