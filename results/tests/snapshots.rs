//! Snapshots of PyTorch as they may come: begun late, without frames or times, of several devices, out of order, with hostile names, and long.
#![forbid(unsafe_code)]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::pickle::{Event, Frame, Held, frame, snapshot};
use support::{Folder, call, of_kind, rows};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

fn event(action: &str, addr: u64, mib: u64) -> Event<'_> {
    Event { action, addr, size: mib * MIB, time_us: None, stack: None }
}

/// Of a buffer that was live before the recording began, the segments say who asked, if it is there at the end; of one that went nothing does.
#[test]
fn what_was_live_before_has_the_site_that_the_segments_tell() {
    let stack = frame("/home/u/train.py", 7, "load_model");
    let late = frame("/home/u/train.py", 30, "step");
    let first = Event { stack: Some(("late", &late)), ..event("alloc", BASE + 100 * MIB, 16) };
    let history = vec![
        first,
        event("free_requested", BASE + 60 * MIB, 40),
        event("free_completed", BASE + 60 * MIB, 40),
    ];
    let blocks = vec![
        (60 * MIB, true, Some(("early", stack.as_slice()))),
        (40 * MIB, false, None),
        (16 * MIB, true, Some(("late", late.as_slice()))),
    ];
    let held = Held { device: 0, address: BASE, blocks };
    let folder = Folder::new();
    let file = folder.file("late.pickle", snapshot(&[history], &[held]));
    let (told, _) = rows(0, &["inspect", &file]);
    let one = &told[0];
    assert_eq!((&one["live_at_start"], &one["start_known"]), (&2.into(), &1.into()), "{one}");
    let site = |what: &str| {
        let sites = one["peak"]["by_site"].as_array().expect("sites");
        sites.iter().find(|share| share["what"] == what).map(|share| share["bytes"].clone())
    };
    assert_eq!(site("/home/u/train.py:7 load_model"), Some((60 * MIB).into()), "{one}");
    assert_eq!(site("(live before the recording began)"), Some((40 * MIB).into()), "{one}");
    let (_, words, _) = call(&["inspect", &file]);
    assert!(words.contains("the stacks of 1 that are still there at its end"), "{words}");
    let (code, told, err) = call(&["report", &file, "-o", &folder.path("p.html"), "--budget", "2"]);
    assert_eq!(code, 0, "{err}");
    assert!(told.contains("load_model") && told.contains("(live before the recording began)"));
}

/// No frames, no times, times that run backwards, two devices: each is told, by each command, in bounds.
#[test]
fn what_a_snapshot_may_lack_is_no_error() {
    let bare = || vec![event("alloc", BASE, 30), event("alloc", BASE + 64 * MIB, 30)];
    let backwards = || {
        let at = |time, one| Event { time_us: Some(time), ..one };
        vec![at(900, event("alloc", BASE, 30)), at(100, event("alloc", BASE + 64 * MIB, 30))]
    };
    let blocks = |device| {
        let parts = vec![
            (30 * MIB, true, None),
            (34 * MIB, false, None),
            (30 * MIB, true, None),
            (2 * MIB, false, None),
        ];
        Held { device, address: BASE, blocks: parts }
    };
    let folder = Folder::new();
    for (name, histories, devices) in [
        ("bare.pickle", vec![bare()], 1),
        ("backwards.pickle", vec![backwards()], 1),
        ("two.pickle", vec![bare(), backwards()], 2),
    ] {
        let held: Vec<Held<'_>> = (0..devices).map(blocks).collect();
        let file = folder.file(name, snapshot(&histories, &held));
        let (told, err) = rows(0, &["inspect", &file]);
        assert_eq!(told.len() as u64, devices, "{name}: {err}");
        for one in &told {
            assert_eq!(one["peak"]["peak_bytes"], 60 * MIB, "{name}");
        }
        let (advice, _) = rows(0, &["advise", &file, "--budget", "3"]);
        assert_eq!(of_kind(advice, "answer").len() as u64, devices, "{name}");
        let page = folder.path("page.html");
        assert_eq!(call(&["report", &file, "-o", &page, "--budget", "2"]).0, 0, "{name}");
        for more in [vec!["--keep-times"], vec!["--verify"]] {
            let (code, out, err) = call(&[vec!["replay", file.as_str()], more].concat());
            assert!(code <= 1, "{name}: {out}{err}");
        }
    }
}

/// Names move no cursor and open no tag; the browser's test does the same with a trace.
#[test]
fn hostile_frames_of_a_snapshot_are_only_names() {
    let evil = frame("</script><img src=x onerror=alert(1)>\u{202e}", 1, "a\u{1b}[2J\u{7}\r\nb");
    let one = Event { stack: Some(("evil", &evil)), ..event("alloc", BASE, 30) };
    let held = Held {
        device: 0,
        address: BASE,
        blocks: vec![(30 * MIB, true, Some(("evil", evil.as_slice())))],
    };
    let folder = Folder::new();
    let file = folder.file("e\u{1b}[31m.pickle", snapshot(&[vec![one]], &[held]));
    let page = folder.path("page.html");
    for args in [
        vec!["inspect", &file],
        vec!["inspect", &file, "--format", "markdown"],
        vec!["advise", &file, "--explain", "--budget", "4"],
        vec!["fit", &file, "--devices", "t4-16gb"],
        vec!["report", &file, "-o", &page, "--budget", "2"],
        vec!["replay", &file],
    ] {
        let (code, out, err) = call(&args);
        assert_eq!(code, 0, "{args:?}: {err}");
        let bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!out.contains(bad) && !err.contains(bad), "{args:?}: {out:?}{err:?}");
    }
    let page = std::fs::read_to_string(&page).expect("written");
    assert!(!page.contains("<img src=x"), "markup of a name is in the page");
}

const ENTRIES: usize = 1_000_000;
const SLOTS: u64 = 4000;
const SLOT: u64 = 8 * MIB;

/// A training of a million entries from 300 stacks, a dozen frames each.
fn million() -> Vec<u8> {
    let stacks: Vec<(String, Vec<Frame>)> = (0..300_u64)
        .map(|n| {
            let inner = |depth: u64| {
                (
                    format!("/srv/model/part{}.py", (n + depth) % 40),
                    n + depth,
                    format!("call_{depth}"),
                )
            };
            (n.to_string(), (0..12).map(inner).collect())
        })
        .collect();
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut used: Vec<Option<(u64, usize)>> = vec![None; SLOTS as usize];
    let mut events = Vec::with_capacity(ENTRIES + 3);
    let mut time = 1_700_000_000_000_000_u64;
    events.push(Event {
        time_us: Some(time),
        size: SLOTS * SLOT,
        ..event("segment_alloc", BASE, 0)
    });
    while events.len() < ENTRIES {
        time += 3;
        let slot = random(SLOTS) as usize;
        let addr = BASE + slot as u64 * SLOT;
        match used[slot].take() {
            Some((size, _)) => {
                for action in ["free_requested", "free_completed"] {
                    events.push(Event { action, addr, size, time_us: Some(time), stack: None });
                }
            }
            None => {
                let (size, which) = (MIB + 512 * (1 + random(14_000)), random(300) as usize);
                let (name, frames) = &stacks[which];
                let stack = Some((name.as_str(), frames.as_slice()));
                events.push(Event { action: "alloc", addr, size, time_us: Some(time), stack });
                used[slot] = Some((size, which));
            }
        }
    }
    let blocks = used.iter().flat_map(|slot| match slot {
        Some((size, which)) => {
            let (name, frames) = &stacks[*which];
            vec![
                (*size, true, Some((name.as_str(), frames.as_slice()))),
                (SLOT - size, false, None),
            ]
        }
        None => vec![(SLOT, false, None)],
    });
    let held = [Held { device: 0, address: BASE, blocks: blocks.collect() }];
    let histories = [events];
    snapshot(&histories, &held)
}

/// Runs it; gives seconds, and the most memory that it held, in MB, as far as that can be seen.
fn measured(args: &[&str]) -> (f64, Option<u64>) {
    let start = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramlab"));
    let mut child = command.args(args).stdout(Stdio::null()).spawn().expect("the program starts");
    let status = format!("/proc/{}/status", child.id());
    let mut most = None;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most = most.max(kib.map(|kib| kib * 1024 / 1_000_000));
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            assert!(status.success(), "{args:?}");
            return (start.elapsed().as_secs_f64(), most);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Printed: times and memory. Times depend on the machine and on how this was built; memory and size do not.
#[test]
fn a_snapshot_of_a_million_entries_is_read_in_bounds() {
    let folder = Folder::new();
    let file = folder.file("million.pickle", million());
    let (seconds, most) = measured(&["inspect", &file]);
    println!("snapshots: inspect of {ENTRIES} entries: {seconds:.2} s, {} MB", most.unwrap_or(0));
    assert!(most.is_none_or(|most| most <= 250), "{most:?} MB");
    let page = folder.path("page.html");
    let (seconds, most) = measured(&["report", &file, "-o", &page, "--budget", "1", "--quiet"]);
    let size = std::fs::metadata(&page).expect("written").len() as f64 / 1e6;
    println!(
        "snapshots: report of it: {seconds:.2} s, {} MB, page of {size:.1} MB",
        most.unwrap_or(0)
    );
    assert!(size <= 15.0, "{size} MB");
}
