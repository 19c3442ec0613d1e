//! `--per-op`: one JSON line per op, `{"i":0,"op":"alloc","id":1,"ok":true,"kind":"m","segment":0,"offset":0,"block":512,…}`.
//!
//! `kind` and `segment` name the driver's range (`m0` is the first successful `cudaMalloc`, `r0` the first reserved range), `offset` is the
//! place in it, `block` the bytes set aside; `allocated`, `active`, `reserved` are the counts after the op.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use vramlab_sim::engine::{Observer, Outcome, Seen};
use vramlab_sim::op::Op;
use vramlab_sim::units::{BufferId, SequenceId};

use crate::failure::Failure;
use crate::output::Replacement;

/// Writes the lines to a file that takes its name at the end.
pub struct PerOp {
    path: PathBuf,
    out: Replacement,
    error: Option<std::io::Error>,
}

impl PerOp {
    /// Opens a file beside `path`.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let out = Replacement::create(path).map_err(|f| f.with_option("--per-op"))?;
        Ok(Self { path: path.to_owned(), out, error: None })
    }

    /// Puts the whole file in place.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> Result<(), Failure> {
        match self.error {
            Some(error) => Err(Failure::write(&self.path, &error)),
            None => self.out.finish(),
        }
        .map_err(|f| f.with_option("--per-op"))
    }
}

/// The buffer that an op names.
fn buffer(op: &Op) -> Option<BufferId> {
    match *op {
        Op::Alloc { id, .. }
        | Op::Free { id, .. }
        | Op::FreeDeferred { id }
        | Op::FreeCompleted { id }
        | Op::Realloc { id, .. }
        | Op::RecordStream { id, .. }
        | Op::Touch { id } => Some(id),
        _ => None,
    }
}

/// The sequence that an op names.
fn sequence(op: &Op) -> Option<SequenceId> {
    match *op {
        Op::KvNew { seq } | Op::KvMore { seq } | Op::KvFork { seq, .. } | Op::KvFree { seq } => {
            Some(seq)
        }
        _ => None,
    }
}

impl Observer for PerOp {
    fn after(&mut self, seen: &Seen<'_>) {
        let mut line = Map::new();
        line.insert("i".into(), json!(seen.index));
        line.insert("op".into(), json!(seen.op.name()));
        if let Some(id) = buffer(seen.op) {
            line.insert("id".into(), json!(seen.source.name(id)));
        }
        if let Some(seq) = sequence(seen.op) {
            line.insert("seq".into(), json!(seen.source.sequence(seq)));
        }
        let refused = matches!(seen.outcome, Outcome::Refused(_) | Outcome::NoSlots(_));
        line.insert("ok".into(), json!(!refused));
        match seen.outcome {
            Outcome::Placed(placement) => {
                if let Some(origin) =
                    seen.machine.origin(placement.address).filter(|_| placement.size > 0)
                {
                    line.insert("kind".into(), json!(origin.kind.letter()));
                    line.insert("segment".into(), json!(origin.ordinal));
                    line.insert("offset".into(), json!(origin.offset));
                }
                line.insert("block".into(), json!(placement.size));
            }
            Outcome::Refused(error) => {
                line.insert("error".into(), json!(error.to_string()));
            }
            Outcome::Slots { hit, blocks } => {
                line.insert("hit".into(), json!(hit));
                line.insert("blocks".into(), json!(blocks));
            }
            Outcome::NoSlots(error) => {
                line.insert("error".into(), json!(error.to_string()));
            }
            Outcome::Skipped => {
                line.insert("skipped".into(), json!(true));
            }
            Outcome::Done => {}
        }
        for (name, value) in [
            ("allocated", seen.usage.allocated),
            ("active", seen.usage.active),
            ("reserved", seen.held.reserved),
        ] {
            line.insert(name.into(), json!(value));
        }
        if self.error.is_none() {
            self.error = writeln!(self.out, "{}", Value::Object(line)).err();
        }
    }
}
