//! Large buffers by phase and size, ours and recorded, and which of them differ.
//!
//! Requests of a phase are laid beside each other in their order, so that as many as can be have the same size (the longest common subsequence). What is left of ours
//! is *ours alone*, told by what makes it; what is left of the recording *is missing*, told by the two of ours between which it was asked for.

use std::collections::BTreeMap;

use serde::Serialize;

use super::phases::partners;

/// Most pairs of requests of a phase that are compared.
const PAIRS_MAX: usize = 1 << 25;
/// Most places that are told of one size.
const TOLD: usize = 3;

/// Large buffers of one size in a phase.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Buffers {
    pub name: String,
    /// The phase as it was recorded; empty if the recording has no such phase.
    pub phase: String,
    /// As ours has it; empty if ours has no such phase.
    pub our_phase: String,
    pub size: u64,
    pub ours: u64,
    pub measured: u64,
    /// Where ours are made; empty if we have none.
    pub sites: String,
    /// Which of them differ; empty where the numbers are equal.
    pub differ: String,
}

impl Buffers {
    /// Have both the phase?
    pub const fn in_both(&self) -> bool {
        !self.phase.is_empty() && !self.our_phase.is_empty()
    }
}

/// A request: its size, and where it was made (nothing in a recording).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) size: u64,
    pub(super) site: String,
}

/// The large requests of a run by phase; phases of one name are one, in the order in which they began.
#[derive(Default)]
pub(super) struct Phases {
    names: Vec<String>,
    asked: Vec<Vec<Asked>>,
    current: Option<usize>,
}

impl Phases {
    /// A phase begins, or goes on.
    pub(super) fn begin(&mut self, name: &str) {
        self.current =
            Some(self.names.iter().rposition(|known| known == name).unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.asked.push(Vec::new());
                self.names.len() - 1
            }));
    }

    /// A request; before the first phase none is kept.
    pub(super) fn ask(&mut self, asked: Asked) {
        if let Some(current) = self.current {
            self.asked[current].push(asked);
        }
    }
}

/// Both side by side: each recorded phase with ours, then phases that only ours has.
pub(super) fn compare(name: &str, recorded: &Phases, ours: &Phases) -> Vec<Buffers> {
    let found = partners(&recorded.names, &ours.names);
    let mut rows = Vec::new();
    for (i, partner) in found.iter().enumerate() {
        let our = partner.map(|our| (ours.names[our].as_str(), ours.asked[our].as_slice()));
        rows.extend(phase(name, Some((&recorded.names[i], &recorded.asked[i])), our));
    }
    for our in (0..ours.names.len()).filter(|our| !found.contains(&Some(*our))) {
        rows.extend(phase(name, None, Some((&ours.names[our], &ours.asked[our]))));
    }
    rows
}

type Phase<'a> = Option<(&'a str, &'a [Asked])>;

fn phase(name: &str, recorded: Phase<'_>, ours: Phase<'_>) -> Vec<Buffers> {
    let (text, theirs) = recorded.unwrap_or_default();
    let (our_text, mine) = ours.unwrap_or_default();
    let mut sizes: BTreeMap<u64, (u64, u64, Vec<String>)> = BTreeMap::new();
    for asked in theirs {
        sizes.entry(asked.size).or_default().1 += 1;
    }
    for asked in mine {
        let (count, _, sites) = sizes.entry(asked.size).or_default();
        *count += 1;
        let site = without_numbers(&asked.site);
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    let both = recorded.is_some() && ours.is_some();
    let differs = sizes.values().any(|(ours, measured, _)| ours != measured);
    let told = if both && differs { tell(mine, theirs) } else { BTreeMap::new() };
    let differ = |size: u64, equal: bool| match (recorded, ours) {
        _ if equal => String::new(),
        (None, _) => "the recording has no such phase".to_owned(),
        (_, None) => "ours has no such phase".to_owned(),
        _ => told.get(&size).map_or("in too many requests to tell".to_owned(), |t| t.text()),
    };
    let row = |(size, (ours, measured, sites)): (u64, (u64, u64, Vec<String>))| Buffers {
        name: name.to_owned(),
        phase: text.to_owned(),
        our_phase: our_text.to_owned(),
        size,
        ours,
        measured,
        sites: sites.join(" "),
        differ: differ(size, ours == measured),
    };
    sizes.into_iter().rev().map(row).collect()
}

/// What of a size has no partner.
#[derive(Default)]
struct Told {
    alone: Vec<String>,
    missing: Vec<String>,
}

impl Told {
    fn text(&self) -> String {
        let part = |title: &str, places: &[String]| {
            let first = places[..places.len().min(TOLD)].join(", ");
            let more = places.len().saturating_sub(TOLD);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            (!places.is_empty()).then(|| format!("{title}: {first}{more}"))
        };
        let parts = [part("ours alone", &self.alone), part("missing", &self.missing)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// By size; nothing where there are too many requests.
fn tell(ours: &[Asked], recorded: &[Asked]) -> BTreeMap<u64, Told> {
    let mut told: BTreeMap<u64, Told> = BTreeMap::new();
    let Some((alone, missing)) = left(ours, recorded) else { return told };
    for i in alone {
        told.entry(ours[i].size).or_default().alone.push(ours[i].site.clone());
    }
    for (before, i) in missing {
        let after = before.checked_sub(1).map(|after| format!("after {}", ours[after].site));
        let next = ours.get(before).map(|next| format!("before {}", next.site));
        let place: Vec<String> = [after, next].into_iter().flatten().collect();
        told.entry(recorded[i].size).or_default().missing.push(place.join(" "));
    }
    told
}

/// What each has alone: ours by index; of the recording the index of ours before which it stands, and its own.
type Left = (Vec<usize>, Vec<(usize, usize)>);

fn left(ours: &[Asked], recorded: &[Asked]) -> Option<Left> {
    let same = |(a, b): &(&Asked, &Asked)| a.size == b.size;
    let front = ours.iter().zip(recorded).take_while(same).count();
    let (a, b) = (&ours[front..], &recorded[front..]);
    let width = b.len() + 1;
    if a.len().saturating_mul(b.len()) > PAIRS_MAX {
        return None;
    }
    // lengths[i][j]: of the longest common subsequence of what follows i and j
    let mut lengths = vec![0_u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i * width + j] = match a[i].size == b[j].size {
                true => lengths[(i + 1) * width + j + 1] + 1,
                false => lengths[(i + 1) * width + j].max(lengths[i * width + j + 1]),
            };
        }
    }
    let (mut alone, mut missing, mut i, mut j) = (Vec::new(), Vec::new(), 0, 0);
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i].size == b[j].size {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len()
            || (i < a.len() && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])
        {
            alone.push(front + i);
            i += 1;
        } else {
            missing.push((front + i, front + j));
            j += 1;
        }
    }
    Some((alone, missing))
}

/// `layer.*.ffn` for `layer.3.ffn`.
fn without_numbers(site: &str) -> String {
    let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    site.split('.').map(|part| if number(part) { "*" } else { part }).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(name: &str, asked: &[(u64, &str)]) -> Phases {
        let mut phases = Phases::default();
        phases.begin(name);
        asked.iter().for_each(|(size, site)| {
            phases.ask(Asked { size: *size, site: (*site).to_owned() });
        });
        phases
    }

    #[test]
    fn differences_are_told_by_buffer() {
        let ours = phases("step 0 batch 2 forward", &[(9, "a.0"), (5, "a.1"), (7, "b"), (5, "c")]);
        let recorded = phases("step 0 forward", &[(9, ""), (5, ""), (5, ""), (8, "")]);
        let rows = compare("it", &recorded, &ours);
        let told: Vec<_> =
            rows.iter().map(|r| (r.size, r.ours, r.measured, r.differ.as_str())).collect();
        let want = [
            (9, 1, 1, ""),
            (8, 0, 1, "missing: after c"),
            (7, 1, 0, "ours alone: b"),
            (5, 2, 2, ""),
        ];
        assert_eq!(told, want);
        assert_eq!((rows[0].sites.as_str(), rows[0].in_both()), ("a.*", true));
    }

    #[test]
    fn a_phase_without_partner_is_shown_whoever_has_it() {
        let rows = compare("it", &phases("step 0 x", &[(9, "")]), &phases("step 0 y", &[(5, "s")]));
        let told: Vec<_> = rows
            .iter()
            .map(|r| (r.phase.as_str(), r.our_phase.as_str(), r.differ.as_str()))
            .collect();
        let want = [
            ("step 0 x", "", "ours has no such phase"),
            ("", "step 0 y", "the recording has no such phase"),
        ];
        assert_eq!(told, want);
        assert!(rows.iter().all(|row| !row.in_both()));
    }

    #[test]
    fn many_places_are_cut() {
        let ours = phases("a b", &[(5, "s"); 5]);
        let rows = compare("it", &phases("a b", &[]), &ours);
        assert_eq!(rows[0].differ, "ours alone: s, s, s and 2 more");
    }
}
