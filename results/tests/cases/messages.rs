//! Cases about out-of-memory messages: the figures are put into the words of the program, and the command explains them.

use serde_json::{Value, json};
use vramlab::explain::{Explained, explain};

use super::Tally;

/// Explains each message, and checks verdict and figures.
pub(super) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    let messages = input["messages"].as_array().ok_or("a case without messages")?;
    for check in checks {
        let name = check["name"].as_str().unwrap_or_default();
        let given = messages.iter().find(|message| message["name"] == name);
        let text = in_words(given.ok_or(format!("no message {name}"))?);
        let explanation = explain(text.as_bytes(), name).map_err(|e| e.to_string())?;
        let count = explanation.messages.len();
        tally.check(&format!("{id} {name}: messages"), &json!({"value": 1}), &json!(count));
        let Some(explained) = explanation.messages.first() else { continue };
        compare(&format!("{id} {name}"), check, explained, tally);
    }
    Ok(())
}

/// The message as PyTorch has it: before 2.1 where what is reserved is said in one figure, else since.
fn in_words(message: &Value) -> String {
    let size = |name: &str| {
        let units = [("gib", "GiB"), ("mib", "MiB"), ("bytes", "bytes")];
        units.iter().find_map(|(key, unit)| {
            let number = &message[format!("{name}_{key}")];
            number.is_number().then(|| format!("{number} {unit}"))
        })
    };
    let part = |name: &str, before: &str, after: &str| {
        size(name).map(|size| format!("{before}{size}{after}")).unwrap_or_default()
    };
    let old = size("reserved").is_some() || size("cached").is_some();
    let asked = part("request", "Tried to allocate ", "");
    if old {
        return format!(
            "CUDA out of memory. {asked} (GPU 0{}{}{}{}{})",
            part("total", "; ", " total capacity"),
            part("allocated", "; ", " already allocated"),
            part("free", "; ", " free"),
            part("cached", "; ", " cached"),
            part("reserved", "; ", " reserved in total by PyTorch"),
        );
    }
    format!(
        "CUDA out of memory. {asked}. GPU 0{}{}. {}{}{}Of the allocated memory {}{}.",
        part("total", " has a total capacity of ", ""),
        part("free", " of which ", " is free"),
        part("other_process", "Process 1 has ", " memory in use. "),
        part("this_process", "Including non-PyTorch memory, this process has ", " memory in use. "),
        part("allowed", "", " allowed; "),
        part("allocated", "", " is allocated by PyTorch"),
        part("reserved_unallocated", ", and ", " is reserved by PyTorch but unallocated"),
    )
}

/// Every figure that the check names, to the hundredths that messages are printed with.
fn compare(label: &str, check: &Value, explained: &Explained, tally: &mut Tally) {
    // words of a finer rule; ours has one for both
    let wanted = match check["verdict"].as_str() {
        Some("inconsistent" | "unknown_split") => json!("unknown"),
        _ => check["verdict"].clone(),
    };
    tally.check(label, &json!({"value": wanted}), &json!(explained.verdict.name()));
    for (key, value) in check.as_object().into_iter().flatten() {
        let Some(name) = key.strip_suffix("_gib") else { continue };
        let name = format!("{name}_bytes");
        let found = explained.derived.bytes(&name).or(explained.numbers.bytes(&name));
        let found = found.map(|bytes| bytes as f64 / f64::from(1 << 30));
        let wanted = json!({"field": key, "value": value, "tolerance": 0.0051});
        tally.check(label, &wanted, &json!(found));
    }
}
