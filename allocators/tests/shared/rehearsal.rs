//! Scenarios for strategies that plan ahead. A scenario is played twice: first by a plain strategy, and what it asks is noted; then by the one that
//! plans, which is told. Its answers may differ from those of the rehearsal, so it also meets what it did not expect.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use vramlab_allocators::registry::build_ahead;
use vramlab_allocators::{Spec, find};
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::Driver;
use vramlab_sim::future::{Future, Life};
use vramlab_sim::units::StreamId;

/// Who plays the rehearsal.
const UNDERSTUDY: &str = "classic.best_fit";

/// What is noted, of each strategy that the scenario makes.
type Notes = Vec<Arc<Mutex<Future>>>;

enum Stage {
    Rehearsal(Notes),
    /// The notes, and how many strategies were made.
    Show(Vec<Arc<Future>>, usize),
}

thread_local! {
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// Plays a scenario, after a rehearsal where `ahead` is set.
pub(crate) fn played<T>(ahead: bool, scenario: impl Fn() -> T) -> T {
    let stage = |stage| STAGE.with_borrow_mut(|now| std::mem::replace(now, stage));
    if !ahead {
        return scenario();
    }
    stage(Some(Stage::Rehearsal(Vec::new())));
    scenario();
    let Some(Stage::Rehearsal(notes)) = stage(None) else { panic!("expected a rehearsal") };
    let told = |note: Arc<Mutex<Future>>| Arc::new(note.lock().expect("unpoisoned").clone());
    stage(Some(Stage::Show(notes.into_iter().map(told).collect(), 0)));
    let result = scenario();
    stage(None);
    result
}

/// Plays a scenario for the strategy of a spec.
pub(crate) fn played_as<T>(spec: &str, scenario: impl Fn() -> T) -> T {
    let parsed: Spec = spec.parse().expect(spec);
    played(find(&parsed.strategy().name).expect(spec).plans_ahead(), scenario)
}

/// The strategy of a spec, or its understudy. One that is made after the rehearsal's last is told what that one was asked.
pub(crate) fn build(spec: &Spec) -> Box<dyn Allocator> {
    let built = STAGE.with_borrow_mut(|stage| match stage {
        Some(Stage::Rehearsal(notes)) => {
            let note = Arc::new(Mutex::new(Future::default()));
            notes.push(Arc::clone(&note));
            let understudy: Spec = UNDERSTUDY.parse().expect("a name is a spec");
            let inner = vramlab_allocators::build(&understudy)?;
            Ok(Box::new(Noting { inner, note, ordinals: HashMap::new() }) as Box<dyn Allocator>)
        }
        Some(Stage::Show(futures, made)) => {
            let future = &futures[(*made).min(futures.len() - 1)];
            *made += 1;
            build_ahead(spec, future)
        }
        None => vramlab_allocators::build(spec),
    });
    built.unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// Notes what its inner strategy is asked.
struct Noting {
    inner: Box<dyn Allocator>,
    note: Arc<Mutex<Future>>,
    /// Of live and deferred blocks.
    ordinals: HashMap<Block, usize>,
}

impl Noting {
    /// An op about a block.
    fn op(&mut self, block: Option<Block>, note: impl FnOnce(&mut Life, u64)) {
        let mut future = self.note.lock().expect("unpoisoned");
        let at = future.ops;
        future.ops += 1;
        if let Some(ordinal) = block.and_then(|block| self.ordinals.get(&block)) {
            note(&mut future.requests[*ordinal], at);
        }
    }
}

impl Allocator for Noting {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let answer = self.inner.alloc(driver, request);
        let mut future = self.note.lock().expect("unpoisoned");
        let (size, stream, born) = (request.size, request.stream, future.ops);
        future.ops += 1;
        if let Ok(placement) = &answer {
            self.ordinals.insert(placement.block, future.requests.len());
        }
        future.requests.push(Life { size, stream, born, freed: None, shared: false });
        answer
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.inner.free(driver, block, stream)?;
        self.op(Some(block), |life, at| {
            life.freed = Some(at);
            life.shared |= stream.is_some_and(|stream| stream != life.stream);
        });
        self.ordinals.remove(&block);
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        match &notice {
            Notice::RecordStream { block, .. } => {
                self.op(Some(*block), |life, _| life.shared = true)
            }
            Notice::FreeDeferred { block } => self.op(Some(*block), |life, at| {
                (life.freed, life.shared) = (Some(at), true);
            }),
            Notice::Completed { block } => {
                self.op(Some(*block), |life, at| life.freed = Some(at));
            }
            Notice::Mark { name } => {
                let mut future = self.note.lock().expect("unpoisoned");
                let at = future.ops;
                future.ops += 1;
                future.marks.push((at, (*name).into()));
            }
            _ => self.op(None, |_, _| {}),
        }
        self.inner.notice(driver, notice)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        self.inner.before_work(driver, stream, uses)
    }

    fn after_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &[Use],
    ) -> Result<(), AllocError> {
        self.inner.after_work(driver, stream, uses)
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
