//! The engine on a simulated device, with a strategy that hands every request to the driver, and one that caches by size.

use std::collections::BTreeMap;

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::device::SimMachine;
use vramlab_sim::driver::{Driver, DriverError, DriverExt};
use vramlab_sim::engine::{Locking, RunError, Setup, run};
use vramlab_sim::report::Report;
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{BufferUse, Nanos, Op, StreamId, op::NameId, op::TouchRange};

/// Keeps freed ranges by size and hands them out again without a thought for streams.
#[derive(Default)]
struct Careless {
    free: BTreeMap<u64, Vec<u64>>,
    live: BTreeMap<u64, u64>,
    usage: Usage,
}

impl Allocator for Careless {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let size = request.size.max(512);
        let address = match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(address) => address,
            None => match driver.malloc(size) {
                Ok(address) => {
                    self.usage.reserved += size;
                    address
                }
                Err(DriverError::OutOfMemory { asked, free }) => {
                    let (reserved, active) = (self.usage.reserved, self.usage.active);
                    let oom = OutOfMemory {
                        asked,
                        device_free: free,
                        reserved,
                        active,
                        largest_free: 0,
                        limit: None,
                    };
                    return Err(oom.into());
                }
                Err(error) => return Err(error.into()),
            },
        };
        self.live.insert(address, size);
        self.usage.allocated += size;
        self.usage.active += size;
        Ok(Placement { block: Block(address), address, size })
    }

    fn free(
        &mut self,
        _driver: &mut dyn Driver,
        block: Block,
        _stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        let size = self.live.remove(&block.0).ok_or(AllocError::UnknownBlock(block))?;
        self.free.entry(size).or_default().push(block.0);
        self.usage.allocated -= size;
        self.usage.active -= size;
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        if notice != Notice::EmptyCache {
            return Ok(Reply::Unsupported);
        }
        for (size, addresses) in std::mem::take(&mut self.free) {
            for address in addresses {
                driver.free(address)?;
                self.usage.reserved -= size;
            }
        }
        Ok(Reply::Done)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.usage
    }
}

fn replay(capacity_mib: u64, lines: &[&str]) -> Result<Report, RunError> {
    let text = lines.join("\n");
    let mut machine = SimMachine::of_capacity(capacity_mib << 20);
    let mut strategies: Vec<Box<dyn Allocator>> =
        vec![Box::new(Audit::new(Careless::default(), 256))];
    let mut source = JsonlSource::new(text.as_bytes(), "test");
    run(&mut source, Setup { keep_marks: true, ..Setup::new(&mut machine, &mut strategies) })
}

#[test]
fn figures_follow_the_ops() {
    let report = replay(
        64,
        &[
            r#"{"op":"alloc","id":1,"size":4194304}"#,
            r#"{"op":"alloc","id":2,"size":100}"#,
            r#"{"op":"mark","name":"both"}"#,
            r#"{"op":"free","id":1}"#,
            r#"{"op":"empty_cache"}"#,
        ],
    )
    .expect("runs");
    let figures = report.total;
    assert_eq!((figures.requested.peak, figures.requested.current), (4_194_404, 100));
    assert_eq!((figures.allocated.peak, figures.allocated.current), (4_194_816, 512));
    assert_eq!((figures.reserved.peak, figures.reserved.current), (4_194_816, 512));
    assert_eq!(figures.requested_at_peak_reserved, 4_194_404);
    assert_eq!(report.marks[0].figures.requested.current, 4_194_404);
    assert_eq!((report.ops, report.allocs, report.driver_calls.get("cudaMalloc")), (5, 2, 2));
}

fn two_devices(lines: &[&str]) -> Result<Report, RunError> {
    let text = lines.join("\n");
    let options = vramlab_sim::DeviceOptions::default();
    let mut machine = SimMachine::with_devices([options.clone(), options]);
    let mut strategies: Vec<Box<dyn Allocator>> =
        vec![Box::new(Careless::default()), Box::new(Careless::default())];
    let mut source = JsonlSource::new(text.as_bytes(), "test");
    run(&mut source, Setup::new(&mut machine, &mut strategies))
}

#[test]
fn peaks_of_several_devices_are_those_of_one_moment() {
    let report = two_devices(&[
        r#"{"op":"alloc","id":1,"size":3072}"#,
        r#"{"op":"alloc","id":2,"size":512,"device":1}"#,
        r#"{"op":"free","id":1}"#,
        r#"{"op":"empty_cache"}"#,
        r#"{"op":"alloc","id":3,"size":1024,"device":1}"#,
    ])
    .expect("runs");
    assert_eq!(report.total.live_floor(), 3584, "not 3072 + 1536");
    assert_eq!((report.total.reserved.peak, report.total.reserved.current), (3584, 1536));
    assert_eq!(report.total.allocated.peak, 3584);
    assert_eq!(report.devices[1].reserved.peak, 1536);
}

#[test]
fn an_op_on_a_buffer_of_another_device_is_named() {
    let alloc = r#"{"op":"alloc","id":7,"size":512,"device":1}"#;
    for (what, line) in [
        ("free", r#"{"op":"free","id":7}"#),
        ("record_stream", r#"{"op":"record_stream","id":7,"stream":2}"#),
        ("work", r#"{"op":"work","stream":0,"dur":1,"reads":[7]}"#),
        ("touch", r#"{"op":"touch","id":7}"#),
    ] {
        let error = two_devices(&[alloc, line]).expect_err(what).to_string();
        let want = format!("op 1: {what} on device 0 of buffer 7, which is on device 1");
        assert!(error.starts_with(&want), "{error}");
    }
}

/// A touch by the device is a use in its stream's order, as work is.
#[test]
fn touches_race_as_work_does() {
    let head = [
        r#"{"op":"alloc","id":1,"size":1048576}"#,
        r#"{"op":"work","stream":0,"dur":1,"writes":[1]}"#,
    ];
    let tail = [r#"{"op":"free","id":1}"#, r#"{"op":"alloc","id":2,"size":1048576}"#];
    for (used, races) in [
        (r#"{"op":"work","stream":1,"dur":1,"writes":[1]}"#, 1),
        (r#"{"op":"touch","id":1,"stream":1,"write":true}"#, 1),
        (r#"{"op":"touch","id":1,"stream":0,"write":true}"#, 0),
    ] {
        let lines = [&head[..], &[used], &tail[..]].concat();
        assert_eq!(replay(64, &lines).expect("runs").race_count, races, "{used}");
    }
}

/// Two host threads, each with one alloc of 100 ns; they share one lock, or have one for each stream.
#[test]
fn host_threads_queue_for_the_lock_of_their_pool() {
    let lines = [
        r#"{"op":"alloc","id":1,"size":512,"stream":1}"#,
        r#"{"op":"alloc","id":2,"size":512,"stream":2,"thread":1}"#,
        r#"{"op":"free","id":1}"#,
    ];
    let play = |lines: &[&str], locking| {
        let text = lines.join("\n");
        let mut machine = SimMachine::of_capacity(64 << 20);
        let mut strategies: Vec<Box<dyn Allocator>> = vec![Box::new(Careless::default())];
        let mut source = JsonlSource::new(text.as_bytes(), "test");
        let setup = Setup { host_ns: 100, locking, ..Setup::new(&mut machine, &mut strategies) };
        let report = run(&mut source, setup).expect("runs");
        (report.lock_ns.count, report.lock_total.0, report.time.0)
    };
    // the second thread comes at 0 and waits for 100 ns; the first comes back at 100 ns and waits for the second
    assert_eq!(play(&lines, Locking::Pool), (2, 200, 300));
    assert_eq!(play(&lines, Locking::Stream), (0, 0, 200));
    // the first thread took two locks before there was a second one, which waits for the older of them
    let later = [
        r#"{"op":"alloc","id":1,"size":512,"stream":1}"#,
        r#"{"op":"alloc","id":2,"size":512,"stream":2}"#,
        r#"{"op":"alloc","id":3,"size":512,"stream":1,"thread":1}"#,
    ];
    assert_eq!(play(&later, Locking::Stream), (1, 100, 200));
}

#[test]
fn the_clock_stops_at_its_end() {
    let last = r#"{"op":"alloc","id":1,"size":512,"t":18446744073709551615}"#;
    let text = [last, r#"{"op":"free","id":1}"#].join("\n");
    let mut machine = SimMachine::of_capacity(64 << 20);
    let mut strategies: Vec<Box<dyn Allocator>> = vec![Box::new(Careless::default())];
    let mut source = JsonlSource::new(text.as_bytes(), "test");
    let setup = Setup { host_ns: 100, ..Setup::new(&mut machine, &mut strategies) };
    assert_eq!(run(&mut source, setup).expect("runs").time.0, u64::MAX);
}

#[test]
fn out_of_memory_is_an_answer_and_the_run_goes_on() {
    let report = replay(
        4,
        &[
            r#"{"op":"alloc","id":1,"size":4194304}"#,
            r#"{"op":"alloc","id":2,"size":4194304}"#,
            r#"{"op":"record_stream","id":2,"stream":1}"#,
            r#"{"op":"free","id":2}"#,
            r#"{"op":"free","id":1}"#,
            r#"{"op":"alloc","id":2,"size":4194304}"#,
        ],
    )
    .expect("runs");
    assert_eq!((report.ooms, report.first_oom_op), (1, Some(1)));
    assert_eq!(report.total.requested.peak, 4 << 20, "what was served");
    assert_eq!(report.total.live_floor(), 8 << 20, "what would have had to be served at once");
    assert_eq!(report.total.demand.current, 4 << 20);
    let said = report.first_oom.expect("its words");
    assert!(said.contains("asked 4 MiB") && said.contains("0 B free"), "{said}");
}

/// The three variants of a real report: a buffer used on another stream and freed without a word.
#[test]
fn races_are_found_by_happens_before() {
    let alloc = r#"{"op":"alloc","id":1,"size":67108864}"#;
    let used = r#"{"op":"use","id":1,"stream":1,"dur":5000000}"#;
    let (free, again) = (r#"{"op":"free","id":1}"#, r#"{"op":"alloc","id":2,"size":67108864}"#);
    let missing = replay(1024, &[alloc, used, free, again]).expect("runs");
    assert_eq!(missing.race_count, 1);
    assert_eq!(
        (missing.races[0].earlier, missing.races[0].buffer, missing.races[0].earlier_stream),
        (1, 2, 1)
    );
    for ordered in [
        vec![alloc, used, r#"{"op":"sync","stream":1}"#, free, again],
        vec![
            alloc,
            used,
            r#"{"op":"event","event":7,"stream":1}"#,
            r#"{"op":"wait","event":7,"stream":0}"#,
            free,
            again,
        ],
        vec![alloc, used, free, r#"{"op":"empty_cache"}"#, again],
        vec![alloc, used, free, r#"{"op":"alloc","id":2,"size":67108864,"stream":1}"#],
    ] {
        assert_eq!(replay(1024, &ordered).expect("runs").race_count, 0, "{ordered:?}");
    }
}

/// A buffer that is placed well for its own stream but then used on a third one.
#[test]
fn races_of_later_uses_on_other_streams_are_found() {
    let report = replay(
        1024,
        &[
            r#"{"op":"alloc","id":1,"size":512,"stream":1}"#,
            r#"{"op":"use","id":1,"stream":1,"dur":10}"#,
            r#"{"op":"free","id":1}"#,
            r#"{"op":"alloc","id":2,"size":512,"stream":1}"#,
            r#"{"op":"use","id":2,"stream":2,"dur":10}"#,
        ],
    )
    .expect("runs");
    assert_eq!((report.race_count, report.races[0].stream), (1, 2));
}

#[test]
fn deferred_frees_are_held_back_for_a_strategy_that_does_not_know_them() {
    let report = replay(
        4,
        &[
            r#"{"op":"alloc","id":1,"size":4194304}"#,
            r#"{"op":"free","id":1,"deferred":true}"#,
            r#"{"op":"alloc","id":2,"size":4194304}"#,
            r#"{"op":"free_completed","id":1}"#,
            r#"{"op":"alloc","id":3,"size":4194304}"#,
        ],
    )
    .expect("runs");
    assert_eq!((report.ooms, report.first_oom_op), (1, Some(2)));
    assert_eq!(report.unsupported, [], "holding back is no skipped op");
}

#[test]
fn devices_that_do_not_exist_end_the_run() {
    let error =
        replay(4, &[r#"{"op":"alloc","id":1,"size":1,"device":3}"#]).expect_err("no device 3");
    assert_eq!(error.to_string(), "op 0: device 3 does not exist; this run has 1");
}

/// Asks for more than there is, for ever.
struct Stubborn;

impl Source for Stubborn {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        Ok(Step::Op(Op::Trim { keep: 0 }))
    }
    fn uses(&self) -> &[BufferUse] {
        &[]
    }
    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }
    fn text(&self, _name: NameId) -> &str {
        ""
    }
    fn name(&self, _id: vramlab_sim::BufferId) -> u64 {
        0
    }
    fn independent(&self) -> bool {
        false
    }
    fn gaps(&self) -> u64 {
        0
    }
}

#[test]
fn a_server_that_gets_nowhere_is_a_livelock() {
    let mut machine = SimMachine::of_capacity(1 << 21);
    let mut strategies: Vec<Box<dyn Allocator>> = vec![Box::new(Careless::default())];
    let error = run(&mut Stubborn, Setup::new(&mut machine, &mut strategies)).expect_err("stuck");
    assert!(matches!(error, RunError::Livelock { .. }), "{error}");
}

/// Hands the same range out twice.
struct Broken(Careless);

impl Allocator for Broken {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let placement = self.0.alloc(driver, request)?;
        let first = self.0.live.keys().next().copied().unwrap_or(placement.address);
        Ok(Placement { address: first, ..placement })
    }
    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.0.free(driver, block, stream)
    }
    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.0.notice(driver, notice)
    }
    vramlab_sim::unaware_of_work!();
    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

#[test]
fn the_audit_ends_a_run_in_which_two_buffers_share_bytes() {
    let text = "{\"op\":\"alloc\",\"id\":1,\"size\":512}\n{\"op\":\"alloc\",\"id\":2,\"size\":512}";
    let mut machine = SimMachine::of_capacity(1 << 30);
    let mut strategies: Vec<Box<dyn Allocator>> =
        vec![Box::new(Audit::new(Broken(Careless::default()), 256))];
    let mut source = JsonlSource::new(text.as_bytes(), "test");
    let error =
        run(&mut source, Setup::new(&mut machine, &mut strategies)).expect_err("shared bytes");
    let said = error.to_string();
    assert!(
        said.starts_with("driver_error at op 1 (alloc)")
            && said.contains("shares bytes with live block"),
        "{said}"
    );
}
