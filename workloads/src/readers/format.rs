//! Tells a file's format by its content.
//!
//! | what comes first | format |
//! |---|---|
//! | an object in JSON with `op` or `vramlab_trace` in its line | our JSON Lines |
//! | an object or list in JSON with words of a Chrome trace | the profiler's trace |
//! | an object in JSON with lengths in tokens in its line | requests |
//! | another object or list of objects in JSON with words of a snapshot in the first 64 KiB, or no text | PyTorch snapshot |
//! | a list of lists of numbers | the profiler's memory timeline |
//! | a line of names, separated by commas | the table whose columns it has |
//! | three numbers in a line | lifetime log |
//! | words of a BFC dump, or the title of a memory summary, in the first 64 KiB | that state |

use super::{plan, requests, sizes, states};

/// How much of a file is looked at, in bytes.
pub const HEAD_BYTES: u64 = 64 << 10;

/// A recorded format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named and described by FORMATS
pub enum Format {
    Trace,
    SnapshotPickle,
    SnapshotJson,
    ProfilerTrace,
    ProfilerList,
    RmmLog,
    StaticPlan,
    Lifetimes,
    Requests,
    Sizes,
    Timeline,
    BfcDump,
    MemorySummary,
}

/// What a file of a format has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// Requests and frees: it can be replayed.
    Ops,
    /// Requests to a server of a language model.
    Requests,
    /// Sizes for text recognition.
    Sizes,
    /// The state of an allocator at a moment, or over time.
    State,
}

/// A format, as lists show it.
#[derive(Clone, Copy, Debug)]
pub struct FormatDoc {
    /// Which.
    pub format: Format,
    /// Its name.
    pub name: &'static str,
    /// What kind of thing is in it.
    pub carries: Carries,
    /// In one line.
    pub summary: &'static str,
}

/// All formats; each may be compressed (`.gz`, `.zst`).
pub const FORMATS: [FormatDoc; 13] = [
    entry(Format::Trace, "vramlab JSON Lines", Carries::Ops, "every op of ours"),
    entry(
        Format::SnapshotPickle,
        "PyTorch snapshot, pickle",
        Carries::Ops,
        "requests, frees, segments, settings, stacks; no work, no uses",
    ),
    entry(Format::SnapshotJson, "PyTorch snapshot, JSON", Carries::Ops, "the same content as JSON"),
    entry(
        Format::ProfilerTrace,
        "PyTorch profiler trace",
        Carries::Ops,
        "its [memory] events: sizes of blocks, frees, times, totals; no streams, no work",
    ),
    entry(
        Format::ProfilerList,
        "PyTorch profiler events, CSV",
        Carries::Ops,
        "the same events as a table (ts_us, device_type, device_id, addr, bytes, …)",
    ),
    entry(
        Format::RmmLog,
        "RMM log, CSV",
        Carries::Ops,
        "requests, failures, frees, streams, times (Thread,Time,Action,Pointer,Size,Stream)",
    ),
    entry(
        Format::StaticPlan,
        "static plan, CSV",
        Carries::Ops,
        "sizes and lives (id,lower,upper,size), offsets and alignments where given; order, no times",
    ),
    entry(
        Format::Lifetimes,
        "lifetime log",
        Carries::Ops,
        "op of the request, op of the free, bytes; order, no times",
    ),
    entry(
        Format::Requests,
        "LLM requests, CSV or JSON Lines",
        Carries::Requests,
        "arrivals, tokens in and out, shared prefixes (Azure, BurstGPT, Vidur, LLMServingSim, Mooncake, vLLM bench)",
    ),
    entry(
        Format::Sizes,
        "OCR sizes, CSV",
        Carries::Sizes,
        "width and height of pages, lines or crops, letters of a line",
    ),
    entry(
        Format::Timeline,
        "PyTorch memory timeline, JSON",
        Carries::State,
        "bytes by category over time, or the raw events",
    ),
    entry(
        Format::BfcDump,
        "TensorFlow BFC dump",
        Carries::State,
        "bins, chunks, regions and counters at a failure",
    ),
    entry(
        Format::MemorySummary,
        "PyTorch memory summary",
        Carries::State,
        "the table of memory_summary(): now, peak, sums, by pool",
    ),
];

const fn entry(
    format: Format,
    name: &'static str,
    carries: Carries,
    summary: &'static str,
) -> FormatDoc {
    FormatDoc { format, name, carries, summary }
}

impl Format {
    /// Its line in lists.
    pub fn doc(self) -> &'static FormatDoc {
        FORMATS.iter().find(|doc| doc.format == self).unwrap_or(&FORMATS[0])
    }
}

/// Columns that tell a table: of each group one must be there.
const TABLES: [(Format, &[&[&str]]); 5] = [
    (Format::RmmLog, &[&["Action"], &["Pointer"], &["Size"]]),
    (Format::StaticPlan, &[&plan::csv::ID, &plan::csv::LOWER, &plan::csv::UPPER, &["size"]]),
    (Format::ProfilerList, &[&["ts_us"], &["device_type"], &["device_id"], &["bytes"]]),
    (Format::Requests, &[&requests::table::PROMPT, &requests::table::OUTPUT]),
    (Format::Sizes, &[&sizes::WIDTHS, &sizes::HEIGHTS]),
];

/// Words of a Chrome trace, near its beginning.
const CHROME: [&str; 5] = [
    "\"traceEvents\"",
    "\"schemaVersion\"",
    "\"deviceProperties\"",
    "\"displayTimeUnit\"",
    "\"ph\"",
];
/// Words of a snapshot in JSON: of the whole, of a segment, of an entry.
const SNAPSHOT: [&str; 5] =
    ["\"segments\"", "\"device_traces\"", "\"address\"", "\"addr\"", "\"total_size\""];
/// Fields of requests in JSON Lines.
const REQUEST: [&str; 4] =
    ["\"input_length\"", "\"input_toks\"", "\"prompt_tokens\"", "\"num_prefill_tokens\""];

/// The format of a file that begins so; `None` if it is text of none of them. Of empty input it is none, too.
pub fn detect(head: &[u8]) -> Option<Format> {
    let Ok(text) = std::str::from_utf8(cut(head)) else {
        return Some(Format::SnapshotPickle).filter(|_| !head.starts_with(b"\xef\xbb\xbf"));
    };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let line = text.lines().next()?;
    let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    if text.bytes().any(|byte| byte < b' ' && !byte.is_ascii_whitespace() && byte != 0x1b) {
        return Some(Format::SnapshotPickle);
    }
    let json = text.starts_with('{') || text.starts_with('[');
    if json
        && has(text, &CHROME)
        && !has(line, &["\"op\"", "\"vramlab_trace\"", "\"device_traces\""])
    {
        return Some(Format::ProfilerTrace);
    }
    if text.starts_with('{') {
        return match () {
            () if has(line, &["\"op\"", "\"vramlab_trace\""]) => Some(Format::Trace),
            () if has(line, &REQUEST) => Some(Format::Requests),
            () if has(text, &SNAPSHOT) && !is_lines(text) => Some(Format::SnapshotJson),
            () => None,
        };
    }
    if let Some(inside) = text.strip_prefix('[') {
        let inside = inside.trim_start();
        let lists = inside.starts_with('[') || inside.starts_with(']');
        return match () {
            () if lists => Some(Format::Timeline),
            () if inside.is_empty() || has(text, &SNAPSHOT) => Some(Format::SnapshotJson),
            () => None,
        };
    }
    if states::bfc::is_dump(head) {
        return Some(Format::BfcDump);
    }
    if states::summary::is_summary(head) {
        return Some(Format::MemorySummary);
    }
    if plan::is_lifetime(text.as_bytes()) {
        return Some(Format::Lifetimes);
    }
    table(line)
}

/// Is there something behind a first line that is an object of its own?
fn is_lines(text: &str) -> bool {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    let object = || serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok();
    !rest.trim_ascii_start().is_empty() && object()
}

/// Most names that are shown of what a file seems to be.
const NAMES_SHOWN: usize = 8;

/// What a file of no format seems to be, by its beginning: for messages.
pub fn seems(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(cut(head));
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let line = text.lines().next().unwrap_or_default();
    let list = |names: &[&str]| {
        let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
        format!("{}{more}", names[..names.len().min(NAMES_SHOWN)].join(", "))
    };
    let object: Option<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_str(line).ok();
    if let Some(object) = object {
        let names: Vec<&str> = object.keys().map(String::as_str).collect();
        return format!("JSON Lines with the fields {}", list(&names));
    }
    if text.starts_with('{') || text.starts_with('[') {
        return "JSON that has no segments, no history and no events".to_owned();
    }
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    let word = |name: &&str| !name.is_empty() && name.parse::<f64>().is_err();
    if columns.len() > 1 && columns.iter().all(word) {
        return format!("a table with the columns {}", list(&columns));
    }
    format!("text that begins with {:?}", text.chars().take(40).collect::<String>())
}

/// The table that has these columns.
fn table(line: &str) -> Option<Format> {
    let columns: Vec<&str> =
        line.split(',').map(|name| name.trim().trim_matches('"').trim()).collect();
    let has = |names: &&[&str]| {
        names.iter().any(|name| columns.iter().any(|column| column.eq_ignore_ascii_case(name)))
    };
    TABLES.iter().find(|(_, groups)| groups.iter().all(has)).map(|(format, _)| *format)
}

/// Without the character at the end that the cut may have gone through.
fn cut(head: &[u8]) -> &[u8] {
    match std::str::from_utf8(head) {
        Err(error) if error.error_len().is_none() => &head[..error.valid_up_to()],
        _ => head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_told_by_its_beginning() {
        for (text, format) in [
            ("{\"vramlab_trace\":1}\n", Format::Trace),
            ("\u{feff}\r\n{\"op\":\"alloc\",\"id\":1,\"size\":2,\"site\":\"ph\"}\n", Format::Trace),
            ("{\"segments\": [], \"device_traces\": []}", Format::SnapshotJson),
            ("[{\"address\": 1, \"total_size\": 2}]", Format::SnapshotJson),
            ("{\n  \"schemaVersion\": 1,", Format::ProfilerTrace),
            ("[{\"ph\": \"i\", \"name\": \"[memory]\"}", Format::ProfilerTrace),
            ("seq,ts_us,thread,device_type,device_id,addr,bytes\n", Format::ProfilerList),
            ("Thread,Time,Action,Pointer,Size,Stream\n", Format::RmmLog),
            ("\u{feff}size,\"end\",start,buffer\r\n", Format::StaticPlan),
            ("0 381 92928\n", Format::Lifetimes),
            ("TIMESTAMP,ContextTokens,GeneratedTokens\n", Format::Requests),
            ("{\"timestamp\": 0, \"input_length\": 6758}", Format::Requests),
            ("image_index,line_width,line_height,text_len\n", Format::Sizes),
            ("[[-1, 1, 37888, 7]", Format::Timeline),
            ("x bfc_allocator.cc:627] Bin (256):", Format::BfcDump),
            ("hello\n|  PyTorch CUDA memory summary, device ID 0   |", Format::MemorySummary),
            ("\u{0}\u{1}", Format::SnapshotPickle),
        ] {
            assert_eq!(detect(text.as_bytes()), Some(format), "{text}");
        }
        assert_eq!(detect(b"\x80\x04\x95\xff"), Some(Format::SnapshotPickle));
        assert_eq!(
            detect("{\"op\": \"é".as_bytes().split_last().expect("some").1),
            Some(Format::Trace)
        );
        for text in
            ["", "\n", "hello", "a,b,c\n1,2,3", "1 2\n", "{\"a\": 1}\n{\"addr\": 2}\n", "[5]"]
        {
            assert_eq!(detect(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_no_format_is_told_by_its_names() {
        for (text, told) in [
            (
                "\u{feff}{\"message\": \"x\", \"source\": 1}\n{\"a\"",
                "JSON Lines with the fields message, source",
            ),
            ("{\n \"model\": 1,", "JSON that has no segments, no history and no events"),
            (
                "t,running,kv_cache_pct\r\n1.0,5,2\n",
                "a table with the columns t, running, kv_cache_pct",
            ),
            ("1,2\n", "text that begins with \"1,2\\n\""),
            ("hello", "text that begins with \"hello\""),
        ] {
            assert_eq!(seems(text.as_bytes()), told);
        }
    }

    #[test]
    fn each_format_is_listed() {
        for doc in FORMATS {
            assert_eq!(doc.format.doc().name, doc.name);
        }
    }
}
