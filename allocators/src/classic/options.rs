//! Options of the classic family, and how the pool grows.

use vramlab_sim::units::Bytes;

use super::rule::GRANULE;
use crate::options::{OptionDoc, OptionError, Options};
use crate::parts::pieces::UNIT_SIZE_MIN;

pub(super) const ALIGN: OptionDoc = OptionDoc {
    name: "align",
    default: "512",
    help: "every block begins at and takes a multiple of this: a power of two from 256 to 2MiB",
};
pub(crate) const SEGMENT: OptionDoc = OptionDoc {
    name: "segment",
    default: "32MiB",
    help: "least size of a segment taken from the driver; whole granules of 2MiB",
};
pub(super) const ARENA: OptionDoc = OptionDoc {
    name: "arena",
    default: "growth",
    help: "growth: as many segments as it takes; a size or N%: one segment of that size, or of that share of the free memory",
};

/// Options of the strategies with boundary tags.
pub(crate) const TAGGED: &[OptionDoc] = &[ALIGN, SEGMENT, ARENA];

/// How a pool grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// By segments.
    Segments,
    /// Once, by so many bytes.
    Arena(u64),
    /// Once, by this part in a hundred of the device's free memory.
    ArenaPercent(u32),
}

impl Growth {
    /// Bytes that the pool never passes.
    pub(super) fn limit(self) -> Option<u64> {
        match self {
            Self::Arena(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn parse(options: &Options) -> Result<Self, OptionError> {
        let Some(text) = options.get(ARENA.name) else { return Ok(Self::Segments) };
        let bad = || {
            OptionError(format!(
                "option arena={text}: expected growth, a size of at least 2MiB such as 16GiB, or a share from 1% to 100%"
            ))
        };
        if text == ARENA.default {
            return Ok(Self::Segments);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
            return percent.map(Self::ArenaPercent).ok_or_else(bad);
        }
        let bytes = text.parse::<Bytes>().map_err(|_| bad())?.0 / GRANULE * GRANULE;
        if bytes == 0 { Err(bad()) } else { Ok(Self::Arena(bytes)) }
    }
}

/// A size option that is a power of two within bounds.
pub(super) fn power_of_two(
    options: &Options,
    doc: &OptionDoc,
    least: u64,
    most: u64,
) -> Result<u64, OptionError> {
    let text = options.get(doc.name).unwrap_or(doc.default);
    let bytes = text.parse::<Bytes>().ok().map(|bytes| bytes.0);
    bytes.filter(|bytes| bytes.is_power_of_two() && (least..=most).contains(bytes)).ok_or_else(
        || {
            let (name, least, most) = (doc.name, Bytes(least), Bytes(most));
            OptionError(format!(
                "option {name}={text}: expected a power of two from {least} to {most}"
            ))
        },
    )
}

/// The `align` option.
pub(super) fn align(options: &Options) -> Result<u64, OptionError> {
    power_of_two(options, &ALIGN, UNIT_SIZE_MIN, GRANULE)
}

/// The `segment` option, in whole granules.
pub(crate) fn segment(options: &Options) -> Result<u64, OptionError> {
    let text = options.get(SEGMENT.name).unwrap_or(SEGMENT.default);
    let bytes =
        text.parse::<Bytes>().ok().and_then(|bytes| bytes.0.checked_next_multiple_of(GRANULE));
    bytes.filter(|bytes| (GRANULE..=1 << 40).contains(bytes)).ok_or_else(|| {
        OptionError(format!(
            "option segment={text}: expected a size from 1 B to 1 TiB such as 32MiB"
        ))
    })
}

/// `segment` does nothing where there is one arena.
pub(crate) fn inert(options: &Options) -> Vec<String> {
    match (options.get(SEGMENT.name), Growth::parse(options)) {
        (Some(segment), Ok(Growth::Arena(_) | Growth::ArenaPercent(_))) => {
            vec![format!("segment={segment} has no effect: with arena there is one segment")]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_bad_value_is_named_with_what_was_expected() {
        for (spec, want) in [
            (
                "classic.tlsf:align=100",
                "option align=100: expected a power of two from 256 B to 2 MiB",
            ),
            (
                "classic.tlsf:segment=0",
                "option segment=0: expected a size from 1 B to 1 TiB such as 32MiB",
            ),
            (
                "classic.tlsf:arena=0%",
                "option arena=0%: expected growth, a size of at least 2MiB such as 16GiB, or a share from 1% to 100%",
            ),
            ("classic.buddy:max_order=32", "option max_order=32: expected a number from 0 to 31"),
            (
                "classic.slab:slab=3MiB",
                "option slab=3MiB: expected a power of two from 2 MiB to 64 MiB",
            ),
            ("classic.slab:slabs=2MiB", "classic.slab has no option \"slabs\"; did you mean slab?"),
        ] {
            let refused = crate::build(&spec.parse().expect(spec)).err().expect(spec);
            assert_eq!(refused.to_string(), want);
        }
    }

    #[test]
    fn a_segment_size_beside_an_arena_is_inert() {
        let said = |spec: &str| {
            let spec: crate::Spec = spec.parse().expect(spec);
            super::inert(&spec.strategy().options)
        };
        assert_eq!(said("classic.tlsf:segment=2MiB"), [""; 0]);
        let want = "segment=2MiB has no effect: with arena there is one segment";
        assert_eq!(said("classic.tlsf:segment=2MiB,arena=1GiB"), [want]);
    }
}
