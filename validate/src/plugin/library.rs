//! The file: is it a library that can be loaded here, and has it the functions?

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use super::PluginArgs;
use crate::failure::Failure;

/// Usual names: ours, those of PyTorch's documentation, of its tests, of RMM.
const USUAL: [(&str, &str); 4] = [
    ("vramlab_alloc", "vramlab_free"),
    ("my_malloc", "my_free"),
    ("alloc", "dealloc"),
    ("allocate", "deallocate"),
];
const RECORD_STREAM: &str = "vramlab_record_stream";
const EMPTY_CACHE: &str = "vramlab_empty_cache";

type Alloc = unsafe extern "C" fn(isize, c_int, *mut c_void) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, isize, c_int, *mut c_void);
type RecordStream = unsafe extern "C" fn(*mut c_void, *mut c_void);
type EmptyCache = unsafe extern "C" fn();

/// Bytes of the head of an ELF file, and of an entry of its table of segments.
const HEAD: usize = 64;
const SEGMENT: usize = 56;
const SHARED_OBJECT: u16 = 3;
/// Machines by their number in an ELF file.
const MACHINES: [(u16, &str, &str); 4] = [
    (62, "x86-64", "x86_64"),
    (183, "AArch64", "aarch64"),
    (243, "RISC-V", "riscv64"),
    (21, "POWER", "powerpc64"),
];

/// Looks at the file's head.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let bad = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let mut head = [0_u8; HEAD];
    let mut file = std::fs::File::open(path).map_err(|e| bad(format!("cannot be opened: {e}")))?;
    let read = file.read_exact(&mut head);
    if read.is_err() || &head[..4] != b"\x7fELF" {
        return Err(bad("found no shared library (it does not begin as an ELF file does), expected the .so that PyTorch would load".to_owned()));
    }
    if head[4] != 2 || head[5] != 1 {
        return Err(bad("found a library of 32 bits or of another byte order, expected one of 64 bits, little-endian".to_owned()));
    }
    let number = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if number(16) != SHARED_OBJECT {
        return Err(bad("found an object file or a plain program, expected a shared library: link it with -shared".to_owned()));
    }
    let here = std::env::consts::ARCH;
    match MACHINES.iter().find(|(machine, ..)| *machine == number(18)) {
        Some((_, _, arch)) if *arch == here => {}
        Some((_, name, _)) => {
            return Err(bad(format!(
                "found a library for {name}, expected one for {here}, as this program is"
            )));
        }
        None => {
            return Err(bad(format!(
                "found a library for machine {}, expected one for {here}",
                number(18)
            )));
        }
    }
    // the loader maps what the table says, and dies where the file ends before
    let length = file.metadata().map_or(u64::MAX, |about| about.len());
    match extent(&mut file, long(&head, 32), number(56)) {
        Ok(end) if end <= length => Ok(()),
        Ok(end) => Err(bad(format!(
            "found {length} bytes, expected {end} at least, as it says itself: the file was cut off; copy or build it again"
        ))),
        Err(why) => Err(bad(format!(
            "its table of segments cannot be read ({why}); the file was cut off or damaged"
        ))),
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

/// Where the last of the segments ends that are loaded from the file.
fn extent(file: &mut std::fs::File, table: u64, count: u16) -> std::io::Result<u64> {
    file.seek(SeekFrom::Start(table))?;
    let mut end = 0;
    for _ in 0..count {
        let mut segment = [0_u8; SEGMENT];
        file.read_exact(&mut segment)?;
        if segment[..4] == [1, 0, 0, 0] {
            end = end.max(long(&segment, 8).saturating_add(long(&segment, 32)));
        }
    }
    Ok(end)
}

/// A library that was loaded, and its functions.
pub(super) struct Library {
    alloc: Alloc,
    free: Free,
    record_stream: Option<RecordStream>,
    empty_cache: Option<EmptyCache>,
    /// Stays loaded as long as its functions are there.
    _loaded: Loaded,
}

/// Loads it.
pub(super) fn load(path: &Path, names: &PluginArgs) -> Result<Library, Failure> {
    let bad = |what: String| Failure::input(format!("{}: {what}", path.display()));
    // a bare name would be looked for on the library path
    let whole = path.canonicalize().map_err(|e| bad(format!("cannot be opened: {e}")))?;
    // SAFETY: loading runs what the library runs when it is loaded, which its user asks for
    let loaded = unsafe { Loaded::open(Some(&whole), RTLD_NOW | RTLD_LOCAL) };
    let loaded = loaded.map_err(|e| {
        // the loader's own words are the cause
        let e = e.source().map_or_else(|| e.to_string(), ToString::to_string);
        bad(format!(
            "the loader refuses it: {e}. A function of CUDA that is missing is one that the stand-ins lack; a file that is missing is a library that this one needs"
        ))
    })?;
    let find = |name: &str| {
        // SAFETY: only the address is taken
        unsafe { loaded.get::<*mut c_void>(name.as_bytes()) }.ok().map(|symbol| symbol.into_raw())
    };
    let both = |(alloc, free): (&str, &str)| Some((find(alloc)?, find(free)?));
    let pair = match (&names.alloc_fn, &names.free_fn) {
        (Some(alloc), Some(free)) => both((alloc, free)),
        _ => USUAL.into_iter().find_map(both),
    };
    let Some((alloc, free)) = pair else {
        let wanted = match (&names.alloc_fn, &names.free_fn) {
            (Some(alloc), Some(free)) => format!("no functions {alloc} and {free} in it"),
            _ => format!(
                "none of the usual functions in it ({}); name its own with --alloc-fn and --free-fn",
                USUAL.map(|(a, f)| format!("{a} and {f}")).join(", ")
            ),
        };
        return Err(bad(format!(
            "found {wanted}. `nm -D --defined-only` lists what it has; C++ functions must be declared extern \"C\""
        )));
    };
    let optional = |named: &Option<String>, usual: &str| match named {
        Some(name) => {
            find(name).map(Some).ok_or_else(|| bad(format!("found no function {name} in it")))
        }
        None => Ok(find(usual)),
    };
    let (record, empty) = (
        optional(&names.record_stream_fn, RECORD_STREAM)?,
        optional(&names.empty_cache_fn, EMPTY_CACHE)?,
    );
    // SAFETY: functions of these names have these shapes, as PyTorch's interface and the user's naming say
    let library = unsafe {
        Library {
            alloc: std::mem::transmute::<*mut c_void, Alloc>(alloc),
            free: std::mem::transmute::<*mut c_void, Free>(free),
            record_stream: record.map(|at| std::mem::transmute::<*mut c_void, RecordStream>(at)),
            empty_cache: empty.map(|at| std::mem::transmute::<*mut c_void, EmptyCache>(at)),
            _loaded: loaded,
        }
    };
    Ok(library)
}

impl Library {
    /// Asks for memory; 0 if there is none.
    pub(super) fn alloc(&self, size: u64, stream: usize) -> u64 {
        // who asks for more than the interface can say gets none
        let Ok(size) = isize::try_from(size) else { return 0 };
        let stream = std::ptr::with_exposed_provenance_mut(stream);
        // SAFETY: the function takes any size; the stream is the null stream or live
        unsafe { (self.alloc)(size, 0, stream) }.expose_provenance() as u64
    }

    /// Gives it back.
    pub(super) fn free(&self, address: u64, size: u64, stream: usize) {
        let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
        let stream = std::ptr::with_exposed_provenance_mut(stream);
        // SAFETY: the address came from `alloc` with this size and stream, and goes back once
        unsafe { (self.free)(pointer, size as isize, 0, stream) }
    }

    /// `false`: it has no such function.
    pub(super) fn record_stream(&self, address: u64, stream: usize) -> bool {
        let Some(record) = self.record_stream else { return false };
        let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the address is live, and so is the stream
        unsafe { record(pointer, std::ptr::with_exposed_provenance_mut(stream)) };
        true
    }

    /// `false`: it has no such function.
    pub(super) fn empty_cache(&self) -> bool {
        let Some(empty) = self.empty_cache else { return false };
        // SAFETY: the function takes nothing
        unsafe { empty() };
        true
    }
}
