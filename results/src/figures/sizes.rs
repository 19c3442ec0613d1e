//! A histogram of request sizes: how often each power of two is asked for, and how many bytes that is.
//!
//! | rule | what it says |
//! |---|---|
//! | `bins` | a bin for each power of two: sizes from it on, up to before the next |
//! | `asked` | all requests, of which some may be refused; a buffer that is resized asks for its new size. Sizes of 0 are told in the data only |

use plotters::prelude::*;
use vramlab_sim::engine::{Observer, Seen};
use vramlab_sim::op::Op;

use super::scale;
use super::sheet::{HEIGHT, Sheet, axes_labelled, colour};
use super::subject::Subject;
use super::{Data, Picture};
use crate::failure::Failure;

const BINS: usize = 64;

/// Requests and their bytes, by power of two.
struct Counts {
    none: u64,
    count: [u64; BINS],
    bytes: [u128; BINS],
}

impl Observer for Counts {
    fn after(&mut self, seen: &Seen<'_>) {
        let (Op::Alloc { size, .. } | Op::Realloc { size, .. }) = *seen.op else { return };
        match size.checked_ilog2() {
            Some(bin) => {
                self.count[bin as usize] += 1;
                self.bytes[bin as usize] += u128::from(size);
            }
            None => self.none += 1,
        }
    }
}

impl Counts {
    fn total(&self) -> (u64, u128) {
        (self.count.iter().sum(), self.bytes.iter().sum())
    }

    /// The first and the last bin that has any.
    fn ends(&self) -> Option<(usize, usize)> {
        let first = self.count.iter().position(|count| *count > 0)?;
        Some((first, self.count.iter().rposition(|count| *count > 0)?))
    }

    /// The largest sizes that have half of the bytes.
    fn title(&self) -> String {
        let (count, bytes) = self.total();
        let (mut above, mut of) = (0_u64, 0_u128);
        for bin in (0..BINS).rev() {
            above += self.count[bin];
            of += self.bytes[bin];
            if 2 * of >= bytes && of > 0 {
                let share = (1000 * of / bytes) as u64;
                return format!(
                    "{} of {count} requests are for {} and more; they ask for {} of the bytes",
                    scale::percent(above, count),
                    scale::bytes(1 << bin),
                    scale::percent(share, 1000)
                );
            }
        }
        format!("{count} requests, none of which asks for a byte")
    }
}

/// Draws it.
///
/// # Errors
/// Bad input, or one without requests of buffers.
pub fn picture(subject: &Subject<'_, '_>) -> Result<Picture, Failure> {
    let mut counts = Counts { none: 0, count: [0; BINS], bytes: [0; BINS] };
    subject.run(Some(&mut counts))?;
    let Some((first, last)) = counts.ends() else {
        return Err(subject.bad("no request for a buffer in it, so it has no sizes"));
    };
    let title = counts.title();
    let mut sheet = Sheet::new(&title, &format!("{}: all requests", subject.input.name));
    sheet.height = HEIGHT + 80;
    let svg = sheet.draw(|area| {
        let (upper, lower) = area.split_vertically(sheet.height as i32 / 2 - 20);
        let most = counts.count.iter().max().copied().unwrap_or(1) as f64;
        let x = first as f64..(last + 1) as f64;
        let high = (most * 1.5).max(10.0);
        let mut chart = ChartBuilder::on(&upper)
            .margin_right(40)
            .margin_left(10)
            .x_label_area_size(10)
            .y_label_area_size(90)
            .build_cartesian_2d(x.clone(), (0.5..high).log_scale())?;
        let labels = ((last - first + 1) / (last - first).div_ceil(9).max(1)).max(2);
        axes_labelled(&mut chart, ("", labels, &|_| String::new()), "requests")?;
        let bars = (first..=last).filter(|bin| counts.count[*bin] > 0);
        chart
            .draw_series(bars.map(|bin| bar(bin, (0.5, counts.count[bin] as f64), colour::BLUE)))?;
        let all = counts.total().1.max(1);
        let share = |bin: usize| 100.0 * counts.bytes[bin] as f64 / all as f64;
        let most = (first..=last).map(share).fold(0.0, f64::max);
        let mut chart = ChartBuilder::on(&lower)
            .margin_right(40)
            .margin_left(10)
            .margin_top(8)
            .x_label_area_size(62)
            .y_label_area_size(90)
            .build_cartesian_2d(x, 0.0..scale::end(most))?;
        let what = "size of the request, by powers of two";
        axes_labelled(&mut chart, (what, labels, &|bin| power(*bin)), "bytes (% of all)")?;
        chart.draw_series(
            (first..=last)
                .filter(|bin| counts.bytes[*bin] > 0)
                .map(|bin| bar(bin, (0.0, share(bin)), colour::ORANGE)),
        )?;
        Ok(())
    })?;
    Ok(Picture { title, svg, data: data(&counts) })
}

fn bar(bin: usize, (from, to): (f64, f64), fill: RGBColor) -> Rectangle<(f64, f64)> {
    let x = bin as f64;
    Rectangle::new([(x + 0.08, from), (x + 0.92, to)], fill.filled())
}

/// The size at the begin of a bin.
fn power(bin: f64) -> String {
    match bin {
        whole if whole.fract() == 0.0 && (0.0..64.0).contains(&whole) => {
            scale::bytes(1 << whole as u32)
        }
        _ => String::new(),
    }
}

fn data(counts: &Counts) -> Data {
    let mut data = Data::new(&["from_bytes", "requests", "bytes"]);
    if counts.none > 0 {
        data.rows.push(vec!["0".to_owned(), counts.none.to_string(), "0".to_owned()]);
    }
    for bin in (0..BINS).filter(|bin| counts.count[*bin] > 0) {
        let size = 1_u64 << bin;
        let numbers =
            [size.to_string(), counts.count[bin].to_string(), counts.bytes[bin].to_string()];
        data.rows.push(numbers.to_vec());
    }
    data
}
