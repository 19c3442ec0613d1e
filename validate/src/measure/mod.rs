//! `measure`: what each call costs, by size and state.
//!
//! Each row is one call (or one thing that is no call, such as a pool that grows) at one size in one state: some rounds to warm up, then
//! repetitions, of which quantiles are kept. It runs on any machine behind the seam, so that the simulated one can be measured too: what is
//! measured there is what its cost table says.
//!
//! | file | measures |
//! |---|---|
//! | `classic` | device and host memory, memory info; `cudaFree` beside running work |
//! | `pools` | stream-ordered pools: hits, growth, trimming |
//! | `vmm` | reserve, create, map, access, unmap, release, by size of handle and by how many |
//! | `order` | streams, events, launches |
//! | `copies` | links, pinned and pageable |
//! | `managed` | managed memory: faults, prefetch, advice; never more than is free |
//! | `layout` | how small requests share granules, alignment, order of places |
//! | `file`, `command` | the measurements as CSV; the command |

mod classic;
pub(crate) mod command;
mod copies;
pub(crate) mod file;
pub(crate) mod layout;
mod managed;
mod order;
mod pools;
mod vmm;

use vramlab_sim::driver::{Driver, DriverError};
use vramlab_sim::machine::Machine;

use crate::stop::Stop;

pub(crate) use file::{Head, Measured};

/// Rounds that are not kept.
const WARM_UP: usize = 3;

/// A time, measured again and again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// CUDA's name of the call, or a name of the cost table, or `link.…`.
    pub(crate) what: String,
    pub(crate) state: String,
    /// Bytes that the call was about.
    pub(crate) bytes: u64,
    /// Handles or blocks that it was about.
    pub(crate) count: u64,
    /// How often it was measured.
    pub(crate) n: u64,
    /// ns.
    pub(crate) mean: f64,
    pub(crate) quantiles: Quantiles,
}

/// Of the measured times, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quantiles {
    pub(crate) min: u64,
    pub(crate) p10: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Row {
    /// Of these times, of which there is at least one.
    pub(crate) fn of(what: &str, state: &str, bytes: u64, count: u64, mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let last = times.len().saturating_sub(1);
            times.get((share * last as f64).round() as usize).copied().unwrap_or(0)
        };
        let quantiles = Quantiles {
            min: at(0.0),
            p10: at(0.1),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        };
        let mean = times.iter().sum::<u64>() as f64 / times.len().max(1) as f64;
        let n = times.len() as u64;
        Self { what: what.to_owned(), state: state.to_owned(), bytes, count, n, mean, quantiles }
    }
}

/// What measures.
pub(crate) struct Bench<'m> {
    machine: &'m mut dyn Machine,
    stop: Stop,
    repeats: usize,
    granule: u64,
    /// Bytes that may be held at once.
    room: u64,
    rows: Vec<Row>,
}

/// A step of a measurement.
type Step<T> = Result<T, DriverError>;

/// Measures everything that the machine has, until it is asked to stop. `room`: bytes that may be held at once. What a part found before the
/// driver refused something is kept, beside the refusals, and the other parts are measured all the same.
pub(crate) fn measure(
    machine: &mut dyn Machine,
    repeats: usize,
    (room, granule): (u64, u64),
    stop: &Stop,
) -> (Vec<Row>, Vec<String>) {
    let families = Driver::families(machine);
    let rows = Vec::new();
    let mut bench = Bench { machine, stop: stop.clone(), repeats, granule, room, rows };
    type Part<'m> = fn(&mut Bench<'m>) -> Step<()>;
    let parts: [(&str, bool, Part<'_>); 7] = [
        ("device memory", true, Bench::classic),
        ("host memory", families.host, Bench::host),
        ("streams and events", true, Bench::order),
        ("copies", families.host, Bench::copies),
        ("pools", families.pools, Bench::pools),
        ("virtual memory", families.vmm, Bench::vmm),
        ("managed memory", families.managed, Bench::managed),
    ];
    let mut refused = Vec::new();
    for (name, _, part) in parts.into_iter().filter(|(_, has, _)| *has) {
        if let Err(error) = part(&mut bench) {
            refused.push(format!("{name}: {error}"));
        }
    }
    (bench.rows, refused)
}

impl Bench<'_> {
    /// The time that `act` takes, and what it gives.
    fn time<T>(&mut self, act: impl FnOnce(&mut dyn Machine) -> Step<T>) -> Step<(u64, T)> {
        let start = self.machine.now().0;
        let done = act(self.machine)?;
        Ok((self.machine.now().0.saturating_sub(start), done))
    }

    /// Repeats a round, which times each of the things in `rows`, and keeps the times. Nothing is kept when it is to stop.
    fn rounds<const N: usize>(
        &mut self,
        rows: [(&str, &str); N],
        (bytes, count): (u64, u64),
        mut round: impl FnMut(&mut Self) -> Step<[u64; N]>,
    ) -> Step<()> {
        let mut times: [Vec<u64>; N] = std::array::from_fn(|_| Vec::new());
        for at in 0..WARM_UP + self.repeats {
            if self.stop.asked() {
                return Ok(());
            }
            let took = round(self)?;
            if at >= WARM_UP {
                times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
            }
        }
        for ((what, state), times) in rows.into_iter().zip(times) {
            self.rows.push(Row::of(what, state, bytes, count, times));
        }
        Ok(())
    }

    /// Sizes from one granule up, in steps of four, as far as a quarter of the room.
    fn sizes(&self, most: u64) -> Vec<u64> {
        let (granule, most) = (self.granule, most.min(self.room / 4));
        let sizes = (0..).map(|step| granule.saturating_mul(1 << (2 * step)));
        sizes.take(16).take_while(|size| *size <= most).collect()
    }
}
