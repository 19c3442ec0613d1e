//! Pages and lines of recorded sizes instead of drawn ones.
//!
//! | parameter | what it does |
//! |---|---|
//! | `sizes` | the n-th request is the n-th page of this list; after the last comes the first again |
//! | `lines` | its lines are those of this list that lie on the page of the same number; without `sizes`, the pages that have lines come one after the other |
//!
//! A page of which the list has no lines has none. What is not listed is drawn.

use std::collections::BTreeMap;
use std::path::Path;

use crate::params::{ParamError, Params};
use crate::readers::sizes::{self, Size, SizeList};

/// Recorded sizes.
pub(super) struct Listed {
    /// Number, width and height of each page (px).
    pages: Vec<(u64, [f64; 2])>,
    /// Number of each page that has lines, in order, and width over height of these.
    lines: Option<Vec<(u64, Vec<f64>)>>,
    next: usize,
}

/// What is listed of one page.
#[derive(Default)]
pub(super) struct ListedPage {
    /// Width and height (px).
    pub(super) size: Option<[f64; 2]>,
    /// Width over height of its lines.
    pub(super) lines: Option<Vec<f64>>,
}

impl Listed {
    pub(super) fn from_params(params: &Params) -> Result<Self, ParamError> {
        Ok(Self::of(read(params, "sizes", false)?, read(params, "lines", true)?))
    }

    fn of(pages: Option<SizeList>, lines: Option<SizeList>) -> Self {
        let page = |size: Size| (size.page, [size.width, size.height].map(f64::from));
        let lines = lines.map(|list| {
            let mut by_page: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
            for Size { page, width, height, .. } in list.sizes {
                by_page.entry(page).or_default().push(f64::from(width) / f64::from(height));
            }
            by_page.into_iter().collect()
        });
        let pages = pages.map_or(Vec::new(), |list| list.sizes.into_iter().map(page).collect());
        Self { pages, lines, next: 0 }
    }

    /// The next page, as far as it is listed.
    pub(super) fn next(&mut self) -> ListedPage {
        let turn = self.next;
        self.next += 1;
        let page = turn.checked_rem(self.pages.len()).map(|at| self.pages[at]);
        let lines = self.lines.as_ref().map(|lines| {
            let own = match page {
                Some((number, _)) => lines.binary_search_by_key(&number, |(page, _)| *page).ok(),
                None => turn.checked_rem(lines.len()),
            };
            own.map_or(Vec::new(), |at| lines[at].1.clone())
        });
        ListedPage { size: page.map(|(_, size)| size), lines }
    }
}

/// The list that a parameter names, if it names one: of lines or crops, or of pages.
fn read(params: &Params, key: &'static str, lines: bool) -> Result<Option<SizeList>, ParamError> {
    let path = params.text(key);
    if path.is_empty() {
        return Ok(None);
    }
    let list = sizes::open(Path::new(path)).map_err(|error| ParamError::BadFile {
        message: format!("{error} (parameter {key}: expected a list of sizes)"),
    })?;
    if list.sizes.is_empty() || (list.parts && !lines) {
        let what = if lines { "lines or crops" } else { "pages (width,height)" };
        let found = if list.sizes.is_empty() { "no sizes" } else { "sizes of lines or crops" };
        let message = format!(
            "{path}: found {found}, expected a list of {what} with at least one (parameter {key})"
        );
        return Err(ParamError::BadFile { message });
    }
    Ok(Some(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Option<SizeList> {
        Some(sizes::read(text.as_bytes(), "t").expect("reads"))
    }

    #[test]
    fn pages_come_in_turn_with_their_own_lines() {
        let pages = list("index,width,height\n7,600,800\n3,500,400\n");
        let lines = list("image_index,line_width,line_height\n3,90,30\n3,10,20\n5,1,1\n");
        let mut listed = Listed::of(pages, lines);
        let mut next = || {
            let page = listed.next();
            (page.size.expect("listed"), page.lines.expect("listed"))
        };
        assert_eq!(next(), ([600.0, 800.0], vec![]));
        assert_eq!(next(), ([500.0, 400.0], vec![3.0, 0.5]));
        assert_eq!(next().0, [600.0, 800.0]);
    }

    #[test]
    fn lines_alone_come_page_by_page() {
        let mut listed =
            Listed::of(None, list("image_index,crop_width,crop_height\n9,4,1\n2,6,2\n9,2,1\n"));
        let mut next = || listed.next().lines;
        assert_eq!(
            [next(), next(), next()],
            [Some(vec![3.0]), Some(vec![4.0, 2.0]), Some(vec![3.0])]
        );
        let mut nothing = Listed::of(None, None);
        let page = nothing.next();
        assert_eq!((page.size, page.lines), (None, None));
    }

    #[test]
    fn a_list_that_cannot_be_read_is_told() {
        let mut params = Params::defaults(super::super::PARAMS);
        params.set_text("sizes=no/such/list.csv").expect("a parameter");
        let error = Listed::from_params(&params).err().expect("refused").to_string();
        assert!(error.starts_with("no/such/list.csv: No such file"), "{error}");
        assert!(error.ends_with("(parameter sizes: expected a list of sizes)"), "{error}");
        assert_eq!(error.matches("no/such").count(), 1, "{error}");
    }
}
