//! Operations of a golden trace: one JSON object a line; lines without `op` (headers) are passed over.

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TraceOp {
    Alloc { id: u64, size: u64, stream: u64 },
    Free { id: u64 },
    RecordStream { id: u64, stream: u64 },
    Complete { stream: u64 },
    CompleteAll,
    EmptyCache,
    ResetPeak,
    ResetAccumulated,
    SetMemoryFraction { fraction: f64 },
    OtherProcess { bytes: u64 },
    SetConf { conf: String },
    PoolBegin { pool: u64, stream: u64 },
    PoolEnd { pool: u64 },
    PoolRelease { pool: u64 },
    CaptureBegin { stream: u64 },
    CaptureEnd { stream: u64 },
}

impl TraceOp {
    fn parse(line: &Value) -> Result<Option<TraceOp>, String> {
        let Some(op) = line.get("op").and_then(Value::as_str) else { return Ok(None) };
        let whole = |field: &str| {
            let value = line.get(field).and_then(Value::as_u64);
            value.ok_or_else(|| {
                format!("{op}: expected a whole number in {field}, found {:?}", line.get(field))
            })
        };
        let stream = || line.get("stream").map_or(Ok(0), |_| whole("stream"));
        Ok(Some(match op {
            "alloc" => TraceOp::Alloc { id: whole("id")?, size: whole("size")?, stream: stream()? },
            "free" => TraceOp::Free { id: whole("id")? },
            "record_stream" => TraceOp::RecordStream { id: whole("id")?, stream: stream()? },
            "complete" => TraceOp::Complete { stream: stream()? },
            "complete_all" => TraceOp::CompleteAll,
            "empty_cache" => TraceOp::EmptyCache,
            "reset_peak" => TraceOp::ResetPeak,
            "reset_accumulated" => TraceOp::ResetAccumulated,
            "set_memory_fraction" => {
                let fraction = line.get("fraction").and_then(Value::as_f64);
                TraceOp::SetMemoryFraction {
                    fraction: fraction.ok_or("set_memory_fraction: expected a fraction")?,
                }
            }
            "other_process" => TraceOp::OtherProcess { bytes: whole("bytes")? },
            "set_conf" => {
                let conf =
                    line.get("conf").and_then(Value::as_str).ok_or("set_conf: expected a conf")?;
                TraceOp::SetConf { conf: conf.to_owned() }
            }
            "pool_begin" => TraceOp::PoolBegin { pool: whole("pool")?, stream: stream()? },
            "pool_end" => TraceOp::PoolEnd { pool: whole("pool")? },
            "pool_release" => TraceOp::PoolRelease { pool: whole("pool")? },
            "capture_begin" => TraceOp::CaptureBegin { stream: stream()? },
            "capture_end" => TraceOp::CaptureEnd { stream: stream()? },
            other => return Err(format!("expected an operation, found {other}")),
        }))
    }

    /// The line of the trace, without its end.
    pub(crate) fn line(&self) -> String {
        let value = match self {
            TraceOp::Alloc { id, size, stream } => {
                json!({"op": "alloc", "id": id, "size": size, "stream": stream})
            }
            TraceOp::Free { id } => json!({"op": "free", "id": id}),
            TraceOp::RecordStream { id, stream } => {
                json!({"op": "record_stream", "id": id, "stream": stream})
            }
            TraceOp::Complete { stream } => json!({"op": "complete", "stream": stream}),
            TraceOp::CompleteAll => json!({"op": "complete_all"}),
            TraceOp::EmptyCache => json!({"op": "empty_cache"}),
            TraceOp::ResetPeak => json!({"op": "reset_peak"}),
            TraceOp::ResetAccumulated => json!({"op": "reset_accumulated"}),
            TraceOp::SetMemoryFraction { fraction } => {
                json!({"op": "set_memory_fraction", "fraction": fraction})
            }
            TraceOp::OtherProcess { bytes } => json!({"op": "other_process", "bytes": bytes}),
            TraceOp::SetConf { conf } => json!({"op": "set_conf", "conf": conf}),
            TraceOp::PoolBegin { pool, stream } => {
                json!({"op": "pool_begin", "pool": pool, "stream": stream})
            }
            TraceOp::PoolEnd { pool } => json!({"op": "pool_end", "pool": pool}),
            TraceOp::PoolRelease { pool } => json!({"op": "pool_release", "pool": pool}),
            TraceOp::CaptureBegin { stream } => json!({"op": "capture_begin", "stream": stream}),
            TraceOp::CaptureEnd { stream } => json!({"op": "capture_end", "stream": stream}),
        };
        value.to_string()
    }
}

/// Reads the text of a trace.
pub(crate) fn read_trace(text: &str) -> Result<Vec<TraceOp>, String> {
    let mut ops = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let value =
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        ops.extend(
            TraceOp::parse(&value).map_err(|error| format!("line {}: {error}", number + 1))?,
        );
    }
    Ok(ops)
}
