//! Ctrl-C, and SIGTERM: a flag that is looked at between ops and between measurements, so that everything is given back. The second one ends the
//! program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;
use vramlab_sim::kv::NewSequence;
use vramlab_sim::op::{BufferUse, NameId, TouchRange};
use vramlab_sim::report::Served;
use vramlab_sim::source::{Answered, Source, SourceError, Step};
use vramlab_sim::units::{BufferId, Nanos, SequenceId};

use crate::failure::Code;

/// Was the program asked to stop?
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens from now on.
    pub(crate) fn listen() -> Self {
        let stop = Self::default();
        for signal in TERM_SIGNALS {
            // first registered, first run: the flag is set already when the second signal comes
            let code = Code::Partial as i32;
            let listens = flag::register_conditional_shutdown(*signal, code, Arc::clone(&stop.0))
                .and_then(|_| flag::register(*signal, Arc::clone(&stop.0)));
            // a process that may not listen is ended as any other
            listens.ok();
        }
        stop
    }

    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A source that ends when the program is asked to stop.
pub(crate) struct Stoppable<'s> {
    pub(crate) inner: Box<dyn Source + 's>,
    pub(crate) stop: Stop,
}

impl Source for Stoppable<'_> {
    fn next(&mut self, now: Nanos, last: Answered) -> Result<Step, SourceError> {
        if self.stop.asked() { Ok(Step::End) } else { self.inner.next(now, last) }
    }

    fn uses(&self) -> &[BufferUse] {
        self.inner.uses()
    }

    fn touch(&self) -> TouchRange {
        self.inner.touch()
    }

    fn kv(&self) -> NewSequence<'_> {
        self.inner.kv()
    }

    fn text(&self, name: NameId) -> &str {
        self.inner.text(name)
    }

    fn name(&self, id: BufferId) -> u64 {
        self.inner.name(id)
    }

    fn sequence(&self, seq: SequenceId) -> u64 {
        self.inner.sequence(seq)
    }

    fn served(&self) -> Option<Served> {
        self.inner.served()
    }

    fn failed_when_recorded(&self) -> bool {
        self.inner.failed_when_recorded()
    }

    fn independent(&self) -> bool {
        self.inner.independent()
    }

    fn gaps(&self) -> u64 {
        self.inner.gaps()
    }
}
