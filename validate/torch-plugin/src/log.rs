//! The trace of a live process: each op as it comes, with the host's time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use vramlab_sim::op::{BufferUse, NameId, Op, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::trace::JsonlWriter;
use vramlab_sim::units::{BufferId, DeviceId, Nanos};

/// What is written to.
enum Out {
    Plain(BufWriter<File>),
    Packed(Box<GzEncoder<BufWriter<File>>>),
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Packed(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            // the end of the packed stream: nothing is written after it
            Self::Packed(out) => {
                out.try_finish()?;
                out.get_mut().flush()
            }
        }
    }
}

/// The trace.
pub(crate) struct Log {
    out: JsonlWriter<Out>,
    names: Names,
}

impl Log {
    /// Begins the file; `name` is the run's.
    pub(crate) fn create(path: &Path, name: &str) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let packed = path.extension().is_some_and(|extension| extension == "gz");
        let out = if packed {
            Out::Packed(Box::new(GzEncoder::new(file, Compression::fast())))
        } else {
            Out::Plain(file)
        };
        Ok(Self { out: JsonlWriter::new(out, name)?, names: Names::default() })
    }

    /// Writes an op of a device.
    pub(crate) fn op(&mut self, device: u16, now: Nanos, op: Op) -> io::Result<()> {
        let device = DeviceId(device);
        for step in [Step::Op(Op::Device { device }), Step::WaitUntil(now), Step::Op(op)] {
            self.out.step(&step, &self.names)?;
        }
        Ok(())
    }

    /// Writes a change of a setting.
    pub(crate) fn set(
        &mut self,
        device: u16,
        now: Nanos,
        key: &str,
        value: &str,
    ) -> io::Result<()> {
        self.names.texts = [key.to_owned(), value.to_owned()];
        self.op(device, now, Op::Set { key: NameId(0), value: NameId(1) })
    }

    /// Writes the end.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.out.step(&Step::End, &self.names)
    }
}

/// What the ops' numbers mean: a buffer's number is its name.
#[derive(Default)]
struct Names {
    texts: [String; 2],
}

impl Source for Names {
    fn next(&mut self, _now: Nanos, _last: Answered) -> Result<Step, SourceError> {
        Ok(Step::End)
    }

    fn uses(&self) -> &[BufferUse] {
        &[]
    }

    fn touch(&self) -> TouchRange {
        TouchRange::default()
    }

    fn text(&self, name: NameId) -> &str {
        self.texts.get(name.0 as usize).map_or("", String::as_str)
    }

    fn name(&self, id: BufferId) -> u64 {
        id.0.into()
    }

    fn independent(&self) -> bool {
        true
    }

    fn gaps(&self) -> u64 {
        0
    }
}
