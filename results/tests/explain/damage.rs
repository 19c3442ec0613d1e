//! Messages as they reach a person: cut, wrapped, translated, coloured, among other lines.

use rayon::prelude::*;
use vramlab::explain::message::Value;

use crate::{TORCH, message, messages};

/// One of each program; the figures are ours.
const ALL: [&str; 12] = [
    TORCH,
    "RuntimeError: CUDA out of memory. Tried to allocate 40.00 MiB (GPU 2; 7.80 GiB total capacity; 6.10 GiB already allocated; 12.25 MiB free; 6.90 GiB reserved in total by PyTorch)",
    "RuntimeError: MPS backend out of memory (MPS allocated: 7.25 GB, other allocations: 512.00 KB, max allowed: 9.07 GB). Tried to allocate 2.00 GB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit",
    "Out of memory error on GPU 3. Cannot allocate 2.500000GB memory on GPU 3, 9.250000GB memory has been allocated and available memory is only 1.125000GB.",
    "W tensorflow/core/common_runtime/bfc_allocator.cc:1] Allocator (GPU_1_bfc) ran out of memory trying to allocate 1.25GiB.  Current allocation summary follows.\nI tensorflow/core/common_runtime/bfc_allocator.cc:2] Free at 0x100 of size 1048576\nI tensorflow/core/common_runtime/bfc_allocator.cc:3] Chunk at 0x200100 of size 2097152\nLimit:                     3145728\nInUse:                     2097152",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes.\nBufferAssignment stats:\n             parameter allocation:    1.50GiB\n         preallocated temp allocation:    3.00GiB\n                 total allocation:    4.75GiB",
    "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (2048). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
    "ValueError: Free memory on device (3.50/24.00 GiB) on startup is less than desired GPU memory utilization (0.9, 21.60 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:rmm/mr/device/pool_memory_resource.hpp:257: Maximum pool size exceeded (failed to allocate 2.000000 GiB)",
    "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,073,741,824 bytes (allocated so far: 3,221,225,472 bytes, limit set to: 4,000,000,000 bytes).",
    "onnxruntime/core/framework/bfc_arena.cc:7 void* onnxruntime::BFCArena::AllocateRawInternal(size_t) Available memory of 4096 is smaller than requested bytes of 65536",
    "RESOURCE_EXHAUSTED: Attempting to allocate 3.00M. That was not possible. There are 8.00M free. Due to fragmentation, the largest contiguous region of free memory is 2.00M.",
];

#[test]
fn each_program_is_told() {
    let told: Vec<_> = ALL
        .iter()
        .map(|text| {
            let explained = message(text);
            assert!(!explained.next.is_empty() && !explained.summary.is_empty(), "{text}");
            (explained.framework, explained.verdict.name(), explained.limit.is_some())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("pytorch", "fragmentation", false),
            ("pytorch", "fragmentation", false),
            ("pytorch-mps", "shortage", true),
            ("paddle", "shortage", false),
            ("tensorflow", "shortage", true),
            ("jax", "shortage", false),
            ("vllm", "shortage", true),
            ("vllm", "other_process", false),
            ("rmm", "shortage", true),
            ("cupy", "shortage", true),
            ("onnxruntime", "shortage", true),
            ("jax", "fragmentation", false),
        ]
    );
}

/// Cut at any byte, a message has fewer figures, and none that it did not have; only the number that is cut may be another one.
#[test]
fn a_cut_message_says_less_and_nothing_else() {
    for text in ALL {
        assert_eq!(wrong_when_cut(text), Vec::<String>::new(), "{text}");
    }
}

/// What a text says when it is cut at some byte, and not when it is whole.
pub(crate) fn wrong_when_cut(text: &str) -> Vec<String> {
    // sums, and what is told apart by other figures
    let derived = [
        "process_bytes",
        "other_process_bytes",
        "largest_free_bytes",
        "chunks_free_bytes",
        "chunks_in_use_bytes",
    ];
    let whole = messages(text.as_bytes());
    let stated = |name: &str, value: &Value| {
        derived.contains(&name)
            || matches!(value, Value::Count(_))
            || whole.iter().any(|one| one.numbers.get(name) == Some(value))
    };
    let cuts: Vec<usize> = (0..text.len()).collect();
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let at = |cut: &usize| -> Vec<String> {
        // within a number, or before its point
        let point = matches!(bytes[*cut], b'.' | b',') && *cut > 0 && digit(*cut - 1);
        if digit(*cut) || point && digit(*cut + 1) {
            let _survived = messages(&bytes[..*cut]);
            return Vec::new();
        }
        let all = messages(&bytes[..*cut]);
        let figures = all.iter().flat_map(|one| one.numbers.iter());
        let wrong = figures.filter(|(name, value)| !stated(name, value));
        wrong.map(|(name, value)| format!("cut at {cut}: {name} {value:?}")).collect()
    };
    cuts.par_iter().flat_map_iter(at).collect()
}

/// Several in one log are each answered, in their order, whatever stands between them.
#[test]
fn messages_of_all_programs_in_one_log_are_answered_in_order() {
    let log = ALL.map(|text| format!("step 3\n{text}\n\nINFO: retrying\n")).concat();
    let told: Vec<_> = messages(log.as_bytes()).iter().map(|one| one.numbers.clone()).collect();
    let alone: Vec<_> = ALL.iter().map(|text| message(text).numbers).collect();
    assert_eq!(told, alone);
}

/// The figures and the verdict of a text are those of the message.
fn same(text: &[u8], of: &str, what: &str) {
    let whole = message(of);
    let all = messages(text);
    assert_eq!(all.len(), 1, "{what}: {}", String::from_utf8_lossy(text));
    assert_eq!(all[0].numbers, whole.numbers, "{what}: {of}");
    assert_eq!(all[0].verdict, whole.verdict, "{what}: {of}");
}

#[test]
fn noise_line_ends_ranks_and_colours_change_nothing() {
    let noise = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n100%|####| 3/3 [00:01<00:00, 2.00it/s]\n";
    for text in ALL {
        same(format!("{noise}{text}\n{noise}").as_bytes(), text, "among other lines");
        same(text.replace('\n', "\r\n").as_bytes(), text, "CRLF");
        same(format!("12%\r13%\r{text}\n").as_bytes(), text, "behind a progress bar");
        let ranked: Vec<String> = text.lines().map(|line| format!("[rank3]: {line}")).collect();
        same(ranked.join("\n").as_bytes(), text, "with a rank");
        let red: Vec<String> = text.lines().map(|line| format!("\x1b[31m{line}\x1b[0m")).collect();
        same(red.join("\n").as_bytes(), text, "in colour");
        same(&[b"\xff\xfe bytes \x00\x01\n".as_slice(), text.as_bytes()].concat(), text, "bytes");
    }
    let json = serde_json::json!({"level": "error", "exc": format!("line\n{TORCH}\nend")});
    same(json.to_string().as_bytes(), TORCH, "inside of JSON");
}

#[test]
fn wrapped_lines_are_one_message() {
    for text in [ALL[0], ALL[1], ALL[2], ALL[9]] {
        for width in [40, 72, 100] {
            let mut lines = vec![String::new()];
            for word in text.split(' ') {
                if lines.last().is_some_and(|line| line.len() + word.len() > width) {
                    lines.push(String::new());
                }
                if let Some(line) = lines.last_mut() {
                    line.push_str(if line.is_empty() { "" } else { " " });
                    line.push_str(word);
                }
            }
            same(lines.join("\n").as_bytes(), text, "wrapped");
        }
    }
}

#[test]
fn numbers_of_other_countries_are_read() {
    let comma = |text: &str| -> String {
        let chars: Vec<char> = text.chars().collect();
        let digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
        let swap = |at: usize| chars[at] == '.' && at > 0 && digit(at - 1) && digit(at + 1);
        (0..chars.len()).map(|at| if swap(at) { ',' } else { chars[at] }).collect()
    };
    for text in [ALL[0], ALL[1], ALL[2], ALL[3], ALL[8]] {
        same(comma(text).as_bytes(), text, "decimal comma");
    }
    let thousands = ALL[9].replace(',', "\u{202f}").replace("bytes\u{202f}", "bytes,");
    same(thousands.as_bytes(), ALL[9], "narrow spaces");
    let german = TORCH.replace("16.00 GiB", "16.384,00 MiB").replace("3.00 GiB", "3.072,00 MiB");
    let french =
        TORCH.replace("16.00 GiB", "16 384,00 Mio").replace("3.00 GiB", "3\u{a0}072,00 Mio");
    for text in [german, french] {
        let told = message(&text);
        assert_eq!(told.numbers.bytes("capacity_bytes"), Some(16 << 30), "{text}");
        assert_eq!(told.numbers.bytes("tried_bytes"), Some(3 << 30), "{text}");
        assert_eq!(told.verdict, message(TORCH).verdict, "{text}");
    }
    let wide: String = TORCH
        .chars()
        .map(|c| match c {
            '0'..='9' => char::from_u32(u32::from(c) - 0x30 + 0xff10).unwrap_or(c),
            c => c,
        })
        .collect();
    same(wide.as_bytes(), TORCH, "full-width digits");
}

#[test]
fn misspelled_words_and_other_units_are_understood() {
    let typos = TORCH
        .replace("capacity", "capacty")
        .replace("PyTorch", "Pytorch")
        .replace("unallocated", "unalocated");
    assert_eq!(message(&typos).numbers, message(TORCH).numbers);
    let units = ALL[1]
        .replace("GiB", "GB")
        .replace("40.00 MiB", "40960 kB")
        .replace("12.25 MiB", "12845056 bytes");
    assert_eq!(message(&units).numbers.bytes("free_bytes"), Some(12_845_056));
    assert_eq!(message(&units).numbers.bytes("tried_bytes"), Some(40 << 20));
}

#[test]
fn a_long_log_and_a_long_line_are_read_to_their_end() {
    let mut log = "step 1 loss 0.5 lr 0.001\n".repeat(200_000).into_bytes();
    log.extend(b"out of memory ".repeat(100_000));
    log.push(b'\n');
    log.extend(TORCH.as_bytes());
    let all = messages(&log);
    let found = all.iter().find(|one| one.numbers.get("tried_bytes").is_some());
    assert_eq!(found.map(|one| one.line), Some(200_002));
}

#[test]
fn any_bytes_are_survived() {
    let mut seed = 1_u64;
    for _ in 0..300 {
        let mut text: Vec<u8> = ALL[(seed >> 40) as usize % ALL.len()].bytes().collect();
        for _ in 0..6 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % text.len();
            text[at] = (seed >> 20) as u8;
        }
        for explained in messages(&text) {
            assert!(!explained.summary.is_empty());
        }
    }
}
