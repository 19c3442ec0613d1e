//! `ocr`: a server that reads pages: bursts of requests, a detector, then a varying number of line crops per page.
//!
//! ```text
//! arrival ─▶ queue ─▶ page to device ─▶ detector ─▶ map to host ─▶ lines in groups ─▶ recogniser ─▶ best classes to host ─▶ response
//! ```
//!
//! One worker takes pages in the order in which they come. Page size, number of lines and their lengths are drawn
//! (`pages`), so that the shapes of nearly every request are new: what makes a caching allocator search, split and go to the driver in
//! the request path. Both networks are graphs ([`crate::graph::models::text_detector`], [`crate::graph::models::text_recogniser`]). Remedies can be
//! switched on one at a time:
//!
//! | parameter | what it does |
//! |---|---|
//! | `fixed_shape` | every page is padded to limit×limit, every group to `group` lines of `line_width_max`: the largest that comes without it, so that padding takes no work away |
//! | `warm` | one largest page is read before the first request |
//! | `fused` | norms and ReLUs are part of the convolutions (pass `fold`) |
//! | `free` | `early`: after the last use; `late`: when the network is done |
//! | `queue` | most pages that wait; more are turned away, and are no requests |
//! | `on_oom` | a page whose memory is refused: `ignore` (the ops never change), `shed` (answered at once), `retry` (again with half as many lines together; with one, shed). Where the models' own memory is refused, `shed` and `retry` turn every page away |
//!
//! A convolution whose workspace is refused runs without, and (with `shed` and `retry`) does not ask again. With `streams=2` inputs are asked for and copied on a stream of their own; the computation
//! waits for the copy, and `record_stream` says so. Map and classes are copied back and the host waits for them.
//!
//! Pages arrive while the worker is busy: `request` is handed out between two ops of the page at hand, as soon as the host's time has
//! passed the arrival (`arrivals` draws it, or `trace` has it recorded), so latency includes waiting for the worker (arrivals during a host wait are noted at its end). Where requests
//! stand among the other ops thus follows simulated time. Marks: `request N detect HxW`, `request N recognise LINES`, and at the end how many were
//! answered, shed, retried and turned away. Generator purposes: `ocr.arrivals`, `ocr.pages`, `ocr.lines`.
//!
//! Held to recordings of PyTorch 2.15 (`tests/recorded_vision.rs`). Left out: decoding and cropping on the host (no host time), several workers,
//! batches of pages, cuDNN's real workspaces.

mod listed;
mod networks;
mod pages;
mod service;
mod without;

pub use networks::Running;
pub use pages::Page;
pub use service::{OnOom, Service, Settings};

use self::pages::Pages;
use vramlab_sim::units::Nanos;

use crate::arrivals::{self, Arrivals, hastened};
use crate::graph::DType;
use crate::graph::plan::{ConvSpace, Release};
use crate::params::{ParamDoc, ParamError, Params, REPEATS_MAX, doc};
use crate::rates::Rates;
use crate::registry::BoxedSource;
use crate::rng::Rng;

/// Pages that come, if nobody says.
const PAGES_DRAWN: usize = 200;

/// Its parameters.
pub const PARAMS: &[ParamDoc] = &[
    doc(
        "pages",
        "auto",
        "pages",
        "requests in all, or the most that are taken of a trace; auto: 200, or all",
    ),
    doc("arrivals", "bursty", "-", "poisson, bursty or diurnal"),
    doc(
        "trace",
        "none",
        "-",
        "file of recorded requests (vramlab list formats), of which the times of arrival are taken; none: arrivals are drawn",
    ),
    doc("speed", "1", "-", "recorded times between arrivals are divided by this")
        .unless("trace", &["none"]),
    doc("rate", "4", "pages/s", "arrivals while calm, or on average"),
    doc("burst_rate", "40", "pages/s", "arrivals in a burst").only("arrivals", &["bursty"]),
    doc("calm", "5", "s", "mean length of a calm").only("arrivals", &["bursty"]),
    doc("burst", "1", "s", "mean length of a burst; 0: none").only("arrivals", &["bursty"]),
    doc("period", "86400", "s", "length of a day").only("arrivals", &["diurnal"]),
    doc("swing", "0.8", "-", "how far the rate of a day goes up and down, as a share of it")
        .only("arrivals", &["diurnal"]),
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
    doc(
        "line_width_max",
        "1920",
        "px",
        "greatest width of the recogniser's input; longer lines are squeezed to it",
    ),
    doc("precision", "fp32", "-", "fp32 or fp16"),
    doc(
        "fixed_shape",
        "false",
        "-",
        "pad pages to limit x limit, and groups to full ones of line_width_max, the largest shape; a lower line_width_max cuts lines with and without it",
    ),
    doc("warm", "false", "-", "read one largest page before the first request"),
    doc("fused", "false", "-", "convolution, norm and ReLU in one kernel"),
    doc("free", "early", "-", "early (after the last use) or late (when the network is done)"),
    doc(
        "workspace",
        "transpose",
        "-",
        "convolution workspace: transpose (input + output + filter) or none",
    ),
    doc("streams", "1", "streams", "2: inputs are copied on a stream of their own"),
    doc("queue", "0", "pages", "most pages that wait, more are turned away; 0: no limit"),
    doc("on_oom", "ignore", "-", "a page that is refused memory: ignore, shed or retry"),
];

/// Builds it.
///
/// # Errors
/// When a parameter's value is refused.
pub fn build(params: &Params, seed: u64, rates: &Rates) -> Result<BoxedSource, ParamError> {
    let mut pages = Pages::from_params(params, seed)?;
    let times = times(params, seed)?;
    let running = Running {
        dtype: params.choice("precision", &[("fp32", DType::F32), ("fp16", DType::F16)])?,
        fused: params.flag("fused")?,
        release: params
            .choice("free", &[("early", Release::Immediate), ("late", Release::AtEnd)])?,
        conv_space: params.choice(
            "workspace",
            &[("transpose", ConvSpace::Transpose), ("none", ConvSpace::None)],
        )?,
        beside: params.choice("streams", &[("1", false), ("2", true)])?,
    };
    let group = params.count("group", 1..=1024)?;
    let settings = Settings {
        running,
        group,
        filled: params.flag("fixed_shape")?,
        queue: params.count("queue", 0..=REPEATS_MAX)?,
        on_oom: params.choice(
            "on_oom",
            &[("ignore", OnOom::Ignore), ("shed", OnOom::Shed), ("retry", OnOom::Retry)],
        )?,
        warm: params.flag("warm")?.then(|| pages.largest(group)),
    };
    let coming = times.map(move |at| (at, pages.next()));
    Ok(Box::new(Service::new(settings, Box::new(coming), *rates)?))
}

/// What its times rest on.
pub fn assumes(_: &Params) -> Option<&'static str> {
    Some(
        "kernels take the time that the full rates of the data sheet allow (roofline), and the host none beside its calls: a lower bound, not measured",
    )
}

/// When pages come.
fn times(params: &Params, seed: u64) -> Result<Box<dyn Iterator<Item = Nanos> + Send>, ParamError> {
    let most = match params.text("pages") {
        "auto" => None,
        _ => Some(params.count("pages", 1..=REPEATS_MAX)? as usize),
    };
    let speed = params.number("speed", 1e-6..=1e6)?;
    let mut drawn = Arrivals::from_params(params, Rng::new(seed, "ocr.arrivals"))?;
    let Some(log) = arrivals::trace(params)? else {
        return Ok(Box::new((0..most.unwrap_or(PAGES_DRAWN)).map(move |_| drawn.next())));
    };
    if !log.timed() {
        return Err(params.bad("trace", "a file of requests with times of arrival"));
    }
    let count = log.len().min(most.unwrap_or(usize::MAX));
    let at = move |index: usize| log.requests()[index].arrival.unwrap_or_default();
    Ok(Box::new((0..count).map(move |index| hastened(at(index), speed))))
}

#[cfg(test)]
mod tests;
