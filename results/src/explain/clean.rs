//! Lines of a log as plain text: what a terminal, an editor or another country did to a message is undone.
//!
//! | rule | what it says |
//! |---|---|
//! | `escapes` | colour and cursor sequences (ECMA-48: `ESC [ … letter`, `ESC ] … BEL`) are dropped, other control characters become blanks |
//! | `utf8` | bytes that are no UTF-8 become a replacement character |
//! | `digits` | full-width, Arabic-Indic, Persian and Devanagari digits become ASCII; so do their decimal signs and full-width punctuation |
//! | `groups` | no-break, thin and narrow spaces between two digits are dropped, elsewhere they are blanks |
//! | `rank` | what launchers put in front (`[rank0]: `, `0: `, `(EngineCore pid=7) `) is dropped from the lines of a message |

/// Longest title of a terminal's window.
const TITLE_CHARS_MAX: usize = 256;

/// Plain text of a line.
pub fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                Some('[') => {
                    chars.next();
                    while chars.peek().is_some_and(|c| !('@'..='~').contains(c)) {
                        chars.next();
                    }
                    chars.next();
                }
                Some(']') => {
                    // a title, if it ends
                    let end = chars.clone().take(TITLE_CHARS_MAX).position(|c| c == '\u{7}');
                    for _ in 0..end.map_or(1, |end| end + 1) {
                        chars.next();
                    }
                }
                _ => plain.push(' '),
            },
            '\u{a0}' | '\u{2009}' | '\u{202f}' => {
                let digit = |c: Option<char>| c.is_some_and(|c| folded(c).is_ascii_digit());
                if !(digit(plain.chars().next_back()) && digit(chars.peek().copied())) {
                    plain.push(' ');
                }
            }
            c if invisible(c) => {}
            c if c.is_control() => plain.push(' '),
            c => plain.push(folded(c)),
        }
    }
    plain
}

/// Marks that show nothing or turn the direction of what follows.
const fn invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The ASCII character that stands for the same (rule `digits`).
fn folded(c: char) -> char {
    const ZEROS: [char; 4] = ['\u{660}', '\u{6f0}', '\u{966}', '\u{ff10}'];
    let digit = ZEROS.iter().find_map(|zero| {
        let value = u32::from(c).wrapping_sub(u32::from(*zero));
        (value < 10).then(|| char::from(b'0' + value as u8))
    });
    digit.unwrap_or(match c {
        '\u{66b}' => '.',
        '\u{66c}' => ',',
        // full-width punctuation and letters
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xff01 + 0x21).unwrap_or(c),
        '\u{3000}' => ' ',
        '\u{3002}' => '.',
        _ => c,
    })
}

/// Leaves off what a launcher put in front (rule `rank`).
pub fn without_rank(line: &str) -> &str {
    let trimmed = line.trim_start();
    let end = match trimmed.as_bytes().first() {
        Some(b'[') => trimmed.find("]: ").map(|at| at + 3).filter(|_| rank_word(&trimmed[1..])),
        Some(b'(') => trimmed.find(") ").map(|at| at + 2).filter(|_| trimmed.contains("pid=")),
        Some(b'0'..=b'9') => {
            let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
            trimmed[digits..].starts_with(": ").then_some(digits + 2)
        }
        _ => None,
    };
    end.map_or(line, |end| &trimmed[end..])
}

fn rank_word(text: &str) -> bool {
    ["rank", "default", "trainer", "worker"].iter().any(|word| text.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_adds_is_dropped() {
        assert_eq!(clean(b"\x1b[1;31mout\x1b[0m of\tmemory\x07\r"), "out of memory  ");
        assert_eq!(clean(b"\x1b]0;title\x07free \xff"), "free \u{fffd}");
        assert_eq!(clean("\u{202e}evil\u{200b}".as_bytes()), "evil");
        assert_eq!(clean(b"\x1b["), "");
    }

    #[test]
    fn numbers_of_other_countries_become_ascii() {
        assert_eq!(clean("1\u{202f}024,50\u{a0}MiB".as_bytes()), "1024,50 MiB");
        assert_eq!(clean("۱٫۵۰ GiB".as_bytes()), "1.50 GiB");
        assert_eq!(clean("（ＧＰＵ　０；".as_bytes()), "(GPU 0;");
    }

    #[test]
    fn ranks_in_front_are_left_off() {
        assert_eq!(without_rank("[rank0]: CUDA out"), "CUDA out");
        assert_eq!(without_rank("3: CUDA out"), "CUDA out");
        assert_eq!(without_rank("(EngineCore_0 pid=12) CUDA"), "CUDA");
        assert_eq!(without_rank("[info]: x"), "[info]: x");
        assert_eq!(without_rank("12 GiB"), "12 GiB");
    }
}
