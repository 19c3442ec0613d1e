//! Managed memory.

use cudarc::driver::sys::CUmem_advise as Advise;
use vramlab_sim::driver::{Advice, Answer, Call, DriverError, Place};
use vramlab_sim::machine::RangeKind;

use super::books::{Keep, invalid};
use super::{CudaMachine, failed};
use crate::cuda::families;

impl CudaMachine {
    pub(super) fn managed_call(&mut self, call: Call) -> Result<Answer, DriverError> {
        let name = call.name();
        let number = self.device().number;
        let at = |place| (place == Place::Device).then_some(number);
        match call {
            Call::MallocManaged { size } => {
                if size == 0 {
                    return Err(invalid(name, "found size 0, expected at least 1 byte"));
                }
                self.device().check_host(size)?;
                let room = self.device().room();
                if size > room {
                    return Err(DriverError::OutOfMemory { asked: size, free: room });
                }
                let range =
                    families::malloc_managed(size).map_err(|e| self.refused(name, size, &e))?;
                let (address, made) = (range.address(), self.next_made());
                let about = (RangeKind::Managed, size, size);
                self.device().books.add(address, about, made, Keep::Managed(range));
                Ok(Answer::Address(address))
            }
            Call::Prefetch { address, size, to, stream } => {
                self.on_stream(name, stream, |stream| {
                    families::prefetch(address, size, at(to), stream)
                })?;
                Ok(Answer::Done)
            }
            Call::Advise { address, size, advice } => {
                let (advice, place) = match advice {
                    Advice::ReadMostly(true) => (Advise::CU_MEM_ADVISE_SET_READ_MOSTLY, None),
                    Advice::ReadMostly(false) => (Advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY, None),
                    Advice::Preferred(Some(place)) => {
                        (Advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, at(place))
                    }
                    Advice::Preferred(None) => {
                        (Advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, None)
                    }
                    Advice::AccessedBy(place, true) => {
                        (Advise::CU_MEM_ADVISE_SET_ACCESSED_BY, at(place))
                    }
                    Advice::AccessedBy(place, false) => {
                        (Advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY, at(place))
                    }
                };
                let done = families::advise(address, size, advice, place);
                done.map(|()| Answer::Done).map_err(|e| failed(name, &e))
            }
            _ => Err(DriverError::NotSupported { call: name }),
        }
    }
}
