//! Readers of what other programs recorded.
//!
//! | module           | reads                                                                        |
//! |------------------|------------------------------------------------------------------------------|
//! | `bytes`          | files, plain or compressed (`.gz`, `.zst`, told by their first bytes)        |
//! | `pickle`         | Python pickles as plain data, without running anything in them               |
//! | `recording`      | histories as workloads, whatever file they came from                         |
//! | `requests`       | requests to servers of language models: arrivals, lengths, shared prefixes   |
//! | `text`           | lines, CSV rows, numbers and times, for the readers of text                  |
//! | `torch_snapshot` | PyTorch CUDA memory snapshots (pickle or JSON)                               |

pub mod bytes;
pub mod pickle;
pub mod recording;
pub mod requests;
pub mod text;
pub mod torch_snapshot;
