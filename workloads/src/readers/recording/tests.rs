use std::sync::Arc;

use vramlab_sim::allocator::{BlockState, LayoutBlock, LayoutSegment};
use vramlab_sim::op::Op;
use vramlab_sim::source::{Answered, Source, Step};
use vramlab_sim::units::Nanos;

use super::*;

struct List(Vec<Entry>);

impl Entries for List {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn entry(&self, index: usize) -> Entry {
        self.0[index]
    }
}

fn entry(action: Action, addr: u64) -> Entry {
    Entry { action, addr, size: 512, stream: 0, time_us: 0, site: 0, pool: (0, 0) }
}

/// A recording with one segment of 2 MiB at 0x1000, whose first block is live at the end if `live`.
fn recording(entries: Vec<Entry>, live: bool) -> Arc<Recording<List>> {
    let block = |address, size, state| LayoutBlock { address, size, requested: 512, state, age: 0 };
    let state = if live { BlockState::Allocated } else { BlockState::Free };
    let segment = LayoutSegment {
        address: 0x1000,
        size: 2 << 20,
        stream: StreamId(0),
        pool: "small",
        private_pool: None,
        expandable: false,
        registration: None,
        blocks: vec![block(0x1000, 512, state), block(0x1200, (2 << 20) - 512, BlockState::Free)],
    };
    let rules = Rules { round: &|size| size.next_multiple_of(512), max_split: u64::MAX };
    let mut end = Layout { segments: vec![segment] };
    Arc::new(Recording::new(List(entries), &mut end, vec![Handles::default()], &rules))
}

fn ops(recording: &Arc<Recording<List>>) -> Vec<&'static str> {
    let mut source = RecordingSource::new(Arc::clone(recording), false);
    let mut names = Vec::new();
    loop {
        match source.next(Nanos(0), Answered::Done).expect("reads") {
            Step::Op(Op::FreeDeferred { .. }) => names.push("free deferred"),
            Step::Op(op) => names.push(op.name()),
            Step::WaitUntil(_) => {}
            Step::End => return names,
        }
    }
}

/// A generated file had `alloc` and `free_completed` only: its blocks were never freed, or the run ended.
#[test]
fn a_completion_that_nobody_requested_is_a_free() {
    let entries = vec![entry(Action::Alloc, 0x1000), entry(Action::FreeCompleted, 0x1000)];
    let twice = [entries.clone(), entries].concat();
    assert_eq!(ops(&recording(twice, false)), ["alloc", "free", "alloc", "free"]);
    let elsewhere =
        vec![entry(Action::Alloc, 0x99_0000_0000), entry(Action::FreeCompleted, 0x99_0000_0000)];
    let made_up = recording(elsewhere, false);
    assert_eq!((ops(&made_up), made_up.gaps()), (vec!["alloc", "free"], 0));
}

#[test]
fn a_completion_whose_request_came_before_the_window_ends_a_deferred_free() {
    let entries = vec![entry(Action::FreeCompleted, 0x1000)];
    assert_eq!(ops(&recording(entries, false)), ["alloc", "free deferred", "free_completed"]);
}

#[test]
fn a_requested_free_is_deferred_only_if_its_completion_comes_later() {
    let (alloc, request, done) = (
        entry(Action::Alloc, 0x1000),
        entry(Action::FreeRequested, 0x1000),
        entry(Action::FreeCompleted, 0x1000),
    );
    assert_eq!(ops(&recording(vec![alloc, request, done], false)), ["alloc", "free"]);
    let other = entry(Action::Alloc, 0x1200);
    assert_eq!(
        ops(&recording(vec![alloc, request, other, done], false)),
        ["alloc", "free deferred", "alloc", "free_completed"]
    );
}

/// Pool (2^60, 0) and pool (0, 2^32) had one number, and the product overflowed.
#[test]
fn private_pools_have_numbers_of_their_own() {
    let pools = [(1 << 60, 0), (0, 1 << 32), (0, 0), (0, 1), (u64::MAX, u64::MAX)];
    let entries = pools.map(|pool| Entry { pool, ..entry(Action::Alloc, 0x1000) });
    let recording = recording(entries.to_vec(), true);
    let numbers: Vec<Option<PoolId>> = pools.iter().map(|pool| recording.pool(*pool)).collect();
    assert_eq!(numbers, [Some(3), Some(2), None, Some(1), Some(4)].map(|n| n.map(PoolId)));
}

#[test]
fn a_route_is_told_where_it_changes() {
    let mut routes = Routes::default();
    let mut turn = |pool| routes.turn(StreamId(1), pool).collect::<Vec<_>>();
    let (one, two) = (PoolId(1), PoolId(2));
    assert_eq!(turn(None), []);
    assert_eq!(turn(Some(one)), [Turn::Begin(one, StreamId(1))]);
    assert_eq!(turn(Some(one)), []);
    assert_eq!(turn(Some(two)), [Turn::End(one), Turn::Begin(two, StreamId(1))]);
    assert_eq!(turn(None), [Turn::End(two)]);
}
