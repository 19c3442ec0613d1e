//! A few events of each format with every field checked, and what is refused.

use super::*;
use crate::readers::events::tests::steps;

fn profile(text: &str) -> Profile {
    read(text.as_bytes(), "t").unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    read(text.as_bytes(), "t").expect_err("bad input").to_string()
}

/// The steps of the only device, with times.
fn ops(profile: Profile) -> Vec<String> {
    let device = profile.devices.into_iter().next().expect("a device");
    steps(Arc::try_unwrap(device.events).expect("held once"), true)
}

const TRACE: &str = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "V100 \"[memory]"}], "traceEvents": [
{"ph": "X", "name": "aten::empty", "pid": 1, "tid": 0, "ts": 100, "dur": 3, "args": {}},
{"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 0, "ts": 102.5, "args": {"Ev Idx": 7, "Device Type": 1, "Device Id": 3, "Addr": 4096, "Bytes": 1024, "Total Allocated": 5120, "Total Reserved": 8192}},
{"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 0, "ts": 104, "args": {"Device Type": 1, "Device Id": 3, "Addr": 4096, "Bytes": -1024, "Total Allocated": 1024, "Total Reserved": 8192}},
{"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 103, "args": {"Device Type": 1, "Device Id": 3, "Addr": 512, "Bytes": -3072, "Total Allocated": 2048, "Total Reserved": 10240}},
{"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 0, "ts": 104, "args": {"Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 64, "Total Allocated": -1, "Total Reserved": 0}},
{"ph": "i", "s": "t", "name": "[OutOfMemory]", "pid": 1, "tid": 0, "ts": 105, "args": {"Device Type": 1, "Device Id": 3, "Bytes": 777, "Total Allocated": 1024, "Total Reserved": 8192}}
]}"#;

#[test]
fn chrome_trace() {
    let profile = profile(TRACE);
    let device = &profile.devices[0];
    assert_eq!((profile.devices.len(), profile.host_events), (1, 1));
    assert_eq!((device.device_type, device.device), (1, 3));
    assert_eq!((device.start_blocks, device.start_bytes), (1, 4096));
    assert_eq!((device.peak_allocated, device.peak_reserved), (Some(5120), Some(10_240)));
    assert_eq!((device.events.timed(), device.events.gaps(), device.events.len()), (true, 0, 7));
    let expected = [
        "@0",
        "+512 3072",
        "@0",
        "+0 1024",
        "@0",
        "+4096 1024",
        "@500",
        "-512",
        "@1500",
        "-4096",
        "@2500",
        "+0 777",
        "@2500",
        "-0",
    ];
    assert_eq!(ops(profile), expected);
}

#[test]
fn a_list_of_events_is_a_trace_too() {
    let list = TRACE.split_once("\"traceEvents\": ").expect("there").1;
    let listed = profile(list.trim_end_matches('}'));
    assert_eq!(ops(listed), ops(profile(TRACE)));
}

#[test]
fn events_without_addresses_are_matched_by_size() {
    let text = "seq,ts_us,thread,device_type,device_id,addr,bytes,total_allocated,total_reserved\r\n\
        0,10,0,1,0,,512,,\r\n1,11,0,1,0,,1024,,\r\n2,12,0,1,0,,512,,\r\n3,13,0,1,0,,-512,,\r\n4,14,0,1,0,,-2048,,\r\n5,15,0,0,-1,,8,,";
    let profile = profile(text);
    let device = &profile.devices[0];
    assert_eq!((device.start_blocks, device.start_bytes, profile.host_events), (1, 2048, 1));
    assert_eq!((device.peak_allocated, device.peak_reserved), (None, None));
    let expected = [
        "@0", "+0 2048", "@0", "+0 512", "@1000", "+0 1024", "@2000", "+0 512", "@3000", "-0",
        "@4000", "-0",
    ];
    assert_eq!(ops(profile), expected);
}

#[test]
fn devices_are_apart() {
    let text = "bytes,device_id,device_type,ts_us,addr\n8,1,1,5,16\n8,0,1,4,16\n-8,1,1,6,16\n";
    let profile = profile(text);
    let sizes: Vec<_> = profile.devices.iter().map(|d| (d.device, d.events.len())).collect();
    assert_eq!(sizes, [(0, 1), (1, 2)]);
}

#[test]
fn events_that_were_lost_are_gaps() {
    let text = "ts_us,device_type,device_id,bytes,addr\n1,1,0,8,16\n2,1,0,8,16\n3,1,0,-8,16\n4,1,0,-8,16\n";
    let profile = profile(text);
    assert_eq!(profile.devices[0].events.gaps(), 2);
    assert_eq!(ops(profile), ["@0", "+16 8", "@1000", "-16", "@1000", "+16 8", "@2000", "-16"]);
}

#[test]
fn bad_traces_are_refused() {
    let list =
        |device: &str| format!("ts_us,device_type,device_id,addr,bytes\n1,1,{device},8,16\n");
    for device in ["70000", "-1"] {
        let text = error(&list(device));
        assert!(text.contains("expected a number from 0 to 65535"), "{text}");
    }
    assert!(
        error(&TRACE[..900]).ends_with("the file ends in the middle; expected the end of the JSON")
    );
    assert!(
        error(&TRACE.replace("\"Bytes\": 777", "\"Bytes\": 7.5"))
            .contains("invalid type: floating point `7.5`, expected i64")
    );
    assert!(error(&TRACE.replace("\"Bytes\": 777, ", "")).contains("missing field `Bytes`"));
    assert!(
        error(&TRACE.replace("\"ts\": 105", "\"ts\": -1"))
            .contains("ts: found \"-1\", expected a time in micros")
    );
    assert!(
        error(&TRACE.replace("\"ts\": 105, ", ""))
            .contains("found [OutOfMemory] without \"ts\", expected one")
    );
    assert!(error(&TRACE.replace("\"ts\": 105", "\"ts\": NaN")).contains("expected value"));
    assert_eq!(
        error("ts_us,device_type,device_id\n"),
        r#"t: line 1: found the columns "ts_us,device_type,device_id", expected one called bytes"#
    );
    assert_eq!(
        error("ts_us,device_type,device_id,bytes\n1,1,0,1e3\n"),
        r#"t: line 2: column bytes: found "1e3", expected a whole number from -2^63 to 2^63-1"#
    );
    assert!(error("").contains("the file is empty"));
    assert!(profile("{}").devices.is_empty());
}
