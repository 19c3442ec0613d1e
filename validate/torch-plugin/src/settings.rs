//! What the environment says, and which strategies can serve a live process.

use std::path::PathBuf;

use vramlab_allocators::registry::{self, Make};
use vramlab_allocators::{Spec, Strategy};
use vramlab_sim::machine::Memory;
use vramlab_sim::units::Bytes;

/// PyTorch's kernels may take so much for granted, since `cudaMalloc` gives it.
const ALIGNMENT: u64 = 256;

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) spec: Spec,
    pub(crate) limit: Option<u64>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) summary: Option<PathBuf>,
}

impl Settings {
    /// Reads the variables; `ask` gives their values.
    pub(crate) fn read(ask: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let ask = |name: &str| ask(name).filter(|text| !text.is_empty());
        let text = ask("VRAMLAB_STRATEGY").unwrap_or_else(|| "torch.caching".to_owned());
        let wrong = |why: String| format!("VRAMLAB_STRATEGY={text}: {why}");
        let spec: Spec = text.parse().map_err(|e: vramlab_allocators::OptionError| wrong(e.0))?;
        let strategy = registry::find(&spec.strategy().name).map_err(|e| wrong(e.0))?;
        if let Some(why) = unfit(strategy) {
            return Err(wrong(format!("{} {why}", strategy.name)));
        }
        registry::check(&spec).map_err(|e| wrong(e.0))?;
        let limit = ask("VRAMLAB_LIMIT").map(|text| {
            let bytes: Result<Bytes, _> = text.parse();
            bytes.map(|bytes| bytes.0).map_err(|why| format!("VRAMLAB_LIMIT={text}: {why}"))
        });
        Ok(Self {
            spec,
            limit: limit.transpose()?,
            trace: ask("VRAMLAB_TRACE").map(PathBuf::from),
            summary: ask("VRAMLAB_SUMMARY").map(PathBuf::from),
        })
    }
}

/// Why a strategy cannot serve a live process (rule `refused`).
fn unfit(strategy: &Strategy) -> Option<&'static str> {
    match strategy {
        _ if matches!(strategy.make, Make::Ahead(_)) => Some(
            "plans ahead: it needs all requests before the run, which a live process cannot tell",
        ),
        _ if strategy.accesses => Some(
            "needs to know which work uses which buffer, which PyTorch does not tell its allocator",
        ),
        _ if strategy.is_cache() => {
            Some("caches keys and values of sequences; PyTorch asks for buffers")
        }
        _ if strategy.memory == Memory::Host => {
            Some("manages memory of the host; PyTorch asks for the device's")
        }
        _ if strategy.alignment < ALIGNMENT => {
            Some("aligns to less than 256 bytes, which kernels take for granted")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_allocators::STRATEGIES;

    fn read(spec: &str) -> Result<Settings, String> {
        Settings::read(|name| (name == "VRAMLAB_STRATEGY").then(|| spec.to_owned()))
    }

    #[test]
    fn a_strategy_that_cannot_serve_is_refused_with_the_reason() {
        let (mut served, mut refused) = (0, 0);
        for strategy in STRATEGIES {
            match read(strategy.name) {
                Ok(_) => served += 1,
                Err(why) => {
                    assert!(unfit(strategy).is_some_and(|reason| why.contains(reason)), "{why}");
                    refused += 1;
                }
            }
        }
        assert!(served > refused && refused > 0, "{served} served, {refused} refused");
        assert!(
            read("planned.best_gap").is_err_and(|why| why.contains("VRAMLAB_STRATEGY=planned"))
        );
        assert!(
            read("torch.cachin").is_err_and(|why| why.contains("torch.caching")),
            "the nearest"
        );
        assert!(read("torch.caching:max_split_size_mb=1").is_err(), "options are checked");
    }

    #[test]
    fn a_limit_is_a_size() {
        let read = |limit: &'static str| {
            Settings::read(move |name| (name == "VRAMLAB_LIMIT").then(|| limit.to_owned()))
        };
        assert_eq!(read("2GiB").expect("a size").limit, Some(2 << 30));
        assert!(read("much").is_err_and(|why| why.starts_with("VRAMLAB_LIMIT=much: ")));
    }
}
