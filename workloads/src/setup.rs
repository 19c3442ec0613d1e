//! What was run when a recording was made: from the `NAME.json` beside it to a workload and its parameters.
//!
//! A set-up is known by its fields, never by its name. One that no workload's parameters can express is none. Source: the set-ups of
//! `traces/pytorch_recorded` in the shared folder, whose README describes the fields.

use serde_json::Value;

/// A workload with parameters, on a device of a size, under allocator settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The workload's name.
    pub workload: &'static str,
    /// Its parameters, as `key=value,key=value`.
    pub params: String,
    /// Bytes that the device had for the program.
    pub capacity: u64,
    /// The allocator's settings, in PyTorch's own text.
    pub conf: String,
}

impl Setup {
    /// From the object of a set-up file; none if no workload can express it.
    pub fn read(file: &Value) -> Option<Self> {
        let model = file["model"].as_str()?;
        let (workload, params) = match model {
            _ if model.starts_with("transformers Bert") => bert(file)?,
            _ if model.starts_with("transformers GPT2") => gpt2(file)?,
            _ if model.starts_with("ResNet-") => resnet(file)?,
            _ => return None,
        };
        let device = &file["device"];
        let capacity = device["capacity_bytes"].as_u64()?;
        let context = device["context_bytes"].as_u64().unwrap_or(0);
        let conf = device["alloc_conf"].as_str().unwrap_or("").to_owned();
        Some(Self { workload, params, capacity: capacity.checked_sub(context)?, conf })
    }
}

/// BERT at one length or at many.
fn bert(file: &Value) -> Option<(&'static str, String)> {
    let text = |key: &str| file[key].as_str().unwrap_or("");
    let model = text("model");
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let masked_lm = model.contains("ForMaskedLM");
    for (key, word) in
        [("layers", "layers"), ("heads", "heads"), ("labels", "labels"), ("positions", "positions")]
    {
        pairs.extend(number_before(model, word).map(|n| (key, n)));
    }
    for (key, word) in [("hidden", "hidden "), ("vocabulary", "vocabulary ")] {
        pairs.extend(number_after(model, word).map(|n| (key, n)));
    }
    if masked_lm {
        // the published script: words only, scores summed, gradients and outputs dropped each step
        pairs.extend([
            ("head", "mlm".into()),
            ("loss", "sum".into()),
            ("output", "dropped".into()),
            ("inputs", "words".into()),
        ]);
    }
    pairs.push(("batch", file["batch"].as_u64()?.to_string()));
    pairs.push(("steps", file["steps"].as_u64()?.to_string()));
    let workload = match (&file["seq"], file["seq_lens"].as_array()) {
        (Value::Number(seq), _) => {
            pairs.push(("seq", seq.to_string()));
            "bert"
        }
        (_, Some(list)) => {
            let list: Vec<String> = list.iter().map(ToString::to_string).collect();
            pairs.push(("lengths", list.join("/")));
            "varlen"
        }
        _ => return None,
    };
    pairs.push(("precision", precision(text("precision"))?.into()));
    pairs.push(("attention", matching(text("attention"), &["sdpa", "eager"])?.into()));
    pairs.push(("mask", mask(text("attention_mask"))?.into()));
    pairs.push(("checkpoint", checkpoint(&file["gradient_checkpointing"])?));
    pairs.push(("accumulation", file["accumulation"].as_u64().unwrap_or(1).to_string()));
    pairs.push(("empty_cache", file["empty_cache_every"].as_u64().unwrap_or(0).to_string()));
    if text("cublas_workspace_cache") == "1" {
        pairs.push(("workspace", "cached".into()));
    }
    let optimizer = text("optimizer");
    let kind = match optimizer {
        "none" => "none",
        _ if optimizer.starts_with("AdamW foreach") => "adamw_foreach",
        _ if optimizer.starts_with("AdamW fused") => "adamw_fused",
        _ => return None,
    };
    pairs.push(("optimizer", kind.into()));
    pairs.push(("clip", optimizer.contains("clip_grad_norm_").to_string()));
    let zeroed = optimizer.contains("set_to_none=False");
    pairs.push(("set_to_none", (!zeroed).to_string()));
    let (sms, threads) = match file["device"]["capability"].as_str()? {
        "8.0" => ("108", "2048"),
        "7.5" => ("40", "1024"),
        _ => return None,
    };
    pairs.extend([("sms", sms.into()), ("sm_threads", threads.into())]);
    let pairs: Vec<String> =
        pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some((workload, pairs.join(",")))
}

/// GPT-2 decoding, or loading and then one pass over 512 tokens.
fn gpt2(file: &Value) -> Option<(&'static str, String)> {
    let text = |key: &str| file[key].as_str().unwrap_or("");
    let number = |key: &str| file[key].as_u64().map(|n| n.to_string());
    let model = text("model");
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for (key, word) in [("layers", "layers"), ("positions", "positions")] {
        pairs.push((key, number_before(model, word)?));
    }
    for (key, word) in [("hidden", "width "), ("vocabulary", "vocabulary ")] {
        pairs.push((key, number_after(model, word)?));
    }
    pairs.push(("precision", precision(text("precision"))?.into()));
    match text("mode") {
        "decode" => {
            let prompts: Vec<String> =
                file["prompts"].as_array()?.iter().map(ToString::to_string).collect();
            pairs.extend([("phase", "decode".into()), ("prompts", prompts.join("/"))]);
            pairs.extend([("new_tokens", number("new_tokens")?), ("batch", number("batch")?)]);
            pairs.push(("interleaved", file["interleaved"].as_bool()?.to_string()));
        }
        loading => {
            let way = match loading {
                "load-copy" => "copy",
                "load-assign" => "assign",
                "load-cpu-then-cuda" => "to_device",
                _ => return None,
            };
            pairs.extend([("phase", "inference".into()), ("steps", "1".into())]);
            pairs.extend([("batch", "1".into()), ("seq", "512".into()), ("load", way.into())]);
        }
    }
    let pairs: Vec<String> =
        pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(("gpt2", pairs.join(",")))
}

/// A residual network: training in the usual way (zeroed before backward, weights decayed), fp32.
fn resnet(file: &Value) -> Option<(&'static str, String)> {
    let text = |key: &str| file[key].as_str().unwrap_or("");
    if text("precision") != "fp32" || file["channels_last"].as_bool() == Some(true) {
        return None;
    }
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let depth = text("model").strip_prefix("ResNet-")?.split(' ').next()?;
    pairs.push(("depth", depth.to_owned()));
    for key in ["batch", "size", "steps", "last_batch"] {
        pairs.push((key, file[key].as_u64()?.to_string()));
    }
    let optimizer = text("optimizer");
    let rule = match optimizer {
        _ if optimizer.starts_with("SGD momentum") => "momentum",
        _ if optimizer.starts_with("SGD") => "sgd",
        _ => return None,
    };
    let way = if optimizer.contains("foreach") { "foreach" } else { "single" };
    pairs.push(("optimizer", format!("{rule}_{way}")));
    let workspace = file["device"]["conv_workspace_model"].as_str()?;
    pairs.push(("conv_workspace", matching(workspace, &["transpose", "none"])?.to_owned()));
    pairs.push(("benchmark", file["cudnn_benchmark"].as_bool().unwrap_or(false).to_string()));
    let pairs: Vec<String> =
        pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    Some(("resnet", pairs.join(",")))
}

fn precision(text: &str) -> Option<&'static str> {
    match text {
        "fp32" => Some("fp32"),
        "fp16" | "float16 weights" => Some("fp16"),
        _ if text.starts_with("fp16 autocast") => Some("amp16"),
        _ if text.starts_with("bf16 autocast") => Some("amp_bf16"),
        _ => None,
    }
}

fn mask(text: &str) -> Option<&'static str> {
    match text {
        "" | "all ones" => Some("ones"),
        "ragged, kept" => Some("ragged"),
        _ => None,
    }
}

fn checkpoint(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => Some("none".into()),
        Value::Bool(true) => Some("all".into()),
        Value::String(text) if text == "off" => Some("none".into()),
        Value::String(text) => {
            let rest = text.strip_prefix("first ")?;
            Some(rest.split(' ').next()?.to_owned())
        }
        _ => None,
    }
}

fn matching<'a>(text: &str, words: &[&'a str]) -> Option<&'a str> {
    words.iter().copied().find(|word| *word == text)
}

/// `12` of `… 12 layers …`.
fn number_before(text: &str, word: &str) -> Option<String> {
    let words: Vec<&str> = text.split([' ', ',', ':', ';']).filter(|w| !w.is_empty()).collect();
    let at = words.iter().position(|w| *w == word)?;
    let number = words.get(at.checked_sub(1)?)?;
    number.parse::<u64>().ok().map(|n| n.to_string())
}

/// `768` of `… hidden 768, …`.
fn number_after(text: &str, word: &str) -> Option<String> {
    let (_, rest) = text.split_once(word)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_become_parameters() {
        let file = json!({
            "model": "transformers BertForSequenceClassification from BertConfig: 3 layers, hidden 96, 4 heads, vocabulary 99, 64 positions, 2 labels",
            "batch": 5, "seq": 32, "steps": 2, "precision": "fp16 autocast, GradScaler", "attention": "eager",
            "attention_mask": "all ones", "gradient_checkpointing": "first 2 of 3 layers", "accumulation": 1,
            "optimizer": "AdamW fused, zero_grad set_to_none=False", "empty_cache_every": 0,
            "device": {"capability": "7.5", "capacity_bytes": 1000, "context_bytes": 100, "alloc_conf": "x:1"},
        });
        let setup = Setup::read(&file).expect("known");
        assert_eq!((setup.workload, setup.capacity, setup.conf.as_str()), ("bert", 900, "x:1"));
        for part in [
            "layers=3",
            "hidden=96",
            "heads=4",
            "vocabulary=99",
            "positions=64",
            "batch=5",
            "seq=32",
            "precision=amp16",
            "attention=eager",
            "checkpoint=2",
            "optimizer=adamw_fused",
            "clip=false",
            "set_to_none=false",
            "sms=40",
        ] {
            assert!(setup.params.split(',').any(|pair| pair == part), "{part}: {}", setup.params);
        }
        assert_eq!(Setup::read(&json!({"model": "another"})), None);
        assert_eq!(Setup::read(&json!([])), None);
    }
}
