//! Weights that do not stay on the device: fetched for a block, dropped after it.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `home` | of weights in parts, a device keeps one part in N of each; of weights on the host, nothing | Rajbhandari et al. 2020, section 5.3 (ZeRO-3); Rajbhandari et al. 2021 (ZeRO-Infinity) |
//! | `fetch` | before a block runs forward, and again before it runs backward, its weights are asked for on the carrying stream and filled: from the other devices, or from the host | `torch/distributed/fsdp/_runtime_utils.py`, PyTorch 2.15 |
//! | `ahead` | the next blocks' weights are fetched before the block at hand is queued | `forward_prefetch`, `backward_prefetch` there |
//! | `drop` | they are dropped when the block is queued; the allocator learns of both streams | `_reshard`, `record_stream` |
//! | `limit` | before a fetch the host waits until the device has passed all but so many blocks | `limit_all_gathers`, two there |
//! | `rest` | weights outside of blocks are fetched once, before the forward pass, and live until their last use | the root module of FSDP |

use vramlab_sim::machine::Direction;

use super::Lower;
use super::streams::{CARRY, COMPUTE, exchanged};
use crate::graph::spread::Home;
use crate::graph::tensor::TensorId;

/// How far fetching has come in a pass over the blocks.
#[derive(Default)]
pub(super) struct Fetched {
    /// Units in the order in which they are used.
    order: Vec<usize>,
    /// How many of them are fetched.
    done: usize,
    /// Where the device ends each unit that was used.
    ends: Vec<vramlab_sim::units::EventId>,
}

impl Lower<'_> {
    /// Do weights stay elsewhere?
    pub(super) fn fetches(&self) -> bool {
        self.plan.run.spread.home != Home::Device
    }

    /// A pass over the blocks begins, forward or backward.
    pub(super) fn begin_fetching(&mut self, forward: bool) {
        if !self.fetches() {
            return;
        }
        let mut order: Vec<usize> = (0..self.units.all.len()).collect();
        if forward {
            self.fetch(self.units.rest.clone());
        } else {
            order.reverse();
        }
        self.fetched = Fetched { order, ..Fetched::default() };
    }

    /// A block is about to be queued: its weights and those of the next are fetched.
    pub(super) fn use_unit(&mut self, unit: usize) {
        if !self.fetches() {
            return;
        }
        let Some(place) = self.fetched.order.iter().position(|u| *u == unit) else { return };
        let spread = &self.plan.run.spread;
        let until = (place + 1).saturating_add(spread.ahead as usize);
        let (until, limit) = (until.min(self.fetched.order.len()), spread.run_ahead as usize);
        while self.fetched.done < until {
            let next = self.fetched.done;
            // of blocks that are not queued yet, the latest that is stands for the one to be passed
            let ends = &self.fetched.ends;
            if limit > 0
                && let Some(behind) = next.checked_sub(limit)
                && let Some(event) = ends.get(behind).or(ends.last())
            {
                self.host_waits_for(*event);
            }
            self.fetch(self.units.all[self.fetched.order[next]].weights.clone());
            self.fetched.done += 1;
        }
        self.order(CARRY, COMPUTE);
    }

    /// A block was queued.
    pub(super) fn used_unit(&mut self) {
        if self.fetches() {
            let end = self.milestone();
            self.fetched.ends.push(end);
        }
    }

    /// The weights of a block that is computed again, if they are not those at hand.
    pub(super) fn fetch_again(&mut self, unit: usize) {
        if self.fetches() {
            self.fetch(self.units.all[unit].weights.clone());
            self.order(CARRY, COMPUTE);
        }
    }

    fn fetch(&mut self, weights: Vec<TensorId>) {
        for weight in weights {
            let scope = self.plan.graph.get(weight).scope;
            let to = self.like(weight, scope, "fetched");
            let bytes = self.program.get(to).bytes;
            let (bytes, direction) = match self.plan.run.spread.home {
                Home::Device => return,
                Home::Devices(devices) => (exchanged(bytes, devices), Direction::PeerToPeer),
                Home::Host => (bytes, Direction::HostToDevice),
            };
            self.carry_over([None, Some(to)], bytes, direction, CARRY);
            self.place[weight.0 as usize] = Some(to);
        }
    }
}
