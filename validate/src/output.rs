//! How results are printed and written. Standard output is data.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use clap::ValueEnum;
use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::failure::{Code, Failure};

/// Output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One object, or one a line.
    Json,
    /// A table for a document.
    Markdown,
}

/// Prints on standard output. Who has read enough may leave.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            Code::CannotWrite,
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Says it on standard error, if that can be written.
pub(crate) fn remark(message: &str) {
    let _ = writeln!(io::stderr().lock(), "vramlab-validate: {message}");
}

/// A table; columns whose title ends with `<` are left-aligned.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>], markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { ASCII_MARKDOWN } else { NOTHING });
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles.iter().map(|title| title.trim_end_matches('<')));
    for row in rows {
        table.add_row(row);
    }
    for (column, title) in titles.iter().enumerate() {
        let left = title.ends_with('<');
        if let Some(column) = table.column_mut(column) {
            let side = if left { CellAlignment::Left } else { CellAlignment::Right };
            column.set_cell_alignment(side);
            if !markdown {
                column.set_padding((0, 2));
            }
        }
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// ns for people.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// Writes a file whole or not at all; its folder is made if need be.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        make_readable(file.path())?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    write().map_err(|error| Failure::write(path, &error))
}

#[cfg(unix)]
fn make_readable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_path: &Path) -> io::Result<()> {
    Ok(())
}
