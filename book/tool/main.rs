//! Builds the book, runs its listings, captures their outputs.
//!
//! ```text
//! vramlab-book [build [DIR]]      the book as pages, into target/book or DIR; fails if a link leads nowhere
//! vramlab-book listing NAME       runs one listing, such as reserved/first_look
//! vramlab-book capture            runs all and keeps what they print beside them
//! vramlab-book readme [--check]   runs the commands that README.md shows and puts in what they print, or compares
//! ```
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use vramlab_book::listings::{LISTINGS, Outcome};
use vramlab_book::{book_folder, links, output_file, readme, render};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["build"] => build(book_folder().join("../target/book")),
        ["build", folder] => build(PathBuf::from(folder)),
        ["listing", name] => listing(name),
        ["capture"] => capture(),
        ["readme"] => readme(false),
        ["readme", "--check"] => readme(true),
        _ => {
            eprintln!(
                "vramlab-book: expected build [DIR], listing NAME, capture or readme [--check]"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vramlab-book: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(folder: PathBuf) -> Outcome {
    render::book(&folder)?;
    let checked = links::check(&folder)?;
    let folder = folder.canonicalize()?;
    println!("{}: {} pages, {} links hold", folder.display(), checked.pages, checked.links);
    Ok(())
}

fn listing(name: &str) -> Outcome {
    match LISTINGS.iter().find(|(known, _)| *known == name) {
        Some((_, main)) => main(),
        None => {
            let known: Vec<&str> = LISTINGS.iter().map(|(known, _)| *known).collect();
            Err(format!("no listing {name:?}; there are {}", known.join(", ")).into())
        }
    }
}

fn capture() -> Outcome {
    for (name, _) in LISTINGS {
        let output = Command::new(std::env::current_exe()?).args(["listing", name]).output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("listing {name} failed: {words}").into());
        }
        std::fs::write(output_file(name), output.stdout)?;
        println!("{name}");
    }
    Ok(())
}

fn readme(check: bool) -> Outcome {
    let file = book_folder().join("../README.md").canonicalize()?;
    let text = std::fs::read_to_string(&file)?;
    let fresh = readme::refreshed(&text, vramlab)?;
    if fresh == text {
        return Ok(());
    }
    if check {
        let line = text.lines().zip(fresh.lines()).take_while(|(old, new)| old == new).count() + 1;
        return Err(format!(
            "{}:{line}: not what the command prints; to put it right: cargo run -p vramlab-book -- readme",
            file.display()
        )
        .into());
    }
    Ok(std::fs::write(file, fresh)?)
}

/// What a `vramlab …` command prints on standard output, run in the repository.
fn vramlab(command: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut words = command.split(' ');
    if words.next() != Some("vramlab") {
        return Err(format!("{command:?} is no vramlab command").into());
    }
    let output = Command::new("cargo")
        .args(["run", "--quiet", "--release", "--package", "vramlab", "--"])
        .args(words)
        .current_dir(book_folder().join(".."))
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?} failed: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
