//! Options of `+refcycle`.

use vramlab_sim::units::Bytes;

use crate::options::{OptionDoc, OptionError, Options};

const fn doc(name: &'static str, default: &'static str, help: &'static str) -> OptionDoc {
    OptionDoc { name, default, help }
}

/// As `list` shows them.
pub(super) const OPTIONS: &[OptionDoc] = &[
    doc(
        "threshold0",
        "700",
        "objects made, less those that died, above which the youngest generation is collected; 0: never (gc.set_threshold)",
    ),
    doc(
        "threshold1",
        "10",
        "collections of the youngest generation above which the next one is collected",
    ),
    doc("threshold2", "10", "collections of that one above which the oldest is collected"),
    doc("enabled", "true", "false: nothing is collected by count (gc.disable)"),
    doc(
        "cycles",
        "none",
        "which freed buffers die in a cycle of their own, where the workload does not say: none, all, or those of at least a size such as 1MiB",
    ),
    doc("others", "1", "objects of such a cycle beside its buffer, 1 or more"),
    doc("count0", "0", "objects counted in the youngest generation at the start (gc.get_count)"),
    doc("long_lived", "0", "objects in the oldest generation at the start"),
];

/// What the options say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) thresholds: [u64; 3],
    pub(super) enabled: bool,
    /// Buffers of at least so many bytes die in cycles.
    cyclic_from: Option<u64>,
    /// Objects of such a cycle beside its buffer.
    pub(super) others: u64,
    pub(super) count0: u64,
    pub(super) long_lived: u64,
}

impl Settings {
    pub(super) fn parse(name: &str, options: &Options) -> Result<Self, OptionError> {
        options.check(name, OPTIONS)?;
        let number =
            |name: &str, default: u32| options.parse(name, "a number", default).map(u64::from);
        let others = number("others", 1)?;
        if others == 0 {
            return Err(OptionError("option others=0: expected 1 or more".to_owned()));
        }
        let cyclic_from = match options.get("cycles") {
            None | Some("none") => None,
            Some("all") => Some(0),
            Some(text) => Some(text.parse::<Bytes>().map(|bytes| bytes.0).map_err(|_| {
                OptionError(format!(
                    "option cycles={text}: expected none, all, or a size such as 1MiB"
                ))
            })?),
        };
        Ok(Self {
            thresholds: [
                number("threshold0", 700)?,
                number("threshold1", 10)?,
                number("threshold2", 10)?,
            ],
            enabled: options.flag("enabled", true)?,
            cyclic_from,
            others,
            count0: number("count0", 0)?,
            long_lived: number("long_lived", 0)?,
        })
    }

    /// Does a buffer die in a cycle of its own?
    pub(super) fn dies_in_cycle(&self, size: u64) -> bool {
        self.cyclic_from.is_some_and(|least| size >= least)
    }
}
