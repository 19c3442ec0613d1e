//! `ocr`: a server that reads pages: bursts of requests, a detector, then a varying number of line crops per page.
//!
//! ```text
//! arrival ─▶ request ─▶ page to device ─▶ detector ─▶ map to host ─▶ lines in groups ─▶ recogniser ─▶ scores to host ─▶ response
//! ```
//!
//! One worker takes pages in the order in which they come. Page size, number of lines and their lengths are drawn
//! (`pages`), so that the shapes of nearly every request are new: what makes a caching allocator search, split and go to the driver in
//! the request path. Three remedies can be switched on one at a time:
//!
//! | parameter | what it does |
//! |---|---|
//! | `fixed_shape` | every page is padded to limit×limit, every group to `group` lines of `line_width` |
//! | `warm` | one largest page is read before the first request |
//! | `fused` | convolution, norm and ReLU are one kernel |
//! | `free` | `early`: as soon as the next layer has read it; `late`: with the response |
//!
//! With `streams=2` inputs are allocated and copied on stream 1; stream 0 waits for the copy, and `record_stream` says so. The prediction is
//! copied back and the host waits for it, twice or more per page. `on_oom=drop`: a refused request is answered at once and its
//! buffers are freed (the ops then depend on the answers); `ignore`: the ops never change.
//!
//! Pages arrive while the worker is busy: `request` is handed out between two ops of the page at hand, as soon as the host's time has
//! passed the arrival, so latency includes waiting for the worker (arrivals during a host wait are noted at its end). Where requests
//! stand among the other ops thus follows simulated time; all other ops, and their order, do not. Marks: `request N detect HxW`,
//! `request N recognise LINES`. Generator purposes: `ocr.arrivals`, `ocr.pages`, `ocr.lines`.
//!
//! At 640×960 the detector's peak equals the recorded one to the byte (test below). Left out: decoding and cropping on the host (no
//! host time), several workers, batches of pages, cuDNN's real workspaces.

mod detector;
mod listed;
mod network;
mod pages;
mod recogniser;

use vramlab_sim::machine::Direction;
use vramlab_sim::op::Op;
use vramlab_sim::units::{BufferId, EventId, Nanos, StreamId};

use self::detector::Detector;
use self::network::{Map, Runner};
use self::pages::{Page, Pages};
use self::recogniser::{HEIGHT, Recogniser};
use super::emit::{Generated, Out, Script};
use crate::arrivals::Arrivals;
use crate::graph::DType;
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;
use crate::rng::Rng;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &[
    doc("pages", "200", "pages", "requests in all"),
    doc("rate", "4", "pages/s", "arrivals while calm"),
    doc("burst_rate", "40", "pages/s", "arrivals in a burst"),
    doc("calm", "5", "s", "mean length of a calm"),
    doc("burst", "1", "s", "mean length of a burst; 0: none, plain Poisson arrivals"),
    doc("limit", "960", "px", "longest side of the detector's input; a multiple of 32"),
    doc(
        "sizes",
        "",
        "file",
        "a list of recorded page sizes (CSV: index,width,height) instead of drawn ones",
    ),
    doc(
        "lines",
        "",
        "file",
        "a list of recorded lines (CSV: image_index,line_width,line_height) instead of drawn ones",
    ),
    doc("lines_max", "200", "lines", "most lines of a page"),
    doc("group", "6", "lines", "lines recognised together"),
    doc("line_width", "320", "px", "least width of the recogniser's input"),
    doc("line_width_max", "1920", "px", "greatest width of the recogniser's input"),
    doc("precision", "fp32", "-", "fp32 or fp16"),
    doc("fixed_shape", "false", "-", "pad pages and groups to one shape"),
    doc("warm", "false", "-", "read one largest page before the first request"),
    doc("fused", "false", "-", "convolution, norm and ReLU in one kernel"),
    doc("free", "early", "-", "early (after the last use) or late (with the response)"),
    doc(
        "workspace",
        "transpose",
        "-",
        "convolution workspace: transpose (input + output + filter) or none",
    ),
    doc("streams", "1", "streams", "2: inputs are copied on a stream of their own"),
    doc("on_oom", "ignore", "-", "ignore, or drop (answer the request and free its buffers)"),
];

const COMPUTE: StreamId = StreamId(0);
const COPY: StreamId = StreamId(1);
const COPIED: EventId = EventId(0);

struct Server {
    arrivals: Arrivals,
    pages: Pages,
    net: Runner,
    models: Option<(Detector, Recogniser)>,
    group: u64,
    fixed: bool,
    warm: bool,
    copy_stream: StreamId,
    drops: bool,
    /// The next page to be read.
    request: u64,
    /// Pages that have arrived.
    arrived: u64,
    /// When the next one does.
    arrival: Nanos,
    requests: u64,
}

impl Server {
    /// The next page arrives.
    fn arrive(&mut self) -> Op {
        let req = self.arrived;
        self.arrived += 1;
        self.arrival = self.arrivals.next();
        Op::Request { req }
    }

    /// An input of so many images, on the device.
    fn input(&mut self, out: &mut Out, images: u64, height: u64, width: u64) -> Map {
        let size = images * 3 * height * width * self.net.number;
        let id = out.alloc_on(self.copy_stream, "input", size);
        out.copy(self.copy_stream, Direction::HostToDevice, size);
        if self.copy_stream != COMPUTE {
            out.order(COPIED, self.copy_stream, COMPUTE);
            out.op(Op::RecordStream { id, stream: COMPUTE });
        }
        Map { id, images, channels: 3, height, width }
    }

    /// The host reads a result (consumed) and waits for it.
    fn result(&mut self, out: &mut Out, result: BufferId) {
        out.copy(COMPUTE, Direction::DeviceToHost, out.size(result));
        out.op(Op::Sync { stream: Some(COMPUTE) });
        self.net.drop_id(out, result);
    }

    fn read(&mut self, out: &mut Out, name: &str, page: &Page) {
        let Some((detector, recogniser)) = self.models.take() else { return };
        out.mark(format!("{name} detect {}x{}", page.height, page.width));
        let input = self.input(out, 1, page.height, page.width);
        let map = detector.run(out, &mut self.net, input);
        self.result(out, map.id);
        self.net.drop(out, input);

        out.mark(format!("{name} recognise {}", page.lines.len()));
        for lines in page.lines.chunks(self.group as usize) {
            let width = lines.last().copied().unwrap_or(1);
            let images = if self.fixed { self.group } else { lines.len() as u64 };
            let input = self.input(out, images, HEIGHT, width);
            let scores = recogniser.run(out, &mut self.net, input);
            self.net.drop(out, input);
            let best = out.alloc("best", images * scores.width * 8);
            out.work(0.0, &[scores.id], &[best]);
            self.net.drop(out, scores);
            self.result(out, best);
        }
        for id in std::mem::take(&mut self.net.garbage) {
            out.release(id);
        }
        self.models = Some((detector, recogniser));
    }
}

impl Script for Server {
    fn advance(&mut self, out: &mut Out) -> bool {
        if self.models.is_none() {
            out.mark("models to device".to_owned());
            let detector = Detector::load(out, &self.net);
            let recogniser = Recogniser::load(out, &self.net);
            self.models = Some((detector, recogniser));
            if self.warm {
                let largest = self.pages.largest();
                self.read(out, "warm", &largest);
            }
            return true;
        }
        if self.request == self.requests {
            return false;
        }
        let page = self.pages.next();
        let req = self.request;
        self.request += 1;
        if self.arrived == req {
            out.wait_until(self.arrival);
            out.op(self.arrive());
        }
        self.read(out, &format!("request {req}"), &page);
        out.op(Op::Response { req });
        true
    }

    fn independent(&self) -> bool {
        !self.drops
    }

    fn arrived(&mut self, now: Nanos) -> Option<Op> {
        let due = self.models.is_some() && self.arrived < self.requests && self.arrival <= now;
        due.then(|| self.arrive())
    }
}

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let number = params.choice("precision", &[("fp32", 4), ("fp16", 2)])?;
    let mut arrivals = Arrivals::bursty(params, Rng::new(seed, "ocr.arrivals"))?;
    let arrival = arrivals.next();
    let script = Server {
        arrivals,
        pages: Pages::from_params(params, seed)?,
        net: Runner {
            number,
            fused: params.flag("fused")?,
            late: params.choice("free", &[("early", false), ("late", true)])?,
            workspace: params.choice("workspace", &[("transpose", true), ("none", false)])?,
            garbage: Vec::new(),
        },
        models: None,
        group: params.count("group", 1..=1024)?,
        fixed: params.flag("fixed_shape")?,
        warm: params.flag("warm")?,
        copy_stream: params.choice("streams", &[("1", COMPUTE), ("2", COPY)])?,
        drops: params.choice("on_oom", &[("ignore", false), ("drop", true)])?,
        request: 0,
        arrived: 0,
        arrival,
        requests: params.count("pages", 1..=REPEATS_MAX)?,
    };
    let math = if number == 2 { DType::F16 } else { DType::F32 };
    Ok(Box::new(Generated::new(script, *rates, math)))
}

#[cfg(test)]
mod tests;
