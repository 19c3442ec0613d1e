//! A finished table for LaTeX, see [`crate::output::latex`].

use super::page::{CLAIM_TITLES, Page};
use crate::output::latex::{Column, Latex};

/// Columns of the claims: number, claim, ours, rule, verdict.
const CLAIMS: [Column; 5] = [
    Column::Figures,
    Column::Share(0.34),
    Column::Share(0.16),
    Column::Share(0.14),
    Column::Share(0.18),
];

/// More listings than these are put out one by one: LaTeX keeps no more than some twenty tables at a time.
const MANY: usize = 8;

/// A whole table: one `table` for the claims, one or more for each listing.
pub fn latex(page: &Page) -> String {
    let mut text = format!("% {}\n", page.notes().join("\n% "));
    let plain = |title: &str| title.trim_end_matches('<').to_owned();
    if !page.claims.is_empty() {
        let rows: Vec<Vec<String>> = page.claims.iter().map(Page::claim_cells).collect();
        let titles = CLAIM_TITLES.map(plain);
        let (caption, label) = (&*page.title, &*format!("tab:{}", page.name));
        text += &Latex { caption, label, titles: &titles, columns: &CLAIMS, rows: &rows }.print();
    }
    for (index, listing) in page.listings.iter().enumerate() {
        let titles: Vec<String> = Page::listing_titles(listing).iter().map(|t| plain(t)).collect();
        let mut columns = vec![Column::Figures; titles.len()];
        columns[0] = Column::Words;
        let rows = Page::listing_cells(listing);
        let (caption, label) = (&*listing.title, &*format!("tab:{}:{}", page.name, index + 1));
        text += &Latex { caption, label, titles: &titles, columns: &columns, rows: &rows }.print();
        if page.listings.len() > MANY {
            text += "\\clearpage\n";
        }
    }
    text
}
