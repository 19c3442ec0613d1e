//! Pictures for print: SVG, at half a page, whose titles say what is to be seen.
//!
//! | module | draws |
//! |---|---|
//! | [`time`] | memory over time by category, stacked, with what is reserved and the live floor |
//! | [`map`] | addresses over time: what lives where, and what of the rest is no use |
//! | [`segments`] | the segments at one moment |
//! | [`sizes`] | a histogram of request sizes, and of their bytes |
//! | [`latency`] | the share of requests that end within a time, P50 and P99 marked |
//! | [`capacity`] | peak reserved against the size of the device |
//! | [`bars`] | figures of runs side by side, with their intervals |
//!
//! [`sheet`] is what they are drawn on: title, legend, axes; [`scale`] the units of axes; [`subject`] what is run.
//!
//! | rule | what it says | source |
//! |---|---|---|
//! | `told` | a title is made of the figures that the picture shows, never typed | |
//! | `colours` | eight that people with any kind of colour vision tell apart, and grey | Okabe and Ito, "Color Universal Design" (2008) |
//! | `marks` | a picture has a bounded number of marks, however long a run is: times are cut into columns, addresses into rows | |
//! | `same` | same inputs, same bytes: sizes of text are estimated by characters, no font is measured | plotters 0.3.7, `style/font/naive.rs` |

pub mod bars;
pub mod capacity;
pub mod latency;
pub mod map;
pub mod scale;
pub mod segments;
pub mod sheet;
pub mod sizes;
pub mod subject;
pub mod time;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Memory over time by category, with what is reserved and the live floor
    Time,
    /// What lies at which address over time, and why the rest is no use
    Map,
    /// All segments at one moment: the first refused request, or else the peak (--at)
    Segments,
    /// How often which size is asked for, and how many bytes that is
    Sizes,
    /// The share of requests that end within a time; several strategies in one picture
    Latency,
    /// Peak reserved against the size of the device; several strategies in one picture
    Capacity,
    /// One figure of several strategies side by side (--figure), over --seeds with intervals
    Bars,
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// What is to be seen.
    pub title: String,
    /// The file.
    pub svg: String,
    /// The numbers that it shows.
    pub data: Data,
}

/// Numbers of a picture, as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Names of the columns, units in them.
    pub titles: Vec<String>,
    /// Cells, line by line.
    pub rows: Vec<Vec<String>>,
}

impl Data {
    /// Without rows.
    pub fn new(titles: &[&str]) -> Self {
        Self { titles: titles.iter().map(|title| (*title).to_owned()).collect(), rows: Vec::new() }
    }

    /// As CSV.
    ///
    /// # Errors
    /// None that an input can cause.
    pub fn csv(&self) -> Result<String, Failure> {
        let internal = |error: &dyn std::fmt::Display| Failure::input(format!("the data: {error}"));
        let mut out = csv::Writer::from_writer(Vec::new());
        for line in std::iter::once(&self.titles).chain(&self.rows) {
            out.write_record(line).map_err(|e| internal(&e))?;
        }
        let bytes = out.into_inner().map_err(|e| internal(&e))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A picture that cannot be drawn, in whose place words stand: the files of a table are the same, whatever recordings are there.
///
/// # Errors
/// None that an input can cause.
pub fn not_drawn(title: &str, why: &str) -> Result<Picture, Failure> {
    let title = format!("Not drawn: {title}");
    let sheet = sheet::Sheet { height: 60, ..sheet::Sheet::new(&title, why) };
    let svg = sheet.draw(|_| Ok(()))?;
    let mut data = Data::new(&["not drawn"]);
    data.rows.push(vec![why.to_owned()]);
    Ok(Picture { title, svg, data })
}
