//! The forward graph: tensors, operators in the order in which they run, and the module path of each.
//!
//! A model builds it layer by layer; shapes are checked as operators are added, and an error names the layer.

mod copy;
mod cut;
mod over;

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::op::{Hold, Kind};
use super::tensor::{DType, NUMBERS_MAX, Role, ScopeId, Spec, Tensor, TensorId, shape_text};

/// A model's shapes do not multiply out, or it cannot be run so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{layer}: {what}")]
pub struct GraphError {
    /// The layer's path.
    pub layer: String,
    /// What was found and what was expected.
    pub what: String,
}

/// An operator of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Which.
    pub kind: Kind,
    /// What it reads.
    pub inputs: Vec<TensorId>,
    /// What it makes: the result, then by-products.
    pub outputs: Vec<TensorId>,
    /// Where it stands.
    pub scope: ScopeId,
    /// Its result is written over this input.
    pub over: Option<usize>,
}

/// A tensor that the next batch finds: a cache that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carry {
    /// Its number among all that a run carries.
    pub number: u32,
    /// What the batch before left; dropped as soon as the new one is there.
    pub old: Option<TensorId>,
    /// What this batch leaves.
    pub new: TensorId,
}

/// A forward graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    tensors: Vec<Tensor>,
    nodes: Vec<Node>,
    scopes: Vec<String>,
    scope_ids: FxHashMap<String, ScopeId>,
    path: Vec<ScopeId>,
    blocks: Vec<Range<usize>>,
    results: Vec<TensorId>,
    carries: Vec<Carry>,
    carries_max: u32,
    loss: Option<TensorId>,
    sent: Vec<TensorId>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        let mut graph = Self::default();
        graph.intern(String::new());
        graph
    }

    fn intern(&mut self, path: String) -> ScopeId {
        let scopes = &mut self.scopes;
        *self.scope_ids.entry(path).or_insert_with_key(|path| {
            scopes.push(path.clone());
            ScopeId(scopes.len() as u32 - 1)
        })
    }

    fn here(&self) -> ScopeId {
        self.path.last().copied().unwrap_or_default()
    }

    /// What `build` adds stands under `name`.
    pub fn within<T>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.scope_text(self.here());
        let path = if outer.is_empty() { name.to_owned() } else { format!("{outer}.{name}") };
        let scope = self.intern(path);
        self.at(scope, build)
    }

    /// What `build` adds stands at a path that exists.
    pub(super) fn at<T>(&mut self, scope: ScopeId, build: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(scope);
        let built = build(self);
        self.path.pop();
        built
    }

    /// As [`Graph::within`], and what is added is a block that may be computed again in backward.
    ///
    /// # Errors
    /// Those of `build`.
    pub fn block<T>(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Self) -> Result<T, GraphError>,
    ) -> Result<T, GraphError> {
        let first = self.nodes.len();
        let built = self.within(name, build)?;
        self.blocks.push(first..self.nodes.len());
        Ok(built)
    }

    /// An error at the layer at hand.
    pub fn error(&self, what: impl Into<String>) -> GraphError {
        let path = self.scope_text(self.here());
        let layer = if path.is_empty() { "model" } else { path };
        GraphError { layer: layer.to_owned(), what: what.into() }
    }

    /// A tensor that comes with each batch.
    ///
    /// # Errors
    /// When it is too large.
    pub fn input(
        &mut self,
        name: &str,
        shape: &[u64],
        dtype: DType,
    ) -> Result<TensorId, GraphError> {
        self.leaf(name, shape, dtype, Role::Input)
    }

    /// A tensor that is trained. The order in which they are made is that in which they are loaded.
    ///
    /// # Errors
    /// When it is too large.
    pub fn parameter(
        &mut self,
        name: &str,
        shape: &[u64],
        dtype: DType,
    ) -> Result<TensorId, GraphError> {
        self.leaf(name, shape, dtype, Role::Parameter)
    }

    /// A tensor that stays on the device and is not trained.
    ///
    /// # Errors
    /// When it is too large.
    pub fn buffer(
        &mut self,
        name: &str,
        shape: &[u64],
        dtype: DType,
    ) -> Result<TensorId, GraphError> {
        self.leaf(name, shape, dtype, Role::Buffer)
    }

    fn leaf(
        &mut self,
        name: &str,
        shape: &[u64],
        dtype: DType,
        role: Role,
    ) -> Result<TensorId, GraphError> {
        let gradient = role == Role::Parameter && dtype.is_float();
        self.within(name, |graph| {
            let spec = Spec { shape: shape.to_vec(), dtype, differentiable: gradient };
            graph.tensor(spec, role, None)
        })
    }

    fn tensor(
        &mut self,
        spec: Spec,
        role: Role,
        view_of: Option<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let numbers = spec.shape.iter().try_fold(1_u64, |all, extent| all.checked_mul(*extent));
        if numbers.is_none_or(|numbers| numbers > NUMBERS_MAX) {
            let found = shape_text(&spec.shape);
            return Err(self.error(format!("a tensor of {found}, expected at most 2^56 numbers")));
        }
        self.tensors.push(Tensor {
            shape: spec.shape,
            dtype: spec.dtype,
            role,
            view_of,
            gradient: spec.differentiable,
            scope: self.here(),
        });
        Ok(TensorId(self.tensors.len() as u32 - 1))
    }

    /// Adds an operator; all it makes.
    ///
    /// # Errors
    /// When the shapes of its inputs do not fit it, or a result is too large.
    pub fn node(
        &mut self,
        kind: impl Into<Kind>,
        inputs: &[TensorId],
    ) -> Result<Vec<TensorId>, GraphError> {
        let read: Vec<&Tensor> = inputs.iter().map(|id| self.get(*id)).collect();
        let kind: Kind = kind.into();
        let kind = kind.operator().fitted(&read).unwrap_or(kind);
        let operator = kind.operator();
        let specs = operator
            .outputs(&read)
            .map_err(|what| self.error(format!("{}: {what}", operator.name())))?;
        let differentiable = read.iter().any(|tensor| tensor.gradient);
        let base = inputs.first().filter(|_| operator.is_view());
        let base = base.map(|id| self.get(*id).view_of.unwrap_or(*id));
        let mut outputs = Vec::with_capacity(specs.len());
        for mut spec in specs {
            spec.differentiable &= differentiable;
            outputs.push(self.tensor(spec, Role::Activation, base)?);
        }
        self.nodes.push(Node {
            kind,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            scope: self.here(),
            over: None,
        });
        Ok(outputs)
    }

    /// Adds an operator; its result.
    ///
    /// # Errors
    /// As [`Graph::node`].
    pub fn add(
        &mut self,
        kind: impl Into<Kind>,
        inputs: &[TensorId],
    ) -> Result<TensorId, GraphError> {
        let outputs = self.node(kind, inputs)?;
        outputs.first().copied().ok_or_else(|| self.error("expected a result, found none"))
    }

    /// The program still has these tensors in its hands here (a local variable of a function that returns here).
    pub fn hold(&mut self, tensors: &[TensorId]) {
        self.nodes.push(Node {
            kind: Hold.into(),
            inputs: tensors.to_vec(),
            outputs: Vec::new(),
            scope: self.here(),
            over: None,
        });
    }

    /// What the step returns: it may be held until the next step's replaces it.
    pub fn result(&mut self, tensor: TensorId) {
        self.results.push(tensor);
    }

    /// What the batch before left.
    ///
    /// # Errors
    /// When it is too large.
    pub fn carried(
        &mut self,
        name: &str,
        shape: &[u64],
        dtype: DType,
    ) -> Result<TensorId, GraphError> {
        self.leaf(name, shape, dtype, Role::Carried)
    }

    /// The next batch finds this tensor.
    pub fn carry(&mut self, carry: Carry) {
        self.carries_max = self.carries_max.max(carry.number + 1);
        self.carries.push(carry);
    }

    /// So many tensors are carried by all batches of a run.
    pub fn carry_at_most(&mut self, count: u32) {
        self.carries_max = self.carries_max.max(count);
    }

    /// What the next batch finds.
    pub fn carries(&self) -> &[Carry] {
        &self.carries
    }

    /// How many tensors a run carries.
    pub fn carries_max(&self) -> u32 {
        self.carries_max
    }

    /// What is minimised; it is a result too.
    pub fn minimise(&mut self, loss: TensorId) {
        self.loss = Some(loss);
        self.results.push(loss);
    }

    /// A tensor.
    pub fn get(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// All tensors.
    pub fn tensors(&self) -> impl Iterator<Item = (TensorId, &Tensor)> {
        self.tensors.iter().enumerate().map(|(i, tensor)| (TensorId(i as u32), tensor))
    }

    /// Tensors of one role, in the order in which they were made.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = TensorId> {
        self.tensors().filter(move |(_, tensor)| tensor.role == role).map(|(id, _)| id)
    }

    /// All operators, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The blocks that may be computed again, as ranges of operators.
    pub fn blocks(&self) -> &[Range<usize>] {
        &self.blocks
    }

    /// What the step returns.
    pub fn results(&self) -> &[TensorId] {
        &self.results
    }

    /// What the next stage of a pipeline needs.
    pub fn sent(&self) -> &[TensorId] {
        &self.sent
    }

    /// What is minimised.
    pub fn loss(&self) -> Option<TensorId> {
        self.loss
    }

    /// A module path; empty for the model itself.
    pub fn scope_text(&self, scope: ScopeId) -> &str {
        &self.scopes[scope.0 as usize]
    }

    /// The tensor that owns the storage of `id`.
    pub fn storage(&self, id: TensorId) -> TensorId {
        self.get(id).view_of.unwrap_or(id)
    }

    /// Floating-point operations of an operator's forward.
    pub fn flops(&self, node: &Node) -> f64 {
        let tensors = |ids: &[TensorId]| ids.iter().map(|id| self.get(*id)).collect::<Vec<_>>();
        node.kind.operator().flops(&tensors(&node.inputs), &tensors(&node.outputs))
    }

    /// Bytes of all parameters and buffers.
    pub fn state_bytes(&self) -> u64 {
        let stays = |tensor: &&Tensor| matches!(tensor.role, Role::Parameter | Role::Buffer);
        self.tensors.iter().filter(stays).map(Tensor::bytes).sum()
    }
}
