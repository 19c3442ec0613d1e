//! Files are written whole or not at all.

use std::io::Write;
use std::path::Path;

use crate::failure::Failure;

/// Writes `bytes` to `path` through a temporary file beside it.
///
/// # Errors
/// When the folder cannot be made or written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        make_readable(file.path())?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    };
    write().map_err(|error| Failure::write(path, &error))
}

#[cfg(unix)]
fn make_readable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_path: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Writes `path` through a temporary file beside it, compressed if its name ends in `.gz`.
///
/// # Errors
/// When the folder cannot be made or written, or `fill` fails; then there is no file.
pub fn write_stream(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::write(path, &error);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    let mut buffered = std::io::BufWriter::new(file);
    if path.extension().is_some_and(|e| e == "gz") {
        let mut packed =
            flate2::write::GzEncoder::new(&mut buffered, flate2::Compression::default());
        fill(&mut packed)?;
        packed.finish().map_err(fail)?;
    } else {
        fill(&mut buffered)?;
    }
    let file = buffered.into_inner().map_err(|e| fail(e.into_error()))?;
    make_readable(file.path()).map_err(fail)?;
    file.persist(path).map_err(|e| fail(e.error))?;
    Ok(())
}
