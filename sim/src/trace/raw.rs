//! One line of the text form, before ids become slots.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::kv::KeyRun;
use crate::machine::Direction;

/// A line with every field that any op has.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct RawOp<'a> {
    #[serde(borrow)]
    pub op: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vramlab_trace: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<u32>,
    #[serde(skip_serializing_if = "is_default")]
    pub device: u16,
    #[serde(skip_serializing_if = "is_default")]
    pub thread: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub site: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_default")]
    pub deferred: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub dir: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "is_default")]
    pub offset: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub write: bool,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub by: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<u32>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub value: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub req: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<RawKeys>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub watermark: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub waits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
}

/// Tokens as they are written: `7` is one token of a vocabulary, `[3,0,512]` are 512 tokens of stream 3 from its first on.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "keys: expected numbers and runs [stream, first, count]")]
pub(super) enum RawKeys {
    Token(u64),
    Run(u64, u64, u64),
}

impl RawKeys {
    pub(super) const fn new(run: KeyRun) -> Self {
        match run {
            KeyRun { stream, first: 0, count: 1 } => Self::Token(stream),
            KeyRun { stream, first, count } => Self::Run(stream, first, count),
        }
    }

    pub(super) const fn get(self) -> KeyRun {
        match self {
            Self::Token(key) => KeyRun::token(key),
            Self::Run(stream, first, count) => KeyRun { stream, first, count },
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Every op of the text form, for messages.
pub(super) const OPS: &str = "alloc, free, free_completed, realloc, record_stream, work, use, copy, touch, event, wait, sync, empty_cache, \
     trim, pool_begin, pool_end, pool_release, capture_begin, capture_end, kv_new, kv_more, kv_fork, kv_free, set, request, response, mark";

/// Text of each direction.
pub(super) const DIRECTIONS: [(&str, Direction); 5] = [
    ("h2d", Direction::HostToDevice),
    ("d2h", Direction::DeviceToHost),
    ("d2d", Direction::DeviceToDevice),
    ("p2p", Direction::PeerToPeer),
    ("disk", Direction::Disk),
];
