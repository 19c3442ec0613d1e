//! The collector itself: what becomes of a dead tensor.

use std::collections::VecDeque;

use vramlab_sim::allocator::{AllocError, Block};
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::units::{EventId, StreamId};

use super::{EagerDeletion, State, Tensor};

/// Dead tensors in order of their hand-over.
#[derive(Debug, Default)]
pub(super) struct Queue {
    list: VecDeque<Block>,
    bytes: u64,
}

impl Queue {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// A released queue, and the marks that streams must come to before it is freed.
#[derive(Debug)]
pub(super) struct Batch {
    events: Vec<EventId>,
    pub(super) queue: Queue,
}

impl EagerDeletion {
    /// The host drops a tensor.
    #[inline]
    pub(super) fn die(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        tensor: Tensor,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        let early = self.largest.as_mut().is_none_or(|largest| largest.died(tensor.size));
        let collected = early && self.policy.threshold.is_some();
        if collected && self.policy.is_immediate() {
            self.inner.free(driver, tensor.inner, stream)?;
            self.tensors.remove(block);
            return Ok(());
        }
        *self.tensors.get_mut(block)? = Tensor { freed_on: stream, state: State::Dead, ..tensor };
        self.waiting += tensor.size;
        let queue = if collected { &mut self.queue } else { &mut self.kept };
        queue.list.push_back(block);
        queue.bytes += tensor.size;
        self.open |= collected;
        if self.policy.by_tensor { self.between_operators(driver) } else { Ok(()) }
    }

    /// Ends a hand-over (rule `hand_over`), and looks at batches that wait for streams.
    #[inline]
    pub(super) fn between_operators(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if std::mem::take(&mut self.open) && self.policy.is_reached(self.queue.bytes) {
            self.flush(driver)?;
        }
        while let Some(batch) = self.batches.front() {
            for event in &batch.events {
                if !driver.event_query(*event)? {
                    return Ok(());
                }
            }
            self.free_batch(driver)?;
        }
        Ok(())
    }

    /// Releases the queue: frees it, or makes a batch of it (rule `slow`).
    pub(super) fn flush(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        if self.policy.fast {
            let mut queue = std::mem::take(&mut self.queue);
            let answer = self.free_all(driver, &mut queue);
            self.queue = queue;
            return answer;
        }
        let mut events: Vec<(StreamId, EventId)> = Vec::new();
        for block in &self.queue.list {
            let Tensor { stream, freed_on, .. } = *self.tensors.get(*block)?;
            let stream = freed_on.unwrap_or(stream);
            if events.iter().all(|(known, _)| *known != stream) {
                events.push((stream, mark(driver, stream)?));
            }
        }
        let events = events.into_iter().map(|(_, event)| event).collect();
        self.batches.push_back(Batch { events, queue: std::mem::take(&mut self.queue) });
        Ok(())
    }

    /// Waits for the oldest batch, and frees it; false if there is none.
    pub(super) fn wait_for_batch(&mut self, driver: &mut dyn Driver) -> Result<bool, AllocError> {
        let Some(batch) = self.batches.front() else { return Ok(false) };
        for event in &batch.events {
            driver.event_synchronize(*event)?;
        }
        self.free_batch(driver)?;
        Ok(true)
    }

    /// Frees the oldest batch, whose streams have come far enough.
    fn free_batch(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        let Some(batch) = self.batches.front_mut() else { return Ok(()) };
        while !batch.events.is_empty() {
            driver.event_destroy(batch.events.remove(0))?;
        }
        let mut queue = std::mem::take(&mut batch.queue);
        let answer = self.free_all(driver, &mut queue);
        match self.batches.front_mut() {
            Some(batch) if !queue.is_empty() => batch.queue = queue,
            _ => drop(self.batches.pop_front()),
        }
        answer
    }

    /// Frees tensors in order; what a driver's error keeps from it stays in the queue.
    fn free_all(&mut self, driver: &mut dyn Driver, queue: &mut Queue) -> Result<(), AllocError> {
        while let Some(block) = queue.list.front().copied() {
            let Tensor { inner, size, freed_on, .. } = *self.tensors.get(block)?;
            self.inner.free(driver, inner, freed_on)?;
            self.waiting -= size;
            self.tensors.remove(block);
            queue.list.pop_front();
            queue.bytes -= size;
        }
        Ok(())
    }

    /// Rules `run_end` and `executor=new`.
    pub(super) fn end_run(&mut self, driver: &mut dyn Driver) -> Result<(), AllocError> {
        self.between_operators(driver)?;
        while self.wait_for_batch(driver)? {}
        let mut kept = std::mem::take(&mut self.kept);
        let answer = self.free_all(driver, &mut kept);
        self.kept = kept;
        answer?;
        if !self.policy.by_tensor {
            let mut queue = std::mem::take(&mut self.queue);
            let answer = self.free_all(driver, &mut queue);
            self.queue = queue;
            answer?;
        }
        if let Some(largest) = &mut self.largest {
            largest.next_run();
        }
        Ok(())
    }
}

/// An event at the present end of the stream.
fn mark(driver: &mut dyn Driver, stream: StreamId) -> Result<EventId, DriverError> {
    let event = driver.event_create()?;
    driver.event_record(event, stream)?;
    Ok(event)
}
