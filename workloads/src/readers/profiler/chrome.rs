//! Memory events of a Chrome trace.

use std::borrow::Cow;
use std::io::Read;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;
use vramlab_sim::source::SourceError;

use super::objects::Objects;
use super::{DeviceKey, Kept, MemoryEvent, total};
use crate::readers::text::{Lines, Unit, from_json, nanos};

const MEMORY: &str = "[memory]";
const OUT_OF_MEMORY: &str = "[OutOfMemory]";

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Args {
    #[serde(rename = "Device Type")]
    device_type: i64,
    #[serde(rename = "Device Id")]
    device: i64,
    #[serde(rename = "Bytes")]
    bytes: i64,
    #[serde(rename = "Addr")]
    addr: Option<u64>,
    #[serde(rename = "Total Allocated")]
    allocated: Option<i64>,
    #[serde(rename = "Total Reserved")]
    reserved: Option<i64>,
}

/// Keeps the memory events of a trace; all other objects are stepped over.
pub(super) fn read<R: Read>(lines: Lines<R>, kept: &mut Kept) -> Result<(), SourceError> {
    let listed = lines.rest().trim_ascii_start().starts_with(b"[");
    let origin = lines.origin().to_owned();
    let mut objects = Objects::new(lines.into_input(), &origin, listed);
    let finders = [MEMORY, OUT_OF_MEMORY].map(Finder::new);
    while let Some(object) = objects.next()? {
        let text = objects.bytes(&object);
        if finders.iter().all(|finder| finder.find(text).is_none()) {
            continue;
        }
        let taken = event(text).and_then(|event| match event {
            Some((device, event)) => kept.keep(device, event),
            None => Ok(()),
        });
        taken.map_err(|what| objects.error(what))?;
    }
    Ok(())
}

/// The memory event that an object is, if it is one.
fn event(text: &[u8]) -> Result<Option<(DeviceKey, MemoryEvent)>, String> {
    let event: Event<'_> = from_json(text)?;
    let name = event.name.as_deref().unwrap_or_default();
    if ![MEMORY, OUT_OF_MEMORY].contains(&name) {
        return Ok(None);
    }
    let missing = |field| format!("found {name} without {field:?}, expected one");
    let ts = event.ts.ok_or_else(|| missing("ts"))?;
    let args = event.args.ok_or_else(|| missing("args"))?;
    let args: Args = from_json(args.get().as_bytes())?;
    let event = MemoryEvent {
        time: nanos(ts.get().as_bytes(), Unit::Micros).map_err(|what| format!("ts: {what}"))?,
        addr: args.addr.unwrap_or(0),
        bytes: args.bytes,
        allocated: args.allocated.and_then(total),
        reserved: args.reserved.and_then(total),
        failed: name == OUT_OF_MEMORY,
    };
    Ok(Some(((args.device_type, args.device), event)))
}
