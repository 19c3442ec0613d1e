//! What the service's parameters change, and how it reacts to refusals.

use std::collections::BTreeMap;

use vramlab_sim::device::profile::device;
use vramlab_sim::units::StreamId;
use vramlab_sim::{Answered, Nanos, Op, Step};

use super::*;
use crate::live::live_peak;

fn source(text: &str, seed: u64) -> BoxedSource {
    let mut params = Params::defaults(PARAMS);
    params.set_text(text).unwrap();
    build(&params, seed, &Rates::of(&device("a100-80gb").unwrap())).unwrap()
}

#[test]
fn remedies_lower_or_raise_the_peak_as_they_should() {
    let peak = |text: &str| live_peak(&mut *source(text, 1)).unwrap();
    let plain = peak("pages=10");
    assert!(peak("pages=10,fused=true").allocs < plain.allocs);
    assert!(peak("pages=10,free=late").bytes > 2 * plain.bytes);
    assert!(peak("pages=10,workspace=none").bytes < plain.bytes);
    assert!(peak("pages=10,precision=fp16").bytes < plain.bytes * 6 / 10);
    assert!(peak("pages=10,warm=true").allocs > plain.allocs);
}

#[test]
fn fixed_shape_needs_few_sizes() {
    let sizes = |text: &str| {
        let mut source = source(text, 2);
        let mut seen = std::collections::BTreeSet::new();
        loop {
            match source.next(Nanos(0), Answered::Done).unwrap() {
                Step::Op(Op::Alloc { size, .. }) => {
                    seen.insert(size);
                }
                Step::End => return seen.len(),
                _ => {}
            }
        }
    };
    let (fixed, varied) = (sizes("pages=20,fixed_shape=true"), sizes("pages=20"));
    assert!(fixed < 120 && varied > 5 * fixed, "{fixed} {varied}");
}

#[test]
fn second_stream_is_told_of() {
    let mut source = source("pages=3,streams=2", 0);
    let (mut beside, mut recorded) = (Vec::new(), Vec::new());
    loop {
        match source.next(Nanos(0), Answered::Done).unwrap() {
            Step::Op(Op::Alloc { id, stream, .. }) if stream != StreamId(0) => beside.push(id),
            Step::Op(Op::RecordStream { id, stream: StreamId(0) }) => recorded.push(id),
            Step::End => break,
            _ => {}
        }
    }
    assert_eq!(beside, recorded);
    assert!(beside.len() > 3);
}

/// What a run in which requests of so many bytes are refused came to.
#[derive(Default)]
struct Seen {
    responses: u64,
    refused: u64,
    end: String,
}

fn run_refusing(text: &str, refuse: impl Fn(u64, &str) -> bool) -> Seen {
    let mut source = source(text, 0);
    let mut live = BTreeMap::new();
    let (mut last, mut seen, mut models) = (Answered::Done, Seen::default(), 0);
    loop {
        let step = source.next(Nanos(0), last).unwrap();
        last = Answered::Done;
        match step {
            Step::Op(Op::Request { .. }) if models == 0 => models = live.len(),
            Step::Op(Op::Alloc { id, size, site, .. }) => {
                if models > 0 && refuse(size, source.text(site)) {
                    (last, seen.refused) = (Answered::OutOfMemory, seen.refused + 1);
                } else {
                    assert!(live.insert(id, size).is_none(), "buffer {id} is live");
                }
            }
            // a buffer whose request was refused may be freed: nothing happens
            Step::Op(Op::Free { id, .. }) => {
                last = match live.remove(&id) {
                    Some(_) => Answered::Done,
                    None => Answered::Skipped,
                }
            }
            Step::Op(Op::Response { .. }) => {
                seen.responses += 1;
            }
            Step::Op(Op::Mark { name }) => seen.end = source.text(name).to_owned(),
            Step::End => return seen,
            _ => {}
        }
    }
}

#[test]
fn a_shed_page_frees_what_it_held() {
    let large = |size, site: &str| size > 40 << 20 && !site.ends_with("workspace");
    let seen = run_refusing("pages=5,on_oom=shed", large);
    assert_eq!(seen.responses, 5);
    assert!(seen.refused > 0);
    assert_eq!(
        seen.end,
        format!("end: 5 answered, {} of them shed, 0 retries, 0 turned away", seen.refused)
    );
}

/// Lines are halved until they fit; a page of the detector's never does.
#[test]
fn a_retried_page_reads_fewer_lines_together_until_it_is_shed() {
    let wide = |size: u64, site: &str| site.starts_with("conv.0.conv") && size > 24 << 20;
    let seen = run_refusing("pages=3,on_oom=retry", wide);
    assert_eq!(seen.responses, 3);
    assert!(seen.refused > 0);
    assert!(seen.end.contains(" 0 of them shed"), "{}", seen.end);
    let never = run_refusing("pages=3,on_oom=retry", |_, site| site.starts_with("head"));
    // groups of 6, 3 and 1
    assert_eq!(never.end, "end: 3 answered, 3 of them shed, 6 retries, 0 turned away");
}

#[test]
fn a_convolution_goes_on_without_its_workspace() {
    let seen = run_refusing("pages=2,on_oom=shed", |_, site| {
        site.ends_with(crate::graph::lower::CONV_SPACE)
    });
    assert!(seen.refused > 20);
    assert!(seen.end.contains(" 0 of them shed"), "{}", seen.end);
}

/// A worker that needs a second per page: pages that come in the meantime are noted when they come, once, in order; with a short queue
/// some are turned away.
#[test]
fn requests_are_noted_on_arrival_and_a_full_queue_turns_pages_away() {
    let run = |text: &str| {
        let mut source = source(text, 0);
        let (mut now, mut requests, mut responses, mut early) = (0, Vec::new(), 0, 0);
        let mut end = String::new();
        loop {
            match source.next(Nanos(now), Answered::Done).unwrap() {
                Step::WaitUntil(time) => now = now.max(time.0),
                Step::Op(Op::Request { req }) => {
                    requests.push(req);
                    early += u64::from(requests.len() > responses + 1);
                }
                Step::Op(Op::Response { req }) => {
                    assert_eq!(req, responses as u64);
                    assert!(requests.len() > responses);
                    responses += 1;
                }
                Step::Op(Op::Sync { .. }) => now += 100_000_000,
                Step::Op(Op::Mark { name }) => end = source.text(name).to_owned(),
                Step::Op(_) => {}
                Step::End => break,
            }
        }
        assert_eq!(requests, (0..responses as u64).collect::<Vec<u64>>());
        (responses, early, end)
    };
    let (responses, early, _) = run("pages=40");
    assert_eq!(responses, 40);
    assert!(early > 20, "{early} pages came while another was read");
    let (responses, _, end) = run("pages=40,queue=2");
    let turned_away = 40 - responses;
    assert!(turned_away > 10);
    assert!(end.ends_with(&format!(" {turned_away} turned away")), "{end}");
    assert!(!source("queue=2", 0).independent() && source("", 0).independent());
}

#[test]
fn bursts_bring_pages_close_together() {
    let gaps = |text: &str| {
        let mut source = source(text, 0);
        let mut times = Vec::new();
        loop {
            match source.next(Nanos(0), Answered::Done).unwrap() {
                Step::WaitUntil(time) => times.push(time.0 as f64 / 1e9),
                Step::End => break,
                _ => {}
            }
        }
        assert!(times.is_sorted());
        let mut gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_by(f64::total_cmp);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean, square.sqrt() / mean)
    };
    let (mean, variation) = gaps("pages=2000,burst=0,rate=10,limit=32");
    assert!((mean - 0.1).abs() < 0.01 && (variation - 1.0).abs() < 0.1, "{mean} {variation}");
    let (_, variation) = gaps("pages=2000,limit=32");
    assert!(variation > 1.5, "{variation}");
}
