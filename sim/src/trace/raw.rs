//! One line of the text form, before ids become slots.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

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
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Every op of the text form, for messages.
pub(super) const OPS: &str = "alloc, free, free_completed, realloc, record_stream, work, use, copy, touch, event, wait, sync, empty_cache, \
     trim, pool_begin, pool_end, pool_release, capture_begin, capture_end, set, request, response, mark";

/// Text of each direction.
pub(super) const DIRECTIONS: [(&str, Direction); 5] = [
    ("h2d", Direction::HostToDevice),
    ("d2h", Direction::DeviceToHost),
    ("d2d", Direction::DeviceToDevice),
    ("p2p", Direction::PeerToPeer),
    ("disk", Direction::Disk),
];
