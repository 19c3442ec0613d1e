//! A digest of a Parquet file inside the file: SHA-256 of all its bytes, with zeros where the digest itself stands.
//!
//! Readers of Parquet take a file's word for what is in it, and may panic where it is damaged; a seal that fits says that every byte is as it was written. The
//! digest stands in the file's metadata, at its end. So while it is written all but the end goes straight on, and only the end is held back.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

/// What stands before the digest, as JSON has it.
const BEFORE: &[u8] = b"\"seal\":\"";
/// Hex digits of it.
const CHARS: usize = 64;
/// Most bytes of a Parquet file's end that are looked through: 4 KiB for each of many thousand groups of rows.
const END_MAX: u64 = 1 << 28;

/// What is to stand where the digest will be.
pub(crate) fn unsealed() -> String {
    "0".repeat(CHARS)
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Where the digest stands in the end of a file.
fn place(end: &[u8]) -> Option<usize> {
    let last = end.windows(BEFORE.len()).rposition(|window| window == BEFORE)?;
    let place = last + BEFORE.len();
    (place + CHARS <= end.len()).then_some(place)
}

struct State<W> {
    out: W,
    hash: Sha256,
    /// Once the end has begun: what of it was written.
    end: Option<Vec<u8>>,
}

/// A writer that seals what goes through it.
pub(crate) struct Sealed<W>(Mutex<State<W>>);

impl<W: Write> Sealed<W> {
    pub(crate) fn new(out: W) -> Self {
        Self(Mutex::new(State { out, hash: Sha256::new(), end: None }))
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on is the end, which has the digest's place in it.
    pub(crate) fn begin_end(&self) {
        self.state().end = Some(Vec::new());
    }

    /// Writes the end, and gives back what everything went to.
    ///
    /// # Errors
    /// When it cannot be written, or has no place for the digest.
    pub(crate) fn seal(self) -> io::Result<W> {
        let State { mut out, mut hash, end } =
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut end = end.unwrap_or_default();
        let place = place(&end).ok_or_else(|| io::Error::other("no place for the seal"))?;
        hash.update(&end);
        end[place..place + CHARS].copy_from_slice(hex(hash).as_bytes());
        out.write_all(&end)?;
        Ok(out)
    }
}

impl<W: Write> Write for &Sealed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.state();
        if let Some(end) = &mut state.end {
            end.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let count = state.out.write(bytes)?;
        state.hash.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.state().out.flush()
    }
}

/// Is every byte of a Parquet file as it was written? The text says what is wrong.
///
/// # Errors
/// A file that cannot be read, is cut off, or does not fit its seal.
pub(crate) fn check(file: &mut File) -> Result<(), String> {
    let unread = |error: io::Error| error.to_string();
    let length = file.metadata().map_err(unread)?.len();
    let mut first = [0; 4];
    let mut last = [0; 8];
    let ends = (|| {
        file.read_exact(&mut first)?;
        file.seek(SeekFrom::End(-8))?;
        file.read_exact(&mut last)
    })();
    ends.map_err(|_| "found no Parquet file".to_owned())?;
    match (&first == b"PAR1", last.ends_with(b"PAR1")) {
        (true, true) => {}
        (true, false) => return Err("found a Parquet file that is cut off".to_owned()),
        (false, _) => return Err("found no Parquet file".to_owned()),
    }
    let damaged = || "found a damaged file, whose seal does not fit".to_owned();
    let footer = u64::from(u32::from_le_bytes([last[0], last[1], last[2], last[3]]));
    let end = footer.saturating_add(8);
    if end > length || end > END_MAX {
        return Err(damaged());
    }
    file.rewind().map_err(unread)?;
    let mut hash = Sha256::new();
    let body = io::copy(&mut Read::by_ref(file).take(length - end), &mut Hashing(&mut hash));
    body.map_err(unread)?;
    let mut rest = Vec::new();
    file.take(end).read_to_end(&mut rest).map_err(unread)?;
    let Some(place) = place(&rest) else {
        return Err("found a Parquet file without the seal that vramlab writes".to_owned());
    };
    let found = rest[place..place + CHARS].to_vec();
    rest[place..place + CHARS].fill(b'0');
    hash.update(&rest);
    if found != hex(hash).as_bytes() {
        return Err(damaged());
    }
    Ok(())
}

/// SHA-256 of what can be read, in hex.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn digest(mut from: impl Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut from, &mut Hashing(&mut hash))?;
    Ok(hex(hash))
}

struct Hashing<'h>(&'h mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
