//! What the service's parameters change, and how it reacts to refusals.

use std::collections::BTreeMap;

use vramlab_sim::device::profile::device;
use vramlab_sim::report::Answers;
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

/// Lines were held to the least width, and a padded service was faster than one that pads nothing.
#[test]
fn fixed_shape_takes_no_work_away() {
    let work = |text: &str| {
        let (mut source, mut sum) = (source(text, 2), 0);
        loop {
            match source.next(Nanos(0), Answered::Done).unwrap() {
                Step::Op(Op::Work { duration, .. }) => sum += duration,
                Step::End => return sum,
                _ => {}
            }
        }
    };
    for more in ["", ",line_width_max=400", ",limit=640"] {
        let (fixed, varied) = (format!("pages=5,fixed_shape=true{more}"), format!("pages=5{more}"));
        let (fixed, varied) = (work(&fixed), work(&varied));
        assert!(fixed > varied, "{more}: {fixed} {varied}");
    }
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

/// What a run in which some requests are refused came to.
#[derive(Default)]
struct Seen {
    /// Requests of memory: of the models before the first page, all, and those that were refused.
    models: u64,
    allocs: u64,
    refused: u64,
    responses: u64,
    end: String,
    counts: Answers,
    /// Live at the end.
    left: usize,
}

/// Plays a run in which requests of memory are refused by number, size and site, and holds it to what an engine would: a number is taken until it
/// is freed, of a refused buffer too, and nothing is freed that was not asked for.
fn run_refusing(text: &str, refuse: impl Fn(u64, u64, &str) -> bool) -> Seen {
    let mut source = source(text, 0);
    let mut live = BTreeMap::new();
    let (mut last, mut seen) = (Answered::Done, Seen::default());
    loop {
        let step = source.next(Nanos(0), last).unwrap();
        last = Answered::Done;
        match step {
            Step::Op(Op::Alloc { id, size, site, .. }) => {
                let granted = !refuse(seen.allocs, size, source.text(site));
                seen.allocs += 1;
                assert!(live.insert(id, granted).is_none(), "buffer {id} is live already");
                if !granted {
                    (last, seen.refused) = (Answered::OutOfMemory, seen.refused + 1);
                }
            }
            Step::Op(Op::Free { id, .. }) => match live.remove(&id) {
                Some(true) => {}
                Some(false) => last = Answered::Skipped,
                None => panic!("buffer {id} is not live"),
            },
            Step::Op(Op::Request { req: 0 }) => seen.models = seen.allocs,
            Step::Op(Op::Response { .. }) => seen.responses += 1,
            Step::Op(Op::Mark { name }) => seen.end = source.text(name).to_owned(),
            Step::End => {
                seen.counts = source.answers().unwrap();
                seen.left = live.len();
                return seen;
            }
            _ => {}
        }
    }
}

#[test]
fn a_shed_page_frees_what_it_held() {
    let large = |_, size, site: &str| size > 40 << 20 && !site.ends_with("workspace");
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
    let wide = |_, size: u64, site: &str| site.starts_with("conv.0.conv") && size > 24 << 20;
    let seen = run_refusing("pages=3,on_oom=retry", wide);
    assert_eq!(seen.responses, 3);
    assert!(seen.refused > 0);
    assert!(seen.end.contains(" 0 of them shed"), "{}", seen.end);
    let models = run_refusing("pages=3", |_, _, _| false).models;
    let never = run_refusing("pages=3,on_oom=retry", |number, _, site| {
        number >= models && site.starts_with("head")
    });
    // groups of 6, 3 and 1
    assert_eq!(never.end, "end: 3 answered, 3 of them shed, 6 retries, 0 turned away");
}

#[test]
fn a_convolution_goes_on_without_its_workspace() {
    let seen = run_refusing("pages=2,on_oom=shed", |_, _, site| {
        site.ends_with(crate::graph::lower::CONV_SPACE)
    });
    assert!(seen.refused > 20);
    assert!(seen.end.contains(" 0 of them shed"), "{}", seen.end);
    // of the same shapes again, none is asked for again
    let space = |_, _, site: &str| site.ends_with(crate::graph::lower::CONV_SPACE);
    let few = run_refusing("pages=2,fixed_shape=true,on_oom=shed", space);
    let many = run_refusing("pages=6,fixed_shape=true,on_oom=shed", space);
    assert_eq!(few.refused, many.refused);
    let ignoring = run_refusing("pages=6,fixed_shape=true", space);
    assert!(ignoring.refused > 2 * many.refused);
}

/// Each request of memory in turn is the one that is refused, and in another round all from it on: no number is used twice, nothing but the
/// models is left, and every page is answered, shed or turned away.
#[test]
fn whatever_request_is_refused_the_service_goes_on() {
    const SMALL: &str = "pages=2,limit=64,lines_max=5,group=2,line_width=32,line_width_max=64";
    for on_oom in ["shed", "retry"] {
        for more in ["", ",streams=2", ",warm=true,fixed_shape=true", ",free=late"] {
            let text = format!("{SMALL},on_oom={on_oom}{more}");
            let whole = run_refusing(&text, |_, _, _| false);
            assert_eq!((whole.counts.answered, whole.counts.shed), (2, 0));
            let step = if more.is_empty() { 1 } else { 5 };
            for at in (0..whole.allocs).step_by(step) {
                let one = run_refusing(&text, |number, _, _| number == at);
                let Answers { requests, answered, turned_away, .. } = one.counts;
                assert_eq!((requests, answered + turned_away), (2, 2), "{text}: {at}");
                assert!(one.left <= whole.left, "{text}: {at}: {} are left", one.left);
                assert!(one.counts.shed <= 1, "{text}: {at}");
            }
            for at in (0..whole.allocs).step_by(37) {
                let all = run_refusing(&text, |number, _, _| number >= at);
                let Answers { answered, shed, turned_away, .. } = all.counts;
                assert_eq!(answered + turned_away, 2, "{text}: from {at} on");
                assert!(shed + turned_away > 0, "{text}: from {at} on");
            }
        }
    }
}

#[test]
fn without_room_for_the_models_every_page_is_turned_away() {
    let seen = run_refusing("pages=3,on_oom=shed", |number, _, _| number == 5);
    assert_eq!((seen.responses, seen.refused, seen.left), (0, 1, 0));
    assert_eq!((seen.counts.requests, seen.counts.turned_away), (3, 3));
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
    let (mean, variation) = gaps("pages=2000,arrivals=poisson,rate=10,limit=32");
    assert!((mean - 0.1).abs() < 0.01 && (variation - 1.0).abs() < 0.1, "{mean} {variation}");
    // two thirds of the arrivals come in the busy half of a period of many gaps
    let (mean, variation) = gaps("pages=2000,arrivals=diurnal,rate=10,period=50,swing=1,limit=32");
    assert!((mean - 0.1).abs() < 0.01 && variation > 1.1, "{mean} {variation}");
}

#[test]
fn pages_come_when_a_trace_says() {
    let folder = std::env::temp_dir().join(format!("vramlab-ocr-{}", std::process::id()));
    let file = |name: &str, text: &str| {
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let rows = "0.0,5,5\n0.5,5,5\n2.5,5,5\n";
    let timed = file("timed.csv", &format!("Timestamp,Request tokens,Response tokens\n{rows}"));
    let untimed = file("untimed.csv", "num_prefill_tokens,num_decode_tokens\n5,5\n");
    let waits = |text: &str| {
        let mut source = source(text, 0);
        let mut times = Vec::new();
        loop {
            match source.next(Nanos(0), Answered::Done).unwrap() {
                Step::WaitUntil(time) => times.push(time.0 / 1_000_000),
                Step::End => return times,
                _ => {}
            }
        }
    };
    assert_eq!(waits(&format!("limit=32,trace={timed}")), [500, 2500]);
    assert_eq!(waits(&format!("limit=32,trace={timed},speed=2,pages=2")), [250]);
    let refused = |text: String| {
        let mut params = Params::defaults(PARAMS);
        params.set_text(&text).unwrap();
        build(&params, 0, &Rates::free()).err().expect("refused").to_string()
    };
    let told = refused(format!("trace={untimed}"));
    assert!(told.contains("with times of arrival"), "{told}");
    assert!(refused("trace=/nowhere.csv".into()).contains("/nowhere.csv"));
    assert!(refused("arrivals=never".into()).contains("trace=FILE"));
    std::fs::remove_dir_all(&folder).unwrap();
}
