//! Sizes as programs print them for people.

/// A size that was printed with few digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    /// The printed value (B); the real one is near.
    pub bytes: u64,
    /// What the last printed digit is worth (B): the real value is less than this away.
    pub step: u64,
}

/// Units and their bytes: all programs read here count in powers of 1024, whatever they call them.
const UNITS: [(&[u8], u64); 12] = [
    (b"B", 1),
    (b"KB", 1 << 10),
    (b"KiB", 1 << 10),
    (b"kB", 1 << 10),
    (b"MB", 1 << 20),
    (b"MiB", 1 << 20),
    (b"GB", 1 << 30),
    (b"GiB", 1 << 30),
    (b"TB", 1 << 40),
    (b"TiB", 1 << 40),
    (b"PB", 1 << 50),
    (b"PiB", 1 << 50),
];

impl Quantity {
    /// `74.16MiB`, `520B`, `146836 KB`; the nearest whole byte.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_ascii();
        let (_, worth) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let point = number.iter().position(|byte| *byte == b'.');
        let behind = point.map_or(0, |point| number.len() - point - 1);
        let scale = 10_u128.checked_pow(u32::try_from(behind).ok()?)?;
        let mut value: u128 = 0;
        for byte in number.iter().filter(|byte| **byte != b'.') {
            value = value.checked_mul(10)?.checked_add(u128::from(byte.wrapping_sub(b'0')))?;
        }
        let several_points = number.iter().filter(|byte| **byte == b'.').count() > 1;
        if number.is_empty() || several_points || scale > 1_000_000_000 {
            return None;
        }
        let bytes = value.checked_mul(u128::from(*worth))?.checked_add(scale / 2)? / scale;
        let step = u128::from(*worth).div_ceil(scale);
        Some(Self { bytes: u64::try_from(bytes).ok()?, step: u64::try_from(step).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_sizes_say_how_exact_they_are() {
        let parse = |text: &str| Quantity::parse(text.as_bytes()).map(|q| (q.bytes, q.step));
        assert_eq!(parse("74.16MiB"), Some((77_762_396, 10_486)));
        assert_eq!(parse("4.68MiB"), Some((4_907_336, 10_486)), "4907335.68");
        assert_eq!(parse("520B"), Some((520, 1)));
        assert_eq!(parse("146836 KB"), Some((150_360_064, 1024)));
        assert_eq!(parse("  0 B  "), Some((0, 1)));
        for bad in ["", "12", "MiB", "1.2.3MiB", "-1B", "1 XB", "99999999999PiB", "nanB"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
