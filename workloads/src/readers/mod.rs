//! Readers of what other programs recorded.
//!
//! | module           | reads                                                                        |
//! |------------------|------------------------------------------------------------------------------|
//! | `bytes`          | files, plain or compressed (`.gz`, `.zst`, told by their first bytes)        |
//! | `events`         | requests and frees held in memory, as workloads                              |
//! | `format`         | nothing: it tells a file's format by its content                             |
//! | `pickle`         | Python pickles as plain data, without running anything in them               |
//! | `plan`           | instances of static placement (MiniMalloc CSV), lifetime logs                |
//! | `profiler`       | memory events of PyTorch's profiler (Chrome traces, lists)                   |
//! | `recording`      | histories as workloads, whatever file they came from                         |
//! | `requests`       | requests to servers of language models: arrivals, lengths, shared prefixes   |
//! | `rmm`            | logs of RMM's logging adaptor                                                |
//! | `sizes`          | sizes of pages, lines and crops for text recognition                         |
//! | `states`         | states that programs printed: BFC dumps, memory summaries, timelines         |
//! | `text`           | lines, CSV rows, numbers and times, for the readers of text                  |
//! | `torch_history`  | nothing: the histories of the devices in a snapshot                           |
//! | `torch_snapshot` | PyTorch CUDA memory snapshots (pickle or JSON)                               |

pub mod bytes;
pub mod events;
pub mod format;
pub mod pickle;
pub mod plan;
pub mod profiler;
pub mod recording;
pub mod requests;
pub mod rmm;
pub mod sizes;
pub mod states;
pub mod text;
pub mod torch_history;
pub mod torch_snapshot;
