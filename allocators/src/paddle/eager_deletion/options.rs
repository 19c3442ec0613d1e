//! Options of the collector.

use vramlab_sim::units::Bytes;

use super::super::flags::with_flags;
use super::super::settings;
use crate::options::{OptionDoc, OptionError, Options};

/// As `list` shows them.
pub(super) const OPTIONS: &[OptionDoc] = &[
    OptionDoc {
        name: "eager_delete_tensor_gb",
        default: "0.0",
        help: "GiB of dead tensors that wait at most; 0: freed at once; negative: they stay until the run ends",
    },
    OptionDoc {
        name: "fast_eager_deletion_mode",
        default: "true",
        help: "false: they are freed once their streams have come so far",
    },
    OptionDoc {
        name: "memory_fraction_of_eager_deletion",
        default: "1.0",
        help: "only the largest tensors, up to this share of all bytes, are freed before the run ends",
    },
    OptionDoc {
        name: "queue_bytes",
        default: "none",
        help: "a size such as 10MiB: in place of the threshold; freed also before a request fails",
    },
    OptionDoc {
        name: "executor",
        default: "old",
        help: "old: hand-over by operator, a mark ends the run; new: by tensor, the collector stays from run to run",
    },
    OptionDoc {
        name: "flags",
        default: "",
        help: "settings as Paddle takes them: 'FLAGS_name=value FLAGS_name=value'",
    },
];

/// What the collector does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Bytes, 1 or more; none: there is no collector.
    pub(super) threshold: Option<u64>,
    pub(super) fast: bool,
    /// The newer executor.
    pub(super) by_tensor: bool,
    /// The queue is also released before a request fails.
    pub(super) on_pressure: bool,
    /// Share of the largest, where it is less than all.
    pub(super) fraction: Option<f64>,
}

impl Policy {
    pub(super) fn parse(given: &Options) -> Result<Self, OptionError> {
        let options = with_flags("eager_deletion", given, OPTIONS)?;
        let gb = settings::number(&options, "eager_delete_tensor_gb", 0.0)?;
        let share = settings::share(&options, "memory_fraction_of_eager_deletion", 1.0)?;
        let queue = queue_bytes(&options)?;
        if queue.is_some() && options.get("eager_delete_tensor_gb").is_some() {
            return Err(OptionError(
                "options queue_bytes and eager_delete_tensor_gb are two thresholds: expected one"
                    .into(),
            ));
        }
        let by_gb = (gb >= 0.0).then_some((gb * f64::from(1 << 30)) as u64);
        Ok(Self {
            threshold: queue.or(by_gb).filter(|_| share > 0.0).map(|bytes| bytes.max(1)),
            fast: options.flag("fast_eager_deletion_mode", true)?,
            by_tensor: by_tensor(&options)?,
            on_pressure: queue.is_some(),
            fraction: Some(share).filter(|share| *share > 0.0 && *share < 1.0),
        })
    }

    /// Tensors are freed as they die.
    #[inline]
    pub(super) fn is_immediate(&self) -> bool {
        self.fast && self.threshold == Some(1)
    }

    /// Is the queue to be released when it holds so many bytes?
    pub(super) fn is_reached(&self, bytes: u64) -> bool {
        self.threshold.is_some_and(|threshold| threshold == 1 || bytes >= threshold)
    }
}

fn queue_bytes(options: &Options) -> Result<Option<u64>, OptionError> {
    let Some(text) = options.get("queue_bytes").filter(|text| *text != "none") else {
        return Ok(None);
    };
    let bytes = text.parse::<Bytes>().map(|bytes| Some(bytes.0));
    bytes.map_err(|_| {
        OptionError(format!("option queue_bytes={text}: expected none, or a size such as 10MiB"))
    })
}

fn by_tensor(options: &Options) -> Result<bool, OptionError> {
    match options.get("executor").unwrap_or("old") {
        "old" => Ok(false),
        "new" => Ok(true),
        other => Err(OptionError(format!("option executor={other}: expected old or new"))),
    }
}
