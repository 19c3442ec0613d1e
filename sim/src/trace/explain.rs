//! What is wrong with a line, in a user's words.

use serde_json::Value;
use serde_json::error::Category;

use super::raw::RawOp;

/// A line as it should be.
const SAMPLE: &str = r#"{"op":"alloc","id":1,"size":512}"#;
/// Characters of a line that a message shows.
const SHOWN: usize = 60;

/// Why a line is no op: the field, what was found, what was expected.
pub(super) fn explain(error: &serde_json::Error, line: &str) -> String {
    let start: String = line.trim().chars().take(SHOWN).collect();
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(fields)) => {
            let wrong = fields.into_iter().find_map(|(name, value)| wrong_field(name, value));
            wrong.unwrap_or_else(|| format!("{}; found {start:?}", bare(error)))
        }
        Ok(other) => format!("found {}, expected an object such as {SAMPLE}", kind(&other)),
        Err(error) => {
            let what = if error.classify() == Category::Io { "cannot be read" } else { "no JSON" };
            format!(
                "{what} ({}, column {}); found {start:?}, expected an object such as {SAMPLE}",
                bare(&error),
                error.column()
            )
        }
    }
}

/// Says of one field what is wrong with it, if anything is.
fn wrong_field(name: String, value: Value) -> Option<String> {
    let found: String = value.to_string().chars().take(SHOWN).collect();
    let alone = Value::Object([(name.clone(), value)].into_iter().collect()).to_string();
    let error = serde_json::from_str::<RawOp<'_>>(&alone).err()?;
    let message = bare(&error);
    let expected = message.rsplit_once("expected ").map_or(message.as_str(), |(_, what)| what);
    let expected = match expected {
        "u64" => "a whole number from 0 to 2^64-1",
        "u32" => "a whole number from 0 to 2^32-1",
        "u16" => "a whole number from 0 to 65535",
        "a boolean" => "true or false",
        "a sequence" => "a list of ids",
        other => other,
    };
    Some(format!("{name}: found {found}, expected {expected}"))
}

/// serde's message without its own place: the line is ours to name.
fn bare(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// What the first bytes show, if it is text of another encoding than UTF-8.
pub fn not_utf8(start: &[u8]) -> Option<String> {
    let found = match start {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => "UTF-32 text (by its byte order mark)",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16 text (by its byte order mark)",
        [b'{', 0, ..] | [0, b'{', ..] => "UTF-16 text",
        _ => return None,
    };
    Some(format!("found {found}, expected UTF-8; convert it, for example with iconv"))
}

/// Units that a header may name: those that all files have.
const UNITS: [&str; 6] = ["b", "byte", "bytes", "ns", "nanosecond", "nanoseconds"];

/// Why a header's `unit` is refused, if it is: sizes are bytes and times ns, in every file.
pub(super) fn refused_unit(header: &str) -> Option<String> {
    let header: Value = serde_json::from_str(header).ok()?;
    let unit = header.get("unit").filter(|unit| !unit.is_null())?;
    let text = unit.as_str().unwrap_or_default();
    let known = |word: &str| UNITS.contains(&word.trim().to_ascii_lowercase().as_str());
    if text.split(',').all(known) {
        return None;
    }
    Some(format!(
        "unit is {unit}; expected bytes: sizes in bytes, times in ns (nothing is converted)"
    ))
}
