//! Options that several caches have.

use vramlab_sim::allocator::AllocError;
use vramlab_sim::kv::{KvError, TOKEN_BYTES};

use crate::options::{OptionDoc, OptionError, Options};

/// Which strategy the cache stands on; the registry makes it.
pub(crate) const ARENA: OptionDoc = OptionDoc {
    name: "arena",
    default: "cuda.malloc",
    help: "strategy that gives the cache its memory and serves the workload's other requests; with options, in quotes",
};
pub(super) const TOKEN: OptionDoc = OptionDoc {
    name: "token_bytes",
    default: "as the workload says, or 131072",
    help: "bytes of keys and values of a token in all layers: 2 x layers x KV heads x head size x bytes of a value",
};
pub(super) const LAYERS: OptionDoc = OptionDoc {
    name: "num_layers",
    default: "as the workload says, or 32",
    help: "layers of the model; where the workload says how many, only that",
};
/// Layers, where neither the workload nor an option says; [`TOKEN_BYTES`] are of so many.
const LAYERS_USUAL: u64 = 32;
pub(super) const UTILIZATION: OptionDoc = OptionDoc {
    name: "gpu_memory_utilization",
    default: "0.92",
    help: "share of the device that may be taken, with what others hold of it; decides the number of blocks where that is not given",
};

/// Bytes of a token: the option's, or what the first sequence says, or the usual ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBytes {
    option: Option<u64>,
    /// 0 before the first sequence.
    decided: u64,
}

impl TokenBytes {
    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        Ok(Self { option: positive(options, TOKEN.name)?, decided: 0 })
    }

    /// For a cache that nobody gave options.
    pub(super) const fn usual() -> Self {
        Self { option: None, decided: 0 }
    }

    /// What is to be decided, if it is not decided.
    pub(super) fn undecided(&self, said: Option<u64>) -> Option<u64> {
        (self.decided == 0)
            .then(|| self.option.or(said.filter(|said| *said > 0)).unwrap_or(TOKEN_BYTES))
    }

    pub(super) const fn decide(&mut self, bytes: u64) {
        self.decided = bytes;
    }

    /// 0 before the first sequence.
    pub(super) const fn get(&self) -> u64 {
        self.decided
    }
}

/// Layers of the model: the option's, or what the first sequence says, or the usual ones.
///
/// # Errors
/// A bad setting, if the option and the workload say different numbers.
pub(super) fn layers(option: Option<u64>, said: Option<u64>) -> Result<u64, KvError> {
    match (option, said.filter(|said| *said > 0)) {
        (Some(option), Some(said)) if option != said => {
            let why = format!(
                "option num_layers={option}: the workload's model has {said} layers; leave the option out, or choose another model"
            );
            Err(AllocError::BadSetting(why.into()).into())
        }
        (option, said) => Ok(option.or(said).unwrap_or(LAYERS_USUAL)),
    }
}

/// A number of 1 or more, if it is given.
pub(super) fn positive(options: &Options, key: &str) -> Result<Option<u64>, OptionError> {
    let Some(text) = options.get(key) else { return Ok(None) };
    let number = text.parse::<u64>().ok().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| {
        OptionError(format!("option {key}={text}: expected a whole number of 1 or more"))
    })
}

/// A share from 0 to 1.
pub(super) fn share(options: &Options, doc: &OptionDoc) -> Result<f64, OptionError> {
    let text = options.get(doc.name).unwrap_or(doc.default);
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| {
        OptionError(format!("option {}={text}: expected a number from 0 to 1", doc.name))
    })
}

/// A number of 1 or more, or the default.
pub(super) fn count(options: &Options, doc: &OptionDoc, default: u64) -> Result<u64, OptionError> {
    Ok(positive(options, doc.name)?.unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_decides_before_the_workload_and_the_workload_before_the_default() {
        let of =
            |pairs: &[(&str, &str)]| TokenBytes::parse(&Options::from_pairs(pairs.iter().copied()));
        let mut bytes = of(&[("token_bytes", "64")]).expect("a number");
        assert_eq!((bytes.undecided(Some(32)), bytes.get()), (Some(64), 0));
        bytes.decide(64);
        assert_eq!((bytes.undecided(Some(32)), bytes.get()), (None, 64));
        assert_eq!(TokenBytes::usual().undecided(Some(32)), Some(32));
        assert_eq!(TokenBytes::usual().undecided(Some(0)), Some(TOKEN_BYTES));
        assert!(of(&[("token_bytes", "0")]).is_err());
    }
}
