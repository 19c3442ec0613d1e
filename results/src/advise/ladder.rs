//! Which values of which option are tried: a ladder for each option that can move memory.
//!
//! PyTorch's ladders are written here, since its options say nothing of their scale. Of any other strategy they are made from its own list
//! of options: a switch is turned, a size or a number goes from a quarter to four times its default, a share of one through its range.
//!
//! | rule | what it says |
//! |---|---|
//! | `with` | an option that does nothing alone is tried alone, which proves it, and with the one that it needs |
//! | `version` | a setting that the recorded version lacks is refused by the strategy itself, and never advised |
//! | `since` | a recording tells its version roughly or not at all, so the advice names the first release that reads all options of it |
//!
//! | option of PyTorch | there since | source (pytorch/pytorch) |
//! |---|---|---|
//! | `max_split_size_mb` | 1.10 | pull request 44742 |
//! | `garbage_collection_threshold` | 1.12 | pull request 74261 |
//! | `roundup_power2_divisions` | 1.12; a list since 2.0 | pull requests 74213, 87290 |
//! | `backend` | 2.0 | pull request 65365 |
//! | `expandable_segments` | 2.1 | pull request 96995 |
//! | `max_non_split_rounding_mb` | 2.6 | pull request 136174 |
//! | `per_process_memory_fraction` | 2.10 | pull request 161035; `c10/cuda/CUDAAllocatorConfig.h` of 2.10.0, and not of 2.9.1 |
//! | `large_segment_size_mb` | 2.11 | pull request 172056; `c10/core/AllocatorConfig.h` of 2.11.0, and not of 2.10.0 |

use vramlab_allocators::options::OptionDoc;
use vramlab_allocators::{OptionError, find};
use vramlab_sim::units::Bytes;

use super::setting::{Family, Setting};

/// An option with the values that are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// Its name.
    pub key: &'static str,
    /// Its values.
    pub values: Vec<String>,
    /// What it does nothing without.
    pub with: Option<(&'static str, &'static str)>,
}

/// PyTorch's: option, values, what it needs.
type Row = (&'static str, &'static [&'static str], Option<(&'static str, &'static str)>);

/// The first release that reads an option (rule `since`).
const SINCE: [(&str, Release); 8] = [
    ("max_split_size_mb", (1, 10)),
    ("garbage_collection_threshold", (1, 12)),
    ("roundup_power2_divisions", (1, 12)),
    ("backend", (2, 0)),
    ("expandable_segments", (2, 1)),
    ("max_non_split_rounding_mb", (2, 6)),
    ("per_process_memory_fraction", (2, 10)),
    ("large_segment_size_mb", (2, 11)),
];
/// And a list of divisions.
const LIST_SINCE: Release = (2, 0);

/// The first release that records histories as they are read here; every option up to it is there in all recordings.
pub const RECORDS_SINCE: Release = (2, 1);

/// A release of PyTorch: major, minor.
pub type Release = (u32, u32);

/// The first release of PyTorch that reads this value of an option (rule `since`); none if the option is none of its.
pub fn since(key: &str, value: &str) -> Option<Release> {
    let (_, since) = SINCE.iter().find(|(option, _)| *option == key)?;
    Some(if value.starts_with('[') { LIST_SINCE.max(*since) } else { *since })
}

const TORCH: [Row; 8] = [
    ("expandable_segments", &["True"], None),
    (
        "max_split_size_mb",
        &["21", "32", "64", "96", "128", "192", "256", "384", "512", "1024", "2048", "4096"],
        None,
    ),
    (
        "roundup_power2_divisions",
        &[
            "1",
            "2",
            "4",
            "8",
            "16",
            "32",
            "64",
            "[256:1,512:2,1024:4,>:8]",
            "[64:4,256:8,>:16]",
            "[32:1,>:8]",
        ],
        None,
    ),
    ("large_segment_size_mb", &["32", "64", "128", "256", "512"], None),
    ("max_non_split_rounding_mb", &["64", "256", "1024"], Some(("max_split_size_mb", "256"))),
    (
        "garbage_collection_threshold",
        &["0.6", "0.8", "0.9"],
        Some(("per_process_memory_fraction", "0.95")),
    ),
    ("per_process_memory_fraction", &["0.99", "0.95"], None),
    ("backend", &["cudaMallocAsync"], None),
];

/// The ladders of a family, but for the options that are to stay as they are.
///
/// # Errors
/// An unknown strategy.
pub fn of(family: &Family) -> Result<Vec<Ladder>, OptionError> {
    if family.is_torch() {
        let own = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let ladder = |(key, values, with): &Row| Ladder { key, values: own(values), with: *with };
        let searched = TORCH.iter().filter(|(key, ..)| !family.keeps(key)).map(ladder);
        let with = |needed: (&str, &str)| !family.keeps(needed.0);
        return Ok(searched
            .map(|one| Ladder { with: one.with.filter(|n| with(*n)), ..one })
            .collect());
    }
    let docs = find(family.name())?.options;
    let ladder = |doc: &OptionDoc| Ladder { key: doc.name, values: values(doc), with: None };
    let searched = docs.iter().filter(|doc| !family.keeps(doc.name)).map(ladder);
    Ok(searched.filter(|ladder| !ladder.values.is_empty()).collect())
}

/// Steps of a number beside its default.
const FACTORS: [(u64, u64); 4] = [(1, 4), (1, 2), (2, 1), (4, 1)];

/// Values of an option by what its default is; none if that tells nothing.
fn values(doc: &OptionDoc) -> Vec<String> {
    let scaled = |n: u64, show: &dyn Fn(u64) -> String| -> Vec<String> {
        let steps = FACTORS.iter().filter_map(|(up, down)| Some(n.checked_mul(*up)? / down));
        steps.filter(|step| *step > 0 && *step != n).map(show).collect()
    };
    match doc.default {
        "true" => vec!["false".to_owned()],
        "false" => vec!["true".to_owned()],
        text => {
            if let Ok(n) = text.parse::<u64>() {
                return scaled(n, &|n| n.to_string());
            }
            if let Ok(share) = text.parse::<f64>() {
                let shares = ["0.25", "0.5", "0.75", "0.9", "0.95"];
                let other = |s: &&&str| s.parse() != Ok(share);
                return match (0.0..=1.0).contains(&share) {
                    true => shares.iter().filter(other).map(|s| (*s).to_owned()).collect(),
                    false => Vec::new(),
                };
            }
            match text.parse::<Bytes>() {
                Ok(bytes) => scaled(bytes.0, &|n| Bytes(n).to_string().replace(' ', "")),
                Err(_) => Vec::new(),
            }
        }
    }
}

/// Every value alone, and those that need another with it.
pub fn singles(ladders: &[Ladder]) -> Vec<Setting> {
    let mut all = Vec::new();
    for ladder in ladders {
        for value in &ladder.values {
            let alone = Setting::default().with(ladder.key, value);
            let both = ladder.with.map(|(key, needed)| alone.with(key, needed));
            all.push(alone);
            all.extend(both);
        }
    }
    all
}

/// Every setting one step from this one: an option more, another value, an option less.
pub fn neighbours(of: &Setting, ladders: &[Ladder]) -> Vec<Setting> {
    let mut all = Vec::new();
    for ladder in ladders {
        for value in ladder.values.iter().filter(|value| of.get(ladder.key) != Some(value)) {
            let mut one = of.with(ladder.key, value);
            if let Some((key, needed)) = ladder.with.filter(|(key, _)| one.get(key).is_none()) {
                one = one.with(key, needed);
            }
            all.push(one);
        }
        if of.get(ladder.key).is_some() {
            all.push(of.without(ladder.key));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use vramlab_allocators::{Spec, build};

    use super::*;

    fn family(name: &str) -> Family {
        Family { base: Spec::new(name, Default::default()) }
    }

    /// Steps that are refused all the same: a list of options does not say where what an option takes ends.
    const REFUSED: [&str; 15] = [
        "classic.first_fit:align=128",
        "classic.next_fit:align=128",
        "classic.best_fit:align=128",
        "classic.worst_fit:align=128",
        "classic.tlsf:align=128",
        "classic.buddy:min_block=128",
        "classic.buddy:max_order=32",
        "classic.buddy:max_order=64",
        "classic.segregated:align=128",
        "classic.slab:slab=512KiB",
        "classic.slab:slab=1MiB",
        "paddle.auto_growth:alignment_size=64",
        "paddle.auto_growth:alignment_size=128",
        "paddle.vmm_auto_growth:alignment_size=64",
        "paddle.vmm_auto_growth:alignment_size=128",
    ];

    /// A ladder with a value that its strategy refuses would waste the budget.
    #[test]
    fn every_step_is_accepted_by_the_newest_version() {
        let mut refused = Vec::new();
        for strategy in vramlab_allocators::STRATEGIES.iter().filter(|one| !one.plans_ahead()) {
            let family = family(strategy.name);
            let ladders = of(&family).expect("a strategy");
            assert!(!family.is_torch() || ladders.len() >= 8);
            let specs = singles(&ladders).into_iter().map(|one| family.spec(&one));
            refused.extend(specs.filter(|spec| build(spec).is_err()).map(|spec| spec.to_string()));
        }
        assert_eq!(refused, REFUSED);
    }

    /// What is advised says since when it is there; a recording of an older program was told to set what its version refuses.
    #[test]
    fn every_option_of_pytorch_says_since_when_it_is_there() {
        let family = family("torch.caching");
        for ladder in of(&family).expect("a strategy") {
            for value in &ladder.values {
                assert!(since(ladder.key, value).is_some(), "{}", ladder.key);
            }
        }
        assert_eq!(since("large_segment_size_mb", "64"), Some((2, 11)));
        assert_eq!(since("roundup_power2_divisions", "4"), Some((1, 12)));
        assert_eq!(since("roundup_power2_divisions", "[256:1,>:8]"), Some((2, 0)));
        // what the rules of 2.9 refuse is newer, and what they take is not
        let old = Family { base: "torch.caching:version=2.9".parse().expect("a spec") };
        for setting in singles(&of(&old).expect("a strategy")) {
            let new = setting.pairs.iter().any(|(key, value)| since(key, value) > Some((2, 9)));
            assert_eq!(build(&old.spec(&setting)).is_err(), new, "{}", setting.text());
        }
    }

    /// Both were changed: the one in the settings text, the other by giving it twice.
    #[test]
    fn options_that_are_to_stay_are_not_searched() {
        for spec in ["torch.caching:max_split_size_mb=200", "tensorflow.bfc:allow_growth=true"] {
            let family = Family { base: spec.parse().expect("a spec") };
            for setting in singles(&of(&family).expect("a strategy")) {
                let kept = |(key, _): &(&'static str, String)| family.keeps(key);
                assert!(!setting.pairs.iter().any(kept), "{spec}: {}", setting.text());
            }
        }
    }

    #[test]
    fn ladders_are_made_from_the_list_of_options() {
        let doc = |default| OptionDoc { name: "x", default, help: "" };
        assert_eq!(values(&doc("false")), ["true"]);
        assert_eq!(values(&doc("8")), ["2", "4", "16", "32"]);
        assert_eq!(values(&doc("0.9")), ["0.25", "0.5", "0.75", "0.95"]);
        assert_eq!(values(&doc("2MiB")), ["512KiB", "1MiB", "4MiB", "8MiB"]);
        assert_eq!(values(&doc("none")), Vec::<String>::new());
    }

    #[test]
    fn a_neighbour_differs_in_one_step() {
        let ladders = [
            Ladder { key: "a", values: vec!["1".into(), "2".into()], with: None },
            Ladder { key: "b", values: vec!["3".into()], with: Some(("a", "1")) },
        ];
        let texts = |of: &Setting| -> Vec<String> {
            neighbours(of, &ladders).iter().map(Setting::text).collect()
        };
        assert_eq!(texts(&Setting::of(&[("a", "1")])), ["a:2", "", "a:1,b:3"]);
        let singles: Vec<String> = singles(&ladders).iter().map(Setting::text).collect();
        assert_eq!(singles, ["a:1", "a:2", "b:3", "a:1,b:3"]);
    }
}
