//! Files are written whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use vramlab_workloads::readers::bytes::pack_zstandard;

use crate::failure::Failure;

/// A file in the making: it lies beside its place under another name until it is whole. What is there and is no regular file (a device, a
/// pipe) cannot be replaced and is written as it comes; a link is followed.
pub struct Replacement {
    place: PathBuf,
    out: Out,
}

enum Out {
    Beside(BufWriter<NamedTempFile>),
    Direct(BufWriter<File>),
}

impl Replacement {
    /// Opens it; the folder must be there.
    ///
    /// # Errors
    /// When the place cannot be written.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let special = std::fs::metadata(&place).is_ok_and(|m| !m.is_file() && !m.is_dir());
        let open = || -> io::Result<Out> {
            if special {
                return Ok(Out::Direct(BufWriter::new(File::options().write(true).open(&place)?)));
            }
            let folder =
                place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(Out::Beside(BufWriter::new(NamedTempFile::new_in(folder)?)))
        };
        let out = open().map_err(|error| Failure::write(path, &error))?;
        Ok(Self { place, out })
    }

    /// Puts the whole file in its place.
    ///
    /// # Errors
    /// When it cannot be written; then what was there before is untouched.
    pub fn finish(self) -> Result<(), Failure> {
        let Self { place, out } = self;
        let done = match out {
            Out::Direct(mut out) => out.flush(),
            Out::Beside(out) => {
                out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| {
                    make_readable(file.path())?;
                    file.persist(&place).map(|_file| ()).map_err(|e| e.error)
                })
            }
        };
        done.map_err(|error| Failure::write(&place, &error))
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Out::Beside(out) => out.write(bytes),
            Out::Direct(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Beside(out) => out.flush(),
            Out::Direct(out) => out.flush(),
        }
    }
}

/// Writes `bytes` to `path`, whose folder is made if need be.
///
/// # Errors
/// When the folder cannot be made or written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::write(path, &error);
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    let mut out = Replacement::create(path)?;
    out.write_all(bytes).map_err(fail)?;
    out.finish()
}

/// How a file is packed, as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstandard,
}

/// Names of text that are known.
const TEXT_ENDINGS: [&str; 3] = ["jsonl", "ndjson", "json"];

/// Tells by the name's ending; a name without one is plain, and so is what is no regular file.
fn packing(path: &Path) -> Result<Packing, Failure> {
    let special = std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir());
    let ending = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref().filter(|_| !special) {
        Some("gz") => Ok(Packing::Gzip),
        Some("zst") => Ok(Packing::Zstandard),
        Some(ending) if !TEXT_ENDINGS.contains(&ending) => Err(Failure::usage(format!(
            "{}: found the ending .{ending}, expected .{}, or one of these with .gz or .zst behind it",
            path.display(),
            TEXT_ENDINGS.join(", .")
        ))),
        _ => Ok(Packing::Plain),
    }
}

/// Refuses a name whose ending promises a format that is not written here.
///
/// # Errors
/// When it does.
pub fn check_ending(path: &Path) -> Result<(), Failure> {
    packing(path).map(drop)
}

/// Lets `fill` write `path`, compressed if its name ends in `.gz` or `.zst`.
///
/// # Errors
/// When the place cannot be written or its ending is not known, or `fill` fails; then what was there before is untouched.
pub fn write_stream(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::write(path, &error);
    let packing = packing(path)?;
    let mut out = Replacement::create(path)?;
    match packing {
        Packing::Plain => fill(&mut out)?,
        Packing::Gzip => {
            let mut packed =
                flate2::write::GzEncoder::new(&mut out, flate2::Compression::default());
            fill(&mut packed)?;
            packed.finish().map_err(fail)?;
        }
        Packing::Zstandard => {
            // The encoder reads, so that the text lies in a nameless file first.
            let mut text = BufWriter::new(tempfile::tempfile().map_err(fail)?);
            fill(&mut text)?;
            let mut text = text.into_inner().map_err(|e| fail(e.into_error()))?;
            text.rewind().map_err(fail)?;
            pack_zstandard(io::BufReader::new(text), &mut out).map_err(fail)?;
        }
    }
    out.finish()
}

/// An output that is the input would end the recording.
///
/// # Errors
/// When both names lead to one file.
pub fn refuse_same_file(input: &Path, output: &Path) -> Result<(), Failure> {
    match (input.canonicalize(), output.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => Err(Failure::usage(format!(
            "{} is the input; give the output another name",
            output.display()
        ))),
        _ => Ok(()),
    }
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
