//! Each rule of the tables, on a small device whose tier is `cuda.malloc`: sizes are exact there.

use vramlab_sim::allocator::{AllocError, Allocator, Block, Notice, Reply, Request, Use};
use vramlab_sim::device::{DeviceOptions, Link, Links, SimMachine};
use vramlab_sim::driver::DriverExt;
use vramlab_sim::future::{Future, Life, PlannedUse};
use vramlab_sim::machine::Machine;
use vramlab_sim::units::StreamId;

use super::foresight::{Foresight, Nothing};
use super::oracle::Oracle;
use super::settings::{self, Settings};
use super::strategy::Tiered;
use crate::options::Options;

const MIB: u64 = 1 << 20;

struct Bench {
    it: Tiered,
    machine: SimMachine,
    ordinal: u64,
}

/// A device of 8 MiB, links of 1 MiB/ms each way and half of that to the file.
fn bench(options: &[(&str, &str)], foresight: impl Foresight + 'static) -> Bench {
    let all = [("inner", "cuda.malloc"), ("min_bytes", "0"), ("host_chunk", "2MiB")];
    let options = Options::from_pairs(all.into_iter().chain(options.iter().copied()));
    let inner = settings::inner(&options).expect("cuda.malloc");
    let settings = Settings::parse(&options).expect("good options");
    let link = |mib: f64| Link { bytes_per_second: mib * MIB as f64 * 1e3, latency_ns: 0 };
    let links = Links {
        host_to_device: link(1.0),
        device_to_host: link(1.0),
        disk: link(0.5),
        ..Links::INSTANT
    };
    let capacity = 8 * MIB;
    let machine = SimMachine::new(DeviceOptions { capacity, links, ..DeviceOptions::default() });
    Bench { it: Tiered::new(inner, settings, Box::new(foresight)), machine, ordinal: 0 }
}

fn lru(options: &[(&str, &str)]) -> Bench {
    bench(options, Nothing)
}

impl Bench {
    fn try_alloc(&mut self, mib: u64) -> Result<(Block, u64), AllocError> {
        let request = Request { size: mib * MIB, stream: StreamId(0), ordinal: self.ordinal };
        self.ordinal += 1;
        let placed = self.it.alloc(&mut self.machine, &request)?;
        Ok((placed.block, placed.address))
    }

    fn alloc(&mut self, mib: u64) -> Block {
        self.try_alloc(mib).expect("room").0
    }

    /// Buffers of 2 MiB, each written once.
    fn written<const N: usize>(&mut self) -> [Block; N] {
        [(); N].map(|()| {
            let block = self.alloc(2);
            self.work(&[(block, true)]);
            block
        })
    }

    fn try_work(&mut self, ns: u64, uses: &[(Block, bool)]) -> Result<(), AllocError> {
        let used = |(block, write): &(Block, bool)| Use {
            block: *block,
            address: 0,
            size: 0,
            write: *write,
        };
        let mut announced: Vec<Use> = uses.iter().map(used).collect();
        self.it.before_work(&mut self.machine, StreamId(0), &mut announced)?;
        assert!(announced.iter().all(|used| self.machine.physical(used.address).is_some()));
        self.machine.launch(StreamId(0), ns)?;
        self.it.after_work(&mut self.machine, StreamId(0), &announced)
    }

    fn work(&mut self, uses: &[(Block, bool)]) {
        self.try_work(0, uses).expect("room for all of them");
    }

    fn read(&mut self, block: Block) {
        self.work(&[(block, false)]);
    }

    /// Which of them are on the device?
    fn resident<const N: usize>(&self, blocks: [Block; N]) -> [bool; N] {
        blocks.map(|block| {
            let slot = self.it.buffers.find(block).expect("it is live");
            self.it.buffers.get(slot).device.is_some()
        })
    }

    fn count<const N: usize>(&mut self, names: [&str; N]) -> [u64; N] {
        self.machine.device_synchronize().expect("it does");
        let mut counters = Vec::new();
        self.it.watch.read(&mut self.machine, &mut self.it.lines).expect("events");
        self.it.counters.list(&self.it.watch, &mut counters);
        names.map(|name| counters.iter().find(|(known, _)| *known == name).expect(name).1)
    }
}

/// What an oracle needs: buffers of 2 MiB, and which of them each work uses.
fn oracle(buffers: usize, works: &[&[u32]], freed: bool) -> Oracle {
    let life = Life {
        size: 2 * MIB,
        stream: StreamId(0),
        born: 0,
        freed: freed.then_some(99),
        shared: false,
    };
    let each = |(op, uses): (usize, &&[u32])| -> Vec<PlannedUse> {
        uses.iter().map(|o| PlannedUse { op: op as u64, ordinal: *o, write: false }).collect()
    };
    let uses = works.iter().enumerate().flat_map(each).collect();
    Oracle::new(&Future { requests: vec![life; buffers], uses, ..Future::default() })
}

#[test]
fn born_a_buffer_lies_in_host_memory_where_the_device_has_no_room() -> Result<(), AllocError> {
    let mut bench = lru(&[]);
    bench.alloc(8);
    let (block, address) = bench.try_alloc(2)?;
    assert!(bench.machine.physical(address).is_none(), "no device memory");
    assert_eq!(bench.machine.held().host, 2 * MIB);
    bench.work(&[(block, true)]);
    assert_eq!(bench.resident([block]), [true]);
    let refused = bench.try_alloc(9);
    assert!(matches!(refused, Err(AllocError::OutOfMemory(_))), "more than there ever is");
    Ok(())
}

/// Work that names no buffers fills one in host memory, on a stream of its own; then the buffer is freed.
#[test]
fn leaving_host_memory_waits_for_what_nobody_named() -> Result<(), AllocError> {
    let mut bench = lru(&[]);
    for _ in 0..4 {
        bench.alloc(2);
    }
    let request = Request { size: 2 * MIB, stream: StreamId(1), ordinal: 4 };
    let filled = bench.it.alloc(&mut bench.machine, &request)?;
    bench.machine.launch(StreamId(1), 1_000_000)?;
    let stamp = bench.machine.stamp(StreamId(1)).expect("the machine knows");
    bench.it.free(&mut bench.machine, filled.block, None)?;
    let (_, address) = bench.try_alloc(2)?;
    assert_eq!(address, filled.address, "the same memory, for stream 0");
    assert!(bench.machine.ordered(stamp, StreamId(0)));
    Ok(())
}

#[test]
fn fresh_what_is_written_first_comes_without_a_copy() {
    let mut bench = lru(&[]);
    let [a, ..] = [(); 4].map(|()| bench.alloc(2));
    let (written, read) = (bench.alloc(2), bench.alloc(2)); // until now all stay where they are
    bench.work(&[(written, true)]);
    assert_eq!(bench.resident([a]), [false]);
    assert_eq!(bench.count(["bytes_to_host", "bytes_to_device"]), [2 * MIB, 0]);
    bench.read(read);
    assert_eq!(bench.count(["bytes_to_device"]), [2 * MIB], "someone filled it where it was born");
}

#[test]
fn resident_work_that_does_not_fit_is_out_of_memory_and_loses_nothing() {
    let mut bench = lru(&[]);
    let [a, b, c, d] = bench.written();
    let e = bench.alloc(4);
    let refused = bench.try_work(0, &[(a, false), (b, false), (c, false), (e, true)]);
    assert!(matches!(refused, Err(AllocError::OutOfMemory(_))));
    bench.work(&[(a, false), (b, false), (c, false), (d, false)]);
    bench.work(&[(a, false), (e, true)]);
}

#[test]
fn victim_what_was_used_longest_ago_leaves() {
    let mut bench = lru(&[]);
    let [a, b, c, d] = bench.written();
    bench.read(a);
    let e = bench.alloc(2);
    bench.work(&[(e, true)]);
    assert_eq!(bench.resident([a, b, c, d, e]), [true, false, true, true, true]);
    assert_eq!(bench.count(["evictions", "bytes_to_host"]), [1, 2 * MIB]);
}

#[test]
fn victim_of_the_oracle_is_used_again_last() {
    let works: &[&[u32]] = &[&[0], &[1], &[2], &[3], &[4], &[0], &[2], &[3], &[1]];
    let mut bench = bench(&[("prefetch_lead", "0")], oracle(5, works, false));
    let [a, b, c, d] = bench.written();
    let e = bench.alloc(2);
    bench.work(&[(e, true)]);
    assert_eq!(bench.resident([a, b, c, d, e]), [true, false, true, true, true]);
}

#[test]
fn same_size_goes_before_what_leaves_next() {
    let mut bench = lru(&[]);
    let blocks = [4, 2, 2].map(|mib| bench.alloc(mib));
    blocks.into_iter().for_each(|block| bench.work(&[(block, true)]));
    let more = bench.alloc(2);
    bench.work(&[(more, true)]);
    assert_eq!(bench.resident(blocks), [true, false, true]);
}

#[test]
fn clean_buffers_leave_without_a_copy_and_written_ones_with_a_new_one() {
    let mut bench = lru(&[]);
    let [a, b, c, d] = bench.written();
    let e = bench.alloc(2);
    bench.work(&[(e, true)]); // a leaves
    bench.read(a); // b leaves
    [c, d, e].into_iter().for_each(|block| bench.read(block));
    bench.read(b); // a leaves, whose copy is still there
    assert_eq!(bench.count(["bytes_to_host", "evictions", "evictions_clean"]), [4 * MIB, 3, 1]);
    bench.work(&[(b, true)]);
    [d, e].into_iter().for_each(|block| bench.read(block));
    bench.read(a); // c leaves
    bench.read(c); // b leaves, and was written
    assert_eq!(bench.count(["bytes_to_host", "evictions_clean"]), [8 * MIB, 1]);
}

#[test]
fn small_buffers_leave_only_when_nothing_else_is_left() {
    let mut bench = lru(&[("min_bytes", "2MiB")]);
    let small = [1, 1].map(|mib| bench.alloc(mib));
    small.iter().for_each(|block| bench.work(&[(*block, true)]));
    let [a, b] = bench.written();
    let c = bench.alloc(2);
    bench.work(&[(c, true)]);
    assert_eq!(bench.resident(small), [true, true]);
    assert_eq!(bench.resident([a, b, c]), [false, true, true]);
    let d = bench.alloc(8);
    bench.work(&[(d, true)]);
    assert_eq!(bench.resident(small), [false, false]);
}

#[test]
fn refused_the_device_is_not_asked_for_what_it_cannot_have() {
    let mut bench = lru(&[]);
    bench.written::<9>();
    assert_eq!(bench.machine.refused().get("cudaMalloc"), 1);
}

#[test]
fn spare_copies_go_before_anything_goes_to_the_file() {
    let mut bench = lru(&[("host_bytes", "4MiB"), ("persistent", "write_back")]);
    let [a, b, c, d] = bench.written();
    let e = bench.alloc(2);
    bench.work(&[(e, true)]); // a leaves
    bench.read(a); // b leaves, the copy of a is spare
    let f = bench.alloc(2); // takes its place
    assert_eq!(bench.count(["bytes_to_file"]), [0]);
    bench.work(&[(f, true)]); // c leaves
    let g = bench.alloc(2); // b goes to the file
    assert_eq!(bench.count(["bytes_to_file", "bytes_from_file"]), [2 * MIB, 0]);
    bench.work(&[(g, true)]);
    bench.read(b);
    assert_eq!(bench.count(["bytes_from_file"]), [2 * MIB]);
    assert_eq!(bench.resident([b]), [true]);
    let _ = (c, d);
}

#[test]
fn without_a_persistent_tier_a_full_host_is_the_end() {
    let mut bench = lru(&[("host_bytes", "2MiB")]);
    let [a, b, ..] = bench.written::<5>();
    assert!(matches!(bench.try_alloc(2), Err(AllocError::OutOfMemory(_))));
    let refused = bench.try_work(0, &[(a, false)]);
    assert!(matches!(refused, Err(AllocError::OutOfMemory(_))), "nobody can leave for it");
    bench.it.free(&mut bench.machine, b, None).expect("it is live");
    bench.read(a);
}

#[test]
fn write_through_every_write_reaches_the_file_at_once() {
    let mut bench = lru(&[("persistent", "write_through")]);
    let [a, _] = bench.written();
    bench.read(a);
    assert_eq!(bench.count(["bytes_to_file", "evictions"]), [4 * MIB, 0]);
    assert_eq!(bench.machine.now().0, 2_000_000 + 2 * 4_000_000, "one copy, then the drive");
}

#[test]
fn write_through_counts_what_the_host_has_no_room_for() {
    let mut bench = lru(&[("persistent", "write_through"), ("host_bytes", "3MiB")]);
    let large = bench.alloc(4);
    bench.work(&[(large, true)]);
    bench.work(&[(large, true)]);
    assert_eq!(bench.count(["bytes_to_file", "writes_not_persisted"]), [0, 2]);
    bench.written::<1>();
    assert_eq!(bench.count(["bytes_to_file", "writes_not_persisted"]), [2 * MIB, 2]);
}

#[test]
fn compress_moves_fewer_bytes_and_takes_its_time() {
    let mut bench = lru(&[("compress", "4:1.048576")]); // 1 ms a MiB
    let blocks = bench.written::<5>();
    bench.read(blocks[0]);
    assert_eq!(bench.count(["bytes_to_host", "bytes_to_device"]), [MIB, MIB / 2]);
    // twice out: 2 ms and half a ms, one after the other, then in
    assert_eq!(bench.machine.now().0, 2 * 2_500_000 + 2_500_000);
}

/// A copy takes 2 ms, and begins when the work before the one that it comes ahead of does.
#[test]
fn prefetch_what_is_used_soon_comes_ahead_and_is_late_if_the_work_before_is_short() {
    let works: &[&[u32]] = &[&[0], &[1], &[2], &[3], &[4], &[1], &[0], &[0], &[3], &[2]];
    for (ms, hits, late, waited) in [(3, 1, 0, 0), (1, 0, 1, 1_000_000)] {
        let mut bench = bench(&[("prefetch_lead", "1")], oracle(5, works, false));
        let [a, b, c, d, _] = bench.written();
        assert_eq!(bench.resident([a, b, c, d]), [true, true, false, true]);
        for block in [b, a, a, d, c] {
            bench.try_work(ms * 1_000_000, &[(block, false)]).expect("room");
        }
        let names = ["fetches", "prefetches", "prefetch_hits", "prefetch_late", "wait_late_ns"];
        assert_eq!(bench.count(names), [0, 1, hits, late, waited], "works of {ms} ms");
    }
}

#[test]
fn wait_ns_is_what_a_stream_stood_still() -> Result<(), AllocError> {
    let mut bench = lru(&[]);
    let [a, ..] = bench.written::<5>();
    assert_eq!(bench.count(["wait_ns"]), [2_000_000], "a request, for a to leave");
    bench.try_work(1_000_000, &[(a, false)])?;
    // 2 ms out, then 2 ms in
    assert_eq!(bench.count(["wait_ns", "wait_late_ns"]), [6_000_000, 0]);
    Ok(())
}

#[test]
fn unread_waits_are_counted_until_they_are_over() -> Result<(), AllocError> {
    let mut bench = lru(&[]);
    let [a, ..] = bench.written::<5>();
    bench.read(a); // for which another leaves, and `cudaFree` waits for that; then it is copied
    let count = |bench: &mut Bench, name: &str| {
        let reply = bench.it.notice(&mut bench.machine, Notice::Counters)?;
        let Reply::Counters(counters) = reply else { panic!("{reply:?}") };
        Ok::<_, AllocError>(counters.iter().find(|(known, _)| *known == name).expect(name).1)
    };
    assert_eq!((count(&mut bench, "waits_unread")?, count(&mut bench, "wait_ns")?), (1, 2_000_000));
    bench.machine.device_synchronize()?;
    assert_eq!((count(&mut bench, "waits_unread")?, count(&mut bench, "wait_ns")?), (0, 6_000_000));
    Ok(())
}

#[test]
fn dead_buffers_leave_without_a_copy() {
    let works: &[&[u32]] = &[&[0], &[1], &[2], &[3], &[4]];
    for (freed, bytes) in [(true, 0), (false, 2 * MIB)] {
        let mut bench = bench(&[], oracle(5, works, freed));
        bench.written::<5>();
        assert_eq!(bench.count(["evictions", "bytes_to_host"]), [1, bytes], "freed: {freed}");
    }
}

#[test]
fn restart_what_is_in_the_file_survives_and_the_rest_is_lost() -> Result<(), AllocError> {
    let options = [("persistent", "write_back"), ("host_bytes", "2MiB"), ("restart_at", "boom")];
    let mut bench = lru(&options);
    let [a, b, c, d, e] = bench.written(); // a to the host
    let f = bench.alloc(2); // a to the file
    bench.work(&[(f, true)]); // b to the host
    bench.it.notice(&mut bench.machine, Notice::Mark { name: "boom" })?;
    assert_eq!(bench.count(["restarts"]), [0], "a placement holds until the next announcement");
    bench.read(a);
    let names = ["restarts", "restart_lost_buffers", "restart_lost_bytes", "bytes_from_file"];
    assert_eq!(bench.count(names), [1, 5, 10 * MIB, 2 * MIB]);
    assert_eq!(bench.resident([a, b, c, d, e, f]), [true, false, false, false, false, false]);
    bench.read(b);
    assert_eq!(bench.count(["bytes_to_device"]), [2 * MIB], "of what is lost nothing comes");
    Ok(())
}

#[test]
fn device_bytes_is_all_that_the_device_tier_takes() {
    let mut bench = lru(&[("device_bytes", "4MiB")]);
    let blocks = bench.written::<3>();
    assert_eq!(bench.resident(blocks), [false, true, true]);
    assert_eq!(bench.machine.held().peak_reserved, 4 * MIB);
    let Err(AllocError::OutOfMemory(numbers)) = bench.try_alloc(5) else { panic!("too large") };
    assert_eq!(numbers.limit, Some(4 * MIB));
}

#[test]
fn device_bytes_beyond_the_device_is_not_what_refuses() {
    let mut bench = lru(&[("device_bytes", "16MiB")]);
    let Err(AllocError::OutOfMemory(numbers)) = bench.try_alloc(9) else { panic!("too large") };
    assert_eq!(numbers.limit, None);
}

#[test]
fn what_a_capture_knows_stays_where_it_is() -> Result<(), AllocError> {
    let mut bench = lru(&[]);
    bench.it.notice(&mut bench.machine, Notice::CaptureBegin { stream: StreamId(0) })?;
    let graph = bench.written::<1>();
    bench.it.notice(&mut bench.machine, Notice::CaptureEnd { stream: StreamId(0) })?;
    bench.written::<4>();
    assert_eq!(bench.resident(graph), [true]);
    Ok(())
}

#[test]
fn the_policy_follows_what_the_works_look_like() {
    use super::adaptive::Adaptive;
    use super::foresight::Used;
    let mut adaptive = Adaptive::new(16);
    for slot in 0..8 {
        adaptive.born(slot, slot.into(), MIB);
    }
    let mut turn = |write| {
        for slot in 0..8 {
            adaptive.announced(&[Used { slot, write: false }, Used { slot: 7 - slot, write }]);
        }
        adaptive.recent_first()
    };
    let inference: Vec<bool> = (0..12).map(|_| turn(false)).collect();
    assert!(!inference[0] && inference[11], "buffers that live long are only read");
    let training: Vec<bool> = (0..12).map(|_| turn(true)).collect();
    assert!(!training[11], "they are written");
    let after: Vec<bool> = (0..24).map(|_| turn(false)).collect();
    assert!(!after[11] && after[23], "not at once again");
    let mut counters = Vec::new();
    adaptive.counters(&mut counters);
    let switches = counters.iter().find(|(name, _)| *name == "policy_switches");
    assert_eq!(switches, Some(&("policy_switches", 3)));
}
