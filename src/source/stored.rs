//! Data as it is stored, what it is compressed with, and the streams that unpack it.

use std::io::{self, BufRead, BufReader, Read};
use std::mem;
use std::ops::RangeInclusive;

use flate2::bufread::GzDecoder;

/// How much stored data is read at once, and how much text is unpacked at once, at most.
///
/// A decompressor that finds its data damaged keeps back what it unpacked in that call. Where all calls are made with as
/// much data and as much room, however the data came to be read, it gives the same before it fails.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;

/// Stored data, of which some that was read may be put back.
pub(super) struct Stored {
    /// What was put back, and how much of it was read again: less than all, or both are nothing.
    before: Vec<u8>,
    given: usize,
    /// What reading on failed with. Comes once, behind what was put back.
    error: Option<io::Error>,
    data: BufReader<Box<dyn Read + Send>>,
    /// How much was read, without what was put back.
    position: u64,
}

impl Stored {
    pub(super) fn new(data: impl Read + Send + 'static) -> Self {
        Self::within(BUFFER_BYTES, data)
    }

    /// The same for so few bytes, of which nothing will be put back.
    pub(super) fn within(bytes: usize, data: impl Read + Send + 'static) -> Self {
        let buffer = bytes.clamp(1, BUFFER_BYTES);
        let data = BufReader::with_capacity(buffer, Box::new(data) as Box<dyn Read + Send>);
        Self { before: Vec::new(), given: 0, error: None, data, position: 0 }
    }

    /// Lets `bytes`, which were read last, come again, and then what reading on failed with.
    pub(super) fn put_back(&mut self, mut bytes: Vec<u8>, error: Option<io::Error>) {
        self.position = self.position.saturating_sub(bytes.len() as u64);
        bytes.extend_from_slice(&self.before[self.given..]);
        (self.before, self.given) = (bytes, 0);
        self.error = error.or(self.error.take());
    }

    /// Reads `bytes` more; tells whether so many were there.
    pub(super) fn take_into(&mut self, taken: &mut Vec<u8>, bytes: usize) -> io::Result<bool> {
        let mut missing = bytes;
        while missing > 0 {
            let fresh = match self.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(fresh) => &fresh[..fresh.len().min(missing)],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            // A number from outside: no room is made for what may not come.
            taken.extend_from_slice(fresh);
            let bytes = fresh.len();
            missing -= bytes;
            self.consume(bytes);
        }
        Ok(true)
    }
}

impl Read for Stored {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.before.is_empty() && self.error.is_none() {
            let bytes = self.data.read(buffer)?;
            self.position += bytes as u64;
            return Ok(bytes);
        }
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl BufRead for Stored {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if !self.before.is_empty() {
            // Cut where it was cut when it came first.
            let until_cut = BUFFER_BYTES - (self.position % BUFFER_BYTES as u64) as usize;
            let end = self.before.len().min(self.given + until_cut);
            return Ok(&self.before[self.given..end]);
        }
        self.error.take().map_or(Ok(()), Err)?;
        self.data.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.position += bytes as u64;
        if self.before.is_empty() {
            return self.data.consume(bytes);
        }
        self.given += bytes;
        if self.given >= self.before.len() {
            (self.before, self.given) = (Vec::new(), 0);
        }
    }
}

/// What data is compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

/// What compressed data begins with. No two begin with the same byte.
const MARKS: [(Format, &[RangeInclusive<u8>]); 5] = [
    (Format::Gzip, &[0x1f..=0x1f, 0x8b..=0x8b]),
    (Format::Zstd, &[0x28..=0x28, 0xb5..=0xb5, 0x2f..=0x2f, 0xfd..=0xfd]),
    // A skippable frame before others (RFC 8878, section 3.1.2).
    (Format::Zstd, &[0x50..=0x5f, 0x2a..=0x2a, 0x4d..=0x4d, 0x18..=0x18]),
    (Format::Bzip2, &[b'B'..=b'B', b'Z'..=b'Z', b'h'..=b'h', b'1'..=b'9']),
    (Format::Xz, &[0xfd..=0xfd, b'7'..=b'7', b'z'..=b'z', b'X'..=b'X', b'Z'..=b'Z', 0..=0]),
];

impl Format {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }

    /// What stored data is compressed with, if it is. No more of it is waited for than tells.
    pub(super) fn of(stored: &mut Stored) -> io::Result<Option<Self>> {
        let mut beginning = Vec::new();
        let found = loop {
            let fits =
                |mark: &[RangeInclusive<u8>]| mark.iter().zip(&beginning).all(|(range, byte)| range.contains(byte));
            let Some((format, mark)) = MARKS.iter().find(|(_, mark)| fits(mark)) else { break None };
            if beginning.len() == mark.len() {
                break Some(*format);
            }
            if !stored.take_into(&mut beginning, 1)? {
                break None;
            }
        };
        // With all that came with it, so that it is not cut there.
        let buffered = stored.data.buffer().len();
        stored.take_into(&mut beginning, buffered)?;
        stored.put_back(beginning, None);
        Ok(found)
    }
}

/// Compressed data on its way to text.
pub(super) enum Stream {
    Gzip(Box<GzipMembers>),
    Zstd(zstd::stream::read::Decoder<'static, Stored>),
    Bzip2(bzip2::bufread::MultiBzDecoder<Stored>),
    Xz(liblzma::bufread::XzDecoder<Stored>),
    /// One member, and what comes behind it.
    GzipMember(Box<GzDecoder<Stored>>),
    /// One frame, and what comes behind it.
    ZstdFrame(zstd::stream::read::Decoder<'static, Stored>),
}

impl Stream {
    /// All that is stored.
    pub(super) fn of_all(format: Format, stored: Stored) -> io::Result<Self> {
        Ok(match format {
            Format::Gzip => Self::Gzip(Box::new(GzipMembers::new(stored))),
            Format::Zstd => Self::Zstd(zstd::stream::read::Decoder::with_buffer(stored)?),
            Format::Bzip2 => Self::Bzip2(bzip2::bufread::MultiBzDecoder::new(stored)),
            Format::Xz => Self::Xz(liblzma::bufread::XzDecoder::new_multi_decoder(stored)),
        })
    }

    /// What comes where a member or frame may begin: one of them, where something can come behind it.
    pub(super) fn of_next(format: Format, mut stored: Stored) -> io::Result<Self> {
        let begins_member = stored.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        Ok(match format {
            Format::Gzip if begins_member => Self::GzipMember(Box::new(GzDecoder::new(stored))),
            Format::Gzip => Self::Gzip(Box::new(GzipMembers::behind_a_member(stored))),
            Format::Zstd => Self::ZstdFrame(zstd::stream::read::Decoder::with_buffer(stored)?.single_frame()),
            Format::Bzip2 | Format::Xz => Self::of_all(format, stored)?,
        })
    }

    /// What comes behind it, once it has ended.
    pub(super) fn into_stored(self) -> Option<Stored> {
        match self {
            Self::GzipMember(member) => Some(member.into_inner()),
            Self::ZstdFrame(frame) => Some(frame.finish()),
            Self::Gzip(_) | Self::Zstd(_) | Self::Bzip2(_) | Self::Xz(_) => None,
        }
    }

    /// Whether bytes came behind gzip data that are no gzip.
    pub(super) fn has_trailing_garbage(&self) -> bool {
        matches!(self, Self::Gzip(members) if members.trailing_garbage)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(BUFFER_BYTES);
        let buffer = &mut buffer[..most];
        match self {
            Self::Gzip(data) => data.read(buffer),
            Self::Zstd(data) | Self::ZstdFrame(data) => data.read(buffer),
            Self::Bzip2(data) => data.read(buffer),
            Self::Xz(data) => data.read(buffer),
            Self::GzipMember(data) => data.read(buffer),
        }
    }
}

/// All members of a gzip file, one after the other, and whatever is behind them left out.
pub(super) struct GzipMembers {
    place: Place,
    trailing_garbage: bool,
}

enum Place {
    Inside(Box<GzDecoder<Stored>>),
    /// Where a member has ended and another may begin.
    Behind(Stored),
    End,
}

impl GzipMembers {
    pub(super) fn new(stored: Stored) -> Self {
        Self { place: Place::Inside(Box::new(GzDecoder::new(stored))), trailing_garbage: false }
    }

    /// Goes on where a member has ended.
    fn behind_a_member(stored: Stored) -> Self {
        Self { place: Place::Behind(stored), trailing_garbage: false }
    }
}

impl Read for GzipMembers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let is_member = match &mut self.place {
                Place::End => return Ok(0),
                Place::Inside(member) => {
                    let bytes = member.read(buffer)?;
                    if bytes > 0 || buffer.is_empty() {
                        return Ok(bytes);
                    }
                    false
                }
                Place::Behind(stored) => match stored.fill_buf()? {
                    [] => false,
                    // One byte in the buffer may be the first half of a member's mark.
                    [0x1f] | [0x1f, 0x8b, ..] => true,
                    _ => {
                        self.trailing_garbage = true;
                        false
                    }
                },
            };
            self.place = match mem::replace(&mut self.place, Place::End) {
                Place::Inside(member) => Place::Behind(member.into_inner()),
                Place::Behind(stored) if is_member => Place::Inside(Box::new(GzDecoder::new(stored))),
                Place::Behind(_) | Place::End => Place::End,
            };
        }
    }
}
