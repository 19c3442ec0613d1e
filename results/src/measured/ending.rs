//! A source that ends with its first refused request, as a program does that no one catches.

use vramlab_sim::op::{BufferUse, NameId, TouchRange};
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos};
use vramlab_workloads::registry::BoxedSource;

/// It, around another.
pub(super) struct Ending(pub(super) BoxedSource);

impl Source for Ending {
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError> {
        match last {
            Answered::OutOfMemory => Ok(Step::End),
            _ => self.0.next(now, last),
        }
    }

    fn uses(&self) -> &[BufferUse] {
        self.0.uses()
    }

    fn touch(&self) -> TouchRange {
        self.0.touch()
    }

    fn text(&self, name: NameId) -> &str {
        self.0.text(name)
    }

    fn name(&self, id: BufferId) -> u64 {
        self.0.name(id)
    }

    fn independent(&self) -> bool {
        false
    }

    fn gaps(&self) -> u64 {
        self.0.gaps()
    }
}
