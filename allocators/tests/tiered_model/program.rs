//! Programs that announce their work, and what they will ask.

use proptest::prelude::*;
use vramlab_sim::future::{Future, Life, PlannedUse};
use vramlab_sim::units::StreamId;

/// One op. A buffer is named by its number among the live ones (modulo how many there are).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Size, stream, filled at once by work that names no buffers (its first named use is a read then).
    Alloc(u64, u32, bool),
    Free(usize),
    /// Stream, duration, uses: buffer, written.
    Work(u32, u64, Vec<(usize, bool)>),
    EmptyCache,
    Sync,
}
use Op::{Alloc, EmptyCache, Free, Sync, Work};

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let stream = || prop_oneof![4 => Just(0_u32), 1 => 1_u32..3];
    let size =
        prop_oneof![6 => (1_u64 << 20)..(9 << 20), 2 => 1_u64..(1 << 20), 1 => Just(4 << 20)];
    let uses = prop::collection::vec((any::<usize>().prop_map(|at| at % 100), any::<bool>()), 1..5);
    prop_oneof![
        8 => (size, stream(), prop::bool::weighted(0.3))
            .prop_map(|(size, stream, filled)| Alloc(size, stream, filled)),
        5 => any::<usize>().prop_map(|at| Free(at % 100)),
        24 => (stream(), 0_u64..2_000_000, uses).prop_map(|(stream, ns, uses)| Work(stream, ns, uses)),
        1 => Just(EmptyCache),
        1 => Just(Sync),
    ]
}

/// Buffers made first, then a body that is done several times over: predictors have something to learn.
pub(crate) fn program() -> impl Strategy<Value = Vec<Op>> {
    let body = prop::collection::vec(op(), 1..60);
    let large = ((1_u64 << 20)..(9 << 20)).prop_map(|size| Alloc(size, 0, true));
    let first = prop::collection::vec(large, 0..12);
    (first, body, 1_usize..6).prop_map(|(first, body, times)| {
        let bodies = std::iter::repeat_n(body, times).flatten();
        first.into_iter().chain(bodies).collect()
    })
}

/// What the program will ask: as if nothing were ever refused.
pub(crate) fn future(program: &[Op]) -> Future {
    let (mut future, mut live) = (Future::default(), Vec::<u32>::new());
    for (op, at) in program.iter().zip(0_u64..) {
        match op {
            Alloc(size, stream, _) => {
                live.push(future.requests.len() as u32);
                let (size, stream) = (*size, StreamId(*stream));
                future.requests.push(Life { size, stream, born: at, freed: None, shared: false });
            }
            Free(which) if !live.is_empty() => {
                let ordinal = live.swap_remove(which % live.len());
                future.requests[ordinal as usize].freed = Some(at);
            }
            Work(_, _, uses) if !live.is_empty() => {
                future.uses.extend(uses.iter().map(|(which, write)| PlannedUse {
                    op: at,
                    ordinal: live[which % live.len()],
                    write: *write,
                }));
            }
            _ => {}
        }
    }
    future.ops = program.len() as u64;
    future
}

/// Buffers that are read in turn, more than the device holds; saved ones that are used again in reverse order, and freed.
pub(crate) fn steps(times: usize) -> Vec<Op> {
    const WEIGHTS: usize = 10;
    let mut program: Vec<Op> = (0..WEIGHTS).map(|_| Alloc(3 << 20, 0, true)).collect();
    for _ in 0..times {
        for layer in 0..WEIGHTS {
            program.push(Alloc(4 << 20, 0, false));
            let saved = WEIGHTS + layer;
            let before = if layer == 0 { 0 } else { saved - 1 };
            program.push(Work(0, 900_000, vec![(layer, false), (before, false), (saved, true)]));
        }
        for layer in (0..WEIGHTS).rev() {
            let saved = WEIGHTS + layer;
            program.push(Work(0, 900_000, vec![(layer, false), (saved, false), (layer, true)]));
            program.push(Free(saved));
        }
    }
    program
}
