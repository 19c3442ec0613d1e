//! The text form of a trace, version 1: JSON Lines, UTF-8, one op an object.
//!
//! The first line may be a header `{"vramlab_trace":1,"name":…,"unit":"bytes, ns","truncated":true}`. Sizes are bytes, times nanoseconds of
//! the host clock, ids any u64; a header that names other units is refused. A converted recording's header may have
//! `capacity` (bytes that the recorded allocator could get), `peak_reserved` (the most that it held), `torch_version` (the PyTorch whose rules it
//! followed) and `conf` (its settings, as `PYTORCH_CUDA_ALLOC_CONF` has them; absent: the defaults). Unknown fields are ignored, unknown ops are errors.
//!
//! | op | fields | meaning |
//! |---|---|---|
//! | `alloc` | `id`, `size`, `stream` (0), `site` | ask for memory; an id is live at most once at a time |
//! | `free` | `id`, `stream`, `deferred` (false) | the host drops the buffer; deferred: unseen work uses it until `free_completed` |
//! | `free_completed` | `id` | a deferred free ended here; of a live buffer that nobody freed: a free; after a plain free: nothing |
//! | `realloc` | `id`, `size` | grow or shrink |
//! | `record_stream` | `id`, `stream` | the buffer is also used on that stream |
//! | `work` | `stream`, `dur`, `reads`, `writes` | queue device work; `use` with `id` is `work` that reads `id` |
//! | `copy` | `stream`, `bytes`, `dir` (`h2d`, `d2h`, `d2d`, `p2p`, `disk`) | queue a transfer |
//! | `touch` | `id`, `offset` (0), `bytes` (0: the rest), `write`, `by` (`device`, `host`), `stream` (0) | access by page |
//! | `event`, `wait` | `event`, `stream` | record an event; make a stream wait for it |
//! | `sync` | `stream` or none | the host waits |
//! | `empty_cache`, `trim` | `keep` (trim) | give cached memory back |
//! | `pool_begin`, `pool_end`, `pool_release` | `pool`, `stream` (begin) | private pools |
//! | `capture_begin`, `capture_end` | `stream` | graph capture |
//! | `kv_new` | `seq`, `tokens`, `keys`, `chunk`, `whole` (false), `headroom`, `watermark` (false), `waits` (false), `token_bytes`, `layers`, `longest` | a new sequence of a cache |
//! | `kv_more` | `seq`, `tokens`, `keys`, `waits` (false) | its next tokens |
//! | `kv_fork` | `seq`, `from` | a new sequence with the tokens of a live one |
//! | `kv_free` | `seq` | a sequence ends |
//! | `set` | `key`, `value` | a setting changes |
//! | `request`, `response` | `req` | latency of a served request |
//! | `mark` | `name` | step or phase boundary |
//!
//! All take `device` (0), `thread` (0: the host thread that issues the op; each has a clock of its own) and `t`: the op is issued not before this
//! host time; absent, right after the op before it.
//!
//! `keys` says what the `tokens` are: a list of numbers (one token of a vocabulary each) and of runs `[stream, first, count]` (tokens `first` and after of
//! a text called `stream`); a token beyond them is like no other. All `tokens` of `kv_new` are looked up; of those that are not found, at most `chunk`
//! get slots now, the others with `kv_more`; with `whole`, more than the chunk are refused. With `headroom` there must be room for all of them and so many more, with `watermark` the cache's watermark
//! must stay free. With `waits`, who asks will ask again or make room, so that a refusal counts as a wait. `token_bytes` are a token's bytes in all `layers`
//! of the model, and no sequence passes `longest` tokens; the first `kv_new` decides.
//!
//! Not recorded: addresses (they are an allocator's answer, not a workload's question). A free of an unknown id before the first
//! `alloc`, or anywhere if the header says `truncated`, is a gap of a truncated recording, and counted; elsewhere it is an error.

mod explain;
mod quick;
mod raw;
mod read;
mod slots;
#[cfg(test)]
mod tests;
mod write;

pub use explain::not_utf8;
pub use read::JsonlSource;
pub use slots::Slots;
pub use write::{Header, JsonlWriter};
