//! Tiny hand-written pickles: every opcode, every error, and bytes that no writer makes.

use super::*;

/// Writes a value out as Python would, following shared objects up to a depth.
fn text(heap: &Heap, value: Value, depth: usize) -> String {
    if depth == 0 {
        return "...".into();
    }
    let join = |items: &[Value]| {
        let items: Vec<String> = items.iter().map(|item| text(heap, *item, depth - 1)).collect();
        items.join(", ")
    };
    match heap.view(value) {
        View::None => "None".into(),
        View::Bool(value) => format!("{value}"),
        View::Int(value) => format!("{value}"),
        View::Huge => "huge".into(),
        View::Float(value) => format!("{value:?}"),
        View::Str(id) => format!("{:?}", heap.strings().get(id)),
        View::Bytes(length) => format!("bytes[{length}]"),
        View::Tuple(items) => format!("({})", join(items)),
        View::List(items) => format!("[{}]", join(items)),
        View::Dict(items) => {
            let pairs: Vec<String> = items.chunks(2).map(join).collect();
            format!("{{{}}}", pairs.join("; "))
        }
        View::Taken(handle) => format!("taken {handle}"),
    }
}

#[track_caller]
fn check(bytes: &[u8], expected: &str) {
    match read_values(bytes) {
        Ok((heap, value)) => assert_eq!(text(&heap, value, 5), expected),
        Err(error) => panic!("{error}, but {expected} was meant"),
    }
}

#[track_caller]
fn check_error(bytes: &[u8], problem: Problem, expected: &str) {
    match read_values(bytes) {
        Ok((heap, value)) => panic!("read {}, but an error was meant", text(&heap, value, 5)),
        Err(error) => {
            assert_eq!((error.problem(), error.to_string().as_str()), (problem, expected))
        }
    }
}

#[test]
fn scalars_are_read() {
    check(b"N.", "None");
    check(b"\x80\x02\x88.", "true");
    check(b"\x80\x05\x89.", "false");
    check(b"K\xff.", "255");
    check(b"M\x01\x02.", "513");
    check(b"J\xff\xff\xff\xff.", "-1");
    check(b"J\x00\x00\x00\x80.", "-2147483648");
    check(b"G\x3f\xf8\0\0\0\0\0\0.", "1.5");
    check(b"X\x02\0\0\0hi.", "\"hi\"");
    check(b"\x8c\x02hi.", "\"hi\"");
    check(b"\x8d\x02\0\0\0\0\0\0\0hi.", "\"hi\"");
    check(b"T\x02\0\0\0hi.", "\"hi\"");
    check(b"U\x02hi.", "\"hi\"");
    check(b"C\x03abc.", "bytes[3]");
    check(b"B\x03\0\0\0abc.", "bytes[3]");
    check(b"\x8e\x03\0\0\0\0\0\0\0abc.", "bytes[3]");
    check(b"\x96\x03\0\0\0\0\0\0\0abc.", "bytes[3]");
}

#[test]
fn long_is_twos_complement_of_any_length() {
    check(b"\x8a\x00.", "0");
    check(b"\x8a\x01\xff.", "-1");
    check(b"\x8a\x02\xff\x00.", "255");
    check(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f.", "9223372036854775807");
    check(b"\x8a\x08\0\0\0\0\0\0\0\x80.", "-9223372036854775808");
    check(b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.", "18446744073709551615");
    check(b"\x8b\x02\0\0\0\xff\x00.", "255");
    check(b"\x8a\x11\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01.", "huge");
}

#[test]
fn text_opcodes_are_read() {
    check(b"I42\n.", "42");
    check(b"I-7\n.", "-7");
    check(b"I01\n.", "true");
    check(b"I00\n.", "false");
    check(b"L123456789012345678901L\n.", "123456789012345678901");
    check(b"L7\n.", "7");
    check(format!("L{}L\n.", "9".repeat(100)).as_bytes(), "huge");
    check(b"F2.5\n.", "2.5");
    check(b"S'a\\n\\x41\\''\n.", "\"a\\nA'\"");
    check(b"Va\\u00e9\\U0001F600\xe9\\q\n.", "\"a\u{e9}\u{1f600}\u{e9}\\\\q\"");
    check(b"(lp0\nI1\nag0\na.", "[1, [1, [1, [1, [..., ...]]]]]");
    check(b"(dp0\nVk\np1\nI1\ns.", "{\"k\", 1}");
}

#[test]
fn containers_are_read() {
    check(b").", "()");
    check(b"K\x01\x85.", "(1)");
    check(b"K\x01K\x02\x86.", "(1, 2)");
    check(b"K\x01K\x02K\x03\x87.", "(1, 2, 3)");
    check(b"(K\x01K\x02K\x03K\x04t.", "(1, 2, 3, 4)");
    check(b"].", "[]");
    check(b"]K\x01a.", "[1]");
    check(b"](K\x01K\x02eK\x03a.", "[1, 2, 3]");
    check(b"(K\x01K\x02l.", "[1, 2]");
    check(b"(l.", "[]");
    check(b"}.", "{}");
    check(b"}K\x01K\x02s.", "{1, 2}");
    check(b"}(K\x01K\x02K\x03K\x04uK\x05K\x06s.", "{1, 2; 3, 4; 5, 6}");
    check(b"(K\x01K\x02d.", "{1, 2}");
    check(b"}(u.", "{}");
    check(b"](e.", "[]");
    check(b"\x8f(K\x01\x90.", "[1]");
    check(b"(K\x01\x91.", "(1)");
}

#[test]
fn stack_opcodes_are_read() {
    check(b"K\x01K\x020.", "1");
    check(b"K\x01(K\x02K\x031.", "1");
    check(b"K\x01(0.", "1");
    check(b"K\x012\x86.", "(1, 1)");
    // The copy of an empty list is the same list.
    check(b"]2K\x07a\x86.", "([7], [7])");
    check(b"}2K\x07K\x08s\x86.", "({7, 8}, {7, 8})");
    check(b"\x80\x04\x95\x03\0\0\0\0\0\0\0K\x01.", "1");
}

#[test]
fn memo_shares_objects() {
    check(b"](K\x09q\x05h\x05e.", "[9, 9]");
    check(b"](K\x09r\xff\xff\xff\xffj\xff\xff\xff\xffe.", "[9, 9]");
    check(b"](]\x94K\x01ah\x00e.", "[[1], [1]]");
    // The list is filled after it was referred to.
    check(b"](]\x94h\x00K\x01ae.", "[[1], [1]]");
    check(b"]\x94(}\x94h\x01K\x01K\x02se.", "[{1, 2}, {1, 2}]");
    check(b"](I5\np7\ng7\ne.", "[5, 5]");
}

#[test]
fn memo_cycles_are_harmless() {
    check(b"]\x94h\x00a.", "[[[[[...]]]]]");
    check(b"]\x94(h\x00h\x00e.", &{
        let mut expected = "...".to_owned();
        for _ in 0..5 {
            expected = format!("[{expected}, {expected}]");
        }
        expected
    });
    check(b"}\x94(K\x01h\x00u.", "{1, {1, {1, {1, {..., ...}}}}}");
}

#[test]
fn code_is_refused_by_name() {
    let all: [(&[u8], &str); 15] = [
        (b"c", "GLOBAL (0x63)"),
        (b"\x93", "STACK_GLOBAL (0x93)"),
        (b"R", "REDUCE (0x52)"),
        (b"i", "INST (0x69)"),
        (b"o", "OBJ (0x6f)"),
        (b"\x81", "NEWOBJ (0x81)"),
        (b"\x92", "NEWOBJ_EX (0x92)"),
        (b"b", "BUILD (0x62)"),
        (b"P", "PERSID (0x50)"),
        (b"Q", "BINPERSID (0x51)"),
        (b"\x82", "EXT1 (0x82)"),
        (b"\x83", "EXT2 (0x83)"),
        (b"\x84", "EXT4 (0x84)"),
        (b"\x97", "NEXT_BUFFER (0x97)"),
        (b"\x98", "READONLY_BUFFER (0x98)"),
    ];
    for (opcode, name) in all {
        let bytes = [b"\x80\x04NN", opcode, b"os\nsystem\n."].concat();
        let expected = format!(
            "byte 4: found opcode {name}, which runs code or fetches objects, \
             expected plain data; nothing in a pickle is ever executed"
        );
        check_error(&bytes, Problem::Code, &expected);
    }
}

#[test]
fn damage_is_named_with_its_byte() {
    use Problem::{Length, Limit, Memo, Opcode, Stack, Text, Truncated};
    let end = "byte 0: found the end of the data, expected an opcode (the pickle has no STOP)";
    check_error(b"", Truncated, end);
    check_error(
        b"K",
        Truncated,
        "byte 0: found only 1 more bytes, expected 2 bytes of opcode and argument",
    );
    check_error(
        b"N\xff.",
        Opcode,
        "byte 1: found byte 0xff, expected an opcode of pickle protocols 0 to 5",
    );
    check_error(b"\x80\x06N.", Opcode, "byte 0: found pickle protocol 6, expected at most 5");
    check_error(
        b"X\xf0\xff\xff\xffabc.",
        Length,
        "byte 0: found a length of 4294967280 bytes, expected at most the 4 bytes that are left",
    );
    check_error(
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc.",
        Length,
        "byte 0: found a length of 18446744073709551615 bytes, expected at most the 4 bytes that are left",
    );
    check_error(
        b"\x8b\xff\xff\xff\xff.",
        Length,
        "byte 0: found a length of -1 bytes, expected no negative length",
    );
    check_error(
        b"h\x63.",
        Memo,
        "byte 0: found a reference to memo entry 99, expected one of the 0 entries stored before",
    );
    check_error(
        b"Nq\x00K\x01q\x00.",
        Memo,
        "byte 5: found a second value for memo entry 0, expected only the first, None",
    );
    check_error(b"s.", Stack, "byte 0: found nothing on the stack, expected a value");
    check_error(
        b"N(a.",
        Stack,
        "byte 2: found nothing on the stack above the mark, expected a value",
    );
    check_error(b"e.", Stack, "byte 0: found no open mark, expected a mark");
    check_error(
        b"(u.",
        Stack,
        "byte 1: found nothing on the stack, expected a dict below the items",
    );
    check_error(b"}(Nu.", Stack, "byte 3: found 1 keys and values, expected an even number");
    check_error(b"NNa.", Stack, "byte 2: found None, expected a list below the items");
    check_error(b"K\x07NNs.", Stack, "byte 4: found int 7, expected a dict below the items");
    check_error(b".", Stack, "byte 0: found nothing on the stack, expected a value");
    check_error(b"Iseven\n.", Text, "byte 0: found \"seven\", expected a decimal number");
    check_error(b"S'a\n.", Text, "byte 0: found \"'a\", expected text between two equal quotes");
    check_error(
        b"I12",
        Truncated,
        "byte 0: found 2 bytes without a line feed, expected a line of text",
    );
    check_error(
        &b"(".repeat(20_000),
        Limit,
        "byte 10000: found more than 10000 open marks, expected a value that nests less deeply",
    );
}

/// A reader that gives one byte at a time: nothing may depend on how the data is cut.
struct Drip<'a>(&'a [u8]);

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(self.0.len()).min(1);
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

fn read_dripping(bytes: &[u8], limits: Limits) -> Result<String> {
    let mut heap = Heap::default();
    let value = read(Drip(bytes), None, limits, &mut heap, &mut KeepAll)?;
    Ok(text(&heap, value, 3))
}

#[test]
fn long_strings_and_lines_pass_the_buffer_edge() {
    let long = "x".repeat(600_000);
    let mut bytes = b"](X\x20\xa1\x07\x00".to_vec();
    assert_eq!(500_000_u32.to_le_bytes(), [0x20, 0xa1, 0x07, 0x00]);
    bytes.extend_from_slice(&long.as_bytes()[..500_000]);
    bytes.extend_from_slice(format!("V{long}\nI3\ne.").as_bytes());
    let found = read_dripping(&bytes, Limits::default()).expect("whole");
    assert_eq!(found, format!("[{:?}, {long:?}, 3]", &long[..500_000]));
    let cut = read_dripping(&bytes[..1000], Limits::default()).expect_err("cut");
    assert_eq!(cut.problem(), Problem::Length);
    assert_eq!(cut.offset(), 2);
    let limits = Limits { string_bytes_max: 1000, ..Limits::default() };
    assert_eq!(read_dripping(&bytes, limits).expect_err("long").problem(), Problem::Limit);
}

#[test]
fn memory_is_bounded() {
    let limits = Limits { heap_bytes_max: 1 << 20, ..Limits::default() };
    let lists = b"]\x94K\x01a".repeat(200_000);
    let error = read_dripping(&lists, limits).expect_err("too much");
    assert_eq!(error.problem(), Problem::Limit);
    assert!(error.offset() < 400_000, "{error}");
}

#[test]
fn sharing_bomb_stays_small() {
    // 60 lists, each holding the one before twice: 2^60 leaves if written out.
    let mut bytes = b"\x80\x04]\x94".to_vec();
    for index in 0..60 {
        bytes.extend_from_slice(&[b']', 0x94, b'(', b'h', index, b'h', index, b'e']);
    }
    bytes.push(b'.');
    let (heap, _) = read_values(&bytes).expect("small");
    assert!(heap.bytes() < 20_000);
}

/// Changes, cuts and doubles bytes of a small valid pickle; the reader must answer quickly and not panic.
#[test]
fn mutated_pickles_never_panic() {
    let seed: &[u8] = b"\x80\x04\x95\x20\0\0\0\0\0\0\0}\x94(\x8c\x08segments\x94](}\x94(\x8c\x07address\x94\x8a\x06\0\0\
        \x20\x12\x34\x7fh\x02K\x01K\x02\x86\x94\x8c\x04size\x94M\x00\x02uh\x03eX\x03\0\0\0abcq\x09I12\nV\\u0041\ng9\nu.";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut read_whole = 0;
    for _ in 0..20_000 {
        let mut bytes = seed.to_vec();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(5) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes[at] ^= 1 << next(8),
                2 => bytes.truncate(at.max(1)),
                3 => bytes.insert(at, seed[next(seed.len())]),
                _ => bytes[at] = seed[next(seed.len())],
            }
        }
        if let Ok((heap, value)) = read_values(&bytes) {
            read_whole += 1;
            text(&heap, value, 3);
        }
    }
    assert!(read_whole > 100, "only {read_whole} of 20000 were readable");
}
