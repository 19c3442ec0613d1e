//! Checks the built pages: every link leads somewhere, and nothing is loaded from the network.
//!
//! | rule | what it says |
//! |---|---|
//! | `file` | a link to a file of the book names one that is there |
//! | `place` | what stands after `#` is the id of something on that page |
//! | `local` | pictures, scripts, styles and fonts lie in the book itself |
//! | `included` | every file that a chapter includes was there: mdBook leaves the directive standing if not |
//!
//! Left out: links to other sites are not followed.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pages.
    pub pages: usize,
    /// Links and loaded files on them.
    pub links: usize,
}

/// Checks all pages in `folder`.
///
/// # Errors
/// Lists every link that leads nowhere and everything that would be loaded from the network.
pub fn check(folder: &Path) -> Result<Checked, Box<dyn Error>> {
    let (mut checked, mut wrong) = (Checked::default(), Vec::new());
    for path in files(folder)? {
        match path.extension().and_then(|e| e.to_str()) {
            Some("html") => {
                let page = std::fs::read_to_string(&path)?;
                checked.pages += 1;
                if let Some(at) = page.find("{{#") {
                    let directive: String = page[at..].chars().take(60).collect();
                    wrong.push(format!("{}: {directive} was not included", path.display()));
                }
                for link in links(&page) {
                    checked.links += 1;
                    if let Err(why) = follow(&path, &page, &link) {
                        wrong.push(format!("{}: {} {why}", path.display(), link.target));
                    }
                }
            }
            Some("css") => {
                let style = std::fs::read_to_string(&path)?;
                wrong.extend(
                    remote_urls(&style).map(|url| format!("{}: {url} {REMOTE}", path.display())),
                );
            }
            _ => {}
        }
    }
    if wrong.is_empty() { Ok(checked) } else { Err(wrong.join("\n").into()) }
}

const REMOTE: &str = "would be loaded from the network";

/// A link, or something that the page loads.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Link<'a> {
    target: &'a str,
    /// The page loads it by itself.
    loaded: bool,
}

fn follow(path: &Path, page: &str, link: &Link<'_>) -> Result<(), String> {
    let target = link.target;
    if ["http://", "https://", "//"].iter().any(|start| target.starts_with(start)) {
        return if link.loaded { Err(REMOTE.to_owned()) } else { Ok(()) };
    }
    if target.starts_with("mailto:") || target.starts_with("data:") {
        return Ok(());
    }
    let (file, place) = target.split_once('#').map_or((target, None), |(f, p)| (f, Some(p)));
    let file = path.parent().unwrap_or(Path::new("")).join(file.split('?').next().unwrap_or(file));
    let there = if target.starts_with('#') { path } else { file.as_path() };
    if !there.is_file() {
        return Err("leads to no file".to_owned());
    }
    match place {
        None | Some("") => Ok(()),
        Some(place) if target.starts_with('#') => has_place(page, place),
        Some(place) => {
            has_place(&std::fs::read_to_string(there).map_err(|e| e.to_string())?, place)
        }
    }
}

fn has_place(page: &str, place: &str) -> Result<(), String> {
    let ids: BTreeSet<&str> = tags(page).filter_map(|tag| attribute(tag, "id")).collect();
    if ids.contains(place) { Ok(()) } else { Err(format!("leads to no id {place:?}")) }
}

/// Every `href` and `src` of a page.
fn links(page: &str) -> impl Iterator<Item = Link<'_>> {
    tags(page).flat_map(|tag| {
        let goes_there = tag.starts_with("a ") || tag.starts_with("base ");
        ["href", "src"]
            .into_iter()
            .filter_map(|name| attribute(tag, name))
            .map(move |target| Link { target, loaded: !goes_there })
    })
}

/// The inside of every opening tag; scripts and comments hold none.
fn tags(page: &str) -> impl Iterator<Item = &str> {
    let mut rest = page;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('<')? + 1..];
            let end = if rest.starts_with("!--") { "-->" } else { ">" };
            let (tag, after) = rest.split_once(end)?;
            rest = after;
            if tag.starts_with("script") {
                rest = rest.split_once("</script>")?.1;
            }
            if !tag.starts_with(['/', '!']) {
                return Some(tag);
            }
        }
    })
}

/// The quoted value of an attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    tag[start..].split('"').next()
}

/// What a style sheet would load from the network.
fn remote_urls(style: &str) -> impl Iterator<Item = &str> {
    style
        .split("url(")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|url| url.trim_matches(['"', '\'', ' ']))
        .filter(|url| url.starts_with("http") || url.starts_with("//"))
}

/// Every file below `folder`, in order of path.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(page: &str) -> Result<(), String> {
        let link = links(page).next().expect("the page has a link");
        follow(Path::new("page.html"), page, &link)
    }

    #[test]
    fn links_are_found_in_tags_only() {
        let page = r##"<!-- <a href="no"> --><script src="a.js">"<a href='no'>"</script><a class="x" href="b#c">b</a>"##;
        let found: Vec<_> = links(page).map(|l| (l.target, l.loaded)).collect();
        assert_eq!(found, [("a.js", true), ("b#c", false)]);
    }

    #[test]
    fn local_refuses_what_the_page_would_load_from_elsewhere() {
        assert!(verdict(r#"<img src="https://example.org/a.png">"#).is_err());
        assert!(verdict(r#"<a href="https://example.org/">elsewhere</a>"#).is_ok());
        let style = "a { src: url('fonts/a.woff2') } b { src: url(https://example.org/b) }";
        assert_eq!(remote_urls(style).collect::<Vec<_>>(), ["https://example.org/b"]);
    }

    #[test]
    fn file_and_place_must_be_there() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("a file can be written there");
        };
        write("b.html", r#"<h2 id="x">x</h2>"#);
        write("a.html", r##"<p id="y"><a href="b.html#x">x</a><a href="#y">y</a></p>"##);
        let checked = check(folder.path()).expect("both links hold");
        assert_eq!(checked, Checked { pages: 2, links: 2 });
        write("a.html", r##"<a href="b.html#z">z</a><a href="c.html">c</a><a href="#y">y</a>"##);
        let wrong = check(folder.path()).expect_err("none of them holds").to_string();
        assert_eq!(wrong.lines().count(), 3, "{wrong}");
    }

    #[test]
    fn included_finds_directives_that_were_left_standing() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        std::fs::write(folder.path().join("a.html"), "<code>{{#include x.rs}}</code>")
            .expect("a file can be written there");
        let wrong = check(folder.path()).expect_err("it was not included").to_string();
        assert!(wrong.contains("{{#include x.rs}}"), "{wrong}");
    }
}
