//! Five lines of each format with every field checked, and what is refused.

use super::*;

fn read(text: &[u8]) -> Result<RequestLog, SourceError> {
    RequestLog::collect(Requests::new(text, "t")?)
}

fn log(text: &str) -> RequestLog {
    read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    read(text.as_bytes()).expect_err("bad input").to_string()
}

/// (arrival in ns, prompt, output) of each.
fn lengths(log: &RequestLog) -> Vec<(Option<u64>, u64, u64)> {
    let one = |r: &Request| (r.arrival.map(|a| a.0), r.prompt_tokens, r.output_tokens);
    log.requests().iter().map(one).collect()
}

/// The minus of an exponent made a date of it.
#[test]
fn seconds_with_an_exponent_are_no_date() {
    let text = "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5e-05,10,2\n2,11,3\n";
    let lengths = lengths(&log(text));
    assert_eq!(lengths, [(Some(0), 10, 2), (Some(1_999_985_000), 11, 3)]);
}

#[test]
fn azure_csv() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
        2023-11-16 18:15:46.6805900,374,44\n\
        2023-11-16 18:15:50.9951690,396,109\n\
        2023-11-17 00:00:00,879,55\n\
        2023-11-17 00:00:00,0,16\n";
    let first = log(text);
    let expected = [
        (Some(0), 374, 44),
        (Some(4_314_579_000), 396, 109),
        (Some(20_653_319_410_000), 879, 55),
        (Some(20_653_319_410_000), 0, 16),
    ];
    assert_eq!(lengths(&first), expected);
    assert!(first.timed() && first.keys(0).is_empty());
    // The 2024 set writes a zone.
    let zoned = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.017335+00:00,2399,6\n";
    assert_eq!(lengths(&log(zoned)), [(Some(0), 2162, 5), (Some(7_405_000), 2399, 6)]);
}

#[test]
fn other_tables() {
    let burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
        5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n";
    assert_eq!(lengths(&log(burst)), [(Some(0), 472, 18), (Some(40_000_000_000), 1087, 230)]);
    let vidur = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,374,44\n4.314579,396,109\n";
    assert_eq!(lengths(&log(vidur)), [(Some(0), 374, 44), (Some(4_064_579_000), 396, 109)]);
    let sharegpt =
        "arrival_time_ns,input_toks,output_toks\n46926808,2358,531\n347938951,1034,769\n";
    assert_eq!(lengths(&log(sharegpt)), [(Some(0), 2358, 531), (Some(301_012_143), 1034, 769)]);
    let untimed =
        log("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.85\n");
    assert_eq!((lengths(&untimed), untimed.timed()), (vec![(None, 3772, 54)], false));
}

#[test]
fn mooncake_json_lines() {
    let text = r#"{"timestamp": 0, "input_length": 1025, "output_length": 500, "hash_ids": [0, 14, 15]}
{"timestamp": 27, "input_length": 1024, "output_length": 490, "hash_ids": [0, 14]}
{"timestamp": 27.5, "input_length": 700, "output_length": 1, "hash_ids": [0]}
"#;
    let log = log(text);
    let expected =
        [(Some(0), 1025, 500), (Some(27_000_000), 1024, 490), (Some(27_500_000), 700, 1)];
    assert_eq!(lengths(&log), expected);
    let run = |stream, count| KeyRun { stream, first: 0, count };
    assert_eq!(log.keys(0), [run(0, 512), run(14, 512), run(15, 1)]);
    assert_eq!(log.keys(1), [run(0, 512), run(14, 512)]);
    assert_eq!((log.keys(2), log.keys(3)), (&[run(0, 512)][..], &[][..]));
}

#[test]
fn vllm_bench_json_lines() {
    let text = r#"{"request_id": "bench-0", "input_toks": 2358, "output_toks": 531, "arrival_time": 1787267980.0827403, "queued_ts": 27536.660701067, "scheduled_ts": 27536.660721646, "first_token_ts": 27537.350135653, "last_token_ts": 27554.231018618}
{"request_id": "bench-1", "input_toks": 1034, "output_toks": 769, "arrival_time": 1787267980.3478317, "queued_ts": null}
"#;
    let log = log(text);
    assert_eq!(lengths(&log), [(Some(0), 2358, 531), (Some(265_091_400), 1034, 769)]);
    let measured = Measured {
        queued: Nanos(27_536_660_701_067),
        scheduled: Nanos(27_536_660_721_646),
        first_token: Nanos(27_537_350_135_653),
        last_token: Nanos(27_554_231_018_618),
    };
    assert_eq!(log.requests()[0].measured, Some(measured));
    assert_eq!(log.requests()[1].measured, None);
}

#[test]
fn token_ids_are_keys_of_a_vocabulary() {
    let text = r#"{"input_toks": 3, "output_toks": 2, "arrival_time_ns": 5, "input_tok_ids": [128000, 7]}"#;
    assert_eq!(log(text).keys(0), [KeyRun::token(128_000), KeyRun::token(7)]);
}

#[test]
fn order_of_columns_line_ends_and_mark_do_not_matter() {
    let text = "\u{feff}output_toks,note,input_toks\r\n5,\"a, b\",7\r\n\r\n6,,8";
    assert_eq!(lengths(&log(text)), [(None, 7, 5), (None, 8, 6)]);
    let text = "\u{feff}{\"output_toks\":5,\"input_toks\":7}\r\n";
    assert_eq!(lengths(&log(text)), [(None, 7, 5)]);
}

#[test]
fn bad_tables_are_refused() {
    let header = "arrival_time_ns,input_toks,output_toks\n";
    let after = |rows: &str| error(&format!("{header}{rows}"));
    assert_eq!(error(""), "t: line 1: the file is empty; expected a line that names the columns");
    assert_eq!(
        error("a,output_toks\n1,2\n"),
        r#"t: line 1: found the columns "a,output_toks", expected one called ContextTokens or num_prefill_tokens or input_toks or input_length or Request tokens or prompt_tokens"#
    );
    assert_eq!(
        after("1,2\n"),
        r#"t: line 2: found 2 fields in "1,2", expected 3 (arrival_time_ns,input_toks,output_toks)"#
    );
    assert_eq!(
        after("1,-2,3\n"),
        r#"t: line 2: column input_toks: found "-2", expected a whole number from 0 to 2^64-1"#
    );
    assert_eq!(
        after("1,2,nan\n"),
        r#"t: line 2: column output_toks: found "nan", expected a whole number from 0 to 2^64-1"#
    );
    assert_eq!(
        after("inf,2,3\n"),
        r#"t: line 2: column arrival_time_ns: found "inf", expected a time in nanos (finite, not negative, below 2^64 ns)"#
    );
    assert_eq!(
        after("1,4294967296,3\n"),
        "t: line 2: found 4294967296 tokens, expected at most 4294967295"
    );
    assert_eq!(
        after("9,1,1\n12,1,1\n11,1,1\n"),
        "t: line 4: found an arrival 1 ns before that of the request above, expected times that do not go back"
    );
    assert_eq!(
        after("9,1,1\n8,1,1\n"),
        "t: line 3: found an arrival 1 ns before that of the request above, expected times that do not go back"
    );
    let dates = "TIMESTAMP,input_toks,output_toks\n2023-02-30 00:00:00,1,1\n";
    assert!(error(dates).starts_with(
        "t: line 2: column TIMESTAMP: found \"2023-02-30 00:00:00\", expected a date"
    ));
}

#[test]
fn bad_lines_of_json_are_refused() {
    let good = r#"{"input_toks":1,"output_toks":2,"timestamp":5}"#;
    let after = |line: &str| error(&format!("{good}\n{line}\n"));
    assert_eq!(
        after(r#"{"input_toks":1}"#),
        "t: line 2: found no field output_length or output_toks, expected one"
    );
    assert_eq!(
        after(r#"{"input_toks":1,"output"#),
        r#"t: line 2: EOF while parsing a string (column 23); found "{\"input_toks\":1,\"output""#
    );
    assert_eq!(
        after(r#"{"input_toks":-1,"output_toks":2}"#),
        r#"t: line 2: invalid value: integer `-1`, expected u64 (column 16); found "{\"input_toks\":-1,\"output_toks\":2}""#
    );
    assert_eq!(
        after(r#"{"input_toks":1,"output_toks":2}"#),
        "t: line 2: found no arrival, expected one as in the first line"
    );
    assert_eq!(
        after(r#"{"input_toks":1,"output_toks":2,"timestamp":4}"#),
        "t: line 2: found an arrival 1000000 ns before that of the request above, expected times that do not go back"
    );
    assert_eq!(
        after(r#"{"input_toks":1,"output_toks":2,"timestamp":-4}"#),
        r#"t: line 2: timestamp: found "-4", expected a time in millis (finite, not negative, below 2^64 ns)"#
    );
    assert_eq!(
        after(r#"{"input_toks":512,"output_toks":2,"timestamp":6,"hash_ids":[1,2]}"#),
        "t: line 2: hash_ids: found 2 blocks for 512 tokens, expected at most 1 of 512 tokens"
    );
    assert!(after("[1,2]").contains("expected struct"), "{}", after("[1,2]"));
    let backwards = r#"{"input_toks":1,"output_toks":2,"timestamp":6,"queued_ts":2,"scheduled_ts":1,"first_token_ts":3,"last_token_ts":4}"#;
    assert!(after(backwards).starts_with("t: line 2: found times that go back"));
}

#[test]
fn utf16_is_told() {
    let bytes: Vec<u8> = "\u{feff}input_toks".encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert!(read(&bytes).expect_err("refused").to_string().contains("UTF-16"));
}
