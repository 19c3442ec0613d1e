//! Two-stream prefetching and the page-reading service through the caching allocator against recorded runs of the real thing.
//!
//! Witness: `traces/pytorch_recorded/NAME.json`: peaks as PyTorch 2.15 reported them. Tolerance: 3 % of peak allocated, 5 % of peak reserved (6 %
//! where events lag).

mod lagging;
#[path = "../../workloads/tests/set_ups/mod.rs"]
mod set_ups;
mod shared;

use std::collections::BTreeMap;

use lagging::Lagging;
use serde_json::Value;
use vramlab_allocators::Spec;
use vramlab_allocators::registry::build;
use vramlab_sim::SimMachine;
use vramlab_sim::device::profile::device;
use vramlab_sim::engine::{Setup, run};
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::report::{Answers, Report};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, StreamId};
use vramlab_workloads::synthetic::ocr::{OnOom, Service};

const ALLOCATED: f64 = 0.03;
const RESERVED: f64 = 0.05;
/// Where events complete so many launches later: ours are not one for one those that were recorded.
const RESERVED_LAGGING: f64 = 0.06;

#[test]
fn recorded_streams() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let (mut at_once, mut lagging) = (Checks::default(), Checks::default());
    for (name, file) in set_ups::recordings(&folder) {
        let Some(mut player) = set_ups::prefetch(&file) else { continue };
        let peaks = ["max_memory_allocated", "max_memory_reserved"].map(|key| file[key].as_u64());
        let lag = file["device"]["event_lag_launches"].as_u64();
        let checks = if lag == Some(0) { &mut at_once } else { &mut lagging };
        checks.check(&name, &run_caching(&mut player, &file), peaks);
    }
    at_once.end("recorded_streams, events at once", RESERVED);
    lagging.end("recorded_streams, events that lag", RESERVED_LAGGING);
}

/// Recordings that never empty the cache, up to the last page whose end they name.
#[test]
fn recorded_pages() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let mut checks = Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        let plain = ["ballast_gib", "empty_cache_every"].map(|key| file[key].as_f64());
        if file["page_h_w_lines"].is_null() || plain != [Some(0.0); 2] {
            continue;
        }
        let pages = set_ups::Pages::of(&folder.join(format!("{name}.pickle.gz")), &file);
        let Some(mut service) = set_ups::ocr(&file, &pages.inputs, OnOom::Ignore) else { continue };
        let last = file["phases"].as_array().and_then(|phases| phases.last()).expect("a phase");
        let figures = ["peak_so_far", "reserved"].map(|key| last[key].as_u64());
        checks.check(&name, &run_caching(&mut service, &file), figures);
    }
    checks.end("recorded_pages", RESERVED);
}

/// Recordings in which a ballast leaves little room: pages that are refused memory are given up, as many as were recorded, and refusals, too.
#[test]
fn recorded_pages_under_pressure() {
    let Some(folder) = shared::folder("traces/pytorch_recorded") else { return };
    let mut checks = Checks::default();
    for (name, file) in set_ups::recordings(&folder) {
        let Some(ballast) = file["ballast_gib"].as_f64().filter(|gib| *gib > 0.0) else { continue };
        let pages = set_ups::Pages::of(&folder.join(format!("{name}.pickle.gz")), &file);
        let Some(service) = set_ups::ocr(&file, &pages.inputs, OnOom::Shed) else { continue };
        let bytes = (ballast * f64::from(1 << 30)) as u64;
        let mut loaded = Loaded { service, ballast: Some(bytes), held_back: None };
        let report = run_caching(&mut loaded, &file);
        let answers = report.answers.expect("a service");
        let [failed, refused] = ["requests_failed_oom", "num_ooms"].map(|key| file[key].as_u64());
        eprintln!("{name}: {answers:?}, {} refusals", report.ooms);
        assert_eq!((Some(answers.shed), Some(report.ooms)), (failed, refused), "{name}");
        let peaks = ["max_memory_allocated", "max_memory_reserved"].map(|key| file[key].as_u64());
        checks.check(&name, &report, peaks);
    }
    checks.end("recorded_pages_under_pressure", RESERVED);
}

/// A buffer that no buffer of the service's has the number of.
const BALLAST: BufferId = BufferId(1 << 18);

/// A service beside which, once its models are there, a buffer is held for good.
struct Loaded {
    service: Service,
    /// Its size (B), until it is asked for.
    ballast: Option<u64>,
    /// What the service does next, meanwhile.
    held_back: Option<Step>,
}

impl Source for Loaded {
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError> {
        if let Some(step) = self.held_back.take() {
            return Ok(step);
        }
        let step = self.service.next(now, last)?;
        let begins = matches!(step, Step::Op(Op::Request { .. }));
        let Some(size) = self.ballast.take_if(|_| begins) else { return Ok(step) };
        self.held_back = Some(step);
        let (stream, site) = (StreamId(0), NameId(0));
        Ok(Step::Op(Op::Alloc { id: BALLAST, stream, site, size }))
    }

    fn uses(&self) -> &[BufferUse] {
        self.service.uses()
    }

    fn touch(&self) -> TouchRange {
        self.service.touch()
    }

    fn text(&self, name: NameId) -> &str {
        self.service.text(name)
    }

    fn name(&self, id: BufferId) -> u64 {
        self.service.name(id)
    }

    fn answers(&self) -> Option<Answers> {
        self.service.answers()
    }

    fn independent(&self) -> bool {
        false
    }

    fn gaps(&self) -> u64 {
        0
    }
}

#[derive(Default)]
struct Checks {
    found: u64,
    worst: [f64; 2],
}

impl Checks {
    /// Peak allocated and peak reserved against the recorded ones, where these say something.
    fn check(&mut self, name: &str, report: &Report, recorded: [Option<u64>; 2]) {
        self.found += 1;
        let figures = &report.devices[0];
        let ours = [figures.allocated.peak, figures.reserved.peak];
        for (i, what) in ["allocated", "reserved"].into_iter().enumerate() {
            let Some(recorded) = recorded[i] else { continue };
            let deviation = ours[i] as f64 / recorded as f64 - 1.0;
            self.worst[i] = self.worst[i].max(deviation.abs());
            let percent = 100.0 * deviation;
            eprintln!("{name}: peak {what} {} B, recorded {recorded} B, {percent:+.3} %", ours[i]);
        }
    }

    fn end(&self, test: &str, reserved_most: f64) {
        let [allocated, reserved] = self.worst;
        println!(
            "{test}: {} set-ups, allocated within {:.3} %, reserved within {:.3} %",
            self.found,
            100.0 * allocated,
            100.0 * reserved
        );
        assert!(self.found > 0, "no set-up could be expressed");
        assert!(allocated <= ALLOCATED && reserved <= reserved_most, "a peak deviates by more");
    }
}

/// A run through `torch.caching` on the device that the recording states.
fn run_caching(source: &mut dyn Source, file: &Value) -> Report {
    let stated = &file["device"];
    let number = |key: &str| stated[key].as_u64().expect("a number");
    let mut options = device("a100-80gb").expect("a built-in device").options;
    options.capacity = number("capacity_bytes");
    options.context = number("context_bytes");
    // where events complete launches later, blocks wait in a way that time does not decide
    let lag = number("event_lag_launches");
    let inner = SimMachine::with_devices([options]);
    let mut machine = Lagging { inner, lag, launches: 0, recorded: BTreeMap::new() };
    let spec: Spec = "torch.caching".parse().expect("a spec");
    let mut strategies = vec![build(&spec).expect("a strategy")];
    run(source, Setup::new(&mut machine, &mut strategies)).expect("it runs to its end")
}
