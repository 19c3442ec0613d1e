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

#[test]
fn bad_lines_name_the_line_and_what_was_expected() {
    for (text, want) in [
        ("{\"op\":\"alloc\",\"id\":1}", "alloc has no field \"size\""),
        ("{\"op\":\"alloc\",\"id\":1,\"size\":-5}", "invalid value: integer `-5`, expected u64"),
        ("{\"op\":\"alok\"}", "unknown op \"alok\""),
        ("hello", "not an op"),
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
