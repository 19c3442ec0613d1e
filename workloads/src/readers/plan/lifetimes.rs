//! Lifetime logs: op of the request, op of the free, bytes.

use std::io::Read;

use vramlab_sim::source::SourceError;

use super::{Plan, PlanBuffer, keep};
use crate::readers::text::{Lines, found, whole};

/// Is the first line that is not empty three whole numbers, separated by blanks?
pub(in crate::readers) fn is_lifetime(text: &[u8]) -> bool {
    let line = text.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    line.is_some_and(|line| numbers(line).is_ok())
}

pub(super) fn read<R: Read>(mut lines: Lines<R>) -> Result<Plan, SourceError> {
    let mut plan = Plan::default();
    while lines.advance()? {
        let kept = numbers(lines.line()).and_then(|[lower, upper, size]| {
            let id = plan.buffers.len() as u64;
            keep(&mut plan, PlanBuffer { id, lower, upper, size })
        });
        kept.map_err(|what| lines.error(what))?;
    }
    Ok(plan)
}

fn numbers(line: &[u8]) -> Result<[u64; 3], String> {
    let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let mut numbers = [0; 3];
    for number in &mut numbers {
        let field = fields.next().ok_or_else(|| unlike(line))?;
        *number = whole(field)?;
    }
    match fields.next() {
        None => Ok(numbers),
        Some(_) => Err(unlike(line)),
    }
}

fn unlike(line: &[u8]) -> String {
    format!(
        "found {}, expected three numbers: op of the request, op of the free, bytes",
        found(line)
    )
}
