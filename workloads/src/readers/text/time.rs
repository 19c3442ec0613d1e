//! Times as text, in ns.

use super::number::{digits, found};

const NANOS_IN_SECOND: u64 = 1_000_000_000;
const SECONDS_IN_DAY: u64 = 86_400;
/// The last year whose ns since 1970 stay below 2^63.
const YEAR_MAX: u64 = 2261;

/// Unit of a time in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    /// Digits behind the point that are whole ns.
    const fn digits(self) -> usize {
        match self {
            Self::Seconds => 9,
            Self::Millis => 6,
            Self::Micros => 3,
            Self::Nanos => 0,
        }
    }
}

/// A time of this unit in ns. Digits below a ns are cut.
///
/// # Errors
/// It is negative, no finite number, or past 2^64 ns.
pub fn nanos(text: &[u8], unit: Unit) -> Result<u64, String> {
    scaled(text.trim_ascii(), unit.digits()).ok_or_else(|| {
        let what = format!("{unit:?}").to_lowercase();
        format!(
            "found {}, expected a time in {what} (finite, not negative, below 2^64 ns)",
            found(text)
        )
    })
}

/// `12.345e2` times 10^digits, as a whole number.
fn scaled(text: &[u8], digits_behind: usize) -> Option<u64> {
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], std::str::from_utf8(&text[at + 1..]).ok()?.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let whole = &mantissa[..point];
    let fraction = mantissa.get(point + 1..).unwrap_or_default();
    if whole.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let shift = i64::from(exponent) + digits_behind as i64;
    // Digits that stand before the point once it is moved.
    let kept = (fraction.len() as i64).min(shift);
    let behind = usize::try_from(kept).unwrap_or(0);
    let mut value = digits(whole)?;
    for byte in &fraction[..behind] {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    let rest = shift - behind as i64;
    if value == 0 {
        return Some(0);
    }
    let power = 10_u64.checked_pow(u32::try_from(rest.unsigned_abs()).ok()?);
    match power {
        Some(power) if rest >= 0 => value.checked_mul(power),
        Some(power) => Some(value / power),
        None => (rest < 0).then_some(0),
    }
}

/// A date with time, `2023-11-16 18:15:46.6805900`, in ns since 1970. `T` may stand for the blank; `Z` or `+02:00` behind it is heeded.
///
/// # Errors
/// It is none.
pub fn date_time(text: &[u8]) -> Result<u64, String> {
    parse_date_time(text.trim_ascii()).ok_or_else(|| {
        format!(
            "found {}, expected a date and time such as 2023-11-16 18:15:46.6805900, from 1970 to {YEAR_MAX}",
            found(text)
        )
    })
}

fn parse_date_time(text: &[u8]) -> Option<u64> {
    if text.len() < 19 || text[4] != b'-' || text[7] != b'-' || !matches!(text[10], b' ' | b'T') {
        return None;
    }
    let (year, month, day) = (digits(&text[..4])?, digits(&text[5..7])?, digits(&text[8..10])?);
    let clock = &text[11..];
    let zone_at = clock.iter().position(|byte| matches!(byte, b'Z' | b'+' | b'-'));
    let (clock, zone) = clock.split_at(zone_at.unwrap_or(clock.len()));
    let days = days_since_1970(year, month, day)?;
    let local = days * SECONDS_IN_DAY * NANOS_IN_SECOND + parse_clock(clock, b'.')?;
    let ahead = match zone {
        [] | [b'Z'] => 0,
        [sign, rest @ ..] => {
            let (hours, minutes) = (digits(rest.get(..2)?)?, digits(rest.get(3..)?)?);
            if rest[2] != b':' || hours > 14 || minutes > 59 {
                return None;
            }
            let ahead = ((hours * 60 + minutes) * 60 * NANOS_IN_SECOND) as i64;
            if *sign == b'+' { ahead } else { -ahead }
        }
    };
    local.checked_add_signed(-ahead)
}

/// A time of day, `18:15:46.680590` or `18:15:46:680590`, in ns since midnight.
///
/// # Errors
/// It is none.
pub fn time_of_day(text: &[u8]) -> Result<u64, String> {
    let trimmed = text.trim_ascii();
    parse_clock(trimmed, b'.').or_else(|| parse_clock(trimmed, b':')).ok_or_else(|| {
        format!("found {}, expected a time of day such as 18:15:46.680590", found(text))
    })
}

/// `HH:MM:SS`, and up to nine digits of a second behind `point`.
fn parse_clock(text: &[u8], point: u8) -> Option<u64> {
    if text.len() < 8 || text[2] != b':' || text[5] != b':' {
        return None;
    }
    let (hours, minutes) = (digits(&text[..2])?, digits(&text[3..5])?);
    let seconds = digits(&text[6..8])?;
    if hours > 23 || minutes > 59 || seconds > 60 {
        return None;
    }
    let fraction = match &text[8..] {
        [] => 0,
        [mark, rest @ ..] if *mark == point && (1..=9).contains(&rest.len()) => {
            digits(rest)? * 10_u64.pow(9 - rest.len() as u32)
        }
        _ => return None,
    };
    Some(((hours * 60 + minutes) * 60 + seconds) * NANOS_IN_SECOND + fraction)
}

/// Days of the Gregorian calendar from 1970-01-01.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    if !(1970..=YEAR_MAX).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let before = BEFORE_MONTH[month as usize - 1];
    let length = BEFORE_MONTH.get(month as usize).unwrap_or(&365) - before;
    let leap_day = u64::from(leap(year));
    if day == 0 || day > length + if month == 2 { leap_day } else { 0 } {
        return None;
    }
    let leaps_until = |year: u64| year / 4 - year / 100 + year / 400;
    let leaps = leaps_until(year - 1) - leaps_until(1969);
    let this_year = before + if month > 2 { leap_day } else { 0 } + day - 1;
    Some((year - 1970) * 365 + leaps + this_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_times_are_exact() {
        assert_eq!(nanos(b"1787267980.0827403", Unit::Seconds), Ok(1_787_267_980_082_740_300));
        assert_eq!(nanos(b"27536.660701067", Unit::Seconds), Ok(27_536_660_701_067));
        assert_eq!(nanos(b"12", Unit::Millis), Ok(12_000_000));
        assert_eq!(nanos(b"12.0009999", Unit::Micros), Ok(12_000));
        assert_eq!(nanos(b"1.5e-3", Unit::Seconds), Ok(1_500_000));
        assert_eq!(nanos(b"1.23456e4", Unit::Nanos), Ok(12_345));
        assert_eq!(nanos(b"1e-400", Unit::Seconds), Ok(0));
        for bad in ["", "-1", "nan", "inf", "1e400", ".5", "1.2.3", "99999999999", "1e", "1,5"] {
            assert!(nanos(bad.as_bytes(), Unit::Seconds).is_err(), "{bad}");
        }
        assert_eq!(
            nanos(b"-3", Unit::Seconds),
            Err(r#"found "-3", expected a time in seconds (finite, not negative, below 2^64 ns)"#
                .to_owned())
        );
    }

    #[test]
    fn dates_count_from_1970() {
        let second = NANOS_IN_SECOND;
        assert_eq!(date_time(b"1970-01-01 00:00:00"), Ok(0));
        assert_eq!(date_time(b"2000-03-01T00:00:00Z"), Ok(951_868_800 * second));
        assert_eq!(
            date_time(b"2023-11-16 18:15:46.6805900"),
            Ok(1_700_158_546 * second + 680_590_000)
        );
        assert_eq!(
            date_time(b"2024-05-10 02:00:00.5+02:00"),
            Ok(1_715_299_200 * second + second / 2)
        );
        for bad in [
            "",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "1969-12-31 23:59:59",
            "2023-11-16",
            "2023-11-16 24:00:00",
            "2023-11-16 18:15:46.",
            "1970-01-01 00:00:00+01:00",
            "2023-11-16 18:15:46+1",
        ] {
            assert!(date_time(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_of_day_count_from_midnight() {
        assert_eq!(time_of_day(b"01:02:03.000004"), Ok(3_723_000_004_000));
        assert_eq!(time_of_day(b"01:02:03:000004"), Ok(3_723_000_004_000));
        assert_eq!(time_of_day(b"23:59:59"), Ok(86_399_000_000_000));
        assert!(time_of_day(b"1:02:03").is_err());
    }
}
