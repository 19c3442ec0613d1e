//! Cases whose input is a PyTorch snapshot, as JSON or as a pickle in hexadecimal.

use std::io::Write;

use serde_json::{Value, json};
use vramlab::inputs::{self, Opened};
use vramlab_sim::allocator::BlockState;
use vramlab_workloads::readers::recording::{Action, Entries};

use super::Tally;

/// Writes the input to a file, opens it as the command does, and checks what it holds.
pub(crate) fn run(
    id: &str,
    input: &Value,
    checks: &[&Value],
    tally: &mut Tally,
) -> Result<(), String> {
    let mut file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
    match input["pickle_hex"].as_str().or(input["hex"].as_str()) {
        Some(hex) => {
            let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
            let byte = |pair: &[char]| {
                u8::from_str_radix(&pair.iter().collect::<String>(), 16).map_err(|e| e.to_string())
            };
            let bytes: Vec<u8> = digits.chunks(2).map(byte).collect::<Result<_, _>>()?;
            file.write_all(&bytes).map_err(|e| e.to_string())?;
        }
        None => {
            file.write_all(input["snapshot"].to_string().as_bytes()).map_err(|e| e.to_string())?
        }
    }
    let opened = match inputs::open(file.path()) {
        Ok(opened) => opened,
        Err(failure) => {
            for check in checks {
                let wanted =
                    check["result"].as_str().or(check["value"].as_str()).unwrap_or_default();
                let refused = wanted.contains("error") || wanted.contains("refuse");
                tally.check(id, &json!({"value": true, "check": check}), &json!(refused));
                if !refused {
                    tally.differences.push(format!("{id}: refused with: {failure}"));
                }
            }
            return Ok(());
        }
    };
    let Opened::Snapshot(snapshot) = &opened else { return Err("no snapshot".to_owned()) };
    let device = snapshot.devices.first().ok_or("no device in it")?;
    let facts = Facts::of(device);
    for check in checks {
        match facts.get(check["field"].as_str().unwrap_or_default()) {
            Some(found) => tally.check(id, check, &found),
            None => {
                tally.skip(id, format!("{}: the field is not known to this runner", check["field"]))
            }
        }
    }
    Ok(())
}

/// Requested bytes over the window: at the start and after each request or free that changes them.
struct Facts {
    timeline: Vec<u64>,
    ghosts: Vec<Value>,
    free_only: Vec<Value>,
    active: u64,
}

impl Facts {
    fn of(device: &inputs::DeviceRecording) -> Self {
        let (recording, history) = (&device.recording, device.recording.entries());
        let start: u64 = recording.start_blocks().iter().map(|b| b.requested).sum();
        let (mut now, mut timeline) = (start, vec![start]);
        let (mut allocated, mut freed) = (Vec::new(), Vec::new());
        for entry in (0..history.len()).map(|i| history.entry(i)) {
            match entry.action {
                Action::Alloc => {
                    now += entry.size;
                    allocated.push(entry.addr);
                }
                Action::FreeRequested => {
                    now -= entry.size;
                    freed.push(entry.addr);
                }
                _ => continue,
            }
            timeline.push(now);
        }
        let block = |b: &vramlab_workloads::readers::recording::StartBlock| json!({"addr": b.addr, "size": b.requested});
        let start = recording.start_blocks().iter();
        let ghosts = start.clone().filter(|b| !freed.contains(&b.addr)).map(block).collect();
        let free_only = start.filter(|b| freed.contains(&b.addr)).map(block).collect();
        let used = device
            .end
            .segments
            .iter()
            .flat_map(|s| &s.blocks)
            .filter(|b| b.state != BlockState::Free);
        Self { timeline, ghosts, free_only, active: used.map(|b| b.size).sum() }
    }

    fn get(&self, field: &str) -> Option<Value> {
        Some(match field {
            "initial_bytes" => json!(self.timeline[0]),
            "timeline_bytes" => json!(self.timeline),
            "peak_bytes" => json!(self.timeline.iter().max()),
            "final_bytes" => json!(self.timeline.last()),
            "min_timeline_bytes" => json!(self.timeline.iter().min()),
            "ghost_blocks" => json!(self.ghosts),
            "free_only_blocks" => json!(self.free_only),
            "active_bytes_from_segments" => json!(self.active),
            _ => return None,
        })
    }
}
