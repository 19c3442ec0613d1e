//! The quick way for the usual lines: flat objects of known fields with plain values, as writers of traces write them.
//!
//! What it does not know (other fields, escapes in texts, nested lists, numbers that are no u64) it leaves to `serde_json`, which also says what is
//! wrong with a line. So a line means the same both ways; a test holds them equal.

use std::borrow::Cow;

use super::raw::RawOp;

/// The op of a line, if it is a usual one.
pub(super) fn read(line: &str) -> Option<RawOp<'_>> {
    let mut text = Text(line.trim_matches([' ', '\t', '\r', '\n']));
    let mut raw = RawOp::default();
    text.take(b'{')?;
    loop {
        let key = text.word()?;
        text.blanks();
        text.take(b':')?;
        text.blanks();
        match key {
            "op" => set(&mut raw.op, Cow::Borrowed(text.word()?))?,
            "site" => set(&mut raw.site, Cow::Borrowed(text.word()?))?,
            "id" => set(&mut raw.id, text.number()?)?,
            "size" => set(&mut raw.size, text.number()?)?,
            "t" => set(&mut raw.t, text.number()?)?,
            "dur" => set(&mut raw.dur, text.number()?)?,
            "bytes" => set(&mut raw.bytes, text.number()?)?,
            "stream" => set(&mut raw.stream, text.number()?.try_into().ok()?)?,
            "event" => set(&mut raw.event, text.number()?.try_into().ok()?)?,
            "reads" => list(&mut raw.reads, &mut text)?,
            "writes" => list(&mut raw.writes, &mut text)?,
            _ => return None,
        }
        text.blanks();
        match text.next()? {
            b',' => text.blanks(),
            b'}' if text.0.is_empty() => return Some(raw),
            _ => return None,
        }
    }
}

/// A field that is given twice is an error, which is not told here.
fn set<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// Ids in brackets; an empty list is left to the other way, since it cannot be told from none.
fn list(field: &mut Vec<u64>, text: &mut Text<'_>) -> Option<()> {
    if !field.is_empty() {
        return None;
    }
    text.take(b'[')?;
    loop {
        text.blanks();
        field.push(text.number()?);
        text.blanks();
        match text.next()? {
            b',' => {}
            b']' => return Some(()),
            _ => return None,
        }
    }
}

/// What is left of a line.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn next(&mut self) -> Option<u8> {
        let first = *self.0.as_bytes().first()?;
        self.0 = self.0.get(1..)?;
        Some(first)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn blanks(&mut self) {
        self.0 = self.0.trim_start_matches(' ');
    }

    /// The first bytes, up to the first that is not meant.
    fn run(&mut self, meant: impl Fn(u8) -> bool) -> Option<&'a str> {
        let end = self.0.bytes().position(|byte| !meant(byte))?;
        let (taken, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        Some(taken)
    }

    /// A text in quotes without escapes.
    fn word(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let word = self.run(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\'))?;
        self.take(b'"')?;
        Some(word)
    }

    /// A whole number, without a leading zero, sign, fraction or exponent.
    fn number(&mut self) -> Option<u64> {
        let digits = self.run(|byte| byte.is_ascii_digit())?.as_bytes();
        if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) {
            return None;
        }
        // A fraction or an exponent is no comma and no end of a list or object, so it is refused there.
        digits.iter().try_fold(0_u64, |value, digit| {
            value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: [&str; 6] = [
        r#"{"op":"alloc","id":9,"size":512,"stream":1,"t":5,"site":"a.py:3 é"}"#,
        r#"{"op": "free", "id": 18446744073709551615}"#,
        r#"{"op":"work","stream":4294967295,"dur":10,"reads":[9, 10],"writes":[0]}"#,
        r#"{"op":"copy","bytes":4,"t":0}"#,
        r#"{"op":"event","event":7}"#,
        r#"  {"op":"sync"} "#,
    ];

    fn both(line: &str) -> (Option<String>, Option<String>) {
        let slow = serde_json::from_str::<RawOp<'_>>(line).ok();
        (read(line).map(|raw| format!("{raw:?}")), slow.map(|raw| format!("{raw:?}")))
    }

    #[test]
    fn usual_lines_are_read_quickly_and_alike() {
        for line in USUAL {
            let (quick, slow) = both(line);
            assert!(quick.is_some(), "{line}");
            assert_eq!(quick, slow, "{line}");
        }
    }

    #[test]
    fn what_is_read_quickly_means_the_same_the_other_way() {
        let others = [
            r#"{"op":"a","op":"b"}"#,
            r#"{"op":"a\n"}"#,
            r#"{"op":"alloc","id":01}"#,
            r#"{"op":"alloc","id":18446744073709551616}"#,
            r#"{"op":"alloc","id":1.0}"#,
            r#"{"op":"alloc","stream":4294967296}"#,
            r#"{"op":"work","reads":[]}"#,
            r#"{"op":"work","reads":[1,]}"#,
            r#"{"op":"sync"}}"#,
            r#"{"op":"sync",}"#,
            r#"{}"#,
            "",
        ];
        for line in others {
            assert_eq!(read(line).map(|raw| format!("{raw:?}")), None, "{line}");
        }
        // Each line with one byte taken out, doubled or changed.
        for line in USUAL {
            for at in (0..line.len())
                .filter(|at| line.is_char_boundary(*at) && line.is_char_boundary(at + 1))
            {
                let (before, after) = (&line[..at], &line[at + 1..]);
                let byte = &line[at..=at];
                for between in ["", "\"", "0", ",", " ", "[", "\u{1}", &byte.repeat(2)] {
                    let (quick, slow) = both(&format!("{before}{between}{after}"));
                    assert!(quick.is_none() || quick == slow, "{before}{between}{after}");
                }
            }
        }
    }
}
