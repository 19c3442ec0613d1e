//! Pickles as data: a reader of plain values (numbers, text, lists, tuples, dicts) of protocols 0 to 5.
//!
//! Source of the format: CPython, `Lib/pickletools.py` and `Lib/pickle.py`; PyTorch writes protocol 2 from C++
//! (`torch/csrc/jit/serialization/pickler.cpp`) and 4 from Python.
//!
//! | rule       | what it says                                                                                       |
//! |------------|----------------------------------------------------------------------------------------------------|
//! | `data`     | nothing is imported, called or built: GLOBAL, REDUCE, BUILD, persistent ids, extensions are errors |
//! | `shared`   | an object that the memo shares stays one object; a value is a handle of 8 bytes, never a copy      |
//! | `flat`     | no recursion: nesting costs a mark, a list that contains itself is only a number in its own items  |
//! | `bounded`  | a declared length is checked before memory is asked for; [`Limits`] bound the rest                 |
//! | `streamed` | one buffer of 256 KiB; a [`Sink`] takes finished dicts, so that no tree of the whole file exists   |
//! | `alike`    | dicts with the keys of one before are read without the stack; see `again`                          |
//!
//! Left out: the content of `bytes` (only the length is kept), integers beyond 128 bits, out-of-band buffers,
//! and storing a second, different object under the same memo number.

mod again;
mod error;
mod fill;
mod heap;
mod input;
mod interned;
mod machine;
mod memo;
mod opcode;
mod sink;
mod text;
mod value;

#[cfg(test)]
mod tests;

use std::io::Read;

pub(crate) use again::KEYS_MAX as SHAPE_KEYS_MAX;
pub use error::{Error, Problem, Result};
pub use heap::{Heap, View};
pub(crate) use interned::{Interned, Seed};
pub use interned::{StrId, Strings};
pub use sink::{KeepAll, Refusal, Sink};
pub use value::Value;

use machine::Machine;

/// How much a pickle may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes that values outside the sink may take, stack and memo included.
    pub heap_bytes_max: usize,
    /// Bytes of one string.
    pub string_bytes_max: u64,
    /// Marks that are open at once. Snapshots nest five deep.
    pub depth_max: usize,
}

impl Default for Limits {
    /// 2 GiB of values, 256 MiB a string, 10 000 deep.
    fn default() -> Limits {
        Limits { heap_bytes_max: 2 << 30, string_bytes_max: 256 << 20, depth_max: 10_000 }
    }
}

/// Reads one pickle. `total` is its length in bytes where that is known; a declared length beyond it is then an error at
/// once rather than at the end. Bytes behind STOP are not looked at.
///
/// Finished dicts and lists are offered to `sink`; what it declines, and the value itself, refer to `heap`.
///
/// # Errors
/// Everything that [`Problem`] lists, with the byte at which it was found.
pub fn read<R: Read>(
    reader: R,
    total: Option<u64>,
    limits: Limits,
    heap: &mut Heap,
    sink: &mut impl Sink,
) -> Result<Value> {
    Machine::new(reader, total, limits, heap, sink).run()
}

/// Reads one pickle into values, with the default limits.
///
/// # Errors
/// As [`read`].
pub fn read_values(bytes: &[u8]) -> Result<(Heap, Value)> {
    let mut heap = Heap::default();
    let total = Some(bytes.len() as u64);
    let value = read(bytes, total, Limits::default(), &mut heap, &mut KeepAll)?;
    Ok((heap, value))
}
