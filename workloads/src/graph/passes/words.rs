//! An option of several words: `2/devices:8/bucket:25MiB`.

use vramlab_sim::units::Bytes;

use super::{Pass, PassError, bad};

/// The words of an option, each taken once.
pub(super) struct Words<'a> {
    pass: &'a Pass,
    option: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn of(pass: &'a Pass, option: &'a str) -> Self {
        let words = option.split('/').map(str::trim).filter(|word| !word.is_empty()).collect();
        Self { pass, option, words }
    }

    /// Is this word there?
    pub(super) fn flag(&mut self, word: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|known| *known != word);
        self.words.len() < before
    }

    /// The text after `key:`, if it is there.
    pub(super) fn text(&mut self, key: &str) -> Option<&'a str> {
        let mine = |word: &&str| word.split_once(':').is_some_and(|(k, _)| k == key);
        let place = self.words.iter().position(mine)?;
        self.words.remove(place).split_once(':').map(|(_, text)| text)
    }

    /// The number after `key:`, or `default`.
    pub(super) fn number(
        &mut self,
        key: &str,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, PassError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let expected =
                format!("{key}: a whole number from {} to {}", range.start(), range.end());
            bad(self.pass.name, text, &expected)
        })
    }

    /// The size after `key:`, or `default` (B).
    pub(super) fn bytes(&mut self, key: &str, default: u64) -> Result<u64, PassError> {
        let Some(text) = self.text(key) else { return Ok(default) };
        let size: Option<Bytes> = text.parse().ok();
        size.map(|size| size.0)
            .ok_or_else(|| bad(self.pass.name, text, &format!("{key}: a size such as 25MiB")))
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), PassError> {
        if self.words.is_empty() {
            return Ok(());
        }
        Err(bad(self.pass.name, self.option, self.pass.options))
    }
}

/// Most devices, stages or batches that an option may ask for.
pub(super) const MANY: u64 = 1 << 16;
