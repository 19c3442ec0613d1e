//! Files are opened by their content.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use vramlab_sim::trace::not_utf8;
use vramlab_sim::units;
use vramlab_workloads::readers::bytes::{self, Bytes};
use vramlab_workloads::readers::format::{Carries, Format, HEAD_BYTES, detect, seems};
use vramlab_workloads::readers::torch_history::check_ranges;
use vramlab_workloads::readers::torch_snapshot as torch;

use super::{LogInput, Made, Opened, Recorded, SnapshotInput, file_name};
use crate::failure::Failure;

/// A file of which the format is known, and nothing is read yet.
pub struct Begun {
    /// Its content, decompressed.
    pub input: Bytes,
    head: Vec<u8>,
    /// Told by its content; `None` if it is text of none.
    pub format: Option<Format>,
}

/// Looks at the beginning of a file.
///
/// # Errors
/// A file that cannot be read, is empty, or is text of another encoding than UTF-8.
pub fn begin(path: &Path) -> Result<Begun, Failure> {
    let mut input = bytes::open(path).map_err(Failure::input)?;
    let named =
        |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let head = input.head(HEAD_BYTES).map_err(|e| named(&e))?;
    if head.is_empty() {
        return Err(named(&format!("the file is empty; expected {KNOWN}")));
    }
    if let Some(what) = not_utf8(&head) {
        return Err(named(&what));
    }
    let format = detect(&head);
    Ok(Begun { input, head, format })
}

/// The text of a small regular file that is no recording: a device, a set-up.
///
/// # Errors
/// A file that cannot be read, is none (a pipe, a folder), is longer than `most` bytes, or is no UTF-8; `expected` says what it should be.
pub fn small_text(path: &Path, most: units::Bytes, expected: &str) -> Result<String, Failure> {
    let bad = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let file = File::open(path).map_err(|e| bad(e.to_string()))?;
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Err(bad(format!("found no regular file, expected {expected}")));
    }
    let mut text = Vec::new();
    file.take(most.0 + 1).read_to_end(&mut text).map_err(|e| bad(e.to_string()))?;
    if text.len() as u64 > most.0 {
        return Err(bad(format!("found more than {most}, expected {expected}")));
    }
    String::from_utf8(text).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        bad(format!(
            "byte {at}: found bytes that are no UTF-8, expected {expected} as text in UTF-8"
        ))
    })
}

/// What a file may be, for messages.
const KNOWN: &str =
    "a recording, such as a PyTorch snapshot or JSON Lines of ops; vramlab list formats has all";

/// Are there words of a program that ran out of memory?
fn is_message(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    ["out of memory", "resource_exhausted", "oom when"].iter().any(|words| text.contains(words))
}

/// Does the file lie beside others of a measured run, or beside the recording whose set-up it is?
fn is_of_measured(path: &Path) -> bool {
    let name = file_name(path);
    let run = ["_meta.json", "_timeseries.csv"].iter().find_map(|ending| name.strip_suffix(ending));
    let requests = run.map(|run| path.with_file_name(format!("{run}_requests.jsonl")));
    let setup = name.strip_suffix(".json").map(|name| format!("{name}.pickle.gz"));
    let recording = setup.map(|name| path.with_file_name(name));
    requests.is_some_and(|path| path.is_file()) || recording.is_some_and(|path| path.is_file())
}

/// Opens a file and tells its format by its content.
///
/// # Errors
/// A file that cannot be read, is damaged, or is of no known format.
pub fn open(path: &Path) -> Result<Opened, Failure> {
    open_begun(path, begin(path)?)
}

/// Opens a file of which the format is known.
///
/// # Errors
/// A file that cannot be read, is damaged, or has nothing to be replayed.
pub fn open_begun(path: &Path, begun: Begun) -> Result<Opened, Failure> {
    let Begun { mut input, head, format } = begun;
    let named =
        |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let Some(format) = format else {
        let hint = if is_of_measured(path) {
            "; vramlab measured takes the folder that it lies in"
        } else if is_message(&head) {
            "; vramlab explain reads messages of programs that ran out of memory"
        } else {
            ""
        };
        return Err(named(&format!("found {}, expected {KNOWN}{hint}", seems(&head))));
    };
    match format {
        Format::Trace => {
            let kept = kept(path, &mut input)?;
            let (recorded, made) = header(&head);
            let (name, path) = (file_name(path), path.to_owned());
            Ok(Opened::Trace { name, path, kept, recorded, made })
        }
        Format::SnapshotPickle | Format::SnapshotJson => {
            let snapshot = torch::read(input).map_err(|e| named(&e))?;
            check_ranges(&snapshot).map_err(|e| named(&e))?;
            Ok(Opened::Snapshot(SnapshotInput::new(path, snapshot)))
        }
        other if other.doc().carries == Carries::Ops => {
            Ok(Opened::Log(LogInput::read(path, other, input)?))
        }
        other => {
            let name = other.doc().name;
            let what = format!(
                "found {name}, expected requests and frees to replay; vramlab inspect shows what is in it"
            );
            Err(named(&what))
        }
    }
}

/// The content, if it comes through a pipe: it cannot be read again.
pub(super) fn kept(path: &Path, input: &mut Bytes) -> Result<Option<Vec<u8>>, Failure> {
    if std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
        return Ok(None);
    }
    let mut content = Vec::new();
    let read = input.read_to_end(&mut content);
    read.map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    Ok(Some(content))
}

fn first_line(text: &str) -> &str {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.lines().next().unwrap_or_default()
}

/// What the header of our JSON Lines says of the device and the allocator, if the first line is one.
fn header(start: &[u8]) -> (Recorded, Made) {
    let text = String::from_utf8_lossy(start);
    let line: serde_json::Value = serde_json::from_str(first_line(&text)).unwrap_or_default();
    if line.get("vramlab_trace").is_none() {
        return Default::default();
    }
    let bytes = |field: &str| line.get(field).and_then(serde_json::Value::as_u64);
    let text = |field: &str| line.get(field).and_then(|v| v.as_str()).map(str::to_owned);
    let recorded = Recorded { capacity: bytes("capacity"), peak_reserved: bytes("peak_reserved") };
    let torch_version = text("torch_version");
    (recorded, Made { torch_version, conf: text("conf").unwrap_or_default() })
}
