//! Virtual memory: ranges of addresses, physical allocations, mappings.

use vramlab_sim::driver::{Answer, Call, DriverError, Handle};
use vramlab_sim::machine::RangeKind;

use super::books::{Keep, invalid};
use super::{CudaMachine, failed};
use crate::cuda::families;

impl CudaMachine {
    pub(super) fn vmm_call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let name = call.name();
        match call {
            Call::Reserve { size } => self.reserve(name, size),
            Call::Unreserve { address } => {
                let (_, found) = self.device().books.range_around(address).unzip();
                if let Some(mapped) = found.map(|range| range.mapped).filter(|mapped| *mapped > 0) {
                    let what = format!("found {mapped} handles mapped in the range, expected none");
                    return Err(invalid(name, what));
                }
                let range = self.device().books.take(name, address, &[RangeKind::Reserved])?;
                families::unreserve(address, range.asked).map_err(|e| failed(name, &e))?;
                Ok(Answer::Done)
            }
            Call::Create { size } => self.create(name, size),
            Call::Map { address, handle } => {
                let memory = self.device().books.memory(name, handle)?;
                families::map(address, memory).map_err(|e| failed(name, &e))?;
                let made = self.next_made();
                self.device().books.mapped(address, handle, made);
                Ok(Answer::Done)
            }
            Call::SetAccess { address, size } => {
                let number = self.device().number;
                let done = families::set_access(number, address, size);
                done.map(|()| Answer::Done).map_err(|e| failed(name, &e))
            }
            Call::Unmap { address, size } => {
                families::unmap(address, size).map_err(|e| failed(name, &e))?;
                self.device().books.unmapped(address, size);
                Ok(Answer::Done)
            }
            Call::Release { handle } => self.release(name, handle),
            _ => Err(DriverError::NotSupported { call: name }),
        }
    }

    /// Rounded up to granules, as the driver demands; so are the bytes that are given back.
    fn reserve(&mut self, call: &'static str, size: u64) -> Result<Answer, DriverError> {
        let granule = self.device().granule;
        let rounded = vramlab_sim::units::round_up(size, granule).filter(|bytes| *bytes > 0);
        let Some(rounded) = rounded else {
            let what =
                format!("found size {size}, expected 1 byte to the end of the address space");
            return Err(invalid(call, what));
        };
        let address = families::reserve(rounded).map_err(|e| failed(call, &e))?;
        let made = self.next_made();
        let range = (RangeKind::Reserved, rounded, 0);
        self.device().books.add(address, range, made, Keep::Address);
        Ok(Answer::Address(address))
    }

    fn create(&mut self, call: &'static str, size: u64) -> Result<Answer, DriverError> {
        let granule = self.device().granule;
        if size == 0 || !size.is_multiple_of(granule) {
            let what = format!("found size {size}, expected a multiple of the granule {granule}");
            return Err(invalid(call, what));
        }
        let number = self.device().number;
        self.device().granules(size)?;
        let memory = families::create(number, size).map_err(|e| self.refused(call, size, &e))?;
        let made = self.next_made();
        Ok(Answer::Handle(self.device().books.add_handle(memory, made)))
    }

    fn release(&mut self, call: &'static str, handle: Handle) -> Result<Answer, DriverError> {
        let memory = self.device().books.take_memory(call, handle)?;
        families::release_memory(memory).map_err(|e| failed(call, &e))?;
        Ok(Answer::Done)
    }
}
