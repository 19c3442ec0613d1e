//! The ops of a run that an experiment writes itself: lines, and lines that are repeated.

use super::experiment::Piece;

/// Most bytes of a run's ops.
const TEXT_MAX: usize = 16 << 20;

/// The number of a repetition, in its lines.
const NUMBER: &str = "{n}";

/// All lines, repetitions written out.
///
/// # Errors
/// When they are too many.
pub fn text(pieces: &[Piece]) -> Result<String, String> {
    let mut all = String::new();
    let mut add = |line: &str| {
        if all.len() + line.len() >= TEXT_MAX {
            return Err(format!("the ops are longer than {TEXT_MAX} B; repeat less"));
        }
        all.push_str(line);
        all.push('\n');
        Ok(())
    };
    for piece in pieces {
        match piece {
            Piece::One(line) => add(line)?,
            Piece::Again(again) if again.ops.is_empty() => {
                return Err("a repetition has no ops, expected one at least".to_owned());
            }
            Piece::Again(again) => {
                for number in (0..again.repeat).map(|turn| again.from.saturating_add(turn)) {
                    let number = number.to_string();
                    again.ops.iter().try_for_each(|line| add(&line.replace(NUMBER, &number)))?;
                }
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::experiment::Again;
    use super::*;

    fn again(repeat: u64, from: u64, ops: &[&str]) -> Piece {
        let ops = ops.iter().map(|line| (*line).to_owned()).collect();
        Piece::Again(Again { repeat, from, ops })
    }

    #[test]
    fn repetitions_are_written_out_with_their_numbers() {
        let pieces = [Piece::One("a".to_owned()), again(2, 7, &["b{n}", "c{n}{n}"])];
        assert_eq!(text(&pieces).as_deref(), Ok("a\nb7\nc77\nb8\nc88\n"));
    }

    #[test]
    fn endless_ops_are_refused_before_memory_is() {
        assert!(text(&[again(u64::MAX, 0, &["b{n}"])]).is_err());
        assert!(text(&[again(u64::MAX, 0, &[])]).is_err());
    }
}
