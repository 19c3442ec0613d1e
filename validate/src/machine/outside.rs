//! A library beside the machine that calls the driver by itself: what is held and called then stands in the stand-in driver's books alone.
//!
//! | rule | what it says |
//! |---|---|
//! | `outside` | bytes held and calls made are the stand-in's, less the streams that the machine made for itself; whether a stream is captured is answered without a call |
//! | `handles` | the library needs CUDA's handles of the workload's streams: they are shared with it as they are made; stream 0 is the null stream |
//! | `unseen` | the machine does not know the library's ranges: accesses to them by the workload's own work are not made |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use vramlab_sim::driver::{CALL_KINDS, Call};
use vramlab_sim::machine::Held;
use vramlab_sim::units::StreamId;

use super::CudaMachine;
use crate::cuda::clock::StandInBooks;

/// CUDA's handles of the workload's streams.
pub(crate) type Handles = Arc<Mutex<BTreeMap<StreamId, usize>>>;

/// What is shared with the library.
pub(super) struct Outside {
    books: StandInBooks,
    handles: Handles,
    streams_made: u64,
}

impl CudaMachine {
    /// A library will call the driver too, whose books are to be asked. `None`: the driver is no stand-in.
    pub(crate) fn open_to_others(&mut self) -> Option<Handles> {
        let handles = Handles::default();
        let books = StandInBooks::find()?;
        self.outside = Some(Outside { books, handles: Arc::clone(&handles), streams_made: 0 });
        self.adopt_stream(StreamId(0), 0);
        handles.lock().unwrap_or_else(PoisonError::into_inner).insert(StreamId(0), 0);
        Some(handles)
    }
}

impl Outside {
    /// Rule `handles`.
    pub(super) fn made(&mut self, stream: StreamId, handle: usize) {
        self.streams_made += 1;
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(stream, handle);
    }

    /// Rule `outside`.
    pub(super) fn held(&self) -> Held {
        self.books.held()
    }

    /// Rule `outside`.
    pub(super) fn calls(&self) -> [u64; CALL_KINDS] {
        let mut calls = self.books.calls();
        let created = &mut calls[Call::StreamCreate.kind()];
        *created = created.saturating_sub(self.streams_made);
        calls
    }
}
