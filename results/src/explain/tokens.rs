//! A message as words, numbers and sizes, and patterns that find a figure by the words beside it.
//!
//! | rule | what it says |
//! |---|---|
//! | `unit` | a number with a unit behind it is a size; units are powers of 1024, whatever they are called (`Mio` is French), as in all programs read here; `Mi` and, directly behind a number, `M` count as cut or short ones |
//! | `blanks` | groups of three digits may stand behind blanks where a decimal comma ends them: `16 384,00`, as French writes it |
//! | `decimal` | of `1.234,5` and `1,234.5` the last sign is the decimal one; several equal signs are groups of thousands; one comma before exactly three digits is a group unless a 0 stands before it (no program prints three decimals); any other comma is a decimal sign |
//! | `spelling` | words are equal in any case; from five letters on one letter may be wrong, missing or too many, from nine on two |

use vramlab_workloads::readers::states::Quantity;

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Token<'a> {
    /// A word.
    Word(&'a str),
    /// A number without a unit.
    Number(Number),
    /// A number of bytes.
    Size(Quantity),
}

/// A number as it was printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Digits with at most one point.
    digits: String,
}

impl Number {
    /// Its value, if it is a whole one below 2^64.
    pub fn whole(&self) -> Option<u64> {
        self.digits.parse().ok()
    }

    /// As a size in this unit, where that stands elsewhere.
    pub fn sized(&self, unit: &str) -> Option<Quantity> {
        Quantity::parse(format!("{}{unit}", self.digits).as_bytes())
    }

    /// Its value.
    pub fn value(&self) -> Option<f64> {
        self.digits.parse().ok()
    }
}

/// What stands at a place of a pattern.
#[derive(Clone, Copy, Debug)]
pub enum Like {
    /// This word, or one spelled nearly so.
    Word(&'static str),
    /// Any number.
    Number,
    /// Any size.
    Size,
}

/// The pieces of a text, in order.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_digit() {
            number(rest, &mut tokens)
        } else if word_char(first) {
            let end = rest.find(|c: char| !(word_char(c) || c.is_ascii_digit()));
            let end = end.unwrap_or(rest.len());
            tokens.push(Token::Word(&rest[..end]));
            end
        } else {
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

fn word_char(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Takes a number, with its unit if it has one; says how long it is.
fn number<'a>(text: &'a str, tokens: &mut Vec<Token<'a>>) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while end < bytes.len() {
        let sign =
            matches!(bytes[end], b'.' | b',') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        if !sign && (1..=3).contains(&end) && blank_groups(&bytes[end..]) > 0 {
            end += blank_groups(&bytes[end..]);
            continue;
        }
        if !(bytes[end].is_ascii_digit() || sign) {
            break;
        }
        end += 1;
    }
    let number = Number { digits: plain(&text[..end]) };
    let behind = &text[end..];
    // a line may be wrapped before the unit
    let blank = behind.len() - behind.trim_start_matches([' ', '\n']).len();
    let letters = behind[blank..].bytes().take_while(u8::is_ascii_alphabetic).count();
    let name = &behind[blank..blank + letters];
    let wrapped = behind[..blank].contains('\n') && letters == 1;
    let size = unit(name, blank == 0).filter(|_| !wrapped).and_then(|unit| number.sized(unit));
    match size {
        Some(size) => {
            tokens.push(Token::Size(size));
            end + blank + letters
        }
        None => {
            tokens.push(Token::Number(number));
            end
        }
    }
}

/// Bytes of groups of digits behind blanks, if a decimal comma follows them (rule `blanks`).
fn blank_groups(bytes: &[u8]) -> usize {
    let digits = |group: &[u8]| group.iter().all(u8::is_ascii_digit);
    let groups = bytes.chunks_exact(4).take_while(|group| group[0] == b' ' && digits(&group[1..]));
    let end = 4 * groups.count();
    match bytes[end..] {
        [b',', digit, ..] if digit.is_ascii_digit() => end,
        _ => 0,
    }
}

/// A unit as sizes have it (rule `unit`).
fn unit(name: &str, touching: bool) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => "B",
        "kb" | "kib" | "kio" | "ki" => "KiB",
        "mb" | "mib" | "mio" | "mi" => "MiB",
        "gb" | "gib" | "gio" | "gi" => "GiB",
        "tb" | "tib" | "tio" | "ti" => "TiB",
        "k" if touching => "KiB",
        "m" if touching => "MiB",
        "g" if touching => "GiB",
        "t" if touching => "TiB",
        _ => return None,
    })
}

/// With a point as decimal sign and no groups (rule `decimal`).
fn plain(text: &str) -> String {
    let signs: Vec<(usize, char)> =
        text.char_indices().filter(|(_, c)| !c.is_ascii_digit()).collect();
    let decimal = match &signs[..] {
        [] => None,
        [(at, ',')] => {
            let group = text.len() - at == 4 && (1..=3).contains(at) && !text.starts_with('0');
            (!group).then_some(*at)
        }
        [(at, _)] => Some(*at),
        [head @ .., (at, last)] => head.iter().all(|(_, sign)| sign != last).then_some(*at),
    };
    let kept = text.char_indices().filter_map(|(at, c)| match c.is_ascii_digit() {
        true => Some(c),
        false => (Some(at) == decimal).then_some('.'),
    });
    kept.collect()
}

/// The first place at which all of a pattern stands; gives the token at `figure` of it.
pub fn find<'t, 'a>(
    tokens: &'t [Token<'a>],
    pattern: &[Like],
    figure: usize,
) -> Option<&'t Token<'a>> {
    places(tokens, pattern).next().map(|at| &tokens[at + figure])
}

/// Every place at which all of a pattern stands.
pub fn places<'t>(
    tokens: &'t [Token<'_>],
    pattern: &'t [Like],
) -> impl Iterator<Item = usize> + 't {
    let fits = move |at: &usize| {
        pattern.iter().zip(&tokens[*at..]).all(|(like, token)| match (like, token) {
            (Like::Word(expected), Token::Word(found)) => spelled(found, expected),
            (Like::Number, Token::Number(_)) | (Like::Size, Token::Size(_)) => true,
            _ => false,
        })
    };
    (0..(tokens.len() + 1).saturating_sub(pattern.len())).filter(fits)
}

/// Is this word meant (rule `spelling`)?
pub fn spelled(found: &str, expected: &str) -> bool {
    if found.eq_ignore_ascii_case(expected) {
        return true;
    }
    let most = match expected.len() {
        0..=4 => return false,
        5..=8 => 1,
        _ => 2,
    };
    let edits = || strsim::levenshtein(&found.to_ascii_lowercase(), &expected.to_ascii_lowercase());
    found.len().abs_diff(expected.len()) <= most && edits() <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Option<u64> {
        match &tokens(text)[..] {
            [Token::Size(size)] => Some(size.bytes),
            _ => None,
        }
    }

    #[test]
    fn sizes_in_all_their_spellings() {
        for (text, bytes) in [
            ("0 bytes", 0),
            ("12.50 MiB", 13_107_200),
            ("1.5kB", 1536),
            ("16.15G", 17_340_930_458),
            ("3 Gi", 3 << 30),
            ("3.00\nGiB", 3 << 30),
            ("1,50 GiB", 1_610_612_736),
            ("1.024,00 MiB", 1 << 30),
            ("1,024.00 MiB", 1 << 30),
            ("1,024 MiB", 1 << 30),
            ("0,500 GiB", 1 << 29),
            ("8,589,934,592 bytes", 8 << 30),
            ("8.589.934.592 bytes", 8 << 30),
            ("3,621826GB", 3_888_906_055),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["12.50 M", "12.50", "MiB", "99999999999999999999 GiB", "5 G", "5\nB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn patterns_find_figures_by_the_words_beside_them() {
        let text = "GPU 3 has a total capacty of 6.00 GiB of which 0 bytes is free.";
        let tokens = tokens(text);
        use Like::{Number, Size, Word};
        let gpu = find(&tokens, &[Word("gpu"), Number], 1);
        assert!(matches!(gpu, Some(Token::Number(n)) if n.whole() == Some(3)));
        let capacity = find(&tokens, &[Word("capacity"), Word("of"), Size], 2);
        assert!(matches!(capacity, Some(Token::Size(s)) if s.bytes == 6 << 30));
        assert!(find(&tokens, &[Size, Word("is"), Word("free")], 0).is_some());
        assert_eq!(find(&tokens, &[Size, Word("cached")], 0), None);
        assert_eq!(find(&tokens[..1], &[Word("gpu"), Number], 1), None);
    }

    #[test]
    fn misspelled_words_are_known_and_short_ones_must_be_right() {
        assert!(spelled("capacty", "capacity") && spelled("Unallocted", "unallocated"));
        assert!(spelled("FREE", "free") && !spelled("fre", "free") && !spelled("three", "free"));
        assert!(!spelled("allowed", "already") && !spelled("allocated", "allowed"));
    }
}
