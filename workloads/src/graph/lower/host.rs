//! What backward needs of a block, waiting on the host.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `out` | when a block is queued, what its operators saved is copied to the host on the carrying stream, and dropped on the device with its last use there | `torch/autograd/graph.py`, `save_on_cpu`, PyTorch 2.15; Rhu et al. 2016 (vDNN), section 3.2 |
//! | `back` | before a block's backward it is copied back; that of the block before it too, so that copies and kernels overlap | vDNN, figure 9: prefetch by one layer |
//! | `limit` | the host goes on to the next block when all but the last K blocks' copies are done, and brings a block back when the device has come within K blocks of it: what waits to be copied or used cannot be used again | `max_fwd_stash_size` of torchtune's `OffloadActivations` |
//! | `not` | weights, inputs, and what the last block saved, which is needed at once | vDNN, section 3.3 |

use rustc_hash::FxHashMap;
use vramlab_sim::machine::Direction;
use vramlab_sim::units::EventId;

use super::Lower;
use super::streams::{CARRY, COMPUTE};
use crate::graph::program::StorageId;
use crate::graph::tensor::{Role, TensorId};

/// Where things stand.
#[derive(Default)]
pub(super) struct OnHost {
    /// By unit: storages that it sent to the host.
    sent: Vec<Vec<StorageId>>,
    /// When each unit's copies to the host are done, in order.
    done: Vec<EventId>,
    /// When the device begins each unit's backward, in order.
    begun: Vec<EventId>,
    /// By storage that is on the host: all tensors that were seen through it.
    tensors: FxHashMap<StorageId, Vec<TensorId>>,
}

impl Lower<'_> {
    /// A block was queued forward (rule `out`).
    pub(super) fn send_saved(&mut self, unit: usize) {
        let run = &self.plan.run;
        if !run.spread.activations_on_host || !run.train || unit + 1 >= self.units.all.len() {
            return;
        }
        let mut sent = Vec::new();
        for index in self.units.all[unit].nodes.clone() {
            if run.again.iter().any(|range| range.contains(&index)) {
                continue;
            }
            let graph = &self.plan.graph;
            for id in graph.saved(&graph.nodes()[index]) {
                let owner = graph.get(graph.storage(id));
                if owner.role != Role::Activation {
                    continue;
                }
                let Some(storage) = self.place[id.0 as usize] else { continue };
                if !self.on_host.tensors.contains_key(&storage) && !sent.contains(&storage) {
                    sent.push(storage);
                }
            }
        }
        if !sent.is_empty() {
            self.order(COMPUTE, CARRY);
        }
        for storage in &sent {
            let bytes = self.program.get(*storage).bytes;
            self.carry_over([Some(*storage), None], bytes, Direction::DeviceToHost, CARRY);
            self.on_host.tensors.insert(*storage, Vec::new());
        }
        if !sent.is_empty() {
            self.limit_sending();
        }
        self.on_host.sent.resize_with(self.units.all.len(), Vec::new);
        self.on_host.sent[unit] = sent;
    }

    /// A block's copies are queued; the host waits for those of earlier blocks (rule `limit`).
    fn limit_sending(&mut self) {
        let done = self.event(CARRY);
        self.on_host.done.push(done);
        if let Some(event) = self.all_but_limit(&self.on_host.done) {
            self.host_waits_for(event);
        }
    }

    /// The last of these events that are over when all but so many as the limit says are; none without a limit, or while there are so few.
    fn all_but_limit(&self, events: &[EventId]) -> Option<EventId> {
        let limit = self.plan.run.spread.copies_in_flight as usize;
        let place = events.len().checked_sub(limit.saturating_add(1)).filter(|_| limit > 0)?;
        events.get(place).copied()
    }

    /// The forward pass ends: whose storage is on the host?
    pub(super) fn note_saved(&mut self) {
        for (id, _) in self.plan.graph.tensors() {
            if let Some(storage) = self.place[id.0 as usize]
                && let Some(tensors) = self.on_host.tensors.get_mut(&storage)
            {
                tensors.push(id);
            }
        }
    }

    /// A block is about to run backward (rule `back`).
    pub(super) fn bring_saved(&mut self, unit: usize) {
        if self.on_host.sent.is_empty() {
            return;
        }
        let begun = self.milestone();
        self.on_host.begun.push(begun);
        if let Some(event) = self.all_but_limit(&self.on_host.begun) {
            self.host_waits_for(event);
        }
        self.bring(unit);
        self.order(CARRY, COMPUTE);
        if let Some(before) = unit.checked_sub(1) {
            self.bring(before);
        }
    }

    fn bring(&mut self, unit: usize) {
        for old in std::mem::take(&mut self.on_host.sent[unit]) {
            let storage = self.program.get(old);
            let (bytes, dtype, scope) = (storage.bytes, storage.dtype, storage.scope);
            let new = self.storage(bytes, dtype, scope, "back");
            self.carry_over([None, Some(new)], bytes, Direction::HostToDevice, CARRY);
            for tensor in self.on_host.tensors.remove(&old).unwrap_or_default() {
                self.place[tensor.0 as usize] = Some(new);
            }
        }
    }
}
