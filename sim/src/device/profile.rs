//! Devices by name: capacity, speeds, links, and the cost table, each figure with unit, source, date and trust.
//!
//! The built-in ones are `sim/devices/*.toml`, embedded; [`Profile::parse`] reads any other file of the form.
//!
//! ```
//! use vramlab_sim::device::profile;
//!
//! let a100 = profile::device("a100-80gb").unwrap();
//! assert_eq!(a100.cost_table_name(), "published (not measured)");
//! assert_eq!(a100.host_ns("torch.caching"), 307);
//! assert!(profile::device("a1000").unwrap_err().to_string().contains("a100-80gb"));
//! ```

use std::collections::BTreeMap;

use super::file::{self, Figure};
use super::{CostTable, DeviceOptions, Link, Links, Price};

/// The embedded files, by device.
const BUILT_IN: [(&str, &str); 8] = [
    ("a100-80gb", include_str!("../../devices/a100-80gb.toml")),
    ("generic", include_str!("../../devices/generic.toml")),
    ("h100-80gb", include_str!("../../devices/h100-80gb.toml")),
    ("rtx4090-24gb", include_str!("../../devices/rtx4090-24gb.toml")),
    ("rtxpro6000-96gb", include_str!("../../devices/rtxpro6000-96gb.toml")),
    ("t4-16gb", include_str!("../../devices/t4-16gb.toml")),
    ("v100-16gb", include_str!("../../devices/v100-16gb.toml")),
    ("zero", include_str!("../../devices/zero.toml")),
];

/// Why a device cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No device has this name.
    #[error("unknown device {name:?}; expected one of {}, or a file's path", .known.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The text is no device file.
    #[error("bad device file: {0}")]
    Bad(String),
}

/// A device: what it can do, and what its calls cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Short name, as `--device` takes it.
    pub name: String,
    /// Full name.
    pub title: String,
    /// Name of the cost table.
    pub cost_table: String,
    /// The costs were measured on such a device.
    pub measured: bool,
    /// What a simulated device is made from.
    pub options: DeviceOptions,
    /// Bytes per second between the device and its memory; infinite if it takes no time.
    pub memory_bytes_per_second: f64,
    /// Operations per second by type: `fp32`, `tf32`, `fp16`, `bf16`, `fp8`, `int8`.
    pub flops: BTreeMap<String, f64>,
    /// Every figure of the file, as it is written there.
    pub figures: Vec<Figure>,
    host_ns: BTreeMap<String, u64>,
}

impl Profile {
    /// Reads a device file. A file may be `based_on` a built-in device, and then names only what differs.
    ///
    /// # Errors
    /// [`ProfileError::Bad`], which names the key, what was found, and what was expected.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut file = file::read(text)?;
        if let Some(base) = file.based_on.clone() {
            let base = file::read(built_in(&base)?)?;
            if let Some(deeper) = base.based_on {
                let what = format!("based_on: found {:?}, itself based on {deeper:?}", base.name);
                return Err(ProfileError::Bad(what + "; expected a device that stands alone"));
            }
            file = file.over(base);
        }
        Self::from_file(&file)
    }

    fn from_file(file: &file::File) -> Result<Self, ProfileError> {
        let missing = |key: &str| ProfileError::Bad(format!("{key}: found nothing, expected it"));
        let head = file.cost_table.as_ref().ok_or_else(|| missing("cost_table"))?;
        let defaults = DeviceOptions::default();
        let memory = &file.memory;
        let capacity = memory.capacity.as_ref().ok_or_else(|| missing("memory.capacity"))?;
        let options = DeviceOptions {
            capacity: capacity.bytes("memory.capacity")?,
            context: memory.context.as_ref().map_or(Ok(0), |q| q.bytes("memory.context"))?,
            host_capacity: match &memory.host {
                Some(host) => host.bytes("memory.host")?,
                None => defaults.host_capacity,
            },
            granule: match &memory.granule {
                Some(granule) => granule.bytes("memory.granule")?,
                None => defaults.granule,
            },
            placement: memory.placement.unwrap_or_default(),
            pack_small: memory.pack_small.unwrap_or_default(),
            any_size: memory.any_size.unwrap_or_default(),
            families: defaults.families,
            links: links(file)?,
            costs: costs(file)?,
        };
        if !options.granule.is_power_of_two() {
            return Err(ProfileError::Bad(format!(
                "memory.granule: found {} B, expected a power of two",
                options.granule
            )));
        }
        let mut flops = BTreeMap::new();
        let mut memory_bytes_per_second = f64::INFINITY;
        for (name, quantity) in &file.speed {
            let key = format!("speed.{name}");
            match name.as_str() {
                "memory" => memory_bytes_per_second = quantity.bytes_per_second(&key)?,
                "fp64" | "fp32" | "tf32" | "fp16" | "bf16" | "fp8" | "int8" => {
                    flops.insert(name.clone(), quantity.flops(&key)?);
                }
                _ => {
                    let what = "expected memory, fp64, fp32, tf32, fp16, bf16, fp8 or int8";
                    return Err(ProfileError::Bad(format!("found {key}, {what}")));
                }
            }
        }
        let host_ns = file.host_ns.iter().map(|(name, quantity)| {
            let ns = quantity.ns(&format!("host_ns.{name}"))?;
            Ok((name.clone(), ns.round() as u64))
        });
        Ok(Self {
            name: file.name.clone(),
            title: file.title.clone(),
            cost_table: head.name.clone(),
            measured: head.measured,
            options,
            memory_bytes_per_second,
            flops,
            figures: file.figures(),
            host_ns: host_ns.collect::<Result<_, ProfileError>>()?,
        })
    }

    /// The cost table, as every published result names it.
    pub fn cost_table_name(&self) -> String {
        if self.measured || self.options.costs.is_free_of_charge() {
            return self.cost_table.clone();
        }
        format!("{} (not measured)", self.cost_table)
    }

    /// Host time in ns of an alloc or a free that needs no driver call: of the strategy, else of its family (what stands before the
    /// first dot), else the file's default, else 0.
    pub fn host_ns(&self, strategy: &str) -> u64 {
        let family = strategy.split('.').next().unwrap_or_default();
        let names = [strategy, family, "default"];
        names.iter().find_map(|name| self.host_ns.get(*name)).copied().unwrap_or_default()
    }

    /// Operations per second of a type; of `fp32` if the type is not given, infinite if neither is.
    pub fn flops(&self, kind: &str) -> f64 {
        let known = self.flops.get(kind).or_else(|| self.flops.get("fp32"));
        known.copied().unwrap_or(f64::INFINITY)
    }
}

fn links(file: &file::File) -> Result<Links, ProfileError> {
    let mut links = Links::INSTANT;
    for (name, raw) in &file.link {
        let slot = match name.as_str() {
            "host_to_device" => &mut links.host_to_device,
            "device_to_host" => &mut links.device_to_host,
            "device_to_device" => &mut links.device_to_device,
            "peer_to_peer" => &mut links.peer_to_peer,
            "disk" => &mut links.disk,
            _ => {
                return Err(ProfileError::Bad(format!(
                    "found link.{name}, expected host_to_device, device_to_host, device_to_device, peer_to_peer or disk"
                )));
            }
        };
        let key = |part| format!("link.{name}.{part}");
        let bandwidth = raw.bandwidth.as_ref().ok_or_else(|| {
            ProfileError::Bad(format!("{}: found nothing, expected it", key("bandwidth")))
        })?;
        let latency_ns = match &raw.latency {
            Some(latency) => latency.ns(&key("latency"))?.round() as u64,
            None => 0,
        };
        *slot =
            Link { bytes_per_second: bandwidth.bytes_per_second(&key("bandwidth"))?, latency_ns };
    }
    Ok(links)
}

fn costs(file: &file::File) -> Result<CostTable, ProfileError> {
    let mut table = CostTable::zero();
    for (name, raw) in &file.cost {
        let term = |part, quantity: &Option<file::Quantity>| match quantity {
            Some(quantity) => quantity.ns(&format!("cost.{name}.{part}")),
            None => Ok(0.0),
        };
        let price = Price {
            base_ns: term("base", &raw.base)?,
            per_granule_ns: term("per_granule", &raw.per_granule)?,
            per_byte_ns: term("per_byte", &raw.per_byte)?,
        };
        if !table.set(name, price) {
            let others = CostTable::OTHERS.join(", ");
            return Err(ProfileError::Bad(format!(
                "found cost.{name}, expected a CUDA call (cudaMalloc, cuMemCreate…) or one of {others}"
            )));
        }
    }
    Ok(table)
}

fn built_in(name: &str) -> Result<&'static str, ProfileError> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| ProfileError::Unknown {
        name: name.to_owned(),
        known: BUILT_IN.iter().map(|(known, _)| *known).collect(),
    })
}

/// The built-in device of this name.
///
/// # Errors
/// [`ProfileError::Unknown`] with the names there are.
pub fn device(name: &str) -> Result<Profile, ProfileError> {
    Profile::parse(built_in(name)?)
}

/// All built-in devices, by name.
///
/// # Panics
/// Never: the embedded files are tested.
pub fn devices() -> Vec<Profile> {
    let read = |(name, text)| {
        Profile::parse(text).unwrap_or_else(|error| panic!("embedded device {name}: {error}"))
    };
    BUILT_IN.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(text: &str) -> String {
        Profile::parse(text).expect_err("expected a refusal").to_string()
    }

    const SMALL: &str = "name='x'\ntitle='X'\n[cost_table]\nname='c'\nmeasured=true\n[memory]\n";
    const FIGURE: &str = "source='s', date='2026-01-01', trust='?'";

    #[test]
    fn every_built_in_device_is_named_as_its_file_and_leaves_room() {
        for (profile, (name, _)) in devices().iter().zip(BUILT_IN) {
            assert_eq!(profile.name, name);
            assert!(profile.options.capacity > profile.options.context);
            assert!(!profile.title.is_empty() && !profile.figures.is_empty());
            let sourced = |f: &Figure| !f.source.is_empty() && f.date.len() == 10;
            assert!(profile.figures.iter().all(sourced), "{name}");
        }
    }

    #[test]
    fn zero_is_free_and_has_the_golden_capacity() {
        let zero = device("zero").expect("built in");
        assert_eq!(zero.options.capacity, 80 << 30);
        assert_eq!(zero.options.context, 0);
        assert!(zero.options.costs.is_free_of_charge());
        assert_eq!(zero.options.links, Links::INSTANT);
        assert_eq!(zero.host_ns("torch.caching"), 0);
        assert_eq!(zero.cost_table_name(), "zero");
    }

    #[test]
    fn a_device_takes_from_its_base_what_it_does_not_name() {
        let (generic, t4) =
            (device("generic").expect("built in"), device("t4-16gb").expect("built in"));
        assert_eq!(t4.options.costs, generic.options.costs);
        assert_eq!(t4.options.capacity, 15_837_691_904);
        assert_eq!(t4.options.links.host_to_device.latency_ns, 10_000);
        assert!((t4.options.links.host_to_device.bytes_per_second - 12e9).abs() < 1.0);
        assert!((t4.flops("fp16") - 65e12).abs() < 1.0 && (t4.flops("fp64") - 8.1e12).abs() < 1.0);
        assert!(!t4.flops.contains_key("bf16"), "the T4 has no bf16, generic's is not taken");
    }

    #[test]
    fn the_malloc_price_passes_through_the_two_published_figures() {
        let table = device("a100-80gb").expect("built in").options.costs;
        let malloc = table.call(crate::driver::Call::Malloc { size: 0 }.kind());
        assert_eq!(malloc.of(4096, 2 << 20), 50_332);
        assert_eq!(malloc.of(2 << 30, 2 << 20), 389_968);
    }

    /// GTX 1080 over PCIe 3: 3.17 GB touched first on the host, then by a kernel, took 386.6 ms (parallelArchitect/pascal-um-benchmark).
    #[test]
    fn the_fault_price_passes_through_the_published_figure() {
        use crate::device::SimMachine;
        use crate::driver::DriverExt;
        use crate::machine::{Machine, Toucher};
        let bytes = 3_170_000_000;
        let mut machine = SimMachine::new(device("t4-16gb").expect("built in").options);
        let range = machine.malloc_managed(bytes).expect("room");
        machine.touch(range, bytes, true, Toucher::Host).expect("managed");
        let before = machine.now().0;
        machine.touch(range, bytes, false, Toucher::Device(Default::default())).expect("managed");
        machine.device_synchronize().expect("simulated");
        let ms = (machine.now().0 - before) as f64 / 1e6;
        assert!((380.0..395.0).contains(&ms), "{ms} ms");
    }

    #[test]
    fn host_time_falls_back_to_family_and_default() {
        let generic = device("generic").expect("built in");
        let of = |name| generic.host_ns(name);
        assert_eq!(
            [of("torch.caching"), of("torch.other"), of("cuda.malloc"), of("new")],
            [307, 150, 0, 150]
        );
    }

    #[test]
    fn a_bad_file_is_refused_with_key_found_and_expected() {
        let capacity = format!("capacity={{value=1, unit='GiB', {FIGURE}}}\n");
        assert!(Profile::parse(&format!("{SMALL}{capacity}")).is_ok());
        for (text, parts) in [
            (SMALL.to_owned(), vec!["memory.capacity", "found nothing"]),
            (
                format!("{SMALL}capacity={{value=1, unit='kg', {FIGURE}}}"),
                vec!["memory.capacity", "\"kg\"", "GiB"],
            ),
            (
                format!("{SMALL}{capacity}granule={{value=3, unit='MiB', {FIGURE}}}"),
                vec!["memory.granule", "3145728 B", "power of two"],
            ),
            (
                format!("{SMALL}capacity={{value=-1, unit='B', {FIGURE}}}"),
                vec!["memory.capacity", "-1"],
            ),
            (format!("{SMALL}capacity={{value=1, unit='B'}}"), vec!["source"]),
            (format!("{SMALL}{capacity}volume=3"), vec!["volume", "capacity"]),
            (
                format!("{SMALL}{capacity}[cost.cudaMollac]\nbase={{value=1,unit='ns',{FIGURE}}}"),
                vec!["cudaMollac", "cudaMalloc"],
            ),
            (
                format!("{SMALL}{capacity}[link.moon]\nbandwidth={{value=1,unit='GB/s',{FIGURE}}}"),
                vec!["link.moon", "disk"],
            ),
            (
                format!("{SMALL}{capacity}[speed]\nfp3={{value=1,unit='FLOP/s',{FIGURE}}}"),
                vec!["speed.fp3", "fp32"],
            ),
            ("based_on='moon'\nname='x'\ntitle=''".to_owned(), vec!["moon", "generic"]),
            ("based_on='t4-16gb'\nname='x'\ntitle=''".to_owned(), vec!["t4-16gb", "generic"]),
            ("name=".to_owned(), vec!["line 1"]),
        ] {
            let message = bad(&text);
            for part in parts {
                assert!(message.contains(part), "no {part:?} in {message:?}");
            }
        }
    }
}
