//! Chunks of whole lines, in bounded memory.

use super::content::Content;
use super::{Chunk, SourceError};
use crate::decode::scan::MAX_LINE_BYTES;

/// Cuts a content into chunks that end where a line ends. A line that is longer than any that is read keeps its beginning,
/// so that it is told as too long, and loses the rest.
pub struct LineChunks {
    content: Content,
    chunk_bytes: usize,
    /// Room for a chunk. What is filled of it begins with the chunk given last, then comes the beginning of the line that
    /// it cut.
    room: Vec<u8>,
    filled: usize,
    given: usize,
    /// Whether what is filled ends in the kept beginning of a line that is too long.
    in_endless_line: bool,
    at_end: bool,
}

impl LineChunks {
    /// Chunks of about `chunk_bytes`.
    #[must_use]
    pub fn new(content: Content, chunk_bytes: usize) -> Self {
        // Room comes with the first chunk: whoever takes chunks brings some that was used before.
        let (chunk_bytes, room) = (chunk_bytes.max(1), Vec::new());
        Self { content, chunk_bytes, room, filled: 0, given: 0, in_endless_line: false, at_end: false }
    }

    /// The content.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The next chunk: at least one whole line, the last of the input perhaps without its end.
    ///
    /// # Errors
    ///
    /// Those of [`Content::read`].
    pub fn next_chunk(&mut self) -> Result<Chunk<'_>, SourceError> {
        self.room.copy_within(self.given..self.filled, 0);
        self.filled -= self.given;
        loop {
            self.given = match self.last_line_end() {
                Some(end) => end,
                None if self.at_end => self.filled,
                None => {
                    self.read_more()?;
                    continue;
                }
            };
            return Ok(if self.given == 0 { Chunk::End } else { Chunk::Lines(&self.room[..self.given]) });
        }
    }

    /// The same chunk in a buffer of its own, for which `buffer` is taken in exchange; how long it is. What lies behind it
    /// there means nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Content::read`].
    pub fn take_chunk(&mut self, buffer: &mut Vec<u8>) -> Result<usize, SourceError> {
        if self.room.is_empty() {
            std::mem::swap(&mut self.room, buffer);
        }
        self.next_chunk()?;
        let length = std::mem::take(&mut self.given);
        if self.filled == length {
            // No line is cut, so there is nothing to keep.
            self.filled = 0;
            *buffer = std::mem::take(&mut self.room);
            return Ok(length);
        }
        let cut_line = &self.room[length..self.filled];
        self.filled = cut_line.len();
        // Room is made once, since that fills it with zeros.
        if buffer.len() < self.filled.max(self.chunk_bytes) {
            buffer.resize(self.filled.max(self.chunk_bytes), 0);
        }
        buffer[..self.filled].copy_from_slice(cut_line);
        std::mem::swap(&mut self.room, buffer);
        Ok(length)
    }

    /// Just behind the last line end that is there. A CR in the last place does not count before the end of the input,
    /// since an LF may follow.
    fn last_line_end(&self) -> Option<usize> {
        let certain = match &self.room[..self.filled] {
            [before @ .., b'\r'] if !self.at_end => before,
            all => all,
        };
        memchr::memrchr2(b'\n', b'\r', certain).map(|place| place + 1)
    }

    /// Appends what the content gives to what is there, in which there is no certain line end.
    fn read_more(&mut self) -> Result<(), SourceError> {
        if self.filled > MAX_LINE_BYTES && self.room[self.filled - 1] != b'\r' {
            self.filled = MAX_LINE_BYTES + 1;
            self.in_endless_line = true;
        }
        // Half a chunk at least, so that the beginning of a cut line does not lead to many small reads.
        let needed = self.filled + self.chunk_bytes.div_ceil(2);
        if self.room.len() < needed {
            self.room.resize(needed.max(self.chunk_bytes), 0);
        }
        let bytes = self.content.read(&mut self.room[self.filled..])?;
        self.at_end = bytes == 0;
        let fresh = self.filled..self.filled + bytes;
        if self.in_endless_line {
            let line_end = memchr::memchr2(b'\n', b'\r', &self.room[fresh.clone()]);
            let kept = fresh.start + line_end.unwrap_or(bytes)..fresh.end;
            self.in_endless_line = line_end.is_none();
            self.filled += kept.len();
            self.room.copy_within(kept, fresh.start);
        } else {
            self.filled = fresh.end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn chunks(text: &[u8], chunk_bytes: usize) -> Vec<Vec<u8>> {
        let content = Content::open("x".to_owned(), Cursor::new(text.to_vec()), None).unwrap();
        let mut lines = LineChunks::new(content, chunk_bytes);
        let mut chunks = Vec::new();
        loop {
            match lines.next_chunk().unwrap() {
                Chunk::Lines(chunk) => chunks.push(chunk.to_vec()),
                Chunk::End => return chunks,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn chunks_end_where_lines_end_and_lose_nothing() {
        for text in
            [&b""[..], b"\n", b"a", b"a\nbb\nccc\n", b"a\r\nbb\r\n\r\nccc", b"a\rbb\r\rccc\r", b"\r\n\r\n", b"a\r"]
        {
            for chunk_bytes in 1..12 {
                let chunks = chunks(text, chunk_bytes);
                assert_eq!(chunks.concat(), text, "by {chunk_bytes}");
                for pair in chunks.windows(2) {
                    let ends_line =
                        pair[0].ends_with(b"\n") || (pair[0].ends_with(b"\r") && !pair[1].starts_with(b"\n"));
                    assert!(ends_line, "{chunks:?}");
                }
            }
        }
    }

    #[test]
    fn an_endless_line_stays_bounded_and_its_neighbours_whole() {
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("first{end}{}{end}last{end}", "x".repeat(5 * MAX_LINE_BYTES));
            for chunk_bytes in [1_000, 65_536, 65_537, 65_538, 1 << 20] {
                let chunks = chunks(text.as_bytes(), chunk_bytes);
                assert!(chunks.iter().all(|chunk| chunk.len() <= 2 * chunk_bytes + 2 * MAX_LINE_BYTES));
                let all = chunks.concat();
                let lines: Vec<&[u8]> =
                    all.split(|byte| matches!(byte, b'\r' | b'\n')).filter(|line| !line.is_empty()).collect();
                assert_eq!((lines.len(), lines[0], lines[2]), (3, &b"first"[..], &b"last"[..]));
                assert!(lines[1].len() > MAX_LINE_BYTES);
            }
        }
    }
}
