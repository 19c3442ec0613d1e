//! Five lines of each format with every field checked, and what is refused.

use super::*;
use crate::readers::events::tests::steps;

fn plan(text: &str) -> Plan {
    read(text.as_bytes(), "t").unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    read(text.as_bytes(), "t").expect_err("bad input").to_string()
}

fn buffer(id: u64, lower: u64, upper: u64, size: u64) -> PlanBuffer {
    PlanBuffer { id, lower, upper, size }
}

#[test]
fn minimalloc_csv() {
    let plan = plan("id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n");
    let expected = [
        buffer(0, 0, 3, 4),
        buffer(1, 3, 9, 4),
        buffer(2, 0, 9, 4),
        buffer(3, 9, 21, 4),
        buffer(4, 0, 21, 4),
    ];
    assert_eq!(plan.buffers, expected);
    assert_eq!((plan.planned_bytes(), plan.gaps_left_out), (None, 0));
    assert_eq!(
        plan.names.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["b1", "b2", "b3", "b4", "b5"]
    );
    let ops = ["+0 4", "+2 4", "+4 4", "-0", "+1 4", "-1", "-2", "+3 4", "-3", "-4"];
    assert_eq!(steps(plan.events(), true), ops);
}

#[test]
fn optional_columns_in_any_order() {
    let plan = plan(
        "\u{feff}offset,size,end,gaps,start,alignment,buffer_id\r\n8,4,2,,0,64,7\r\n4,2,9,3-5 6-7@0:2,3,,5\r\n",
    );
    assert_eq!(plan.buffers, [buffer(7, 0, 3, 4), buffer(5, 3, 10, 2)]);
    let placed = [(8, 64), (4, 1)];
    let placed = placed.map(|(at, alignment)| Placed { offset: Some(at), alignment });
    assert_eq!(plan.placed, placed);
    assert_eq!((plan.planned_bytes(), plan.gaps_left_out), (Some(12), 1));
    assert_eq!(steps(plan.events(), false), ["+7 4", "-7", "+5 2", "-5"]);
}

#[test]
fn lifetime_log() {
    let plan = plan("0 381 92928\n1 379 256\r\n  2\t377 1228800\n3 3 0\n");
    let expected = [
        buffer(0, 0, 381, 92_928),
        buffer(1, 1, 379, 256),
        buffer(2, 2, 377, 1_228_800),
        buffer(3, 3, 3, 0),
    ];
    assert_eq!(plan.buffers, expected);
    let ops = ["+0 92928", "+1 256", "+2 1228800", "+3 0", "-3", "-2", "-1", "-0"];
    assert_eq!(steps(plan.events(), false), ops);
}

#[test]
fn bad_instances_are_refused() {
    assert_eq!(error(""), "t: line 1: the file is empty; expected a line that names the columns");
    assert_eq!(
        error("id,lower,size\n"),
        r#"t: line 1: found the columns "id,lower,size", expected one called upper or end"#
    );
    let after = |row: &str| error(&format!("id,lower,upper,size\n0,0,1,1\n{row}\n"));
    assert_eq!(
        after("1,0"),
        r#"t: line 3: found 2 fields in "1,0", expected 4 (id,lower,upper,size)"#
    );
    assert_eq!(
        after("1,5,4,1"),
        "t: line 3: found a life from 5 to 4, expected an end that is not before its beginning"
    );
    assert_eq!(after("0,5,6,1"), r#"t: line 3: found id "0" again, expected each once"#);
    assert_eq!(
        after("1,0,1,-4"),
        r#"t: line 3: column size: found "-4", expected a whole number from 0 to 2^64-1"#
    );
    assert!(after("1,0,inf,4").contains("column upper: found \"inf\""));
    assert_eq!(
        error("id,start,end,size\n1,0,18446744073709551615,4\n"),
        "t: line 2: column end: found 2^64-1, expected less"
    );
    assert_eq!(
        error("0 1 2\n1 2\n"),
        r#"t: line 2: found "1 2", expected three numbers: op of the request, op of the free, bytes"#
    );
    assert_eq!(
        error("0 1 2\n1 2 -3\n"),
        r#"t: line 2: found "-3", expected a whole number from 0 to 2^64-1"#
    );
    assert!(error("0 1 2\n1 2 3 4\n").contains("expected three numbers"));
    assert!(error("0 1 2\n2 1 3\n").contains("found a life from 2 to 1"));
}
