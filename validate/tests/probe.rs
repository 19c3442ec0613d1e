//! The program, run as a person runs it: without a driver, with a fake one (`fake-cuda`), and with files that are none.
#![cfg(unix)]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use support::{driver_without, fake_driver, folder_with};

/// Runs the program with libraries from `folder` only, and the fake driver playing `plays`.
fn run(folder: &Path, plays: &str, args: &[&str]) -> (Output, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_vramlab-validate"))
        .env("LD_LIBRARY_PATH", folder)
        .env("VRAMLAB_FAKE_CUDA", plays)
        .args(args)
        .output()
        .expect("the program that cargo built starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it prints UTF-8");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!err.contains("panicked"), "it never panics: {err}");
    (output, out, err)
}

fn fake_folder() -> tempfile::TempDir {
    folder_with(&std::fs::read(fake_driver()).expect("the fake driver can be read"))
}

#[test]
fn probe_on_this_machine_lists_devices_or_says_what_is_missing() {
    let empty = tempfile::tempdir().expect("a temporary folder can be made");
    let (output, out, err) = run(empty.path(), "", &[]);
    if output.status.success() {
        assert!(out.starts_with("CUDA driver "), "{out}");
        assert!(out.contains("device 0: "), "{out}");
    } else {
        assert_eq!(output.status.code(), Some(6), "{err}");
        assert_eq!(out, "", "stdout is data");
        assert!(err.starts_with("vramlab-validate: "), "{err}");
        assert!(err.contains("CUDA dr") || err.contains("no CUDA device"), "{err}");
        assert!(err.contains("What to do: "), "{err}");
    }
}

#[test]
fn probe_of_the_fake_driver_prints_both_devices() {
    let (output, out, err) = run(fake_folder().path(), "", &["probe"]);
    assert!(output.status.success(), "{err}");
    let want = "\
CUDA driver 13.0, 2 devices

device 0: Fake GPU A
  compute capability    9.0
  total memory          80 GiB
  free memory           79 GiB
  context and others    1 GiB
  granule               2 MiB
  stream-ordered pools  yes
  virtual memory (VMM)  yes
  managed memory        yes

device 1: Fake GPU B
  compute capability    5.2
  total memory          12 GiB
  free memory           1.50 GiB
  context and others    10.50 GiB
  granule               -
  stream-ordered pools  no
  virtual memory (VMM)  no
  managed memory        no
";
    assert_eq!(out, want);
}

#[test]
fn probe_as_json_gives_bytes_and_flags() {
    let (output, out, err) = run(fake_folder().path(), "", &["--format", "json"]);
    assert!(output.status.success(), "{err}");
    let value: serde_json::Value = serde_json::from_str(&out).expect("one JSON object");
    assert_eq!(value["driver"], "13.0");
    assert_eq!(value["devices"][0]["total"], 80_u64 << 30);
    assert_eq!(value["devices"][0]["granularity"], 2 << 20);
    assert_eq!(value["devices"][1]["granularity"], serde_json::Value::Null);
    assert_eq!(value["devices"][1]["pools"], false);
}

#[test]
fn probe_without_a_device_exits_6() {
    let (output, out, err) = run(fake_folder().path(), "no_device", &["--format", "json"]);
    assert_eq!((output.status.code(), out.as_str()), (Some(6), ""));
    assert!(err.starts_with("vramlab-validate: no CUDA device: the driver is here"), "{err}");
}

#[test]
fn probe_of_a_full_device_says_why_free_memory_is_unknown() {
    let (output, out, err) = run(fake_folder().path(), "no_context", &[]);
    assert!(output.status.success(), "{err}");
    let want = "free memory           unknown (cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY)";
    assert!(out.contains(want), "{out}");
}

#[test]
fn probe_of_a_file_that_is_no_library_exits_6() {
    let (output, _, err) = run(folder_with(b"not a library\n").path(), "", &[]);
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(6), "{err}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn probe_of_an_old_driver_names_the_missing_function() {
    let folder = folder_with(&driver_without("cuMemGetInfo_v2"));
    let (output, out, err) = run(folder.path(), "", &[]);
    assert_eq!((output.status.code(), out.as_str()), (Some(6), ""), "{err}");
    assert!(err.contains("has no function cuMemGetInfo_v2"), "{err}");
}

#[test]
fn usage_errors_exit_2() {
    let empty = tempfile::tempdir().expect("a temporary folder can be made");
    let (output, _, _) = run(empty.path(), "", &["--format", "xml"]);
    assert_eq!(output.status.code(), Some(2));
}
