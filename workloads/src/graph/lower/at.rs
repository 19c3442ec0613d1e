//! What an operator sees of the program in the making: forward and backward.

use super::{Blas, Lower};
use crate::graph::kernels::{Multiprocessors, column_sum_space};
use crate::graph::network::Node;
use crate::graph::program::{Kernel, StorageId};
use crate::graph::tensor::{DType, Tensor};
use vramlab_sim::units::StreamId;

/// An operator's forward.
pub struct Forward<'l, 'a> {
    pub(super) lower: &'l mut Lower<'a>,
    pub(super) node: &'a Node,
}

impl<'l, 'a> Forward<'l, 'a> {
    pub(super) fn new(lower: &'l mut Lower<'a>, node: &'a Node) -> Self {
        Self { lower, node }
    }

    /// Is it trained, or only run?
    pub fn training(&self) -> bool {
        self.lower.plan.run.train
    }

    /// What of the device decides how sums are split.
    pub fn device(&self) -> Multiprocessors {
        self.lower.plan.run.device
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// An input's storage.
    pub fn input(&self, i: usize) -> StorageId {
        placed(self.lower, self.node.inputs[i])
    }

    /// An output's storage.
    pub fn output(&self, i: usize) -> StorageId {
        placed(self.lower, self.node.outputs[i])
    }

    /// An input.
    pub fn tensor_in(&self, i: usize) -> &'a Tensor {
        self.lower.plan.graph.get(self.node.inputs[i])
    }

    /// An output.
    pub fn tensor_out(&self, i: usize) -> &'a Tensor {
        self.lower.plan.graph.get(self.node.outputs[i])
    }

    /// A temporary.
    pub fn temporary(&mut self, bytes: u64, dtype: DType, part: &'static str) -> StorageId {
        self.lower.storage(bytes, dtype, self.node.scope, part)
    }

    /// A kernel that is bound by memory.
    pub fn kernel(&mut self, reads: &[StorageId], writes: &[StorageId]) {
        self.kernel_with(0.0, reads, writes, &[]);
    }

    /// A kernel that does the operator's operations, with scratch space.
    pub fn kernel_with(
        &mut self,
        flops: f64,
        reads: &[StorageId],
        writes: &[StorageId],
        scratch: &[StorageId],
    ) {
        let kernel = kernel_of(self.lower, self.node, flops, [reads, writes], &[]);
        self.lower.push(Kernel { scratch: scratch.to_vec(), ..kernel });
    }

    /// Operations of the operator.
    pub fn flops(&self) -> f64 {
        self.lower.plan.graph.flops(self.node)
    }

    /// A kernel that moves so many bytes, not all that it names.
    pub fn kernel_moving(&mut self, bytes: u64, reads: &[StorageId], writes: &[StorageId]) {
        self.kernel_with(0.0, reads, writes, &[]);
        self.lower.moves(bytes);
    }

    /// One kernel that reads all inputs and writes all outputs.
    pub fn run(&mut self) {
        self.run_with_scratch(&[]);
    }

    /// The same, with a product's workspace.
    pub fn run_with_workspace(&mut self, space: Blas) {
        let scratch = self.lower.workspace(space, self.node.scope);
        self.run_with_scratch(scratch.as_slice());
    }

    /// The same, with scratch space.
    pub fn run_with_scratch(&mut self, scratch: &[StorageId]) {
        let reads: Vec<_> = (0..self.node.inputs.len()).map(|i| self.input(i)).collect();
        let writes: Vec<_> = (0..self.node.outputs.len()).map(|i| self.output(i)).collect();
        self.kernel_with(self.flops(), &reads, &writes, scratch);
    }

    /// An output is copied to the host, which waits for it.
    pub fn read_by_host(&mut self, i: usize) {
        self.lower.read_by_host(self.output(i));
    }

    pub(in crate::graph) fn hold_inputs(&mut self) {
        let held = (0..self.node.inputs.len()).map(|i| self.input(i)).collect();
        self.lower.hold(held);
    }
}

/// An operator's backward.
pub struct Backward<'l, 'a> {
    pub(super) lower: &'l mut Lower<'a>,
    pub(super) node: &'a Node,
    pub(super) gradients: Vec<Option<StorageId>>,
    given: Vec<(usize, StorageId)>,
}

impl<'l, 'a> Backward<'l, 'a> {
    pub(super) fn new(
        lower: &'l mut Lower<'a>,
        node: &'a Node,
        gradients: Vec<Option<StorageId>>,
    ) -> Self {
        Self { lower, node, gradients, given: Vec::new() }
    }

    /// What was given, in order.
    pub(super) fn given(self) -> Vec<(usize, StorageId)> {
        self.given
    }

    /// The gradient of the result (of the first output that has one).
    ///
    /// # Panics
    /// Never: an operator without any is not asked.
    pub fn gradient(&self) -> StorageId {
        self.gradients
            .iter()
            .flatten()
            .copied()
            .next()
            .expect("only operators with a gradient are asked")
    }

    /// The gradient of an output, if it has one.
    pub fn gradient_of(&self, output: usize) -> Option<StorageId> {
        self.gradients[output]
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// A saved input's storage.
    pub fn input(&self, i: usize) -> StorageId {
        debug_assert!(
            self.node.kind.operator().saves().inputs.contains(&i),
            "input {i} is not saved"
        );
        placed(self.lower, self.node.inputs[i])
    }

    /// A saved output's storage.
    pub fn output(&self, i: usize) -> StorageId {
        debug_assert!(
            self.node.kind.operator().saves().outputs.contains(&i),
            "output {i} is not saved"
        );
        placed(self.lower, self.node.outputs[i])
    }

    /// All that was saved: inputs, then outputs.
    pub fn saved(&self) -> Vec<StorageId> {
        self.lower.plan.graph.saved(self.node).map(|id| placed(self.lower, id)).collect()
    }

    /// An input.
    pub fn tensor_in(&self, i: usize) -> &'a Tensor {
        self.lower.plan.graph.get(self.node.inputs[i])
    }

    /// The result.
    pub fn tensor_out(&self) -> &'a Tensor {
        self.lower.plan.graph.get(self.node.outputs[0])
    }

    /// Does this input want a gradient?
    pub fn wants(&self, i: usize) -> bool {
        self.tensor_in(i).gradient
    }

    /// Room for an input's gradient.
    pub fn like_input(&mut self, i: usize) -> StorageId {
        self.lower.like(self.node.inputs[i], self.node.scope, "grad")
    }

    /// Room for something of the result's size.
    pub fn like_output(&mut self) -> StorageId {
        self.lower.like(self.node.outputs[0], self.node.scope, "grad")
    }

    /// A temporary.
    pub fn temporary(&mut self, bytes: u64, dtype: DType, part: &'static str) -> StorageId {
        self.lower.storage(bytes, dtype, self.node.scope, part)
    }

    /// Operations of the forward kernel.
    pub fn forward_flops(&self) -> f64 {
        self.lower.plan.graph.flops(self.node)
    }

    /// A kernel that is bound by memory.
    pub fn kernel(&mut self, reads: &[StorageId], writes: &[StorageId]) {
        self.kernel_with(0.0, reads, writes, &[]);
    }

    /// A kernel of so many operations, with scratch space.
    pub fn kernel_with(
        &mut self,
        flops: f64,
        reads: &[StorageId],
        writes: &[StorageId],
        scratch: &[StorageId],
    ) {
        let kernel = kernel_of(self.lower, self.node, flops, [reads, writes], &self.gradients);
        self.lower.push(Kernel { scratch: scratch.to_vec(), ..kernel });
    }

    /// A product, with its workspace.
    pub fn product(&mut self, flops: f64, reads: &[StorageId], writes: &[StorageId], space: Blas) {
        let scratch = self.lower.workspace(space, self.node.scope);
        self.kernel_with(flops, reads, writes, scratch.as_slice());
    }

    /// These live until here, and are dropped in this order.
    pub fn hold(&mut self, storages: &[StorageId]) {
        self.lower.hold(storages.to_vec());
    }

    /// Is the result's gradient one number, seen as a tensor of equal ones?
    pub fn is_expanded(&self) -> bool {
        self.lower.program.get(self.gradient()).bytes < self.tensor_out().bytes()
    }

    /// The sum over the rows of a matrix, with the space that a split one takes.
    pub fn column_sum(&mut self, rows: u64, columns: u64, matrix: StorageId, sum: StorageId) {
        let space = column_sum_space(rows, columns, self.lower.plan.run.device);
        let scratch: Vec<StorageId> = space
            .into_iter()
            .flat_map(|space| [(space.partial, "sum.partial"), (space.counters, "sum.counters")])
            .map(|(bytes, part)| self.temporary(bytes, DType::F32, part))
            .collect();
        self.kernel_with(0.0, &[matrix], &[sum], &scratch);
    }

    /// The same, before those that were given already.
    pub fn give_first(&mut self, i: usize, gradient: StorageId) {
        self.given.insert(0, (i, gradient));
    }

    /// The input's gradient; given in the order in which the framework delivers them.
    pub fn give(&mut self, i: usize, gradient: StorageId) {
        self.given.push((i, gradient));
    }
}

/// A kernel of a node's, without scratch space, on the first stream.
pub(super) fn kernel_of(
    lower: &Lower<'_>,
    node: &Node,
    flops: f64,
    [reads, writes]: [&[StorageId]; 2],
    gradients: &[Option<StorageId>],
) -> Kernel {
    let mut seen = Seen::of(lower, node, gradients);
    let moved = reads.iter().chain(writes).map(|id| seen.bytes(lower, *id)).sum();
    Kernel {
        name: node.kind.operator().name(),
        scope: node.scope,
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        scratch: Vec::new(),
        moved: Some(moved),
        flops,
        math: lower.plan.graph.get(node.outputs[0]).dtype,
        stream: StreamId(0),
    }
}

/// What a node sees of storages: a view of a part reads that part, not all of the storage.
struct Seen {
    /// Storages as the node names them, each with the bytes that it sees there, and whether a kernel has named it.
    views: Vec<(StorageId, u64, bool)>,
}

impl Seen {
    fn of(lower: &Lower<'_>, node: &Node, gradients: &[Option<StorageId>]) -> Self {
        let graph = &lower.plan.graph;
        let tensors = node.inputs.iter().chain(&node.outputs);
        let placed = tensors.filter_map(|id| {
            lower.place[id.0 as usize].map(|storage| (storage, graph.get(*id).bytes(), false))
        });
        // one number may stand for a whole gradient; a part may be read of a larger one
        let given = gradients.iter().zip(&node.outputs).filter_map(|(storage, output)| {
            let bytes = lower.program.get((*storage)?).bytes.min(graph.get(*output).bytes());
            Some(((*storage)?, bytes, false))
        });
        Self { views: placed.chain(given).collect() }
    }

    /// Bytes of the next view of this storage that no one has named; of all of it, where the node has no view of it.
    fn bytes(&mut self, lower: &Lower<'_>, id: StorageId) -> u64 {
        let mut mine = self.views.iter_mut().filter(|(storage, ..)| *storage == id);
        let Some(first) = mine.next() else { return lower.program.get(id).bytes };
        if !first.2 {
            first.2 = true;
            return first.1;
        }
        let bytes = first.1;
        let next = mine.find(|(.., named)| !named);
        next.map_or(bytes, |(_, bytes, named)| {
            *named = true;
            *bytes
        })
    }
}

fn placed(lower: &Lower<'_>, tensor: crate::graph::tensor::TensorId) -> StorageId {
    lower.place[tensor.0 as usize].expect("operators run in order, so what is read was made")
}
