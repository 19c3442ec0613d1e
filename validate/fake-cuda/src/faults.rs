//! Faults on cue.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::enter::Code;

/// Which call of which function fails, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    cues: Vec<(String, u64, Code)>,
    calls: BTreeMap<&'static str, u64>,
}

/// Names of the errors that can be cued.
const ERRORS: [(&str, Code); 5] = [
    ("invalid_value", Code::INVALID_VALUE),
    ("out_of_memory", Code::OUT_OF_MEMORY),
    ("not_supported", Code::NOT_SUPPORTED),
    ("illegal_address", Code(700)),
    ("unknown", Code::UNKNOWN),
];

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cue = |part: &str| {
            let (function, rest) = part.split_once('#')?;
            let (number, error) = rest.split_once('=')?;
            let (_, code) = ERRORS.iter().find(|(name, _)| *name == error)?;
            Some((function.to_owned(), number.parse().ok()?, *code))
        };
        let cues = text.split(',').map(|part| {
            cue(part).ok_or_else(|| {
                let known = ERRORS.map(|(name, _)| name).join(", ");
                format!("VRAMLAB_FAKE_CUDA_FAIL: found {part:?}, expected FUNCTION#N=ERROR with one of {known}")
            })
        });
        Ok(Self { cues: cues.collect::<Result<_, _>>()?, calls: BTreeMap::new() })
    }
}

impl Faults {
    /// One more call of a function: does it fail?
    pub(crate) fn called(&mut self, function: &'static str) -> Result<(), Code> {
        let count = self.calls.entry(function).or_default();
        *count += 1;
        match self.cues.iter().find(|(name, number, _)| name == function && number == count) {
            Some((_, _, code)) => Err(*code),
            None => Ok(()),
        }
    }

    /// How often each function was called.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.calls.iter().map(|(name, count)| (*name, *count))
    }
}
