//! A stage of a pipeline: micro-batches forward and backward in the order of its schedule.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `receive` | what the stage before made comes from that device; its gradient goes back there | Huang et al. 2019, section 2.2 |
//! | `send` | what the stage after needs goes to that device; its gradient comes from there | the same |
//! | `flush` | all micro-batches of a step use the same weights; gradients are added up | the same; Narayanan et al. 2021, section 2.2 |
//!
//! | `bubble` | a stage waits for the others as long as S − 1 of its M micro-batches take: (S − 1)/(M + S − 1) of a step, in either schedule | Narayanan et al. 2021, section 2.2.1 |
//!
//! The wait stands at the end of the micro-batches, for stages that take about as long; transfers between stages are not in it.

use vramlab_sim::machine::Direction;

use super::Lower;
use super::host::OnHost;
use super::streams::COMPUTE;
use crate::graph::program::{Step, StorageId};
use crate::graph::spread::{Pipeline, Turn};
use crate::graph::tensor::{Role, TensorId};

/// What a micro-batch's forward leaves for its backward.
#[derive(Default)]
struct Kept {
    place: Vec<Option<StorageId>>,
    on_host: OnHost,
}

impl Lower<'_> {
    /// All micro-batches of a batch, which is the `part`-th of its step.
    pub(super) fn run_stage(&mut self, pipeline: Pipeline, part: u64) {
        self.mark(format!("{}stage {}", self.label(), pipeline.stage), true);
        if self.plan.run.zero_first && part == 0 {
            self.zero_gradients();
        }
        self.first = part == 0;
        let empty = self.place.clone();
        let mut kept: Vec<Kept> = Vec::new();
        kept.resize_with(pipeline.micro as usize, Kept::default);
        let (mut results, mut left) = (Vec::new(), pipeline.micro);
        for turn in pipeline.turns() {
            match turn {
                Turn::Forward(micro) => {
                    self.place.clone_from(&empty);
                    self.receive_inputs();
                    self.forward();
                    results = self.results();
                    self.exchange_sent(false);
                    kept[micro as usize] = Kept {
                        place: std::mem::take(&mut self.place),
                        on_host: std::mem::take(&mut self.on_host),
                    };
                }
                Turn::Backward(micro) => {
                    left -= 1;
                    self.last = left == 0 && part + 1 >= self.plan.run.accumulation;
                    let Kept { place, on_host } = std::mem::take(&mut kept[micro as usize]);
                    (self.place, self.on_host) = (place, on_host);
                    self.exchange_sent(true);
                    self.backward();
                    self.return_gradients();
                    self.first = false;
                }
            }
        }
        if pipeline.stages > 1 {
            self.program.steps.push(Step::Idle { parts: pipeline.stages - 1, of: pipeline.micro });
        }
        self.place = empty;
        self.hold(results);
    }

    /// A micro-batch's own inputs, and what the stage before made.
    fn receive_inputs(&mut self) {
        for role in [Role::Input, Role::Received] {
            let direction = match role {
                Role::Received => Direction::PeerToPeer,
                _ => Direction::HostToDevice,
            };
            for id in self.plan.graph.of_role(role) {
                let to = self.like(id, self.plan.graph.get(id).scope, "");
                let bytes = self.program.get(to).bytes;
                self.carry_over([None, Some(to)], bytes, direction, COMPUTE);
                self.place[id.0 as usize] = Some(to);
            }
        }
    }

    /// What the next stage needs goes there; or its gradient comes from there.
    fn exchange_sent(&mut self, gradients: bool) {
        let sent: Vec<TensorId> = self.plan.graph.sent().to_vec();
        for id in sent {
            if gradients && !self.plan.graph.get(id).gradient {
                continue;
            }
            let bytes = self.plan.graph.get(id).bytes();
            let direction = Direction::PeerToPeer;
            if gradients {
                let g = self.like(id, self.plan.graph.get(id).scope, "grad");
                self.carry_over([None, Some(g)], bytes, direction, COMPUTE);
                self.deliver(id, g);
            } else {
                let from = self.place[id.0 as usize];
                self.carry_over([from, None], bytes, direction, COMPUTE);
            }
        }
    }

    /// Gradients of what was received go back.
    fn return_gradients(&mut self) {
        for id in self.plan.graph.of_role(Role::Received) {
            let Some(g) = self.pending[id.0 as usize].take() else { continue };
            self.holders[g.0 as usize] -= 1;
            let bytes = self.program.get(g).bytes;
            self.carry_over([Some(g), None], bytes, Direction::PeerToPeer, COMPUTE);
        }
    }
}
