//! What can be set: GMLake's own variables by name, and PyTorch's settings text.
//!
//! Source: antgroup/glake at fb24ee8, `GMLake/src/CUDACachingAllocator.cpp`, the line with each option; the text in lines 706-937.

use vramlab_sim::units::Bytes;

use super::conf::{self, CLASSES};
use crate::options::{OptionDoc, OptionError, Options};

/// The strategy's name in messages.
pub(super) const NAME: &str = "stitch.gmlake";

const fn option(name: &'static str, default: &'static str, help: &'static str) -> OptionDoc {
    OptionDoc { name, default, help }
}

/// Every option: the environment variables of the real one under their own names, and `conf`.
pub(super) const OPTIONS: &[OptionDoc] = &[
    // 1216-1220
    option("vmmDefragment", "1", "0 or less: no mapped memory, plain device mallocs"),
    // 2712-2716
    option("fragLimit", "536870912", "smallest rounded request that is stitched, in bytes"),
    // 2267-2271
    option("reuseLimit", "10", "a cached stitched block is at most this many times the request"),
    // 2719-2723
    option(
        "defragLevel",
        "0",
        "stitch before memory is created (0), after that failed (1), or after the cache was released (2)",
    ),
    // 2726-2730
    option("autoGC", "1000", "idle stitched blocks are collected above so many GiB of them"),
    // 3072-3076
    option("reAlloc", "0", "1: create only what the free blocks lack, and stitch"),
    // 909-928
    option("conf", "", "PyTorch 2.0's settings text, verbatim, as in PYTORCH_CUDA_ALLOC_CONF"),
];

/// Everything that can be set. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) mapped: bool,
    pub(super) frag_limit: u64,
    pub(super) reuse_limit: f64,
    pub(super) defrag_level: i32,
    /// `None`: never, which the real one's conversion of a negative number comes to.
    pub(super) auto_gc: Option<u64>,
    pub(super) realloc: bool,
    /// Blocks of this size and above are not split, and serve requests of about their size only.
    pub(super) max_split: Option<u64>,
    /// Steps between powers of two, by class; 0 and 1: none.
    pub(super) divisions: [u64; CLASSES],
}

impl Settings {
    pub(super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        options.check(NAME, OPTIONS)?;
        let number = |name, default| options.parse::<i32>(name, "a whole number", default);
        let frag_limit =
            options.parse("fragLimit", "a size in bytes such as 67108864", Bytes::mib(512))?.0;
        let reuse_limit: f64 = options.parse("reuseLimit", "a number such as 1.2", 10.0)?;
        if !reuse_limit.is_finite() {
            return Err(OptionError(format!(
                "option reuseLimit={reuse_limit}: expected a number such as 1.2"
            )));
        }
        let auto_gc = u64::try_from(number("autoGC", 1000)?).ok();
        let text = options.get("conf").unwrap_or_default();
        let conf = conf::parse(text).map_err(|why| OptionError(format!("{NAME}: {why}")))?;
        Ok(Self {
            mapped: number("vmmDefragment", 1)? > 0,
            frag_limit,
            reuse_limit,
            defrag_level: number("defragLevel", 0)?,
            auto_gc: auto_gc.map(|gib| Bytes::gib(gib).0),
            realloc: number("reAlloc", 0)? > 0,
            max_split: conf.max_split,
            divisions: conf.divisions,
        })
    }
}

/// Options without effect, and why.
pub(super) fn inert(options: &Options) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(settings) = Settings::from_options(options) else { return found };
    if !settings.mapped {
        let idle = ["fragLimit", "reuseLimit", "defragLevel", "autoGC", "reAlloc"];
        found.extend(idle.iter().filter(|name| options.get(name).is_some()).map(|name| {
            format!("{name} has no effect: with vmmDefragment=0 there is nothing to stitch")
        }));
    }
    if options.get("conf").is_some_and(|text| text.contains("garbage_collection_threshold")) {
        found.push(
            "garbage_collection_threshold has no effect: it is a share of a memory fraction, which is not modelled".into(),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(pairs: &[(&str, &str)]) -> Result<Settings, OptionError> {
        Settings::from_options(&Options::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn options_have_the_real_names_and_defaults() {
        let written = OPTIONS.iter().map(|doc| (doc.name, doc.default));
        let written: Vec<_> = written.filter(|(_, default)| !default.is_empty()).collect();
        assert_eq!(from(&written), from(&[]));
        let settings = from(&[("autoGC", "-1"), ("vmmDefragment", "0")]).expect("accepted");
        assert_eq!((settings.auto_gc, settings.mapped), (None, false));
    }

    #[test]
    fn bad_values_are_named() {
        for (name, value) in [
            ("fragLimit", "-1"),
            ("reuseLimit", "inf"),
            ("reAlloc", "true"),
            ("autoGC", "1GiB"),
            ("fraglimit", "1"),
        ] {
            let error = from(&[(name, value)]).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn what_has_no_effect_is_said() {
        let said = |pairs: &[(&str, &str)]| inert(&Options::from_pairs(pairs.iter().copied()));
        assert_eq!(said(&[("fragLimit", "1")]).len(), 0);
        assert_eq!(said(&[("fragLimit", "1"), ("vmmDefragment", "0")]).len(), 1);
        assert_eq!(said(&[("conf", "garbage_collection_threshold:0.5")]).len(), 1);
    }
}
