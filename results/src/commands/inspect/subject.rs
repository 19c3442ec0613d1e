//! One history, looked at: which part of it, at which moment, through which strategy on which device.

use std::path::Path;

use vramlab_allocators::Spec;
use vramlab_sim::units::Bytes;

use super::{Around, InspectArgs, Inspected, Start, export};
use crate::advise::climb::climb;
use crate::analysis::category::Categories;
use crate::analysis::inspection::{When, Window, fragmentation, peak};
use crate::analysis::lives::Lives;
use crate::cli::Common;
use crate::failure::Failure;
use crate::inputs::{Made as MadeBy, Recorded};
use crate::job::{Input, Place};

/// What is looked at, and how it is replayed.
pub(super) struct Subject<'r, 'a> {
    pub(super) input: &'r Input<'a>,
    pub(super) spec: &'r Spec,
    pub(super) place: &'r Place,
    pub(super) recorded: Recorded,
    pub(super) made: &'r MadeBy,
}

impl Subject<'_, '_> {
    pub(super) fn inspect(
        &self,
        args: &InspectArgs,
        export: Option<&Path>,
        common: &Common,
    ) -> Result<(Inspected, Lives, Categories), Failure> {
        let lives = Lives::read(self.input)?;
        let categories = Categories::of(&lives, self.input);
        let window = self.window(args, &lives)?;
        if let Some(When::Op(op)) = args.at.filter(|_| lives.ops > 0)
            && op >= lives.ops
        {
            let (name, last) = (&self.input.name, lives.ops - 1);
            return Err(Failure::usage(format!("--at {op}: {name} has ops 0 to {last}")));
        }
        if let Some(path) = export {
            export::write(self.input, (self.recorded, self.made), window, path, common)?;
        }
        let mut warnings = Vec::new();
        if lives.saturated {
            let cut = "the sum of live requests passed 2^64 bytes: requested bytes are cut there";
            warnings.push(cut.to_owned());
        }
        let parts = (self.input, self.spec, self.place);
        let when = (args.at.unwrap_or(When::Worst), window);
        let fragmentation = match lives.allocs {
            0 => None,
            _ => fragmentation(parts, (&lives, &categories), when, args.kept())?,
        };
        if fragmentation.is_none() && args.at == Some(When::Oom) {
            return Err(self.no_failure());
        }
        let one = Inspected {
            input: self.input.name.clone(),
            torch: self.made.torch_version.clone(),
            conf: self.made.torch_version.as_ref().map(|_| self.made.conf.clone()),
            capacity_at_failure: self.recorded.capacity,
            window: Some(window).filter(|window| *window != Window::ALL),
            start: Start::default(),
            planned_bytes: None,
            peak: peak(&lives, &categories, window, args.kept()),
            climb: climb(&lives),
            fragmentation,
            end: None,
            not_verifiable: None,
            warnings,
        };
        Ok((one, lives, categories))
    }

    fn window(&self, args: &InspectArgs, lives: &Lives) -> Result<Window, Failure> {
        let around = |op: u64| Window {
            from: op.saturating_sub(args.span),
            to: op.saturating_add(args.span).min(lives.ops.saturating_sub(1)),
        };
        let window = match args.around {
            Some(Around::Peak) => around(lives.peak_op),
            Some(Around::Oom) => {
                let row = crate::job::run_pair(self.input, self.spec, self.place, None)?;
                around(row.first_oom_op.ok_or_else(|| self.no_failure())?)
            }
            None if !args.windowed() => return Ok(Window::ALL),
            None => Window {
                from: args.from.unwrap_or(0),
                to: args.to.unwrap_or(u64::MAX).min(lives.ops.saturating_sub(1)),
            },
        };
        if window.from > window.to || window.from >= lives.ops {
            return Err(Failure::usage(format!(
                "found a window from op {} to op {}; {} has ops 0 to {}",
                window.from,
                window.to,
                self.input.name,
                lives.ops.saturating_sub(1)
            )));
        }
        Ok(window)
    }

    fn no_failure(&self) -> Failure {
        Failure::usage(format!(
            "no request of {} fails through {} on {}; give a smaller --capacity, or look at the peak",
            self.input.name,
            self.spec,
            Bytes(self.place.capacity())
        ))
    }
}
