//! How a step is spread over devices and the host: what one device of many does.
//!
//! All is seen from one device: the others do the same at the same time, and what they send arrives as fast as the link takes it.
//!
//! | part | says |
//! |---|---|
//! | [`Pipeline`] | which micro-batches run forward and backward in which order |
//! | [`Home`] | where weights stay between their uses, and how far ahead they are fetched |
//! | [`Sink`] | where gradients go when they are complete |
//! | [`Keeper`] | who keeps the optimizer's states |
//! | [`Loader`] | when a batch comes to the device |

/// The order of micro-batches in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// All forward, then all backward, last first (Huang et al. 2019).
    GPipe,
    /// As few forward as keep all stages busy, then one backward after each forward (Narayanan et al. 2021, 1F1B).
    OneForwardOneBackward,
}

/// A stage of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// How many stages there are.
    pub stages: u64,
    /// Which this is, from 0.
    pub stage: u64,
    /// Micro-batches of a step.
    pub micro: u64,
    /// Their order.
    pub schedule: Schedule,
}

/// What a stage does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A micro-batch forward.
    Forward(u64),
    /// A micro-batch backward.
    Backward(u64),
}

impl Pipeline {
    /// Most micro-batches whose activations this stage holds at once.
    pub fn in_flight(&self) -> u64 {
        match self.schedule {
            Schedule::GPipe => self.micro,
            Schedule::OneForwardOneBackward => self.micro.min(self.stages - self.stage),
        }
    }

    /// All turns of a step, in order.
    pub fn turns(&self) -> Vec<Turn> {
        let forward = (0..self.micro).map(Turn::Forward);
        match self.schedule {
            Schedule::GPipe => forward.chain((0..self.micro).rev().map(Turn::Backward)).collect(),
            Schedule::OneForwardOneBackward => {
                let warm = self.in_flight() - 1;
                let mut turns: Vec<Turn> = (0..warm).map(Turn::Forward).collect();
                for micro in 0..self.micro {
                    turns.extend(Some(micro + warm).filter(|m| *m < self.micro).map(Turn::Forward));
                    turns.push(Turn::Backward(micro));
                }
                turns
            }
        }
    }
}

/// Where weights stay between their uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// On the device.
    #[default]
    Device,
    /// A part on each of so many devices; gathered for a block, and dropped after it.
    Devices(u64),
    /// On the host; copied in for a block, and dropped after it.
    Host,
}

/// Where a weight's gradient goes when it is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sink {
    /// It stays.
    #[default]
    Stays,
    /// Summed over so many devices, in place.
    Sums(u64),
    /// It stays; each of so many devices hears the sum of its part.
    Shares(u64),
    /// Summed over so many devices, of which each keeps a part.
    Parts(u64),
    /// To the host.
    Host,
}

/// Who keeps the optimizer's states and does the update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeper {
    /// This device, of all weights.
    #[default]
    Device,
    /// Each of so many devices, of its part.
    Devices(u64),
    /// The host.
    Host,
}

/// When a batch comes to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// Bytes of each input of the next batch, in the order of the graph's inputs.
    pub next: Vec<u64>,
    /// The last input is made of a copy as large, which is dropped at once.
    pub last_is_made: bool,
}

/// The host's workers that make batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// How many.
    pub count: u64,
    /// Time that each takes for a batch (ns).
    pub batch_ns: u64,
}

/// How a step is spread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// The stage, if there are several.
    pub pipeline: Option<Pipeline>,
    /// Where weights stay.
    pub home: Home,
    /// Blocks whose weights are fetched ahead of their use.
    pub ahead: u64,
    /// The host waits until so few blocks are between it and the device; 0: it never waits.
    pub run_ahead: u64,
    /// Where gradients go.
    pub sink: Sink,
    /// Gradients go as soon as so many bytes are complete; all at the end of backward if 0.
    pub bucket: u64,
    /// Gradients that are summed live in their buckets, which are never dropped, and not beside them.
    pub in_buckets: bool,
    /// Who keeps the optimizer's states.
    pub keeper: Keeper,
    /// What backward needs of a block waits on the host.
    pub activations_on_host: bool,
    /// The host waits until so few blocks are on their way there, or back and not yet used; 0: it never waits.
    pub copies_in_flight: u64,
    /// Batches come a step ahead, on a stream of their own.
    pub loader: Option<Loader>,
    /// A batch is asked for and copied on a stream of its own.
    pub inputs_beside: bool,
    /// Who makes batches on the host; none: they are always ready.
    pub workers: Option<Workers>,
}

impl Spread {
    /// Devices that take part in a step: the stages of the pipeline, times the devices that hold copies or parts of one stage. Those that gradients are
    /// summed over and those that share weights or states are the same devices, so of these the larger number counts.
    pub fn devices(&self) -> u64 {
        let of_sink = match self.sink {
            Sink::Sums(devices) | Sink::Shares(devices) | Sink::Parts(devices) => devices,
            Sink::Stays | Sink::Host => 1,
        };
        let of_home = match self.home {
            Home::Devices(devices) => devices,
            Home::Device | Home::Host => 1,
        };
        let of_stage = of_sink.max(of_home).max(self.parts());
        self.pipeline.map_or(1, |pipeline| pipeline.stages).saturating_mul(of_stage)
    }

    /// Devices among which the optimizer's states are divided.
    pub fn parts(&self) -> u64 {
        match self.keeper {
            Keeper::Devices(devices) => devices.max(1),
            Keeper::Device | Keeper::Host => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most_in_flight(pipeline: &Pipeline) -> i64 {
        let (mut now, mut most) = (0, 0);
        for turn in pipeline.turns() {
            now += match turn {
                Turn::Forward(_) => 1,
                Turn::Backward(_) => -1,
            };
            most = most.max(now);
        }
        assert_eq!(now, 0);
        most
    }

    /// Narayanan et al. 2021, section 2.2: GPipe holds all micro-batches, 1F1B at most as many as stages are left.
    #[test]
    fn activations_in_flight_are_as_published() {
        for stages in 1..6 {
            for stage in 0..stages {
                for micro in 1..9 {
                    let at = |schedule| Pipeline { stages, stage, micro, schedule };
                    let gpipe = at(Schedule::GPipe);
                    assert_eq!(most_in_flight(&gpipe), micro as i64);
                    let interleaved = at(Schedule::OneForwardOneBackward);
                    let expected = micro.min(stages - stage);
                    assert_eq!(interleaved.in_flight(), expected);
                    assert_eq!(most_in_flight(&interleaved), expected as i64);
                    assert_eq!(interleaved.turns().len() as u64, 2 * micro);
                }
            }
        }
    }

    /// Eight devices for each of four stages were once counted as eight in all.
    #[test]
    fn devices_of_stages_multiply_and_those_of_one_stage_are_shared() {
        let schedule = Schedule::GPipe;
        let pipeline = Some(Pipeline { stages: 4, stage: 0, micro: 1, schedule });
        let (sink, keeper, home) = (Sink::Parts(8), Keeper::Devices(8), Home::Devices(8));
        let none = Spread::default();
        assert_eq!(none.devices(), 1);
        assert_eq!(Spread { pipeline, ..none.clone() }.devices(), 4);
        let sharded = Spread { sink, keeper, home, ..none.clone() };
        assert_eq!(sharded.devices(), 8);
        assert_eq!(Spread { pipeline, ..sharded }.devices(), 32);
        assert_eq!(Spread { pipeline, sink: Sink::Sums(8), ..none }.devices(), 32);
    }

    #[test]
    fn the_last_stage_turns_back_at_once() {
        use Turn::{Backward, Forward};
        let schedule = Schedule::OneForwardOneBackward;
        let at = |stage| Pipeline { stages: 2, stage, micro: 3, schedule }.turns();
        let both = |m| [Forward(m), Backward(m)];
        assert_eq!(at(1), [both(0), both(1), both(2)].concat());
        assert_eq!(
            at(0),
            [Forward(0), Forward(1), Backward(0), Forward(2), Backward(1), Backward(2)]
        );
    }
}
