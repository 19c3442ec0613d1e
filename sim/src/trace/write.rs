//! Writes a source's steps as JSON Lines.

use std::borrow::Cow;
use std::io::{self, Write};

use super::raw::{DIRECTIONS, RawKeys, RawOp};
use crate::op::Op;
use crate::source::{Source, Step};
use crate::units::DeviceId;

/// What the header line says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Header<'a> {
    /// Name of the workload.
    pub name: &'a str,
    /// Bytes that the recorded allocator could get, if that is known.
    pub capacity: Option<u64>,
    /// The most bytes that it held, if that is known.
    pub peak_reserved: Option<u64>,
    /// Whose rules it followed: the version of PyTorch, if it was PyTorch's.
    pub torch_version: Option<&'a str>,
    /// Its settings text, as `PYTORCH_CUDA_ALLOC_CONF` has it, unless all were defaults.
    pub conf: Option<&'a str>,
}

/// Writes one line an op. Ids are the source's own numbers.
pub struct JsonlWriter<W> {
    out: W,
    device: DeviceId,
    thread: u32,
    time: Option<u64>,
}

impl<W: Write> JsonlWriter<W> {
    /// Writes the header line.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn new(out: W, name: &str) -> io::Result<Self> {
        Self::with_header(out, &Header { name, ..Header::default() })
    }

    /// Writes the header line, with what is known of the device.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn with_header(mut out: W, header: &Header<'_>) -> io::Result<Self> {
        let mut line =
            serde_json::json!({"vramlab_trace": 1, "name": header.name, "unit": "bytes, ns"});
        for (field, bytes) in
            [("capacity", header.capacity), ("peak_reserved", header.peak_reserved)]
        {
            if let Some(bytes) = bytes {
                line[field] = bytes.into();
            }
        }
        for (field, text) in [("torch_version", header.torch_version), ("conf", header.conf)] {
            if let Some(text) = text {
                line[field] = text.into();
            }
        }
        writeln!(out, "{line}")?;
        Ok(Self { out, device: DeviceId(0), thread: 0, time: None })
    }

    /// Writes a step that `source` has just yielded.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn step(&mut self, step: &Step, source: &dyn Source) -> io::Result<()> {
        match step {
            Step::End => self.out.flush(),
            Step::WaitUntil(time) => {
                self.time = Some(time.0);
                Ok(())
            }
            Step::Op(Op::Device { device }) => {
                self.device = *device;
                Ok(())
            }
            Step::Op(Op::Thread { thread }) => {
                self.thread = *thread;
                Ok(())
            }
            Step::Op(op) => {
                let mut raw = to_raw(op, source);
                raw.device = self.device.0;
                raw.thread = self.thread;
                raw.t = self.time.take();
                serde_json::to_writer(&mut self.out, &raw)?;
                self.out.write_all(b"\n")
            }
        }
    }
}

fn to_raw<'a>(op: &Op, source: &'a dyn Source) -> RawOp<'a> {
    let mut raw = RawOp { op: Some(Cow::Borrowed(op.name())), ..RawOp::default() };
    match *op {
        Op::Alloc { id, stream, site, size } => {
            (raw.id, raw.size) = (Some(source.name(id)), Some(size));
            raw.stream = Some(stream.0).filter(|s| *s != 0);
            raw.site = Some(source.text(site)).filter(|s| !s.is_empty()).map(Cow::Borrowed);
        }
        Op::Free { id, stream } => {
            (raw.id, raw.stream) = (Some(source.name(id)), stream.map(|s| s.0))
        }
        Op::FreeDeferred { id } => (raw.id, raw.deferred) = (Some(source.name(id)), true),
        Op::FreeCompleted { id } => raw.id = Some(source.name(id)),
        Op::Realloc { id, size } => (raw.id, raw.size) = (Some(source.name(id)), Some(size)),
        Op::RecordStream { id, stream } => {
            (raw.id, raw.stream) = (Some(source.name(id)), Some(stream.0))
        }
        Op::Work { stream, duration } => {
            (raw.stream, raw.dur) = (Some(stream.0), Some(duration));
            raw.reads =
                source.uses().iter().filter(|u| !u.write).map(|u| source.name(u.id)).collect();
            raw.writes =
                source.uses().iter().filter(|u| u.write).map(|u| source.name(u.id)).collect();
        }
        Op::Copy { stream, direction, bytes } => {
            (raw.stream, raw.bytes) = (Some(stream.0), Some(bytes));
            raw.dir = DIRECTIONS
                .iter()
                .find(|(_, d)| *d == direction)
                .map(|(name, _)| Cow::Borrowed(*name));
        }
        Op::Touch { id } => {
            let range = source.touch();
            raw.id = Some(source.name(id));
            (raw.offset, raw.bytes, raw.write) = (range.offset, Some(range.bytes), range.write);
            raw.by = Some(Cow::Borrowed(if range.by_host { "host" } else { "device" }));
            raw.stream = (range.stream.0 > 0).then_some(range.stream.0);
        }
        Op::Event { event, stream } | Op::Wait { event, stream } => {
            (raw.event, raw.stream) = (Some(event.0), Some(stream.0))
        }
        Op::Sync { stream } => raw.stream = stream.map(|s| s.0),
        Op::EmptyCache | Op::Device { .. } | Op::Thread { .. } => {}
        Op::Trim { keep } => raw.keep = Some(keep),
        Op::PoolBegin { pool, stream } => (raw.pool, raw.stream) = (Some(pool.0), Some(stream.0)),
        Op::PoolEnd { pool } | Op::PoolRelease { pool } => raw.pool = Some(pool.0),
        Op::CaptureBegin { stream } | Op::CaptureEnd { stream } => raw.stream = Some(stream.0),
        Op::Set { key, value } => {
            raw.key = Some(Cow::Borrowed(source.text(key)));
            raw.value = Some(Cow::Borrowed(source.text(value)));
        }
        Op::KvNew { seq } | Op::KvMore { seq } => {
            let ask = source.kv();
            (raw.seq, raw.tokens) = (Some(source.sequence(seq)), Some(ask.tokens));
            raw.keys = ask.keys.iter().map(|run| RawKeys::new(*run)).collect();
            (raw.chunk, raw.headroom) = (ask.chunk, ask.headroom);
            (raw.watermark, raw.token_bytes) = (ask.watermark, ask.token_bytes);
            (raw.whole, raw.waits) = (ask.whole, ask.waits);
            (raw.layers, raw.longest) = (ask.layers, ask.longest);
        }
        Op::KvFork { seq, from } => {
            (raw.seq, raw.from) = (Some(source.sequence(seq)), Some(source.sequence(from)));
        }
        Op::KvFree { seq } => raw.seq = Some(source.sequence(seq)),
        Op::Request { req } | Op::Response { req } => raw.req = Some(req),
        Op::Mark { name } => raw.name = Some(Cow::Borrowed(source.text(name))),
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Answered;
    use crate::trace::JsonlSource;
    use crate::units::Nanos;

    /// Each op is written as it is read.
    #[test]
    fn text_round_trips() {
        let lines = [
            r#"{"op":"alloc","id":9,"size":512,"stream":1,"t":5,"site":"a.py:3"}"#,
            r#"{"op":"work","stream":1,"dur":10,"reads":[9]}"#,
            r#"{"op":"copy","stream":1,"bytes":4,"dir":"h2d"}"#,
            r#"{"op":"touch","id":9,"bytes":0,"by":"host"}"#,
            r#"{"op":"touch","id":9,"stream":3,"bytes":5,"by":"device"}"#,
            r#"{"op":"record_stream","id":9,"stream":2}"#,
            r#"{"op":"event","stream":1,"event":3}"#,
            r#"{"op":"wait","stream":2,"event":3}"#,
            r#"{"op":"sync"}"#,
            r#"{"op":"trim","keep":7}"#,
            r#"{"op":"pool_begin","stream":1,"pool":4}"#,
            r#"{"op":"set","key":"conf","value":"a:b"}"#,
            r#"{"op":"kv_new","seq":5,"tokens":20,"keys":[[3,0,16],7],"chunk":8,"whole":true,"headroom":0,"watermark":true,"waits":true,"token_bytes":131072,"layers":32,"longest":4096}"#,
            r#"{"op":"kv_more","seq":5,"tokens":2,"keys":[7]}"#,
            r#"{"op":"kv_fork","seq":6,"from":5}"#,
            r#"{"op":"kv_free","seq":5}"#,
            r#"{"op":"request","req":1}"#,
            r#"{"op":"mark","name":"step"}"#,
            r#"{"op":"free","id":9,"deferred":true}"#,
            r#"{"op":"free_completed","id":9}"#,
            r#"{"op":"empty_cache","device":1}"#,
        ];
        let text = lines.join("\n");
        let mut source = JsonlSource::new(text.as_bytes(), "t");
        let mut out = Vec::new();
        let mut writer = JsonlWriter::new(&mut out, "t").expect("writes");
        loop {
            let step = source.next(Nanos(0), Answered::Done).expect("reads");
            writer.step(&step, &source).expect("writes");
            if step == Step::End {
                break;
            }
        }
        let written = String::from_utf8(out).expect("UTF-8");
        assert_eq!(written.lines().skip(1).collect::<Vec<_>>(), lines);
    }
}
