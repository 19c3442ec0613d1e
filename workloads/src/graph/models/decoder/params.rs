//! `gpt2` and `llama`: parameters of decoders, and the steps that they ask for.
//!
//! In `phase=decode` a run goes through its prompts: each is read, then continued token by token. `interleaved` reads all prompts first and then
//! gives each a token in turn, so that several caches grow side by side.

use super::{Decoder, Style, Task};
use crate::graph::Player;
use crate::graph::models::params::{RUN, SIZE_MAX, chosen_passes, join, run};
use crate::graph::passes::{self, Chosen, PassError, Report};
use crate::graph::plan::{Plan, Run};
use crate::graph::tensor::DType;
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;

/// Most batches of a decoding run: a prompt is one, and each token after it.
const DECODE_MAX: u64 = 1 << 20;
const PHASE: ParamDoc =
    doc("phase", "train", "-", "train, inference (scores of all tokens) or decode");
const BATCH: ParamDoc = doc("batch", "8", "sequences", "sequences in a batch");
const STEPS: ParamDoc =
    doc("steps", "3", "steps", "steps of train and inference").unless("phase", &["decode"]);
const PROMPTS: ParamDoc =
    doc("prompts", "128/512", "tokens", "phase=decode: lengths of prompts, separated by /")
        .only("phase", &["decode"]);
const NEW: ParamDoc = doc("new_tokens", "32", "tokens", "phase=decode: tokens after each prompt")
    .only("phase", &["decode"]);
const INTERLEAVED: ParamDoc =
    doc("interleaved", "false", "-", "phase=decode: all prompts first, then tokens in turn")
        .only("phase", &["decode"]);
const ATTENTION: ParamDoc = doc(
    "attention",
    "sdpa",
    "-",
    "sdpa (one kernel: flash below fp32, else efficient) or eager (operator by operator)",
);
const PRECISION: &str = "fp32, fp16 or bf16 weights (mixed precision is passes=amp)";

/// Of `gpt2`: the defaults are GPT-2 small.
pub const GPT2: &[ParamDoc] = &join::<15, 11, 26>(
    [
        PHASE,
        BATCH,
        doc("seq", "1024", "tokens", "length of every sequence").unless("phase", &["decode"]),
        STEPS,
        PROMPTS,
        NEW,
        INTERLEAVED,
        doc("layers", "12", "layers", "transformer layers"),
        doc("hidden", "768", "numbers", "width of the model"),
        doc("heads", "12", "heads", "attention heads; they divide the width"),
        doc("ffn", "auto", "numbers", "inner width of the feed-forward part; auto: 4 × hidden"),
        doc(
            "vocabulary",
            "50257",
            "words",
            "words in the embedding, which is the last layer's too",
        ),
        doc("positions", "1024", "tokens", "longest sequence"),
        doc("precision", "fp32", "-", PRECISION),
        ATTENTION,
    ],
    RUN,
);

/// Of `llama`: the defaults are Llama 3.2 1B.
pub const LLAMA: &[ParamDoc] = &join::<19, 11, 30>(
    [
        PHASE,
        BATCH,
        doc("seq", "1024", "tokens", "length of every sequence").unless("phase", &["decode"]),
        STEPS,
        PROMPTS,
        NEW,
        INTERLEAVED,
        doc("layers", "16", "layers", "transformer layers"),
        doc("hidden", "2048", "numbers", "width of the model"),
        doc("heads", "32", "heads", "attention heads; they divide the width"),
        doc("kv_heads", "8", "heads", "heads of keys and values; they divide the heads"),
        doc("ffn", "8192", "numbers", "inner width of the feed-forward part, or of an expert"),
        doc("experts", "0", "experts", "experts in each layer; 0: one feed-forward part"),
        doc("active", "2", "experts", "experts that each token takes").unless("experts", &["0"]),
        doc("vocabulary", "128256", "words", "words in the embedding"),
        doc("tied", "true", "-", "the word embedding is the last layer's weight too"),
        doc("positions", "131072", "tokens", "longest sequence"),
        doc("precision", "bf16", "-", PRECISION),
        ATTENTION,
    ],
    RUN,
);

/// What the parameters ask for.
#[derive(Clone, Debug)]
struct Asked {
    decoder: Decoder,
    run: Run,
    passes: Vec<Chosen>,
    steps: Vec<Step>,
}

/// What a batch does, how long it is, what the mark says.
#[derive(Clone, Debug)]
struct Step {
    task: Task,
    seq: u64,
    mark: Option<String>,
}

/// Builds `gpt2`.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build_gpt2(p: &Params, _seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    Asked::read(p, Style::Gpt2)?.source(p, rates)
}

/// Builds `llama`.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build_llama(p: &Params, _seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    Asked::read(p, Style::Llama)?.source(p, rates)
}

/// The plan of `gpt2`'s first step, and what passes changed.
///
/// # Errors
/// When a parameter's value is refused.
pub fn plan_gpt2(p: &Params) -> Result<(Plan, Vec<Report>), ParamError> {
    Ok(Asked::read(p, Style::Gpt2)?.plan(0)?)
}

/// The plan of `llama`'s first step, and what passes changed.
///
/// # Errors
/// When a parameter's value is refused.
pub fn plan_llama(p: &Params) -> Result<(Plan, Vec<Report>), ParamError> {
    Ok(Asked::read(p, Style::Llama)?.plan(0)?)
}

impl Asked {
    fn read(p: &Params, style: Style) -> Result<Self, ParamError> {
        let passes = chosen_passes(p)?;
        let batch = p.count("batch", 1..=1 << 16)?;
        let parts = passes::batches(&passes, batch)?;
        let mut decoder = decoder(p, style)?;
        decoder.batch = batch / parts;
        let steps = steps(p)?;
        if let [Step { task: Task::Train | Task::Score, .. }] = steps[..] {
            decoder.caches = 0;
        } else {
            let numbers = steps.iter().map(|step| match step.task {
                Task::Prompt(number) | Task::Token(number, _) => number + 1,
                Task::Train | Task::Score => 0,
            });
            decoder.caches = numbers.max().unwrap_or(0);
        }
        let run = Run { train: steps[0].task == Task::Train, ..run(p)? };
        Ok(Self { decoder, run, passes, steps })
    }

    fn plan(&self, index: usize) -> Result<(Plan, Vec<Report>), PassError> {
        let Step { task, seq, mark } = self.steps[index % self.steps.len()].clone();
        let graph = Decoder { task, seq, ..self.decoder.clone() }.graph()?;
        let tokens = if mark.is_some() { self.steps.len() as u64 } else { 0 };
        let mut plan = Plan { graph, run: Run { mark, tokens, ..self.run.clone() } };
        let reports = passes::apply(&mut plan, &self.passes)?;
        Ok((plan, reports))
    }

    fn source(self, p: &Params, rates: &Rates) -> Result<BoxedSource, ParamError> {
        let keys = self.steps.len() as u64;
        let steps = p.count("steps", 1..=REPEATS_MAX)?;
        let count = if keys > 1 { keys } else { steps };
        // the longest ones are refused now, if at all
        if let Some(longest) = (0..self.steps.len()).max_by_key(|i| self.steps[*i].tokens()) {
            self.plan(longest)?;
        }
        let make = move |key: u64| self.plan(key as usize).map(|(plan, _)| plan);
        let keys = Box::new((0..keys).cycle());
        Ok(Box::new(Player::new(Box::new(make), keys, count, *rates)?))
    }
}

impl Step {
    fn tokens(&self) -> u64 {
        if let Task::Token(_, past) = self.task { past + 1 } else { self.seq }
    }
}

fn decoder(p: &Params, style: Style) -> Result<Decoder, ParamError> {
    let llama = style == Style::Llama;
    let hidden = p.count("hidden", 1..=SIZE_MAX)?;
    let heads = p.count("heads", 1..=1024)?;
    Ok(Decoder {
        style,
        task: Task::Train,
        batch: 1,
        seq: 1,
        layers: p.count("layers", 1..=1024)?,
        hidden,
        heads,
        kv_heads: if llama { p.count("kv_heads", 1..=heads)? } else { heads },
        ffn: match p.text("ffn") {
            "auto" => 4 * hidden,
            _ => p.count("ffn", 1..=SIZE_MAX)?,
        },
        vocabulary: p.count("vocabulary", 1..=SIZE_MAX)?,
        positions: p.count("positions", 1..=SIZE_MAX)?,
        tied: if llama { p.flag("tied")? } else { true },
        experts: if llama { p.count("experts", 0..=1024)? } else { 0 },
        active: if llama { p.count("active", 1..=1024)? } else { 0 },
        dtype: p.choice(
            "precision",
            &[("fp32", DType::F32), ("fp16", DType::F16), ("bf16", DType::BF16)],
        )?,
        eager: p.choice("attention", &[("sdpa", false), ("eager", true)])?,
        caches: 0,
    })
}

/// The batches of a run, in order; one that is repeated stands alone.
fn steps(p: &Params) -> Result<Vec<Step>, ParamError> {
    let seq = p.count("seq", 1..=SIZE_MAX)?;
    let alone = |task| Ok(vec![Step { task, seq, mark: None }]);
    let prompts = p.counts("prompts", 1..=SIZE_MAX)?;
    let new = p.count("new_tokens", 0..=SIZE_MAX)?;
    let interleaved = p.flag("interleaved")?;
    match p.choice("phase", &[("train", 0), ("inference", 1), ("decode", 2)])? {
        0 => alone(Task::Train),
        1 => alone(Task::Score),
        _ => {
            let batches = (prompts.len() as u64).saturating_mul(new + 1);
            if batches > DECODE_MAX {
                let less = format!("so few that all prompts take at most {DECODE_MAX} batches");
                return Err(p.bad("new_tokens", &less));
            }
            Ok(decoding(&prompts, new, interleaved))
        }
    }
}

fn decoding(prompts: &[u64], new: u64, interleaved: bool) -> Vec<Step> {
    let prompt = |i: usize, cache: u32| {
        let label = format!("prompt {i} prefill {}", prompts[i]);
        Step { task: Task::Prompt(cache), seq: prompts[i], mark: Some(label) }
    };
    let token = |i: usize, cache: u32, n: u64| {
        let label = if interleaved { format!("round {n}") } else { format!("prompt {i} decode") };
        Step { task: Task::Token(cache, prompts[i] + n), seq: 1, mark: Some(label) }
    };
    let mut steps = Vec::new();
    if interleaved {
        steps.extend((0..prompts.len()).map(|i| prompt(i, i as u32)));
        for n in 0..new {
            steps.extend((0..prompts.len()).map(|i| token(i, i as u32, n)));
        }
    } else {
        for i in 0..prompts.len() {
            steps.push(prompt(i, 0));
            steps.extend((0..new).map(|n| token(i, 0, n)));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::live_peak;
    use crate::registry::find;

    fn peak(name: &str, text: &str) -> crate::live::LivePeak {
        let mut source = find(name).unwrap().source(text, 0, &Rates::free()).unwrap();
        live_peak(&mut *source).unwrap()
    }

    const SMALL: &str = "layers=2,hidden=64,heads=4,vocabulary=100,seq=32,batch=2,precision=fp32";

    #[test]
    fn a_cache_grows_by_its_tokens_and_goes_with_its_prompt() {
        let text = format!("{SMALL},phase=decode,prompts=10/20,batch=2,new_tokens=5");
        let end = peak("gpt2", &text).bytes_at_end;
        let shorter = peak("gpt2", &text.replace("new_tokens=5", "new_tokens=4")).bytes_at_end;
        // keys and values of 2 layers, 2 sequences, 64 numbers of 4 bytes; the last position's number
        assert_eq!(end - shorter, 2 * 2 * 2 * 64 * 4);
        let both = peak("gpt2", &(text + ",interleaved=true")).bytes_at_end;
        assert_eq!(both - end, (10 + 5) * 2 * 2 * 2 * 64 * 4);
    }

    #[test]
    fn fewer_heads_of_keys_make_smaller_caches_and_experts_more_weights() {
        let text = format!("{SMALL},ffn=128,kv_heads=4,phase=decode,prompts=64,new_tokens=2");
        let full = peak("llama", &text);
        let grouped = peak("llama", &text.replace("kv_heads=4", "kv_heads=1"));
        assert!(grouped.bytes_at_end < full.bytes_at_end);
        let train = format!("{SMALL},ffn=128,kv_heads=2,optimizer=none");
        let experts = peak("llama", &format!("{train},experts=4,active=2")).bytes_at_end;
        let plain = peak("llama", &train).bytes_at_end;
        // three more experts of three matrices, a router and chosen rows in each of 2 layers
        assert!(experts - plain > 2 * 3 * 3 * 64 * 128 * 4, "{experts} {plain}");
    }

    #[test]
    fn passes_apply_to_decoders_too() {
        for name in ["gpt2", "llama"] {
            let text = format!("{SMALL},kv_heads=2,ffn=128,passes=");
            let text = if name == "gpt2" { text.replace(",kv_heads=2", "") } else { text };
            let plain = peak(name, &format!("{text}none"));
            for passes in ["checkpoint", "fusion", "inplace", "checkpoint+fusion+cse"] {
                let with = peak(name, &format!("{text}{passes}"));
                assert_eq!(with.bytes_at_end, plain.bytes_at_end, "{name} {passes}");
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        for (name, text, part) in [
            ("gpt2", "seq=1025", "1025 tokens, expected at most 1024 positions"),
            ("gpt2", "heads=5", "5 heads do not divide a width of 768"),
            ("llama", "kv_heads=3", "3 heads of keys do not divide 32 heads"),
            ("llama", "experts=4,active=5", "5 of 4 experts"),
            ("gpt2", "phase=decode,prompts=1020,new_tokens=9", "model: 1029 tokens"),
        ] {
            let source = find(name).unwrap().source(text, 0, &Rates::free());
            let error = source.err().expect(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
