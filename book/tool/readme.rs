//! Puts what commands print below the lines of README.md that name them.
//!
//! ````text
//! <!-- output of `vramlab list devices` -->             or: … (first 12 lines) -->, … (first 8 lines, last 3 lines) -->
//! ```text
//! what it printed on standard output; replaced each time
//! ```
//! ````

use std::error::Error;

const MARK: &str = "<!-- output of `";
const FENCE: &str = "```";

/// A marker line's command, and how many lines of its output to show from its beginning and its end; none: all.
fn parse_mark(line: &str) -> Option<(&str, Option<(usize, usize)>)> {
    let (command, rest) = line.strip_prefix(MARK)?.split_once('`')?;
    let count = |word: &str| -> Option<usize> {
        let (_, rest) = rest.split_once(word)?;
        rest.trim_start().split(' ').next()?.parse().ok()
    };
    Some((command, count("(first").map(|first| (first, count(", last").unwrap_or(0)))))
}

/// The text with every output fresh; `print` runs a command.
///
/// # Errors
/// When a command fails, or a block of output has no end.
pub fn refreshed(
    text: &str,
    mut print: impl FnMut(&str) -> Result<String, Box<dyn Error>>,
) -> Result<String, Box<dyn Error>> {
    let (mut fresh, mut lines) = (String::new(), text.lines().peekable());
    while let Some(line) = lines.next() {
        fresh.push_str(line);
        fresh.push('\n');
        let Some((command, counts)) = parse_mark(line) else { continue };
        if lines.peek().is_some_and(|next| next.starts_with(FENCE)) {
            lines.next();
            if !lines.by_ref().any(|line| line.trim_end() == FENCE) {
                return Err(format!("the output of `{command}` has no closing {FENCE}").into());
            }
        }
        let output = print(command)?;
        let all: Vec<&str> = output.trim_end().lines().map(str::trim_end).collect();
        let (first, last) = counts.unwrap_or((all.len(), 0));
        let left_out = all.len().saturating_sub(first + last);
        fresh.push_str("```text\n");
        for (i, line) in all.iter().enumerate() {
            if i < first || i >= first + left_out {
                fresh.push_str(line);
                fresh.push('\n');
            } else if i == first {
                fresh.push_str(&format!("… {left_out} lines more\n"));
            }
        }
        fresh.push_str("```\n");
    }
    Ok(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(text: &str) -> String {
        refreshed(text, |command| Ok(format!("ran {command}\n2\n3\n"))).expect("every block ends")
    }

    #[test]
    fn refreshed_fills_and_replaces_blocks() {
        let empty = "a\n<!-- output of `x y` -->\nb\n";
        let want = "a\n<!-- output of `x y` -->\n```text\nran x y\n2\n3\n```\nb\n";
        assert_eq!(fresh(empty), want);
        assert_eq!(fresh(&want.replace("ran", "old")), want);
    }

    #[test]
    fn refreshed_shows_as_many_lines_as_asked() {
        let want = "<!-- output of `x` (first 1 lines) -->\n```text\nran x\n… 2 lines more\n```\n";
        assert_eq!(fresh("<!-- output of `x` (first 1 lines) -->\n"), want);
        let mark = "<!-- output of `x` (first 1 lines, last 1 lines) -->\n";
        assert_eq!(fresh(mark), format!("{mark}```text\nran x\n… 1 lines more\n3\n```\n"));
        let mark = "<!-- output of `x` (first 3 lines, last 3 lines) -->\n";
        assert_eq!(fresh(mark), format!("{mark}```text\nran x\n2\n3\n```\n"));
    }

    #[test]
    fn refreshed_refuses_a_block_without_end() {
        let text = "<!-- output of `x` -->\n```text\nold\n";
        assert!(refreshed(text, |_| Ok(String::new())).is_err());
    }
}
