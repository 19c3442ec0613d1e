//! What can be set, by option or by PyTorch's own settings text, and which version knows what.
//!
//! | rule | what it says |
//! |---|---|
//! | `known` | each version refuses what it does not know: `large_segment_size_mb`, `per_process_memory_fraction`, `throw_on_cudamalloc_oom` and `expandable_segments_reserve` came after 2.9 (RULES 32); `legacy` has no settings |
//! | `fallback` | of settings given while running, the split limit, divisions and collection threshold that are not named fall back to their defaults, and in 2.15 the non-split rounding; the rest stays (RULES 30, `conf_reset`) |
//! | `fraction-once` | `per_process_memory_fraction` makes a limit at the start only (RULES 30, `config_fraction`); `throw_on_cudamalloc_oom` goes by its latest value |
//! | `all-or-none` | a refused text changes nothing. Departure: PyTorch keeps what it read before the error |
//!
//! Source: `c10/core/AllocatorConfig.cpp` and `c10/cuda/CUDAAllocatorConfig.cpp`, 2.15 and 2.9.1, and what the compiled libraries answer.

use std::fmt;

use crate::options::{OptionDoc, OptionError, Options, boolean};

use super::conf;

pub(super) const MIB: u64 = 1 << 20;
/// Power-of-two classes of request sizes with divisions of their own: 1 MiB to 32 GiB, the last one open above.
pub(super) const CLASSES: usize = 16;
/// Segment for requests of the large pool that are too small for one of their own.
pub(super) const LARGE_SEGMENT_SIZE: u64 = 20 * MIB;

/// Whose rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Before 2019 (read: 0.4.1): exact segments above 1 MiB, no settings.
    Legacy,
    /// 2.9.
    V2_9,
    /// 2.15.
    V2_15,
}

impl Version {
    /// Names that are accepted, the shortest first.
    const NAMES: [(&'static str, Version); 5] = [
        ("2.15", Version::V2_15),
        ("2.15.0", Version::V2_15),
        ("2.9", Version::V2_9),
        ("2.9.1", Version::V2_9),
        ("legacy", Version::Legacy),
    ];

    fn parse(text: &str) -> Result<Self, OptionError> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, version)| *version).ok_or_else(
            || OptionError(format!("option version={text}: expected 2.15, 2.9 or legacy")),
        )
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::Legacy => "legacy",
            Version::V2_9 => "2.9",
            Version::V2_15 => "2.15",
        })
    }
}

/// Which allocator the settings choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backend {
    /// The caching allocator.
    Native,
    /// The driver's stream-ordered pool.
    CudaMallocAsync,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::CudaMallocAsync => "cudaMallocAsync",
        })
    }
}

/// Size of the address range of an expandable segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reserve {
    /// Of the device's memory.
    Fraction(f64),
    /// GiB.
    Gib(f64),
}

/// What the cache of pinned host memory can be told. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PinnedSettings {
    /// Memory is pinned by registering it, by so many threads.
    pub(super) register: bool,
    pub(super) register_threads: u64,
    /// Another thread looks at events.
    pub(super) background: bool,
    /// A segment made first, from which blocks are cut while it lasts; 0: none.
    pub(super) reserve: u64,
    /// Larger requests are not rounded up.
    pub(super) round_max: u64,
    /// Larger blocks are not kept.
    pub(super) cached_max: u64,
    /// Errors of a free are swallowed.
    pub(super) catch_all: bool,
}

impl PinnedSettings {
    const DEFAULT: Self = Self {
        register: false,
        register_threads: 1,
        background: false,
        reserve: 0,
        round_max: u64::MAX,
        cached_max: u64::MAX,
        catch_all: false,
    };
}

/// Everything that can be set. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) version: Version,
    /// Chosen at the start, by the first `backend` there is.
    pub(super) backend: Backend,
    /// Blocks of this size and above are not split; `None`: no limit.
    pub(super) max_split: Option<u64>,
    /// `None`: the large segment size.
    pub(super) max_non_split_rounding: Option<u64>,
    /// Steps between powers of two, by class; 0 and 1: none.
    pub(super) divisions: [u64; CLASSES],
    /// 0: no collection.
    pub(super) gc_threshold: f64,
    pub(super) expandable: bool,
    /// `None`: 9/8 of the device's memory.
    pub(super) expandable_reserve: Option<Reserve>,
    pub(super) large_segment: u64,
    /// `per_process_memory_fraction` as it was named last; 1: none.
    pub(super) fraction: f64,
    pub(super) throw_on_oom: bool,
    pub(super) pinned: PinnedSettings,
    /// A proposed fix, in no release: look in the pool once more after outstanding work was waited for.
    pub(super) research_after_sync: bool,
}

impl Settings {
    pub(super) fn new(version: Version) -> Self {
        Self {
            version,
            backend: Backend::Native,
            max_split: None,
            max_non_split_rounding: None,
            divisions: [0; CLASSES],
            gc_threshold: 0.0,
            expandable: false,
            expandable_reserve: None,
            large_segment: LARGE_SEGMENT_SIZE,
            fraction: 1.0,
            throw_on_oom: false,
            pinned: PinnedSettings::DEFAULT,
            research_after_sync: false,
        }
    }

    /// The settings after PyTorch read `text`, at the start or while running.
    ///
    /// # Errors
    /// PyTorch's own words; where they say nothing to a reader, an explanation follows in brackets.
    pub(super) fn with_text(&self, text: &str, at_start: bool) -> Result<Self, String> {
        let mut settings = self.clone();
        settings.max_split = None;
        if self.version != Version::V2_9 {
            settings.max_non_split_rounding = None;
        }
        settings.divisions = [0; CLASSES];
        settings.gc_threshold = 0.0;
        match self.version {
            Version::Legacy if text.trim().is_empty() => {}
            Version::Legacy => {
                return Err(format!(
                    "version=legacy has no settings, found {text:?}; PYTORCH_CUDA_ALLOC_CONF came in 2021"
                ));
            }
            Version::V2_9 => conf::parse_2_9(text, &mut settings, at_start)?,
            Version::V2_15 => conf::parse_2_15(text, &mut settings, at_start)?,
        }
        Ok(settings)
    }

    /// From the options of a spec.
    ///
    /// # Errors
    /// An unknown option, or a value that PyTorch refuses, in its own words.
    pub(super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        const NAME: &str = "torch.caching";
        options.check(NAME, OPTIONS)?;
        let version = options.get("version").map_or(Ok(Version::V2_15), Version::parse)?;
        let mut settings = Self::of(NAME, version, options, &OWN)?;
        settings.research_after_sync = options.flag("research_pool_after_sync", false)?;
        Ok(settings)
    }

    /// From PyTorch's text in `conf` and from options that have its names, all but `own`.
    ///
    /// # Errors
    /// A value that PyTorch refuses, in its own words.
    pub(super) fn of(
        strategy: &str,
        version: Version,
        options: &Options,
        own: &[&str],
    ) -> Result<Self, OptionError> {
        let mut text = options.get(CONF).unwrap_or_default().to_owned();
        let given = options
            .iter()
            .filter(|(key, value)| *key != CONF && !own.contains(key) && *value != NONE_GIVEN);
        for (key, value) in given {
            let value = own_spelling(key, value)?;
            let comma = if text.trim().is_empty() { "" } else { "," };
            text.push_str(&format!("{comma}{key}:{value}"));
        }
        Self::new(version)
            .with_text(&text, true)
            .map_err(|why| OptionError(format!("{strategy}: {why}")))
    }
}

/// The option that holds a settings text.
const CONF: &str = "conf";

pub(super) const fn option(
    name: &'static str,
    default: &'static str,
    help: &'static str,
) -> OptionDoc {
    OptionDoc { name, default, help }
}

/// Every option; the first ones are ours, the others PyTorch's settings of that name.
pub(super) const OPTIONS: &[OptionDoc] = &[
    option("version", "2.15", "whose rules: 2.15, 2.9 or legacy (before 2019)"),
    option("conf", "", "PyTorch's settings text, verbatim, as in PYTORCH_CUDA_ALLOC_CONF"),
    option(
        "research_pool_after_sync",
        "false",
        "a proposed fix: search once more before giving up (true or false)",
    ),
    option("backend", "native", "native, or cudaMallocAsync: the driver's stream-ordered pool"),
    option("max_split_size_mb", "none", "blocks of this size and above are not split (MiB)"),
    option(
        "max_non_split_rounding_mb",
        "20",
        "how much larger than the request such a block may be (MiB)",
    ),
    option(
        "roundup_power2_divisions",
        "1",
        "steps between powers of two that requests are rounded up to: 4, or [256:1,512:2,>:4]",
    ),
    option(
        "garbage_collection_threshold",
        "none",
        "share of the memory limit above which old cached segments are released (0 to 1)",
    ),
    option("expandable_segments", "false", "one growing range per stream instead of segments"),
    option(
        "expandable_segments_reserve",
        "1.125",
        "addresses per expandable segment: a share of the device, or a size such as 40G",
    ),
    option("large_segment_size_mb", "20", "segment for requests from 1 to 10 MiB (MiB, above 10)"),
    option(
        "per_process_memory_fraction",
        "1.0",
        "share of the device that may be reserved (0 to 1; 1 is no limit)",
    ),
    option(
        "throw_on_cudamalloc_oom",
        "false",
        "refuse at once what would pass the device, without releasing anything",
    ),
];

/// As if the option were not there.
const NONE_GIVEN: &str = "none";

/// Those of the options that are ours.
const OWN: [&str; 2] = ["version", "research_pool_after_sync"];

/// Settings that are a yes or no.
const FLAGS: [&str; 5] = [
    "expandable_segments",
    "throw_on_cudamalloc_oom",
    "pinned_use_cuda_host_register",
    "pinned_use_background_threads",
    "pinned_free_catch_all",
];

/// The value of an option as PyTorch's settings text spells it. Checks what that text would take for something else.
fn own_spelling(key: &str, value: &str) -> Result<String, OptionError> {
    if FLAGS.contains(&key) {
        return match boolean(value) {
            Some(true) => Ok("True".into()),
            Some(false) => Ok("False".into()),
            None => Err(OptionError(format!("option {key}={value}: expected true or false"))),
        };
    }
    let listed = key == "roundup_power2_divisions" && value.trim_start().starts_with('[');
    if value.trim().is_empty() || (!listed && value.contains([',', ':', '[', ']'])) {
        let list = if key == "roundup_power2_divisions" {
            " or a list such as [256:1,512:2,>:4]"
        } else {
            ""
        };
        return Err(OptionError(format!("option {key}={value}: expected a number{list}")));
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Settings, OptionError> {
        Settings::from_options(&Options::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn options_and_text_are_one() {
        let text =
            "max_split_size_mb:128,expandable_segments:True,roundup_power2_divisions:[64:8,>:1]";
        let by_text = from(&[("conf", text)]).expect("accepted");
        let by_key = from(&[
            ("max_split_size_mb", "128"),
            ("expandable_segments", "true"),
            ("roundup_power2_divisions", "[64:8,>:1]"),
        ]);
        assert_eq!(by_key.expect("accepted"), by_text);
        assert_eq!(by_text.max_split, Some(128 * MIB));
        assert!(by_text.expandable);
    }

    #[test]
    fn a_version_refuses_what_it_does_not_know() {
        let error = from(&[("version", "2.9"), ("large_segment_size_mb", "32")]).expect_err("new");
        assert!(
            error.0.contains("Unrecognized CachingAllocator option: large_segment_size_mb"),
            "{error}"
        );
        let error =
            from(&[("version", "legacy"), ("conf", "max_split_size_mb:64")]).expect_err("old");
        assert!(error.0.contains("version=legacy has no settings"), "{error}");
        assert!(from(&[("version", "1.0")]).is_err());
    }

    #[test]
    fn a_value_cannot_smuggle_in_another_setting() {
        let error = from(&[("max_split_size_mb", "64,expandable_segments:True")]).expect_err("two");
        assert!(error.0.contains("expected a number"), "{error}");
        assert!(from(&[("expandable_segments", "maybe")]).is_err());
        assert!(
            from(&[("max_split_size", "64")])
                .expect_err("unknown")
                .0
                .contains("did you mean max_split_size_mb")
        );
    }

    #[test]
    fn settings_while_running_fall_back_or_stay() {
        let start = from(&[(
            "conf",
            "max_split_size_mb:64,garbage_collection_threshold:0.5,expandable_segments:True,large_segment_size_mb:32,throw_on_cudamalloc_oom:True",
        )])
        .expect("accepted");
        let later = start.with_text("", false).expect("accepted");
        assert_eq!((later.max_split, later.gc_threshold), (None, 0.0));
        assert!(later.expandable && later.throw_on_oom);
        assert_eq!(later.large_segment, 32 * MIB);
    }
}
