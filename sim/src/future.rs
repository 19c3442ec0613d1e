//! What a workload will ask of one device, for strategies that plan ahead.
//!
//! Only a source that declares its ops independent of answers ([`Source::independent`]) may be read ahead. A plan is keyed by ordinal (the
//! n-th request of the device), never by a buffer's id, and moments are ops of the device, counted from 0.

use crate::op::Op;
use crate::source::{Answered, Source, SourceError, Step};
use crate::units::{BufferId, Nanos, StreamId};

/// One request and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Bytes asked for.
    pub size: u64,
    /// The stream that asks.
    pub stream: StreamId,
    /// The op that asks.
    pub born: u64,
    /// The op that frees it; `None` if the workload ends before.
    pub freed: Option<u64>,
    /// Other streams use it too, or its free is deferred or ordered in another stream: the host's free is not the end of its uses.
    pub shared: bool,
}

/// A use of a buffer by work, or a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedUse {
    /// The op that uses it.
    pub op: u64,
    /// Which request's.
    pub ordinal: u32,
    /// Written, not only read.
    pub write: bool,
}

/// All that will be asked of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Future {
    /// The requests, by ordinal.
    pub requests: Vec<Life>,
    /// Uses, in the order of the ops.
    pub uses: Vec<PlannedUse>,
    /// Step and phase boundaries: the op, and the name.
    pub marks: Vec<(u64, Box<str>)>,
    /// New sequences of a cache: what they will ask of the allocator below is not known.
    pub sequences: u64,
    /// Number of ops.
    pub ops: u64,
}

impl Future {
    /// Reads `source` to its end; one future per device.
    ///
    /// # Errors
    /// When the input behind the source is bad.
    pub fn read(source: &mut dyn Source, devices: usize) -> Result<Vec<Self>, SourceError> {
        let mut futures = vec![Self::default(); devices];
        // Of each buffer: its device and ordinal. Work on another device cannot use it, which the engine says when it comes there.
        let mut live: Vec<Option<(usize, u32)>> = Vec::new();
        let mut device = 0;
        loop {
            let op = match source.next(Nanos(0), Answered::Done)? {
                Step::End => return Ok(futures),
                Step::WaitUntil(_) | Step::Op(Op::Thread { .. }) => continue,
                Step::Op(Op::Device { device: next }) => {
                    device = usize::from(next.0).min(devices.saturating_sub(1));
                    continue;
                }
                Step::Op(op) => op,
            };
            let at = futures[device].ops;
            futures[device].ops += 1;
            let slot = |id: BufferId| live.get(id.0 as usize).copied().flatten();
            match op {
                Op::Alloc { id, stream, size, .. } => {
                    let requests = &mut futures[device].requests;
                    let place = (device, requests.len() as u32);
                    requests.push(Life { size, stream, born: at, freed: None, shared: false });
                    let index = id.0 as usize;
                    if live.len() <= index {
                        live.resize(index + 1, None);
                    }
                    live[index] = Some(place);
                }
                Op::Free { id, .. } | Op::FreeCompleted { id } | Op::FreeDeferred { id } => {
                    if let Some((device, ordinal)) = slot(id) {
                        let life = &mut futures[device].requests[ordinal as usize];
                        life.shared |= match op {
                            Op::Free { stream: Some(stream), .. } => stream != life.stream,
                            Op::FreeDeferred { .. } => true,
                            _ => false,
                        };
                        life.freed = Some(at);
                        if !matches!(op, Op::FreeDeferred { .. }) {
                            live[id.0 as usize] = None;
                        }
                    }
                }
                Op::RecordStream { id, .. } => {
                    if let Some((device, ordinal)) = slot(id) {
                        futures[device].requests[ordinal as usize].shared = true;
                    }
                }
                Op::Realloc { id, size } => {
                    if let Some((device, ordinal)) = slot(id) {
                        let life = &mut futures[device].requests[ordinal as usize];
                        life.size = life.size.max(size);
                    }
                }
                Op::Work { .. } => {
                    for used in source.uses() {
                        if let Some((_, ordinal)) = slot(used.id).filter(|of| of.0 == device) {
                            let write = used.write;
                            futures[device].uses.push(PlannedUse { op: at, ordinal, write });
                        }
                    }
                }
                Op::Touch { id } => {
                    if let Some((_, ordinal)) = slot(id).filter(|of| of.0 == device) {
                        let write = source.touch().write;
                        futures[device].uses.push(PlannedUse { op: at, ordinal, write });
                    }
                }
                Op::KvNew { .. } => futures[device].sequences += 1,
                Op::Mark { name } => {
                    let name = source.text(name).into();
                    futures[device].marks.push((at, name));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::JsonlSource;

    /// Such a use was counted among those of the other device's requests.
    #[test]
    fn a_use_on_another_device_is_none() {
        let text = concat!(
            r#"{"op":"alloc","id":1,"size":100}"#,
            "\n",
            r#"{"op":"work","dur":5,"reads":[1],"device":1}"#,
            "\n",
        );
        let mut source = JsonlSource::new(text.as_bytes(), "text");
        let futures = Future::read(&mut source, 2).expect("reads");
        assert!(futures.iter().all(|future| future.uses.is_empty()), "{futures:?}");
    }

    #[test]
    fn a_life_has_its_ops_and_uses() {
        let text = concat!(
            r#"{"op":"alloc","id":7,"size":100}"#,
            "\n",
            r#"{"op":"alloc","id":8,"size":200,"stream":1}"#,
            "\n",
            r#"{"op":"work","stream":0,"dur":5,"reads":[7],"writes":[8]}"#,
            "\n",
            r#"{"op":"record_stream","id":8,"stream":0}"#,
            "\n",
            r#"{"op":"mark","name":"step"}"#,
            "\n",
            r#"{"op":"free","id":7}"#,
            "\n",
            r#"{"op":"alloc","id":7,"size":50}"#,
            "\n",
            r#"{"op":"free","id":7,"stream":2}"#,
            "\n",
        );
        let mut source = JsonlSource::new(text.as_bytes(), "text");
        let future = Future::read(&mut source, 1).expect("reads").remove(0);
        let life = |size, stream, born, freed, shared| Life {
            size,
            stream: StreamId(stream),
            born,
            freed,
            shared,
        };
        let want = [
            life(100, 0, 0, Some(5), false),
            life(200, 1, 1, None, true),
            life(50, 0, 6, Some(7), true),
        ];
        assert_eq!(future.requests, want);
        let uses: Vec<_> = future.uses.iter().map(|u| (u.op, u.ordinal, u.write)).collect();
        assert_eq!(uses, [(2, 0, false), (2, 1, true)]);
        assert_eq!((future.marks, future.ops), (vec![(4, "step".into())], 8));
    }
}
