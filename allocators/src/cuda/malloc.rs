//! `cuda.malloc`: every request is a `cudaMalloc`, every free a `cudaFree`.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `direct` | nothing is cached, split or rounded above the driver | - |
//! | `alignment` | an address is a multiple of 256 B at least; beyond 1 MiB it begins on a page of 2 MiB, whose rest is lost to other large requests; smaller ones share pages (the device's options say whether the simulated one packs them) | CUDA C++ Programming Guide 5.3.2; pytorch/pytorch#17120 |
//! | `free_waits` | `cudaFree` waits for the device, so the memory is free of all uses, recorded or not: a recorded stream needs nothing, and a deferred free ends at once | NVIDIA blog on RAPIDS Memory Manager; pytorch/pytorch#106200 |
//! | `null` | a request for 0 bytes gets a null placement (`cudaMalloc` of 0 bytes gives a null pointer) | CUDA runtime API, `cudaMalloc` |
//! | `too_large` | any size that the device does not have is out of memory, up to 2^64 - 1 | CUDA runtime API, `cudaErrorMemoryAllocation` |

use vramlab_sim::allocator::Allocator;

use crate::options::{OptionError, Options};
use crate::parts::direct::Direct;
use crate::registry::{Status, Strategy};

/// The registry's line.
pub const STRATEGY: Strategy = Strategy::plain(
    "cuda.malloc",
    new,
    Status::Rules("CUDA runtime API"),
    &[],
    "every request goes to the driver, every free waits",
);

fn new(options: &Options) -> Result<Box<dyn Allocator>, OptionError> {
    options.check("cuda.malloc", &[])?;
    Ok(Box::new(Direct::new("malloc")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_sim::allocator::{AllocError, Notice, Request, Usage};
    use vramlab_sim::testing::ScriptedMachine;
    use vramlab_sim::units::StreamId;

    #[test]
    fn each_op_is_one_call_and_a_deferred_free_ends_at_once() -> Result<(), AllocError> {
        let (mut cuda, mut machine) =
            (Direct::new("malloc"), ScriptedMachine::of_capacity(1 << 30));
        let request = Request { size: 1000, stream: StreamId(3), ordinal: 0 };
        let a = cuda.alloc(&mut machine, &request)?;
        assert_eq!(a.size, 1000, "what the driver rounds is the driver's affair");
        let b = cuda.alloc(&mut machine, &request)?.block;
        cuda.notice(&mut machine, Notice::RecordStream { block: b, stream: StreamId(5) })?;
        cuda.notice(&mut machine, Notice::FreeDeferred { block: b })?;
        cuda.free(&mut machine, a.block, None)?;
        assert_eq!(cuda.usage(), Usage::default());
        let calls: Vec<_> = machine.drain_log().map(|row| row.call).collect();
        assert_eq!(calls, ["cudaMalloc", "cudaMalloc", "cudaFree", "cudaFree"]);
        Ok(())
    }
}
