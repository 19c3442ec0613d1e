//! What no golden case shows: legacy rules, sizes at the edge, frees with unseen completion, adopted states, notices, failures.

use vramlab_sim::allocator::{BlockState, LayoutSegment};
use vramlab_sim::driver::{Address, DriverError, DriverExt};
use vramlab_sim::testing::ScriptedMachine;
use vramlab_sim::units::PoolId;

use super::*;

const MIB: u64 = 1 << 20;

/// A strategy on a machine of its own.
struct Lab {
    caching: Caching,
    machine: ScriptedMachine,
}

impl Lab {
    fn new(spec: &[(&str, &str)], capacity: u64) -> Self {
        let options = Options::from_pairs(spec.iter().copied());
        let caching = Caching::from_options(&options).expect("options that are accepted");
        Self { caching, machine: ScriptedMachine::of_capacity(capacity) }
    }

    fn try_alloc(&mut self, size: u64, stream: u32) -> Result<Placement, AllocError> {
        let request = Request { size, stream: StreamId(stream), ordinal: 0 };
        self.caching.alloc(&mut self.machine, &request)
    }

    fn alloc(&mut self, size: u64) -> Placement {
        self.try_alloc(size, 0).expect("room")
    }

    fn free(&mut self, block: Block) {
        self.caching.free(&mut self.machine, block, None).expect("a live block");
    }

    fn tell(&mut self, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.caching.notice(&mut self.machine, notice)
    }

    fn record(&mut self, block: Block, stream: u32) {
        self.tell(Notice::RecordStream { block, stream: StreamId(stream) }).expect("live");
    }

    fn calls(&mut self) -> Vec<String> {
        self.machine.drain_log().map(|call| call.to_string()).collect()
    }
}

fn rows(spec: &[(&str, &str)], rebind: bool) -> Vec<(f64, f64)> {
    let mut lab = Lab::new(spec, 8 << 30);
    lab.alloc(865_280);
    let mut last: Option<Block> = None;
    let mut rows = Vec::new();
    for size in (1..=10).map(|n| n * 4_000_000) {
        if !rebind && let Some(block) = last.take() {
            lab.free(block);
        }
        let new = lab.alloc(size).block;
        if let Some(block) = last.replace(new) {
            lab.free(block);
        }
        let stats = lab.caching.statistics();
        let mib = |bytes: i64| bytes as f64 / MIB as f64;
        rows.push((mib(stats.allocated_bytes.all.peak), mib(stats.reserved_bytes.all.peak)));
    }
    rows
}

/// A maintainer's table from 2018 (facebookresearch/maskrcnn-benchmark#182): each tensor is larger than anything cached.
#[test]
fn legacy_growing_sizes_never_hit_the_cache() {
    let rebound = rows(&[("version", "legacy")], true);
    let peaks: Vec<f64> = rebound.iter().map(|row| row.0).collect();
    let steps = [4.700_195_312_5, 12.450_195_312_5, 20.075_195_312_5, 27.700_195_312_5];
    assert_eq!(peaks[..4], steps);
    let held: Vec<f64> = rebound.iter().map(|row| row.1).collect();
    assert_eq!(
        held,
        [4.875, 12.625, 24.125, 39.5, 58.625, 81.625, 108.375, 139.0, 173.375, 211.625]
    );
    let deleted = rows(&[("version", "legacy")], false);
    assert_eq!(deleted[6], (27.575_195_312_5, 108.375));
}

#[test]
fn legacy_waits_for_nothing_and_empties_the_small_pool_first() {
    let mut lab = Lab::new(&[("version", "legacy")], 1 << 30);
    let large = lab.alloc(4 * MIB).block;
    let small = lab.alloc(MIB / 2).block;
    let used = lab.alloc(3 * MIB).block;
    lab.record(used, 1);
    [large, small, used].into_iter().for_each(|block| lab.free(block));
    lab.tell(Notice::EmptyCache).expect("done");
    assert_eq!(
        lab.calls()[3..],
        ["cudaEventRecord,,,0,s1,1", "cudaFree,m1,0,2097152,,1", "cudaFree,m0,0,4194304,,1"]
    );
    assert_eq!(lab.caching.usage().active, 3 * MIB);
    assert_eq!(lab.tell(Notice::PoolEnd { pool: PoolId(1) }), Ok(Reply::Unsupported));
    let fraction = Notice::Set { key: "memory_fraction", value: "0.5" };
    assert_eq!(lab.tell(fraction), Ok(Reply::Unsupported));
}

#[test]
fn legacy_has_one_queue_of_events_for_all_streams() {
    let mut lab = Lab::new(&[("version", "legacy")], 1 << 30);
    let [first, second] = [4, 6].map(|size| lab.alloc(size * MIB));
    lab.record(first.block, 1);
    lab.record(second.block, 2);
    [first, second].into_iter().for_each(|placed| lab.free(placed.block));
    lab.machine.complete(StreamId(2));
    let other = lab.alloc(6 * MIB);
    assert_ne!(other.address, second.address, "the first in the queue is not done");
    lab.machine.complete(StreamId(1));
    assert_eq!(lab.alloc(6 * MIB).address, second.address);
}

/// Spurious failure while the block that fits waits for another stream (pytorch/pytorch#189504), as released and as proposed.
#[test]
fn research_after_sync_finds_what_was_waiting() {
    for (fix, fails) in [("false", true), ("true", false)] {
        let mut lab = Lab::new(&[("research_pool_after_sync", fix)], 90 * MIB);
        let whole = lab.alloc(80 * MIB).block;
        lab.free(whole);
        lab.alloc(40 * MIB);
        let half = lab.alloc(40 * MIB);
        lab.record(half.block, 1);
        lab.free(half.block);
        let got = lab.try_alloc(40 * MIB, 0);
        assert_eq!(got.is_err(), fails);
        assert_eq!(lab.caching.statistics().num_ooms, u64::from(fails));
        if fails {
            assert_eq!(lab.alloc(40 * MIB).address, half.address, "at once again, it works");
        }
        assert_eq!(lab.caching.usage().reserved, 80 * MIB);
    }
}

/// Sizes at the edge of 64 bits (pytorch/pytorch#182446, #57571, #177827, #182277): an error, and nothing changes.
#[test]
fn sizes_never_wrap() {
    for spec in [&[][..], &[("expandable_segments", "true")], &[("roundup_power2_divisions", "4")]]
    {
        let mut lab = Lab::new(spec, 8 << 30);
        lab.alloc(1000);
        let (usage, layout) = (lab.caching.usage(), lab.caching.layout());
        for size in [
            (8 << 30) + 1,
            1 << 41,
            1 << 45,
            1 << 63,
            18_446_744_073_708_433_663,
            18_446_744_073_709_551_104,
            18_446_744_073_709_551_105,
            u64::MAX,
        ] {
            let error = lab.try_alloc(size, 0).expect_err("too large");
            assert!(
                matches!(error, AllocError::OutOfMemory(_) | AllocError::InvalidSize { .. }),
                "{size}: {error}"
            );
            assert_eq!(
                (lab.caching.usage(), lab.caching.layout()),
                (usage, layout.clone()),
                "{size}"
            );
        }
    }
    let mut lab = Lab::new(&[], 8 << 30);
    let null = lab.alloc(0);
    assert_eq!((null.address, null.size), (0, 0));
    assert_eq!(lab.caching.statistics(), Statistics::default());
    lab.free(null.block);
    lab.free(null.block);
    assert_eq!(lab.alloc(8 << 30).size, 8 << 30, "all of an empty device");
}

#[test]
fn out_of_memory_carries_the_numbers() {
    let mut lab = Lab::new(&[("per_process_memory_fraction", "0.5")], 100 * MIB);
    let kept = lab.alloc(10 * MIB).block;
    let error = lab.try_alloc(48 * MIB, 0).expect_err("over the limit");
    let AllocError::OutOfMemory(oom) = error else { panic!("{error}") };
    assert_eq!((oom.asked, oom.reserved, oom.active), (48 * MIB, 10 * MIB, 10 * MIB));
    assert_eq!((oom.device_free, oom.limit), (90 * MIB, Some(50 * MIB)));
    lab.free(kept);
}

#[test]
fn a_token_is_used_up_by_its_free() {
    let mut lab = Lab::new(&[], 1 << 30);
    let block = lab.alloc(MIB).block;
    lab.free(block);
    for wrong in [block, Block(7777), Block(1 << 40)] {
        let freed = lab.caching.free(&mut lab.machine, wrong, None);
        assert_eq!(freed, Err(AllocError::UnknownBlock(wrong)));
        let recorded = lab.tell(Notice::RecordStream { block: wrong, stream: StreamId(1) });
        assert_eq!(recorded, Err(AllocError::UnknownBlock(wrong)));
    }
}

#[test]
fn an_unseen_free_waits_until_it_is_told() {
    let mut lab = Lab::new(&[], 1 << 30);
    let first = lab.alloc(20 * MIB);
    lab.tell(Notice::FreeDeferred { block: first.block }).expect("live");
    let usage = lab.caching.usage();
    assert_eq!((usage.allocated, usage.active), (0, 20 * MIB));
    assert_eq!(lab.caching.layout().segments[0].blocks[0].state, BlockState::Pending);
    assert_ne!(lab.alloc(20 * MIB).address, first.address);
    lab.tell(Notice::Completed { block: first.block }).expect("waiting");
    assert_eq!(lab.alloc(20 * MIB).address, first.address);
}

#[test]
fn an_unseen_free_comes_back_when_everything_is_waited_for() {
    let mut lab = Lab::new(&[], 1 << 30);
    let [first, second] = [0, 1].map(|_| lab.alloc(2 * MIB));
    lab.tell(Notice::FreeDeferred { block: first.block }).expect("live");
    lab.tell(Notice::EmptyCache).expect("done");
    assert_eq!(lab.caching.usage().active, 2 * MIB);
    // The same place is handed out again and deferred again; the late word about the first free is not about it.
    let again = lab.alloc(2 * MIB);
    assert_eq!(again.address, first.address);
    assert_ne!(again.block, first.block);
    lab.tell(Notice::FreeDeferred { block: again.block }).expect("live");
    lab.tell(Notice::Completed { block: first.block }).expect("ignored");
    assert_eq!(lab.caching.usage().active, 4 * MIB);
    lab.tell(Notice::Completed { block: again.block }).expect("waiting");
    assert_eq!(lab.caching.usage().active, 2 * MIB);
    lab.free(second.block);
}

#[test]
fn refused_settings_change_nothing() {
    let mut lab = Lab::new(&[("max_split_size_mb", "64")], 1 << 30);
    let before = lab.caching.settings.clone();
    let bad = Notice::Set { key: "conf", value: "expandable_segments:True,max_split_size_mb:3" };
    let error = lab.tell(bad).expect_err("too small").to_string();
    assert_eq!(error, "CachingAllocator option max_split_size_mb too small, must be >= 20");
    for value in ["1.5", "x", "-1", "NaN"] {
        let error = lab.tell(Notice::Set { key: "memory_fraction", value }).expect_err(value);
        assert!(error.to_string().starts_with("invalid fraction"), "{error}");
    }
    assert_eq!(lab.caching.settings, before);
    assert_eq!(lab.tell(Notice::Set { key: "color", value: "red" }), Ok(Reply::Unsupported));
    assert_eq!(lab.tell(Notice::Trim { keep: 0 }), Ok(Reply::Unsupported));
}

#[test]
fn settings_while_running_act_from_then_on() {
    let mut lab = Lab::new(&[], 1 << 30);
    lab.tell(Notice::Set { key: "conf", value: "expandable_segments:True" }).expect("accepted");
    lab.alloc(30 * MIB);
    assert!(lab.caching.layout().segments[0].expandable);
    lab.tell(Notice::Set { key: "memory_fraction", value: "0.04" }).expect("accepted");
    assert!(lab.try_alloc(30 * MIB, 0).is_err());
}

#[test]
fn other_driver_errors_end_the_run() {
    let mut lab = Lab::new(&[], 1 << 30);
    let error =
        DriverError::Failed { call: "cudaMalloc", what: "unspecified launch failure".into() };
    lab.machine.fail_on("cudaMalloc", 0, error.clone());
    assert_eq!(lab.try_alloc(MIB, 0), Err(AllocError::Driver(error)));
}

/// A machine on which a layout's segments exist, at addresses of its own; the layout with those addresses.
fn prepared(layout: &Layout, page: u64, range: u64, capacity: u64) -> (ScriptedMachine, Layout) {
    let mut machine = ScriptedMachine::of_capacity(capacity);
    let mut moved = layout.clone();
    let mut base: Option<(Address, Address)> = None;
    for run in &mut moved.segments {
        let address = if run.expandable {
            let (from, to) =
                *base.get_or_insert_with(|| (run.address, machine.reserve(range).expect("room")));
            let address = to + (run.address - from);
            for at in (address..address + run.size).step_by(page as usize) {
                let handle = machine.create(page).expect("room");
                machine.map(at, handle).expect("free");
                machine.set_access(at, page).expect("mapped");
            }
            address
        } else {
            machine.malloc(run.size).expect("room")
        };
        let by = address.wrapping_sub(run.address);
        run.address = address;
        run.blocks.iter_mut().for_each(|block| block.address = block.address.wrapping_add(by));
    }
    (machine, moved)
}

/// Runs the same requests on a state and on a copy that adopted it.
#[test]
fn an_adopted_state_goes_on_as_the_original() {
    for spec in [
        &[][..],
        &[("expandable_segments", "true")],
        &[("version", "2.9"), ("max_split_size_mb", "64")],
    ] {
        let capacity = 1 << 30;
        let mut original = Lab::new(spec, capacity);
        let mut live = Vec::new();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move |end: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % end
        };
        for _ in 0..400 {
            if live.len() < 40 || random(2) == 0 {
                live.push(original.alloc((1 + random(12)) * 1_500_000));
            } else {
                let at = random(live.len() as u64) as usize;
                original.free(live.swap_remove(at).block);
            }
            if live.len() > 60 {
                let placed: Vec<_> = live.drain(..30).collect();
                placed.into_iter().for_each(|placed| original.free(placed.block));
            }
        }
        original.tell(Notice::EmptyCache).expect("done");
        let layout = original.caching.layout();
        let (machine, moved) = prepared(&layout, 20 * MIB, 9 * capacity / 8, capacity);
        let mut copy = Lab::new(spec, capacity);
        copy.machine = machine;
        let Ok(Reply::Adopted(tokens)) = copy.tell(Notice::Adopt(&moved)) else { panic!("adopts") };
        assert_eq!(copy.caching.layout(), moved, "{spec:?}");
        let usage = |lab: &Lab| lab.caching.usage();
        assert_eq!(usage(&copy), usage(&original), "{spec:?}");

        let used = |layout: &Layout| -> Vec<Address> {
            let blocks = layout.segments.iter().flat_map(|run| &run.blocks);
            blocks
                .filter(|block| block.state != BlockState::Free)
                .map(|block| block.address)
                .collect()
        };
        let twins: Vec<(Address, Block)> = used(&layout).into_iter().zip(tokens).collect();
        for placed in &live {
            let twin = twins.iter().find(|twin| twin.0 == placed.address).expect("adopted");
            if random(2) == 0 {
                original.free(placed.block);
                copy.free(twin.1);
            }
        }
        for _ in 0..60 {
            let size = (1 + random(12)) * 1_500_000;
            let (a, b) = (original.alloc(size), copy.alloc(size));
            assert_eq!(a.size, b.size, "{spec:?}");
        }
        for lab in [&mut original, &mut copy] {
            lab.tell(Notice::EmptyCache).expect("done");
        }
        let shape = |lab: &Lab| -> Vec<Vec<(u64, BlockState)>> {
            let run = |run: &LayoutSegment| run.blocks.iter().map(|b| (b.size, b.state)).collect();
            let mut runs: Vec<_> = lab.caching.layout().segments.iter().map(run).collect();
            runs.sort_by_key(|run: &Vec<(u64, BlockState)>| {
                run.iter().map(|b| b.0).collect::<Vec<_>>()
            });
            runs
        };
        assert_eq!(shape(&copy), shape(&original), "{spec:?}");
        assert_eq!(usage(&copy), usage(&original), "{spec:?}");
    }
}

#[test]
fn a_layout_that_does_not_add_up_is_refused() {
    let mut lab = Lab::new(&[], 1 << 30);
    let good = {
        let mut lab = Lab::new(&[], 1 << 30);
        lab.alloc(3 * MIB);
        lab.caching.layout()
    };
    let mut short = good.clone();
    short.segments[0].size += 512;
    let mut odd = good.clone();
    odd.segments[0].blocks[0].size -= 1;
    let mut other = good.clone();
    other.segments[0].pool = "medium";
    for bad in [short, odd, other] {
        assert!(matches!(lab.tell(Notice::Adopt(&bad)), Err(AllocError::BadSetting(_))));
    }
    assert!(
        matches!(lab.tell(Notice::Adopt(&good)), Ok(Reply::Adopted(tokens)) if tokens.len() == 1)
    );
    assert!(matches!(lab.tell(Notice::Adopt(&good)), Err(AllocError::BadSetting(_))), "only once");
}
