//! What the environment says.

use std::str::FromStr;

use vramlab_sim::DeviceOptions;
use vramlab_sim::device::profile::{self, Profile};
use vramlab_sim::driver::Families;
use vramlab_sim::units::Bytes;

use crate::faults::Faults;

/// What is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plays {
    #[default]
    Driver,
    NoDevice,
    NoContext,
    Old,
}

/// A device as CUDA describes it.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// Ends with a zero byte.
    pub(crate) name: Vec<u8>,
    /// Compute capability, major and minor.
    pub(crate) compute: (i32, i32),
    pub(crate) options: DeviceOptions,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) plays: Plays,
    pub(crate) devices: Vec<About>,
    pub(crate) spin: bool,
    pub(crate) jitter: f64,
    pub(crate) faults: Faults,
    pub(crate) report: Option<String>,
}

fn var(name: &str) -> Option<String> {
    std::env::var(format!("VRAMLAB_FAKE_CUDA{name}")).ok().filter(|text| !text.is_empty())
}

fn parsed<T: FromStr>(name: &str) -> Result<Option<T>, String> {
    let Some(text) = var(name) else { return Ok(None) };
    let wrong =
        |_| format!("VRAMLAB_FAKE_CUDA{name}: found {text:?}, expected a value of its kind");
    text.parse().map(Some).map_err(wrong)
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read() -> Result<Self, String> {
        let plays = match var("").as_deref() {
            None => Plays::Driver,
            Some("no_device") => Plays::NoDevice,
            Some("no_context") => Plays::NoContext,
            Some("old") => Plays::Old,
            Some(other) => {
                return Err(format!(
                    "VRAMLAB_FAKE_CUDA: found {other:?}, expected no_device, no_context or old"
                ));
            }
        };
        let spin = match var("_CLOCK").as_deref() {
            None | Some("virtual") => false,
            Some("spin") => true,
            Some(other) => {
                return Err(format!(
                    "VRAMLAB_FAKE_CUDA_CLOCK: found {other:?}, expected virtual or spin"
                ));
            }
        };
        let mut devices = match var("_DEVICE") {
            None => defaults(),
            Some(name) => {
                let count = parsed::<usize>("_COUNT")?.unwrap_or(1).clamp(1, 16);
                vec![About::of(&profile_of(&name)?); count]
            }
        };
        let (capacity, granule) = (parsed::<Bytes>("_CAPACITY")?, parsed::<Bytes>("_GRANULE")?);
        for About { options, .. } in &mut devices {
            options.capacity = capacity.map_or(options.capacity, |bytes| bytes.0);
            options.granule = granule.map_or(options.granule, |bytes| bytes.0).max(1);
        }
        Ok(Self {
            plays,
            devices,
            spin,
            jitter: parsed::<f64>("_JITTER")?.unwrap_or(0.0).clamp(0.0, 1.0),
            faults: match var("_FAIL") {
                Some(text) => text.parse()?,
                None => Faults::default(),
            },
            report: var("_REPORT"),
        })
    }
}

fn profile_of(name: &str) -> Result<Profile, String> {
    if !name.contains(['/', '.']) {
        return profile::device(name).map_err(|e| e.to_string());
    }
    let text = std::fs::read_to_string(name).map_err(|e| format!("{name}: {e}"))?;
    Profile::parse(&text).map_err(|e| format!("{name}: {e}"))
}

impl About {
    fn of(profile: &Profile) -> Self {
        let options = DeviceOptions { families: ABLE, ..profile.options.clone() };
        Self { name: zero_ended(&profile.title), compute: (9, 0), options }
    }
}

/// A driver has no files.
const ABLE: Families = Families { files: false, ..Families::ALL };

fn zero_ended(name: &str) -> Vec<u8> {
    name.bytes().filter(|byte| *byte != 0).chain([0]).collect()
}

fn defaults() -> Vec<About> {
    let device = |name, compute, capacity: u64, context: u64, families| About {
        name: zero_ended(name),
        compute,
        options: DeviceOptions { capacity, context, families, ..DeviceOptions::default() },
    };
    let unable = Families { host: true, ..Families::CLASSIC };
    vec![
        device("Fake GPU A", (9, 0), 80 << 30, 1 << 30, ABLE),
        device("Fake GPU B", (5, 2), 12 << 30, 21 << 29, unable),
    ]
}
