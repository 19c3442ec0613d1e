//! Gradients that go elsewhere when they are complete, bucket by bucket.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `bucket` | complete gradients are gathered until they are as large as a bucket; the rest goes at the end of backward | Li et al. 2020, section 3.2.3; `bucket_cap_mb`, 25 MiB, PyTorch 2.15 |
//! | `flat` | a bucket is one buffer, into which its gradients are copied; where gradients are summed in buckets these are asked for in the first step and never dropped: as much again as all gradients | `torch/csrc/distributed/c10d/reducer.cpp`, pytorch/pytorch#41954 |
//! | `view` | or gradients live in their buckets: no copies, nothing beside them, and `zero_grad` drops nothing | `gradient_as_bucket_view`, the same |
//! | `whole` | without buckets all gradients go in one buffer after backward, which is dropped | Li et al. 2020, section 3.2.1 |
//! | `last` | of several batches for one step, only the last one's sums are exchanged; parts are exchanged after each | `no_sync`, the same |
//! | `sums` | the buffer is summed over the devices in place and copied back; each device sends and receives 2·(N − 1)/N of it | ring all-reduce, Patarasuk and Yuan 2009 |
//! | `shares` | each device hears the sum of its part, (N − 1)/N of the buffer, and writes it over that part of its gradients, which stay whole | Rajbhandari et al. 2020, section 7.2.1 (ZeRO-1) |
//! | `parts` | each device receives its part of the sum, (N − 1)/N of the buffer; whole gradients and the buffer are dropped | Rajbhandari et al. 2020, section 5.2 (ZeRO-2) |
//! | `host` | gradients are copied to the host and dropped | Ren et al. 2021, section 4.1 (ZeRO-Offload) |
//! | `overlap` | all of this happens on the carrying stream while backward goes on; what follows backward waits for it | the same |

use vramlab_sim::machine::Direction;

use super::Lower;
use super::streams::{CARRY, COMPUTE, exchanged};
use crate::graph::program::StorageId;
use crate::graph::spread::Sink;
use crate::graph::tensor::{DType, ScopeId, TensorId};

impl Lower<'_> {
    /// A gradient is complete; true if it goes elsewhere.
    pub(super) fn sinks(&mut self, weight: TensorId, gradient: StorageId) -> bool {
        let spread = &self.plan.run.spread;
        if spread.sink == Sink::Stays {
            return false;
        }
        let mut gradient = gradient;
        if let Sink::Sums(_) | Sink::Shares(_) = spread.sink {
            self.keep(weight, gradient);
            if !self.last {
                return true;
            }
            gradient = self.gradient_storage(weight);
        }
        self.bucket.push((weight, gradient));
        let full: u64 = self.bucket.iter().map(|(_, g)| self.program.get(*g).bytes).sum();
        if spread.bucket > 0 && full >= spread.bucket {
            self.send_bucket();
        }
        true
    }

    /// Backward ends: the rest goes, and the computation waits for all.
    pub(super) fn end_sinking(&mut self) {
        if self.plan.run.spread.sink == Sink::Stays {
            return;
        }
        self.send_bucket();
        self.order(CARRY, COMPUTE);
        for (flat, gradients) in std::mem::take(&mut self.summed) {
            self.simple("bucket", ScopeId(0), &[flat], &gradients);
            if let Sink::Shares(devices) = self.plan.run.spread.sink {
                let part = self.program.get(flat).bytes.div_ceil(devices.max(1));
                self.moves(2 * part);
            }
        }
    }

    fn send_bucket(&mut self) {
        let bucket = std::mem::take(&mut self.bucket);
        if bucket.is_empty() {
            return;
        }
        match self.plan.run.spread.sink {
            Sink::Stays => {}
            Sink::Host => self.send_to_host(&bucket),
            Sink::Sums(_) if self.plan.run.spread.in_buckets => self.sum_in_place(&bucket),
            Sink::Sums(_) | Sink::Shares(_) => self.sum(&bucket),
            Sink::Parts(devices) => self.divide(&bucket, devices),
        }
    }

    fn send_to_host(&mut self, bucket: &[(TensorId, StorageId)]) {
        self.order(COMPUTE, CARRY);
        for (_, gradient) in bucket {
            let bytes = self.program.get(*gradient).bytes;
            self.carry_over([Some(*gradient), None], bytes, Direction::DeviceToHost, CARRY);
        }
    }

    /// The gradients of a bucket in one buffer, which the carrying stream may use.
    fn flatten(&mut self, bucket: &[(TensorId, StorageId)]) -> (StorageId, u64) {
        let gradients: Vec<StorageId> = bucket.iter().map(|(_, gradient)| *gradient).collect();
        let bytes = gradients.iter().map(|g| self.program.get(*g).bytes).sum();
        let spread = &self.plan.run.spread;
        let flat = match (spread.sink, bucket.first()) {
            (Sink::Sums(_), Some((first, _))) if spread.bucket > 0 => {
                let number = self.numbers.of_bucket(*first);
                let flat = self.fixed_storage(number, bytes, DType::I8, ScopeId(0), "bucket");
                self.born(number);
                flat
            }
            _ => self.storage(bytes, DType::I8, ScopeId(0), "bucket"),
        };
        self.simple("bucket", ScopeId(0), &gradients, &[flat]);
        self.order(COMPUTE, CARRY);
        (flat, bytes)
    }

    fn sum(&mut self, bucket: &[(TensorId, StorageId)]) {
        let (flat, bytes) = self.flatten(bucket);
        let bytes = self.exchanged_sums(bytes);
        self.carry_over([Some(flat), Some(flat)], bytes, Direction::PeerToPeer, CARRY);
        let gradients = bucket.iter().map(|(_, gradient)| *gradient).collect();
        self.summed.push((flat, gradients));
    }

    /// Rule `view`.
    fn sum_in_place(&mut self, bucket: &[(TensorId, StorageId)]) {
        self.order(COMPUTE, CARRY);
        let whole = bucket.iter().map(|(_, gradient)| self.program.get(*gradient).bytes).sum();
        let bytes = self.exchanged_sums(whole);
        // the first gradient stands for all: none of them is ever dropped
        let first = bucket.first().map(|(_, gradient)| *gradient);
        self.carry_over([first, first], bytes, Direction::PeerToPeer, CARRY);
    }

    /// Bytes that a device hears when a buffer is summed: of its part, then of all parts (rules `sums` and `shares`).
    fn exchanged_sums(&self, bytes: u64) -> u64 {
        match self.plan.run.spread.sink {
            Sink::Sums(devices) => exchanged(bytes, devices).saturating_mul(2),
            Sink::Shares(devices) => exchanged(bytes, devices),
            Sink::Stays | Sink::Parts(_) | Sink::Host => 0,
        }
    }

    fn divide(&mut self, bucket: &[(TensorId, StorageId)], devices: u64) {
        let (flat, bytes) = self.flatten(bucket);
        let mut bytes = exchanged(bytes, devices);
        for (weight, _) in bucket {
            let tensor = self.plan.graph.get(*weight);
            let (scope, dtype) = (tensor.scope, tensor.dtype);
            let part = tensor.numbers().div_ceil(devices.max(1)) * dtype.bytes();
            let received = self.storage(part, dtype, scope, "grad");
            // the sum arrives with the bucket's first part
            let flat = Some(flat);
            self.carry_over(
                [flat, Some(received)],
                std::mem::take(&mut bytes),
                Direction::PeerToPeer,
                CARRY,
            );
            let number = self.numbers.of_gradient(*weight);
            if self.is_live(number) {
                let kept = self.fixed_storage(number, part, dtype, scope, "grad");
                self.order(CARRY, COMPUTE);
                self.simple("add", scope, &[received, kept], &[kept]);
            } else {
                self.adopt(received, number);
            }
        }
    }
}
