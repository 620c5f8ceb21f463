//! Reading ahead: another thread reads and unpacks while this one decodes.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::{Chunk, ReadOutcome, Reader, SourceError};
use crate::decode::Record;

/// How many chunks may wait to be decoded.
const CHUNKS_AHEAD: usize = 4;

enum Owned {
    Lines(Vec<u8>),
    Record(Record, Vec<u8>),
    DuplicateRecord,
    BadRecord,
    End(ReadOutcome),
}

/// The chunks of a reader that another thread drives.
pub struct ReadAhead {
    chunks: Receiver<Result<Owned, SourceError>>,
    used: Sender<Vec<u8>>,
    current: Option<Owned>,
}

impl ReadAhead {
    /// Hands the reader to a thread of its own. The thread ends with the input, or when this value is dropped.
    #[must_use]
    pub fn start(mut reader: Reader) -> Self {
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        let (used, buffers) = channel();
        thread::spawn(move || drive(&mut reader, &sender, &buffers));
        Self { chunks, used, current: None }
    }

    /// The next chunk; see [`Reader::next_chunk`].
    ///
    /// # Errors
    ///
    /// Those of the reader.
    pub fn next_chunk(&mut self) -> Result<Chunk<'_>, SourceError> {
        if let Some(Owned::Lines(buffer) | Owned::Record(_, buffer)) = self.current.take() {
            // The thread may have ended; then nobody needs the buffer.
            let _ = self.used.send(buffer);
        }
        let Ok(next) = self.chunks.recv() else { return Ok(Chunk::End) };
        Ok(match self.current.insert(next?) {
            Owned::Lines(lines) => Chunk::Lines(lines),
            Owned::Record(record, data) => Chunk::Record(record, data),
            Owned::DuplicateRecord => Chunk::DuplicateRecord,
            Owned::BadRecord => Chunk::BadRecord,
            Owned::End(_) => Chunk::End,
        })
    }

    /// What is known at the end.
    #[must_use]
    pub fn outcome(&self) -> ReadOutcome {
        match &self.current {
            Some(Owned::End(outcome)) => outcome.clone(),
            _ => ReadOutcome::default(),
        }
    }
}

fn drive(reader: &mut Reader, sender: &SyncSender<Result<Owned, SourceError>>, buffers: &Receiver<Vec<u8>>) {
    loop {
        let copy = |bytes: &[u8]| {
            let mut buffer = buffers.try_recv().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(bytes);
            buffer
        };
        let next = match reader.next_chunk() {
            Ok(Chunk::Lines(lines)) => Ok(Owned::Lines(copy(lines))),
            Ok(Chunk::Record(record, data)) => Ok(Owned::Record(record.clone(), copy(data))),
            Ok(Chunk::DuplicateRecord) => Ok(Owned::DuplicateRecord),
            Ok(Chunk::BadRecord) => Ok(Owned::BadRecord),
            Ok(Chunk::End) => Ok(Owned::End(reader.outcome())),
            Err(error) => Err(error),
        };
        let last = matches!(next, Ok(Owned::End(_)) | Err(_));
        if sender.send(next).is_err() || last {
            return;
        }
    }
}
