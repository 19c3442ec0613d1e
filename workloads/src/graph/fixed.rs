//! Numbers of what outlives a program: the same for every program of a run, and first among the buffers' ids.
//!
//! ```text
//! weights and buffers │ gradients │ four states of the optimizer for each weight │ inputs, twice │ results, twice │ what is carried, twice │ buckets │ the rest
//! ```
//!
//! A bucket of gradients has the number of the first of its weights; there are none, unless gradients are summed in buckets. An input, a result and what is carried have two numbers, since the new one may be there before the old one is dropped.

use super::plan::Plan;
use super::spread::Sink;
use super::tensor::{Role, TensorId};

/// What an optimizer keeps for a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Momentum, or Adam's first moment.
    First,
    /// Adam's second moment.
    Second,
    /// A step counter on the device.
    Counter,
    /// The fp32 master copy of a 16-bit weight.
    Master,
}

const STATES: usize = 4;

/// The rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// A product's workspace that is kept.
    Workspace,
    /// The loss scale.
    Scale,
    /// Steps since the loss scale grew.
    ScaleGrowth,
    /// No storage: which of an input's numbers the batch at hand has.
    Turn,
}

const SINGLES: usize = 4;

/// The numbers of one plan.
#[derive(Clone, Debug)]
pub struct Numbers {
    state: Vec<TensorId>,
    parameters: Vec<TensorId>,
    inputs: Vec<TensorId>,
    results: usize,
    carries: u32,
    buckets: usize,
    /// By tensor: its place among all of its kind.
    place: Vec<u32>,
}

impl Numbers {
    /// Of this plan's graph.
    pub fn of(plan: &Plan) -> Self {
        let graph = &plan.graph;
        let state: Vec<TensorId> = graph
            .tensors()
            .filter(|(_, tensor)| matches!(tensor.role, Role::Parameter | Role::Buffer))
            .map(|(id, _)| id)
            .collect();
        let parameters: Vec<TensorId> = graph.of_role(Role::Parameter).collect();
        let inputs: Vec<TensorId> = graph.of_role(Role::Input).collect();
        let mut place = vec![0; graph.tensors().count()];
        for list in [&parameters, &inputs] {
            for (i, id) in list.iter().enumerate() {
                place[id.0 as usize] = i as u32;
            }
        }
        Self {
            state,
            parameters,
            inputs,
            results: graph.results().len(),
            carries: graph.carries_max(),
            buckets: match plan.run.spread.sink {
                Sink::Sums(_) => graph.of_role(Role::Parameter).count(),
                _ => 0,
            },
            place,
        }
    }

    /// Weights and buffers, in the order in which they are loaded.
    pub fn state(&self) -> &[TensorId] {
        &self.state
    }

    /// Weights.
    pub fn parameters(&self) -> &[TensorId] {
        &self.parameters
    }

    /// What comes with each batch.
    pub fn inputs(&self) -> &[TensorId] {
        &self.inputs
    }

    /// Of a weight or buffer, by its place in [`Numbers::state`].
    pub fn of_state(&self, place: usize) -> u32 {
        place as u32
    }

    /// Of a weight's gradient.
    pub fn of_gradient(&self, parameter: TensorId) -> u32 {
        self.state.len() as u32 + self.place[parameter.0 as usize]
    }

    /// Of what the optimizer keeps for a weight.
    pub fn of_optimizer(&self, parameter: TensorId, state: State) -> u32 {
        let first = self.state.len() + self.parameters.len();
        first as u32 + STATES as u32 * self.place[parameter.0 as usize] + state as u32
    }

    fn first_input(&self) -> usize {
        self.state.len() + (1 + STATES) * self.parameters.len()
    }

    /// The two of an input.
    pub fn of_input(&self, input: TensorId) -> [u32; 2] {
        let first = self.first_input() as u32 + 2 * self.place[input.0 as usize];
        [first, first + 1]
    }

    /// The two of a result, by its place in the graph's list.
    pub fn of_result(&self, place: usize) -> [u32; 2] {
        let first = (self.first_input() + 2 * (self.inputs.len() + place)) as u32;
        [first, first + 1]
    }

    /// The two of what is carried, by its number.
    pub fn of_carried(&self, number: u32) -> [u32; 2] {
        let first = (self.first_input() + 2 * (self.inputs.len() + self.results)) as u32;
        [first + 2 * number, first + 2 * number + 1]
    }

    /// Of the bucket whose first weight this is.
    pub fn of_bucket(&self, parameter: TensorId) -> u32 {
        let first = self.count() - SINGLES - self.buckets;
        first as u32 + self.place[parameter.0 as usize]
    }

    /// Of one of the rest.
    pub fn of_single(&self, single: Single) -> u32 {
        (self.count() - SINGLES) as u32 + single as u32
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.first_input()
            + 2 * (self.inputs.len() + self.results + self.carries as usize)
            + self.buckets
            + SINGLES
    }
}
