//! Foresees with a given accuracy: what another one foresees, some of it replaced.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `right` | each use that would be foreseen is foreseen with the given probability | - |
//! | `wrong` | otherwise a buffer is named in its place that is live then and will not be used soon: of 16 drawn ones that which is used last, or never again. It takes the link and a place | - |
//! | `order` | what leaves is still chosen by the true next use, so that only the prefetches are worse | - |
//!
//! The draw is a hash of seed, work and buffer: the same use is right or wrong each time that it is looked at.

use super::foresight::{Foresight, Used};

/// Another one's foresight, made worse.
pub(super) struct Blurred {
    inner: Box<dyn Foresight>,
    /// Of 2^64.
    right: u64,
    seed: u64,
    /// Live slots, and where each stands among them.
    live: Vec<u32>,
    places: Vec<u32>,
}

impl Blurred {
    /// `accuracy` is a share from 0 to 1.
    pub(super) fn new(inner: Box<dyn Foresight>, accuracy: f64, seed: u64) -> Self {
        let right = if accuracy >= 1.0 { u64::MAX } else { (accuracy * 2_f64.powi(64)) as u64 };
        Self { inner, right, seed, live: Vec::new(), places: Vec::new() }
    }

    fn draw(&self, work: u64, slot: u32) -> u64 {
        mix(mix(self.seed.wrapping_add(work)).wrapping_add(u64::from(slot)))
    }

    /// Of some live buffers the one that is used last.
    fn wrong(&self, draw: u64) -> u32 {
        let drawn = (0..CANDIDATES).map(|i| mix(draw.wrapping_add(i)) % self.live.len() as u64);
        let slots = drawn.map(|place| self.live[place as usize]);
        let last = slots.max_by_key(|slot| self.inner.next_use(*slot).unwrap_or(u64::MAX));
        last.unwrap_or_default()
    }
}

/// Buffers that a wrong one is chosen from.
const CANDIDATES: u64 = 16;

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Foresight for Blurred {
    fn born(&mut self, slot: u32, ordinal: u64, size: u64) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, 0);
        }
        self.places[slot as usize] = self.live.len() as u32;
        self.live.push(slot);
        self.inner.born(slot, ordinal, size);
    }

    fn gone(&mut self, slot: u32) {
        let place = self.places[slot as usize] as usize;
        self.live.swap_remove(place);
        if let Some(moved) = self.live.get(place) {
            self.places[*moved as usize] = place as u32;
        }
        self.inner.gone(slot);
    }

    fn announced(&mut self, uses: &[Used]) {
        self.inner.announced(uses);
    }

    fn next_use(&self, slot: u32) -> Option<u64> {
        self.inner.next_use(slot)
    }

    fn is_dead(&self, slot: u32) -> bool {
        self.inner.is_dead(slot)
    }

    fn changed(&mut self) -> Vec<u32> {
        self.inner.changed()
    }

    fn coming(&self, lead: u64, found: &mut Vec<(u64, u32)>) {
        let before = found.len();
        self.inner.coming(lead, found);
        for (work, slot) in &mut found[before..] {
            let draw = self.draw(*work, *slot);
            if draw > self.right {
                *slot = self.wrong(draw);
            }
        }
    }

    fn recent_first(&self) -> bool {
        self.inner.recent_first()
    }

    fn counters(&mut self, counters: &mut Vec<(&'static str, u64)>) {
        self.inner.counters(counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiered::foresight::Nothing;

    /// Foresees a use of slot 0 in each of a thousand works.
    struct Always(Nothing);

    impl Foresight for Always {
        fn born(&mut self, slot: u32, ordinal: u64, size: u64) {
            self.0.born(slot, ordinal, size);
        }
        fn gone(&mut self, slot: u32) {
            self.0.gone(slot);
        }
        fn announced(&mut self, uses: &[Used]) {
            self.0.announced(uses);
        }
        fn next_use(&self, slot: u32) -> Option<u64> {
            self.0.next_use(slot)
        }
        fn changed(&mut self) -> Vec<u32> {
            self.0.changed()
        }
        fn coming(&self, _lead: u64, found: &mut Vec<(u64, u32)>) {
            found.extend((0..1000).map(|work| (work, 0)));
        }
        fn counters(&mut self, _counters: &mut Vec<(&'static str, u64)>) {}
    }

    fn right(accuracy: f64) -> usize {
        let mut blurred = Blurred::new(Box::new(Always(Nothing)), accuracy, 7);
        (0..1000).for_each(|slot| blurred.born(slot, u64::from(slot), 1));
        (500..900).for_each(|slot| blurred.gone(slot));
        let (mut found, mut again) = (Vec::new(), Vec::new());
        blurred.coming(1, &mut found);
        blurred.coming(1, &mut again);
        assert_eq!(found, again, "the same uses are wrong each time");
        assert!(found.iter().all(|(_, slot)| !(500..900).contains(slot)), "only live ones");
        found.iter().filter(|(_, slot)| *slot == 0).count()
    }

    #[test]
    fn so_many_are_right_as_it_was_told() {
        assert_eq!(right(1.0), 1000);
        assert!((800..=900).contains(&right(0.85)), "{}", right(0.85));
        assert!(right(0.0) < 20, "{}", right(0.0));
    }
}
