//! Lines of the format with every field checked, and what is refused.

use super::*;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";

/// Steps as text: `+pointer size stream`, `-pointer stream`, `@time`.
fn steps(text: &str, keep_times: bool) -> Result<(Vec<String>, u64), SourceError> {
    let mut source = RmmSource::new(text.as_bytes(), "t", keep_times)?;
    let mut all = Vec::new();
    loop {
        match source.next(Nanos(0), Answered::Done)? {
            Step::Op(Op::Alloc { id, size, stream, .. }) => {
                all.push(format!("+{:x} {size} on {}", source.name(id), stream.0));
            }
            Step::Op(Op::Free { id, stream }) => {
                let on = stream.map_or(String::new(), |stream| format!(" on {}", stream.0));
                all.push(format!("-{:x}{on}", source.name(id)));
            }
            Step::Op(other) => panic!("{other:?}"),
            Step::WaitUntil(time) => all.push(format!("@{}", time.0)),
            Step::End => return Ok((all, source.gaps())),
        }
    }
}

fn read(lines: &str) -> (Vec<String>, u64) {
    steps(&format!("{HEADER}{lines}"), true).unwrap_or_else(|error| panic!("{error}"))
}

fn error(lines: &str) -> String {
    steps(&format!("{HEADER}{lines}"), true).expect_err("bad input").to_string()
}

#[test]
fn each_action() {
    let log = "2342727,15:47:02.841961,allocate,0x10012400000,1048576,0x0\r\n\
        2342728,15:47:02.841961,allocate,0x10012500000,512,0x7f8a38001020\r\n\
        2342727,15:47:02.841977,free,0x10012400000,1048576,0x2\r\n\
        2342727,15:47:03.000000,allocate failure,(nil),99999999999,0x7f8a38001020\r\n\
        2342727,15:47:03.000001,free,0x10012500000,512,0x7f8a38001020";
    let expected = [
        "@0",
        "+10012400000 1048576 on 0",
        "@0",
        "+10012500000 512 on 1",
        "@16000",
        "-10012400000 on 2",
        "@158039000",
        "+0 99999999999 on 1",
        "-0",
        "@158040000",
        "-10012500000 on 1",
    ];
    assert_eq!(read(log), (expected.map(str::to_owned).to_vec(), 0));
}

#[test]
fn other_versions() {
    let colon = "1,15:47:02:000001,allocate,0x10,0,0x0\n1,15:47:02:000003,free,0x10,0,0x0\n";
    assert_eq!(read(colon).0, ["@0", "+10 0 on 0", "@2000", "-10 on 0"]);
    let bare = "1,1634567890.25,allocate,7f2040,8,0\n1,1634567890.5,free,7f2040,8,0\n";
    assert_eq!(read(bare).0, ["@0", "+7f2040 8 on 0", "@250000000", "-7f2040 on 0"]);
    let (few, _) =
        steps("Size,Pointer,Action\n8,0x10,allocate\n8,0x10,free\n", true).expect("reads");
    assert_eq!(few, ["+10 8 on 0", "-10 on 0"]);
}

#[test]
fn null_is_never_live() {
    let log =
        "1,00:00:00.0,allocate,0x0,0,0\n1,00:00:00.0,allocate,0x0,0,0\n1,00:00:00.0,free,0x0,0,0\n";
    assert_eq!(
        steps(&format!("{HEADER}{log}"), false).expect("reads"),
        (["+0 0 on 0", "-0", "+0 0 on 0", "-0"].map(str::to_owned).to_vec(), 0)
    );
}

#[test]
fn a_free_that_the_log_does_not_explain_is_a_gap() {
    let log = "1,00:00:00.0,free,0x8,1,0\n1,00:00:00.0,allocate,0x8,4,0\n1,00:00:00.0,free,0x8,4,0\n1,00:00:00.0,free,0x8,4,0\n";
    let (ops, gaps) = steps(&format!("{HEADER}{log}"), false).expect("reads");
    assert_eq!((ops.len(), gaps), (2, 2));
}

#[test]
fn times_pass_midnight_and_each_other() {
    let log = "1,23:59:59.5,free,0x0,1,0\n1,00:00:01.0,free,0x0,1,0\n2,00:00:00.5,free,0x0,1,0\n1,00:00:02.0,free,0x0,1,0\n";
    assert_eq!(read(log).0, ["@0", "@1500000000", "@1500000000", "@2500000000"]);
    assert_eq!(
        error("1,00:00:05.0,free,0x0,1,0\n1,00:00:03.9,free,0x0,1,0\n"),
        "t: line 3: found a time 1100000000 ns before that of the line above, expected times that go back by a second at most"
    );
}

#[test]
fn bad_logs_are_refused() {
    assert_eq!(
        steps("Thread,Time\n", true).expect_err("refused").to_string(),
        r#"t: line 1: found the columns "Thread,Time", expected one called Action"#
    );
    assert_eq!(
        error("1,00:00:00.0,alloc,0x8,4,0\n"),
        r#"t: line 2: column Action: found "alloc", expected allocate, allocate failure or free"#
    );
    assert_eq!(
        error("1,00:00:00.0,allocate,0x8,4,0\n1,00:00:00.0,allocate,0x8,4,0\n"),
        "t: line 3: allocate of pointer 8, which is live already; expected an id that is not in use"
    );
    assert_eq!(
        error("1,00:00:00.0,allocate,-8,4,0\n"),
        r#"t: line 2: column Pointer: found "-8", expected a hexadecimal number such as 0x7f2040000000"#
    );
    assert!(error("1,00:00:00.0,allocate,0x8,-4,0\n").contains("column Size: found \"-4\""));
    assert!(error("1,00:00:00.0,allocate,0x8,nan,0\n").contains("column Size: found \"nan\""));
    assert!(
        error("1,25:00:00.0,allocate,0x8,4,0\n")
            .contains("column Time: found \"25:00:00.0\", expected a time of day")
    );
    assert!(error("1,00:00:00.0,allo").contains("line 2: found 3 fields"));
}

/// They were taken without a word.
#[test]
fn the_first_time_that_goes_back_is_told_of_with_its_line() {
    let told = |lines: &str| {
        let passed = Arc::new(OnceLock::new());
        let text = format!("{HEADER}{lines}");
        let source = RmmSource::new(text.as_bytes(), "t", false).expect("opens");
        let mut source = source.telling(Arc::clone(&passed));
        while !matches!(source.next(Nanos(0), Answered::Done), Ok(Step::End)) {}
        passed.get().cloned()
    };
    let back = "1,00:00:05.000,allocate,0x1,8,0\n1,00:00:05.500,allocate,0x2,8,0\n\
        1,00:00:05.250,free,0x1,8,0\n1,00:00:05.1,free,0x2,8,0\n";
    let words = told(back).expect("it is told");
    assert!(words.starts_with("line 4 is 250.000 ms before the line above it"), "{words}");
    assert_eq!(told("1,00:00:05.0,allocate,0x1,8,0\n1,00:00:05.0,free,0x1,8,0\n"), None);
    let midnight = "1,23:59:59.0,allocate,0x1,8,0\n1,00:00:01.0,free,0x1,8,0\n";
    assert_eq!(told(midnight), None);
}

/// Seconds since some moment have no midnight: half a day back was taken for one.
#[test]
fn seconds_that_go_back_by_a_day_are_refused() {
    let words = error("1,90000.0,allocate,0x1,8,0\n1,5.0,free,0x1,8,0\n");
    assert!(words.contains("89995.000 s before that of the line above"), "{words}");
}
