//! Reading of traces.

use super::JsonlSource;
use crate::op::Op;
use crate::source::{Answered, Source, SourceError, Step};
use crate::units::{BufferId, Nanos, SequenceId};

fn ops(text: &str) -> Result<Vec<Op>, SourceError> {
    let mut source = JsonlSource::new(text.as_bytes(), "t.jsonl");
    let mut ops = Vec::new();
    loop {
        match source.next(Nanos(0), Answered::Done)? {
            Step::Op(op) => ops.push(op),
            Step::WaitUntil(_) => {}
            Step::End => return Ok(ops),
        }
    }
}

#[test]
fn slots_are_used_again_after_a_free() {
    let got = ops("{\"op\":\"alloc\",\"id\":70,\"size\":1}\n{\"op\":\"free\",\"id\":70}\n{\"op\":\"alloc\",\"id\":71,\"size\":2}").expect("reads");
    assert!(matches!(got[2], Op::Alloc { id: BufferId(0), size: 2, .. }), "{got:?}");
}

#[test]
fn frees_before_the_first_alloc_are_gaps_and_later_ones_errors() {
    assert_eq!(ops("{\"op\":\"free\",\"id\":1}").expect("a gap"), []);
    let error = ops("{\"op\":\"alloc\",\"id\":1,\"size\":1}\n{\"op\":\"free\",\"id\":2}")
        .expect_err("an error");
    assert_eq!(error.place, "t.jsonl: line 2");
    assert!(error.what.starts_with("free of buffer 2, which is not live"), "{}", error.what);
}

#[test]
fn bad_lines_name_the_line_and_what_was_expected() {
    for (text, want) in [
        ("{\"op\":\"alloc\",\"id\":1}", "alloc has no field \"size\""),
        (
            "{\"op\":\"alloc\",\"id\":1,\"size\":-5}",
            "size: found -5, expected a whole number from 0 to 2^64-1",
        ),
        ("{\"op\":\"free\",\"id\":1,\"stream\":\"a\"}", "stream: found \"a\", expected"),
        ("[1,2]", "found a list, expected an object such as"),
        ("{\"op\":", "no JSON (EOF while parsing a value, column 6)"),
        ("{\"op\":\"mark\",\"op\":\"mark\"}", "duplicate field `op`"),
        ("{\"vramlab_trace\":1,\"unit\":\"KiB\"}", "unit is \"KiB\"; expected bytes"),
        ("{\"op\":\"alok\"}", "unknown op \"alok\""),
        ("hello", "no JSON"),
        ("{\"op\":\"copy\",\"dir\":\"up\",\"bytes\":1}", "expected h2d, d2h, d2d, p2p or disk"),
        ("{\"vramlab_trace\":2}", "this program reads version 1"),
        ("{}", "no field \"op\""),
        ("{\"op\":\"kv_new\",\"seq\":1}", "kv_new has no field \"tokens\""),
        (
            "{\"op\":\"kv_new\",\"seq\":1,\"tokens\":2,\"keys\":[[1,2]]}",
            "expected numbers and runs [stream, first, count]",
        ),
    ] {
        let error = ops(text).expect_err(text);
        assert_eq!(error.place, "t.jsonl: line 1");
        assert!(error.what.contains(want), "{text}: {}", error.what);
    }
}

/// Files of the design's own form say `free`, and `free_completed` where it ended; a generator may say the latter alone.
#[test]
fn a_completion_without_a_deferred_free_frees_what_is_live_and_only_that() {
    let alloc = "{\"op\":\"alloc\",\"id\":1,\"size\":1}\n";
    let done = "{\"op\":\"free_completed\",\"id\":1}\n";
    let got = ops(&format!("{alloc}{done}{alloc}")).expect("a free");
    assert!(matches!(got[1], Op::Free { id: BufferId(0), stream: None }), "{got:?}");
    let free = "{\"op\":\"free\",\"id\":1}\n";
    let other = "{\"op\":\"alloc\",\"id\":2,\"size\":1}\n";
    assert_eq!(ops(&format!("{alloc}{free}{other}{done}")).expect("passed over").len(), 3);
    let error = ops(&format!("{alloc}{free}{done}{done}")).expect_err("none is left");
    assert_eq!(error.place, "t.jsonl: line 4");
    assert!(error.what.starts_with("free_completed of buffer 1, which is not live"));
    let mut source = JsonlSource::new(done.as_bytes(), "t.jsonl");
    assert_eq!(source.next(Nanos(0), Answered::Done), Ok(Step::End));
    assert_eq!(source.gaps(), 1, "before the first alloc it is a gap");
}

#[test]
fn texts_are_kept_for_the_op_in_hand_only() {
    let text: String =
        (0..1000).map(|n| format!("{{\"op\":\"mark\",\"name\":\"step {n}\"}}\n")).collect();
    let mut source = JsonlSource::new(text.as_bytes(), "t.jsonl");
    for n in 0..1000 {
        let Ok(Step::Op(Op::Mark { name })) = source.next(Nanos(0), Answered::Done) else {
            panic!("a mark")
        };
        assert_eq!(source.text(name), format!("step {n}"));
    }
    let kept = source.kept_text();
    assert!(kept < 100, "{kept} bytes of text");
}

#[test]
fn a_byte_order_mark_is_passed_over_and_utf_16_is_named() {
    let line = "{\"op\":\"alloc\",\"id\":1,\"size\":1}";
    assert_eq!(ops(&format!("\u{feff}{line}")).expect("reads").len(), 1);
    let wide: Vec<u8> =
        format!("\u{feff}{line}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [&wide[..], &wide[2..]] {
        let mut source = JsonlSource::new(bytes, "t.jsonl");
        let error = source.next(Nanos(0), Answered::Done).expect_err("UTF-16");
        assert_eq!(error.place, "t.jsonl: line 1");
        assert!(error.what.contains("UTF-16") && error.what.contains("UTF-8"), "{error}");
    }
}

#[test]
fn sequences_have_slots_of_their_own_and_their_gaps_are_counted() {
    let text = concat!(
        "{\"op\":\"kv_free\",\"seq\":9}\n{\"op\":\"kv_new\",\"seq\":9,\"tokens\":1}\n",
        "{\"op\":\"kv_fork\",\"seq\":4,\"from\":9}\n{\"op\":\"kv_free\",\"seq\":9}\n",
        "{\"op\":\"kv_new\",\"seq\":2,\"tokens\":1}\n"
    );
    let (a, b) = (SequenceId(0), SequenceId(1));
    let want = [
        Op::KvNew { seq: a },
        Op::KvFork { seq: b, from: a },
        Op::KvFree { seq: a },
        Op::KvNew { seq: a },
    ];
    assert_eq!(ops(text).expect("reads"), want);
    let error = ops(
        "{\"op\":\"kv_new\",\"seq\":1,\"tokens\":1}\n{\"op\":\"kv_more\",\"seq\":2,\"tokens\":1}",
    );
    let error = error.expect_err("not live");
    assert!(error.what.starts_with("kv_more of sequence 2, which is not live"), "{}", error.what);
}
