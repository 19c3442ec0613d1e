//! A program: the kernels of a phase in the order in which they are queued, and the storages that they read and write.
//!
//! A storage is asked for when it is first written, and freed after the last step that names it. A *fixed* one outlives the program (a weight, a gradient, a
//! moment): it has a number that is the same in every program of a run, and is freed by [`Step::Free`] only.

use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::units::StreamId;

use super::tensor::{DType, ScopeId};

/// A number for a storage of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StorageId(pub u32);

/// Memory that a program asks for, or finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Its size (B).
    pub bytes: u64,
    /// Type of the numbers in it.
    pub dtype: DType,
    /// Where in the model it is made.
    pub scope: ScopeId,
    /// What it is there: empty for a result, `grad`, `workspace`…
    pub part: &'static str,
    /// Its number, if it outlives the program.
    pub fixed: Option<u32>,
    /// It was there before the program began.
    pub found: bool,
}

/// Device work.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The operator's name.
    pub name: &'static str,
    /// Where in the model.
    pub scope: ScopeId,
    /// What it reads; what is changed in place is read and written.
    pub reads: Vec<StorageId>,
    /// What it writes; those that are not there are asked for in this order.
    pub writes: Vec<StorageId>,
    /// Asked for after them and freed right after the kernel is queued, last first. Their bytes take no time.
    pub scratch: Vec<StorageId>,
    /// Bytes that it moves, if not all that it reads and writes: a view is read in part, a look-up reads a few rows of a table.
    pub moved: Option<u64>,
    /// Floating-point operations.
    pub flops: f64,
    /// The type in which they are done.
    pub math: DType,
    /// Where it is queued.
    pub stream: StreamId,
}

/// A step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Device work.
    Run(Kernel),
    /// A transfer; the target is asked for if it is not there.
    Copy {
        /// Where from, if it is to live until here.
        from: Option<StorageId>,
        /// Where to, on the device.
        to: Option<StorageId>,
        /// How much (B).
        bytes: u64,
        /// From where to where.
        direction: Direction,
        /// Where it is queued.
        stream: StreamId,
    },
    /// Lifetimes last until here.
    Hold(Vec<StorageId>),
    /// The allocator is told that a storage is used on this stream too.
    Record(StorageId, StreamId),
    /// A fixed storage is dropped.
    Free(StorageId),
    /// A phase begins.
    Mark {
        /// Its name.
        text: String,
        /// The step's number stands before it.
        numbered: bool,
    },
    /// The computation waits for other devices, as long as so many parts of all its kernels so far take.
    Idle {
        /// How many parts.
        parts: u64,
        /// Into how many parts the kernels are divided.
        of: u64,
    },
    /// Any op without buffers.
    Op(Op),
}

impl Step {
    /// All storages that it names, in the order in which they are dropped if it is the last to do so.
    pub fn named(&self) -> impl Iterator<Item = StorageId> {
        let (a, b, c): (&[_], &[_], &[_]) = match self {
            Step::Run(kernel) => (&kernel.reads, &kernel.writes, &kernel.scratch),
            Step::Hold(held) => (held, &[], &[]),
            _ => (&[], &[], &[]),
        };
        let (from, to) = match self {
            Step::Copy { from, to, .. } => (*from, *to),
            _ => (None, None),
        };
        a.iter().chain(b).chain(c).copied().chain(from).chain(to)
    }
}

/// The program of a phase.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All storages.
    pub storages: Vec<Storage>,
    /// All steps, in order.
    pub steps: Vec<Step>,
}

impl Program {
    /// Bytes that a kernel moves.
    pub fn moved(&self, kernel: &Kernel) -> u64 {
        let all = kernel.reads.iter().chain(&kernel.writes).map(|id| self.get(*id).bytes);
        kernel.moved.unwrap_or_else(|| all.sum())
    }

    /// A storage.
    pub fn get(&self, id: StorageId) -> &Storage {
        &self.storages[id.0 as usize]
    }
}
