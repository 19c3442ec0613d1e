//! How figures are written: four digits, whole numbers whole, an interval to the digits of its mean.

use super::claims::Figure;

/// Digits behind the point for a number of this size.
fn decimals(value: f64) -> usize {
    let size = value.abs();
    match () {
        () if value.fract() == 0.0 => 0,
        () if size >= 1000.0 => 0,
        () if size >= 100.0 => 1,
        () if size >= 10.0 => 2,
        () if size >= 0.1 => 3,
        () => 5,
    }
}

/// `1234`, `12.34`, `0.0123`.
pub fn number(value: f64) -> String {
    let text = format!("{value:.*}", decimals(value));
    if value != 0.0 && text.bytes().all(|b| matches!(b, b'0' | b'.' | b'-')) {
        return format!("{value:.2e}"); // not so small that it would be nothing
    }
    text
}

/// `12.34 ± 0.56`: the interval with as many decimals as the mean, and with one at least where it is not whole.
pub fn figure(figure: &Figure) -> String {
    let mean = number(figure.mean);
    let Some(half) = figure.half else { return mean };
    let half = match decimals(figure.mean) {
        _ if mean.contains('e') => format!("{half:.2e}"),
        _ if half == 0.0 => "0".to_owned(),
        digits if half.fract() == 0.0 => format!("{half:.digits$}"),
        digits => format!("{half:.*}", digits.max(1)),
    };
    format!("{mean} ± {half}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_digits_are_shown() {
        for (value, text) in [
            (4096.0, "4096"),
            (12_345.6, "12346"),
            (123.45, "123.5"),
            (12.345, "12.35"),
            (1.2345, "1.234"),
            (0.12345, "0.123"),
            (0.012_345, "0.01235"),
            (1e-9, "1.00e-9"),
            (0.0, "0"),
            (-7.25, "-7.250"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn an_interval_has_the_digits_of_its_mean() {
        let with = |mean, half| figure(&Figure { mean, half, seeds: 2 });
        assert_eq!(with(12.345, Some(0.5)), "12.35 ± 0.50");
        assert_eq!(with(12.0, Some(0.0)), "12 ± 0");
        assert_eq!(with(12.0, Some(0.25)), "12 ± 0.2");
        assert_eq!(with(1e-9, Some(2e-10)), "1.00e-9 ± 2.00e-10");
        assert_eq!(with(12.345, None), "12.35");
    }
}
