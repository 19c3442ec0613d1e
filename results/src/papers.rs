//! Small runs whose figures are compared with published ones: what the rows of a table of claims need.
//!
//! A published size is rounded; what it may have been before is a range ([`Rounded`]), and a figure that follows from several of them is one, too: ours at both ends.

use vramlab_sim::source::Source;
use vramlab_sim::trace::JsonlSource;
use vramlab_sim::units::Bytes;

use crate::cli::parse_spec;
use crate::failure::Failure;
use crate::job::{Input, Place, run_pair};
use crate::row::Row;

/// Most bytes of a device that is never full.
pub const ROOMY: u64 = 1 << 46;

/// A published number with so many digits behind the point, in bytes: it was at least `least` and at most `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounded {
    /// The least that is rounded to it.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl Rounded {
    /// `hundredths` of a unit of so many bytes, rounded to a whole number of hundredths.
    pub const fn hundredths(hundredths: u64, unit: u64) -> Self {
        let half = unit / 200;
        let middle = hundredths * unit / 100;
        Self { least: middle.saturating_sub(half), most: middle + half }
    }

    /// A number that is known to the byte.
    pub const fn exact(bytes: u64) -> Self {
        Self { least: bytes, most: bytes }
    }
}

/// Ops in JSON Lines through a strategy, on a device that costs nothing and has all its bytes for the run.
///
/// # Errors
/// An unknown strategy, ops that are none.
pub fn program(spec: &str, capacity: u64, ops: &str) -> Result<Row, Failure> {
    let make = || Ok(Box::new(JsonlSource::new(ops.as_bytes(), "program")) as Box<dyn Source>);
    let input = Input::new("program", Box::new(make));
    let spec = parse_spec(spec).map_err(Failure::usage)?;
    run_pair(&input, &spec, &Place::new("zero", Some(Bytes(capacity)))?, None)
}

/// Blocks of 16 tokens of vLLM's cache, the null block with them, on a device where `others` are held already.
///
/// # Errors
/// As [`program`].
pub fn cache_blocks(
    capacity: u64,
    utilization: f64,
    others: &[u64],
    token_bytes: u64,
) -> Result<u64, Failure> {
    let mut ops = String::new();
    for (id, size) in others.iter().enumerate() {
        ops += &format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":{size}}}\n");
    }
    ops += &format!("{{\"op\":\"kv_new\",\"seq\":0,\"tokens\":1,\"token_bytes\":{token_bytes}}}\n");
    let spec = format!("serving.paged:gpu_memory_utilization={utilization}");
    let row = program(&spec, capacity, &ops)?;
    Ok(row.kv.map_or(0, |kv| kv.blocks_used + kv.blocks_free + 1))
}

/// The same where sizes are known to some digits only: the fewest and the most blocks.
///
/// # Errors
/// As [`program`].
pub fn cache_blocks_between(
    capacity: Rounded,
    utilization: f64,
    others: &[Rounded],
    token_bytes: u64,
) -> Result<[u64; 2], Failure> {
    let [least, most]: [Vec<u64>; 2] =
        [others.iter().map(|o| o.least).collect(), others.iter().map(|o| o.most).collect()];
    Ok([
        cache_blocks(capacity.least, utilization, &most, token_bytes)?,
        cache_blocks(capacity.most, utilization, &least, token_bytes)?,
    ])
}
