//! The text form of a device: TOML in which every figure carries its unit, source, date and trust.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::AddressPlacement;
use super::profile::ProfileError;

/// How far a figure can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Trust {
    /// A primary source was read.
    #[serde(rename = "P")]
    Primary,
    /// A second-hand copy of a table.
    #[serde(rename = "S")]
    SecondHand,
    /// Derived from other figures.
    #[serde(rename = "D")]
    Derived,
    /// No source: assumed, so that runs can be made.
    #[serde(rename = "?")]
    Assumed,
    /// Measured for this project.
    #[serde(rename = "M")]
    Measured,
}

/// A number with its unit and where it comes from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quantity {
    value: f64,
    unit: String,
    low: Option<f64>,
    high: Option<f64>,
    source: String,
    date: String,
    trust: Trust,
}

/// A figure of a device file, as it is written there.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its place in the file, such as `cost.cudaMalloc.base`.
    pub key: String,
    /// Value, in `unit`.
    pub value: f64,
    /// Unit.
    pub unit: String,
    /// Least value that a source gives.
    pub low: Option<f64>,
    /// Largest value that a source gives.
    pub high: Option<f64>,
    /// Where it was seen.
    pub source: String,
    /// When, as `YYYY-MM-DD`.
    pub date: String,
    /// How far to trust it.
    pub trust: Trust,
}

const BYTES: [(&str, f64); 9] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];
/// More than any device has.
const MOST_BYTES: f64 = (1_u64 << 50) as f64;
const TIME: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATE: [(&str, f64); 4] = [("B/s", 1.0), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12)];
const FLOPS: [(&str, f64); 3] = [("FLOP/s", 1.0), ("GFLOP/s", 1e9), ("TFLOP/s", 1e12)];

impl Quantity {
    fn in_units(&self, key: &str, units: &[(&str, f64)], least: f64) -> Result<f64, ProfileError> {
        let bad = |what: String| Err(ProfileError::Bad(format!("{key}: {what}")));
        let Some((_, factor)) = units.iter().find(|(unit, _)| *unit == self.unit) else {
            let known: Vec<_> = units.iter().map(|(unit, _)| *unit).collect();
            return bad(format!(
                "found unit {:?}, expected one of {}",
                self.unit,
                known.join(", ")
            ));
        };
        let value = self.value * factor;
        // also refuses what is no number
        if !(value.is_finite() && self.value >= least) {
            return bad(format!("found {}, expected a finite number from {least} up", self.value));
        }
        Ok(value)
    }

    pub(super) fn bytes(&self, key: &str) -> Result<u64, ProfileError> {
        let bytes = self.in_units(key, &BYTES, 0.0)?;
        if bytes > MOST_BYTES {
            let what = format!("found {} {}, expected at most 1024 TiB", self.value, self.unit);
            return Err(ProfileError::Bad(format!("{key}: {what}")));
        }
        Ok(bytes.round() as u64)
    }

    pub(super) fn ns(&self, key: &str) -> Result<f64, ProfileError> {
        self.in_units(key, &TIME, 0.0)
    }

    pub(super) fn bytes_per_second(&self, key: &str) -> Result<f64, ProfileError> {
        self.in_units(key, &RATE, f64::MIN_POSITIVE)
    }

    pub(super) fn flops(&self, key: &str) -> Result<f64, ProfileError> {
        self.in_units(key, &FLOPS, f64::MIN_POSITIVE)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CostHead {
    pub(super) name: String,
    pub(super) measured: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    pub(super) capacity: Option<Quantity>,
    pub(super) context: Option<Quantity>,
    pub(super) host: Option<Quantity>,
    pub(super) granule: Option<Quantity>,
    pub(super) placement: Option<AddressPlacement>,
    pub(super) pack_small: Option<bool>,
    pub(super) any_size: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkFile {
    pub(super) bandwidth: Option<Quantity>,
    pub(super) latency: Option<Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cost {
    pub(super) base: Option<Quantity>,
    pub(super) per_granule: Option<Quantity>,
    pub(super) per_byte: Option<Quantity>,
}

/// A device file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) based_on: Option<String>,
    pub(super) cost_table: Option<CostHead>,
    #[serde(default)]
    pub(super) memory: Memory,
    #[serde(default)]
    pub(super) speed: BTreeMap<String, Quantity>,
    #[serde(default)]
    pub(super) link: BTreeMap<String, LinkFile>,
    #[serde(default)]
    pub(super) cost: BTreeMap<String, Cost>,
    #[serde(default)]
    pub(super) host_ns: BTreeMap<String, Quantity>,
}

/// Reads the text; what it means is checked later.
pub(super) fn read(text: &str) -> Result<File, ProfileError> {
    toml::from_str(text).map_err(|error| ProfileError::Bad(error.to_string().trim_end().to_owned()))
}

impl File {
    /// This file, with `base` for what it leaves out. Speeds are taken together or not at all: a device lacks the types that it does not name.
    pub(super) fn over(self, base: Self) -> Self {
        let Memory { capacity, context, host, granule, placement, pack_small, any_size } =
            self.memory;
        let mut link = base.link;
        for (name, own) in self.link {
            let below = link.remove(&name).unwrap_or_default();
            let bandwidth = own.bandwidth.or(below.bandwidth);
            link.insert(name, LinkFile { bandwidth, latency: own.latency.or(below.latency) });
        }
        let (mut cost, mut host_ns) = (base.cost, base.host_ns);
        cost.extend(self.cost);
        host_ns.extend(self.host_ns);
        Self {
            cost_table: self.cost_table.or(base.cost_table),
            memory: Memory {
                capacity: capacity.or(base.memory.capacity),
                context: context.or(base.memory.context),
                host: host.or(base.memory.host),
                granule: granule.or(base.memory.granule),
                placement: placement.or(base.memory.placement),
                pack_small: pack_small.or(base.memory.pack_small),
                any_size: any_size.or(base.memory.any_size),
            },
            speed: if self.speed.is_empty() { base.speed } else { self.speed },
            link,
            cost,
            host_ns,
            ..self
        }
    }

    /// Every figure, by key.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        let mut add = |key: String, quantity: Option<&Quantity>| {
            if let Some(Quantity { value, unit, low, high, source, date, trust }) =
                quantity.cloned()
            {
                figures.push(Figure { key, value, unit, low, high, source, date, trust });
            }
        };
        let Memory { capacity, context, host, granule, .. } = &self.memory;
        for (key, quantity) in
            [("capacity", capacity), ("context", context), ("host", host), ("granule", granule)]
        {
            add(format!("memory.{key}"), quantity.as_ref());
        }
        for (name, quantity) in &self.speed {
            add(format!("speed.{name}"), Some(quantity));
        }
        for (name, link) in &self.link {
            add(format!("link.{name}.bandwidth"), link.bandwidth.as_ref());
            add(format!("link.{name}.latency"), link.latency.as_ref());
        }
        for (name, cost) in &self.cost {
            add(format!("cost.{name}.base"), cost.base.as_ref());
            add(format!("cost.{name}.per_granule"), cost.per_granule.as_ref());
            add(format!("cost.{name}.per_byte"), cost.per_byte.as_ref());
        }
        for (name, quantity) in &self.host_ns {
            add(format!("host_ns.{name}"), Some(quantity));
        }
        figures
    }
}
