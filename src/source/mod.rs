//! Where raw sentences come from: a closed set of inputs, each of which is one partition.
//!
//! A source gives chunks of whole lines, or records; it never looks into a sentence and knows nothing of cells. A further
//! source is one variant of [`Input`] and one file beside this one.

pub mod blocks;
pub mod content;
pub mod event;
pub mod failed_batch;
pub mod file;
#[cfg(feature = "aws")]
pub mod kinesis;
pub mod lines;
#[cfg(feature = "aws")]
pub mod ranges;
pub mod records;
#[cfg(feature = "aws")]
pub mod s3;
mod stored;
mod stream_ahead;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::decode::Record;
use crate::sink::late;
use blocks::Unpackers;
use content::Content;
use event::EventRecords;
use failed_batch::EnclosedBatch;
use file::FileInput;
#[cfg(feature = "aws")]
use kinesis::ShardInput;
use lines::LineChunks;
use records::RecordQueue;
#[cfg(feature = "aws")]
use s3::ObjectInput;

/// An input that cannot be read to its end. What it gave before must not be taken for the whole.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened.
    #[error("cannot open {name}: {error}")]
    Open {
        /// The input.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// Reading failed.
    #[error("cannot read {name} beyond {bytes} bytes: {error}")]
    Read {
        /// The input.
        name: String,
        /// Bytes of text that came before.
        bytes: u64,
        /// Why.
        error: io::Error,
    },
    /// Compressed data ends or breaks in the middle.
    #[error("{name} breaks off: its {format} data is damaged or cut short after {bytes} bytes of text ({error})")]
    Broken {
        /// The input.
        name: String,
        /// gzip, zstd, bzip2 or xz.
        format: &'static str,
        /// Bytes of text that came before.
        bytes: u64,
        /// What the decompressor says.
        error: io::Error,
    },
    /// Two bytes a character.
    #[error(
        "{name} is UTF-16 text, which no AIS receiver writes: convert it first, for example with iconv -f UTF-16 -t UTF-8"
    )]
    Utf16 {
        /// The input.
        name: String,
    },
    /// JSON that begins like a Lambda event and is none.
    #[error("{name} looks like a Lambda event but is none: {error}")]
    Event {
        /// The input.
        name: String,
        /// Where and why.
        error: String,
    },
    /// A document that should name a failed batch.
    #[error("{name} is no failure-destination document: {error}")]
    FailedBatch {
        /// The document.
        name: String,
        /// What it lacks.
        error: String,
    },
    /// A service said no, or could not be reached.
    #[error("{name}: {error}")]
    Service {
        /// The input.
        name: String,
        /// Why, and what helps.
        error: String,
    },
    /// No object of that name.
    #[error("{name}: there is no such object")]
    NoObject {
        /// The object.
        name: String,
    },
    /// Records that the stream holds no more.
    #[error("{name}: the stream no longer holds its records; it keeps them for its retention period")]
    Gone {
        /// The batch.
        name: String,
    },
    /// A stream was resharded while it was read, and a new shard holds reports of windows that had been emitted.
    #[error(
        "the stream was resharded while it was read, and {name} holds reports of windows that were emitted before it came up; what \
         was printed is not whole, and nothing else was written; run again, its shards are known now"
    )]
    Resharded {
        /// The shard.
        name: String,
    },
    /// A directory with nothing in it.
    #[error("{} is a directory without any file in it", path.display())]
    EmptyDirectory {
        /// The directory.
        path: PathBuf,
    },
}

/// One input, which is one partition: it has an event time and a watermark of its own.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file.
    File(FileInput),
    /// Standard input.
    Stdin,
    /// The records that a failure-destination document encloses.
    Enclosed(EnclosedBatch),
    /// A shard of a stream, or a stretch of one.
    #[cfg(feature = "aws")]
    Shard(ShardInput),
    /// An object in S3.
    #[cfg(feature = "aws")]
    Object(ObjectInput),
}

impl Input {
    /// What people call it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(file) => file.path.display().to_string(),
            Self::Stdin => "standard input".to_owned(),
            Self::Enclosed(batch) => batch.name.clone(),
            #[cfg(feature = "aws")]
            Self::Shard(shard) => shard.name(),
            #[cfg(feature = "aws")]
            Self::Object(object) => object.name(),
        }
    }

    /// Where it lies, if it is a file.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(&file.path),
            _ => None,
        }
    }

    /// Its size as stored, in bytes, where that is known.
    #[must_use]
    pub fn stored_bytes(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.bytes,
            Self::Stdin => None,
            Self::Enclosed(batch) => Some(batch.event.len() as u64),
            #[cfg(feature = "aws")]
            Self::Shard(_) => None,
            #[cfg(feature = "aws")]
            Self::Object(object) => Some(object.bytes()),
        }
    }

    /// Whether it is a shard: records that come from a service, all shards at the same time.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        match self {
            Self::File(_) | Self::Stdin | Self::Enclosed(_) => false,
            #[cfg(feature = "aws")]
            Self::Shard(_) => true,
            #[cfg(feature = "aws")]
            Self::Object(_) => false,
        }
    }

    /// Id of the shard, where it is one.
    #[must_use]
    pub fn shard(&self) -> Option<&str> {
        match self {
            Self::File(_) | Self::Stdin | Self::Enclosed(_) => None,
            #[cfg(feature = "aws")]
            Self::Shard(shard) => Some(shard.id()),
            #[cfg(feature = "aws")]
            Self::Object(_) => None,
        }
    }

    /// Ids of the shards that it came from by a split or a merge, which are to be read before it.
    #[must_use]
    pub fn parents(&self) -> &[Arc<str>] {
        match self {
            Self::File(_) | Self::Stdin | Self::Enclosed(_) => &[],
            #[cfg(feature = "aws")]
            Self::Shard(shard) => shard.parents(),
            #[cfg(feature = "aws")]
            Self::Object(_) => &[],
        }
    }

    /// Whether it can be read twice, so that a look ahead is possible.
    #[must_use]
    pub fn can_be_read_twice(&self) -> bool {
        self.stored_bytes().is_some()
    }

    /// Whether the command line names it, rather than a directory that it lies in.
    #[must_use]
    pub fn is_named(&self) -> bool {
        match self {
            Self::File(file) => file.named,
            Self::Stdin | Self::Enclosed(_) => true,
            // An idle shard is no mistake of the command line.
            #[cfg(feature = "aws")]
            Self::Shard(_) => false,
            #[cfg(feature = "aws")]
            Self::Object(object) => object.is_named(),
        }
    }

    /// Opens it and finds out what it holds.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened, or its beginning tells that it can never be read.
    pub fn open(&self, mut options: ReadOptions) -> Result<Reader, SourceError> {
        // A stream that has little to say for now gives that at once, rather than with what comes next.
        if !self.can_be_read_twice() {
            options.unpackers = options.unpackers.map(Unpackers::of_streams);
        }
        match self {
            #[cfg(feature = "aws")]
            Self::Shard(shard) => Ok(Reader::of_records(self.name(), shard.open()?)),
            #[cfg(feature = "aws")]
            Self::Object(object) => {
                // It is known by what the service calls it, so that no two runs have to read it to know it again.
                let identity = options.digest.is_some().then(|| object.identity());
                let reader = Reader::new(self.name(), object.open(), ReadOptions { digest: None, ..options })?;
                Ok(Reader { identity, ..reader })
            }
            _ => Reader::new(self.name(), self.open_stored()?, options),
        }
    }

    /// Opens it for its lines, whatever they hold.
    ///
    /// # Errors
    ///
    /// Where it cannot be opened, or its beginning tells that it can never be read.
    pub fn open_text(&self, options: ReadOptions) -> Result<Reader, SourceError> {
        Reader::of_lines(self.name(), self.open_stored()?, options)
    }

    fn open_stored(&self) -> Result<Box<dyn io::Read + Send>, SourceError> {
        Ok(match self {
            Self::File(file) => Box::new(file.open()?),
            Self::Stdin => Box::new(io::stdin()),
            Self::Enclosed(batch) => Box::new(io::Cursor::new(Arc::clone(&batch.event))),
            // A shard has no bytes of its own: it is opened for its records.
            #[cfg(feature = "aws")]
            Self::Shard(_) => Box::new(io::empty()),
            #[cfg(feature = "aws")]
            Self::Object(object) => object.open(),
        })
    }
}

/// How inputs are read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// How many bytes are asked for at once. No result depends on it.
    pub chunk_bytes: usize,
    /// Whether to make digests of the content: of the whole, and of its beginnings at these sizes, ascending.
    pub digest: Option<Arc<[u64]>>,
    /// Threads that may unpack some of it ahead. No result depends on them.
    pub unpackers: Option<Unpackers>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { chunk_bytes: 256 * 1024, digest: None, unpackers: None }
    }
}

/// What an input gives next.
#[derive(Debug)]
pub enum Chunk<'a> {
    /// Whole lines.
    Lines(&'a [u8]),
    /// One record.
    Record(&'a Record, &'a [u8]),
    /// A record that was read before.
    DuplicateRecord,
    /// A record whose data cannot be unpacked.
    BadRecord,
    /// The end.
    End,
}

/// An open input.
pub struct Reader {
    name: String,
    form: Form,
    stored_bytes: Arc<AtomicU64>,
    /// What it is known by instead of its content's digest.
    identity: Option<String>,
}

enum Form {
    Lines(Box<LineChunks>),
    Event(Box<EventRecords>),
    Records(Box<RecordQueue>),
    /// Late side-output of a run: what it holds has been read once before.
    LateFile(Box<Content>),
}

impl Reader {
    /// Reads `stored`, whatever it is compressed with.
    ///
    /// # Errors
    ///
    /// Where its beginning cannot be read, or tells that it can never be.
    pub fn new(name: String, stored: Box<dyn io::Read + Send>, options: ReadOptions) -> Result<Self, SourceError> {
        Self::with_form(name, stored, &options, |content| {
            Ok(if late::is_late_file(content.beginning()) {
                Form::LateFile(Box::new(content))
            } else if event::is_event(content.beginning()) {
                Form::Event(Box::new(EventRecords::read(content)?))
            } else {
                Form::Lines(Box::new(LineChunks::new(content, options.chunk_bytes)))
            })
        })
    }

    /// Gives the records of a queue.
    #[must_use]
    pub fn of_records(name: String, queue: RecordQueue) -> Self {
        Self { name, stored_bytes: queue.stored_bytes(), form: Form::Records(Box::new(queue)), identity: None }
    }

    fn of_lines(name: String, stored: Box<dyn io::Read + Send>, options: ReadOptions) -> Result<Self, SourceError> {
        Self::with_form(name, stored, &options, |content| {
            Ok(Form::Lines(Box::new(LineChunks::new(content, options.chunk_bytes))))
        })
    }

    fn with_form(
        name: String,
        stored: Box<dyn io::Read + Send>,
        options: &ReadOptions,
        form: impl FnOnce(Content) -> Result<Form, SourceError>,
    ) -> Result<Self, SourceError> {
        let stored_bytes = Arc::new(AtomicU64::new(0));
        let counted = CountedRead { inner: stored, bytes: Arc::clone(&stored_bytes) };
        let (digest, unpackers) = (options.digest.clone(), options.unpackers.clone());
        let form = form(Content::open_with(name.clone(), counted, digest, unpackers)?)?;
        Ok(Self { name, form, stored_bytes, identity: None })
    }

    /// Whether it gives records rather than lines.
    #[must_use]
    pub fn gives_records(&self) -> bool {
        matches!(self.form, Form::Event(_) | Form::Records(_))
    }

    /// Whether a record may come that this or another input has given before.
    #[must_use]
    pub fn may_repeat_records(&self) -> bool {
        match &self.form {
            Form::Records(queue) => queue.may_repeat(),
            _ => true,
        }
    }

    /// Whether the next record is at hand, without any wait.
    #[must_use]
    pub fn has_records_at_hand(&self) -> bool {
        match &self.form {
            Form::Records(queue) => queue.has_records_at_hand(),
            _ => false,
        }
    }

    /// Shows records from the next one on until `look` has seen enough, and keeps them. Tells whether `look` has seen all.
    ///
    /// # Errors
    ///
    /// Where the input breaks off.
    pub fn look_at_records(&mut self, look: impl FnMut(&Record, &[u8]) -> bool) -> Result<bool, SourceError> {
        match &mut self.form {
            Form::Records(queue) => queue.look(look),
            _ => Ok(false),
        }
    }

    /// Inputs that came up while this one was read, and go on where it ended.
    ///
    /// # Errors
    ///
    /// Where they cannot be found out.
    pub fn successors(&self) -> Result<Vec<Input>, SourceError> {
        match &self.form {
            Form::Records(queue) => queue.successors(),
            _ => Ok(Vec::new()),
        }
    }

    /// The next chunk. After [`Chunk::End`] it must not be called again.
    ///
    /// # Errors
    ///
    /// Where the input breaks off.
    pub fn next_chunk(&mut self) -> Result<Chunk<'_>, SourceError> {
        match &mut self.form {
            Form::Lines(lines) => lines.next_chunk(),
            Form::Event(records) => Ok(records.next_chunk()),
            Form::Records(queue) => queue.next_chunk(),
            Form::LateFile(_) => Ok(Chunk::End),
        }
    }

    /// The next chunk of a reader that gives lines, in a buffer of its own, for which `buffer` is taken in exchange: how long
    /// it is, 0 at the end. After that it must not be called again.
    ///
    /// # Errors
    ///
    /// Where the input breaks off.
    pub fn take_lines(&mut self, buffer: &mut Vec<u8>) -> Result<usize, SourceError> {
        match &mut self.form {
            Form::Lines(lines) => lines.take_chunk(buffer),
            Form::Event(_) | Form::Records(_) | Form::LateFile(_) => Ok(0),
        }
    }

    /// What the input is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes read so far, as stored.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// What is known once the input has been read to its end.
    #[must_use]
    pub fn outcome(&self) -> ReadOutcome {
        let content = match &self.form {
            Form::Lines(lines) => lines.content(),
            Form::Event(records) => records.content(),
            Form::Records(queue) => return queue.outcome(),
            Form::LateFile(content) => {
                let warning =
                    format!("{} is late side-output and no log: it was passed over; 'reconcile' adds it", self.name);
                return ReadOutcome { bytes: content.bytes(), warning: Some(warning), ..ReadOutcome::default() };
            }
        };
        ReadOutcome {
            bytes: content.bytes(),
            digest: self.identity.clone().or_else(|| content.digest()),
            beginnings: content.beginnings().to_vec(),
            left_out: content.left_out(),
            ..ReadOutcome::default()
        }
    }
}

/// What is known of an input that was read to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes of its decompressed content.
    pub bytes: u64,
    /// SHA-256 of that, in hexadecimal, if it was asked for; of an object that of its bucket, key, ETag and size.
    pub digest: Option<String>,
    /// The same of its beginnings, at the sizes that were asked for.
    pub beginnings: Vec<(u64, String)>,
    /// Something odd about it that cost no data.
    pub warning: Option<String>,
    /// What of it was left out, if there was any.
    pub left_out: Option<String>,
}

/// Counts what passes through, for the progress bar.
struct CountedRead {
    inner: Box<dyn io::Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl io::Read for CountedRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(buffer)?;
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}
