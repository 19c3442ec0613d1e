//! Readers of what other programs recorded.
//!
//! | module           | reads                                                                        |
//! |------------------|------------------------------------------------------------------------------|
//! | `bytes`          | files, plain or compressed (`.gz`, `.zst`, told by their first bytes)        |
//! | `pickle`         | Python pickles as plain data, without running anything in them               |
//! | `recording`      | histories as workloads, whatever file they came from                         |
//! | `torch_snapshot` | PyTorch CUDA memory snapshots (pickle or JSON)                               |

pub mod bytes;
pub mod pickle;
pub mod recording;
pub mod torch_snapshot;
