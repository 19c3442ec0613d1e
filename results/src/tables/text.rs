//! Tables for a terminal and for Markdown.

use super::page::{CLAIM_TITLES, Page};
use crate::output::{Grid, fold};

/// Words between tables are folded to lines of so many characters, on a terminal.
const WORDS_MAX: usize = 140;

/// Words in one piece, or folded for a terminal.
fn words(text: &str, markdown: bool) -> String {
    let one = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if markdown { one } else { fold(&one, WORDS_MAX) }
}

/// A whole table.
pub fn text(page: &Page, markdown: bool) -> String {
    let mut text = if markdown {
        format!("## {}\n\n`{}`: {}\n\n", page.title, page.name, words(&page.about, true))
    } else {
        format!("{}: {}\n{}\n\n", page.name, page.title, words(&page.about, false))
    };
    if !page.claims.is_empty() {
        let mut grid = Grid::new(&CLAIM_TITLES);
        page.claims.iter().for_each(|claim| grid.row(Page::claim_cells(claim)));
        text += &format!("{}\n\n", grid.print(markdown));
        let notes: Vec<String> =
            page.footnotes().iter().map(|note| words(note, markdown)).collect();
        text += &lines(&notes, markdown);
    }
    let mut before: &[String] = &[];
    for listing in &page.listings {
        let titles = Page::listing_titles(listing);
        let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
        let mut grid = Grid::new(&titles);
        Page::listing_cells(listing).into_iter().for_each(|cells| grid.row(cells));
        let heading = if markdown { "### " } else { "" };
        text += &format!("{heading}{}\n\n{}\n\n", listing.title, grid.print(markdown));
        // tables of one matrix have one story
        let again = !listing.missing.is_empty() && listing.missing == before;
        let missing = listing.missing.iter().filter(|_| !again).map(|one| words(one, markdown));
        let about =
            Some(words(&listing.about, markdown)).filter(|about| !again && !about.is_empty());
        text += &lines(&about.into_iter().chain(missing).collect::<Vec<_>>(), markdown);
        before = &listing.missing;
    }
    for (title, file) in page.pictures() {
        text += &match markdown {
            true => format!("![{title}]({file})\n\n"),
            false => format!("picture {file}: {title}\n"),
        };
    }
    text + &lines(&page.notes(), markdown)
}

fn lines(all: &[String], markdown: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let bullet = if markdown { "- " } else { "" };
    all.iter().map(|line| format!("{bullet}{line}\n")).collect::<String>() + "\n"
}
