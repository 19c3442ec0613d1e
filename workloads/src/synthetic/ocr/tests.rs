//! The server's networks against recorded ones, and what its parameters change.

use vramlab_sim::{Answered, Nanos, Op, Step};

use super::*;
use crate::live::live_peak;

fn rates() -> Rates {
    Rates::of(&vramlab_sim::device::profile::device("a100-80gb").unwrap())
}

fn source(text: &str, seed: u64) -> BoxedSource {
    let mut params = Params::defaults(PARAMS);
    params.set_text(text).unwrap();
    build(&params, seed, &rates()).unwrap()
}

/// Recorded with PyTorch 2.15: both models, then one page of 640×960 (fp32).
#[test]
fn detector_peak_is_as_recorded() {
    let mut params = Params::defaults(PARAMS);
    params.set_text("pages=1").unwrap();
    struct OnePage(Server);
    impl Script for OnePage {
        fn advance(&mut self, out: &mut Out) -> bool {
            if self.0.models.is_none() {
                return self.0.advance(out);
            }
            let page = Page { height: 640, width: 960, lines: vec![] };
            self.0.read(out, "page", &page);
            false
        }
    }
    let server = Server {
        arrivals: Arrivals::bursty(&params, Rng::new(0, "ocr.arrivals")).unwrap(),
        pages: Pages::from_params(&params, 0).unwrap(),
        net: Runner { number: 4, fused: false, late: false, workspace: true, garbage: vec![] },
        models: None,
        group: 6,
        fixed: false,
        warm: false,
        copy_stream: COMPUTE,
        drops: false,
        request: 0,
        arrived: 0,
        arrival: Nanos(u64::MAX),
        requests: 1,
    };
    let seen = live_peak(&mut Generated::new(OnePage(server), rates(), DType::F32)).unwrap();
    assert_eq!((seen.bytes_at_end, seen.bytes), (96_127_848, 351_169_384));
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
    assert!(fixed < 100 && varied > 5 * fixed, "{fixed} {varied}");
}

#[test]
fn second_stream_is_told_of() {
    let mut source = source("pages=3,streams=2", 0);
    let mut on_copy_stream = Vec::new();
    let mut recorded = Vec::new();
    loop {
        match source.next(Nanos(0), Answered::Done).unwrap() {
            Step::Op(Op::Alloc { id, stream: COPY, .. }) => on_copy_stream.push(id),
            Step::Op(Op::RecordStream { id, stream: COMPUTE }) => recorded.push(id),
            Step::End => break,
            _ => {}
        }
    }
    assert_eq!(on_copy_stream, recorded);
    assert!(on_copy_stream.len() > 3);
}

/// A request that is refused memory is answered, its buffers are freed once, and the next one is served.
#[test]
fn drop_frees_what_the_request_held() {
    let mut source = source("pages=5,on_oom=drop", 0);
    assert!(!source.independent());
    let mut live = std::collections::BTreeMap::new();
    let (mut last, mut refused, mut responses) = (Answered::Done, 0, 0);
    let mut models = 0;
    loop {
        let step = source.next(Nanos(0), last).unwrap();
        last = Answered::Done;
        match step {
            Step::Op(Op::Request { .. }) if models == 0 => models = live.len(),
            Step::Op(Op::Alloc { id, size, .. }) => {
                // refuse the first large tensor of every request
                if models > 0 && size > 100 << 20 {
                    (last, refused) = (Answered::OutOfMemory, refused + 1);
                } else {
                    assert!(live.insert(id, size).is_none(), "buffer {id} is live");
                }
            }
            Step::Op(Op::Free { id, .. }) => {
                live.remove(&id).unwrap_or_else(|| panic!("buffer {id} is not live"));
            }
            Step::Op(Op::Response { .. }) => {
                responses += 1;
                assert_eq!(live.len(), models, "after response {responses}");
            }
            Step::End => break,
            _ => {}
        }
    }
    assert_eq!(responses, 5);
    assert!(refused > 0);
}

/// A worker that needs a second per page: pages that come in the meantime are noted when they come, once, in order.
#[test]
fn requests_are_noted_on_arrival() {
    let mut source = source("pages=40", 0);
    let (mut now, mut requests, mut responses, mut early) = (0, Vec::new(), 0, 0);
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
            Step::Op(_) => {}
            Step::End => break,
        }
    }
    assert_eq!(requests, (0..40).collect::<Vec<u64>>());
    assert!(early > 20, "{early} pages came while another was read");
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
