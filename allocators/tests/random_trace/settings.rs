//! Random settings texts that the real allocator accepts.

use super::Rng;

/// Makes settings texts; remembers the options that stay between them.
pub(super) struct SettingsMaker {
    /// 2.15, else 2.9.
    newer: bool,
    large_segment_mb: u64,
    /// Whether expandable segments may be named at all: they go with even page sizes only.
    expandable: bool,
    /// Chance of each option in percent.
    density: u64,
}

impl SettingsMaker {
    pub(super) fn new(newer: bool, rng: &mut Rng) -> SettingsMaker {
        let (expandable, density) = (rng.chance(60), rng.pick(&[0, 15, 30, 60]));
        SettingsMaker { newer, large_segment_mb: 20, expandable, density }
    }

    /// A text for the start or for a change while running.
    pub(super) fn text(&mut self, rng: &mut Rng, start: bool) -> String {
        let mut parts = Vec::new();
        if self.expandable && rng.chance(if start { 80 } else { 40 }) {
            parts.push(format!(
                "expandable_segments:{}",
                if rng.chance(80) { "True" } else { "False" }
            ));
        }
        if self.newer {
            self.newer_options(rng, start, &mut parts);
        }
        let least = if self.newer { self.large_segment_mb } else { 21 };
        if rng.chance(self.density) {
            parts.push(format!("max_split_size_mb:{}", rng.between(least, least + 60)));
        }
        if rng.chance(self.density / 2) {
            parts.push(format!("max_non_split_rounding_mb:{}", rng.between(least, least + 60)));
        }
        if rng.chance(self.density) {
            parts.push(format!(
                "garbage_collection_threshold:{}",
                rng.pick(&[0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95])
            ));
        }
        if rng.chance(self.density) {
            parts.push(format!("roundup_power2_divisions:{}", divisions(rng)));
        }
        // In any order: what is checked must not depend on it.
        for at in (1..parts.len()).rev() {
            let other = usize::try_from(rng.below(at as u64 + 1)).expect("an index");
            parts.swap(at, other);
        }
        parts.join(",")
    }

    fn newer_options(&mut self, rng: &mut Rng, start: bool, parts: &mut Vec<String>) {
        if rng.chance(self.density / 2) {
            let even = rng.pick(&[12, 16, 20, 24, 32, 40, 64]);
            self.large_segment_mb = if self.expandable || rng.chance(70) { even } else { even - 1 };
            parts.push(format!("large_segment_size_mb:{}", self.large_segment_mb));
        }
        if rng.chance(self.density / 3) {
            parts.push(format!(
                "throw_on_cudamalloc_oom:{}",
                if rng.chance(70) { "True" } else { "False" }
            ));
        }
        if start && rng.chance(self.density.max(10)) {
            parts.push(format!(
                "per_process_memory_fraction:{}",
                rng.pick(&[0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
            ));
        }
        if self.expandable && rng.chance(self.density) {
            let reserves = ["0.1", "0.25", "0.33", "0.5", "0.9", "1.0", "1.5", "1G", "2G", "0.1G"];
            parts.push(format!("expandable_segments_reserve:{}", rng.pick(&reserves)));
        }
    }
}

/// A single number, or a list of classes by size in MiB.
fn divisions(rng: &mut Rng) -> String {
    if rng.chance(50) {
        return rng.pick(&["1", "2", "4", "8", "16"]).to_owned();
    }
    let mut size = 1 << rng.below(4);
    let mut parts = Vec::new();
    for _ in 0..rng.between(1, 4) {
        parts.push(format!("{size}:{}", rng.pick(&[0, 1, 2, 4, 8, 16])));
        // Now and then the next name is a smaller one.
        size = if rng.chance(15) { (size >> 2).max(1) } else { size << rng.between(1, 3) };
    }
    if rng.chance(60) {
        let rest = format!(">:{}", rng.pick(&[0, 1, 2, 4, 8]));
        let at =
            if rng.chance(20) { rng.below(parts.len() as u64 + 1) } else { parts.len() as u64 };
        parts.insert(usize::try_from(at).expect("an index"), rest);
    }
    format!("[{}]", parts.join(","))
}
