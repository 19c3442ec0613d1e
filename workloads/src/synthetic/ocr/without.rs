//! Convolutions' workspaces that were refused: the same convolution does not ask again.
//!
//! PyTorch keeps, for each shape of a convolution, the algorithm that ran last (`aten/src/ATen/native/cudnn/Conv_v7.cpp`, `AlgoIterator::try_all`, PyTorch 2.x): where
//! a workspace was refused, the shape is computed without one from then on. So a recorded service under pressure is refused a workspace once for each shape, not
//! once for each page. Here a convolution is known by its place in the program of a page size; one that has the same shape at another place asks for itself.

use rustc_hash::FxHashSet;
use vramlab_sim::op::BufferUse;
use vramlab_sim::units::BufferId;

use super::networks::Which;

/// A request in a program: the network, its shape, and the place behind it.
type Place = (Which, u64, usize);

/// Which workspaces are done without.
#[derive(Default)]
pub(super) struct Without {
    program: Option<(Which, u64)>,
    refused: FxHashSet<Place>,
    /// Not asked for, and named by the ops to come.
    missing: Vec<BufferId>,
    /// What the last work uses, if something is missing.
    uses: Vec<BufferUse>,
    filtered: bool,
}

impl Without {
    /// The program of this network and shape begins.
    pub(super) fn begin(&mut self, which: Which, key: u64) {
        self.program = Some((which, key));
        self.missing.clear();
        self.filtered = false;
    }

    fn place(&self, at: usize) -> Option<Place> {
        self.program.map(|(which, key)| (which, key, at))
    }

    /// The workspace whose request is right before `at` was refused.
    pub(super) fn refused(&mut self, at: usize) {
        let place = self.place(at);
        self.refused.extend(place);
    }

    /// Is the workspace not asked for any more?
    pub(super) fn skips(&mut self, at: usize, id: BufferId) -> bool {
        let skips = self.place(at).is_some_and(|place| self.refused.contains(&place));
        if skips {
            self.missing.push(id);
        }
        skips
    }

    /// Is it the free of one that was not asked for?
    pub(super) fn freed(&mut self, id: BufferId) -> bool {
        let found = self.missing.iter().position(|missing| *missing == id);
        found.map(|at| self.missing.swap_remove(at)).is_some()
    }

    /// The next work uses these, but what is missing.
    pub(super) fn filter(&mut self, uses: &[BufferUse]) {
        self.filtered = !self.missing.is_empty();
        self.uses.clear();
        if self.filtered {
            self.uses.extend(uses.iter().filter(|used| !self.missing.contains(&used.id)));
        }
    }

    /// What the last work uses, if that is not all that its program says.
    pub(super) fn uses(&self) -> Option<&[BufferUse]> {
        self.filtered.then_some(&*self.uses)
    }
}
