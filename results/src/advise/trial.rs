//! One setting, replayed: its figures, a digest of every placement, and what it is worth beside the defaults.
//!
//! | verdict | when |
//! |---|---|
//! | `not in this version` | the strategy does not know an option, in the real system's words |
//! | `refused` | the strategy refuses a value, or options that exclude each other |
//! | `driver_error` | the driver or the strategy ended the run |
//! | `default`, `recorded` | no setting; the recording's own |
//! | `does nothing here` | every request got the same address and size as with the defaults, or failed as there, and every figure is equal |
//! | `helps` | no request fails, and some did or the peak of reserved bytes falls by at least 1 % |
//! | `not enough` | fewer requests fail, but some |
//! | `costs` | more requests fail, or none fails and the peak rises |
//! | `no help` | the rest |
//! | `dominated` | stopped: more requests had failed, or more was reserved, than in the whole of a better run |

use serde::Serialize;
use vramlab_sim::engine::{Observer, Outcome, Seen};

use super::setting::{Family, Setting};
use crate::failure::Failure;
use crate::job::{Input, Place, run_pair};
use crate::row::Row;

/// A saving of peak reserved below this share is not called help.
pub const HELPS_FROM: f64 = 0.01;

/// A setting, tried.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// Its place among all, from 1.
    pub rank: usize,
    /// The settings text, empty for the defaults.
    pub conf: String,
    /// See the module.
    pub verdict: &'static str,
    /// Peak reserved against the defaults, in bytes (negative: less), if it ran to its end.
    pub saved: Option<i64>,
    /// What is pasted for it.
    pub paste: String,
    /// The first release of PyTorch that reads it, such as `2.11`; none where that is not known.
    pub since: Option<String>,
    /// The setting.
    #[serde(skip)]
    pub setting: Setting,
    /// Of every placement.
    #[serde(skip)]
    pub digest: u64,
    /// It was stopped.
    #[serde(skip)]
    pub stopped: bool,
    /// Its figures.
    #[serde(flatten)]
    pub row: Row,
}

/// What a run must not exceed to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Requests that fail.
    pub failed: u64,
    /// Reserved bytes.
    pub reserved: u64,
}

impl Trial {
    /// Runs it. With a bound it is stopped where it exceeds that.
    ///
    /// # Errors
    /// Bad input.
    pub fn run(
        input: &Input<'_>,
        place: &Place,
        family: &Family,
        setting: &Setting,
        bound: Option<Bound>,
    ) -> Result<Self, Failure> {
        let spec = family.spec(setting);
        let mut watch = Watch { digest: FNV_BASIS, bound, failed: 0, stopped: false };
        let row = match vramlab_allocators::registry::check(&spec) {
            Err(refused) => Row::new(&input.name, &spec.to_string()).skipped(refused.to_string()),
            Ok(()) => run_pair(input, &spec, place, Some(&mut watch))?,
        };
        Ok(Self {
            rank: 0,
            conf: setting.text(),
            verdict: "",
            saved: None,
            paste: family.paste(setting),
            since: family.since(setting).map(|(release, _)| release),
            setting: setting.clone(),
            digest: watch.digest,
            stopped: watch.stopped,
            row: Row { marks: Vec::new(), ..row },
        })
    }

    /// Was it run to its end?
    pub fn ran(&self) -> bool {
        self.row.ran() && !self.stopped
    }

    /// Sorts best first: to its end, fewest failures, least reserved, fewest options, fewest calls, least time lost, shortest text.
    pub fn key(&self) -> impl Ord + use<> {
        let row = &self.row;
        let worth = (!self.ran(), row.failed(), row.peak_reserved, self.setting.pairs.len());
        (worth, row.memory_calls(), row.stall_total_ns, self.conf.len(), self.conf.clone())
    }

    /// The simplest of those that help beside `base` and reserve at most [`HELPS_FROM`] more than the best of them: what is advised.
    pub fn advised<'t>(tried: &'t [Self], base: &Self) -> Option<&'t Self> {
        let helps = || tried.iter().filter(|trial| trial.helps(base));
        let least = helps().map(|trial| trial.row.peak_reserved).min()?;
        let near = helps()
            .filter(|trial| trial.row.peak_reserved as f64 <= least as f64 * (1.0 + HELPS_FROM));
        near.min_by_key(|trial| (trial.setting.pairs.len(), trial.rank))
    }

    /// Compares it with the defaults.
    pub fn judge(&mut self, own: &str, default: &Self) {
        self.verdict = self.verdict_beside(own, default);
        let saved = || self.row.peak_reserved as i64 - default.row.peak_reserved as i64;
        self.saved = self.ran().then(saved);
    }

    fn verdict_beside(&self, own: &str, default: &Self) -> &'static str {
        let (row, other) = (&self.row, &default.row);
        if row.broke() {
            "driver_error"
        } else if !row.ran() {
            let reason = row.reason.as_deref().unwrap_or_default();
            if reason.contains("Unrecognized") { "not in this version" } else { "refused" }
        } else if self.stopped {
            "dominated"
        } else if self.setting.is_default() {
            "default"
        } else if self.conf == own {
            "recorded"
        } else if self.same(default) {
            "does nothing here"
        } else if self.helps(default) {
            "helps"
        } else if row.failed() < other.failed() {
            "not enough"
        } else if row.failed() > other.failed()
            || (other.failed() == 0 && row.peak_reserved > other.peak_reserved)
        {
            "costs"
        } else {
            "no help"
        }
    }

    /// Every placement and every figure is the same.
    pub fn same(&self, other: &Self) -> bool {
        let figures = |row: &Row| {
            (row.failed(), row.peak_reserved, row.peak_allocated, row.time_ns, row.reserved)
        };
        self.digest == other.digest
            && figures(&self.row) == figures(&other.row)
            && self.row.driver_calls == other.row.driver_calls
    }

    /// Where requests fail with the defaults, only that none fails any more is help: a peak that is lower because less was served is none.
    pub fn helps(&self, default: &Self) -> bool {
        let (row, other) = (&self.row, &default.row);
        if !self.ran() || row.failed() > 0 {
            return false;
        }
        let saved = other.peak_reserved.saturating_sub(row.peak_reserved) as f64;
        other.failed() > 0 || (saved > 0.0 && saved >= HELPS_FROM * other.peak_reserved as f64)
    }
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

struct Watch {
    /// FNV-1a over words: index, address and size of each placement, index and 1 of each refusal.
    digest: u64,
    bound: Option<Bound>,
    failed: u64,
    stopped: bool,
}

impl Watch {
    fn add(&mut self, words: [u64; 3]) {
        for word in words {
            self.digest = (self.digest ^ word).wrapping_mul(FNV_PRIME).rotate_left(23);
        }
    }
}

impl Observer for Watch {
    fn after(&mut self, seen: &Seen<'_>) {
        match seen.outcome {
            Outcome::Placed(placement) => self.add([seen.index, placement.address, placement.size]),
            Outcome::Refused(_) | Outcome::NoSlots(_) => {
                self.failed += 1;
                self.add([seen.index, 1, 0]);
            }
            _ => return,
        }
        if let Some(bound) = self.bound {
            let worse = (self.failed, seen.held.reserved) > (bound.failed, bound.reserved);
            self.stopped |= worse && (self.failed > bound.failed || bound.failed == 0);
        }
    }

    fn is_enough(&self) -> bool {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(conf: &str, ooms: u64, peak_reserved: u64, digest: u64) -> Trial {
        let row = Row { outcome: "ok", ooms, peak_reserved, ..Row::default() };
        let setting = Setting::recorded(conf);
        let (conf, paste) = (conf.to_owned(), String::new());
        let (rank, verdict, saved, since) = (0, "", None, None);
        Trial { rank, conf, verdict, saved, paste, since, setting, digest, stopped: false, row }
    }

    fn verdict(one: Trial, default: &Trial) -> &'static str {
        let mut one = one;
        one.judge("own:1", default);
        one.verdict
    }

    #[test]
    fn a_verdict_is_beside_the_defaults() {
        let default = trial("", 0, 1000, 7);
        assert_eq!(verdict(trial("", 0, 1000, 7), &default), "default");
        assert_eq!(verdict(trial("own:1", 0, 1000, 7), &default), "recorded");
        assert_eq!(verdict(trial("a:1", 0, 1000, 7), &default), "does nothing here");
        assert_eq!(verdict(trial("a:1", 0, 1000, 8), &default), "no help", "other places");
        assert_eq!(verdict(trial("a:1", 0, 990, 8), &default), "helps");
        assert_eq!(verdict(trial("a:1", 0, 991, 8), &default), "no help");
        assert_eq!(verdict(trial("a:1", 0, 1001, 8), &default), "costs");
        assert_eq!(verdict(trial("a:1", 1, 500, 8), &default), "costs");
        let stopped = Trial { stopped: true, ..trial("a:1", 0, 500, 8) };
        assert_eq!(verdict(stopped, &default), "dominated");
    }

    /// The first setting of a recording whose request fails with all of them had a lower peak, since it served less.
    #[test]
    fn a_lower_peak_is_no_help_while_requests_fail() {
        let default = trial("", 1, 1000, 7);
        assert_eq!(verdict(trial("a:1", 1, 500, 8), &default), "no help");
        assert_eq!(verdict(trial("a:1", 0, 1100, 8), &default), "helps");
        assert_eq!(verdict(trial("a:1", 306, 500, 8), &trial("", 315, 1000, 7)), "not enough");
    }
}
