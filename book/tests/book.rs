//! The book holds what it promises: listings print what the chapters show, quantities come from them, links lead somewhere.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use vramlab_book::listings::LISTINGS;
use vramlab_book::{book_folder, links, output_file, quantities, render};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder with this extension, without it.
fn stems(folder: &Path, extension: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be listed");
    let paths = entries.map(|entry| entry.expect("its entries can be read").path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect()
}

#[test]
fn listings_print_what_the_chapters_show() {
    for (name, _) in LISTINGS {
        let output = Command::new(env!("CARGO_BIN_EXE_vramlab-book"))
            .args(["listing", name])
            .output()
            .expect("the program that cargo built starts");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "listing {name} failed: {words}");
        let printed = String::from_utf8(output.stdout).expect("listings print UTF-8");
        assert_eq!(
            printed,
            read(&output_file(name)),
            "listing {name} prints something else than the book shows; if the new output is right: \
             cargo run -p vramlab-book -- capture"
        );
    }
}

#[test]
fn listings_are_all_in_the_table_and_in_a_chapter() {
    let chapters = stems(&book_folder().join("src"), "md");
    for chapter in &chapters {
        let folder = book_folder().join("listings").join(chapter);
        if !folder.is_dir() {
            continue;
        }
        let text = read(&book_folder().join("src").join(chapter).with_extension("md"));
        let mut files = stems(&folder, "rs");
        files.remove("mod");
        for file in files {
            let name = format!("{chapter}/{file}");
            assert!(LISTINGS.iter().any(|(known, _)| *known == name), "{name} is in no table");
            for part in [format!("{name}.rs"), format!("{name}.out")] {
                assert!(text.contains(&part), "chapter {chapter} does not show {part}");
            }
        }
    }
    for (name, _) in LISTINGS {
        let chapter = name.split('/').next().unwrap_or_default();
        assert!(chapters.contains(chapter), "listing {name} belongs to no chapter");
    }
}

#[test]
fn chapters_are_in_the_summary_and_doc_tested() {
    let summary = read(&book_folder().join("src/SUMMARY.md"));
    let crate_root = read(&book_folder().join("tool/lib.rs"));
    for chapter in stems(&book_folder().join("src"), "md") {
        if chapter != "SUMMARY" {
            let file = format!("{chapter}.md");
            assert!(summary.contains(&format!("({file})")), "{file} is not in SUMMARY.md");
            assert!(crate_root.contains(&format!("../src/{file}")), "{file} is not in tool/lib.rs");
        }
    }
}

#[test]
fn quantities_of_the_text_stand_in_a_listing_or_its_output() {
    for chapter in stems(&book_folder().join("src"), "md") {
        let text = read(&book_folder().join("src").join(&chapter).with_extension("md"));
        let evidence: String = LISTINGS
            .iter()
            .filter(|(name, _)| name.split('/').next() == Some(&chapter))
            .map(|(name, _)| output_file(name))
            .map(|file| read(&file) + &read(&file.with_extension("rs")))
            .collect();
        for quantity in quantities::quantities(&text) {
            assert!(
                quantities::holds(&evidence, &quantity),
                "chapter {chapter} says {quantity}, which none of its listings says"
            );
        }
    }
}

#[test]
fn book_builds_and_its_links_hold() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    render::book(folder.path()).expect("the book builds");
    let checked = links::check(folder.path()).expect("its links hold");
    assert!(checked.pages > 2, "it has pages: {checked:?}");
}
