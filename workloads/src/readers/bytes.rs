//! Files as streams of bytes, decompressed on the way: gzip and Zstandard are told by their first bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Read from the file at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// A file that cannot be opened, read or understood.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl FileError {
    /// Names the file in an error of any kind.
    pub fn new(
        path: &Path,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> FileError {
        FileError { path: path.to_owned(), source: source.into() }
    }
}

/// Reads once into `buffer`; a call that was interrupted is made again. 0 at the end, or of an empty buffer.
///
/// # Errors
/// Whatever else the reader answers.
pub(crate) fn read_some(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// An opened source of bytes, decompressed.
pub struct Bytes {
    reader: Box<dyn BufRead>,
    /// Length of what will be read, in bytes; unknown when it is compressed.
    total: Option<u64>,
}

impl Bytes {
    /// Length of what will be read, in bytes, where it is known beforehand.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next bytes, without stepping over them; empty at the end. At least one byte otherwise.
    ///
    /// # Errors
    /// Whatever the file or the decompression answers.
    pub fn peek(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    /// The next bytes, without stepping over them: as many as asked for, fewer only at the end.
    ///
    /// # Errors
    /// Whatever the file or the decompression answers.
    pub fn head(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        self.reader.as_mut().take(count).read_to_end(&mut head)?;
        let rest = std::mem::replace(&mut self.reader, Box::new(io::empty()));
        self.reader = Box::new(io::Cursor::new(head.clone()).chain(rest));
        Ok(head)
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for Bytes {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.reader.consume(count);
    }
}

/// A decoder whose errors say where they are.
struct Unpacked<R> {
    decoder: R,
    form: &'static str,
    /// Bytes that were unpacked.
    given: u64,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            kind => {
                let Self { form, given, .. } = self;
                let what = format!(
                    "after byte {given} (decompressed): {error}; expected whole {form} data, and it ends too early or is damaged"
                );
                io::Error::new(kind, what)
            }
        })?;
        self.given += read as u64;
        Ok(read)
    }
}

/// Opens a file for reading, decompressing what its first bytes show to be gzip or Zstandard.
///
/// # Errors
/// The file cannot be opened, or its compression header is damaged; the error names the file.
pub fn open(path: &Path) -> Result<Bytes, FileError> {
    let named = |error: io::Error| FileError::new(path, error);
    let file = File::open(path).map_err(named)?;
    let metadata = file.metadata().map_err(named)?;
    if metadata.is_dir() {
        return Err(FileError::new(path, "found a folder, expected a file"));
    }
    let total = metadata.is_file().then_some(metadata.len());
    decompressed(file, total).map_err(named)
}

/// As [`open`] for bytes from anywhere; `total` is their length before decompression, if known.
///
/// # Errors
/// The first bytes cannot be read, or a compression header is damaged.
pub fn decompressed(reader: impl Read + 'static, total: Option<u64>) -> io::Result<Bytes> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
    let start = reader.fill_buf()?;
    if start.starts_with(&GZIP_MAGIC) {
        let decoder = flate2::bufread::MultiGzDecoder::new(reader);
        let unpacked = Unpacked { decoder, form: "gzip", given: 0 };
        let reader = BufReader::with_capacity(BUFFER_BYTES, unpacked);
        return Ok(Bytes { reader: Box::new(reader), total: None });
    }
    if start.starts_with(&ZSTD_MAGIC) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(reader);
        let decoder = decoder.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let unpacked = Unpacked { decoder, form: "Zstandard", given: 0 };
        let reader = BufReader::with_capacity(BUFFER_BYTES, unpacked);
        return Ok(Bytes { reader: Box::new(reader), total: None });
    }
    Ok(Bytes { reader: Box::new(reader), total })
}

/// Packs what is read as Zstandard, block by block.
///
/// # Errors
/// Whatever reading or writing answers first.
pub fn pack_zstandard(text: impl Read, out: impl Write) -> io::Result<()> {
    // The encoder takes errors of either side for bugs, so that they are kept from it.
    let (mut text, mut out) = (Calm::new(text), Calm::new(out));
    ruzstd::encoding::compress(&mut text, &mut out, ruzstd::encoding::CompressionLevel::Fastest);
    text.error.or(out.error).map_or(Ok(()), Err)
}

/// Ends at its first error, which is kept: reads nothing more, and swallows what is written.
struct Calm<T> {
    inner: T,
    error: Option<io::Error>,
}

impl<T> Calm<T> {
    fn new(inner: T) -> Self {
        Self { inner, error: None }
    }

    /// What `act` gives, or `none` once there is an error; an interrupted call is made again.
    fn attempt<V>(
        &mut self,
        none: V,
        mut act: impl FnMut(&mut T) -> io::Result<V>,
    ) -> io::Result<V> {
        while self.error.is_none() {
            match act(&mut self.inner) {
                Ok(value) => return Ok(value),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.error = Some(error),
            }
        }
        Ok(none)
    }
}

impl<T: Read> Read for Calm<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.attempt(0, |inner| inner.read(buffer))
    }
}

impl<T: Write> Write for Calm<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(bytes.len(), |inner| inner.write_all(bytes).map(|()| bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), Write::flush)
    }
}

/// A whole file, decompressed, of at most `max` bytes.
///
/// # Errors
/// As [`open`], and when there is more than `max`; the error names the file.
pub fn read_bytes(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let reader = open(path)?;
    let mut bytes = Vec::new();
    reader.take(max + 1).read_to_end(&mut bytes).map_err(|error| FileError::new(path, error))?;
    if bytes.len() as u64 > max {
        let text = format!("found more than {max} bytes (decompressed), expected at most that");
        return Err(FileError::new(path, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: Vec<u8>) -> Vec<u8> {
        let total = Some(bytes.len() as u64);
        let mut out = Vec::new();
        let mut reader = decompressed(io::Cursor::new(bytes), total).expect("header");
        reader.read_to_end(&mut out).expect("content");
        out
    }

    #[test]
    fn bytes_are_told_by_their_start() {
        let text = b"some text, some text, some text".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).expect("write");
        assert_eq!(all(gzip.finish().expect("finish")), text);
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        assert_eq!(all(ruzstd::encoding::compress_to_vec(&text[..], level)), text);
        assert_eq!(all(text.clone()), text);
        assert_eq!(all(Vec::new()), b"");
    }

    #[test]
    fn a_packed_file_that_was_cut_says_so() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).expect("write");
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let packed =
            [gzip.finish().expect("finish"), ruzstd::encoding::compress_to_vec(&text[..], level)];
        for (packed, form) in packed.into_iter().zip(["gzip", "Zstandard"]) {
            let half = packed[..packed.len() / 2].to_vec();
            let mut bytes = decompressed(io::Cursor::new(half), None).expect("header");
            let error = bytes.read_to_end(&mut Vec::new()).expect_err("cut").to_string();
            assert!(error.starts_with("after byte ") && error.contains(form), "{error}");
            assert!(error.contains("it ends too early"), "{error}");
        }
    }

    /// Compressed files gave a few bytes at first, which were too few to tell a format.
    #[test]
    fn the_head_is_as_long_as_asked_for_and_read_again() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).expect("write");
        let packed = gzip.finish().expect("finish");
        let mut bytes = decompressed(io::Cursor::new(packed), None).expect("header");
        assert_eq!(bytes.head(100_000).expect("content"), text[..100_000]);
        assert_eq!(bytes.head(10).expect("content"), text[..10]);
        let mut all = Vec::new();
        bytes.read_to_end(&mut all).expect("content");
        assert_eq!(all, text);
    }

    #[test]
    fn zstandard_packs_and_answers_errors() {
        let text = b"some text, some other text".repeat(10_000);
        let mut packed = Vec::new();
        pack_zstandard(&text[..], &mut packed).expect("memory takes it");
        assert!(packed.len() < text.len() / 10);
        assert_eq!(all(packed), text);
        let mut full = [0_u8; 4];
        let error = pack_zstandard(&text[..], &mut full[..]).expect_err("four bytes are too few");
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }

    #[test]
    fn open_names_the_missing_file() {
        let error = open(Path::new("no/such/file")).err().expect("missing");
        assert!(error.to_string().starts_with("no/such/file: "), "{error}");
    }
}
