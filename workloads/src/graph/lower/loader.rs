//! How a batch comes to the device.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `before` | the old batch's inputs are dropped before the new ones are asked for | recordings |
//! | `replaced` | or each when its successor is there | recordings |
//! | `after` | or when the batch is over | recordings |
//! | `cast` | inputs of 16 bits may come in fp32, be cast on the device, and the fp32 ones dropped at once | recordings |
//! | `beside` | a batch may be asked for and copied on a stream of its own, which the computation waits for | `to(non_blocking=True)` on a side stream |
//! | `ahead` | or a step ahead: the next batch is asked for and filled on a stream of its own before the one at hand is used; the computation waits for the latter, and the allocator is told that it uses it | `data_prefetcher` of NVIDIA's examples; recordings of two streams |
//! | `workers` | N workers, each of which takes T for a batch, have the first ready after T, and then one every T/N; while a batch is used they make the next | `torch/utils/data/dataloader.py`, PyTorch 2.15 |
//! | `made` | the last input may be made from a copy as large, which is dropped at once | the same recordings |
//!
//! Which of an input's two numbers the batch at hand has, alternates with each step. Left out: that workers may be several batches ahead (`prefetch_factor`),
//! which evens out steps of different lengths.

use super::Lower;
use super::streams::{BATCH_MADE, COMPUTE, LOAD, WORKERS};
use crate::graph::fixed::Single;
use crate::graph::plan::Inputs;
use crate::graph::program::{Step, StorageId};
use crate::graph::spread::Loader;
use crate::graph::tensor::{DType, ScopeId};
use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::units::StreamId;

impl Lower<'_> {
    /// The first batch, where batches come a step ahead.
    pub(super) fn load_first(&mut self) {
        if let Some(workers) = self.plan.run.spread.workers {
            self.make_batch(workers.batch_ns);
        }
        if let Some(loader) = &self.plan.run.spread.loader {
            let sizes = self.input_sizes();
            self.load_ahead(&sizes, loader.last_is_made, 0);
        }
    }

    fn input_sizes(&self) -> Vec<u64> {
        self.numbers.inputs().iter().map(|id| self.plan.graph.get(*id).bytes()).collect()
    }

    /// A batch of these sizes, under the first or second of its numbers.
    fn load_ahead(&mut self, sizes: &[u64], last_is_made: bool, turn: usize) {
        self.await_workers(LOAD);
        for (i, (id, bytes)) in self.numbers.inputs().iter().zip(sizes).enumerate() {
            let tensor = self.plan.graph.get(*id);
            let number = self.numbers.of_input(*id)[turn];
            let to = self.fixed_storage(number, *bytes, tensor.dtype, tensor.scope, "");
            self.born(number);
            if last_is_made && i + 1 == sizes.len() {
                let raw = self.storage(*bytes, DType::I8, tensor.scope, "raw");
                self.carry_over([None, Some(raw)], *bytes, Direction::HostToDevice, LOAD);
                self.on_stream(LOAD, "made", &[raw], &[to]);
            } else {
                self.carry_over([None, Some(to)], *bytes, Direction::HostToDevice, LOAD);
            }
        }
    }

    pub(super) fn load_batch(&mut self) {
        match &self.plan.run.spread.loader {
            Some(loader) => self.take_loaded(loader),
            None => self.load_now(),
        }
    }

    /// The batch that came a step ahead is used, and the next one comes (rule `ahead`).
    fn take_loaded(&mut self, loader: &Loader) {
        let number = self.numbers.of_single(Single::Turn);
        let turn = usize::from(self.is_live(number));
        self.live[number as usize] = turn == 0;
        for id in self.numbers.inputs() {
            // the batch of the step before
            self.drop_fixed(self.numbers.of_input(*id)[1 - turn], *id);
        }
        self.order(LOAD, COMPUTE);
        for id in self.numbers.inputs() {
            let storage = self.fixed_like(self.numbers.of_input(*id)[turn], *id, "");
            self.place[id.0 as usize] = Some(storage);
            self.program.steps.push(Step::Record(storage, COMPUTE));
        }
        self.load_ahead(&loader.next, loader.last_is_made, 1 - turn);
    }

    /// What follows on a stream waits until the host's workers have made a batch, and they begin the next (rule `workers`).
    fn await_workers(&mut self, stream: StreamId) {
        if let Some(workers) = self.plan.run.spread.workers {
            self.program.steps.push(Step::Op(Op::Wait { event: BATCH_MADE, stream }));
            self.make_batch(workers.batch_ns.div_ceil(workers.count.max(1)));
        }
    }

    /// The host's workers make a batch in this time (ns).
    fn make_batch(&mut self, duration: u64) {
        let (stream, event) = (WORKERS, BATCH_MADE);
        self.program.steps.push(Step::Op(Op::Work { stream, duration }));
        self.program.steps.push(Step::Op(Op::Event { event, stream }));
    }

    fn load_now(&mut self) {
        self.await_workers(COMPUTE);
        if self.plan.run.inputs == Inputs::Before {
            for id in self.numbers.inputs() {
                for number in self.numbers.of_input(*id) {
                    self.drop_fixed(number, *id);
                }
            }
        }
        for id in self.numbers.inputs() {
            let [a, b] = self.numbers.of_input(*id);
            let (new, old) = if self.is_live(a) { (b, a) } else { (a, b) };
            let to = self.fixed_like(new, *id, "");
            self.born(new);
            self.place[id.0 as usize] = Some(to);
            self.fill(to);
            self.drop_fixed(old, *id);
        }
    }

    /// An input comes from the host (rules `beside` and `cast`).
    fn fill(&mut self, to: StorageId) {
        let storage = self.program.get(to);
        let (bytes, dtype, scope) = (storage.bytes, storage.dtype, storage.scope);
        let beside = self.plan.run.spread.inputs_beside;
        let stream = if beside { LOAD } else { COMPUTE };
        let cast = self.plan.run.inputs_cast && dtype.is_float() && dtype != DType::F32;
        let full = bytes / dtype.bytes() * DType::F32.bytes();
        let first = if cast { self.storage(full, DType::F32, scope, "full") } else { to };
        let bytes = self.program.get(first).bytes;
        self.carry_over([None, Some(first)], bytes, Direction::HostToDevice, stream);
        if cast {
            self.on_stream(stream, "cast", &[first], &[to]);
        }
        if beside {
            self.order(LOAD, COMPUTE);
        }
    }

    /// The batch is over (rule `after`).
    pub(super) fn end_batch(&mut self) {
        if self.plan.run.inputs != Inputs::After {
            return;
        }
        for id in self.numbers.inputs() {
            for number in self.numbers.of_input(*id) {
                self.drop_fixed(number, *id);
            }
        }
    }

    fn on_stream(
        &mut self,
        stream: StreamId,
        name: &'static str,
        reads: &[StorageId],
        writes: &[StorageId],
    ) {
        self.simple(name, ScopeId(0), reads, writes);
        if let Some(Step::Run(kernel)) = self.program.steps.last_mut() {
            kernel.stream = stream;
        }
    }
}
