//! How weights come to the device.
//!
//! | way | what the device sees | source |
//! |---|---|---|
//! | `to_device` | each weight is asked for and copied: a model built on the host, then `.to(device)` | recordings |
//! | `copy` | the model is built on the device; its weights are loaded beside it, copied over, and dropped: twice the weights | `torch.load`, `load_state_dict`, recordings |
//! | `assign` | the model is built without memory; loaded weights become its own | `load_state_dict(assign=True)`, recordings |
//! | `shards` | the model is built on the device; weights are loaded in shards of a size, each copied over and dropped before the next | sharded checkpoints of transformers |
//! | `quantised` | weights that a pass made int8 come in 16 bits, one by one, and are quantised there | `load_in_8bit` of transformers |
//! | `mapped` | each weight is asked for and read from a mapped file: no copy in host memory first | `torch.load(mmap=True)`, safetensors |
//!
//! Buffers that are no weights (numbers of positions) are not in a file: they are made with the model. Left out: the host's memory.

use vramlab_sim::machine::Direction;

use super::Lower;
use super::streams::COMPUTE;
use crate::graph::plan::Load;
use crate::graph::program::StorageId;
use crate::graph::tensor::{DType, TensorId};

impl Lower<'_> {
    pub(super) fn load(&mut self) {
        match self.plan.run.load {
            Load::ToDevice => self.load_each("model to device", Direction::HostToDevice),
            Load::Assign => {
                self.mark("build model on meta".to_owned(), false);
                self.load_each("torch.load to device", Direction::HostToDevice);
                self.mark("load_state_dict assign".to_owned(), false);
            }
            Load::Mapped => self.load_each("model from mapped file", Direction::Disk),
            Load::Quantised => self.load_quantised(),
            Load::Copy => self.load_beside(None),
            Load::Shards(bytes) => self.load_beside(Some(bytes)),
        }
        if self.plan.run.tokens > 0 {
            // a prompt is timed from its arrival, when the model is there
            self.wait_for_device();
        }
        self.load_first();
    }

    /// Every weight, asked for and filled.
    fn load_each(&mut self, mark: &str, direction: Direction) {
        self.mark(mark.to_owned(), false);
        for (_, to) in self.make_state() {
            self.copy_from(direction, to);
        }
    }

    /// Every weight; an eight-bit one from a temporary in 16 bits.
    fn load_quantised(&mut self) {
        self.mark("model to device".to_owned(), false);
        for (id, to) in self.make_state() {
            let tensor = self.plan.graph.get(id);
            if tensor.dtype != DType::I8 {
                self.copy_from(Direction::HostToDevice, to);
                continue;
            }
            let wide = self.storage(2 * tensor.numbers(), DType::F16, tensor.scope, "loaded");
            self.copy_from(Direction::HostToDevice, wide);
            self.simple("quantise", tensor.scope, &[wide], &[to]);
        }
    }

    /// All weights and buffers, born.
    fn make_state(&mut self) -> Vec<(TensorId, StorageId)> {
        let mut made = Vec::new();
        for (place, id) in self.numbers.state().iter().enumerate() {
            if let Some(kept) = self.state_storage(place) {
                made.push((*id, kept));
                self.born(self.numbers.of_state(place));
            }
        }
        made
    }

    /// The model on the device, and its weights loaded beside it, all at once or in shards of so many bytes.
    fn load_beside(&mut self, shard: Option<u64>) {
        self.mark("build model on device".to_owned(), false);
        let state = self.make_state();
        for (id, to) in &state {
            self.simple("initialise", self.plan.graph.get(*id).scope, &[], &[*to]);
        }
        let mut rest = &state[..];
        while !rest.is_empty() {
            let count = shard.map_or(rest.len(), |most| self.fitting(rest, most));
            let (now, later) = rest.split_at(count);
            self.load_shard(now);
            rest = later;
        }
    }

    /// How many of these come to at most so many bytes; at least one.
    fn fitting(&self, state: &[(TensorId, StorageId)], most: u64) -> usize {
        let mut bytes = 0_u64;
        let fits = |(_, to): &&(TensorId, StorageId)| {
            bytes = bytes.saturating_add(self.program.get(*to).bytes);
            bytes <= most
        };
        state.iter().take_while(fits).count().max(1)
    }

    fn load_shard(&mut self, state: &[(TensorId, StorageId)]) {
        self.mark("torch.load to device".to_owned(), false);
        let mut loaded = Vec::with_capacity(state.len());
        for (id, _) in state {
            let scope = self.plan.graph.get(*id).scope;
            let beside = self.like(*id, scope, "loaded");
            self.copy_from(Direction::HostToDevice, beside);
            loaded.push(beside);
        }
        self.mark("load_state_dict copies".to_owned(), false);
        for ((id, to), beside) in state.iter().zip(&loaded) {
            self.simple("copy", self.plan.graph.get(*id).scope, &[*beside], &[*to]);
        }
        self.mark("drop state dict".to_owned(), false);
        self.hold(loaded);
    }

    fn copy_from(&mut self, direction: Direction, to: StorageId) {
        let bytes = self.program.get(to).bytes;
        self.carry_over([None, Some(to)], bytes, direction, COMPUTE);
    }
}
