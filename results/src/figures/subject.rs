//! What a picture is of: an input, a strategy, a device.

use vramlab_allocators::Spec;
use vramlab_sim::engine::Observer;
use vramlab_sim::report::Report;

use super::scale::bytes;
use crate::analysis::lives::Lives;
use crate::failure::Failure;
use crate::job::{Input, Place, run_reported};
use crate::row::Row;

/// A run that a picture is made of.
pub struct Subject<'r, 'a> {
    /// What is run.
    pub input: &'r Input<'a>,
    /// Through which strategy.
    pub spec: &'r Spec,
    /// On which device.
    pub place: &'r Place,
    /// What a legend calls it, beside others.
    pub label: String,
}

impl Subject<'_, '_> {
    /// Runs it.
    ///
    /// # Errors
    /// Bad options or bad input, or a run that did not come to its end.
    pub fn run(&self, observer: Option<&mut dyn Observer>) -> Result<(Row, Report), Failure> {
        let (row, report) = run_reported(self.input, self.spec, self.place, observer)?;
        match report {
            Some(report) if row.allocs > 0 || row.kv.is_some() => Ok((row, report)),
            Some(_) => Err(self.bad("it asks for no memory, so there is nothing to draw")),
            None => Err(self.bad(row.reason.as_deref().unwrap_or("it did not run"))),
        }
    }

    /// Why there is no picture.
    pub fn bad(&self, why: &str) -> Failure {
        Failure::input(format!("{} through {}: {why}", self.input.origin, self.spec))
    }

    /// The buffers of the input; none if its ops depend on answers, so that another walk would see others, or if it has sequences.
    ///
    /// # Errors
    /// A bad input.
    pub fn lives(&self) -> Result<Option<Lives>, Failure> {
        if !(self.input.make)()?.independent() {
            return Ok(None);
        }
        Lives::read(self.input).map(|lives| Some(lives).filter(|lives| lives.sequences == 0))
    }

    /// Words under a title: what ran, on what.
    pub fn words(&self) -> String {
        let device = format!("{} with {}", self.place.profile.name, bytes(self.place.capacity()));
        let seed = self.input.seed.filter(|seed| *seed > 0);
        let seed = seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
        format!("{}{seed}, through {}, on {device}", self.input.name, self.spec)
    }

    /// The same without the strategy, of pictures that have several.
    pub fn words_of_many(subjects: &[Self]) -> String {
        let mut inputs: Vec<&str> = subjects.iter().map(|one| one.input.name.as_str()).collect();
        let mut devices: Vec<&str> =
            subjects.iter().map(|one| one.place.profile.name.as_str()).collect();
        inputs.dedup();
        devices.dedup();
        format!("{}, on {}", inputs.join(", "), devices.join(", "))
    }
}
