//! How a history differs from the first on its page, in words: what was reserved, what was live at the peak, and who held it.

use std::collections::BTreeMap;

use vramlab_sim::units::Bytes;

use super::History;
use super::answer::Said;
use super::history::shown;
use crate::advise::trial::Trial;
use crate::analysis::category::Categories;
use crate::analysis::lives::Lives;
use crate::analysis::shares;

/// Categories and sites that are named.
const NAMED: usize = 3;

/// What two histories are compared by. Bytes.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// With the settings in force; none where that run ended early.
    reserved: Option<u64>,
    failed: u64,
    live: u64,
    categories: BTreeMap<String, u64>,
    sites: BTreeMap<String, u64>,
}

impl Held {
    pub(super) fn of(lives: &Lives, categories: &Categories, own: Option<&Trial>) -> Self {
        let own = own.filter(|own| own.ran());
        let by_category = shares::by_category(lives, categories, lives.peak_op).into_iter();
        let by_site = shares::by_site(lives, lives.peak_op, usize::MAX).into_iter();
        Self {
            reserved: own.map(|own| own.row.peak_reserved),
            failed: own.map_or(0, |own| own.row.failed()),
            live: lives.peak_bytes,
            categories: by_category.map(|s| (s.category.text().to_owned(), s.bytes)).collect(),
            sites: by_site.map(|s| (s.what, s.bytes)).collect(),
        }
    }
}

/// Says of each history but the first how it differs from that.
pub fn compare(histories: &mut [History]) {
    let Some((first, others)) = histories.split_first_mut() else { return };
    for other in others {
        other.answer.push(said(&first.name, &first.held, &other.held));
    }
}

fn said(name: &str, first: &Held, other: &Held) -> Said {
    let mut text = format!("Beside {name}: ");
    if let (Some(a), Some(b)) = (first.reserved, other.reserved) {
        text += &format!("{} are reserved at most instead of {}, ", Bytes(b), Bytes(a));
        if (first.failed, other.failed) != (0, 0) {
            text += &format!("{} requests fail instead of {}, ", other.failed, first.failed);
        }
    }
    text +=
        &format!("and live buffers take {} instead of {}", Bytes(other.live), Bytes(first.live));
    for (by, list) in [
        ("category", differences(&first.categories, &other.categories)),
        ("site", differences(&first.sites, &other.sites)),
    ] {
        text += &match list.is_empty() {
            true => format!("; by {by} there is no difference"),
            false => format!("; by {by}: {}", list.join(", ")),
        };
    }
    Said { about: "compared", text: text + ".", paste: None }
}

/// The largest differences, such as `activations +1.5 GiB`.
fn differences(first: &BTreeMap<String, u64>, other: &BTreeMap<String, u64>) -> Vec<String> {
    let of = |map: &BTreeMap<String, u64>, what: &str| map.get(what).copied().unwrap_or(0);
    let names = first.keys().chain(other.keys().filter(|name| !first.contains_key(*name)));
    let mut all: Vec<(&String, u64, u64)> =
        names.map(|what| (what, of(first, what), of(other, what))).collect();
    all.retain(|(_, a, b)| a != b);
    all.sort_by_key(|(what, a, b)| (std::cmp::Reverse(a.abs_diff(*b)), *what));
    let one = |(what, a, b): &(&String, u64, u64)| {
        let sign = if b > a { '+' } else { '-' };
        format!("{} {sign}{}", shown(what), Bytes(a.abs_diff(*b)))
    };
    all.iter().take(NAMED).map(one).collect()
}
