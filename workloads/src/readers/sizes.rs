//! Lists of the sizes of pages, lines and crops that a text recogniser gets.
//!
//! | list | columns (px, letters) |
//! |---|---|
//! | pages, or crops that are on no page | `index`, `width`, `height`; `file_bytes` is not read |
//! | lines or crops of pages | `image_index`, `line_width` or `crop_width`, `line_height` or `crop_height`, `text_len`, `unreadable` (0 or 1) |
//!
//! | rule | what it says |
//! |---|---|
//! | `order` | the order of the file; of lines with one `image_index`, which may lie apart, too |
//! | `pixels` | a side has 1 to 1,000,000 pixels |
//!
//! Such lists are cut out of public sets (headers of images, corners of boxes): SROIE 2019, ICDAR 2015, PaddleOCR's samples.

use std::io::Read;
use std::path::Path;

use vramlab_sim::source::SourceError;

use super::bytes;
use super::text::{Csv, Lines, Row};

/// Most sizes that are held.
const SIZES_MAX: usize = 20_000_000;
/// Most pixels of a side.
const SIDE_MAX: u64 = 1_000_000;

/// A list of sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeList {
    /// Are they lines or crops of pages, not pages?
    pub parts: bool,
    /// In the order of the file.
    pub sizes: Vec<Size>,
}

/// The size of a page, a line or a crop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of the page; of a line or crop: of the page that it lies on.
    pub page: u64,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
    /// Letters of the text on it, where the list says so.
    pub letters: Option<u32>,
    /// Marked as not to be read.
    pub unreadable: bool,
}

/// Names of the columns of widths; the first is that of pages.
pub(super) const WIDTHS: [&str; 3] = ["width", "line_width", "crop_width"];
/// Names of the columns of heights.
pub(super) const HEIGHTS: [&str; 3] = ["height", "line_height", "crop_height"];

/// Reads a list, plain or compressed.
///
/// # Errors
/// It cannot be read, or a line is bad; the error names the file.
pub fn open(path: &Path) -> Result<SizeList, SourceError> {
    let origin = path.display().to_string();
    match bytes::open(path) {
        Ok(input) => read(input, &origin),
        Err(error) => Err(SourceError { place: origin, what: error.source.to_string() }),
    }
}

/// As [`open`], from anywhere; `origin` names it in messages.
///
/// # Errors
/// It cannot be read, or a line is bad: line, found, expected.
pub fn read(input: impl Read, origin: &str) -> Result<SizeList, SourceError> {
    let mut csv = Csv::new(Lines::new(input, origin)?)?;
    let columns = Columns {
        width: csv.need(&WIDTHS)?,
        height: csv.need(&HEIGHTS)?,
        page: csv.find(&["image_index", "index"]),
        letters: csv.find(&["text_len"]),
        unreadable: csv.find(&["unreadable"]),
    };
    let mut list = SizeList { parts: csv.find(&WIDTHS[..1]).is_none(), sizes: Vec::new() };
    while let Some(row) = csv.next()? {
        let size = match list.sizes.len() {
            SIZES_MAX => Err(format!("found over {SIZES_MAX} sizes, expected fewer")),
            line => columns.size(&row, line as u64),
        };
        list.sizes.push(size.map_err(|what| csv.error(what))?);
    }
    Ok(list)
}

struct Columns {
    width: usize,
    height: usize,
    page: Option<usize>,
    letters: Option<usize>,
    unreadable: Option<usize>,
}

impl Columns {
    #[inline]
    fn size(&self, row: &Row<'_>, line: u64) -> Result<Size, String> {
        let within = |column, least: u64, most: u64| match row.whole(column)? {
            value if (least..=most).contains(&value) => Ok(value),
            value => {
                let what = format!("found {value}, expected a number from {least} to {most}");
                Err(row.named(column, &what))
            }
        };
        let flag = |column| match row.whole(column)? {
            flag @ (0 | 1) => Ok(flag == 1),
            other => Err(row.named(column, &format!("found {other}, expected 0 or 1"))),
        };
        Ok(Size {
            page: self.page.map_or(Ok(line), |column| row.whole(column))?,
            width: within(self.width, 1, SIDE_MAX)? as u32,
            height: within(self.height, 1, SIDE_MAX)? as u32,
            letters: self
                .letters
                .map(|column| within(column, 0, u64::from(u32::MAX)))
                .transpose()?
                .map(|letters| letters as u32),
            unreadable: self.unreadable.map(flag).transpose()?.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> SizeList {
        read(text.as_bytes(), "t").unwrap_or_else(|error| panic!("{error}"))
    }

    fn error(text: &str) -> String {
        read(text.as_bytes(), "t").expect_err("bad input").to_string()
    }

    #[test]
    fn pages() {
        let list =
            list("\u{feff}height,width,index,file_bytes\r\n1013,463,0,98120\r\n7016,4961,7,1\r\n");
        let page =
            |page, width, height| Size { page, width, height, letters: None, unreadable: false };
        assert_eq!(
            list,
            SizeList { parts: false, sizes: vec![page(0, 463, 1013), page(7, 4961, 7016)] }
        );
    }

    #[test]
    fn lines_and_crops() {
        let lines = list("image_index,line_width,line_height,text_len\n4,254,39,13\n");
        let line = Size { page: 4, width: 254, height: 39, letters: Some(13), unreadable: false };
        assert_eq!(lines, SizeList { parts: true, sizes: vec![line] });
        let crops = list(
            "image_index,crop_width,crop_height,unreadable,text_len\n0,87,13,0,15\n0,8,9,1,0\n",
        );
        assert!(crops.parts && !crops.sizes[0].unreadable);
        assert_eq!(
            crops.sizes[1],
            Size { page: 0, width: 8, height: 9, letters: Some(0), unreadable: true }
        );
        let bare = list("width,height\n5,6\n7,8\n");
        assert_eq!(bare.sizes[1].page, 1);
    }

    #[test]
    fn bad_lists_are_refused() {
        assert_eq!(
            error("width\n1\n"),
            r#"t: line 1: found the columns "width", expected one called height or line_height or crop_height"#
        );
        assert_eq!(
            error("width,height\n0,1\n"),
            "t: line 2: column width: found 0, expected a number from 1 to 1000000"
        );
        assert_eq!(
            error("width,height\n1,1000001\n"),
            "t: line 2: column height: found 1000001, expected a number from 1 to 1000000"
        );
        assert!(error("width,height\n-4,1\n").contains(r#"column width: found "-4""#));
        assert!(error("width,height\n1,nan\n").contains(r#"column height: found "nan""#));
        assert_eq!(
            error("width,height,unreadable\n1,1,2\n"),
            "t: line 2: column unreadable: found 2, expected 0 or 1"
        );
        assert!(error("width,height\n1\n").contains("line 2: found 1 fields"));
        assert!(error("").contains("the file is empty"));
    }
}
