//! Options that all strategies of the family take.

use vramlab_sim::allocator::Allocator;
use vramlab_sim::machine::Memory;
use vramlab_sim::units::Bytes;

use crate::options::{OptionDoc, OptionError, Options, Spec};
use crate::registry;

const INNER: OptionDoc = OptionDoc {
    name: "inner",
    default: "torch.caching",
    help: "strategy of the device tier, with its options in quotes",
};
const DEVICE_BYTES: OptionDoc = OptionDoc {
    name: "device_bytes",
    default: "all",
    help: "what the device tier may hold: all that the device has, or a size",
};
const HOST_BYTES: OptionDoc = OptionDoc {
    name: "host_bytes",
    default: "any",
    help: "what the host tier may hold: any, or a size; 0: there is none",
};
const HOST_CHUNK: OptionDoc = OptionDoc {
    name: "host_chunk",
    default: "64MiB",
    help: "least size in which pinned host memory is taken",
};
const MIN_BYTES: OptionDoc = OptionDoc {
    name: "min_bytes",
    default: "1MiB",
    help: "smaller buffers leave the device only when nothing else is left (DeepSpeed: stage3_param_persistence_threshold)",
};
const COMPRESS: OptionDoc = OptionDoc {
    name: "compress",
    default: "none",
    help: "ratio:rate: what leaves the device is made so many times smaller, at so many GB/s, and the same back; 2:100",
};
const PERSISTENT: OptionDoc = OptionDoc {
    name: "persistent",
    default: "none",
    help: "a tier in a file that survives a restart: none, write_back (what must leave the host goes there), write_through (every write goes there)",
};
const RESTART_AT: OptionDoc = OptionDoc {
    name: "restart_at",
    default: "never",
    help: "what device and host hold is lost after so many announced works, or at the first mark with this name",
};
pub(super) const PREFETCH_LEAD: OptionDoc = OptionDoc {
    name: "prefetch_lead",
    default: "16",
    help: "buffers that are foreseen to be used come back so many announced works ahead; 0: none does",
};
pub(super) const PREDICTOR: OptionDoc = OptionDoc {
    name: "predictor",
    default: "markov",
    help: "what foresees: markov, stride or lstm",
};
pub(super) const SEED: OptionDoc =
    OptionDoc { name: "seed", default: "0", help: "of the weights that the lstm begins with" };
pub(super) const ACCURACY: OptionDoc = OptionDoc {
    name: "accuracy",
    default: "1",
    help: "share of the foreseen uses that are right, from 0 to 1; others bring some other buffer",
};
pub(super) const BLUR_SEED: OptionDoc = OptionDoc {
    name: "accuracy_seed",
    default: "0",
    help: "decides which foreseen uses are wrong",
};
pub(super) const WINDOW: OptionDoc = OptionDoc {
    name: "window",
    default: "128",
    help: "announced works after which it is judged anew what they look like",
};

/// Options of `tiered.lru`.
pub(crate) const LRU: &[OptionDoc] =
    &[INNER, DEVICE_BYTES, HOST_BYTES, HOST_CHUNK, MIN_BYTES, COMPRESS, PERSISTENT, RESTART_AT];
/// Options of `tiered.next_use`.
pub(crate) const NEXT_USE: &[OptionDoc] = &[
    INNER,
    DEVICE_BYTES,
    HOST_BYTES,
    HOST_CHUNK,
    MIN_BYTES,
    COMPRESS,
    PERSISTENT,
    RESTART_AT,
    PREFETCH_LEAD,
    ACCURACY,
    BLUR_SEED,
];
/// Options of `tiered.predicted`.
pub(crate) const PREDICTED: &[OptionDoc] = &[
    INNER,
    DEVICE_BYTES,
    HOST_BYTES,
    HOST_CHUNK,
    MIN_BYTES,
    COMPRESS,
    PERSISTENT,
    RESTART_AT,
    PREFETCH_LEAD,
    PREDICTOR,
    SEED,
];
/// Options of `tiered.adaptive`.
pub(crate) const ADAPTIVE: &[OptionDoc] = &[
    INNER,
    DEVICE_BYTES,
    HOST_BYTES,
    HOST_CHUNK,
    MIN_BYTES,
    COMPRESS,
    PERSISTENT,
    RESTART_AT,
    PREFETCH_LEAD,
    WINDOW,
];

/// How written contents reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistent {
    None,
    WriteBack,
    WriteThrough,
}

/// When device and host lose what they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RestartAt {
    Work(u64),
    Mark(String),
}

/// What compression does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Compress {
    ratio: f64,
    bytes_per_ns: f64,
}

impl Compress {
    /// Bytes that `size` bytes become.
    pub(super) fn bytes(self, size: u64) -> u64 {
        ((size as f64 / self.ratio).ceil() as u64).clamp(1, size)
    }

    /// ns that it takes, either way.
    pub(super) fn ns(self, size: u64) -> u64 {
        (size as f64 / self.bytes_per_ns).round() as u64
    }
}

/// The values.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) device_bytes: u64,
    pub(super) host_bytes: u64,
    pub(super) host_chunk: u64,
    pub(super) min_bytes: u64,
    pub(super) compress: Option<Compress>,
    pub(super) persistent: Persistent,
    pub(super) restart_at: Option<RestartAt>,
    pub(super) prefetch_lead: u64,
}

fn bad(key: &str, found: &str, expected: &str) -> OptionError {
    OptionError(format!("option {key}={found}: expected {expected}"))
}

/// A size, or the word that stands for no limit.
fn limit(options: &Options, doc: &OptionDoc) -> Result<u64, OptionError> {
    match options.get(doc.name) {
        None => Ok(u64::MAX),
        Some(word) if word == doc.default => Ok(u64::MAX),
        Some(text) => text
            .parse::<Bytes>()
            .map(|bytes| bytes.0)
            .map_err(|_| bad(doc.name, text, &format!("{} or a size such as 4GiB", doc.default))),
    }
}

fn compress(options: &Options) -> Result<Option<Compress>, OptionError> {
    let text = options.get(COMPRESS.name).unwrap_or(COMPRESS.default);
    if text == COMPRESS.default {
        return Ok(None);
    }
    let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    let parts = text.split_once(':').and_then(|(ratio, rate)| {
        Some(Compress { ratio: number(ratio)?, bytes_per_ns: number(rate)? })
    });
    let fine = parts.filter(|compress| compress.ratio >= 1.0);
    let expected = "none, or a ratio of at least 1 and a rate in GB/s, such as 2:100";
    fine.map(Some).ok_or_else(|| bad(COMPRESS.name, text, expected))
}

impl Settings {
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let persistent = match options.get(PERSISTENT.name).unwrap_or(PERSISTENT.default) {
            "none" => Persistent::None,
            "write_back" => Persistent::WriteBack,
            "write_through" => Persistent::WriteThrough,
            text => {
                return Err(bad(PERSISTENT.name, text, "none, write_back or write_through"));
            }
        };
        let restart_at = match options.get(RESTART_AT.name) {
            None => None,
            Some(word) if word == RESTART_AT.default => None,
            Some("") => return Err(bad(RESTART_AT.name, "", "never, a number or a mark's name")),
            Some(text) => Some(match text.parse() {
                Ok(work) => RestartAt::Work(work),
                Err(_) => RestartAt::Mark(text.to_owned()),
            }),
        };
        let size = |doc: &OptionDoc, default| {
            let bytes: Bytes = options.parse(doc.name, "a size such as 64MiB", default)?;
            Ok(bytes.0)
        };
        Ok(Self {
            device_bytes: limit(options, &DEVICE_BYTES)?,
            host_bytes: limit(options, &HOST_BYTES)?,
            host_chunk: size(&HOST_CHUNK, Bytes::mib(64))?,
            min_bytes: size(&MIN_BYTES, Bytes::mib(1))?,
            compress: compress(options)?,
            persistent,
            restart_at,
            prefetch_lead: options.parse(PREFETCH_LEAD.name, "a number of works", 16)?,
        })
    }
}

/// The strategy of the device tier.
pub(super) fn inner(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    let text = options.get(INNER.name).unwrap_or(INNER.default);
    let spec: Spec = text.parse()?;
    let strategy = registry::find(&spec.strategy().name)?;
    let expected = match () {
        () if strategy.plans_ahead() => "one that does not plan ahead",
        () if strategy.accesses => "one that does not move buffers itself",
        () if strategy.memory != Memory::Device => "one of device memory",
        () => return registry::build(&spec),
    };
    Err(bad(INNER.name, text, expected))
}

/// Options without effect.
pub(super) fn inert(options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    if options.get(SEED.name).is_some() && options.get(PREDICTOR.name) != Some("lstm") {
        notes.push("seed: only the lstm draws".to_owned());
    }
    if options.get(BLUR_SEED.name).is_some() && options.get(ACCURACY.name).is_none() {
        notes.push("accuracy_seed: nothing is drawn while accuracy is 1".to_owned());
    }
    if options.get(HOST_BYTES.name).is_some_and(|text| text.parse() == Ok(Bytes(0))) {
        notes.push("host_bytes=0: without a host tier nothing leaves the device".to_owned());
        if options.get(PERSISTENT.name).is_some_and(|text| text != PERSISTENT.default) {
            notes.push("persistent: without a host tier nothing reaches the file".to_owned());
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, OptionError> {
        Settings::parse(&Options::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn compression_is_a_ratio_and_a_rate() {
        let compress = settings(&[("compress", "2.5:100")]).expect("fine").compress;
        let compress = compress.expect("on");
        assert_eq!((compress.bytes(1000), compress.ns(1_000_000)), (400, 10_000));
        assert_eq!(compress.bytes(1), 1);
        for text in ["2", "0.5:1", "2:0", "2:inf", "a:b", ":"] {
            let error = settings(&[("compress", text)]).expect_err(text).to_string();
            assert!(error.contains(text) && error.contains("2:100"), "{error}");
        }
    }

    #[test]
    fn a_bad_value_says_what_was_expected() {
        for (key, value, part) in [
            ("persistent", "maybe", "write_through"),
            ("device_bytes", "some", "4GiB"),
            ("host_bytes", "-1", "any"),
            ("min_bytes", "x", "64MiB"),
            ("prefetch_lead", "-1", "number of works"),
        ] {
            let error = settings(&[(key, value)]).expect_err(key).to_string();
            assert!(error.contains(key) && error.contains(part), "{error}");
        }
    }

    #[test]
    fn without_a_host_tier_neither_it_nor_the_file_is_used() {
        let notes = |pairs: &[(&str, &str)]| inert(&Options::from_pairs(pairs.iter().copied()));
        assert!(notes(&[("persistent", "write_through")]).is_empty());
        assert_eq!(notes(&[("host_bytes", "0"), ("persistent", "none")]).len(), 1);
        let both = notes(&[("host_bytes", "0B"), ("persistent", "write_back")]);
        assert!(both.len() == 2 && both[1].starts_with("persistent:"), "{both:?}");
    }

    #[test]
    fn an_inner_strategy_owns_device_memory_and_does_not_move_it() {
        let build = |text: &str| inner(&Options::from_pairs([("inner", text)]));
        assert!(build("classic.best_fit:align=256").is_ok());
        for (text, part) in [
            ("tiered.lru", "does not move buffers"),
            ("torch.cacing", "did you mean"),
            ("torch.caching:no_such=1", "no_such"),
        ] {
            let error = build(text).err().expect(text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
