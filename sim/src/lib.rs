//! The discrete-event core of vramlab.
//!
//! ```text
//! Source ──ops──▶ engine ──requests──▶ Allocator ──calls──▶ Driver      what a strategy may use
//! (workload)        │                  (strategy)             ▲
//!                   └── launch, time, touch, held ──▶ Machine: Driver   what only the engine may use
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`units`] | bytes, nanoseconds, ids; how they are parsed and printed |
//! | [`op`] | the ops: the one language between workloads and everything else |
//! | [`source`] | the trait that yields ops, given the time and the last answer |
//! | [`allocator`] | the trait above a strategy: requests, placements, notices, out of memory |
//! | [`kv`] | the trait of a cache of keys and values, which stands above an allocator |
//! | [`driver`] | the trait below a strategy: what CUDA offers and no more |
//! | [`trace`] | the text form of ops: reading and writing |
//! | [`engine`] | the loop: source, strategies and machine together |
//! | [`future`] | all that will be asked of a device, for strategies that plan ahead |
//! | [`free_set`] | free blocks in exact best-fit order, for strategies and for the pools of the driver |
//! | [`report`] | the figures: one definition each |
//! | [`audit`] | a wrapper that holds a strategy to its promises |
//! | [`machine`] | what only the engine may ask of a device: time, work, bytes held |
//! | [`device`] | the simulated machine: memory, queues, clock, cost table |
//! | [`queue`] | the event queue: what is due next |
//! | [`testing`] | a machine on a script: events complete on cue, calls fail on cue, every call is logged |
//!
//! This crate knows no strategy and no workload by name, and touches no GPU, network, thread or wall clock.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod audit;
pub mod device;
pub mod driver;
pub mod engine;
mod forward;
pub mod free_set;
pub mod future;
pub mod kv;
pub mod machine;
pub mod op;
pub mod queue;
mod race;
pub mod report;
pub mod source;
pub mod testing;
pub mod trace;
pub mod units;

pub use allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request, Usage, Use,
};
pub use device::{DeviceOptions, SimMachine};
pub use driver::{Address, Answer, Call, Driver, DriverError, DriverExt};
pub use engine::{Setup, run};
pub use kv::KvCache;
pub use machine::{Held, Machine};
pub use op::{BufferUse, Op};
pub use report::Report;
pub use source::{Answered, Source, SourceError, Step};
pub use units::{BufferId, Bytes, DeviceId, EventId, Nanos, PoolId, StreamId};
