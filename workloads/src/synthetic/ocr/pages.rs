//! What arrives at the server: how large the page is, how many lines it has and how long they are.
//!
//! Sizes are fitted (mean and standard deviation of the logarithm) to the widths and heights of the ICDAR 2019 SROIE receipts
//! (626 pages, 33,626 lines; zzzDavid/ICDAR-2019-SROIE 27be4271b251, MIT):
//!
//! | quantity | distribution | data: 5 % / median / 95 % |
//! |---|---|---|
//! | page | 12.94 % are A4 scans at 600 dpi, 4,961×7,016; the others have width exp N(6.6396, 0.2283) | 584 / 751 / 1,080 px |
//! | height / width | exp N(0.7439, 0.2054) | 1.41 / 2.06 / 2.98 |
//! | lines per page | exp N(3.9325, 0.3182) | 30 / 50 / 87 |
//! | width / height of a line | exp N(1.4015, 0.8681) | 0.8 / 4.0 / 15.3 |
//!
//! With `sizes` or `lines` a list of recorded sizes takes their place (`listed`).
//!
//! Arrivals are bursty unless told otherwise ([`crate::arrivals`]). No measured arrival law of a document service was at hand: the rates are assumptions, and parameters.

use super::listed::Listed;
use crate::params::{ParamError, Params};
use crate::rng::Rng;

/// Share of whole-page scans.
const SCAN_SHARE: f64 = 0.1294;
/// An A4 page at 600 dpi (px).
const SCAN: [f64; 2] = [4961.0, 7016.0];
/// Logarithm of a photographed page's width (ln px): mean, standard deviation.
const WIDTH_LN: [f64; 2] = [6.6396, 0.2283];
/// Logarithm of its height over its width.
const PAGE_RATIO_LN: [f64; 2] = [0.7439, 0.2054];
/// Logarithm of a page's number of lines.
const LINES_LN: [f64; 2] = [3.9325, 0.3182];
/// Logarithm of a line's width over its height.
const LINE_RATIO_LN: [f64; 2] = [1.4015, 0.8681];

/// A page as the networks see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Height and width of the detector's input (px), multiples of 32.
    pub size: [u64; 2],
    /// Widths of the recogniser's inputs, one a line (px), in the order in which they are read.
    pub lines: Vec<u64>,
}

pub(super) use crate::graph::models::text_recogniser::HEIGHT;

/// How pages are brought to the networks' sizes.
pub(super) struct Pages {
    listed: Listed,
    sizes: Rng,
    lines: Rng,
    /// Longest side of the detector's input (px).
    limit: u64,
    lines_max: u64,
    line_width: u64,
    line_width_max: u64,
    fixed: bool,
}

/// The detector's sides are multiples of this (px).
const SIDE_STEP: f64 = 32.0;

impl Pages {
    pub(super) fn from_params(params: &Params, seed: u64) -> Result<Self, ParamError> {
        let line_width = params.count("line_width", 8..=8192)?;
        let limit = params.count("limit", 32..=8192)?;
        if !limit.is_multiple_of(32) {
            return Err(params.bad("limit", "a multiple of 32 from 32 to 8192"));
        }
        Ok(Self {
            listed: Listed::from_params(params)?,
            sizes: Rng::new(seed, "ocr.pages"),
            lines: Rng::new(seed, "ocr.lines"),
            limit,
            lines_max: params.count("lines_max", 1..=10_000)?,
            line_width,
            line_width_max: params.count("line_width_max", line_width..=65_536)?,
            fixed: params.flag("fixed_shape")?,
        })
    }

    pub(super) fn next(&mut self) -> Page {
        let listed = self.listed.next();
        let size = self.page_size(listed.size);
        let mut lines: Vec<u64> = match listed.lines {
            Some(ratios) => {
                let few = ratios.into_iter().take(self.lines_max as usize);
                few.map(|ratio| self.line_size(ratio)).collect()
            }
            None => {
                let drawn = self.lines.lognormal(LINES_LN[0], LINES_LN[1]).round() as u64;
                let count = drawn.clamp(1, self.lines_max);
                let draw = |_| self.lines.lognormal(LINE_RATIO_LN[0], LINE_RATIO_LN[1]);
                let ratios: Vec<f64> = (0..count).map(draw).collect();
                ratios.into_iter().map(|ratio| self.line_size(ratio)).collect()
            }
        };
        lines.sort_unstable();
        Page { size, lines }
    }

    /// The largest page that can come, with one group of lines.
    pub(super) fn largest(&self, group: u64) -> Page {
        Page { size: [self.limit; 2], lines: vec![self.line_width_max; group as usize] }
    }

    /// Longest side brought to the limit if above it, both to multiples of 32 (`DetResizeForTest` of PaddleOCR).
    fn page_size(&mut self, listed: Option<[f64; 2]>) -> [u64; 2] {
        let [width, height] = listed.unwrap_or_else(|| self.drawn_size());
        if self.fixed {
            return [self.limit; 2];
        }
        let scale = (self.limit as f64 / width.max(height)).min(1.0);
        [height, width].map(|side| ((side * scale / SIDE_STEP).round().max(1.0) * SIDE_STEP) as u64)
    }

    fn drawn_size(&mut self) -> [f64; 2] {
        if self.sizes.chance(SCAN_SHARE) {
            return SCAN;
        }
        let width = self.sizes.lognormal(WIDTH_LN[0], WIDTH_LN[1]);
        [width, width * self.sizes.lognormal(PAGE_RATIO_LN[0], PAGE_RATIO_LN[1])]
    }

    /// Line of this width over height brought to the recogniser's height; never below its usual width (`resize_norm_img` of PaddleOCR). What is longer than the
    /// greatest width is squeezed to it; a fixed shape is that width, since a shorter one would cut what other settings read.
    fn line_size(&self, ratio: f64) -> u64 {
        if self.fixed {
            return self.line_width_max;
        }
        let width = (HEIGHT as f64 * ratio) as u64;
        width.clamp(self.line_width, self.line_width_max)
    }
}
