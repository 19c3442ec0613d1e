//! A realloc is timed, locked, watched and counted like the request and the free that it stands for.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request, Usage,
};
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::report::Report;
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::{Setup, SimMachine, StreamId, run};

/// Cuts blocks off one malloc of 1 MiB and never uses a byte twice, but moves a block back and forth between its two ends.
#[derive(Default)]
struct Ends {
    begin: u64,
    moved: bool,
    size: u64,
}

const ROOM: u64 = 1 << 20;

impl Ends {
    fn place(&mut self, driver: &mut dyn Driver, size: u64) -> Result<Placement, AllocError> {
        if self.begin == 0 {
            self.begin = driver.malloc(ROOM)?;
        }
        if size > ROOM / 2 {
            let oom = OutOfMemory {
                asked: size,
                device_free: 0,
                reserved: ROOM,
                active: self.size,
                largest_free: ROOM / 2,
                limit: Some(ROOM),
            };
            return Err(oom.into());
        }
        self.size = size;
        let address = self.begin + if self.moved { ROOM / 2 } else { 0 };
        Ok(Placement { block: Block(1), address, size })
    }
}

impl Allocator for Ends {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.place(driver, request.size)
    }

    fn free(
        &mut self,
        _: &mut dyn Driver,
        _: Block,
        _: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.size = 0;
        Ok(())
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        let Notice::Resize { size, .. } = notice else { return Ok(Reply::Unsupported) };
        let placement = self.place(driver, size)?;
        self.moved = !self.moved;
        let address = self.begin + if self.moved { ROOM / 2 } else { 0 };
        Ok(Reply::Placed(Placement { address, ..placement }))
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        let reserved = if self.begin == 0 { 0 } else { ROOM };
        Usage { allocated: self.size, active: self.size, reserved }
    }
}

fn replay(lines: &[&str]) -> Report {
    let text = lines.join("\n");
    let mut machine = SimMachine::of_capacity(64 << 20);
    let mut strategies: Vec<Box<dyn Allocator>> = vec![Box::new(Ends::default())];
    let mut source = JsonlSource::new(text.as_bytes(), "test");
    let setup = Setup { host_ns: 100, ..Setup::new(&mut machine, &mut strategies) };
    run(&mut source, setup).expect("runs")
}

const ALLOC: &str = r#"{"op":"alloc","id":1,"size":1000}"#;
const FREE: &str = r#"{"op":"free","id":1}"#;

#[test]
fn a_refused_realloc_is_demand_until_the_buffer_is_freed() {
    let more = r#"{"op":"realloc","id":1,"size":9000000}"#;
    let report = replay(&[ALLOC, more, more]);
    assert_eq!((report.ooms, report.total.live_floor()), (2, 9_000_000));
    assert_eq!((report.total.demand.current, report.total.requested.current), (9_000_000, 1000));
    let report = replay(&[ALLOC, more, FREE]);
    assert_eq!((report.total.demand.current, report.total.requested.current), (0, 0));
    let report = replay(&[ALLOC, more, r#"{"op":"realloc","id":1,"size":2000}"#]);
    assert_eq!((report.total.demand.current, report.total.requested.current), (2000, 2000));
}

/// The floor may not depend on what a strategy can do.
#[test]
fn a_realloc_that_nobody_answers_is_demand_too() {
    let more = r#"{"op":"realloc","id":1,"size":9000000}"#;
    let refused = r#"{"op":"alloc","id":1,"size":8000000}"#;
    let report = replay(&[refused, more, FREE]);
    assert_eq!((report.total.live_floor(), report.total.demand.current), (9_000_000, 0));
    let text = [ALLOC, more, FREE].join("\n");
    let mut machine = SimMachine::of_capacity(64 << 20);
    let mut strategies: Vec<Box<dyn Allocator>> = vec![Box::new(OnlyAllocs(Ends::default()))];
    let setup = Setup::new(&mut machine, &mut strategies);
    let report = run(&mut JsonlSource::new(text.as_bytes(), "test"), setup).expect("runs");
    assert_eq!(report.unsupported, [("realloc", 1)]);
    assert_eq!((report.total.live_floor(), report.total.demand.current), (9_000_000, 0));
}

/// [`Ends`] that knows no notice.
struct OnlyAllocs(Ends);

impl Allocator for OnlyAllocs {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        self.0.alloc(driver, request)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.0.free(driver, block, stream)
    }

    fn notice(&mut self, _: &mut dyn Driver, _: Notice<'_>) -> Result<Reply, AllocError> {
        Ok(Reply::Unsupported)
    }

    vramlab_sim::unaware_of_work!();

    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

#[test]
fn a_realloc_waits_for_the_lock_of_its_pool() {
    let report = replay(&[
        ALLOC,
        r#"{"op":"realloc","id":1,"size":2000,"thread":1}"#,
        r#"{"op":"free","id":1,"thread":2}"#,
    ]);
    // the second thread comes at 0 and waits for 100 ns, the third for 200
    assert_eq!((report.lock_ns.count, report.lock_total.0, report.time.0), (2, 300, 300));
}

#[test]
fn a_realloc_that_moves_watches_the_bytes_it_leaves_and_those_it_finds() {
    let work = |stream: u32| format!(r#"{{"op":"work","stream":{stream},"dur":9,"writes":[1]}}"#);
    let grow = r#"{"op":"realloc","id":1,"size":2000}"#;
    let report = replay(&[ALLOC, &work(0), &work(1), grow, grow, &work(0)]);
    assert_eq!(report.race_count, 1, "back where stream 1 still writes");
    let synced = r#"{"op":"sync"}"#;
    assert_eq!(replay(&[ALLOC, &work(0), &work(1), grow, synced, grow, &work(0)]).race_count, 0);
}
