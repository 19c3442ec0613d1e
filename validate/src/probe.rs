//! What a probe found, as text and JSON; and what to do if it found nothing.

use std::fmt;

use serde::Serialize;
use vramlab_sim::machine::Machine;
use vramlab_sim::units::{Bytes, DeviceId};

use crate::cuda::Refusal;
use crate::failure::{Code, Failure};
use crate::machine::{CudaMachine, Wanted};
use crate::measure::command::cuda_layout;
use crate::measure::layout::Layout;

/// Version of the JSON object's shape.
const SCHEMA: u32 = 1;

/// What there is.
#[derive(Debug, Serialize)]
pub(crate) struct Probe {
    schema: u32,
    /// Version of this program.
    vramlab: &'static str,
    /// Newest CUDA version that the driver serves, such as `13.0`.
    driver: String,
    devices: Vec<Device>,
}

/// One device. Sizes are in bytes; `None` where the driver could not say.
#[derive(Debug, Serialize)]
pub(crate) struct Device {
    /// As CUDA numbers it in this process.
    pub(crate) device: i32,
    pub(crate) name: String,
    /// Compute capability, such as `9.0`.
    pub(crate) compute: String,
    pub(crate) total: u64,
    pub(crate) free: Option<u64>,
    /// Why `free` is unknown, in CUDA's words.
    pub(crate) free_unknown: Option<String>,
    /// Step of physical memory behind virtual memory management.
    pub(crate) granularity: Option<u64>,
    /// Stream-ordered allocation (`cuMemAllocAsync`).
    pub(crate) pools: bool,
    /// Virtual memory management (`cuMemCreate`, `cuMemMap`).
    pub(crate) vmm: bool,
    /// Managed memory (`cuMemAllocManaged`).
    pub(crate) managed: bool,
    /// Host and device may use managed memory at the same time.
    pub(crate) managed_concurrent: bool,
    /// How it places ranges, if that was looked at.
    pub(crate) layout: Option<Layout>,
}

impl Probe {
    /// `driver_version` as `cuDriverGetVersion` gives it: 1000 × major + 10 × minor.
    pub(crate) fn new(driver_version: i32, devices: Vec<Device>) -> Self {
        Self {
            schema: SCHEMA,
            vramlab: env!("CARGO_PKG_VERSION"),
            driver: version_text(driver_version),
            devices,
        }
    }

    /// Looks how each device places ranges, with a few MiB of it.
    ///
    /// # Errors
    /// When a device has no room or the driver refuses.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        let devices = self.devices.len();
        let mut machine = CudaMachine::open(Wanted { devices, ..Wanted::default() })?;
        for (number, device) in (0..).zip(&mut self.devices) {
            let ended = |what| Failure::new(Code::Partial, format!("device {number}: {what}"));
            machine.select(DeviceId(number)).map_err(ended)?;
            device.layout = Some(cuda_layout(&mut machine).map_err(ended)?);
        }
        Ok(())
    }

    /// One JSON object on one line.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, s) = (self.devices.len(), if self.devices.len() == 1 { "" } else { "s" });
        writeln!(f, "CUDA driver {}, {count} device{s}", self.driver)?;
        self.devices.iter().try_for_each(|device| write!(f, "\n{device}"))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes_no = |b: bool| if b { "yes" } else { "no" }.to_owned();
        let free = match (self.free, &self.free_unknown) {
            (Some(free), _) => Bytes(free).to_string(),
            (None, why) => format!("unknown ({})", why.as_deref().unwrap_or("not asked")),
        };
        // the probe's own context is one of those that hold it
        let taken =
            self.free.map_or("-".to_owned(), |f| Bytes(self.total.saturating_sub(f)).to_string());
        let managed = match (self.managed, self.managed_concurrent) {
            (true, false) => "yes, but not by host and device at once".to_owned(),
            (managed, _) => yes_no(managed),
        };
        writeln!(f, "device {}: {}", self.device, self.name)?;
        for (what, value) in [
            ("compute capability", self.compute.clone()),
            ("total memory", Bytes(self.total).to_string()),
            ("free memory", free),
            ("context and others", taken),
            ("granule", self.granularity.map_or("-".to_owned(), |g| Bytes(g).to_string())),
            ("stream-ordered pools", yes_no(self.pools)),
            ("virtual memory (VMM)", yes_no(self.vmm)),
            ("managed memory", managed),
        ] {
            writeln!(f, "  {what:<22}{value}")?;
        }
        if let Some(layout) = &self.layout {
            write!(f, "{layout}")?;
        }
        Ok(())
    }
}

/// Why there is nothing to show. Prints what is wrong, then what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No library of the driver could be loaded.
    NoDriver,
    /// The library lacks functions that every supported driver has.
    OldDriver {
        /// The first one that it lacks.
        lacks: &'static str,
    },
    /// The driver serves only older versions of CUDA.
    OldVersion {
        /// The newest that it serves, as `cuDriverGetVersion` gives it.
        version: i32,
    },
    /// The driver is there, but no device.
    NoDevice,
    /// The driver refused a call.
    Refused {
        /// The function.
        call: &'static str,
        /// CUDA's name of the error.
        error: String,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ELSEWHERE: &str =
            "Only validate needs a GPU: `vramlab` simulates devices on any machine.";
        match self {
            Self::NoDriver => write!(
                f,
                "no CUDA driver: looked for libcuda.so.1 (nvcuda.dll on Windows) and could not load it.\n\
                 What to do: install NVIDIA's driver (then `nvidia-smi` lists the devices); in a container, start it with its GPUs\n\
                 (`docker run --gpus all …`); if the library lies elsewhere, put its folder on LD_LIBRARY_PATH.\n{ELSEWHERE}"
            ),
            Self::OldDriver { lacks } => write!(
                f,
                "the CUDA driver found has no function {lacks}: it is older than CUDA 10.2, or no CUDA driver at all.\n\
                 What to do: install a newer NVIDIA driver, and look which libcuda.so.1 comes first on LD_LIBRARY_PATH.\n{ELSEWHERE}"
            ),
            Self::OldVersion { version } => write!(
                f,
                "the CUDA driver found serves CUDA {}; at least 10.2 is needed.\n\
                 What to do: install a newer NVIDIA driver, and look which libcuda.so.1 comes first on LD_LIBRARY_PATH.\n{ELSEWHERE}",
                version_text(*version)
            ),
            Self::NoDevice => write!(
                f,
                "no CUDA device: the driver is here, but it shows this process no GPU.\n\
                 What to do: see whether `nvidia-smi` lists one, whether CUDA_VISIBLE_DEVICES hides it, and whether the container was\n\
                 started with it.\n{ELSEWHERE}"
            ),
            Self::Refused { call, error } => {
                write!(f, "the CUDA driver refused {call}: {error}.\nWhat to do: {}", hint(error))
            }
        }
    }
}

/// `13.0` for 13000.
pub(crate) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { call: refusal.call, error: refusal.error() }
    }
}

/// What to do about an error of the driver.
fn hint(error: &str) -> &'static str {
    match error {
        "CUDA_ERROR_STUB_LIBRARY" => {
            "the library loaded is the toolkit's stub, meant for linking only; take its folder off LD_LIBRARY_PATH."
        }
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" => {
            "the library and the kernel module are of different versions, as after an update; restart the machine."
        }
        "CUDA_ERROR_SYSTEM_NOT_READY" => {
            "a service that the devices need (such as nvidia-fabricmanager) is not running; start it."
        }
        _ => {
            "see whether `nvidia-smi` works; look the error up in NVIDIA's CUDA driver API documentation."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_version_is_split_at_thousands_and_tens() {
        for (raw, want) in [(13_000, "13.0"), (12_040, "12.4"), (11_080, "11.8")] {
            assert_eq!(Probe::new(raw, Vec::new()).driver, want);
        }
    }

    #[test]
    fn trouble_names_the_error_and_what_to_do() {
        let stub = Trouble::Refused { call: "cuInit", error: "CUDA_ERROR_STUB_LIBRARY".into() };
        let text = stub.to_string();
        assert!(text.starts_with("the CUDA driver refused cuInit: CUDA_ERROR_STUB_LIBRARY."));
        assert!(text.contains("What to do: the library loaded is the toolkit's stub"));
    }
}
