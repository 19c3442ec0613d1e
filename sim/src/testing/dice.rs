//! Numbers from a fixed seed.

/// Numbers of a linear congruential generator, for tests and benchmarks: the same on every computer, for ever.
///
/// ```
/// use vramlab_sim::testing::Dice;
///
/// let mut dice = Dice::new(1);
/// assert_eq!([100, 100, 100].map(|bound| dice.below(bound)), [74, 53, 96]);
/// ```
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
    step: u64,
}

impl Dice {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed, step: 1_442_695_040_888_963_407 }
    }

    /// Of the same seed, other numbers: those of the generator whose step is 1.
    pub const fn of_step_1(seed: u64) -> Self {
        Self { state: seed, step: 1 }
    }

    /// The next 64 bits; the low ones are not random.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(self.step);
        self.state
    }

    /// A number from 0 to below `bound`, which is at most 2^31.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        (self.bits() >> 33) % bound
    }

    /// Sizes from 1 B to 16 MiB, every power of two as likely as the others.
    pub const fn size(&mut self) -> u64 {
        let top = 1 << self.below(25);
        top / 2 + 1 + self.below(top)
    }
}
