//! `host.pymalloc` against the golden cases of CPython itself: the committed choice, and the whole set if there.
#![forbid(unsafe_code)]

mod golden_cases;
mod pymalloc_subject;

use golden_cases::{Case, Subject, golden};
use pymalloc_subject::{ArenaPlacement, PyMalloc, Setup};
use serde_json::Value;

struct Golden(PyMalloc);

impl Subject for Golden {
    fn op(&mut self, op: &[Value]) -> Vec<Value> {
        self.0.op(op)
    }

    fn summary(&mut self) -> Vec<(&'static str, u64)> {
        self.0.summary()
    }
}

fn subject(case: &Case) -> Option<Box<dyn Subject>> {
    let sizes = case.value("config/arena_bytes").and_then(Value::as_array);
    let setup = Setup {
        version: case.text("config/cpython").expect("a version").to_owned(),
        arena: sizes.and_then(|sizes| sizes.first()?.as_u64()).expect("an arena's size"),
        pool: case.number("config/pool_bytes").expect("a pool's size"),
        placement: match case.text("device/placement") {
            Some("aligned") => ArenaPlacement::Aligned,
            Some("misaligned") => ArenaPlacement::Misaligned,
            Some("reuse") => ArenaPlacement::Reuse,
            other => panic!("{}: no such placement: {other:?}", case.name),
        },
        max_arenas: case.number("device/max_arenas"),
    };
    Some(Box::new(Golden(PyMalloc::new(setup))))
}

#[test]
fn golden_pymalloc() {
    golden("pymalloc", subject);
}
