//! `tiered.*`: buffers live on the device, in pinned host memory, or in a file, and are on the device when work uses them.
//!
//! ```text
//!   workload ──requests, announced work──▶ Tiered ──▶ inner strategy ──▶ device memory
//!                                            │ ▲
//!                        uses to come ───────┘ └───▶ host chunks, file, copy streams
//!        (Nothing | Oracle | Plan | Adaptive)
//! ```
//!
//! Models no one system: it is what the systems below have in common, with the policies side by side.
//!
//! | rule | what it says | source | file |
//! |---|---|---|---|
//! | `born` | a request is served on the device, for which buffers leave that were not named by the last announcement; if that makes no room, in pinned host memory, which the device can reach, until work uses it; one that the empty device could not hold is refused | a placement holds until the next announcement | `strategy` |
//! | `resident`, `fresh`, `prefetch`, `write_through` | all buffers of a piece of work are there before it is queued; what is foreseen comes ahead | vDNN (Rhu et al., MICRO 2016); ZeRO-Infinity (Rajbhandari et al., SC 2021) | `uses` |
//! | `victim`, `clean`, `small`, `refused`, `spare_first` | who leaves, and when without a copy | Belady 1966; SwapAdvisor (Huang et al., ASPLOS 2020); DeepSpeed | `room` |
//! | `copy_streams`, `wait`, `marks` | copies run beside work, ordered by events | SwapAdvisor; vDNN | `lines`, `moves` |
//! | `pinned_pool`, `leaving` | host memory is pinned once and kept | ZeRO-Infinity; ZeRO-Offload (Ren et al., ATC 2021) | `host` |
//! | `compress` | what leaves is made smaller by a kernel on the copy stream, in place, and the same back; scratch memory is not modelled | nvcomp's use in cDMA (Rhu et al., HPCA 2018) | `moves` |
//! | `restart`, `survives`, `lost` | what a restart leaves of it | - | `restart` |
//! | `right`, `wrong`, `order` | an oracle of which a given share is right | - | `blurred` |
//! | `next_use`, `dead` | the oracle | Belady; SuperNeurons (Wang et al., PPoPP 2018) | `oracle` |
//! | `deltas`, `accuracy` | what is predicted, and when it was right | Hashemi et al., ICML 2018 | `plan`, `markov`, `stride`, `lstm` |
//! | `training`, `inference` | which policy when | - | `adaptive` |
//! | `wait_ns`, `late` | time that streams stood still, measured by events | CUDA runtime API | `stopwatch` |
//!
//! **Figures.** The usage is the inner strategy's: bytes of the device. `resident` and `peak_resident` are live bytes on the device. Host memory is
//! the machine's to count.
//!
//! **Without announced work** nothing is ever known to be out of use, so nothing moves: what the device refuses lies in host memory, and
//! there is no room when that is full too. With it, a buffer may be moved from the first announcement on that does not name it.
//!
//! **Left out**: buffers that captured graphs know stay where they are; a buffer moves whole; work on the host (optimizer steps of ZeRO-Offload);
//! a buffer's uses that no work names, but for what filled it before its first use.

mod adaptive;
mod blurred;
mod buffers;
mod counters;
mod file;
mod foresight;
mod host;
mod lines;
mod lstm;
mod markov;
mod moves;
mod oracle;
mod order;
mod plan;
mod restart;
mod room;
mod settings;
mod stopwatch;
mod strategy;
mod stride;
mod uses;

use vramlab_sim::allocator::Allocator;
use vramlab_sim::future::Future;

use crate::options::{OptionError, Options};
use crate::registry::{Made, Status, Strategy};

use adaptive::Adaptive;
use blurred::Blurred;
use foresight::{Foresight, Nothing};
use lstm::Lstm;
use markov::Markov;
use oracle::Oracle;
use plan::Plan;
use settings::{ACCURACY, BLUR_SEED, PREDICTOR, SEED, Settings, WINDOW, inert};
use strategy::Tiered;
use stride::Stride;

/// The registry's line of `tiered.lru`.
pub const LRU: Strategy = Strategy::plain(
    "tiered.lru",
    |options| build("tiered.lru", options, None, &Future::default()),
    Status::Model,
    settings::LRU,
    "device, pinned host, file: what was used longest ago leaves the device",
)
.needs_accesses()
.shares(|_| true)
.inert(inert);

/// The registry's line of `tiered.next_use`.
pub const NEXT_USE: Strategy = Strategy::ahead(
    "tiered.next_use",
    |options, future| build("tiered.next_use", options, None, future),
    Status::Model,
    settings::NEXT_USE,
    "the same by an oracle: what is used again last leaves, and comes back ahead",
)
.needs_accesses()
.shares(|_| true)
.inert(inert);

/// The registry's line of `tiered.predicted`.
pub const PREDICTED: Strategy = Strategy::plain(
    "tiered.predicted",
    |options| build("tiered.predicted", options, None, &Future::default()),
    Status::Model,
    settings::PREDICTED,
    "the same by a predictor that learns from the ops so far",
)
.needs_accesses()
.shares(|_| true)
.inert(inert);

/// The registry's line of `tiered.adaptive`.
pub const ADAPTIVE: Strategy = Strategy::plain(
    "tiered.adaptive",
    |options| build("tiered.adaptive", options, None, &Future::default()),
    Status::Model,
    settings::ADAPTIVE,
    "the same, switched by what recent works look like: training, inference",
)
.needs_accesses()
.shares(|_| true)
.inert(inert);

/// One of the family around a strategy of one's own for the device tier, such as one under audit, in place of the option `inner`.
///
/// # Errors
/// A name that is not of the family, an unknown option, a bad value.
pub fn around(name: &str, options: &Options, inner: Box<dyn Allocator>, future: &Future) -> Made {
    build(name, options, Some(inner), future)
}

/// One of the family, and how it foresees.
struct Line {
    strategy: Strategy,
    foresight: fn(&Options, &Future) -> Foresees,
}

static LINES: [Line; 4] = [
    Line { strategy: LRU, foresight: |_, _| Ok(Box::new(Nothing)) },
    Line { strategy: NEXT_USE, foresight: oracle },
    Line { strategy: PREDICTED, foresight: |options, _| predictor(options) },
    Line { strategy: ADAPTIVE, foresight: |options, _| adaptive(options) },
];

fn build(
    name: &str,
    options: &Options,
    inner: Option<Box<dyn Allocator>>,
    future: &Future,
) -> Made {
    let line = LINES.iter().find(|line| line.strategy.name == name);
    let line = line.ok_or_else(|| OptionError(format!("{name:?} is not of the tiered family")))?;
    options.check(name, line.strategy.options)?;
    let foresight = (line.foresight)(options, future)?;
    let settings = Settings::parse(options)?;
    let inner = match inner {
        Some(inner) => inner,
        None => settings::inner(options)?,
    };
    Ok(Box::new(Tiered::new(inner, settings, foresight)))
}

type Foresees = Result<Box<dyn Foresight>, OptionError>;

fn oracle(options: &Options, future: &Future) -> Foresees {
    let expected = "a share from 0 to 1";
    let accuracy: f64 = options.parse(ACCURACY.name, expected, 1.0)?;
    if !(0.0..=1.0).contains(&accuracy) {
        return Err(OptionError(format!(
            "option {}={accuracy}: expected {expected}",
            ACCURACY.name
        )));
    }
    let seed = options.parse(BLUR_SEED.name, "a number", 0)?;
    let oracle: Box<dyn Foresight> = Box::new(Oracle::new(future));
    Ok(if accuracy < 1.0 { Box::new(Blurred::new(oracle, accuracy, seed)) } else { oracle })
}

fn predictor(options: &Options) -> Foresees {
    let seed = options.parse(SEED.name, "a number", 0)?;
    match options.get(PREDICTOR.name).unwrap_or(PREDICTOR.default) {
        "markov" => Ok(Box::new(Plan::new(Markov::new()))),
        "stride" => Ok(Box::new(Plan::new(Stride::new()))),
        "lstm" => Ok(Box::new(Plan::new(Lstm::new(seed)))),
        text => {
            let expected = "expected markov, stride or lstm";
            Err(OptionError(format!("option {}={text}: {expected}", PREDICTOR.name)))
        }
    }
}

fn adaptive(options: &Options) -> Foresees {
    let expected = "a number of works, 16 or more";
    let window: u64 = options.parse(WINDOW.name, expected, 128)?;
    if window < 16 {
        return Err(OptionError(format!("option {}={window}: expected {expected}", WINDOW.name)));
    }
    Ok(Box::new(Adaptive::new(window)))
}

#[cfg(test)]
mod tests;
