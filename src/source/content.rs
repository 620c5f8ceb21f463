//! What an input holds, found by its content and never by its name: compression is undone, a byte order mark skipped,
//! UTF-16 refused.

use std::io::{self, Read};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::SourceError;
use super::blocks::{Blocks, Unpackers};
use super::stored::{BUFFER_BYTES, Format, GzipMembers, Stored, Stream};

/// How much of the beginning is looked at: as much as is unpacked at once.
const BEGINNING_BYTES: usize = BUFFER_BYTES;

/// The decompressed content of an input, from its beginning.
pub struct Content {
    name: String,
    data: Data,
    /// What was looked at, until it is read.
    beginning: Vec<u8>,
    given: usize,
    bytes: u64,
    hasher: Option<Hasher>,
}

enum Data {
    Plain(Stored),
    Packed(Format, Stream),
    /// What other threads may unpack ahead.
    Ahead(Box<Blocks>),
}

impl Data {
    fn open(mut stored: Stored, unpackers: Option<Unpackers>) -> io::Result<Self> {
        Ok(match (Format::of(&mut stored)?, unpackers) {
            (None, _) => Self::Plain(stored),
            (Some(format), None) => Self::Packed(format, Stream::of_all(format, stored)?),
            (Some(format), Some(unpackers)) => Self::Ahead(Box::new(Blocks::new(format, stored, unpackers)?)),
        })
    }

    fn format(&self) -> Option<Format> {
        match self {
            Self::Plain(_) => None,
            Self::Packed(format, _) => Some(*format),
            Self::Ahead(blocks) => Some(blocks.format()),
        }
    }
}

impl Read for Data {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(data) => data.read(buffer),
            Self::Packed(_, data) => data.read(buffer),
            Self::Ahead(data) => data.read(buffer),
        }
    }
}

impl Content {
    /// Opens stored data.
    ///
    /// # Errors
    ///
    /// Where its beginning cannot be read, or is UTF-16.
    pub fn open(
        name: String,
        stored: impl Read + Send + 'static,
        digest: Option<Arc<[u64]>>,
    ) -> Result<Self, SourceError> {
        Self::open_with(name, stored, digest, None)
    }

    /// The same, with threads that may unpack some of it ahead. What it gives does not depend on them.
    ///
    /// # Errors
    ///
    /// Those of [`Content::open`].
    pub fn open_with(
        name: String,
        stored: impl Read + Send + 'static,
        digest: Option<Arc<[u64]>>,
        unpackers: Option<Unpackers>,
    ) -> Result<Self, SourceError> {
        let opened = Data::open(Stored::new(stored), unpackers);
        let read = |error| SourceError::Read { name: name.clone(), bytes: 0, error };
        let data = opened.map_err(|error| error.downcast().unwrap_or_else(read))?;
        let mut content =
            Self { name, data, beginning: Vec::new(), given: 0, bytes: 0, hasher: digest.map(Hasher::new) };
        content.look_at_beginning()?;
        Ok(content)
    }

    fn look_at_beginning(&mut self) -> Result<(), SourceError> {
        // A stream that has little to say for now is not waited for, once its first bytes are there.
        let mut beginning = vec![0; BEGINNING_BYTES];
        let mut length = 0;
        while length < 4 {
            match self.read_data(&mut beginning[length..])? {
                0 => break,
                bytes => length += bytes,
            }
        }
        beginning.truncate(length);
        match beginning.as_slice() {
            [0xef, 0xbb, 0xbf, ..] => self.given = 3,
            [0xff, 0xfe, ..]
            | [0xfe, 0xff, ..]
            | [0, 0x20..0x7f, 0, 0x20..0x7f, ..]
            | [0x20..0x7f, 0, 0x20..0x7f, 0, ..] => {
                return Err(SourceError::Utf16 { name: self.name.clone() });
            }
            _ => {}
        }
        self.beginning = beginning;
        Ok(())
    }

    /// What the input is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first bytes, as far as they were looked at.
    #[must_use]
    pub fn beginning(&self) -> &[u8] {
        &self.beginning[self.given..]
    }

    /// Reads on; 0 is the end.
    ///
    /// # Errors
    ///
    /// Where the data cannot be read, or its compression breaks.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        if self.given < self.beginning.len() {
            let bytes = buffer.len().min(self.beginning.len() - self.given);
            buffer[..bytes].copy_from_slice(&self.beginning[self.given..self.given + bytes]);
            self.given += bytes;
            if self.given == self.beginning.len() {
                (self.beginning, self.given) = (Vec::new(), 0);
            }
            return Ok(bytes);
        }
        self.read_data(buffer)
    }

    /// Reads all that is left.
    ///
    /// # Errors
    ///
    /// Those of [`Content::read`].
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, SourceError> {
        let (mut text, mut buffer) = (Vec::new(), vec![0; BEGINNING_BYTES]);
        loop {
            match self.read(&mut buffer)? {
                0 => return Ok(text),
                bytes => text.extend_from_slice(&buffer[..bytes]),
            }
        }
    }

    fn read_data(&mut self, buffer: &mut [u8]) -> Result<usize, SourceError> {
        let bytes = loop {
            match self.data.read(buffer) {
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        };
        self.bytes += bytes as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..bytes]);
        }
        Ok(bytes)
    }

    fn failure(&self, error: io::Error) -> SourceError {
        let (name, bytes) = (self.name.clone(), self.bytes);
        // A source of ours has said all there is to say.
        let error = match error.downcast::<SourceError>() {
            Ok(error) => return error,
            Err(error) => error,
        };
        // What the system says of a file has a number; what a decompressor says has none.
        match self.data.format() {
            Some(format) if error.raw_os_error().is_none() => {
                SourceError::Broken { name, format: format.name(), bytes, error }
            }
            _ => SourceError::Read { name, bytes, error },
        }
    }

    /// Bytes of content so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// SHA-256 of the content so far, in hexadecimal, if it was asked for.
    #[must_use]
    pub fn digest(&self) -> Option<String> {
        self.hasher.as_ref().map(|hasher| hexadecimal(&hasher.whole.clone().finalize()))
    }

    /// The same of its beginnings, at those of the sizes asked for that it has reached.
    #[must_use]
    pub fn beginnings(&self) -> &[(u64, String)] {
        self.hasher.as_ref().map_or(&[], |hasher| &hasher.beginnings)
    }

    /// What was left out at its end, if there was any.
    #[must_use]
    pub fn left_out(&self) -> Option<String> {
        let has_garbage = match &self.data {
            Data::Plain(_) => false,
            Data::Packed(_, stream) => stream.has_trailing_garbage(),
            Data::Ahead(blocks) => blocks.has_trailing_garbage(),
        };
        has_garbage.then(|| {
            format!(
                "{} has bytes behind its gzip data that are no gzip: they were left out, as gzip itself does",
                self.name
            )
        })
    }
}

/// Makes digests of what passes: of everything so far, and of the beginnings of certain sizes.
struct Hasher {
    whole: Sha256,
    bytes: u64,
    /// Sizes, ascending, and how many of them are behind.
    sizes: Arc<[u64]>,
    beginnings: Vec<(u64, String)>,
}

impl Hasher {
    fn new(sizes: Arc<[u64]>) -> Self {
        Self { whole: Sha256::new(), bytes: 0, sizes, beginnings: Vec::new() }
    }

    fn update(&mut self, mut text: &[u8]) {
        while let Some(size) = self.sizes.get(self.beginnings.len()).copied()
            && size <= self.bytes + text.len() as u64
        {
            // At most the text's length, as the comparison says.
            let (before, after) = text.split_at((size - self.bytes) as usize);
            self.whole.update(before);
            self.bytes = size;
            self.beginnings.push((size, hexadecimal(&self.whole.clone().finalize())));
            text = after;
        }
        self.whole.update(text);
        self.bytes += text.len() as u64;
    }
}

/// Bytes in hexadecimal.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Unpacks a record's data if it is gzip, as producers write it to a stream.
///
/// # Errors
///
/// Where it is gzip and damaged.
pub fn unpack_record(data: Vec<u8>) -> io::Result<Vec<u8>> {
    if !data.starts_with(&[0x1f, 0x8b]) {
        return Ok(data);
    }
    let mut text = Vec::new();
    GzipMembers::new(Stored::within(data.len(), io::Cursor::new(data))).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn read_all(stored: Vec<u8>) -> Result<(Vec<u8>, Option<String>), SourceError> {
        let mut content = Content::open("x".to_owned(), io::Cursor::new(stored), Some([].into()))?;
        let (mut text, mut buffer) = (Vec::new(), [0; 7]);
        loop {
            match content.read(&mut buffer)? {
                0 => return Ok((text, content.left_out())),
                bytes => text.extend_from_slice(&buffer[..bytes]),
            }
        }
    }

    #[test]
    fn every_compression_is_found_and_undone() {
        let text = b"one\ntwo\n".repeat(5_000);
        let bzip2 = {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(&text).unwrap();
            encoder.finish().unwrap()
        };
        let xz = {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(&text).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = zstd::encode_all(&text[..], 1).unwrap();
        for (name, stored) in [("gzip", gzip(&text)), ("bzip2", bzip2), ("xz", xz), ("zstd", zstd)] {
            let twice = [stored.clone(), stored.clone()].concat();
            assert_eq!(read_all(twice).unwrap().0, [text.clone(), text.clone()].concat(), "{name}");
            for cut in [1, 9, stored.len() / 2] {
                let broken = stored[..stored.len() - cut].to_vec();
                assert!(
                    matches!(read_all(broken), Err(SourceError::Broken { format, .. }) if format == name),
                    "{name}"
                );
            }
        }
        assert_eq!(read_all(text.clone()).unwrap().0, text);
    }

    #[test]
    fn skippable_zstd_frames_are_skipped() {
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        let frame = zstd::encode_all(&b"line\n"[..], 1).unwrap();
        let stored = [skippable.clone(), frame.clone(), skippable, frame].concat();
        assert_eq!(read_all(stored).unwrap().0, b"line\nline\n");
    }

    #[test]
    fn bytes_behind_gzip_are_left_out_and_told() {
        let stored = [gzip(b"line\n"), vec![0; 512], b"rubbish".to_vec()].concat();
        let (text, warning) = read_all(stored).unwrap();
        assert_eq!(text, b"line\n");
        assert!(warning.is_some());
        assert_eq!(read_all(gzip(b"line\n")).unwrap().1, None);
    }

    #[test]
    fn marks_at_the_beginning() {
        assert_eq!(read_all(b"\xef\xbb\xbfline\n".to_vec()).unwrap().0, b"line\n");
        for text in [&b"\xff\xfe!\0A\0"[..], b"\xfe\xff\0!\0A", b"\0!\0A", b"!\0A\0"] {
            assert!(matches!(read_all(text.to_vec()), Err(SourceError::Utf16 { .. })));
        }
        assert_eq!(read_all(Vec::new()).unwrap().0, b"");
        assert_eq!(read_all(b"x".to_vec()).unwrap().0, b"x");
    }

    #[test]
    fn digests_of_beginnings_are_those_of_shorter_files() {
        let digests = |text: &[u8], sizes: &[u64]| {
            let mut content =
                Content::open("x".to_owned(), io::Cursor::new(text.to_vec()), Some(sizes.into())).unwrap();
            let mut buffer = [0; 5];
            while content.read(&mut buffer).unwrap() > 0 {}
            (content.digest().unwrap(), content.beginnings().to_vec())
        };
        let text = b"some text that grows";
        let (_, beginnings) = digests(text, &[1, 4, 5, 11, 20, 30]);
        assert_eq!(beginnings.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [1, 4, 5, 11, 20]);
        for (size, digest) in beginnings {
            assert_eq!(digest, digests(&text[..size as usize], &[]).0);
        }
    }

    #[test]
    fn a_record_may_be_gzip() {
        assert_eq!(unpack_record(gzip(b"line")).unwrap(), b"line");
        assert_eq!(unpack_record(b"line".to_vec()).unwrap(), b"line");
        assert!(unpack_record(gzip(b"line")[..12].to_vec()).is_err());
    }
}
