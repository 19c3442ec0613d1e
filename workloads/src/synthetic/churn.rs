//! `churn`: random sizes held for random times around a target of live bytes: the general exercise for an allocator.
//!
//! | rule | what it says |
//! |---|---|
//! | `size` | log-normal (`mu`, `sigma`), from `min` to `max`, rounded up to `align` |
//! | `balance` | while live bytes are below `live` a buffer is allocated with probability 1/2 + d/2, where d is the distance to the target as a share of it; else freed. Above the target it is the other way round |
//! | `victim` | with probability `lifo` the last of the list of live buffers, else any of it with equal chance |
//! | `list` | a new buffer comes last; the last takes the place of the one that is freed, so the last is often, not always, the youngest |
//! | `work` | each new buffer is written once |
//!
//! Source: random allocation with a steady population, the usual exercise of the allocator literature (Wilson et al. 1995 discuss what it
//! does not show: real lifetimes and sizes are related). Defaults are assumptions: median 256 KiB, 512 B to 64 MiB, 1 GiB live.
//! Generator purposes: `churn.sizes`, `churn.turns`, `churn.victims`. At the end every buffer is freed, from the list's end on.
//!
//! Left out: several streams, sizes that depend on lifetime.

use super::emit::{Generated, Out, Script};
use crate::graph::DType;
use crate::params::{ALLOCS_MAX, ParamDoc, ParamError, Params, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;
use crate::rng::Rng;
use vramlab_sim::units::BufferId;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &[
    doc("allocs", "20000", "allocations", "how many in all"),
    doc("live", "1GiB", "B", "target of live bytes"),
    doc("mu", "12.48", "ln B", "mean of the size's logarithm; 12.48: median 256 KiB"),
    doc("sigma", "2", "ln B", "its standard deviation"),
    doc("min", "512", "B", "smallest size"),
    doc("max", "64MiB", "B", "largest size"),
    doc("align", "4", "B", "sizes are multiples of this"),
    doc(
        "lifo",
        "0.25",
        "-",
        "probability that the last of the list is freed, not any; mostly a young one",
    ),
    doc("mark", "1000", "allocations", "a mark after every so many"),
];

struct Churn {
    sizes: Rng,
    turns: Rng,
    victims: Rng,
    allocs: u64,
    allocs_left: u64,
    target: u64,
    mu: f64,
    sigma: f64,
    min: u64,
    max: u64,
    align: u64,
    lifo: f64,
    mark: u64,
    live: Vec<BufferId>,
    live_bytes: u64,
}

impl Churn {
    fn grow(&mut self, out: &mut Out) {
        let done = self.allocs - self.allocs_left;
        if done.is_multiple_of(self.mark) {
            out.mark(format!("allocation {done}"));
        }
        let drawn = self.sizes.lognormal(self.mu, self.sigma).round() as u64;
        let size = drawn.clamp(self.min, self.max).next_multiple_of(self.align);
        let id = out.alloc("churn", size);
        out.work(0.0, &[], &[id]);
        self.live.push(id);
        self.live_bytes += size;
        self.allocs_left -= 1;
    }

    fn shrink(&mut self, out: &mut Out) {
        let last = self.live.len() as u64 - 1;
        let lifo = self.victims.chance(self.lifo);
        let victim = if lifo { last } else { self.victims.between(0, last) };
        let id = self.live.swap_remove(victim as usize);
        self.live_bytes -= out.size(id);
        out.release(id);
    }
}

impl Script for Churn {
    fn advance(&mut self, out: &mut Out) -> bool {
        if self.allocs_left == 0 {
            let Some(id) = self.live.pop() else { return false };
            out.release(id);
            return true;
        }
        let distance = (self.target as f64 - self.live_bytes as f64) / self.target as f64;
        let grow = self.turns.chance(0.5 + distance.clamp(-1.0, 1.0) / 2.0);
        if grow || self.live.is_empty() {
            self.grow(out);
        } else {
            self.shrink(out);
        }
        true
    }
}

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let allocs = params.count("allocs", 1..=ALLOCS_MAX)?;
    let (min, max) = (params.bytes("min")?, params.bytes("max")?);
    if min > max || max > 1 << 50 {
        return Err(params.bad("max", format_args!("a size from min={min} B to 2^50 B")));
    }
    let target = params.bytes("live")?;
    if target == 0 || target > 1 << 50 {
        return Err(params.bad("live", "a size from 1 B to 2^50 B"));
    }
    let script = Churn {
        sizes: Rng::new(seed, "churn.sizes"),
        turns: Rng::new(seed, "churn.turns"),
        victims: Rng::new(seed, "churn.victims"),
        allocs,
        allocs_left: allocs,
        target,
        mu: params.number("mu", 0.0..=30.0)?,
        sigma: params.number("sigma", 0.0..=8.0)?,
        min,
        max,
        align: params.count("align", 1..=1 << 30)?,
        lifo: params.number("lifo", 0.0..=1.0)?,
        mark: params.count("mark", 1..=u64::MAX)?,
        live: Vec::new(),
        live_bytes: 0,
    };
    Ok(Box::new(Generated::new(script, *rates, DType::F32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::live_peak;
    use vramlab_sim::op::Op;
    use vramlab_sim::source::{Answered, Step};
    use vramlab_sim::units::Nanos;

    #[test]
    fn live_bytes_stay_near_the_target_and_end_at_zero() {
        let mut params = Params::defaults(PARAMS);
        params.set_text("live=256MiB,allocs=5000,max=8MiB").unwrap();
        let seen = live_peak(&mut *build(&params, 3, &Rates::free()).unwrap()).unwrap();
        assert!((240 << 20..400 << 20).contains(&seen.bytes), "{seen:?}");
        assert_eq!((seen.allocs, seen.bytes_at_end), (5000, 0));
    }

    /// Rules `victim` and `list`: with `lifo=0` victims come from anywhere, but the end frees what the list holds, last first.
    #[test]
    fn the_last_takes_the_place_of_the_one_that_is_freed() {
        let mut params = Params::defaults(PARAMS);
        params.set_text("allocs=500,live=16MiB,lifo=0").unwrap();
        let mut source = build(&params, 1, &Rates::free()).unwrap();
        let (mut list, mut allocs, mut of_the_end) = (Vec::new(), 0, 0);
        loop {
            match source.next(Nanos(0), Answered::Done).unwrap() {
                Step::End => break,
                Step::Op(Op::Alloc { id, .. }) => {
                    allocs += 1;
                    list.push(id);
                }
                Step::Op(Op::Free { id, .. }) => {
                    let place = list.iter().position(|live| *live == id).unwrap();
                    if allocs == 500 {
                        assert_eq!(place, list.len() - 1);
                        of_the_end += 1;
                    }
                    list.swap_remove(place);
                }
                _ => {}
            }
        }
        assert!(list.is_empty() && of_the_end > 10, "{of_the_end}");
    }

    #[test]
    fn buffers_are_bounded_by_the_target_not_by_the_run() {
        let peak = |allocs: &str| {
            let mut params = Params::defaults(PARAMS);
            params.set("allocs", allocs).unwrap();
            live_peak(&mut *build(&params, 0, &Rates::free()).unwrap()).unwrap().buffers
        };
        assert!(peak("200000") < 2 * peak("20000"));
    }
}
