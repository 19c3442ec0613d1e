//! `cuda.managed`: every request is a `cudaMallocManaged`, whose pages move between host and device on faults.
//!
//! Not checked against the real one yet: what a page fault moves, what is evicted and what it costs is below the seam, in the simulated device
//! (`sim/src/device/managed.rs`, with its table of rules).
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `direct` | a request is a range of its own; what it reserves are the bytes asked for, wherever the pages are | CUDA runtime API, `cudaMallocManaged` |
//! | `oversubscribe` | a device does not refuse what is larger than itself: its pages leave again | CUDA programming guide, unified memory |
//! | `free_waits` | `cudaFree` waits for the device, as for any other range | CUDA runtime API |
//! | `advise` | advice on the whole range, given when it is made (option) | CUDA runtime API, `cudaMemAdvise` |
//! | `prefetch` | what work uses is prefetched to the device in the work's stream, before it (option) | CUDA runtime API, `cudaMemPrefetchAsync` |
//! | `null`, `too_large` | as `cuda.malloc`; what the host has no room for is out of memory | CUDA runtime API |
//!
//! Where work lists its buffers, the run touches them page by page; where it does not, nothing is touched and nothing moves. Faults, bytes
//! moved and bytes evicted are in the report's section on managed memory.

use vramlab_sim::allocator::{
    AllocError, Allocator, Block, Notice, Placement, Reply, Request, Usage, Use,
};
use vramlab_sim::driver::{Advice, Driver, DriverExt, Place};
use vramlab_sim::machine::Memory;
use vramlab_sim::units::StreamId;

use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::direct::Direct;
use crate::registry::{Made, Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "cuda.managed",
    new,
    Status::Rules("CUDA runtime API 13"),
    &[
        OptionDoc {
            name: ADVISE,
            default: "none",
            help: "advice on each range: none, preferred_device, preferred_host, read_mostly, or accessed_by (the device)",
        },
        OptionDoc {
            name: PREFETCH,
            default: "false",
            help: "prefetch what work uses to the device before it (true or false)",
        },
    ],
    "unified memory: cudaMallocManaged, pages that move on faults",
)
.memory(Memory::Managed);

const ADVISE: &str = "advise";
const PREFETCH: &str = "prefetch";

/// Values of `advise`.
const ADVICE: [(&str, Option<Advice>); 5] = [
    ("none", None),
    ("preferred_device", Some(Advice::Preferred(Some(Place::Device)))),
    ("preferred_host", Some(Advice::Preferred(Some(Place::Host)))),
    ("read_mostly", Some(Advice::ReadMostly(true))),
    ("accessed_by", Some(Advice::AccessedBy(Place::Device, true))),
];

/// Managed ranges on one device.
#[derive(Debug)]
struct Managed {
    direct: Direct,
    advice: Option<Advice>,
    prefetch: bool,
}

fn new(options: &Options) -> Made {
    options.check(STRATEGY.name, STRATEGY.options)?;
    let asked = options.get(ADVISE).unwrap_or("none");
    let Some((_, advice)) = ADVICE.into_iter().find(|(name, _)| *name == asked) else {
        let names = ADVICE.map(|(name, _)| name).join(", ");
        return Err(OptionError(format!("option {ADVISE}={asked}: expected one of {names}")));
    };
    Ok(Box::new(Managed {
        direct: Direct::of("managed", |driver, size| driver.malloc_managed(size)),
        advice,
        prefetch: options.flag(PREFETCH, false)?,
    }))
}

impl Allocator for Managed {
    fn alloc(
        &mut self,
        driver: &mut dyn Driver,
        request: &Request,
    ) -> Result<Placement, AllocError> {
        let placement = self.direct.alloc(driver, request)?;
        if let Some(advice) = self.advice.filter(|_| placement.size > 0)
            && let Err(error) = driver.advise(placement.address, placement.size, advice)
        {
            self.direct.free(driver, placement.block, None)?;
            return Err(error.into());
        }
        Ok(placement)
    }

    fn free(
        &mut self,
        driver: &mut dyn Driver,
        block: Block,
        stream: Option<StreamId>,
    ) -> Result<(), AllocError> {
        self.direct.free(driver, block, stream)
    }

    fn notice(&mut self, driver: &mut dyn Driver, notice: Notice<'_>) -> Result<Reply, AllocError> {
        self.direct.notice(driver, notice)
    }

    fn before_work(
        &mut self,
        driver: &mut dyn Driver,
        stream: StreamId,
        uses: &mut [Use],
    ) -> Result<(), AllocError> {
        if self.prefetch {
            for used in uses.iter().filter(|used| used.size > 0) {
                driver.prefetch(used.address, used.size, Place::Device, stream)?;
            }
        }
        Ok(())
    }

    fn after_work(
        &mut self,
        _driver: &mut dyn Driver,
        _stream: StreamId,
        _uses: &[Use],
    ) -> Result<(), AllocError> {
        Ok(())
    }

    fn usage(&self) -> Usage {
        self.direct.usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::device::SimMachine;
    use vramlab_sim::engine::{Setup, run};
    use vramlab_sim::machine::Machine;
    use vramlab_sim::report::Report;
    use vramlab_sim::testing::ScriptedMachine;
    use vramlab_sim::trace::JsonlSource;

    const MIB: u64 = 1 << 20;

    type Tested = Result<(), AllocError>;

    fn with(pairs: &[(&str, &str)]) -> Box<dyn Allocator> {
        new(&Options::from_pairs(pairs.iter().copied())).expect("good options")
    }

    fn calls(machine: &mut ScriptedMachine) -> Vec<&'static str> {
        machine.drain_log().map(|row| row.call).collect()
    }

    /// Two steps over three buffers of 40 MiB, on a device of `mib` MiB.
    fn steps(mib: u64, pairs: &[(&str, &str)]) -> Report {
        let mut text = String::new();
        for id in 0..3 {
            text += &format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":{}}}\n", 40 * MIB);
        }
        for id in [0, 1, 2, 0, 1, 2] {
            text += &format!("{{\"op\":\"work\",\"stream\":1,\"dur\":5,\"writes\":[{id}]}}\n");
        }
        let mut machine = SimMachine::of_capacity(mib * MIB);
        let mut strategies = vec![with(pairs)];
        let setup = Setup { memory: Memory::Managed, ..Setup::new(&mut machine, &mut strategies) };
        run(&mut JsonlSource::new(text.as_bytes(), "steps"), setup).expect("runs")
    }

    #[test]
    fn direct_makes_a_range_for_each_request_and_free_waits() -> Tested {
        let (mut cuda, mut machine) = (with(&[]), ScriptedMachine::of_capacity(1 << 30));
        let request = Request { size: 1000, stream: StreamId(3), ordinal: 0 };
        let a = cuda.alloc(&mut machine, &request)?;
        assert_eq!((a.size, cuda.usage().reserved, machine.held().managed), (1000, 1000, 1000));
        cuda.free(&mut machine, a.block, None)?;
        assert_eq!(calls(&mut machine), ["cudaMallocManaged", "cudaFree"]);
        assert_eq!(cuda.usage(), Usage::default());
        Ok(())
    }

    #[test]
    fn oversubscribe_runs_and_shows_its_thrash() {
        let fits = steps(128, &[]).driver_work.managed;
        assert_eq!((fits.faults, fits.evicted_blocks), (3 * 40 * MIB / (64 << 10), 0));
        let report = steps(100, &[]);
        let thrashes = report.driver_work.managed;
        assert_eq!((report.ooms, report.total.reserved.peak), (0, 120 * MIB));
        assert!(report.total.device_used.peak <= 100 * MIB);
        assert!(thrashes.evicted_blocks > 0 && thrashes.bytes_refaulted > 0);
    }

    #[test]
    fn advise_is_given_when_a_range_is_made() -> Tested {
        let request = Request { size: 1000, stream: StreamId(3), ordinal: 0 };
        for (name, advice) in ADVICE {
            let mut cuda = with(&[("advise", name)]);
            let mut machine = ScriptedMachine::of_capacity(1 << 30);
            cuda.alloc(&mut machine, &request)?;
            let advised = calls(&mut machine).contains(&"cudaMemAdvise");
            assert_eq!(advised, advice.is_some(), "{name}");
        }
        let bad = new(&Options::from_pairs([("advise", "x")])).err().expect("refused").0;
        assert!(bad.contains("advise=x") && bad.contains("read_mostly"), "{bad}");
        let over_the_link = steps(100, &[("advise", "preferred_host")]).driver_work.managed;
        assert_eq!((over_the_link.evicted_blocks, over_the_link.bytes_remote), (0, 240 * MIB));
        Ok(())
    }

    #[test]
    fn advise_that_fails_gives_the_range_back() -> Tested {
        let request = Request { size: 1000, stream: StreamId(3), ordinal: 0 };
        let mut cuda = with(&[("advise", "read_mostly")]);
        let mut machine = ScriptedMachine::of_capacity(1 << 30);
        let error = vramlab_sim::DriverError::Failed { call: "cudaMemAdvise", what: "no".into() };
        machine.fail_on("cudaMemAdvise", 0, error.clone());
        assert_eq!(cuda.alloc(&mut machine, &request), Err(AllocError::Driver(error)));
        assert_eq!((cuda.usage().reserved, machine.held().managed), (0, 0));
        cuda.alloc(&mut machine, &request).map(drop)
    }

    #[test]
    fn prefetch_comes_before_the_work_and_leaves_no_fault() {
        let managed = steps(128, &[("prefetch", "true")]).driver_work.managed;
        assert_eq!((managed.faults, managed.evicted_blocks), (0, 0));
        let managed = steps(100, &[("prefetch", "true")]).driver_work.managed;
        assert_eq!(managed.faults, 0);
        assert!(managed.bytes_prefetched > 0 && managed.evicted_blocks > 0);
    }

    #[test]
    fn too_large_is_what_the_host_has_no_room_for() -> Tested {
        let (mut cuda, mut machine) = (with(&[]), SimMachine::of_capacity(MIB));
        let mut ask =
            |size| cuda.alloc(&mut machine, &Request { size, stream: StreamId(0), ordinal: 0 });
        assert!(matches!(ask(u64::MAX), Err(AllocError::OutOfMemory(_))));
        assert_eq!(ask(0)?.address, 0);
        ask(1 << 40).map(drop)
    }
}
