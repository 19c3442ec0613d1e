//! One run: an input, a strategy, a device.

use std::path::Path;

use vramlab_allocators::fit::{About, Fit, FitError, Instances, fit};
use vramlab_allocators::{Spec, find};
use vramlab_sim::device::SimMachine;
use vramlab_sim::engine::{Observer, RunError, Setup, run};
use vramlab_sim::report::Report;
use vramlab_sim::source::Source;
use vramlab_sim::units::Bytes;

use crate::failure::Failure;
use crate::inputs::small_text;
use crate::row::Row;
use crate::statistics::WarmUp;

pub use vramlab_sim::device::profile::{self, Profile};

/// Largest capacity that makes sense: addresses beyond it do not fit beside each other in 64 bits.
pub const CAPACITY_MAX: u64 = 1 << 50;

fn check_capacity(capacity: u64) -> Result<(), Failure> {
    if capacity <= CAPACITY_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "capacity {capacity} is over {}; give --capacity the bytes of a device",
        Bytes(CAPACITY_MAX)
    )))
}

/// Most bytes of a device's file: the built-in ones have some 4 KiB.
const DEVICE_FILE_MAX: Bytes = Bytes::mib(1);

/// Device and cost table of a replay unless another is named.
const RECORDING_DEVICE: &str = "generic";

/// Said where a strategy that is no cache has sequences.
const IN_BUFFERS: &str =
    "each sequence is a buffer that doubles when it is outgrown (serving.contiguous_pow2)";

/// Makes a fresh source of the same ops.
pub type MakeSource<'a> = dyn Fn() -> Result<Box<dyn Source + 'a>, Failure> + Sync + 'a;

/// Says where the n-th op of an input stands.
pub type PlaceOf<'a> = dyn Fn(u64) -> Option<String> + Sync + 'a;

/// The frames of a stack by the number of its site, innermost first, each as file and function; empty where a site is no stack.
pub type FramesOf<'a> = dyn Fn(u32) -> Vec<String> + Sync + 'a;

/// What becomes of the times in an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Ops come one right after the other.
    #[default]
    None,
    /// A recording's own times: its gaps contain the recorded run's driver stalls.
    Recorded,
    /// The times are part of the workload.
    AsGiven,
}

impl Times {
    /// As rows say it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Recorded => "recorded",
            Self::AsGiven => "as given",
        }
    }
}

/// An input that can be run again and again.
pub struct Input<'a> {
    /// As it is printed.
    pub name: String,
    /// As messages name it: the whole path of a file.
    pub origin: String,
    /// Seed, where there is one.
    pub seed: Option<u64>,
    /// How many devices its ops name.
    pub devices: usize,
    /// Carries uses of buffers by work.
    pub accesses: bool,
    /// It is known to ask for slots of sequences.
    pub sequences: bool,
    /// What becomes of its times.
    pub times: Times,
    /// What of its requests is left out as warm-up where a steady state is looked for.
    pub warm_up: WarmUp,
    /// What its times rest on, where that is not measured.
    pub assumes: Option<&'static str>,
    /// Fresh source.
    pub make: Box<MakeSource<'a>>,
    /// Its first requests are for what was live before a recording began: so many.
    pub live_at_start: usize,
    /// Where an op stands, for messages, if the input can tell.
    pub place: Option<Box<PlaceOf<'a>>>,
    /// The whole stacks behind its sites, if it has stacks.
    pub frames: Option<Box<FramesOf<'a>>>,
}

impl<'a> Input<'a> {
    /// An input of one device, without uses, seed or times.
    pub fn new(name: impl Into<String>, make: Box<MakeSource<'a>>) -> Self {
        let name = name.into();
        Self {
            origin: name.clone(),
            name,
            seed: None,
            devices: 1,
            accesses: false,
            sequences: false,
            times: Times::None,
            warm_up: WarmUp::default(),
            assumes: None,
            make,
            live_at_start: 0,
            place: None,
            frames: None,
        }
    }

    /// A run of it found it bad.
    fn bad(&self, error: &RunError) -> Failure {
        let at = match error {
            RunError::Source(error) => return Failure::input(error), // names its place itself
            RunError::NotLive { op, .. }
            | RunError::TwiceLive { op, .. }
            | RunError::OtherDevice { op, .. }
            | RunError::NoDevice { op, .. } => self.place.as_ref().and_then(|place| place(*op)),
            _ => None,
        };
        let at = at.map_or_else(|| self.origin.clone(), |at| format!("{}: {at}", self.origin));
        Failure::input(format!("{at}: {error}"))
    }
}

/// Where it runs.
#[derive(Clone)]
pub struct Place {
    /// Device and cost table.
    pub profile: Profile,
    /// Bytes of the device, if not the profile's own.
    pub capacity: Option<u64>,
    /// Search for the least capacity too.
    pub min_capacity: bool,
}

impl Place {
    /// Bytes of the device.
    pub fn capacity(&self) -> u64 {
        self.capacity.unwrap_or(self.profile.options.capacity)
    }

    /// The device called `name`, or that the file of this path describes, with another capacity if given.
    ///
    /// # Errors
    /// An unknown name, a file that is no device's, or a capacity that the context alone fills.
    pub fn new(name: &str, capacity: Option<Bytes>) -> Result<Self, Failure> {
        let profile = profile_of(name)?;
        let place = Self { profile, capacity: capacity.map(|c| c.0), min_capacity: false };
        let (capacity, context) = (place.capacity(), place.profile.options.context);
        check_capacity(capacity)?;
        if capacity <= context {
            let message = format!(
                "capacity {} leaves nothing for a run: the context of device {name} takes {}; give --capacity more than that",
                Bytes(capacity),
                Bytes(context)
            );
            return Err(Failure::usage(message));
        }
        Ok(place)
    }

    /// Where a recording is replayed: on the named device, or else on one of which all bytes are the allocator's, since what a recording
    /// tells of its device (reserved and free bytes at a failure) leaves the context out.
    ///
    /// # Errors
    /// As [`Place::new`].
    pub fn for_recording(name: Option<&str>, capacity: Option<Bytes>) -> Result<Self, Failure> {
        if let Some(name) = name {
            return Self::new(name, capacity);
        }
        let mut profile = profile::device(RECORDING_DEVICE).map_err(Failure::usage)?;
        profile.options.context = 0;
        let place = Self { profile, capacity: capacity.map(|c| c.0), min_capacity: false };
        check_capacity(place.capacity())?;
        if place.capacity() == 0 {
            return Err(Failure::usage(
                "capacity 0 leaves nothing for a run; give --capacity more than that",
            ));
        }
        Ok(place)
    }

    /// A fresh machine of `devices` such devices.
    pub fn machine(&self, devices: usize) -> SimMachine {
        let mut options = self.profile.options.clone();
        options.capacity = self.capacity();
        SimMachine::with_devices((0..devices).map(|_| options.clone()))
    }
}

/// A built-in device, or else, where `name` looks like a path, the device of that file.
fn profile_of(name: &str) -> Result<Profile, Failure> {
    let path = Path::new(name);
    let is_path = path.components().count() > 1 || path.extension().is_some_and(|e| e == "toml");
    if !is_path {
        return profile::device(name).map_err(Failure::usage);
    }
    let text = small_text(path, DEVICE_FILE_MAX, "a device's TOML file")?;
    Profile::parse(&text).map_err(|e| Failure::input(format!("{name}: {e}")))
}

/// The empty row of a pair: names, options, device.
pub fn blank(input: &Input<'_>, spec: &Spec, place: &Place) -> Row {
    let mut row = Row::new(&input.name, &spec.to_string());
    for part in &spec.parts {
        for (key, value) in part.options.iter() {
            row.options.insert(key.to_owned(), value.to_owned());
        }
    }
    row.device = place.profile.name.clone();
    row.cost_table = place.profile.cost_table_name();
    row.capacity = place.capacity();
    row.seed = input.seed;
    row.times = input.times.text();
    row.assumes = input.assumes;
    row
}

/// Runs a pair. A pair that does not fit, or that driver or strategy end, is a row that says why.
///
/// # Errors
/// Bad options or bad input.
pub fn run_pair(
    input: &Input<'_>,
    spec: &Spec,
    place: &Place,
    observer: Option<&mut dyn Observer>,
) -> Result<Row, Failure> {
    run_reported(input, spec, place, observer).map(|(row, _)| row)
}

/// The same, with the engine's whole report of a pair that ran to its end.
///
/// # Errors
/// As [`run_pair`].
pub fn run_reported(
    input: &Input<'_>,
    spec: &Spec,
    place: &Place,
    observer: Option<&mut dyn Observer>,
) -> Result<(Row, Option<Report>), Failure> {
    let strategy = find(&spec.strategy().name).map_err(Failure::usage)?;
    let mut row = blank(input, spec, place);
    row.notes = (strategy.inert)(&spec.strategy().options);
    let about = About { devices: input.devices, accesses: input.accesses };
    let (mut strategies, mut caches, locking) = match fit(spec, about, &*input.make) {
        Ok(Fit::Fits(Instances { strategies, caches, locking, .. })) => {
            (strategies, caches, locking)
        }
        Ok(Fit::Not(why)) => return Ok((row.skipped(why), None)),
        Err(FitError::Spec(error)) => return Err(Failure::usage(error)),
        Err(FitError::Source(error)) => return Err(Failure::input(error)),
        Err(FitError::Make(failure)) => return Err(failure),
    };
    let mut source = (input.make)()?;
    let mut machine = place.machine(input.devices);
    let setup = Setup {
        host_ns: place.profile.host_ns(strategy.name),
        memory: strategy.memory,
        locking,
        caches: &mut caches,
        observer: match observer {
            Some(observer) => Some(&mut *observer),
            None => None,
        },
        keep_marks: true,
        ..Setup::new(&mut machine, &mut strategies)
    };
    match run(&mut *source, setup) {
        Ok(report) => {
            if report.kv.is_some() && !strategy.is_cache() {
                row.notes.push(IN_BUFFERS.to_owned());
            }
            Ok((row.fill(&report, input.warm_up), Some(report)))
        }
        Err(
            error @ (RunError::Driver { .. }
            | RunError::Strategy { .. }
            | RunError::Livelock { .. }),
        ) => Ok((row.ended(error.to_string()), None)),
        Err(error) => Err(input.bad(&error)),
    }
}
