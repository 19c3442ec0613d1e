//! How a device places ranges: what small requests share, how addresses are aligned, in which order they come.

use std::fmt;

use serde::Serialize;
use vramlab_sim::driver::DriverExt;
use vramlab_sim::machine::Machine;
use vramlab_sim::units::Bytes;

use super::Step;

/// A small request, and how many are made.
const SMALL: u64 = Bytes::kib(64).0;
const SMALL_COUNT: usize = 64;
/// A request of whole granules.
const LARGE: u64 = Bytes::mib(8).0;

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Layout {
    /// Addresses of small requests are multiples of this.
    pub(crate) alignment: u64,
    /// How often free memory fell while the small requests were made, and how many those were.
    pub(crate) growths: (usize, usize),
    /// Each of three large ranges lies above the one before.
    pub(crate) upwards: bool,
    /// A range of the same size took the place of one that was freed.
    pub(crate) reuses: bool,
}

impl Layout {
    /// Small requests share granules; `None` if free memory never fell, so that nothing was seen.
    pub(crate) fn pack_small(&self) -> Option<bool> {
        let (falls, requests) = self.growths;
        (falls > 0).then_some(falls < requests)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = match (self.pack_small(), self.growths) {
            (Some(true), (falls, requests)) => {
                format!("share memory: {requests} of {} took it {falls} times", Bytes(SMALL))
            }
            (Some(false), _) => "each take memory of their own".to_owned(),
            (None, _) => "took no memory that could be seen".to_owned(),
        };
        let order = if self.upwards { "upwards" } else { "not upwards" };
        let reuse = if self.reuses { "taken again" } else { "left" };
        writeln!(f, "  {:<22}{}", "alignment", Bytes(self.alignment))?;
        writeln!(f, "  {:<22}{small}", "small requests")?;
        writeln!(f, "  {:<22}{order}; a place that was freed is {reuse}", "order of places")
    }
}

/// Looks, with a few MiB that are given back. `free`: bytes that the driver has free.
pub(crate) fn look(
    machine: &mut dyn Machine,
    free: impl Fn(&mut dyn Machine) -> Step<u64>,
) -> Step<Layout> {
    let (mut small, mut falls, mut last) = (Vec::new(), 0, free(machine)?);
    for _ in 0..SMALL_COUNT {
        small.push(machine.malloc(SMALL)?);
        let now = free(machine)?;
        falls += usize::from(now < last);
        last = now;
    }
    let odd: Vec<u64> =
        [1, 3, 257, 513, 4097].into_iter().map(|size| machine.malloc(size)).collect::<Step<_>>()?;
    let alignment = odd.iter().chain(&small).fold(0, |bits, address| bits | address);
    let large: Vec<u64> = (0..3).map(|_| machine.malloc(LARGE)).collect::<Step<_>>()?;
    machine.free(large[1])?;
    let again = machine.malloc(LARGE)?;
    let reuses = again == large[1];
    for address in [large[0], large[2], again].into_iter().chain(odd).chain(small) {
        machine.free(address)?;
    }
    Ok(Layout {
        alignment: 1 << alignment.trailing_zeros(),
        growths: (falls, SMALL_COUNT),
        upwards: large.is_sorted(),
        reuses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::device::AddressPlacement;
    use vramlab_sim::{DeviceOptions, SimMachine};

    fn seen(options: DeviceOptions) -> Layout {
        let free = |machine: &mut dyn Machine| machine.mem_info().map(|(free, _)| free);
        look(&mut SimMachine::new(options), free).expect("simulated")
    }

    #[test]
    fn what_a_device_does_is_seen() {
        let packing = seen(DeviceOptions { pack_small: true, ..DeviceOptions::default() });
        assert_eq!((packing.pack_small(), packing.growths.0), (Some(true), 2));
        assert_eq!((packing.alignment, packing.upwards, packing.reuses), (512, true, true));
        let bump = DeviceOptions { placement: AddressPlacement::Bump, ..DeviceOptions::default() };
        let bump = seen(bump);
        assert_eq!((bump.pack_small(), bump.alignment), (Some(false), 2 << 20));
        assert!(!bump.reuses);
    }
}
