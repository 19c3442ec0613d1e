//! The requests of a measured run through our server, on the same card.

use vramlab_allocators::registry::{build, build_cache};
use vramlab_sim::device::SimMachine;
use vramlab_sim::engine::{Setup, run};
use vramlab_sim::kv::NewSequence;
use vramlab_sim::op::{BufferUse, NameId, TouchRange};
use vramlab_sim::report::{Report, Served};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, SequenceId};
use vramlab_workloads::params::Params;
use vramlab_workloads::rates::Rates;
use vramlab_workloads::serving::llm;
use vramlab_workloads::serving::server::Server;

use super::recorded::{Run, Times};
use crate::failure::Failure;

/// Bytes of activations, graphs and context beside the weights: 1.24 GB, which the project's facts give for the run that says its number of blocks. No file
/// of a run has it to the byte, so that it is known to half of its last digit ([`RESERVE_ROUNDING`]); other cards' runs are given the same, each of several cards its own.
pub(super) const RESERVE: u64 = 1_240_000_000;
/// Half of the last digit of [`RESERVE`].
pub(super) const RESERVE_ROUNDING: u64 = 5_000_000;

/// What a rerun gave.
pub(super) struct Rerun {
    /// Of each request that was answered, by its number.
    pub(super) times: Vec<Option<Times>>,
    /// The figures.
    pub(super) report: Report,
}

/// Reruns a measured run with steps of this time (the parameter `step` of the workload); ends when the first `wanted` requests are answered.
pub(super) fn rerun(run_: &Run, step: &str, wanted: usize) -> Result<Rerun, Failure> {
    rerun_with(run_, step, wanted, RESERVE)
}

/// As [`rerun`], with other bytes beside the weights on each card.
pub(super) fn rerun_with(
    run_: &Run,
    step: &str,
    wanted: usize,
    reserve: u64,
) -> Result<Rerun, Failure> {
    let server = server(run_, step, reserve)?;
    let mut source = Until { server, wanted };
    let spec = format!("serving.paged:gpu_memory_utilization={}", run_.utilization);
    let spec = spec.parse().map_err(|error| bad(run_, &error))?;
    let mut options = run_.device.options.clone();
    options.capacity = run_.capacity.saturating_mul(run_.copies);
    let mut machine = SimMachine::new(options);
    let mut strategies = [build(&spec).map_err(|error| bad(run_, &error))?];
    let mut caches = [build_cache(&spec).map_err(|error| bad(run_, &error))?];
    let setup = Setup {
        caches: &mut caches,
        keep_marks: true,
        ..Setup::new(&mut machine, &mut strategies)
    };
    let report = run(&mut source, setup).map_err(|error| bad(run_, &error))?;
    let mut times = vec![None; run_.log.len()];
    for done in source.server.done() {
        times[done.number as usize] =
            Some(Times { ttft: done.ttft(), e2e: done.e2e(), outputs: done.outputs });
    }
    Ok(Rerun { times, report })
}

/// What the run's files say cannot be run.
fn bad(run: &Run, error: &dyn std::fmt::Display) -> Failure {
    Failure::input(format!("{}: {error}", run.name))
}

fn server(run: &Run, step: &str, reserve: u64) -> Result<Server, Failure> {
    // the copies are seen as one device, which has one context
    let (context, reserve) = (run.device.options.context, reserve.saturating_mul(run.copies));
    let settings = [
        ("model", run.model.name.to_owned()),
        ("copies", run.copies.to_string()),
        ("max_num_seqs", run.max_num_seqs.saturating_mul(run.copies).to_string()),
        (
            "max_num_batched_tokens",
            run.max_num_batched_tokens.saturating_mul(run.copies).to_string(),
        ),
        ("max_model_len", run.max_model_len.map_or("auto".to_owned(), |len| len.to_string())),
        ("activations", reserve.saturating_sub(context).to_string()),
        ("step", step.to_owned()),
        ("mark", "1".to_owned()),
    ];
    let mut params = Params::defaults(llm::PARAMS);
    for (key, value) in settings {
        params.set(key, value).map_err(|error| bad(run, &error))?;
    }
    let rates = Rates::of(&run.device);
    llm::server(&params, 0, &rates, Some(run.log.clone())).map_err(|error| bad(run, &error))
}

/// A server that closes when its first requests are answered.
struct Until {
    server: Server,
    wanted: usize,
}

impl Source for Until {
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError> {
        let log = self.server.done();
        let early = |number: u64| (number as usize) < self.wanted;
        if log.len() >= self.wanted
            && log.iter().filter(|done| early(done.number)).count() >= self.wanted
        {
            return Ok(Step::End);
        }
        self.server.next(now, last)
    }

    fn uses(&self) -> &[BufferUse] {
        self.server.uses()
    }

    fn touch(&self) -> TouchRange {
        self.server.touch()
    }

    fn kv(&self) -> NewSequence<'_> {
        self.server.kv()
    }

    fn text(&self, name: NameId) -> &str {
        self.server.text(name)
    }

    fn name(&self, id: BufferId) -> u64 {
        self.server.name(id)
    }

    fn sequence(&self, seq: SequenceId) -> u64 {
        self.server.sequence(seq)
    }

    fn served(&self) -> Option<Served> {
        self.server.served()
    }

    fn independent(&self) -> bool {
        false
    }

    fn gaps(&self) -> u64 {
        0
    }
}
