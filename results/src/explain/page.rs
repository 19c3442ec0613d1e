//! Explanations for people.

use super::message::{Value, shown};
use super::{Explained, Explanation};
use crate::output::still;

/// Width of a line of a terminal, in characters.
const LINE_CHARS: usize = 110;

/// The whole text: each message with verdict, arithmetic and what to try.
pub fn page(explanation: &Explanation, markdown: bool) -> String {
    let messages = explanation.messages.iter().map(|one| message(one, markdown));
    let mut text = messages.collect::<Vec<_>>().join("\n");
    if !explanation.settings.is_empty() {
        text += "\nSettings that the log names:\n";
        for (name, value) in &explanation.settings {
            text += &format!("  {name} = {}\n", still(value));
        }
    }
    if explanation.beyond > 0 {
        let line = format!("{} further messages are not shown.", explanation.beyond);
        text += &format!("\n{line}\n");
    }
    text
}

fn message(one: &Explained, markdown: bool) -> String {
    let heading = if markdown { "### " } else { "" };
    let mut text = format!(
        "{heading}{}, line {}: {}, {}\n",
        still(&one.input),
        one.line,
        one.message.framework.title(),
        one.era
    );
    if one.times > 1 {
        text += &format!("seen {} times, last on line {}\n", one.times, one.last_line);
    }
    let verdict = format!("{} (confidence: {})", one.verdict.name(), one.confidence.name());
    text += &format!("\nWhat happened: {verdict}\n{}", folded(&one.summary, "  "));
    if let Some(limit) = one.limit {
        text += &folded(&format!("limit: {limit}"), "  ");
    }
    if let Some(climb) = &one.climb {
        text += &folded(climb, "  ");
    }
    for note in &one.notes {
        text += &folded(note, "  ");
    }
    if !one.numbers.is_empty() {
        text += "\nThe message says:\n";
        let figures: Vec<String> = one.numbers.iter().map(|(n, v)| figure(n, v)).collect();
        text += &folded(&figures.join(", "), "  ");
    }
    if !one.sums.is_empty() {
        text += "\nThe sums:\n";
        one.sums.iter().for_each(|sum| text += &folded(sum, "  "));
    }
    text += "\nTry, in this order:\n";
    for (number, next) in one.next.iter().enumerate() {
        text += &folded(&format!("{}. {}", number + 1, next.text), "  ");
        text += &format!("     [{}]\n", next.source);
    }
    text
}

/// `total 23.65 GiB`: a figure in words.
fn figure(name: &str, value: &Value) -> String {
    let words = name.trim_end_matches("_bytes").replace('_', " ");
    match value {
        Value::Bytes(size) => format!("{words} {}", shown(size.bytes)),
        Value::Count(count) => format!("{words} {count}"),
        Value::Ratio(ratio) => format!("{words} {ratio}"),
        Value::Text(text) => format!("{words} {}", still(text)),
    }
}

/// In lines that a terminal holds, each behind `indent`.
fn folded(text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut line = indent.to_owned();
    for word in text.split(' ') {
        let long = line.chars().count() + 1 + word.chars().count();
        if long > LINE_CHARS && line.trim() != "" {
            out += &format!("{}\n", line.trim_end());
            line = format!("{indent}  ");
        }
        if line.trim() != "" {
            line.push(' ');
        }
        line += word;
    }
    out += &format!("{}\n", line.trim_end());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_at_blanks() {
        let text = folded(&"word ".repeat(60), "  ");
        assert!(text.lines().all(|line| line.chars().count() <= LINE_CHARS));
        assert_eq!(text.split_whitespace().count(), 60);
        assert_eq!(folded("short", "  "), "  short\n");
    }

    #[test]
    fn characters_that_act_are_dots() {
        assert_eq!(still("a\x1b[1mb\n\u{202e}"), "a·[1mb··");
    }
}
