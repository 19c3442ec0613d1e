//! What happened in a run, apart from how it is printed: `inspect`, `advise`, `fit` and the page of `report` stand on it.
//!
//! | module | tells |
//! |---|---|
//! | [`lives`] | every buffer with its birth and end, site, stream and phase; curves of live bytes |
//! | [`category`] | what a buffer is for, and whether the recording says so |
//! | [`shares`] | what held the bytes of a moment, growth by phase, streams |
//! | [`replayed`] | a run through a strategy: its curve, the requests that made it grow, its state after any op |
//! | [`causes`] | judges a state: each reserved byte that nobody asked for has one cause |
//! | [`judged`] | a state that was judged: bytes by cause, pins, maps of segments |
//! | [`cut`] | a part of an input as an input |
//! | [`inspection`] | all that is told of one history, for tables and pages |
//! | [`recorded`] | the same of the state that a recording ends with |
//!
//! In use:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use vramlab::analysis::{category::Categories, lives::Lives, replayed::Replayed, shares};
//! use vramlab::{inputs, job::Place};
//!
//! let opened = inputs::open("snapshot.pickle".as_ref())?;
//! let (spec, input) = (opened.recorded_spec(None)?, opened.inputs().remove(0));
//! let place = Place::for_recording(None, None)?;
//! let lives = Lives::read(&input)?;
//! let categories = Categories::of(&lives, &input);
//! let at_peak = shares::by_category(&lives, &categories, lives.peak_op);
//! let run = Replayed::run(&input, &spec, &place, false)?;
//! if let Some(judged) = run.moment(&input, &spec, &place, &lives, run.peak_op)? {
//!     println!("{at_peak:?} {:?}", judged.causes);
//! }
//! # Ok(())
//! # }
//! ```

pub mod category;
pub mod causes;
pub mod cut;
pub mod inspection;
pub mod judged;
pub mod lives;
pub mod recorded;
pub mod replayed;
pub mod shares;
