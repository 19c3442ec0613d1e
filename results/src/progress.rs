//! A progress bar on standard error, only where that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Steps done of steps in all.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// For `steps` steps; invisible if `quiet` or where nobody looks.
    pub fn new(steps: u64, quiet: bool) -> Self {
        let visible = !quiet && std::io::stderr().is_terminal();
        Self(visible.then(|| {
            let style =
                ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} (left: {eta})");
            let bar = ProgressBar::new(steps);
            style.map(|s| bar.set_style(s)).ok();
            bar
        }))
    }

    /// One step more.
    pub fn step(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }

    /// So many steps are done already.
    pub fn skip(&self, steps: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(steps);
            bar.reset_eta();
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
