//! Driver, devices, contexts, kernels, and the clock.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use vramlab_sim::driver::{Answer, Call};
use vramlab_sim::machine::{Machine, Toucher};
use vramlab_sim::units::Nanos;

use crate::enter::{
    Code, current, enter, enter_device, exchange_mode, exports, lock, put, set_current,
};
use crate::fake::{Fake, Kind, stream};
use crate::report;
use crate::settings::{About, Plays, Settings};

/// `cuInit`: reads the settings.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    let mut fake = lock();
    if fake.is_none() {
        match Settings::read() {
            Ok(settings) => *fake = Some(Fake::new(settings)),
            Err(why) => {
                eprintln!("fake CUDA driver: {why}");
                return Code::UNKNOWN.0;
            }
        }
        report::at_exit();
    }
    let no_device = fake.as_ref().is_some_and(|fake| fake.settings.plays == Plays::NoDevice);
    if no_device { Code::NO_DEVICE.0 } else { 0 }
}

fn about(fake: &Fake, handle: c_int) -> Result<&About, Code> {
    let at = usize::try_from(handle).map_err(|_| Code::INVALID_DEVICE)?;
    fake.settings.devices.get(at).ok_or(Code::INVALID_DEVICE)
}

/// What the kernels are called, in the order of their handles, from 1.
const KERNELS: [&CStr; 3] = [c"vramlab_work", c"vramlab_own", c"vramlab_touch"];

exports! { enter;
    cuDriverGetVersion(version: *mut c_int) |fake| {
        let old = fake.settings.plays == Plays::Old;
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(version, if old { 10_010 } else { 13_000 }) }
    };
    cuDeviceGetCount(count: *mut c_int) |fake| {
        let devices = fake.settings.devices.len() as c_int;
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(count, devices) }
    };
    cuDeviceGet(handle: *mut c_int, number: c_int) |fake| {
        about(fake, number)?;
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(handle, number) }
    };
    cuDeviceGetName(name: *mut c_char, size: c_int, handle: c_int) |fake| {
        let about = about(fake, handle)?;
        if name.is_null() || usize::try_from(size).unwrap_or(0) < about.name.len() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: `name` has room for `size` bytes, which is at least the length of the name
        unsafe { name.cast::<u8>().copy_from_nonoverlapping(about.name.as_ptr(), about.name.len()) };
        Ok(())
    };
    cuDeviceTotalMem_v2(bytes: *mut usize, handle: c_int) |fake| {
        let capacity = about(fake, handle)?.options.capacity as usize;
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(bytes, capacity) }
    };
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, handle: c_int) |fake| {
        let About { compute, options, .. } = about(fake, handle)?;
        let families = options.families;
        let answer = match attribute {
            75 => compute.0,
            76 => compute.1,
            // managed, and by host and device at once
            83 | 89 => families.managed.into(),
            102 => families.vmm.into(),
            // an old driver does not know of pools
            115 if families.pools => 1,
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(value, answer) }
    };
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, handle: c_int) |fake| {
        about(fake, handle)?;
        if fake.settings.plays == Plays::NoContext {
            return Err(Code::OUT_OF_MEMORY);
        }
        fake.contexts[handle as usize] += 1;
        // a context is the device's number plus 1
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(context, std::ptr::without_provenance_mut(handle as usize + 1)) }
    };
    cuDevicePrimaryCtxRelease_v2(handle: c_int) |fake| {
        about(fake, handle)?;
        let count = &mut fake.contexts[handle as usize];
        let Some(less) = count.checked_sub(1) else {
            return Err(fake.misused(format!("cuDevicePrimaryCtxRelease_v2: device {handle} has no context")));
        };
        *count = less;
        if less == 0 {
            fake.leaves(Some(handle as u16));
        }
        if fake.contexts.iter().all(|count| *count == 0) {
            fake.start_anew();
        }
        Ok(())
    };
    cuCtxSetCurrent(context: *mut c_void) |fake| {
        let device = context.addr().checked_sub(1);
        if let Some(device) = device && fake.contexts.get(device).is_none_or(|count| *count == 0) {
            return Err(fake.misused("cuCtxSetCurrent: a context that was never made, or released"));
        }
        set_current(device.map(|device| device as u16));
        Ok(())
    };
    cuCtxGetCurrent(context: *mut *mut c_void) |_fake| {
        let handle = current().map_or(0, |device| usize::from(device) + 1);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(context, std::ptr::without_provenance_mut(handle)) }
    };
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) |fake| {
        if mode.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller's pointer, as CUDA requires
        let wanted = unsafe { mode.read() };
        if wanted > 2 {
            return Err(fake.misused(format!("cuThreadExchangeStreamCaptureMode: no mode {wanted}")));
        }
        // SAFETY: as above
        unsafe { put(mode, exchange_mode(wanted)) }
    };
}

exports! { enter_device;
    cuCtxSynchronize() |fake| fake.call(Call::DeviceSynchronize).map(drop);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |fake| {
        let Answer::Info { free: f, total: t } = fake.call(Call::MemInfo)? else {
            return Err(Code::UNKNOWN);
        };
        // SAFETY: the caller's pointers, as CUDA requires
        unsafe { put(free, f as usize).and_then(|()| put(total, t as usize)) }
    };
    cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) |fake| {
        if image.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        fake.modules += 1;
        fake.made(Kind::Module, fake.modules, 0);
        let handle = std::ptr::without_provenance_mut(fake.modules as usize);
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(module, handle) }
    };
    cuModuleUnload(module: *mut c_void) |fake| {
        fake.gone("cuModuleUnload", Kind::Module, module.addr() as u64).map(drop)
    };
    cuModuleGetFunction(function: *mut *mut c_void, _module: *mut c_void, name: *const c_char) |_fake| {
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so a text that ends with a zero byte, as CUDA requires
        let name = unsafe { CStr::from_ptr(name) };
        let at = KERNELS.iter().position(|known| *known == name).ok_or(Code::NOT_FOUND)?;
        // SAFETY: the caller's pointer, as CUDA requires
        unsafe { put(function, std::ptr::without_provenance_mut(at + 1)) }
    };
    cuLaunchKernel(function: *mut c_void, _gx: c_uint, _gy: c_uint, _gz: c_uint, _bx: c_uint, _by: c_uint, _bz: c_uint, _shared: c_uint, queue: *mut c_void, parameters: *mut *mut c_void, _extra: *mut *mut c_void) |fake| {
        let count = match function.addr() {
            1 | 2 => 1,
            3 => 3,
            _ => return Err(fake.misused("cuLaunchKernel: an unknown kernel")),
        };
        if parameters.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut values = [0_u64; 3];
        for (at, value) in values.iter_mut().enumerate().take(count) {
            // SAFETY: a kernel has a pointer for each of its parameters, all of which are 64 bits wide
            *value = unsafe { parameters.add(at).read().cast::<u64>().read() };
        }
        let queue = stream(queue);
        let done = match function.addr() {
            1 => fake.machine.launch(queue, values[0]),
            2 => return fake.call(Call::Launch { stream: queue, duration: values[0] }).map(drop),
            _ => {
                let address = fake.managed.simulated(values[0]).unwrap_or(values[0]);
                fake.machine.touch(address, values[1], values[2] != 0, Toucher::Device(queue))
            }
        };
        done.map_err(|error| fake.refused(&error))
    };
}

/// The clock, which a real driver has none of: see `vramlab-validate`'s `cuda::clock`. `what`: 0 is it in use, 1 now, 2 spend, 3 wait until, 4 host
/// thread, 5 set.
#[unsafe(no_mangle)]
pub extern "C" fn vramlabClock(what: c_uint, value: u64) -> u64 {
    let mut lock = lock();
    let Some(fake) = lock.as_mut() else { return 0 };
    if let Some(device) = current() {
        fake.select(device).ok();
    }
    match what {
        0 => return (!fake.settings.spin).into(),
        2 => fake.machine.spend(value),
        3 => fake.machine.wait_until(Nanos(value)),
        4 => fake.machine.thread(value as u32),
        5 => fake.machine.set_now(Nanos(value)),
        _ => {}
    }
    fake.machine.now().0
}

/// The books of the current device, which a real driver does not show: what an allocator library holds that talks to the driver by itself. `what`: 0
/// bytes reserved, 1 bytes of the device used, 2 and 3 the highest of these, 4 and above how often the call of this kind was made.
#[unsafe(no_mangle)]
pub extern "C" fn vramlabBooks(what: c_uint) -> u64 {
    let mut lock = lock();
    let (Some(fake), Some(device)) = (lock.as_mut(), current()) else { return 0 };
    if fake.select(device).is_err() {
        return 0;
    }
    let held = fake.machine.held();
    match what {
        0 => held.reserved,
        1 => held.device_used,
        2 => held.peak_reserved,
        3 => held.peak_device_used,
        kind => fake.machine.calls().0.get(kind as usize - 4).copied().unwrap_or(0),
    }
}
