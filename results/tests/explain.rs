//! `vramlab explain`: recorded messages, and our own in all the states in which they reach a person.
#![forbid(unsafe_code)]

#[path = "explain/damage.rs"]
mod damage;
#[path = "explain/reading.rs"]
mod reading;
mod shared;
mod support;

use serde_json::Value;
use support::{Folder, call, rows};
use vramlab::explain::{Explained, explain};

/// Every message of a text.
pub(crate) fn messages(text: &[u8]) -> Vec<Explained> {
    explain(text, "test").expect("memory can be read").messages
}

/// The message of a text.
pub(crate) fn message(text: &str) -> Explained {
    let mut all = messages(text.as_bytes());
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

#[test]
fn recorded_oom_messages() {
    let Some(folder) = shared::folder("traces/oom_messages") else { return };
    let read = |ending: &str| -> Vec<String> {
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .expect("the folder can be read")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|e| e == ending))
            .collect();
        files.sort();
        files.iter().map(|file| std::fs::read_to_string(file).expect("text")).collect()
    };
    let (lists, logs) = (read("jsonl"), read("txt"));
    let (mut count, mut right, mut figures, mut unstated) = (0, 0, 0, 0);
    let mut differences = Vec::new();
    for line in lists.iter().flat_map(|list| list.lines()).filter(|line| !line.trim().is_empty()) {
        let record: Value = serde_json::from_str(line).expect("a record is JSON");
        count += 1;
        let result = reading::check(&record, &logs);
        figures += result.figures;
        unstated += result.unstated;
        right += u64::from(result.differences.is_empty());
        differences.extend(result.differences.iter().map(|d| format!("{}: {d}", record["source"])));
    }
    for difference in &differences {
        println!("recorded_oom_messages: {difference}");
    }
    println!(
        "recorded_oom_messages: {right} of {count} messages, {figures} figures, {} differences ({unstated} figures are not in the text)",
        differences.len()
    );
    assert!(count > 0 && figures > 0, "no message in {}", folder.display());
    assert!(differences.is_empty(), "{} differences, listed above", differences.len());
}

/// Each recorded text, cut at each byte: nobody panics, and no figure is told that the whole does not have.
#[test]
fn recorded_messages_cut_anywhere() {
    let Some(folder) = shared::folder("traces/oom_messages") else { return };
    let (mut cuts, mut wrong) = (0, Vec::new());
    for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let message = |line: &str| -> String {
            let record: Value = serde_json::from_str(line).expect("a record is JSON");
            record["message"].as_str().unwrap_or_default().to_owned()
        };
        let texts: Vec<String> = match path.extension().and_then(|e| e.to_str()) {
            Some("jsonl") => text.lines().filter(|l| !l.trim().is_empty()).map(message).collect(),
            Some("txt") => vec![text],
            _ => continue,
        };
        for text in texts {
            cuts += text.len();
            let found = damage::wrong_when_cut(&text);
            if let Some(first) = found.first() {
                wrong.push(format!("{} in {text:?}: {first}", found.len()));
            }
        }
    }
    println!(
        "recorded_messages_cut_anywhere: {cuts} cuts, {} texts with other figures",
        wrong.len()
    );
    assert!(cuts > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As PyTorch 2.2 to 2.8 says it; figures are ours.
const TORCH: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 14.90 GiB memory in use. Of the allocated memory 9.50 GiB is allocated by PyTorch, and 4.75 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";

#[test]
fn the_command_answers_in_the_record_of_its_design() {
    let folder = Folder::new();
    let file = folder.file("job.log", format!("step 1\nstep 2\n{TORCH}\nbye\n"));
    let (rows, err) = rows(0, &["explain", &file]);
    let [row] = &rows[..] else { panic!("one message: {rows:?}") };
    assert_eq!(err, "");
    for (key, value) in [
        ("framework", "pytorch".into()),
        ("verdict", "fragmentation".into()),
        ("confidence", "high".into()),
        ("line", Value::from(3)),
        ("input", "job.log".into()),
    ] {
        assert_eq!(row[key], value, "{key}");
    }
    assert_eq!(row["numbers"]["tried_bytes"], 3_u64 << 30);
    assert_eq!(row["numbers"]["gpu"], 1);
    let next = row["next"].as_array().expect("a list");
    assert_eq!(next.len(), 3);
    assert!(next[0].as_str().is_some_and(|text| text.contains("expandable_segments:True")));
    assert_eq!(row["sources"].as_array().map(Vec::len), Some(3));
}

#[test]
fn standard_input_and_packed_files_are_read() {
    let folder = Folder::new();
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_vramlab"));
    let output = command.args(["explain", "-"]).write_stdin(TORCH).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("What happened: fragmentation"), "{text}");
    assert!(text.starts_with("standard input, line 1: PyTorch (CUDA)"), "{text}");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, TORCH.as_bytes()).expect("memory");
    let file = folder.file("job.log.gz", packed.finish().expect("memory"));
    assert_eq!(rows(0, &["explain", &file]).0.len(), 1);
}

#[test]
fn a_text_without_a_message_is_bad_input_and_says_what_was_looked_for() {
    let folder = Folder::new();
    for text in ["", "all is well\nno memory was harmed\n", "epoch 3: loss 0.1, 4.2 GiB free\n"] {
        let file = folder.file("quiet.log", text);
        let (code, out, err) = call(&["explain", &file]);
        assert_eq!((code, out.as_str()), (3, ""), "{text}");
        assert!(err.contains("quiet.log: found no message about memory in"), "{err}");
        assert!(err.contains("PaddlePaddle (\"Cannot allocate"), "{err}");
    }
    let (code, _, err) = call(&["explain", &folder.path("missing.log")]);
    assert!(code == 3 && err.contains("missing.log"), "{err}");
    let utf16: Vec<u8> =
        "\u{feff}out of memory".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let (code, _, err) = call(&["explain", &folder.file("ps.log", utf16)]);
    assert!(code == 3 && err.contains("UTF-16"), "{err}");
}

#[test]
fn what_is_on_already_is_not_advised() {
    let advice = |log: &str| -> String {
        let next = message(log).next;
        next.iter().map(|next| format!("{}\n", next.text)).collect()
    };
    let expandable = "=expandable_segments:True";
    assert!(advice(TORCH).contains(expandable));
    let on = format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n{TORCH}");
    assert!(!advice(&on).contains(expandable) && advice(&on).contains("are on already"));
    assert!(!advice(&on).contains("max_split_size_mb"), "it does nothing with these segments");
    for elsewhere in [
        "OS: Microsoft Windows 11",
        "UserWarning: expandable_segments not supported on this platform",
        "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
        "PyTorch version: 2.0.1+cu118",
    ] {
        let text = advice(&format!("{elsewhere}\n{TORCH}"));
        assert!(!text.contains(expandable), "{elsewhere}: {text}");
    }
    let split = format!(
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128,roundup_power2_divisions:4\n{TORCH}"
    );
    let text = advice(&split);
    assert!(
        text.contains(
            "export PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:4,expandable_segments:True"
        ),
        "{text}"
    );
    assert!(!text.contains("max_split_size_mb:"), "{text}");
    // not even all of it would do: no setting of the allocator helps
    let short =
        TORCH.replace("4.75 GiB is reserved", "0.25 GiB is reserved").replace("9.50", "14.25");
    assert_eq!(message(&short).verdict.name(), "shortage");
    let text = advice(&short);
    assert!(!text.contains("expandable") && !text.contains("max_split"), "{text}");
}

#[test]
fn a_server_that_fails_in_pytorch_is_told_what_its_cache_takes() {
    let short =
        TORCH.replace("4.75 GiB is reserved", "0.25 GiB is reserved").replace("9.50", "14.25");
    let explained =
        message(&format!("vLLM API server version 0.9.1 --gpu-memory-utilization 0.95\n{short}"));
    assert!(explained.next[0].text.contains("(now 0.95)"), "{:?}", explained.next);
}

/// The sum had a negative remainder "outside of this allocator".
#[test]
fn more_than_the_card_has_is_said_so() {
    let text = "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 17.00 GiB already allocated; 0 bytes free; 19.00 GiB reserved in total by PyTorch)";
    let explained = message(text);
    assert_eq!(explained.verdict.name(), "over_capacity");
    assert!(explained.sums.iter().all(|sum| !sum.contains("= -")), "{:?}", explained.sums);
    let beyond = "this process 19 GiB + free 0 B - card 8 GiB = 11 GiB more than the card has";
    assert!(explained.sums.iter().any(|sum| sum == beyond), "{:?}", explained.sums);
}

#[test]
fn versions_that_lack_an_option_are_not_told_to_set_it() {
    let old = "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 3.00 GiB already allocated; 0 bytes free; 7.50 GiB reserved in total by PyTorch)";
    let explained = message(old);
    assert_eq!(explained.verdict.name(), "fragmentation");
    assert!(
        explained.next.iter().all(|next| !next.text.contains("export ")),
        "{:?}",
        explained.next
    );
    let hinted = format!(
        "{old} If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    );
    let explained = message(&hinted);
    assert!(explained.next[0].text.contains("max_split_size_mb:512"), "{:?}", explained.next);
    let hip = TORCH.replace("CUDA out", "HIP out");
    let explained = message(&hip);
    assert_eq!(explained.framework, "pytorch-rocm");
    assert!(explained.next.iter().all(|next| !next.text.contains("expandable_segments")));
}

/// 2.9 does not read the name that its own warning recommends (pytorch/pytorch#183387): it was pasted, and taken for in force.
#[test]
fn the_variable_that_is_pasted_is_one_that_the_version_reads() {
    let first = |log: &str| message(&format!("{log}\n{TORCH}")).next[0].text.clone();
    for (version, name) in [
        ("2.1.0", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.9.1", "PYTORCH_CUDA_ALLOC_CONF"),
        ("2.10.0", "PYTORCH_ALLOC_CONF"),
        ("2.15.0", "PYTORCH_ALLOC_CONF"),
    ] {
        let text = first(&format!("torch=={version}"));
        assert!(text.starts_with(&format!("export {name}=expandable_segments:True")), "{text}");
    }
    let set = "PYTORCH_ALLOC_CONF=expandable_segments:True";
    let text = first(&format!("torch==2.9.1\n{set}"));
    assert!(
        text.starts_with("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: "),
        "{text}"
    );
    assert!(text.contains("does not read PYTORCH_ALLOC_CONF"), "{text}");
    let text = first(&format!("torch==2.11.0\n{set}"));
    assert!(text.starts_with("expandable segments are on already"), "{text}");
    let hip = message(&format!("torch==2.12.0\n{}", TORCH.replace("CUDA out", "HIP out")));
    let text = &hip.next[0].text;
    assert!(text.starts_with("with ROCm 7.0 or later: export PYTORCH_ALLOC_CONF="), "{text}");
}

/// The new name was no setting, and the old one was advised beside it.
#[test]
fn the_share_of_jax_is_known_by_both_its_names() {
    let text = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes.";
    let advises = |log: &str| {
        let next = message(&format!("{log}{text}")).next;
        next.iter().any(|next| next.text.contains("MEM_FRACTION=.95"))
    };
    assert!(advises(""));
    assert!(!advises("XLA_PYTHON_CLIENT_MEM_FRACTION=.9\n"));
    assert!(!advises("XLA_CLIENT_MEM_FRACTION=.9\n"));
}

#[test]
fn several_messages_in_one_log_and_a_climb() {
    let failure = |allocated: &str| TORCH.replace("9.50 GiB", allocated);
    let log = format!(
        "a\n{}\nb\n{}\n{}\nc\n{}\nd\nMemoryError: std::bad_alloc: RMM failure at: pool_memory_resource.hpp:9: Maximum pool size exceeded\n",
        failure("9.00 GiB"),
        failure("9.20 GiB"),
        failure("9.20 GiB"),
        failure("9.40 GiB")
    );
    let all = messages(log.as_bytes());
    let lines: Vec<_> = all.iter().map(|one| (one.framework, one.line, one.times)).collect();
    assert_eq!(lines, [("pytorch", 2, 1), ("pytorch", 4, 2), ("pytorch", 7, 1), ("rmm", 9, 1)]);
    let climb = all[2].climb.as_deref().expect("it only rises");
    assert!(climb.contains("9 GiB") && climb.contains("9.40 GiB"), "{climb}");
    assert_eq!((all[3].limit.is_some(), &all[3].climb), (true, &None));
    assert!(all[0].next[0].text.contains("kept from step to step"));
}

#[test]
fn nothing_from_a_file_reaches_the_terminal_unescaped() {
    let folder = Folder::new();
    let text = format!(
        "PYTORCH_CUDA_ALLOC_CONF=\x1b]0;x\x07expandable\x1b[31m_segments\x08\n\x1b[31m{TORCH}\x1b[0m"
    );
    let file = folder.file("red.log", text);
    let (code, out, _) = call(&["explain", &file]);
    assert_eq!(code, 0);
    assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
}
