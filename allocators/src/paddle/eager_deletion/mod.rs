//! `eager_deletion`: dead tensors wait in a collector, which frees them by the batch.
//!
//! Equal to recordings of PaddlePaddle's own code (15888d1, 21 May 2024) around `paddle.auto_growth`, in the rules with golden cases; the others are from the
//! source (`garbage_collector.{h,cc}`, `eager_deletion_pass.cc`), and not checked against the real one yet. It works around any strategy.
//!
//! | rule | what it says | source or golden case |
//! |---|---|---|
//! | `threshold` | trunc(`eager_delete_tensor_gb` x 2^30) bytes, at least 1 | gc03, gc04 |
//! | `off` | a negative value: no collector; dead tensors stay until the run ends | gc02 |
//! | `immediate` | threshold 1: freed when they are handed over | gc01, gc04 |
//! | `batch` | a larger one: they wait until the sum of their block sizes reaches the threshold; then all are freed in the order of their hand-over, and the sum begins at 0 again | gc03, gc05, gc06 |
//! | `hand_over` | the tensors that died with one operator are handed over together, and the sum is looked at once. Here: the frees between two other ops (a request, announced work, a mark…) belong to one operator | gc03, gcL2 |
//! | `run_end` | a mark ends a run of the executor: what waits is freed | gc02, gc03 |
//! | `executor=new` | the newer executor hands over tensor by tensor, and keeps its collector from run to run: a mark frees only what no collector has | source of the newer executor |
//! | `slow` | `fast_eager_deletion_mode=false`: a batch is freed once the streams of its tensors have come to where they are now; before a request fails and at the end of a run that is waited for | source |
//! | `largest` | `memory_fraction_of_eager_deletion` < 1: only the largest tensors, up to that share of all bytes, are collected early; the others stay until the run ends. Paddle knows the tensors of a run from its graph; here they are those that died in the run before, and in the first run all are collected | `eager_deletion_pass.cc` |
//! | `queue` | `queue_bytes=SIZE`, as the articles about Paddle tell it, in place of the threshold: a queue freed when it holds that much, and also before a request fails, and at `empty_cache`. (Paddle's own collector does not hear of a failing request) | - |
//!
//! A waiting tensor is not counted as allocated, but as active. What goes to the strategy inside is told in `forward`. A recorded state is not adopted.

mod collector;
mod forward;
mod largest;
mod options;
#[cfg(test)]
mod tests;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::units::StreamId;

use crate::options::Options;
use crate::parts::tokens::Tokens;
use crate::registry::{Inner, Made, Status, Wrapper};

use collector::{Batch, Queue};
use largest::Largest;
use options::{OPTIONS, Policy};

/// The registry's line.
pub const WRAPPER: Wrapper = Wrapper {
    name: "eager_deletion",
    make,
    status: Status::Exact("PaddlePaddle 15888d1 (May 2024)"),
    many: false,
    options: OPTIONS,
    locking: None,
    summary: "dead tensors wait in a collector, which frees them by the batch",
};

fn make(inner: &Inner, options: &Options) -> Made {
    let policy = Policy::parse(options)?;
    Ok(Box::new(EagerDeletion {
        inner: inner()?,
        tensors: Tokens::default(),
        queue: Queue::default(),
        kept: Queue::default(),
        batches: std::collections::VecDeque::new(),
        open: false,
        waiting: 0,
        largest: policy.fraction.map(Largest::new),
        policy,
        uses: Vec::new(),
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    /// Freed, waits for the collector.
    Dead,
    /// Its free was deferred, and went to the strategy inside.
    Deferred,
}

#[derive(Clone, Copy, Debug)]
struct Tensor {
    /// The token of the strategy inside.
    inner: Block,
    address: u64,
    /// Bytes that count as allocated for it.
    size: u64,
    /// Of its request.
    stream: StreamId,
    /// Of its free, if that was ordered in one.
    freed_on: Option<StreamId>,
    state: State,
}

struct EagerDeletion {
    inner: Box<dyn Allocator>,
    policy: Policy,
    tensors: Tokens<Tensor>,
    /// Handed over, waits for the threshold.
    queue: Queue,
    /// Waits for the end of the run.
    kept: Queue,
    /// Released, waits for streams (rule `slow`), oldest first.
    batches: std::collections::VecDeque<Batch>,
    /// A hand-over is under way (rule `hand_over`).
    open: bool,
    /// Bytes of dead tensors.
    waiting: u64,
    largest: Option<Largest>,
    /// Announced uses, translated.
    uses: Vec<Use>,
}

impl EagerDeletion {
    #[inline]
    fn live(&self, block: Block) -> Result<Tensor, AllocError> {
        let tensor = *self.tensors.get(block)?;
        let live = tensor.state == State::Live;
        if live { Ok(tensor) } else { Err(AllocError::UnknownBlock(block)) }
    }

    /// Asks the strategy inside; while it has no room, what waits is freed (rules `slow`, `queue`). Gives also the bytes that count as
    /// allocated for the block.
    fn place(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<(Placement, u64), AllocError> {
        loop {
            let before = self.inner.usage().allocated;
            let answer = match self.inner.alloc(driver, request) {
                Ok(placement) => {
                    let size = self.inner.usage().allocated.saturating_sub(before);
                    return Ok((placement, size));
                }
                answer => answer.map(|placement| (placement, 0)),
            };
            if !matches!(answer, Err(AllocError::OutOfMemory(_))) {
                return answer;
            }
            if self.policy.on_pressure && !self.queue.is_empty() {
                self.flush(driver)?;
            } else if !self.wait_for_batch(driver)? {
                return answer;
            }
        }
    }
}

impl Allocator for EagerDeletion {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.between_operators(driver)?;
        let (placement, size) = self.place(driver, request)?;
        let Placement { block: inner, address, .. } = placement;
        let (stream, state) = (request.stream, State::Live);
        let tensor = Tensor { inner, address, size, stream, freed_on: None, state };
        Ok(Placement { block: self.tensors.insert(tensor), ..placement })
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        let tensor = self.live(block)?;
        self.die(driver, block, tensor, stream)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.forward(driver, notice)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.between_operators(driver)?;
        self.announce(driver, stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.between_operators(driver)?;
        self.announce_done(driver, stream, uses)
    }

    fn usage(&self) -> Usage {
        let usage = self.inner.usage();
        // of a strategy that moves buffers some may wait outside of the device
        Usage { allocated: usage.allocated.saturating_sub(self.waiting), ..usage }
    }
}
