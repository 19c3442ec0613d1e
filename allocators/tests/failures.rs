//! A driver that fails on cue, under the strategies that share one shell and the wrappers around them: whatever call it is, the books agree
//! afterwards, no block is lost, and the strategy goes on. (That every strategy answers such a failure is in `refusals`.)

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Notice, Reply, Request, Usage,
};
use vramlab_sim::driver::{Answer, Call, Driver, DriverError, Families};
use vramlab_sim::machine::Machine;
use vramlab_sim::testing::{Dice, ScriptedMachine};
use vramlab_sim::units::StreamId;

const MIB: u64 = 1 << 20;

/// Lets so many calls pass, fails one, and lets all others pass.
struct FailsOnce {
    machine: ScriptedMachine,
    left: Option<u64>,
}

impl Driver for FailsOnce {
    fn call(&mut self, call: Call) -> Result<Answer, DriverError> {
        match self.left {
            Some(0) => {
                self.left = None;
                return Err(DriverError::Failed { call: call.name(), what: "on cue".into() });
            }
            Some(left) => self.left = Some(left - 1),
            None => {}
        }
        self.machine.call(call)
    }

    fn families(&self) -> Families {
        self.machine.families()
    }
}

struct Program {
    spec: &'static str,
    strategy: Box<dyn Allocator>,
    driver: FailsOnce,
    live: Vec<Block>,
    deferred: Vec<Block>,
    /// A free of them failed: they are live, deferred, or gone.
    doubtful: Vec<Block>,
    dice: Dice,
}

impl Program {
    fn dice(&mut self, below: u64) -> u64 {
        self.dice.below(below)
    }

    fn step(&mut self) -> Result<(), AllocError> {
        let (what, stream) = (self.dice(24), StreamId(self.dice(3) as u32));
        if what == 23 && !self.deferred.is_empty() {
            let at = self.dice(self.deferred.len() as u64) as usize;
            let block = self.deferred[at];
            // after an error it is still deferred, or gone: completing it once more must do
            let answer = self.notice(Notice::Completed { block }).map(drop);
            if answer.is_ok() {
                self.deferred.swap_remove(at);
            }
            return answer;
        }
        if what < 10 || self.live.is_empty() {
            let request = Request { size: self.dice(6 * MIB), stream, ordinal: 0 };
            return match self.strategy.alloc(&mut self.driver, &request) {
                Err(AllocError::OutOfMemory(_)) => Ok(()),
                answer => answer.map(|placement| self.live.push(placement.block)),
            };
        }
        let at = self.dice(self.live.len() as u64) as usize;
        let block = self.live[at];
        match what {
            10..=15 => {
                let answer = self.strategy.free(&mut self.driver, block, None);
                self.live.swap_remove(at);
                if answer.is_err() {
                    self.doubtful.push(block);
                }
                answer
            }
            16 => self.notice(Notice::RecordStream { block, stream }).map(drop),
            17 => self.notice(Notice::Mark { name: "run" }).map(drop),
            18 => self.notice(Notice::EmptyCache).map(drop),
            19 => {
                let keep = self.dice(32 * MIB);
                self.notice(Notice::Trim { keep }).map(drop)
            }
            20 | 21 => {
                self.live.swap_remove(at);
                let answer = self.notice(Notice::FreeDeferred { block }).map(drop);
                if answer.is_ok() { &mut self.deferred } else { &mut self.doubtful }.push(block);
                answer
            }
            _ => {
                self.driver.machine.complete_all();
                Ok(())
            }
        }
    }

    fn notice(&mut self, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.strategy.notice(&mut self.driver, notice)
    }

    /// Frees all that is left; nothing may be.
    fn end(&mut self) {
        for block in std::mem::take(&mut self.live) {
            let answer = self.strategy.free(&mut self.driver, block, None);
            assert_eq!(answer, Ok(()), "{}: a live block", self.spec);
        }
        for block in std::mem::take(&mut self.doubtful) {
            let answer = self.strategy.free(&mut self.driver, block, None);
            if answer == Err(AllocError::UnknownBlock(block)) {
                self.deferred.push(block);
            } else {
                assert_eq!(answer, Ok(()), "{}: a block whose free failed", self.spec);
            }
        }
        for block in std::mem::take(&mut self.deferred) {
            let answer = self.notice(Notice::Completed { block });
            assert!(answer.is_ok(), "{}: {answer:?}", self.spec);
        }
        // a mark ends a run, and with it what a wrapper collects
        for notice in [Notice::Mark { name: "end" }, Notice::EmptyCache] {
            self.driver.machine.complete_all();
            let answer = self.notice(notice);
            assert!(answer.is_ok(), "{}: {answer:?}", self.spec);
        }
        assert_eq!(self.strategy.usage().active, 0, "{}: a block is lost", self.spec);
    }

    fn check(&mut self, after: &str) {
        let usage = self.strategy.usage();
        let held = self.driver.machine.held().reserved;
        assert_eq!(usage.reserved, held, "{} {after}", self.spec);
        let Ok(Reply::Layout(layout)) = self.notice(Notice::Walk) else {
            panic!("a walk calls no driver")
        };
        let mut sums = Usage::default();
        for block in layout.segments.iter().flat_map(|segment| &segment.blocks) {
            sums.reserved += block.size;
            sums.active += if block.state == BlockState::Free { 0 } else { block.size };
            sums.allocated += if block.state == BlockState::Allocated { block.size } else { 0 };
        }
        assert_eq!(sums, usage, "{} {after}", self.spec);
    }
}

/// Runs a program with the `nth` driver call failing; false if it ended before.
fn run(spec: &'static str, nth: u64) -> bool {
    let strategy = vramlab_allocators::build(&spec.parse().expect(spec)).expect(spec);
    let driver = FailsOnce { machine: ScriptedMachine::of_capacity(64 * MIB), left: Some(nth) };
    let mut program = Program {
        spec,
        strategy,
        driver,
        live: Vec::new(),
        deferred: Vec::new(),
        doubtful: Vec::new(),
        dice: Dice::of_step_1(11),
    };
    for step in 0..300 {
        let before = program.driver.left;
        let answer = program.step();
        let failed = before.is_some() && program.driver.left.is_none();
        let after = format!("with driver call {nth} failing, after step {step}: {answer:?}");
        assert_eq!(answer.is_err(), failed, "{spec} {after}");
        if failed || step % 50 == 0 {
            program.check(&after);
        }
    }
    let failed = program.driver.left.take().is_none();
    program.end();
    program.check("at the end");
    failed
}

#[test]
fn books_agree_whichever_driver_call_fails() {
    for spec in [
        "classic.best_fit:segment=8MiB",
        "classic.tlsf:arena=48MiB",
        "classic.buddy:max_order=12",
        "classic.segregated:segment=4MiB",
        "classic.slab:slab=2MiB",
        "tensorflow.bfc:allow_growth=true",
        "tensorflow.bfc:allow_growth=true,coalesce_regions=true",
        "tensorflow.bfc:allow_growth=true,coalesce_regions=true,timestamped_allocator=true",
        "onnxruntime.arena:gpu_mem_limit=48MiB",
        "onnxruntime.arena:arena_extend_strategy=kSameAsRequested,enable_cross_stream_reusing=true",
        "paddle.auto_growth",
        "paddle.auto_growth:free_idle_chunk=true,gpu_memory_limit_mb=40",
        "paddle.auto_growth:chunk_size=8MiB,small_pool_size_in_mb=1,warm_up=4MiB",
        "paddle.naive_best_fit:initial_gpu_memory_in_mb=8,reallocate_gpu_memory_in_mb=4",
        "paddle.vmm_auto_growth",
        "paddle.auto_growth+stream_safe",
        "paddle.auto_growth+eager_deletion:eager_delete_tensor_gb=0.01",
        "paddle.auto_growth+stream_safe+eager_deletion:queue_bytes=4MiB,fast_eager_deletion_mode=false",
    ] {
        let calls = (0..2000).take_while(|nth| run(spec, *nth)).count();
        assert!((5..2000).contains(&calls), "{spec}: {calls} calls were tried");
    }
}
