//! Which policy, by what the recent works look like.
//!
//! | rule | what it says |
//! |---|---|
//! | `window` | every `window` announced works it is judged anew |
//! | `training` | buffers that lived for a window or longer are written (weights and optimizer state), or what was made earlier is used again in reverse order (saved for the backward pass): the loop is predicted by `markov`, and what was used longest ago leaves |
//! | `inference` | such buffers are only read, for two windows from the start, or for eight after training: the turns of the loop are predicted by `stride`, and of what is not foreseen what was used last leaves, since in a loop that is used again last |
//! | `unknown` | until one of them is seen nothing is foretold: what was used longest ago leaves |

use super::foresight::{Foresight, Used};
use super::markov::Markov;
use super::plan::{Plan, Predictor};
use super::stride::Stride;

/// Windows without a sign of training after which it is over, or was none.
const PATIENCE: u32 = 8;
const PATIENCE_FIRST: u32 = 2;
/// Uses in reverse order that are a sign of training, if they are two thirds of such uses.
const REVERSE_MIN: u32 = 16;

/// What the works look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Unknown,
    Training,
    Inference,
}

/// Both predictors; the mode says who foretells.
pub(super) struct Either {
    mode: Mode,
    markov: Markov,
    stride: Stride,
}

impl Predictor for Either {
    fn see(&mut self, token: u32, kind: u32) {
        self.markov.see(token, kind);
        self.stride.see(token, kind);
    }

    fn rewind(&mut self) {
        self.markov.rewind();
        self.stride.rewind();
    }

    fn foretell(&mut self) -> Option<u32> {
        match self.mode {
            Mode::Unknown => None,
            Mode::Training => self.markov.foretell(),
            Mode::Inference => self.stride.foretell(),
        }
    }

    fn reach(&self) -> (u32, u64) {
        self.markov.reach()
    }

    fn recent_first(&self) -> bool {
        self.mode == Mode::Inference
    }
}

/// A buffer, as far as it matters here.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    live: bool,
    born: u64,
    ordinal: u64,
    used: bool,
}

/// Signs seen in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    old_reads: u32,
    old_writes: u32,
    forward: u32,
    reverse: u32,
}

/// The judge, and the plan.
pub(super) struct Adaptive {
    plan: Plan<Either>,
    window: u64,
    work: u64,
    lives: Vec<Life>,
    signs: Signs,
    /// Ordinal of the last buffer that was used a second time.
    last_again: u64,
    quiet: u32,
    switches: u64,
    works: [u64; 3],
}

impl Adaptive {
    pub(super) fn new(window: u64) -> Self {
        let either = Either { mode: Mode::default(), markov: Markov::new(), stride: Stride::new() };
        Self {
            plan: Plan::new(either),
            window,
            work: 0,
            lives: Vec::new(),
            signs: Signs::default(),
            last_again: 0,
            quiet: 0,
            switches: 0,
            works: [0; 3],
        }
    }

    fn look(&mut self, used: &Used) {
        let life = &mut self.lives[used.slot as usize];
        let age = self.work - life.born;
        if age >= self.window {
            *(if used.write { &mut self.signs.old_writes } else { &mut self.signs.old_reads }) += 1;
        } else if std::mem::replace(&mut life.used, true) && !used.write && age > 8 {
            let earlier = life.ordinal < self.last_again;
            *(if earlier { &mut self.signs.reverse } else { &mut self.signs.forward }) += 1;
            self.last_again = life.ordinal;
        }
    }

    fn judge(&mut self) {
        let Signs { old_reads, old_writes, forward, reverse } = std::mem::take(&mut self.signs);
        let reversed = reverse >= REVERSE_MIN && reverse >= 2 * forward;
        let training = old_writes > 0 || reversed;
        self.quiet = if training { 0 } else { self.quiet + 1 };
        let mode = match self.plan.predictor.mode {
            _ if training => Mode::Training,
            Mode::Training if self.quiet < PATIENCE => Mode::Training,
            _ if old_reads > 0 && self.quiet >= PATIENCE_FIRST => Mode::Inference,
            mode => mode,
        };
        if mode != self.plan.predictor.mode {
            self.plan.predictor.mode = mode;
            self.plan.discard();
            self.switches += 1;
            // the order of what is not foreseen may be another one now
            let live = (0..self.lives.len() as u32).filter(|at| self.lives[*at as usize].live);
            self.plan.touch_all(live);
        }
    }
}

impl Foresight for Adaptive {
    fn born(&mut self, slot: u32, ordinal: u64, size: u64) {
        if self.lives.len() <= slot as usize {
            self.lives.resize(slot as usize + 1, Life::default());
        }
        self.lives[slot as usize] = Life { live: true, born: self.work, ordinal, used: false };
        self.plan.born(slot, ordinal, size);
    }

    fn gone(&mut self, slot: u32) {
        self.lives[slot as usize].live = false;
        self.plan.gone(slot);
    }

    fn announced(&mut self, uses: &[Used]) {
        uses.iter().for_each(|used| self.look(used));
        self.work += 1;
        self.works[self.plan.predictor.mode as usize] += 1;
        self.plan.announced(uses);
        if self.work.is_multiple_of(self.window) {
            self.judge();
        }
    }

    fn next_use(&self, slot: u32) -> Option<u64> {
        self.plan.next_use(slot)
    }

    fn changed(&mut self) -> Vec<u32> {
        self.plan.changed()
    }

    fn coming(&self, lead: u64, found: &mut Vec<(u64, u32)>) {
        self.plan.coming(lead, found);
    }

    fn recent_first(&self) -> bool {
        self.plan.recent_first()
    }

    fn counters(&mut self, counters: &mut Vec<(&'static str, u64)>) {
        self.plan.counters(counters);
        let [unknown, training, inference] = self.works;
        counters.extend([
            ("policy_switches", self.switches),
            ("works_unknown", unknown),
            ("works_training", training),
            ("works_inference", inference),
        ]);
    }
}
