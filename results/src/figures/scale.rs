//! Units of axes: the one in which the largest value has one to three digits before the point.

use vramlab_sim::units::Bytes;

/// A unit, and how many of the smallest it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// As axes name it.
    pub name: &'static str,
    /// Bytes or ns.
    pub one: f64,
}

impl Unit {
    /// For bytes up to `most`.
    pub const fn bytes(most: u64) -> Self {
        match most {
            0..0x2800 => Self { name: "B", one: 1.0 },
            0x2800..0xA0_0000 => Self { name: "KiB", one: 1024.0 },
            0xA0_0000..0x2_8000_0000 => Self { name: "MiB", one: 1_048_576.0 },
            0x2_8000_0000..0xA00_0000_0000 => Self { name: "GiB", one: 1_073_741_824.0 },
            _ => Self { name: "TiB", one: 1_099_511_627_776.0 },
        }
    }

    /// For times up to `most` ns.
    pub const fn time(most: u64) -> Self {
        match most {
            0..2000 => Self { name: "ns", one: 1.0 },
            2000..2_000_000 => Self { name: "µs", one: 1e3 },
            2_000_000..2_000_000_000 => Self { name: "ms", one: 1e6 },
            _ => Self { name: "s", one: 1e9 },
        }
    }

    /// So many of the smallest in this unit.
    pub fn of(self, value: u64) -> f64 {
        value as f64 / self.one
    }
}

/// The unit in which a metric of the frame is drawn, and how many of the frame's it is.
pub fn of_metric(unit: &'static str, most: u64) -> (&'static str, f64) {
    let shown = match unit {
        "B" => Unit::bytes(most),
        "ns" => Unit::time(most),
        _ => Unit { name: unit, one: 1.0 },
    };
    (shown.name, shown.one)
}

/// Bytes in a title: three digits.
pub fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    if power == 0 {
        return Bytes(bytes).to_string();
    }
    format!("{} {}", three(bytes as f64 / (1_u64 << (10 * power)) as f64), units[power])
}

/// A time in a title: three digits.
pub fn time(ns: u64) -> String {
    let unit = Unit::time(ns.saturating_mul(2)); // four digits are too many here
    format!("{} {}", three(unit.of(ns)), unit.name)
}

/// Three digits, or all before the point.
pub fn three(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.995 => 2,
        size if size >= 0.01 => 3,
        _ => return format!("{value:.2e}"),
    };
    format!("{value:.digits$}")
}

/// A share in a title: whole percents, but never 0 or 100 where it is not.
pub fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    match share {
        _ if part == 0 || part == whole => format!("{share:.0} %"),
        share if share < 1.0 => "less than 1 %".to_owned(),
        share if share > 99.0 && part < whole => "more than 99 %".to_owned(),
        share => format!("{share:.0} %"),
    }
}

/// A label of an axis: as many digits as its value needs, and no more than three behind the point.
pub fn tick(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Powers of ten beyond which a logarithmic axis has labels at these alone.
const DECADES_MAX: usize = 3;

/// Labels of a logarithmic axis: 1, 2 and 5 of each power of ten, or only the powers where there are many.
pub fn log_ticks(from: f64, to: f64) -> Vec<f64> {
    let within = |digit: u32| -> Vec<f64> {
        let all = (-30..30).filter_map(|power| format!("{digit}e{power}").parse().ok());
        all.filter(|value| (from..=to).contains(value)).collect()
    };
    let mut ticks = within(1);
    if ticks.len() <= DECADES_MAX {
        ticks.extend([within(2), within(5)].concat());
        ticks.sort_by(f64::total_cmp);
    }
    ticks
}

/// The end of an axis that begins at 0: a little beyond the largest value.
pub fn end(most: f64) -> f64 {
    if most > 0.0 { most * 1.06 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_their_values() {
        assert_eq!(Unit::bytes(9 << 10).name, "B");
        assert_eq!(Unit::bytes(11 << 10).name, "KiB");
        assert_eq!(Unit::bytes(11 << 30).name, "GiB");
        assert_eq!(Unit::bytes(9 << 30).name, "MiB");
        assert_eq!(Unit::time(5_000_000).of(5_000_000), 5.0);
        assert_eq!(bytes(3 << 30), "3 GiB");
        assert_eq!(bytes((3 << 30) + (1 << 29)), "3.50 GiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!((time(812_345_678), time(1_234_567_890)), ("812 ms".into(), "1.23 s".into()));
    }

    #[test]
    fn nothing_is_rounded_to_none_or_all() {
        assert_eq!(percent(0, 9), "0 %");
        assert_eq!(percent(1, 9000), "less than 1 %");
        assert_eq!(percent(8999, 9000), "more than 99 %");
        assert_eq!((percent(0, 0), percent(3, 2)), ("0 %".into(), "150 %".into()));
        assert_eq!(
            (three(0.5), three(12.34), three(1234.5)),
            ("0.500".into(), "12.3".into(), "1234".into())
        );
    }

    #[test]
    fn logarithmic_axes_have_labels_within_them() {
        assert_eq!(log_ticks(14.0, 1100.0), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(log_ticks(0.09, 1.1e4), [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn ticks_have_no_zeros_behind() {
        assert_eq!((tick(0.0), tick(2.5), tick(1000.0)), ("0".into(), "2.5".into(), "1000".into()));
        assert_eq!(tick(1e9), "1e9");
    }
}
