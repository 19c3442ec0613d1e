//! A finished table's files, and whether they are still good.
//!
//! | file | holds |
//! |---|---|
//! | `NAME.md`, `NAME.tex`, `NAME.txt` | the table, as Markdown, LaTeX (booktabs) and for a terminal |
//! | `NAME.csv`, `NAME.parquet`, `NAME.json` | its claims |
//! | `NAME.listing-N.csv`, `.parquet` | its plain tables |
//! | `NAME.figure-N.svg`, `.csv` | its pictures, and the numbers that they show |
//! | `NAME.runs.csv`, `NAME.runs.parquet` | the tidy frame of its runs, see [`crate::frame`] |
//! | `NAME.key` | what it was made from; written last, so a table without it is made again |
//!
//! The key is a digest of the experiment's text, of the program, of `--quick`, and of the files that its runs read.

use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustc_hash::FxHasher;

use super::cells::Cell;
use super::experiment::Source;
use super::make::Made;
use super::page::Page;
use super::{data, files, latex, text};
use crate::failure::Failure;
use crate::frame::{Frame, write_data};
use crate::output::{to_json, write_whole};

/// Adds a file's content; one that cannot be read counts as absent.
fn add_file(digest: &mut FxHasher, path: &Path) {
    let Ok(mut file) = std::fs::File::open(path) else { return digest.write_u8(0) };
    let mut buffer = vec![0; 1 << 16];
    let mut length = 0_u64;
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        digest.write(&buffer[..count]);
        length += count as u64;
    }
    digest.write_u64(length);
}

/// What a table is made from, in 16 digits.
pub fn key(file: &Source, cells: &[Cell], quick: bool) -> String {
    let mut digest = FxHasher::default();
    digest.write(file.path.as_bytes());
    digest.write(file.text.as_bytes());
    digest.write_u8(u8::from(quick));
    digest.write(env!("CARGO_PKG_VERSION").as_bytes());
    if let Ok(program) = std::env::current_exe() {
        add_file(&mut digest, &program);
    }
    for path in files::needed(cells) {
        digest.write(path.as_os_str().as_encoded_bytes());
        add_file(&mut digest, &path);
    }
    format!("{:016x}", digest.finish())
}

/// A table's files in a folder.
pub struct Store {
    folder: PathBuf,
    name: String,
}

impl Store {
    /// Those of the table `name`.
    pub fn new(folder: &Path, name: &str) -> Self {
        Self { folder: folder.to_owned(), name: name.to_owned() }
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.folder.join(format!("{}.{ending}", self.name))
    }

    /// The table as it was written, with so many listings and pictures, if it was made from what `key` stands for.
    pub fn kept(
        &self,
        key: &str,
        (listings, pictures): (usize, usize),
        ending: &str,
    ) -> Option<String> {
        let read = |ending: &str| std::fs::read_to_string(self.path(ending)).ok();
        let whole = ["csv", "json", "parquet", "md", "tex", "txt", "runs.csv", "runs.parquet"];
        let is_there = |ending: &str| self.path(ending).is_file();
        let there = whole.iter().all(|ending| is_there(ending))
            && (1..=listings).all(|number| {
                ["csv", "parquet"].iter().all(|e| is_there(&format!("listing-{number}.{e}")))
            })
            && (1..=pictures).all(|number| {
                ["svg", "csv"].iter().all(|e| is_there(&format!("figure-{number}.{e}")))
            });
        read("key").filter(|found| there && found.trim() == key).and_then(|_| read(ending))
    }

    /// Writes all files; the key last.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, made: &Made, key: &str) -> Result<(), Failure> {
        let page: &Page = &made.page;
        let _ = std::fs::remove_file(self.path("key")); // from here on the files are of two kinds
        let frame = Frame::of(&made.runs)?;
        let records = data::records(page);
        write_data(&data::claims(page)?, &self.path("parquet"))?;
        write_whole(&self.path("csv"), data::csv(page)?.as_bytes())?;
        write_whole(&self.path("json"), to_json(&records).as_bytes())?;
        for ending in ["csv", "parquet"] {
            frame.write(&self.path(&format!("runs.{ending}")))?;
            for (listing, number) in page.listings.iter().zip(1..) {
                let path = self.path(&format!("listing-{number}.{ending}"));
                write_data(&data::listing(listing)?, &path)?;
            }
        }
        for (picture, number) in page.figures.iter().zip(1..) {
            write_whole(&self.path(&format!("figure-{number}.svg")), picture.svg.as_bytes())?;
            let data = picture.data.csv()?;
            write_whole(&self.path(&format!("figure-{number}.csv")), data.as_bytes())?;
        }
        write_whole(&self.path("md"), text::text(page, true).as_bytes())?;
        write_whole(&self.path("txt"), text::text(page, false).as_bytes())?;
        write_whole(&self.path("tex"), latex::latex(page).as_bytes())?;
        write_whole(&self.path("key"), format!("{key}\n").as_bytes())
    }
}
