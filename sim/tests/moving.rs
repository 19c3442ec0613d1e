//! The engine and the audit around a strategy that moves buffers when work is announced.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, OutOfMemory, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::audit::Audit;
use vramlab_sim::device::SimMachine;
use vramlab_sim::driver::{Driver, DriverExt};
use vramlab_sim::engine::{RunError, Setup, run};
use vramlab_sim::report::Report;
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::StreamId;

const MIB: u64 = 1 << 20;

/// Buffers lie in host memory; what work uses is brought to one place on the device each, from the first on.
struct Mover {
    /// Places on the device, of 1 MiB each.
    places: Vec<u64>,
    count: usize,
    /// Every use is told the first place.
    lies: bool,
    live: u64,
    reserved: u64,
}

impl Mover {
    fn new(count: usize, lies: bool) -> Self {
        Self { places: Vec::new(), count, lies, live: 0, reserved: 0 }
    }
}

impl Allocator for Mover {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        if self.places.is_empty() {
            for _ in 0..self.count {
                self.places.push(driver.malloc(MIB)?);
                self.reserved += MIB;
            }
        }
        let address = driver.malloc_host(request.size, true)?;
        self.live += 1;
        Ok(Placement { block: Block(address), address, size: request.size })
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        _: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.live -= 1;
        Ok(driver.free_host(block.0)?)
    }

    fn notice(&mut self, _: &mut dyn Driver, _: Notice<'_>) -> Result<Reply, AllocError> {
        Ok(Reply::Unsupported)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        _: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        if uses.len() > self.places.len() {
            let (reserved, device_free) = (self.reserved, driver.mem_info()?.0);
            return Err(AllocError::from(OutOfMemory {
                asked: uses.len() as u64 * MIB,
                device_free,
                reserved,
                active: 0,
                largest_free: reserved,
                limit: None,
            }));
        }
        for (used, place) in uses.iter_mut().zip(&self.places) {
            used.address = if self.lies { self.places[0] } else { *place };
        }
        Ok(())
    }

    fn after_work(&mut self, _: &mut dyn Driver, _: StreamId, _: &[Use]) -> Result<(), AllocError> {
        Ok(())
    }

    fn usage(&self) -> Usage {
        let bytes = self.reserved; // the places are handed out, whoever is there
        Usage { allocated: bytes, active: bytes, reserved: bytes }
    }
}

fn replay(mover: Mover, lines: &[&str]) -> Result<Report, RunError> {
    let mut machine = SimMachine::of_capacity(64 * MIB);
    let mut strategies: Vec<Box<dyn Allocator>> = vec![Box::new(Audit::of_mover(mover, 256))];
    let text = lines.join("\n");
    let mut source = JsonlSource::new(text.as_bytes(), "moving");
    run(&mut source, Setup::new(&mut machine, &mut strategies))
}

const THREE: [&str; 3] = [
    r#"{"op":"alloc","id":1,"size":1000}"#,
    r#"{"op":"alloc","id":2,"size":2000}"#,
    r#"{"op":"alloc","id":3,"size":3000}"#,
];

#[test]
fn work_that_cannot_be_resident_is_refused_and_the_run_goes_on() {
    let mut lines = THREE.to_vec();
    lines.push(r#"{"op":"work","stream":0,"dur":5,"reads":[1,2]}"#);
    lines.push(r#"{"op":"work","stream":0,"dur":5,"reads":[1,2,3]}"#);
    lines.push(r#"{"op":"work","stream":0,"dur":5,"reads":[3],"writes":[1]}"#);
    lines.extend([r#"{"op":"free","id":2}"#, r#"{"op":"sync"}"#]);
    let report = replay(Mover::new(2, false), &lines).expect("out of memory is an answer");
    assert_eq!((report.ooms, report.first_oom_op, report.ops), (1, Some(4), 8));
    assert!(report.first_oom.is_some_and(|text| text.contains("3 MiB")));
    assert_eq!((report.time.0, report.race_count), (10, 0), "two works of 5 ns");
}

#[test]
fn a_touch_by_the_device_is_announced_as_work_is() {
    let mut lines = THREE.to_vec();
    lines.push(r#"{"op":"touch","id":3,"by":"device"}"#);
    replay(Mover::new(1, false), &lines).expect("it is on the device then");
    let refused = replay(Mover::new(0, false), &lines).expect("out of memory is an answer");
    assert_eq!(refused.ooms, 1);
}

#[test]
fn the_audit_of_a_mover_holds_the_announced_places_to_their_promises() {
    let mut lines = THREE.to_vec();
    lines.push(r#"{"op":"work","stream":0,"dur":5,"reads":[1]}"#);
    lines.push(r#"{"op":"work","stream":0,"dur":5,"reads":[2]}"#); // where 1 was
    replay(Mover::new(2, true), &lines).expect("one at a time");
    lines.push(r#"{"op":"work","stream":0,"dur":5,"reads":[1,3]}"#);
    let error = replay(Mover::new(2, true), &lines).expect_err("both at one place").to_string();
    assert!(error.contains("shares bytes"), "{error}");
}
