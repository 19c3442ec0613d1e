//! Arguments of the commands that run something on a device.

use std::path::{Path, PathBuf};

use clap::Args;
use vramlab_allocators::{STRATEGIES, Spec};
use vramlab_sim::device::profile::{self, Profile};
use vramlab_sim::units::Bytes;
use vramlab_workloads::rates::Rates;

use crate::failure::Failure;
use crate::inputs::{self, Input};

/// What is run, through what, on what.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Workloads by name (vramlab list workloads).
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    /// Parameters of the workloads.
    #[arg(long, value_name = "K=V,…", value_delimiter = ',')]
    set: Vec<String>,
    /// Seed of the workloads.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A recording of any format that vramlab replays; may be given again.
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// A strategy with its options; may be given again. all: every one.
    #[arg(long, value_name = "SPEC", default_value = "torch.caching")]
    strategy: Vec<String>,
    /// Prices of the simulated device, and the rates that durations of work come from: a built-in device or a device's file, such as fit writes.
    #[arg(long, value_name = "NAME", default_value = "generic")]
    pub(crate) device: String,
    /// Most bytes of a device to hold, such as 8GiB [default: nine tenths of what is free].
    #[arg(long, value_name = "SIZE")]
    limit: Option<Bytes>,
    /// Queue the workload's work, as kernels that last as long, and its copies; later times are waited for. Without it the device does nothing but what a workload's touches of memory ask.
    #[arg(long)]
    pub(crate) with_work: bool,
    /// Also write one JSON object for each pair to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

impl RunArgs {
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit.map(|limit| limit.0)
    }

    /// The device of `--device`.
    pub(crate) fn profile(&self) -> Result<Profile, Failure> {
        profile_of(&self.device)
    }

    pub(crate) fn inputs(&self, profile: &Profile) -> Result<Vec<Input>, Failure> {
        if self.workloads.is_empty() && self.trace.is_empty() {
            return Err(Failure::usage(
                "found no input; name a workload, or give a recording with --trace FILE",
            ));
        }
        let mut all =
            inputs::workloads(&self.workloads, &self.set, self.seed, &Rates::of(profile))?;
        all.extend(inputs::recordings(&self.trace)?);
        Ok(all)
    }

    pub(crate) fn specs(&self) -> Result<Vec<Spec>, Failure> {
        let texts = self.strategy.iter().flat_map(|text| match text.as_str() {
            "all" => STRATEGIES.iter().map(|strategy| strategy.name).collect(),
            text => vec![text],
        });
        let parse = |text: &str| -> Result<Spec, Failure> {
            let spec: Spec = text.parse().map_err(Failure::usage)?;
            vramlab_allocators::registry::check(&spec).map_err(Failure::usage)?;
            Ok(spec)
        };
        texts.map(parse).collect()
    }
}

/// A built-in device, or the device of a file.
pub(crate) fn profile_of(name: &str) -> Result<Profile, Failure> {
    let path = Path::new(name);
    let is_path = path.components().count() > 1 || path.extension().is_some();
    if !is_path {
        return profile::device(name).map_err(Failure::usage);
    }
    let bad = |what: String| Failure::input(format!("{name}: {what}"));
    let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
    Profile::parse(&text).map_err(|e| bad(e.to_string()))
}
