//! What was run when a recording was made: from the `NAME.json` beside it to a workload and its parameters.
//!
//! A set-up is known by its fields, never by its name. Of one that no workload's parameters can express, it is said which field is to blame. Source: the set-ups of
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

/// A set-up's fields, and what stands before their keys; each is read with an error that names it, what was found and what was expected.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Value, &'static str);

impl<'a> Fields<'a> {
    /// The text of a field; empty if there is none.
    fn text(self, key: &str) -> &'a str {
        self.0[key].as_str().unwrap_or("")
    }

    fn bad(self, key: &str, expected: &str) -> String {
        let found = match &self.0[key] {
            Value::Null => "nothing".to_owned(),
            other => other.to_string().chars().take(80).collect(),
        };
        format!("{}{key}: found {found}, expected {expected}", self.1)
    }

    fn number(self, key: &str) -> Result<u64, String> {
        self.0[key].as_u64().ok_or_else(|| self.bad(key, "a whole number"))
    }

    fn list(self, key: &str) -> Result<String, String> {
        let list = self.0[key].as_array().ok_or_else(|| self.bad(key, "a list"))?;
        Ok(list.iter().map(ToString::to_string).collect::<Vec<_>>().join("/"))
    }

    /// What a rule makes of a text.
    fn of<T>(
        self,
        key: &str,
        expected: &str,
        rule: impl Fn(&'a str) -> Option<T>,
    ) -> Result<T, String> {
        rule(self.text(key)).ok_or_else(|| self.bad(key, expected))
    }
}

type Known = (&'static str, Vec<(&'static str, String)>);

impl Setup {
    /// From the object of a set-up file.
    ///
    /// # Errors
    /// Why no workload expresses it.
    pub fn read(file: &Value) -> Result<Self, String> {
        let fields = Fields(file, "");
        let (workload, pairs) = match fields.text("model") {
            "" => {
                return Err(fields.bad("model", "the name of a model, as in a recording's set-up"));
            }
            model if model.starts_with("transformers Bert") => bert(fields)?,
            model if model.starts_with("transformers GPT2") => gpt2(fields)?,
            model if model.starts_with("ResNet-") => resnet(fields)?,
            model => {
                if let Some(elsewhere) = elsewhere(fields, model) {
                    return Err(format!("model: {elsewhere}"));
                }
                let expected =
                    "a model that begins with transformers Bert, transformers GPT2 or ResNet-";
                return Err(fields.bad("model", expected));
            }
        };
        let pairs: Vec<String> =
            pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let device = Fields(&file["device"], "device.");
        let capacity = device.number("capacity_bytes")?;
        let context = device.number("context_bytes").unwrap_or(0);
        let capacity = capacity
            .checked_sub(context)
            .ok_or_else(|| device.bad("context_bytes", "less than capacity_bytes"))?;
        let conf = device.text("alloc_conf").to_owned();
        Ok(Self { workload, params: pairs.join(","), capacity, conf })
    }
}

/// What a set-up is that is known, but whose run depends on more than its file: tests build it from the recording too.
fn elsewhere(file: Fields<'_>, model: &str) -> Option<&'static str> {
    match file.text("mode") {
        "prefetch" => Some(
            "layers with a second stream that fetches ahead; compared in results/tests/recorded_streams.rs, where events lag as they were recorded",
        ),
        "cycles" => Some(
            "layers whose buffers die in reference cycles; compared in results/tests/refcycle.rs, from the requests of the recording",
        ),
        _ if model.starts_with("DB-style detector") => Some(
            "a service that reads pages; compared in results/tests/recorded_streams.rs, with the widths of lines from the recording",
        ),
        _ => None,
    }
}

/// BERT at one length or at many.
fn bert(file: Fields<'_>) -> Result<Known, String> {
    let model = file.text("model");
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
    pairs.push(("batch", file.number("batch")?.to_string()));
    pairs.push(("steps", file.number("steps")?.to_string()));
    let workload = if let Value::Number(seq) = &file.0["seq"] {
        pairs.push(("seq", seq.to_string()));
        "bert"
    } else {
        pairs.push(("lengths", file.list("seq_lens")?));
        "varlen"
    };
    pairs.push(("precision", file.of("precision", PRECISIONS, precision)?.into()));
    let attention = |text| matching(text, &["sdpa", "eager"]);
    pairs.push(("attention", file.of("attention", "sdpa or eager", attention)?.into()));
    pairs.push(("mask", file.of("attention_mask", "all ones, or ragged, kept", mask)?.into()));
    let recomputed = &file.0["gradient_checkpointing"];
    pairs.push((
        "checkpoint",
        checkpoint(recomputed).ok_or_else(|| {
            file.bad("gradient_checkpointing", "true, false, off, or first N of M layers")
        })?,
    ));
    pairs.push(("accumulation", file.number("accumulation").unwrap_or(1).to_string()));
    pairs.push(("empty_cache", file.number("empty_cache_every").unwrap_or(0).to_string()));
    if file.text("cublas_workspace_cache") == "1" {
        pairs.push(("workspace", "cached".into()));
    }
    let kind = |text: &str| match text {
        "none" => Some("none"),
        _ if text.starts_with("AdamW foreach") => Some("adamw_foreach"),
        _ if text.starts_with("AdamW fused") => Some("adamw_fused"),
        _ => None,
    };
    let optimizer = file.text("optimizer");
    let expected = "none, AdamW foreach… or AdamW fused…";
    pairs.push(("optimizer", file.of("optimizer", expected, kind)?.into()));
    pairs.push(("clip", optimizer.contains("clip_grad_norm_").to_string()));
    let zeroed = optimizer.contains("set_to_none=False");
    pairs.push(("set_to_none", (!zeroed).to_string()));
    let device = Fields(&file.0["device"], "device.");
    let (sms, threads) = device.of("capability", "8.0 or 7.5", |text| match text {
        "8.0" => Some(("108", "2048")),
        "7.5" => Some(("40", "1024")),
        _ => None,
    })?;
    pairs.extend([("sms", sms.into()), ("sm_threads", threads.into())]);
    Ok((workload, pairs))
}

/// GPT-2 decoding, or loading and then one pass over two texts of 256 tokens.
fn gpt2(file: Fields<'_>) -> Result<Known, String> {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for (key, word) in [("layers", "layers"), ("positions", "positions")] {
        let expected = format!("a number before {word}");
        pairs.push((key, file.of("model", &expected, |text| number_before(text, word))?));
    }
    for (key, word) in [("hidden", "width "), ("vocabulary", "vocabulary ")] {
        let expected = format!("a number after {word}");
        pairs.push((key, file.of("model", &expected, |text| number_after(text, word))?));
    }
    pairs.push(("precision", file.of("precision", PRECISIONS, precision)?.into()));
    if file.text("mode") == "decode" {
        pairs.extend([("phase", "decode".into()), ("prompts", file.list("prompts")?)]);
        for key in ["new_tokens", "batch"] {
            pairs.push((key, file.number(key)?.to_string()));
        }
        let interleaved = file.0["interleaved"].as_bool();
        let interleaved = interleaved.ok_or_else(|| file.bad("interleaved", "true or false"))?;
        pairs.push(("interleaved", interleaved.to_string()));
    } else {
        let expected = "decode, load-copy, load-assign or load-cpu-then-cuda";
        let way = file.of("mode", expected, |mode| match mode {
            "load-copy" => Some("copy"),
            "load-assign" => Some("assign"),
            "load-cpu-then-cuda" => Some("to_device"),
            _ => None,
        })?;
        pairs.extend([("phase", "inference".into()), ("steps", "1".into())]);
        // not stated; the recordings ask for 4,096 bytes of token numbers (8 each) and 786,432 of positions (768 x 4 each)
        pairs.extend([("batch", "2".into()), ("seq", "256".into()), ("load", way.into())]);
    }
    Ok(("gpt2", pairs))
}

/// A residual network: training in the usual way (zeroed before backward, weights decayed), fp32.
fn resnet(file: Fields<'_>) -> Result<Known, String> {
    if file.text("precision") != "fp32" {
        return Err(file.bad("precision", "fp32"));
    }
    if file.0["channels_last"].as_bool() == Some(true) {
        return Err(file.bad("channels_last", "false"));
    }
    let mut pairs: Vec<(&str, String)> = Vec::new();
    let depth = |model: &str| number_after(model, "ResNet-");
    pairs.push(("depth", file.of("model", "ResNet- and its depth", depth)?));
    for key in ["batch", "size", "steps", "last_batch"] {
        pairs.push((key, file.number(key)?.to_string()));
    }
    let optimizer = file.text("optimizer");
    let rule = file.of("optimizer", "SGD…", |text| match text {
        _ if text.starts_with("SGD momentum") => Some("momentum"),
        _ if text.starts_with("SGD") => Some("sgd"),
        _ => None,
    })?;
    let way = if optimizer.contains("foreach") { "foreach" } else { "single" };
    pairs.push(("optimizer", format!("{rule}_{way}")));
    let device = Fields(&file.0["device"], "device.");
    let workspace = |text| matching(text, &["transpose", "none"]);
    let workspace = device.of("conv_workspace_model", "transpose or none", workspace)?;
    pairs.push(("conv_workspace", workspace.to_owned()));
    let benchmark = file.0["cudnn_benchmark"].as_bool().unwrap_or(false);
    pairs.push(("benchmark", benchmark.to_string()));
    Ok(("resnet", pairs))
}

const PRECISIONS: &str = "fp32, fp16, float16 weights, fp16 autocast… or bf16 autocast…";

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
        let told = |change: &str, value: Value| {
            let mut other = file.clone();
            other[change] = value;
            Setup::read(&other).expect_err("unknown")
        };
        assert_eq!(
            told("precision", json!("int4")),
            format!("precision: found \"int4\", expected {PRECISIONS}")
        );
        assert_eq!(told("steps", Value::Null), "steps: found nothing, expected a whole number");
        assert!(
            told("model", json!("another"))
                .starts_with("model: found \"another\", expected a model that")
        );
        let other = json!({"model": "6 x (Linear 2048, GELU)", "mode": "cycles"});
        let why = Setup::read(&other).expect_err("not a workload");
        assert!(why.contains("results/tests/refcycle.rs"), "{why}");
        assert!(
            Setup::read(&json!([])).expect_err("no object").starts_with("model: found nothing")
        );
    }
}
