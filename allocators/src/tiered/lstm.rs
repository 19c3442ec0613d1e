//! `predictor=lstm`: a small recurrent network over the last 100 tokens, which learns as it goes.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `classes` | requests, ends of works and the first 125 distances that appear for the third time have a class each, all others one together; a class is what goes in and what is predicted | Hashemi et al. (ICML 2018) 4.1, the most frequent deltas as vocabulary |
//! | `cell` | an embedding of 16 numbers, one layer of 24 cells with input, forget, output gate and candidate, and a layer of one score a class | Hochreiter, Schmidhuber (1997); Gers et al. (2000), forget gate |
//! | `learns` | every 20 tokens, by the error of each of the last 100, back through all of them; steps by Adam, rate 0.02, errors clipped at 1 | Werbos (1990); Kingma, Ba (2015) |
//! | `unsure` | the class with the highest score is foretold; nothing if that is the common one | - |
//!
//! Only sums, products, quotients and square roots of `f32` in a fixed order, and a seeded start: the same on every machine. So the exponential
//! is a polynomial here, and the squashing functions are made of it.

use super::plan::{END, Predictor};

/// Classes, inputs, cells.
const CLASSES: usize = 128;
const INPUTS: usize = 16;
const CELLS: usize = 24;
/// Tokens that are learned from, and between lessons.
const WINDOW: usize = 100;
const LESSON_EVERY: usize = 20;
/// The class of all tokens without one of their own.
const OTHER: usize = 2;
/// Appearances from which on a distance has a class, and places for those that have none.
const FREQUENT: u8 = 3;
const RARE: usize = 1 << 12;
/// Numbers that go into a gate: inputs, cells, 1.
const GATE_IN: usize = INPUTS + CELLS + 1;
const GATES: usize = 4 * CELLS;
/// Tokens foretold for each work, and works that the list may reach ahead.
const REACH: (u32, u64) = (96, 64);

/// Where each layer's weights begin in [`Lstm::weights`].
const EMBED: usize = 0;
const GATE: usize = EMBED + CLASSES * INPUTS;
const SCORE: usize = GATE + GATES * GATE_IN;
const WEIGHTS: usize = SCORE + CLASSES * (CELLS + 1);

/// e^x for |x| up to 60 or so: 2^n times a polynomial.
fn exp(x: f32) -> f32 {
    let x = x.clamp(-60.0, 60.0) * std::f32::consts::LOG2_E;
    let whole = (x + 128.5) as i32 - 128;
    let part = (x - whole as f32) * std::f32::consts::LN_2;
    let series = 1.0 + part * (1.0 + part * (0.5 + part * (0.166_666_67 + part * 0.041_666_67)));
    series * f32::from_bits(((127 + whole) as u32) << 23)
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

fn tanh(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

/// Adds `factor` times `of` to `to`, number by number.
fn add(to: &mut [f32], factor: f32, of: &[f32]) {
    to.iter_mut().zip(of).for_each(|(to, of)| *to += factor * of);
}

/// What the cells remember.
#[derive(Clone, Debug)]
struct Memory {
    output: [f32; CELLS],
    cell: [f32; CELLS],
}

const EMPTY: Memory = Memory { output: [0.0; CELLS], cell: [0.0; CELLS] };

/// One step, as the lesson needs it.
#[derive(Clone, Debug)]
struct Step {
    class: usize,
    inputs: [f32; GATE_IN],
    /// Input gate, forget gate, output gate, candidate.
    gates: [f32; GATES],
    before: [f32; CELLS],
    after: Memory,
}

/// The network.
pub(super) struct Lstm {
    weights: Vec<f32>,
    /// Adam's averages of errors and of their squares.
    mean: Vec<f32>,
    square: Vec<f32>,
    lessons: i32,
    slopes: Vec<f32>,
    /// Distances with a class of their own, from class `OTHER + 1` on.
    distances: Vec<u32>,
    /// How often others appeared, by the lower digits of the distance; the newest has the place.
    rare: Vec<(u32, u8)>,
    /// The last tokens' classes, and the memory before the first of them.
    window: Vec<usize>,
    window_begins: Memory,
    seen: Memory,
    cursor: Memory,
    since: usize,
}

impl Lstm {
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed ^ 0x9E37_79B9_7F4A_7C15;
        let mut draw = move || {
            // SplitMix64
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut weights: Vec<f32> = (0..WEIGHTS).map(|_| draw() * 0.15).collect();
        for cell in 0..CELLS {
            // forgetting begins late
            weights[GATE + (CELLS + cell) * GATE_IN + GATE_IN - 1] = 1.0;
        }
        Self {
            weights,
            mean: vec![0.0; WEIGHTS],
            square: vec![0.0; WEIGHTS],
            lessons: 0,
            slopes: vec![0.0; WEIGHTS],
            distances: Vec::new(),
            rare: vec![(0, 0); RARE],
            window: Vec::new(),
            window_begins: EMPTY,
            seen: EMPTY,
            cursor: EMPTY,
            since: 0,
        }
    }

    fn class(&mut self, token: u32) -> usize {
        if token <= END {
            return token as usize;
        }
        if let Some(at) = self.distances.iter().position(|known| *known == token) {
            return OTHER + 1 + at;
        }
        let (rare, count) = &mut self.rare[token as usize % RARE];
        *count = if *rare == token { count.saturating_add(1) } else { 1 };
        *rare = token;
        if *count == FREQUENT && self.distances.len() < CLASSES - OTHER - 1 {
            self.distances.push(token);
            return OTHER + self.distances.len();
        }
        OTHER
    }

    fn token(&self, class: usize) -> Option<u32> {
        match class {
            OTHER => None,
            class if class < OTHER => Some(class as u32),
            class => self.distances.get(class - OTHER - 1).copied(),
        }
    }

    /// One step with a class: what the cells remember after it.
    fn step(&self, class: usize, memory: &Memory) -> Step {
        let mut inputs = [1.0; GATE_IN];
        inputs[..INPUTS].copy_from_slice(&self.weights[EMBED + class * INPUTS..][..INPUTS]);
        inputs[INPUTS..INPUTS + CELLS].copy_from_slice(&memory.output);
        let mut gates = [0.0; GATES];
        for (gate, row) in gates.iter_mut().zip(self.weights[GATE..].chunks_exact(GATE_IN)) {
            *gate = row.iter().zip(&inputs).map(|(weight, input)| weight * input).sum();
        }
        for (at, gate) in gates.iter_mut().enumerate() {
            *gate = if at < 3 * CELLS { sigmoid(*gate) } else { tanh(*gate) };
        }
        let mut after = EMPTY;
        for cell in 0..CELLS {
            let [input, forget, output, candidate] =
                [0, 1, 2, 3].map(|gate| gates[gate * CELLS + cell]);
            after.cell[cell] = forget * memory.cell[cell] + input * candidate;
            after.output[cell] = output * tanh(after.cell[cell]);
        }
        Step { class, inputs, gates, before: memory.cell, after }
    }

    fn scores(&self, output: &[f32; CELLS]) -> [f32; CLASSES] {
        let mut scores = [0.0; CLASSES];
        for (score, row) in scores.iter_mut().zip(self.weights[SCORE..].chunks_exact(CELLS + 1)) {
            let sum: f32 = row.iter().zip(output).map(|(weight, value)| weight * value).sum();
            *score = sum + row[CELLS];
        }
        scores
    }

    /// Learns from the window (rule `learns`).
    fn lesson(&mut self) {
        self.slopes.fill(0.0);
        let mut steps: Vec<Step> = Vec::with_capacity(WINDOW);
        for class in &self.window[..self.window.len() - 1] {
            let memory = steps.last().map_or(&self.window_begins, |step: &Step| &step.after);
            let step = self.step(*class, memory);
            steps.push(step);
        }
        let (mut to_output, mut to_cell) = ([0.0; CELLS], [0.0; CELLS]);
        for (at, step) in steps.iter().enumerate().rev() {
            self.score_slopes(step, self.window[at + 1], &mut to_output);
            self.gate_slopes(step, &mut to_output, &mut to_cell);
        }
        self.lessons += 1;
        self.adam();
    }

    /// The error of a prediction, and what it says of the scores' weights and of the cells' outputs.
    fn score_slopes(&mut self, step: &Step, want: usize, to_output: &mut [f32; CELLS]) {
        let mut shares = self.scores(&step.after.output);
        let most = shares.iter().fold(f32::MIN, |a, b| a.max(*b));
        shares.iter_mut().for_each(|share| *share = exp(*share - most));
        let sum: f32 = shares.iter().sum();
        for (class, share) in shares.iter().enumerate() {
            let error = (share / sum - f32::from(u8::from(class == want))) / WINDOW as f32;
            let row = SCORE + class * (CELLS + 1);
            add(&mut self.slopes[row..row + CELLS], error, &step.after.output);
            add(to_output, error, &self.weights[row..row + CELLS]);
            self.slopes[row + CELLS] += error;
        }
    }

    /// What that says of the gates' weights, and of the step before.
    fn gate_slopes(
        &mut self,
        step: &Step,
        to_output: &mut [f32; CELLS],
        to_cell: &mut [f32; CELLS],
    ) {
        let mut to_inputs = [0.0; GATE_IN];
        for cell in 0..CELLS {
            let [input, forget, output, candidate] =
                [0, 1, 2, 3].map(|gate| step.gates[gate * CELLS + cell]);
            let bent = tanh(step.after.cell[cell]);
            let cell_slope = to_cell[cell] + to_output[cell] * output * (1.0 - bent * bent);
            let slopes = [
                cell_slope * candidate * input * (1.0 - input),
                cell_slope * step.before[cell] * forget * (1.0 - forget),
                to_output[cell] * bent * output * (1.0 - output),
                cell_slope * input * (1.0 - candidate * candidate),
            ];
            to_cell[cell] = cell_slope * forget;
            for (gate, slope) in slopes.into_iter().enumerate() {
                let slope = slope.clamp(-1.0, 1.0);
                let row = GATE + (gate * CELLS + cell) * GATE_IN;
                add(&mut self.slopes[row..row + GATE_IN], slope, &step.inputs);
                add(&mut to_inputs, slope, &self.weights[row..row + GATE_IN]);
            }
        }
        let row = EMBED + step.class * INPUTS;
        add(&mut self.slopes[row..row + INPUTS], 1.0, &to_inputs);
        to_output.copy_from_slice(&to_inputs[INPUTS..INPUTS + CELLS]);
    }

    fn adam(&mut self) {
        const RATE: f32 = 0.02;
        const KEEP_MEAN: f32 = 0.9;
        const KEEP_SQUARE: f32 = 0.999;
        // 1 - keep^lessons, by squaring
        let power = |base: f32, times: i32| {
            let (mut result, mut base, mut times) = (1.0, base, times);
            while times > 0 {
                if times % 2 == 1 {
                    result *= base;
                }
                base *= base;
                times /= 2;
            }
            result
        };
        let mean_bias = 1.0 - power(KEEP_MEAN, self.lessons);
        let square_bias = 1.0 - power(KEEP_SQUARE, self.lessons);
        let averages = self.mean.iter_mut().zip(&mut self.square);
        let weights = self.weights.iter_mut().zip(&self.slopes);
        for ((weight, slope), (mean, square)) in weights.zip(averages) {
            *mean = KEEP_MEAN * *mean + (1.0 - KEEP_MEAN) * slope;
            *square = KEEP_SQUARE * *square + (1.0 - KEEP_SQUARE) * slope * slope;
            *weight -= RATE * (*mean / mean_bias) / ((*square / square_bias).sqrt() + 1e-8);
        }
    }
}

impl Predictor for Lstm {
    fn see(&mut self, token: u32, _kind: u32) {
        let class = self.class(token);
        self.seen = self.step(class, &self.seen).after;
        self.window.push(class);
        self.since += 1;
        if self.window.len() > WINDOW {
            let first = self.window.remove(0);
            self.window_begins = self.step(first, &self.window_begins).after;
        }
        if self.since >= LESSON_EVERY && self.window.len() == WINDOW {
            self.since = 0;
            self.lesson();
        }
    }

    fn rewind(&mut self) {
        self.cursor = self.seen.clone();
    }

    fn foretell(&mut self) -> Option<u32> {
        let scores = self.scores(&self.cursor.output);
        let (mut class, mut most) = (OTHER, f32::MIN);
        for (at, score) in scores.iter().enumerate() {
            if *score > most {
                (class, most) = (at, *score);
            }
        }
        let token = self.token(class)?;
        self.cursor = self.step(class, &self.cursor).after;
        Some(token)
    }

    fn reach(&self) -> (u32, u64) {
        REACH
    }

    fn counters(&mut self, counters: &mut Vec<(&'static str, u64)>) {
        counters.push(("lstm_lessons", self.lessons.unsigned_abs().into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_squashing_functions_are_near_the_real_ones() {
        for step in -1000_i16..=1000 {
            let x = f32::from(step) / 20.0;
            assert!((tanh(x) - x.tanh()).abs() < 2e-3, "{x}");
            assert!((exp(x) / x.exp() - 1.0).abs() < 2e-3, "{x}");
        }
    }

    /// The slopes of a short window, against differences of the error itself.
    #[test]
    fn slopes_are_those_of_the_error() {
        let mut net = Lstm::new(3);
        let window = vec![0, 5, 1, 5, 7, 1, 0, 2];
        let error = |net: &Lstm| -> f64 {
            let (mut memory, mut sum) = (EMPTY, 0.0);
            for pair in window.windows(2) {
                memory = net.step(pair[0], &memory).after;
                let scores = net.scores(&memory.output);
                let most = scores.iter().fold(f32::MIN, |a, b| a.max(*b));
                let total: f64 = scores.iter().map(|s| f64::from(s - most).exp()).sum();
                sum += total.ln() - f64::from(scores[pair[1]] - most);
            }
            sum / WINDOW as f64
        };
        net.window.clone_from(&window);
        let mut taught = Lstm::new(3);
        taught.window.clone_from(&window);
        taught.lesson();
        for at in [EMBED + 5 * INPUTS, GATE + 3, GATE + 40 * GATE_IN + 20, SCORE + 5 * (CELLS + 1)]
        {
            let (h, kept) = (1e-2, net.weights[at]);
            net.weights[at] = kept + h;
            let above = error(&net);
            net.weights[at] = kept - h;
            let below = error(&net);
            net.weights[at] = kept;
            let slope = (above - below) / (2.0 * f64::from(h));
            let found = f64::from(taught.slopes[at]);
            assert!((slope - found).abs() < 1e-5 + 0.05 * slope.abs(), "{at}: {slope} {found}");
        }
    }

    #[test]
    fn a_short_loop_is_learned() {
        let turn = [5, 9, 1, 7, 1, 0];
        let mut net = Lstm::new(1);
        (0..1500).for_each(|_| turn.iter().for_each(|token| net.see(*token, 0)));
        net.rewind();
        let foretold: Vec<_> = (0..12).filter_map(|_| net.foretell()).collect();
        assert_eq!(foretold, [turn, turn].concat());
    }

    #[test]
    fn a_seed_is_a_net() {
        let taught = |seed| {
            let mut net = Lstm::new(seed);
            (0..130).for_each(|i| net.see(i * i % 11, 0));
            net.weights
        };
        assert_eq!(taught(1), taught(1));
        assert_ne!(taught(1), taught(2));
    }
}
