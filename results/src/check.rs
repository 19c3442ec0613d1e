//! Checks a strategy against a recording, request by request.

mod driver;

use rustc_hash::FxHashMap;
use serde::Serialize;
use vramlab_allocators::{Spec, build};
use vramlab_sim::allocator::{
    AllocError, Allocator, Block, BlockState, Layout, Notice, Reply, Request,
};
use vramlab_sim::units::{PoolId, StreamId};
use vramlab_workloads::readers::recording::{RecordedStep, Routes, Steps, Turn};

use crate::failure::Failure;
use crate::inputs::DeviceRecording;
use driver::RecordedDriver;

/// Mismatches told in words.
const TOLD: usize = 5;
/// Total bytes of a device of which the recording says nothing.
const UNKNOWN_TOTAL: u64 = 1 << 40;

/// What a check found.
#[derive(Debug, Default, Serialize)]
pub struct Check {
    /// Requests that the recording served.
    pub placed: u64,
    /// Of them, placed by us at the recorded address.
    pub matched: u64,
    /// Frees of blocks that the recording never showed.
    pub gaps: u64,
    /// Segments, or runs of pages, that the recording took or gave back.
    pub segments: u64,
    /// Of them, asked for or given back by us at the same moment with the same size.
    pub segments_matched: u64,
    /// Requests that failed in the recording.
    pub ooms: u64,
    /// Of them, failed here.
    pub ooms_matched: u64,
    /// Blocks at the end of the recording.
    pub final_blocks: u64,
    /// Of them, the same here.
    pub final_blocks_matched: u64,
    /// Differences of all kinds.
    pub mismatch_count: u64,
    /// The first of them, in words.
    pub mismatches: Vec<String>,
    /// Why the recording cannot be checked.
    pub not_verifiable: Option<String>,
}

impl Check {
    fn differ(&mut self, what: impl FnOnce() -> String) {
        self.mismatch_count += 1;
        if self.mismatches.len() < TOLD {
            self.mismatches.push(what());
        }
    }
}

/// Plays a device's history through `spec`, on a driver that answers from the recording.
///
/// # Errors
/// Settings that the strategy refuses, or a strategy that cannot start from a recorded state.
pub fn check(device: &DeviceRecording, spec: &Spec, total: Option<u64>) -> Result<Check, Failure> {
    let recording = &*device.recording;
    let mut found = Check { gaps: recording.gaps(), ..Check::default() };
    if let Some(trouble) = recording.trouble() {
        found.not_verifiable = Some(trouble.to_string());
        return Ok(found);
    }
    let mut strategy = build(spec).map_err(Failure::input)?;
    let mut run = Run {
        driver: RecordedDriver::new(total.unwrap_or(UNKNOWN_TOTAL)),
        blocks: FxHashMap::default(),
        routes: Routes::default(),
        ordinal: 0,
        found,
    };
    let failed = |error: AllocError| Failure::input(format!("{spec}: {error}"));
    run.start(&mut *strategy, recording.start_layout()).map_err(failed)?;
    let mut steps = Steps::new(recording);
    while let Some(step) = steps.next() {
        run.driver.ranges_ahead(recording.entries(), steps.index);
        run.driver.open(&steps.window, &step);
        run.step(&mut *strategy, step, steps.index).map_err(failed)?;
        run.close(steps.index);
    }
    run.compare_end(&mut *strategy, &device.end).map_err(failed)?;
    Ok(run.found)
}

struct Run {
    driver: RecordedDriver,
    blocks: FxHashMap<u64, Block>,
    routes: Routes,
    ordinal: u64,
    found: Check,
}

impl Run {
    fn start(&mut self, strategy: &mut dyn Allocator, layout: &Layout) -> Result<(), AllocError> {
        if layout.segments.is_empty() {
            return Ok(());
        }
        self.driver.adopt(layout);
        let Reply::Adopted(tokens) = strategy.notice(&mut self.driver, Notice::Adopt(layout))?
        else {
            return Err(AllocError::BadSetting("cannot start from a recorded state".into()));
        };
        let used =
            layout.segments.iter().flat_map(|s| &s.blocks).filter(|b| b.state != BlockState::Free);
        self.blocks.extend(used.zip(tokens).map(|(block, token)| (block.address, token)));
        Ok(())
    }

    fn step(
        &mut self,
        strategy: &mut dyn Allocator,
        step: RecordedStep,
        index: usize,
    ) -> Result<(), AllocError> {
        match step {
            RecordedStep::Alloc { addr, size, stream, pool, .. } => {
                self.route(strategy, stream, pool)?;
                self.found.placed += 1;
                match self.request(strategy, size, stream) {
                    Ok(placement) => {
                        if placement.address == addr {
                            self.found.matched += 1;
                        } else {
                            let ours = placement.address;
                            self.found.differ(|| format!("entry {index}: {size} bytes were placed at {addr:#x}, ours at {ours:#x}"));
                        }
                        self.blocks.insert(addr, placement.block);
                    }
                    Err(AllocError::Driver(error)) => return Err(error.into()),
                    Err(error) => self.found.differ(|| format!("entry {index}: {size} bytes were placed at {addr:#x}, ours failed: {error}")),
                }
            }
            RecordedStep::Oom { size, stream, .. } => {
                self.found.ooms += 1;
                match self.request(strategy, size, stream) {
                    Ok(placement) => {
                        self.found.differ(|| format!("entry {index}: a request of {size} bytes failed, ours was placed at {:#x}", placement.address));
                        strategy.free(&mut self.driver, placement.block, None)?;
                    }
                    Err(AllocError::OutOfMemory(_)) => self.found.ooms_matched += 1,
                    Err(error) => return Err(error),
                }
            }
            RecordedStep::Free { addr } => match self.blocks.remove(&addr) {
                Some(block) => strategy.free(&mut self.driver, block, None)?,
                None => self.found.gaps += 1,
            },
            RecordedStep::FreeDeferred { addr } => match self.blocks.get(&addr) {
                Some(block) => drop(
                    strategy.notice(&mut self.driver, Notice::FreeDeferred { block: *block })?,
                ),
                None => self.found.gaps += 1,
            },
            RecordedStep::FreeCompleted { addr } => match self.blocks.remove(&addr) {
                Some(block) => {
                    drop(strategy.notice(&mut self.driver, Notice::Completed { block })?)
                }
                None => self.found.gaps += 1,
            },
            RecordedStep::EmptyCache => {
                drop(strategy.notice(&mut self.driver, Notice::EmptyCache)?)
            }
        }
        Ok(())
    }

    fn request(
        &mut self,
        strategy: &mut dyn Allocator,
        size: u64,
        stream: StreamId,
    ) -> Result<vramlab_sim::Placement, AllocError> {
        let request = Request { size, stream, ordinal: self.ordinal };
        self.ordinal += 1;
        strategy.alloc(&mut self.driver, &request)
    }

    /// Requests of `stream` go to `pool` from here on.
    fn route(
        &mut self,
        strategy: &mut dyn Allocator,
        stream: StreamId,
        pool: Option<PoolId>,
    ) -> Result<(), AllocError> {
        for turn in self.routes.turn(stream, pool) {
            let notice = match turn {
                Turn::End(pool) => Notice::PoolEnd { pool },
                Turn::Begin(pool, stream) => Notice::PoolBegin { pool, stream },
            };
            strategy.notice(&mut self.driver, notice)?;
        }
        Ok(())
    }

    /// What the recording did with the driver and ours did not, and the other way round.
    fn close(&mut self, index: usize) {
        let (seen, matched, wrong) = self.driver.close();
        self.found.segments += seen;
        self.found.segments_matched += matched;
        for what in wrong {
            self.found.differ(|| format!("entry {index}: {what}"));
        }
    }

    fn compare_end(
        &mut self,
        strategy: &mut dyn Allocator,
        end: &Layout,
    ) -> Result<(), AllocError> {
        let Reply::Layout(ours) = strategy.notice(&mut self.driver, Notice::Walk)? else {
            return Err(AllocError::BadSetting("cannot say what is where".into()));
        };
        let mine: FxHashMap<u64, (u64, BlockState, u64)> = ours
            .segments
            .iter()
            .flat_map(|s| &s.blocks)
            .map(|b| {
                (
                    b.address,
                    (b.size, b.state, if b.state == BlockState::Free { 0 } else { b.requested }),
                )
            })
            .collect();
        self.found.final_blocks = end.segments.iter().map(|s| s.blocks.len() as u64).sum();
        if mine.len() as u64 != self.found.final_blocks {
            let (count, want) = (mine.len(), self.found.final_blocks);
            self.found
                .differ(|| format!("at the end: {want} blocks were listed, ours are {count}"));
        }
        for block in end.segments.iter().flat_map(|s| &s.blocks) {
            let requested = if block.state == BlockState::Free { 0 } else { block.requested };
            let want = (block.size, block.state, requested);
            match mine.get(&block.address) {
                Some(got) if *got == want => self.found.final_blocks_matched += 1,
                got => self.found.differ(|| {
                    format!(
                        "at the end: block {:#x} is {want:?} (bytes, state, asked), ours {got:?}",
                        block.address
                    )
                }),
            }
        }
        Ok(())
    }
}
