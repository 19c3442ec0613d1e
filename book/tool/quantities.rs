//! Finds the quantities in a chapter's text, so that a test can look for each in what the listings say.
//!
//! A quantity is a number with a unit after a space, such as `1.50 MiB` or `3 µs`, outside code blocks.

/// Units that a number may carry.
const UNITS: [&str; 10] = ["B", "KiB", "MiB", "GiB", "TiB", "ns", "µs", "ms", "s", "%"];

/// Every quantity of the text, once, as it stands there.
pub fn quantities(chapter: &str) -> Vec<String> {
    let text = outside_code(chapter);
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let number = pair[0].trim_start_matches(['(', '*', '"', '`']);
        let unit = pair[1].trim_end_matches([')', '*', '"', '`', '.', ',', ';', ':', '?', '!']);
        let quantity = format!("{number} {unit}");
        if number.parse::<f64>().is_ok() && UNITS.contains(&unit) && !found.contains(&quantity) {
            found.push(quantity);
        }
    }
    found
}

/// Does `evidence` hold the quantity, and not only as the end of a longer number?
pub fn holds(evidence: &str, quantity: &str) -> bool {
    evidence.match_indices(quantity).any(|(at, _)| {
        let before = evidence[..at].chars().next_back();
        let after = evidence[at + quantity.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_digit() || c == '.')
            && !after.is_some_and(char::is_alphanumeric)
    })
}

fn outside_code(chapter: &str) -> String {
    chapter.split("```").step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers_with_units_outside_code() {
        let chapter =
            "It asks 3 MiB (or `1.50 GiB`), 2 times.\n```text\n9 MiB\n```\nThen *3 MiB*; 7 %.";
        assert_eq!(quantities(chapter), ["3 MiB", "1.50 GiB", "7 %"]);
    }

    #[test]
    fn holds_wants_the_whole_number() {
        assert!(holds("asked 3 MiB, got", "3 MiB"));
        assert!(!holds("asked 13 MiB and 0.3 MiB", "3 MiB"));
        assert!(!holds("3 Bits", "3 B"));
    }
}
