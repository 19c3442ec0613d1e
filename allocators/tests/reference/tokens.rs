//! The words of a settings text, and the numbers in them as C++ reads them: what follows a number in a word is passed over.

use super::Version;

#[derive(Clone, Debug)]
pub(super) struct Tokens {
    words: Vec<String>,
    at: usize,
    version: Version,
}

impl Tokens {
    /// Punctuation stands alone; blanks vanish, also inside words.
    pub(super) fn new(text: &str, version: Version) -> Tokens {
        let mut words = vec![String::new()];
        for character in text.chars() {
            match character {
                ',' | ':' | '[' | ']' => words.extend([character.to_string(), String::new()]),
                ' ' => {}
                _ => words.last_mut().expect("never empty").push(character),
            }
        }
        words.retain(|word| !word.is_empty());
        Tokens { words, at: 0, version }
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.words.len()
    }

    pub(super) fn next_is(&self, wanted: &str) -> bool {
        self.words.get(self.at).is_some_and(|word| word == wanted)
    }

    pub(super) fn take(&mut self) -> Result<String, String> {
        let found =
            self.words.get(self.at).ok_or("expected a word, found the end of the settings")?;
        self.at += 1;
        Ok(found.clone())
    }

    pub(super) fn expect(&mut self, wanted: &str) -> Result<(), String> {
        let found = self.take()?;
        if found == wanted { Ok(()) } else { Err(format!("expected {wanted}, found {found}")) }
    }

    /// Inside a list 2.15 passes over whatever stands there.
    pub(super) fn separator(&mut self, wanted: &str) -> Result<(), String> {
        match self.version {
            Version::V2_15 => self.take().map(|_| ()),
            Version::V2_9 => self.expect(wanted),
        }
    }

    pub(super) fn truth(&mut self) -> Result<bool, String> {
        match self.take()?.as_str() {
            "True" => Ok(true),
            "False" => Ok(false),
            found => Err(format!("expected True or False, found {found}")),
        }
    }

    /// A whole number; a negative one wraps around. 2.9 reads 32 bits, 2.15 reads 64.
    pub(super) fn whole(&mut self) -> Result<u64, String> {
        let found = self.take()?;
        let refused = || format!("expected a whole number, found {found}");
        let digits = found.trim_start_matches(['+', '-']);
        let sign = &found[..found.len() - digits.len()];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let value: u64 = digits[..end].parse().map_err(|_| refused())?;
        if sign.len() > 1 || (self.version == Version::V2_9 && value > i32::MAX as u64) {
            return Err(refused());
        }
        Ok(if sign == "-" { value.wrapping_neg() } else { value })
    }

    pub(super) fn number(&mut self) -> Result<f64, String> {
        let found = self.take()?;
        let ends = (1..=found.len()).rev().filter(|end| found.is_char_boundary(*end));
        let value = ends.map(|end| found[..end].parse()).find_map(Result::ok);
        value.ok_or_else(|| format!("expected a number, found {found}"))
    }
}
