//! `llm`: a server of a language model with continuous batching, as the command line has it.
//!
//! The memory of the device follows vLLM's rule: of `gpu_memory_utilization` × total, what weights, activations and the context leave is the cache's
//! (`vllm/v1/worker/gpu_worker.py`). The share is an option of the cache, since it is the cache that takes it; the bytes of weights and activations are
//! parameters here. Which cache: `--strategy`. A cache with contiguous buffers is the static reservation of the servers before PagedAttention.
//!
//! Defaults are vLLM 0.33.0's for its server on an A100, with lengths like those of Azure's public conversation trace, and Poisson arrivals.

use std::sync::Arc;

use vramlab_sim::units::Nanos;

use super::load::{Length, Lengths, Load};
use super::model::{MODELS, Model};
use super::scheduler::{Config, Policy, Scheduler};
use super::server::{Server, Setup};
use super::step_time::{Constants, StepTime};
use crate::arrivals::{self, Arrivals};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::readers::requests::RequestLog;
use crate::registry::BoxedSource;
use crate::rng::Rng;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &[
    doc(
        "model",
        "llama-3.1-8b",
        "-",
        "llama-3.1-8b, llama-3.1-70b, llama-2-7b, llama-2-13b or qwen3-30b-a3b",
    ),
    doc("trace", "none", "file", "file of recorded requests; none: requests are drawn"),
    doc(
        "requests",
        "auto",
        "requests",
        "how many are drawn, or the most that are taken of a trace; auto: 500, or all",
    ),
    doc("speed", "1", "-", "recorded times between arrivals are divided by this")
        .unless("trace", &["none"]),
    doc("arrivals", "poisson", "-", "poisson, bursty or diurnal; of a trace without times too"),
    doc("rate", "3", "requests/s", "arrivals, while calm or on average"),
    doc("burst_rate", "30", "requests/s", "arrivals in a burst").only("arrivals", &["bursty"]),
    doc("calm", "20", "s", "mean length of a calm").only("arrivals", &["bursty"]),
    doc("burst", "2", "s", "mean length of a burst; 0: none").only("arrivals", &["bursty"]),
    doc("period", "86400", "s", "length of a day").only("arrivals", &["diurnal"]),
    doc("swing", "0.8", "-", "how far the rate of a day goes up and down, as a share of it")
        .only("arrivals", &["diurnal"]),
    doc("prompt_median", "1020", "tokens", "median length of a prompt").only("trace", &["none"]),
    doc("prompt_sigma", "0.843", "ln tokens", "standard deviation of its logarithm")
        .only("trace", &["none"]),
    doc("output_median", "129", "tokens", "median length of an answer").only("trace", &["none"]),
    doc("output_sigma", "0.761", "ln tokens", "standard deviation of its logarithm")
        .only("trace", &["none"]),
    doc("shared_prefix", "0", "tokens", "a prompt begins with so many tokens that others have too")
        .only("trace", &["none"]),
    doc("shared_texts", "1", "texts", "how many different such beginnings there are")
        .only("trace", &["none"]),
    doc("max_num_seqs", "256", "requests", "most requests that run"),
    doc(
        "max_num_batched_tokens",
        "auto",
        "tokens",
        "most tokens of a step; auto: 2048, or max_model_len if that is more and enable_chunked_prefill=false",
    ),
    doc("max_model_len", "auto", "tokens", "most tokens of a request; auto: the model's"),
    doc(
        "long_prefill_token_threshold",
        "0",
        "tokens",
        "most tokens of a chunk while others are there; 0: no cap",
    ),
    doc("enable_chunked_prefill", "true", "-", "a prompt may be computed in chunks"),
    doc(
        "scheduler_reserve_full_isl",
        "true",
        "-",
        "a request comes in only if all its known tokens have room",
    ),
    doc("async_scheduling", "true", "-", "plan a step while the one before is computed"),
    doc(
        "preemption",
        "recompute",
        "-",
        "recompute, or swap (keep keys and values in host memory; needs async_scheduling=false)",
    ),
    doc("swap_space", "4GiB", "B", "host memory for swapped keys and values")
        .only("preemption", &["swap"]),
    doc(
        "reservation",
        "dynamic",
        "-",
        "dynamic, or static (all slots of prompt and answer at admission)",
    ),
    doc(
        "batching",
        "continuous",
        "-",
        "continuous, or static (who waits when nothing runs comes in, nobody else until they are done)",
    ),
    doc("weights", "auto", "B", "bytes of the weights; auto: the model's, on all copies"),
    doc(
        "copies",
        "1",
        "cards",
        "data-parallel copies that step together, on a card each, seen as one device: the experts of a mixture are split among them, all else is on each; limits, activations and --capacity are those of all",
    ),
    doc(
        "activations",
        "896MiB",
        "B",
        "peak of activations, graphs and buffers beside the weights and the context",
    ),
    doc(
        "step",
        "roofline",
        "-",
        "time of a step: roofline; or A/B/C in ns: A + B x tokens + C x tokens looked at; or longer:A/B/C, max(A x touched weights, B x tokens) + C x tokens looked at",
    ),
    doc("mark", "60", "s", "a mark at the first end of a step after each such time; 0: none"),
];

/// Requests that are drawn, if nobody says.
const REQUESTS_DRAWN: u64 = 500;

/// Tokens of a step, if nobody says: vLLM 0.33.0's for its server on an A100.
const BATCHED_TOKENS: u64 = 2048;

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused, or the trace cannot be read.
pub fn build(params: &Params, seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let log = arrivals::trace(params)?;
    Ok(Box::new(server(params, seed, rates, log)?))
}

/// What its times rest on.
pub fn assumes(params: &Params) -> Option<&'static str> {
    (params.text("step") == "roofline").then_some(
        "a step takes the time that the full rates of the data sheet allow (roofline): a lower bound, not measured; vramlab measured DIR shows how far measured runs are from it, and prints the --set step=… that is fitted to them",
    )
}

/// The server, with requests that were read already.
///
/// # Errors
/// When a parameter's value is refused.
pub fn server(
    params: &Params,
    seed: u64,
    rates: &Rates,
    log: Option<Arc<RequestLog>>,
) -> Result<Server, ParamError> {
    let model = model(params)?;
    let max_model_len = match params.text("max_model_len") {
        "auto" => model.max_len,
        _ => params.count("max_model_len", 2..=1 << 32)?,
    };
    let ahead = params.flag("async_scheduling")?;
    Ok(Server::new(Setup {
        scheduler: Scheduler::new(config(params, model, max_model_len, ahead)?),
        load: load(params, seed, log, max_model_len)?,
        time: step_time(params, model, rates)?,
        ahead,
        weights: match params.text("weights") {
            "auto" => model.weight_bytes_of(copies(params)?),
            _ => params.bytes("weights")?,
        },
        activations: params.bytes("activations")?,
        token_bytes: model.token_bytes(),
        layers: model.layers,
        max_model_len,
        mark: Nanos((params.number("mark", 0.0..=1e9)? * 1e9).round() as u64),
    }))
}

fn copies(params: &Params) -> Result<u64, ParamError> {
    params.count("copies", 1..=1 << 16)
}

fn model(params: &Params) -> Result<&'static Model, ParamError> {
    Model::find(params.text("model")).ok_or_else(|| {
        let names: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
        params.bad("model", names.join(", "))
    })
}

fn config(
    params: &Params,
    model: &Model,
    max_model_len: u64,
    ahead: bool,
) -> Result<Config, ParamError> {
    let swap = params.choice("preemption", &[("recompute", false), ("swap", true)])?;
    if swap && ahead {
        return Err(params.bad("preemption", "recompute, or async_scheduling=false beside it"));
    }
    let chunks = params.flag("enable_chunked_prefill")?;
    let swap_space = params.bytes("swap_space")?;
    let swap_tokens = if swap { swap_space / model.token_bytes() } else { 0 };
    Ok(Config {
        max_num_seqs: params.count("max_num_seqs", 1..=1 << 20)?,
        max_num_batched_tokens: budget(params, max_model_len, chunks)?,
        max_model_len: Some(max_model_len),
        long_prefill_token_threshold: params.count("long_prefill_token_threshold", 0..=1 << 32)?,
        enable_chunked_prefill: chunks,
        scheduler_reserve_full_isl: params.flag("scheduler_reserve_full_isl")?,
        policy: Policy::Fcfs,
        swap_tokens,
        static_reservation: params
            .choice("reservation", &[("dynamic", false), ("static", true)])?,
        static_batching: params.choice("batching", &[("continuous", false), ("static", true)])?,
    })
}

/// Tokens of a step. Without chunks a step must take the longest prompt: vLLM raises its default to that, and refuses less
/// (`vllm/engine/arg_utils.py`; `vllm/config/scheduler.py`, `verify_max_model_len`).
fn budget(params: &Params, max_model_len: u64, chunks: bool) -> Result<u64, ParamError> {
    let least = if chunks { 1 } else { max_model_len };
    if params.text("max_num_batched_tokens") == "auto" {
        return Ok(least.max(BATCHED_TOKENS));
    }
    let budget = params.count("max_num_batched_tokens", 1..=1 << 32)?;
    if budget < least {
        let expected = format!(
            "auto, or {least} (max_model_len) or more, since with enable_chunked_prefill=false a step takes a whole prompt; or a lower max_model_len"
        );
        return Err(params.bad("max_num_batched_tokens", expected));
    }
    Ok(budget)
}

fn load(
    params: &Params,
    seed: u64,
    log: Option<Arc<RequestLog>>,
    longest: u64,
) -> Result<Load, ParamError> {
    let arrivals = Arrivals::from_params(params, seed, "llm.arrivals")?;
    let count = match params.text("requests") {
        "auto" => None,
        _ => Some(params.count("requests", 1..=REPEATS_MAX)?),
    };
    let speed = params.number("speed", 1e-6..=1e6)?;
    let length = |purpose, median, sigma| -> Result<Length, ParamError> {
        Ok(Length {
            rng: Rng::new(seed, purpose),
            median: params.number(median, 1.0..=1e9)?,
            sigma: params.number(sigma, 0.0..=8.0)?,
            most: longest - 1,
        })
    };
    let drawn = Lengths::Drawn {
        prompts: length("llm.prompts", "prompt_median", "prompt_sigma")?,
        outputs: length("llm.outputs", "output_median", "output_sigma")?,
        texts: Rng::new(seed, "llm.texts"),
        shared: params.count("shared_prefix", 0..=1 << 32)?,
        groups: params.count("shared_texts", 1..=1 << 32)?,
        left: count.unwrap_or(REQUESTS_DRAWN),
    };
    let lengths = match log {
        Some(log) => Lengths::Recorded { count: count.unwrap_or(u64::MAX), speed, log },
        None => drawn,
    };
    Ok(Load { arrivals, lengths, number: 0 })
}

fn step_time(params: &Params, model: &Model, rates: &Rates) -> Result<StepTime, ParamError> {
    let text = params.text("step");
    if text == "roofline" {
        return Ok(StepTime::Roofline { model: *model, copies: copies(params)?, rates: *rates });
    }
    let (longer, numbers) = match text.strip_prefix("longer:") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let numbers: Option<Vec<f64>> = numbers
        .split('/')
        .map(|number| number.trim().parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0))
        .collect();
    let Some([step, token, look]) = numbers.as_deref() else {
        return Err(
            params.bad("step", "roofline, or three numbers of 0 or more: A/B/C or longer:A/B/C")
        );
    };
    let constants = Constants { step: *step, token: *token, look: *look };
    Ok(match longer {
        true => StepTime::Longer { model: *model, copies: copies(params)?, constants },
        false => StepTime::Line(constants),
    })
}
