//! Whole numbers as text.

/// Bytes of what was found that a message shows.
const SHOWN: usize = 40;

/// So many digits never pass 2^64.
pub(super) const DIGITS_SAFE: usize = 19;

/// What was found, for messages: at most 40 bytes of it.
pub fn found(text: &[u8]) -> String {
    let shown = &text[..text.len().min(SHOWN)];
    let more = if text.len() > SHOWN { "…" } else { "" };
    format!("{:?}{more}", String::from_utf8_lossy(shown))
}

/// A whole number from 0 to 2^64-1. Blanks around it, and a fraction of zeros (`12.0`, as tables of floats have it), are let pass.
///
/// # Errors
/// It is none: what was found, what was expected.
pub fn whole(text: &[u8]) -> Result<u64, String> {
    digits(text)
        .or_else(|| digits(without_zeros(text.trim_ascii())))
        .ok_or_else(|| format!("found {}, expected a whole number from 0 to 2^64-1", found(text)))
}

/// A whole number from -2^63 to 2^63-1.
///
/// # Errors
/// It is none: what was found, what was expected.
pub fn signed(text: &[u8]) -> Result<i64, String> {
    let trimmed = text.trim_ascii();
    let (sign, rest) = match trimmed.strip_prefix(b"-") {
        Some(rest) => (-1, rest),
        None => (1, trimmed),
    };
    digits(without_zeros(rest))
        .and_then(|value| i64::try_from(i128::from(value) * sign).ok())
        .ok_or_else(|| {
            format!("found {}, expected a whole number from -2^63 to 2^63-1", found(text))
        })
}

/// Digits and nothing else.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let (short, rest) = text.split_at(text.len().min(DIGITS_SAFE));
    let mut value: u64 = 0;
    for byte in short {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// `12.0` without its fraction; anything else as it is.
fn without_zeros(text: &[u8]) -> &[u8] {
    match text.iter().position(|byte| *byte == b'.') {
        Some(point) if text[point + 1..].iter().all(|byte| *byte == b'0') => &text[..point],
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_whole() {
        assert_eq!(whole(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(whole(b" 12.00 "), Ok(12));
        assert_eq!(whole(b"00000000000000000000000012"), Ok(12));
        for bad in ["", "-1", "1.5", "nan", "inf", "1e3", "+1", "18446744073709551616", ".", "1 2"]
        {
            let expected = format!("found {bad:?}, expected a whole number from 0 to 2^64-1");
            assert_eq!(whole(bad.as_bytes()), Err(expected));
        }
    }

    #[test]
    fn signed_numbers_keep_their_sign() {
        assert_eq!(signed(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(signed(b"7"), Ok(7));
        assert_eq!(signed(b"-7.0"), Ok(-7));
        for bad in ["", "-", "--1", "9223372036854775808", "NaN", "-inf"] {
            assert!(signed(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_texts_are_shown_shortened() {
        assert_eq!(found(&[b'a'; 50]), format!("{:?}…", "a".repeat(40)));
    }
}
