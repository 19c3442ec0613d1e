//! What `--against NAME` compares with: a measurement that was saved under that name, or else the benchmark of that name in each group.

use vramlab_allocators::options::nearest;

use super::read::{Benchmark, median};
use crate::failure::Failure;

/// How many times as long as the baseline each takes, in the order of the benchmarks; none where there is no such baseline.
///
/// # Errors
/// A name that nothing has, or a saved measurement that is cut.
pub fn times(all: &[Benchmark], name: &str) -> Result<Vec<Option<f64>>, Failure> {
    let plain = !name.is_empty() && !name.contains(['/', '\\']) && name != "..";
    let saved = |one: &Benchmark| plain && one.folder.join(name).join("estimates.json").is_file();
    if all.iter().any(saved) {
        let ratio = |one: &Benchmark| {
            let base = saved(one).then(|| median(&one.folder.join(name))).transpose()?;
            Ok(base.map(|base| one.median.ns / base.ns))
        };
        return all.iter().map(ratio).collect();
    }
    if !all.iter().any(|one| one.name == name) {
        let known = all.iter().map(|one| one.name.as_str());
        return Err(Failure::usage(format!(
            "--against {name}: no measurement was saved under that name (cargo bench -- --save-baseline {name}), and no benchmark is called so; {}",
            nearest(name, known)
        )));
    }
    let base = |group: &str| all.iter().find(|one| one.group == group && one.name == name);
    let ratio = |one: &Benchmark| Some(one.median.ns / base(&one.group)?.median.ns);
    Ok(all.iter().map(ratio).collect())
}
