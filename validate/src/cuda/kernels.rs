//! The kernels that the machine launches, as PTX text that the driver compiles for its device.
//!
//! `vramlab_work` (of the workload) and `vramlab_own` (of a strategy) wait until the device's timer has gone on by so many ns: work without
//! memory traffic. `vramlab_touch` reads, or reads and writes, one byte in each step of a range, which makes managed pages fault.

use std::ffi::{CStr, c_void};

use cudarc::driver::sys;

use super::calls::Stream;
use super::{Refusal, check, get};

/// Bytes between two accesses of `vramlab_touch`: the least page of managed memory.
const TOUCH_STEP: u64 = 4096;
/// Threads of a block of `vramlab_touch`.
const TOUCH_THREADS: u32 = 256;
/// Blocks of it at most; each thread goes on from step to step.
const TOUCH_BLOCKS: u64 = 1024;

const SPIN: &str = "
.visible .entry NAME(.param .u64 ns) {
  .reg .pred %p; .reg .u64 %start, %now, %past, %dur;
  ld.param.u64 %dur, [ns];
  mov.u64 %start, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %past, %now, %start;
  setp.lt.u64 %p, %past, %dur;
  @%p bra again;
  ret;
}
";

const TOUCH: &str = "
.visible .entry vramlab_touch(.param .u64 start, .param .u64 bytes, .param .u64 write) {
  .reg .pred %p; .reg .u64 %at, %end, %stride, %write, %one; .reg .u32 %t, %b, %n, %g; .reg .u16 %v;
  ld.param.u64 %at, [start]; ld.param.u64 %end, [bytes]; ld.param.u64 %write, [write];
  add.u64 %end, %end, %at;
  mov.u32 %t, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %g, %nctaid.x;
  mad.lo.u32 %t, %b, %n, %t;
  mul.wide.u32 %one, %t, STEP;
  add.u64 %at, %at, %one;
  mul.lo.u32 %n, %n, %g;
  mul.wide.u32 %stride, %n, STEP;
again:
  setp.ge.u64 %p, %at, %end;
  @%p bra done;
  ld.volatile.global.u8 %v, [%at];
  setp.eq.u64 %p, %write, 0;
  @%p bra next;
  add.u16 %v, %v, 1;
  st.volatile.global.u8 [%at], %v;
next:
  add.u64 %at, %at, %stride;
  bra again;
done:
  ret;
}
";

/// The text for a device of this compute capability.
fn text(compute: (i32, i32)) -> String {
    // newer drivers compile nothing older than 7.5
    let (version, target) = if compute >= (7, 5) { ("6.3", "sm_75") } else { ("6.0", "sm_50") };
    let spin = |name| SPIN.replace("NAME", name);
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n{}{}{}\0",
        spin("vramlab_work"),
        spin("vramlab_own"),
        TOUCH.replace("STEP", &TOUCH_STEP.to_string())
    )
}

/// The kernels of one device.
pub(crate) struct Kernels {
    module: sys::CUmodule,
    work: sys::CUfunction,
    own: sys::CUfunction,
    touch: sys::CUfunction,
}

// SAFETY: the driver's modules and functions may be used from any thread
unsafe impl Send for Kernels {}

impl Kernels {
    /// Compiles and loads them into the current context.
    pub(crate) fn load(compute: (i32, i32)) -> Result<Self, Refusal> {
        let text = text(compute);
        let module = get("cuModuleLoadData", std::ptr::null_mut(), |to| {
            // SAFETY: the symbol was found; the text ends with a zero byte and is only read during the call
            unsafe { sys::cuModuleLoadData(to, text.as_ptr().cast()) }
        })?;
        let function = |name: &CStr| {
            get("cuModuleGetFunction", std::ptr::null_mut(), |to| {
                // SAFETY: the symbol was found, the module was loaded above, and the name ends with a zero byte
                unsafe { sys::cuModuleGetFunction(to, module, name.as_ptr()) }
            })
        };
        let (work, own, touch) =
            (function(c"vramlab_work")?, function(c"vramlab_own")?, function(c"vramlab_touch")?);
        Ok(Self { module, work, own, touch })
    }

    /// Queues work of so many ns; `own`: of a strategy.
    pub(crate) fn spin(&self, stream: &Stream, ns: u64, own: bool) -> Result<(), Refusal> {
        launch(if own { self.own } else { self.work }, stream, 1, 1, &mut [ns])
    }

    /// Queues an access to each page of a range that the device can reach.
    pub(crate) fn touch(
        &self,
        stream: &Stream,
        address: u64,
        bytes: u64,
        write: bool,
    ) -> Result<(), Refusal> {
        let blocks = bytes.div_ceil(TOUCH_STEP * u64::from(TOUCH_THREADS)).clamp(1, TOUCH_BLOCKS);
        let parameters = &mut [address, bytes, u64::from(write)];
        launch(self.touch, stream, blocks as u32, TOUCH_THREADS, parameters)
    }

    /// Unloads them; nothing that they run may be under way.
    pub(crate) fn unload(self) -> Result<(), Refusal> {
        // SAFETY: the symbol was found; this value, the module's only owner, ends here
        check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.module) })
    }
}

fn launch(
    function: sys::CUfunction,
    stream: &Stream,
    blocks: u32,
    threads: u32,
    parameters: &mut [u64],
) -> Result<(), Refusal> {
    let mut places: Vec<*mut c_void> =
        parameters.iter_mut().map(|value| (&raw mut *value).cast()).collect();
    // SAFETY: the symbol was found; function and stream are live, and each kernel takes as many u64 as its caller gives; they are copied during
    // the call
    check("cuLaunchKernel", unsafe {
        sys::cuLaunchKernel(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream.raw(),
            places.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_a_target_that_the_driver_still_compiles() {
        assert!(text((9, 0)).contains(".target sm_75") && text((7, 0)).contains(".target sm_50"));
        for name in ["vramlab_work(", "vramlab_own(", "vramlab_touch("] {
            assert!(text((9, 0)).contains(name), "{name}");
        }
    }
}
