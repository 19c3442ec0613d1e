//! Small snapshots, as JSON and pickled; forms, errors, warnings.

use serde_json::{Value, json};

use super::pickler::pickled;
use super::*;

/// What a snapshot says, without numbers that depend on the order in which things were met.
pub(super) fn told(snapshot: &Snapshot) -> String {
    let mut text = format!("{:?} {:?}\n", snapshot.form, snapshot.settings);
    let stack = |id: Option<StackId>| {
        let frames = id.into_iter().flat_map(|id| snapshot.frames(id));
        let frames: Vec<String> =
            frames.map(|f| format!("{}:{}:{}", f.filename, f.line, f.name)).collect();
        frames.join(" < ")
    };
    for (device, trace) in snapshot.traces.iter().enumerate() {
        text += &format!("device {device}\n");
        for e in trace.iter() {
            let tag = snapshot.tag(e.tag).expect("a tag");
            let word = |id: Option<_>| id.map(|id| snapshot.text(id).to_owned());
            text += &format!(
                "{} {:?} {} {:?} {:?} stream {} pool {:?} {:?} {:?} {}\n",
                snapshot.action_name(e.action),
                e.addr,
                e.size,
                e.time_us,
                e.device_free,
                tag.stream,
                tag.pool,
                word(tag.user_metadata),
                word(tag.compile_context),
                stack(e.stack)
            );
        }
    }
    for segment in &snapshot.segments {
        let plain = Segment { stack: None, ..segment.clone() };
        text += &format!("{plain:?} {}\n", stack(segment.stack));
        for block in snapshot.blocks_of(segment) {
            let plain = Block { stack: None, ..*block };
            text += &format!("{plain:?} {}\n", stack(block.stack));
        }
    }
    text + &format!("{:?}", snapshot.warnings)
}

/// Reads one snapshot in three ways, which must tell the same.
#[track_caller]
fn read_all(value: &Value) -> Snapshot {
    let from_json = from_slice(value.to_string().as_bytes()).expect("json");
    let whole = from_slice(&pickled(value, false)).expect("pickle");
    let by_key = from_slice(&pickled(value, true)).expect("pickle, key by key");
    assert_eq!(told(&whole), told(&from_json));
    assert_eq!(told(&by_key), told(&from_json));
    whole
}

#[track_caller]
fn check_error(value: &Value, expected: &str) {
    for (way, bytes) in [
        ("json", value.to_string().into_bytes()),
        ("pickle", pickled(value, false)),
        ("key by key", pickled(value, true)),
    ] {
        let error = from_slice(&bytes).expect_err(way).to_string();
        assert_eq!(error.split(" (near").next(), Some(expected), "as {way}");
    }
}

fn frame(line: i64) -> Value {
    json!({"name": "forward", "filename": "model.py", "line": line})
}

fn entry(action: &str, addr: u64, size: u64) -> Value {
    json!({"action": action, "addr": addr, "size": size, "stream": 0, "frames": [frame(3), frame(9)]})
}

/// One segment with a live block and a free one, and the request that made it.
pub(super) fn small() -> Value {
    json!({
        "segments": [{
            "device": 0, "address": 4096, "total_size": 2048, "allocated_size": 512,
            "active_size": 512, "requested_size": 500, "stream": 7, "segment_type": "small",
            "segment_pool_id": [0, 1], "is_expandable": true, "frames": [],
            "blocks": [
                {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [frame(3)]},
                {"address": 4608, "size": 1536, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        }],
        "device_traces": [[
            {"action": "segment_map", "addr": 4096, "size": 2048, "stream": 7, "time_us": 10, "frames": []},
            {"action": "alloc", "addr": 4096, "size": 500, "stream": 7, "time_us": 11, "pool_id": [0, 1],
             "compile_context": "N/A", "user_metadata": "step 1", "frames": [frame(3), frame(-1)]},
            {"action": "oom", "device_free": 99, "size": 1_u64 << 33, "stream": 7, "time_us": 12},
        ], []],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": true,
            "max_split_size": -1, "garbage_collection_threshold": 0.5,
            "roundup_power2_divisions": {"1": 0, "32768": 4}, "max_round_threshold": -1,
        },
        "external_annotations": [{"stage": "START", "name": "step", "device": 0, "time_us": 10}],
        "host_segments": [],
    })
}

#[test]
fn small_snapshot_is_read_with_every_field() {
    let snapshot = read_all(&small());
    assert_eq!(snapshot.warnings, []);
    assert_eq!(snapshot.traces.len(), 2);
    let alloc = snapshot.traces[0].get(1).expect("three entries");
    assert_eq!(
        (alloc.action, alloc.addr, alloc.size, alloc.time_us),
        (Action::Alloc, Some(4096), 500, Some(11))
    );
    let tag = snapshot.tag(alloc.tag).expect("a tag");
    assert_eq!((tag.stream, tag.pool), (7, Some(PoolId(0, 1))));
    assert_eq!(tag.user_metadata.map(|id| snapshot.text(id)), Some("step 1"));
    assert_eq!(tag.compile_context.map(|id| snapshot.text(id)), Some("N/A"));
    let lines: Vec<i32> =
        snapshot.frames(alloc.stack.expect("a stack")).map(|frame| frame.line).collect();
    assert_eq!(lines, [3, -1]);
    let oom = snapshot.traces[0].get(2).expect("three entries");
    assert_eq!((oom.action, oom.addr, oom.size), (Action::Oom, None, 1 << 33));
    assert_eq!((oom.device_free, oom.stack), (Some(99), None));
    let settings = snapshot.settings.as_ref().expect("settings");
    assert_eq!(settings.conf.as_deref(), Some("expandable_segments:True"));
    assert_eq!(settings.expandable_segments, Some(true));
    assert_eq!(settings.max_split_size, Some(-1));
    assert_eq!(settings.garbage_collection_threshold, Some(0.5));
    assert_eq!(settings.roundup_power2_divisions, [(1, 0), (32768, 4)]);
    assert_eq!(settings.other, [("max_round_threshold".to_owned(), "int -1".to_owned())]);
    assert_eq!(snapshot.annotations[0].stage, Stage::Start);
    assert_eq!(snapshot.text(snapshot.annotations[0].name), "step");
    assert_eq!(snapshot.host_segments, Some(0));
    let segment = &snapshot.segments[0];
    assert_eq!((segment.stream, segment.kind, segment.expandable), (7, SegmentKind::Small, true));
    assert_eq!(snapshot.blocks_of(segment)[1].state, BlockState::Inactive);
}

#[test]
fn stacks_are_kept_once() {
    let entries: Vec<Value> = (0..100).map(|i| entry("alloc", 4096 + 512 * i, 512)).collect();
    let snapshot = read_all(&json!({"segments": [], "device_traces": [entries]}));
    assert_eq!((snapshot.stacks.len(), snapshot.stacks.frame_count()), (1, 2));
    assert_eq!(snapshot.traces[0].bytes(), 100 * 26);
}

#[test]
fn list_form_and_empty_snapshots_are_read() {
    let list = read_all(&small()["segments"]);
    assert_eq!((list.form, list.segments.len(), list.traces.len()), (Form::SegmentList, 1, 0));
    assert_eq!(read_all(&json!([])).segments, []);
    let empty = read_all(&json!({"segments": [], "device_traces": [[], []]}));
    assert_eq!((empty.entry_count(), empty.traces.len()), (0, 2));
}

#[test]
fn blocks_of_2023_have_history_and_running_addresses() {
    let snapshot = read_all(&json!([{
        "device": 1, "address": 4096, "total_size": 2048, "allocated_size": 512, "active_size": 1024,
        "requested_size": 700, "stream": 0, "segment_type": "large",
        "blocks": [
            {"size": 512, "state": "active_allocated",
             "history": [{"addr": 4096, "real_size": 300, "frames": [frame(1)]}, {"addr": 4096, "real_size": 512}]},
            {"size": 512, "state": "active_awaiting_free", "requested_size": 400},
            {"size": 1024, "state": "inactive"},
        ],
    }]));
    assert_eq!(snapshot.warnings, []);
    let blocks = &snapshot.blocks;
    let addresses: Vec<u64> = blocks.iter().map(|block| block.address).collect();
    assert_eq!(addresses, [4096, 4608, 5120]);
    assert_eq!((blocks[0].requested_size, blocks[0].stack.is_some()), (Some(300), true));
    assert_eq!(blocks[1].state, BlockState::ActivePendingFree);
}

#[test]
fn addresses_above_2_63_are_the_same_from_both_signs() {
    let high = from_slice(b"\x80\x04](}(\x8c\x07addressV\x8a\x08\0\0\0\0\0\0\0\x80ue.");
    assert!(high.is_err(), "V takes a line");
    let minus =
        json!([{"device": 0, "address": i64::MIN, "total_size": 0, "segment_type": "small"}]);
    let plus =
        json!([{"device": 0, "address": 1_u64 << 63, "total_size": 0, "segment_type": "small"}]);
    for value in [minus, plus] {
        let snapshot = from_slice(value.to_string().as_bytes()).expect("json");
        assert_eq!(snapshot.segments[0].address, 1 << 63);
    }
}

#[test]
fn errors_name_the_path() {
    let mut snapshot = small();
    snapshot["device_traces"][0][1]["size"] = json!("big");
    let sizes = "expected bytes (int from 0 to 2^64-1)";
    check_error(&snapshot, &format!("device_traces[0][1].size: found str \"big\", {sizes}"));
    snapshot["device_traces"][0][1]["size"] = json!(-5);
    check_error(&snapshot, &format!("device_traces[0][1].size: found int -5, {sizes}"));
    let mut snapshot = small();
    snapshot["device_traces"][0][1].as_object_mut().expect("a dict").remove("addr");
    let address = "expected an address (int of at most 64 bits)";
    check_error(&snapshot, &format!("device_traces[0][1].addr: found no such key, {address}"));
    let mut snapshot = small();
    snapshot["device_traces"][0][1]["frames"][1]["line"] = json!("x");
    check_error(
        &snapshot,
        "device_traces[0][1].frames[1].line: found str \"x\", expected a line number (int)",
    );
    let mut snapshot = small();
    snapshot["device_traces"][0][1] = json!(7);
    check_error(&snapshot, "device_traces[0][1]: found int 7, expected a trace entry (dict)");
    let mut snapshot = small();
    snapshot["segments"][0]["blocks"][1]["state"] = json!("lost");
    check_error(
        &snapshot,
        "segments[0].blocks[1].state: found str \"lost\", expected active_allocated, \
         active_pending_free, active_awaiting_free or inactive",
    );
    let mut snapshot = small();
    snapshot["segments"][0]["device"] = json!(-1);
    check_error(
        &snapshot,
        "segments[0].device: found int -1, expected a device index (int from 0)",
    );
    check_error(
        &json!({"device_traces": []}),
        "segments: found no such key, expected a list of segments",
    );
    check_error(&json!([[]]), "[0]: found list of 0, expected a segment (dict)");
}

#[test]
fn errors_of_pickles_name_the_byte() {
    let bytes = pickled(&json!({"segments": [{"address": 1}]}), false);
    let error = from_slice(&bytes).expect_err("no device").to_string();
    // The opcode that fills the segment's dict.
    let at = bytes.iter().position(|byte| *byte == b'u').expect("SETITEMS");
    assert_eq!(
        error,
        format!(
            "segments[0].device: found no such key, expected a device index (int from 0) (near byte {at})"
        )
    );
}

#[test]
fn unknown_actions_are_kept_and_counted() {
    let mut entries = vec![json!({"action": "teleport", "later_field": [1, 2]})];
    entries.push(entry("alloc", 4096, 1));
    entries.push(entry("teleport", 4096, 1));
    let snapshot = read_all(&json!({"segments": [], "device_traces": [entries]}));
    assert_eq!(snapshot.unknown_actions, [("teleport".to_owned(), 2)]);
    let text = snapshot.warnings[0].to_string();
    assert_eq!(text, "action \"teleport\" is not known here (2 entries)");
    let many: Vec<Value> = (0..300).map(|i| entry(&format!("a{i}"), 1, 1)).collect();
    let snapshot = read_all(&json!({"segments": [], "device_traces": [many]}));
    assert_eq!(snapshot.unknown_actions.len(), 256);
    assert_eq!(snapshot.unknown_actions[255], ("other unknown actions".to_owned(), 45));
}

#[test]
fn warnings_name_segment_and_numbers() {
    let mut snapshot = small();
    snapshot["segments"][0]["blocks"][1]["address"] = json!(4612);
    snapshot["segments"][0]["blocks"][1]["size"] = json!(1000);
    snapshot["segments"][0]["allocated_size"] = json!(513);
    snapshot["device_traces"][0][1]["time_us"] = json!(9);
    snapshot["device_traces"][0][2].as_object_mut().expect("a dict").remove("device_free");
    let read = read_all(&snapshot);
    let texts: Vec<String> = read.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "segment 0x1000: block 1 begins at 0x1204, but the one before it ends at 0x1200",
            "segment 0x1000: its blocks sum to 1512 bytes, but it has 2048",
            "segment 0x1000: allocated_size is 513, but its blocks sum to 512",
            "device_traces[0][2]: oom without device_free",
            "device_traces[0][1]: time_us is before the entry before it",
        ]
    );
    let mut snapshot = small();
    snapshot["segments"][0]["blocks"] = json!([]);
    assert_eq!(read_all(&snapshot).warnings[0].to_string(), "segment 0x1000 lists no blocks");
}

/// Entry, list and stack are objects in Python: seen twice through the memo, or changed after they were first used.
#[test]
fn shared_and_late_objects_stay_whole() {
    let frame = b"}(\x8c\x04nameX\x01\0\0\0f\x8c\x08filenameX\x01\0\0\0g\x8c\x04lineK\x05u";
    let entry =
        b"\x8c\x06actionX\x05\0\0\0alloc\x8c\x04addrK\x10\x8c\x04sizeK\x20\x8c\x06framesh\x01";
    let bytes = [
        b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](".as_slice(),
        // Memo 1 is the stack, which gets its second frame only after the entry has it.
        b"]q\x01(",
        frame,
        b"e0",
        b"}q\x02(",
        entry,
        b"u",
        // The same entry again, then a key for it.
        b"h\x02\x8c\x06streamK\x09s",
        b"h\x01",
        frame,
        b"a0",
        b"e",
        // A second device shares it, too, and has one of its own.
        b"](h\x02}(",
        entry,
        b"ueeu.",
    ]
    .concat();
    let snapshot = from_slice(&bytes).expect("readable");
    assert_eq!(snapshot.traces.iter().map(Trace::len).collect::<Vec<_>>(), [2, 2]);
    let entries: Vec<Entry> = snapshot.traces.iter().flat_map(Trace::iter).collect();
    assert_eq!((entries[0], entries[1]), (entries[1], entries[2]));
    for (entry, stream) in entries.iter().zip([9, 9, 9, 0]) {
        assert_eq!((entry.addr, entry.size), (Some(16), 32));
        assert_eq!(snapshot.tag(entry.tag).map(|tag| tag.stream), Some(stream));
        assert_eq!(snapshot.frames(entry.stack.expect("a stack")).count(), 2);
    }
}

#[test]
fn compressed_files_are_read() {
    use std::io::Write;
    let plain = pickled(&small(), false);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).expect("write");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], level);
    for bytes in [gzip.finish().expect("finish"), zstd, plain.clone()] {
        let source = std::io::Cursor::new(bytes.clone());
        let source = bytes::decompressed(source, None).expect("header");
        let snapshot = read(source).expect("a snapshot");
        assert_eq!(told(&snapshot), told(&read_all(&small())));
        let cut = std::io::Cursor::new(bytes[..bytes.len() - 20].to_vec());
        let cut = bytes::decompressed(cut, None).expect("header");
        read(cut).expect_err("a cut file");
    }
}
