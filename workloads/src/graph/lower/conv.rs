//! Convolutions' kernels: their workspaces and their trials (rules `workspace` and `benchmark` of [`crate::graph::op::Conv`]).

use super::at::kernel_of;
use super::{Backward, Forward, Lower};
use crate::graph::plan::ConvSpace;
use crate::graph::program::{Kernel, Step, StorageId};
use crate::graph::tensor::{DType, TensorId};
use vramlab_sim::op::Op;

/// What a convolution's workspace is called. One that does not fit is done without, as cuDNN's callers do.
pub(crate) const CONV_SPACE: &str = "conv_workspace";

/// What decides whether a trial was made: which of the three kernels, and the shapes.
pub(super) type Tried = (&'static str, Vec<Vec<u64>>);

impl Lower<'_> {
    /// Queues a convolution that would like so much workspace, after a trial where one is due.
    fn convolve(&mut self, part: &'static str, tensors: [TensorId; 3], kernel: Kernel, space: u64) {
        let run = &self.plan.run;
        let space = if run.conv_space == ConvSpace::None { 0 } else { space };
        let shapes = tensors.map(|id| self.plan.graph.get(id).shape.clone());
        if run.benchmark && self.fresh && self.tried.insert((part, shapes.to_vec())) {
            let trial = self.with_space(kernel.clone(), space);
            self.push(trial);
            self.program.steps.push(Step::Op(Op::EmptyCache));
        }
        let kernel = self.with_space(kernel, space);
        self.push(kernel);
    }

    fn with_space(&mut self, mut kernel: Kernel, space: u64) -> Kernel {
        if space > 0 {
            kernel.scratch = vec![self.storage(space, DType::I8, kernel.scope, CONV_SPACE)];
        }
        kernel
    }
}

impl Forward<'_, '_> {
    /// A convolution of all inputs into the result, with so much workspace.
    pub fn run_convolution(&mut self, space: u64) {
        let reads: Vec<_> = (0..self.inputs()).map(|i| self.input(i)).collect();
        let named = [&reads[..], &[self.output(0)]];
        let kernel = kernel_of(self.lower, self.node, self.flops(), named, &[]);
        let tensors = [self.node.inputs[0], self.node.inputs[1], self.node.outputs[0]];
        self.lower.convolve("forward", tensors, kernel, space);
    }
}

impl Backward<'_, '_> {
    /// One of a convolution's gradients, with so much workspace.
    pub fn convolution(
        &mut self,
        part: &'static str,
        reads: &[StorageId],
        write: StorageId,
        space: u64,
    ) {
        let (flops, named) = (self.forward_flops(), [reads, &[write]]);
        let kernel = kernel_of(self.lower, self.node, flops, named, &self.gradients);
        let tensors = [self.node.inputs[0], self.node.inputs[1], self.node.outputs[0]];
        self.lower.convolve(part, tensors, kernel, space);
    }
}
