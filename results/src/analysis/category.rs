//! What buffers are for: parameters, gradients, states of the optimizer, activations, workspace, keys and values.
//!
//! PyTorch's history does not say it, so it is told by these rules, the first that applies. A category is *stated* where a text of the
//! recording says it (a stack's frames, a phase's name, an operator's name), and *derived* where only times of birth and end speak.
//!
//! | rule | what it says |
//! |---|---|
//! | `sequences` | tokens of a sequence are keys and values: stated |
//! | `words` | the site's text and its stack's frames name a cache of keys and values, a workspace or a gradient: stated |
//! | `scratch` | what is freed before anything else is asked for is a workspace: derived |
//! | `marks` | where the site says nothing, the mark before speaks; of phases that are only known by sites, those of a backward, whose own requests have no text |
//! | `phase` | a text names a phase. Loading: what stays is a parameter. Optimizer: what stays is its state, the rest is workspace. Forward: activations. Backward: gradients, if the size is a parameter's, or else activations (of what flows back): stated |
//! | `before` | what was there before a recording began, and stays, is unknown |
//! | `loaded` | what stays to the end, and is born before the first buffer that lives through [`LONG`] others and is freed, is a parameter: derived |
//! | `falling` | born where more long-lived buffers end than begin ([`LONG`] births around it): what is freed and has a parameter's size is a gradient: derived |
//! | `second` | what stays, is born later, and has the size of a parameter, is a state of the optimizer (or a gradient that is zeroed in place): derived |
//! | `long` | what lives through [`SHORT`] births of others and is freed is an activation: derived |
//! | `short` | what lives shorter is a workspace: derived |
//! | `unknown` | the rest: what stays and has no parameter's size |
//!
//! Source of the words: file and function names of PyTorch 2.0 to 2.15 (`torch/optim`, `torch/csrc/autograd`, `aten/src/ATen/cuda/CUDABlas.cpp`,
//! `getNewWorkspace`), transformers (`cache_utils.py`), and the names that this project's workloads give.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::lives::{Life, Lives, NEVER};
use crate::job::Input;

/// A buffer that lives through so many births of others is long-lived.
pub const LONG: usize = 64;
/// A buffer that lives through fewer births of others is a workspace.
pub const SHORT: usize = 8;
/// Smaller sizes are too common to be told a parameter's by.
const TELLING_SIZE: u64 = 1024;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Category {
    Parameters,
    Gradients,
    Optimizer,
    Activations,
    Workspace,
    KvCache,
    Unknown,
}

/// All of them, in the order in which they are shown.
pub const CATEGORIES: [Category; 7] = [
    Category::Parameters,
    Category::Gradients,
    Category::Optimizer,
    Category::Activations,
    Category::Workspace,
    Category::KvCache,
    Category::Unknown,
];

impl Category {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::Optimizer => "optimizer",
            Self::Activations => "activations",
            Self::Workspace => "workspace",
            Self::KvCache => "keys and values",
            Self::Unknown => "unknown",
        }
    }
}

/// A category, and whether the recording states it or only lifetimes speak for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Which.
    pub category: Category,
    /// A text of the recording says so.
    pub stated: bool,
}

/// A part of a step that a text names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Load,
    Forward,
    Backward,
    Optimizer,
}

/// What a text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Is(Category),
    In(Phase),
    Nothing,
}

/// Parts of texts in lower case, and what they say. Of a stack the innermost frame that says anything counts, of its words the first here.
const WORDS: &[(&str, Says)] = &[
    ("kv_cache", Says::Is(Category::KvCache)),
    ("kvcache", Says::Is(Category::KvCache)),
    ("kv cache", Says::Is(Category::KvCache)),
    ("cache_utils", Says::Is(Category::KvCache)),
    ("past_key", Says::Is(Category::KvCache)),
    ("key_cache", Says::Is(Category::KvCache)),
    ("workspace", Says::Is(Category::Workspace)),
    ("accumulategrad", Says::Is(Category::Gradients)),
    ("/optim/", Says::In(Phase::Optimizer)),
    ("optimizer", Says::In(Phase::Optimizer)),
    ("adamw", Says::In(Phase::Optimizer)),
    ("exp_avg", Says::In(Phase::Optimizer)),
    ("autograd::engine", Says::In(Phase::Backward)),
    ("backward", Says::In(Phase::Backward)),
    ("load_state_dict", Says::In(Phase::Load)),
    ("from_pretrained", Says::In(Phase::Load)),
    ("to device", Says::In(Phase::Load)),
    ("module.py cuda", Says::In(Phase::Load)),
    ("module.py to", Says::In(Phase::Load)),
    ("module.py _apply", Says::In(Phase::Load)),
    ("modeling_utils.py cuda", Says::In(Phase::Load)),
    ("modeling_utils.py to", Says::In(Phase::Load)),
    ("forward", Says::In(Phase::Forward)),
    ("prefill", Says::In(Phase::Forward)),
    ("decode", Says::In(Phase::Forward)),
];

/// The category of each buffer of a run.
#[derive(Debug, Default)]
pub struct Categories(Vec<Told>);

impl Categories {
    /// Tells them, by the rules of this module.
    pub fn of(lives: &Lives, input: &Input<'_>) -> Self {
        let said = Said::of(lives, input);
        let births = Births::of(lives, &said);
        let told = |(at, life): (usize, &Life)| match tell(at, life, &said, &births) {
            Told { stated: false, .. } if at < input.live_at_start && life.death == NEVER => {
                Told { category: Category::Unknown, stated: false }
            }
            told => told,
        };
        Self(lives.list.iter().enumerate().map(told).collect())
    }

    /// Of the n-th life.
    pub fn get(&self, at: usize) -> Told {
        self.0.get(at).copied().unwrap_or(Told { category: Category::Unknown, stated: false })
    }
}

fn tell(at: usize, life: &Life, said: &Said, births: &Births) -> Told {
    let stated = |category| Told { category, stated: true };
    let derived = |category| Told { category, stated: false };
    if life.sequence {
        return stated(Category::KvCache);
    }
    let stays = life.death == NEVER;
    let says = said.get(life);
    if let Says::Is(category) = says {
        return stated(category);
    }
    if !stays && births.through[at] == 0 {
        return derived(Category::Workspace);
    }
    let parameter = life.size >= TELLING_SIZE && births.parameters.contains(&life.size);
    match says {
        Says::In(Phase::Load) if stays => return stated(Category::Parameters),
        Says::In(Phase::Optimizer) => {
            return stated(if stays { Category::Optimizer } else { Category::Workspace });
        }
        Says::In(Phase::Forward) => return stated(Category::Activations),
        Says::In(Phase::Backward) => {
            return stated(if parameter { Category::Gradients } else { Category::Activations });
        }
        _ => {}
    }
    if stays && life.birth < births.loaded {
        return derived(Category::Parameters);
    }
    if !stays && parameter && births.falling(at) && births.through[at] as usize >= SHORT {
        return derived(Category::Gradients);
    }
    match (stays, births.through[at] as usize) {
        (true, _) if parameter => derived(Category::Optimizer),
        (true, _) => derived(Category::Unknown),
        (false, through) if through >= SHORT => derived(Category::Activations),
        (false, _) => derived(Category::Workspace),
    }
}

/// What the texts say, by stack or, where an input has no stacks, by site.
struct Said {
    by_stack: bool,
    list: FxHashMap<u32, Says>,
    /// Of each phase, if it may speak for its requests (rule `marks`).
    phases: Vec<(u64, Says)>,
}

impl Said {
    fn of(lives: &Lives, input: &Input<'_>) -> Self {
        let phase = |phase: &super::lives::Phase| match what(std::slice::from_ref(&phase.name)) {
            Says::In(Phase::Backward) => (phase.op, Says::In(Phase::Backward)),
            says if lives.marked => (phase.op, says),
            _ => (phase.op, Says::Nothing),
        };
        let phases = lives.phases.iter().map(phase).collect();
        let mut said =
            Self { by_stack: input.frames.is_some(), list: FxHashMap::default(), phases };
        for life in lives.list.iter().filter(|life| !life.sequence) {
            let number = said.number(life);
            said.list.entry(number).or_insert_with(|| {
                let frames = input.frames.as_ref().map(|frames| frames(life.stack));
                match frames.filter(|frames| !frames.is_empty()) {
                    Some(frames) => what(&frames),
                    None => what(&[lives.site(life).to_owned()]),
                }
            });
        }
        said
    }

    const fn number(&self, life: &Life) -> u32 {
        if self.by_stack { life.stack } else { life.site }
    }

    fn get(&self, life: &Life) -> Says {
        match self.list.get(&self.number(life)) {
            Some(Says::Nothing) | None => {
                let next = self.phases.partition_point(|(op, _)| *op <= life.birth);
                next.checked_sub(1).map_or(Says::Nothing, |at| self.phases[at].1)
            }
            Some(says) => *says,
        }
    }
}

/// What the first text says that says anything.
fn what(texts: &[String]) -> Says {
    let one = |text: &String| {
        let text = text.to_ascii_lowercase();
        WORDS.iter().find(|(word, _)| text.contains(word)).map(|(_, says)| *says)
    };
    texts.iter().find_map(one).unwrap_or(Says::Nothing)
}

/// What the order of births and ends tells.
struct Births {
    /// Births of others while each lives.
    through: Vec<u32>,
    /// Long-lived births, less long-lived ends, up to each birth.
    long: Vec<i32>,
    /// The birth of the first long-lived buffer that is freed.
    loaded: u64,
    /// Sizes of parameters.
    parameters: FxHashSet<u64>,
}

impl Births {
    fn of(lives: &Lives, said: &Said) -> Self {
        let list = &lives.list;
        let born_before = |op: u64| list.partition_point(|life| life.birth < op);
        let through: Vec<u32> = list
            .iter()
            .enumerate()
            .map(|(at, life)| (born_before(life.death) - at - 1).min(u32::MAX as usize) as u32)
            .collect();
        let long = |at: usize| list[at].death != NEVER && through[at] as usize >= LONG;
        let loaded = (0..list.len()).find(|&at| long(at)).map_or(u64::MAX, |at| list[at].birth);
        let mut change = vec![0_i32; list.len() + 1];
        for at in (0..list.len()).filter(|&at| long(at)) {
            change[at] += 1;
            change[born_before(list[at].death)] -= 1;
        }
        let mut now = 0;
        let long = change.iter().map(|by| {
            now += by;
            now
        });
        let is_parameter = |life: &&Life| {
            life.death == NEVER
                && match said.get(life) {
                    Says::In(Phase::Load) => true,
                    Says::Nothing => life.birth < loaded,
                    _ => false,
                }
        };
        let parameters = list.iter().filter(is_parameter).map(|life| life.size).collect();
        Self { long: long.collect(), through, loaded, parameters }
    }

    /// Do more long-lived buffers end than begin around this birth?
    fn falling(&self, at: usize) -> bool {
        let (from, to) = (at.saturating_sub(LONG), (at + LONG).min(self.long.len() - 1));
        self.long[to] < self.long[from]
    }
}

#[cfg(test)]
mod tests {
    use super::super::lives::tests::input;
    use super::*;

    fn alloc(id: usize, size: u64, site: &str) -> String {
        format!(r#"{{"op":"alloc","id":{id},"size":{size},"site":"{site}"}}"#)
    }

    fn free(id: usize) -> String {
        format!(r#"{{"op":"free","id":{id}}}"#)
    }

    /// Two steps of a training with these texts: 20 weights, 100 activations, gradients that come while activations go, states in the first step.
    fn training(texts: [&str; 4]) -> Vec<String> {
        let [load, forward, backward, optimizer] = texts;
        let weight = |n: usize| 4096 * (n as u64 + 1);
        let mut lines: Vec<String> = (0..20).map(|n| alloc(n, weight(n), load)).collect();
        for step in 0..2 {
            lines.extend((0..100).map(|n| alloc(100 + n, 1_000_000 + n as u64, forward)));
            for n in 0..100 {
                if n % 5 == 0 {
                    lines.push(alloc(200 + n / 5, weight(n / 5), backward));
                }
                lines.push(free(199 - n));
            }
            if step == 0 {
                lines.extend((0..20).map(|n| alloc(300 + n, weight(n), optimizer)));
            }
            lines.extend((0..20).map(|n| free(200 + n)));
        }
        lines
    }

    fn told(lines: &[String]) -> Vec<(Category, bool)> {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let input = input(&lines);
        let lives = Lives::read(&input).expect("reads");
        let categories = Categories::of(&lives, &input);
        (0..lives.list.len()).map(|at| categories.get(at)).map(|t| (t.category, t.stated)).collect()
    }

    fn expect(told: &[(Category, bool)], stated: bool) {
        let step = |from: usize| from..from + 1;
        for (at, want) in [
            (0..20, Category::Parameters),
            (20..110, Category::Activations), // the last ones live too short to be told
            (120..140, Category::Gradients),
            (140..160, Category::Optimizer),
            (step(160), Category::Activations),
        ] {
            for one in &told[at.clone()] {
                assert_eq!(*one, (want, stated), "{at:?}");
            }
        }
    }

    #[test]
    fn texts_state_what_a_buffer_is_for() {
        let texts = ["model to device", "step forward", "step backward", "AdamW.step"];
        expect(&told(&training(texts)), true);
    }

    #[test]
    fn without_texts_lifetimes_tell_it() {
        expect(&told(&training([""; 4])), false);
    }

    #[test]
    fn what_is_freed_before_anything_else_is_asked_for_is_a_workspace() {
        let lines = [alloc(1, 8_519_680, ""), free(1), alloc(2, 10, "kv_cache"), alloc(3, 5, "")];
        let told = told(&lines);
        assert_eq!(told[0], (Category::Workspace, false));
        assert_eq!(told[1], (Category::KvCache, true));
    }
}
