//! Compressed data that can be taken apart without being unpacked: its blocks are unpacked side by side, and come in
//! order.
//!
//! A BGZF file is gzip, each member of which says how long it is (SAM specification, section 4.1). A zstd frame's length
//! follows from the headers of its blocks (RFC 8878, section 3.1.1). Whoever reads such data cuts off whole blocks and goes
//! on, while other threads unpack them. What they are to know of a block is checked when it is unpacked. Where anything is
//! not as it should be (a member without its length, a huge frame, a wrong checksum, the middle of a block as the end of the
//! data), all from there on is unpacked as a stream, by the same code as on one thread: so text, errors and warnings are
//! the same.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use flate2::bufread::GzDecoder;
use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::content::{GzipMembers, STORED_BUFFER_BYTES, Stored};

/// How much text comes as a stream before other threads help: a look at a file's beginning and small files are not worth
/// their start.
const STREAMED_FIRST_BYTES: u64 = 1 << 20;

/// A longer block is no block: it is unpacked as a stream, in little memory.
const MAX_STORED_BYTES: usize = 16 << 20;

/// The same of its text.
const MAX_PLAIN_BYTES: usize = 32 << 20;

/// The most that a BGZF block holds (SAM specification, section 4.1).
const MAX_BGZF_PLAIN_BYTES: usize = 1 << 16;

/// The largest window that libzstd takes in a stream, unless told otherwise (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`).
const MAX_ZSTD_WINDOW_BYTES: u64 = 1 << 27;

/// The most that a block of a zstd frame holds (RFC 8878, section 3.1.1.2.4).
const MAX_ZSTD_BLOCK_BYTES: usize = 128 << 10;

/// How many blocks of an input may be ahead, for each thread.
const BLOCKS_AHEAD: usize = 8;

/// How much all blocks that are ahead may take, stored and unpacked, for each thread.
const BYTES_AHEAD: usize = 16 << 20;

/// Larger buffers are not kept to be used again.
const MAX_SPARE_BYTES: usize = 256 << 10;

/// Threads that unpack blocks of any input. They begin with the first block and end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Unpackers(Arc<Handle>);

#[derive(Debug)]
struct Handle(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    threads: usize,
    streamed_first_bytes: u64,
    max_bytes_ahead: usize,
    queue: Mutex<Queue>,
    /// Told when there is something to do.
    work: Condvar,
    /// What the blocks that are ahead take.
    bytes_ahead: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    slots: VecDeque<Arc<Slot>>,
    started: bool,
    idle: usize,
    /// Nobody wants anything any more.
    stopped: bool,
}

impl Unpackers {
    /// So many threads, once there is something to do.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::starting_after(threads, STREAMED_FIRST_BYTES)
    }

    /// The same, for inputs of which so many bytes of text came without them.
    #[must_use]
    pub fn starting_after(threads: usize, streamed_first_bytes: u64) -> Self {
        let threads = threads.max(1);
        Self::within(threads, streamed_first_bytes, BYTES_AHEAD * threads)
    }

    fn within(threads: usize, streamed_first_bytes: u64, max_bytes_ahead: usize) -> Self {
        Self(Arc::new(Handle(Arc::new(Pool {
            threads,
            streamed_first_bytes,
            max_bytes_ahead,
            queue: Mutex::default(),
            work: Condvar::new(),
            bytes_ahead: AtomicUsize::new(0),
        }))))
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.0.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.stopped = true;
        queue.slots.clear();
        drop(queue);
        self.0.work.notify_all();
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self) -> bool {
        self.bytes_ahead.load(Ordering::Relaxed) < self.max_bytes_ahead
    }

    fn submit(self: &Arc<Self>, block: Block, room: Vec<u8>) -> Ahead {
        let bytes = block.stored.len() + block.plain_bytes;
        self.bytes_ahead.fetch_add(bytes, Ordering::Relaxed);
        let slot = Arc::new(Slot { progress: Mutex::new(Progress::Waiting(block, room)), done: Condvar::new() });
        let mut queue = self.lock();
        queue.slots.push_back(Arc::clone(&slot));
        if !mem::replace(&mut queue.started, true) {
            for _ in 0..self.threads {
                let pool = Arc::clone(self);
                thread::spawn(move || pool.work_on());
            }
        }
        if queue.idle > 0 {
            self.work.notify_one();
        }
        Ahead { slot, bytes, pool: Arc::clone(self) }
    }

    /// Unpacks until nobody wants anything any more.
    fn work_on(&self) {
        let mut tools = Tools::default();
        let mut queue = self.lock();
        while !queue.stopped {
            queue = match queue.slots.pop_front() {
                Some(slot) => {
                    drop(queue);
                    slot.unpack(&mut tools);
                    self.lock()
                }
                None => {
                    queue.idle += 1;
                    let mut queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                    queue.idle -= 1;
                    queue
                }
            };
        }
    }
}

// ---- A block --------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Zstd,
}

/// A gzip member or a zstd frame, as it is stored.
#[derive(Debug)]
struct Block {
    format: Format,
    stored: Vec<u8>,
    /// Where in a gzip member the deflated data begins.
    data: usize,
    /// How much text it holds at most.
    plain_bytes: usize,
}

/// What became of a block.
struct Unpacked {
    stored: Vec<u8>,
    plain: Vec<u8>,
    /// Whether the block is what it said: one member or frame from its first byte to its last, with the right checksum.
    is_sound: bool,
}

impl std::fmt::Debug for Unpacked {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unpacked").field("is_sound", &self.is_sound).finish_non_exhaustive()
    }
}

/// What unpacking needs beside the block. Made once for each thread: it takes longer than a small block.
#[derive(Default)]
struct Tools {
    inflate: Option<Decompress>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Tools {
    fn unpack(&mut self, block: Block, mut plain: Vec<u8>) -> Unpacked {
        plain.clear();
        // One more than needed: an empty block too has a place to write to.
        plain.reserve(block.plain_bytes + 1);
        let is_sound = match block.format {
            Format::Gzip => self.inflate(&block, &mut plain),
            Format::Zstd => self.unpack_frame(&block, &mut plain),
        };
        Unpacked { stored: block.stored, plain, is_sound }
    }

    /// RFC 1952, section 2.3: deflated data, CRC-32 of the text, its length.
    fn inflate(&mut self, block: &Block, plain: &mut Vec<u8>) -> bool {
        let Some((deflated, trailer)) = block.stored.get(block.data..).and_then(<[u8]>::split_last_chunk::<8>) else {
            return false;
        };
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
        inflate.reset(false);
        let ended = matches!(inflate.decompress_vec(deflated, plain, FlushDecompress::Finish), Ok(Status::StreamEnd));
        let mut crc = Crc::new();
        crc.update(plain);
        let [crc_bytes @ .., _, _, _, _] = trailer;
        ended
            && inflate.total_in() == deflated.len() as u64
            && plain.len() == block.plain_bytes
            && crc.sum().to_le_bytes() == *crc_bytes
    }

    /// libzstd checks the length of the text and its checksum, where the frame has them.
    fn unpack_frame(&mut self, block: &Block, plain: &mut Vec<u8>) -> bool {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        self.zstd.as_mut().is_some_and(|zstd| zstd.decompress_to_buffer(&block.stored, plain).is_ok())
    }
}

/// A block on its way.
#[derive(Debug)]
struct Slot {
    progress: Mutex<Progress>,
    done: Condvar,
}

#[derive(Debug)]
enum Progress {
    /// With room for its text.
    Waiting(Block, Vec<u8>),
    WorkedOn,
    Done(Unpacked),
    /// Nobody wants it any more.
    Cancelled,
    /// The thread that worked on it panicked.
    Lost,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unpack(&self, tools: &mut Tools) {
        let mut progress = self.lock();
        let (block, room) = match mem::replace(&mut *progress, Progress::WorkedOn) {
            Progress::Waiting(block, room) => (block, room),
            other => {
                *progress = other;
                return;
            }
        };
        drop(progress);
        let told = TellsOfPanic(self);
        let unpacked = tools.unpack(block, room);
        drop(told);
        *self.lock() = Progress::Done(unpacked);
        self.done.notify_one();
    }

    fn is_done(&self) -> bool {
        matches!(*self.lock(), Progress::Done(_))
    }

    /// The block once it is unpacked. One that nobody works on yet is unpacked with `tools`, instead of a wait, or else
    /// given as it is.
    fn take(&self, tools: Option<&mut Tools>) -> Unpacked {
        let mut progress = self.lock();
        loop {
            assert!(!matches!(*progress, Progress::Lost), "a thread that unpacks panicked");
            match mem::replace(&mut *progress, Progress::WorkedOn) {
                Progress::Waiting(block, room) => {
                    drop(progress);
                    return match tools {
                        Some(tools) => tools.unpack(block, room),
                        None => Unpacked { stored: block.stored, plain: room, is_sound: false },
                    };
                }
                Progress::Done(unpacked) => return unpacked,
                _ => progress = self.done.wait(progress).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn cancel(&self) {
        let mut progress = self.lock();
        if matches!(*progress, Progress::Waiting(..)) {
            *progress = Progress::Cancelled;
        }
    }
}

/// Lets whoever waits for a block fail too, rather than wait for ever.
struct TellsOfPanic<'s>(&'s Slot);

impl Drop for TellsOfPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            *self.0.lock() = Progress::Lost;
            self.0.done.notify_all();
        }
    }
}

/// A block that is ahead, for whom it is ahead.
struct Ahead {
    slot: Arc<Slot>,
    bytes: usize,
    pool: Arc<Pool>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.slot.cancel();
        self.pool.bytes_ahead.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// ---- From stored data to blocks -------------------------------------------------------------------------------------

impl Format {
    /// Takes the next block off `stored`. Where there is none, or the end, what was read of it is left in `taken`.
    fn take_block(self, stored: &mut Stored, taken: &mut Vec<u8>) -> io::Result<Option<Block>> {
        taken.clear();
        match self {
            Self::Gzip => take_bgzf_block(stored, taken),
            Self::Zstd => take_frame(stored, taken),
        }
    }
}

/// Reads `bytes` more; tells whether so many were there.
fn take(stored: &mut Stored, bytes: usize, taken: &mut Vec<u8>) -> io::Result<bool> {
    // A number from outside: no room is made for what may not come. `read_to_end` goes on where a signal interrupts.
    Ok(stored.by_ref().take(bytes as u64).read_to_end(taken)? == bytes)
}

/// RFC 1952, section 2.3, with the extra field of the SAM specification, section 4.1.
fn take_bgzf_block(stored: &mut Stored, taken: &mut Vec<u8>) -> io::Result<Option<Block>> {
    const FIXED_BYTES: usize = 12;
    const EXTRA_FIELD_AND_NO_OTHER: u8 = 4;
    if !take(stored, FIXED_BYTES, taken)? {
        return Ok(None);
    }
    let [0x1f, 0x8b, 8, EXTRA_FIELD_AND_NO_OTHER, .., low, high] = taken[..] else { return Ok(None) };
    let data = FIXED_BYTES + usize::from(u16::from_le_bytes([low, high]));
    if !take(stored, data - FIXED_BYTES, taken)? {
        return Ok(None);
    }
    let Some(length) = bgzf_block_bytes(&taken[FIXED_BYTES..]).filter(|length| *length >= data + 8) else {
        return Ok(None);
    };
    if !take(stored, length - data, taken)? {
        return Ok(None);
    }
    let Some((_, plain_bytes)) = taken.split_last_chunk::<4>() else { return Ok(None) };
    let plain_bytes = u32::from_le_bytes(*plain_bytes) as usize;
    if plain_bytes > MAX_BGZF_PLAIN_BYTES {
        return Ok(None);
    }
    Ok(Some(Block { format: Format::Gzip, stored: mem::take(taken), data, plain_bytes }))
}

/// Length of the whole block by the subfield `BC` of its extra field.
fn bgzf_block_bytes(mut extra: &[u8]) -> Option<usize> {
    while let [first, second, low, high, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        if let ([b'B', b'C'], [low, high, ..], 2) = ([*first, *second], rest, length) {
            return Some(usize::from(u16::from_le_bytes([*low, *high])) + 1);
        }
        extra = rest.get(length..)?;
    }
    None
}

/// RFC 8878, section 3.1.1. Skippable frames before it are left out.
fn take_frame(stored: &mut Stored, taken: &mut Vec<u8>) -> io::Result<Option<Block>> {
    while take(stored, 4, taken)? {
        match taken[..] {
            [0x28, 0xb5, 0x2f, 0xfd] => return take_frame_behind_mark(stored, taken),
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
                if !take(stored, 4, taken)? {
                    break;
                }
                let Some(bytes) = little_endian(&taken[4..]).filter(|bytes| *bytes <= MAX_STORED_BYTES as u64) else {
                    break;
                };
                if !take(stored, bytes as usize, taken)? {
                    break;
                }
                taken.clear();
            }
            _ => break,
        }
    }
    Ok(None)
}

fn take_frame_behind_mark(stored: &mut Stored, taken: &mut Vec<u8>) -> io::Result<Option<Block>> {
    if !take(stored, 1, taken)? {
        return Ok(None);
    }
    let descriptor = taken[4];
    // A reserved bit, or a dictionary, which nobody has here.
    if descriptor & 0b1011 != 0 {
        return Ok(None);
    }
    let (is_single_segment, has_checksum) = (descriptor & 0x20 != 0, descriptor & 4 != 0);
    let content_size_bytes = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        flag => 1 << flag,
    };
    let header = taken.len();
    if !take(stored, usize::from(!is_single_segment) + content_size_bytes, taken)? {
        return Ok(None);
    }
    let mut fields = &taken[header..];
    let window = match fields {
        [descriptor, rest @ ..] if !is_single_segment => {
            fields = rest;
            let base = 1_u64 << (10 + (descriptor >> 3));
            base + base / 8 * u64::from(descriptor & 7)
        }
        _ => 0,
    };
    let content_size = match (fields, little_endian(fields)) {
        ([], _) => None,
        ([_, _], size) => size.map(|size| size + 256),
        (_, size) => size,
    };
    if window.max(content_size.unwrap_or(0)) > MAX_ZSTD_WINDOW_BYTES {
        return Ok(None);
    }
    let mut plain_bytes = 0;
    loop {
        let block = taken.len();
        if !take(stored, 3, taken)? {
            return Ok(None);
        }
        let Some(field) = little_endian(&taken[block..]) else { return Ok(None) };
        // 21 bits.
        let (size, is_last) = ((field >> 3) as usize, field & 1 == 1);
        let (stored_bytes, plain) = match field >> 1 & 3 {
            0 => (size, size),
            1 => (1, size),
            2 => (size, MAX_ZSTD_BLOCK_BYTES),
            _ => return Ok(None),
        };
        plain_bytes += plain;
        let is_small = taken.len() + stored_bytes <= MAX_STORED_BYTES
            && content_size.map_or(plain_bytes, |size| plain_bytes.min(size as usize)) <= MAX_PLAIN_BYTES;
        if !is_small || !take(stored, stored_bytes, taken)? {
            return Ok(None);
        }
        if is_last {
            break;
        }
    }
    if has_checksum && !take(stored, 4, taken)? {
        return Ok(None);
    }
    // More than its blocks can hold is a lie, and never less than that is needed.
    let plain_bytes = content_size.map_or(plain_bytes, |size| plain_bytes.min(size as usize));
    Ok(Some(Block { format: Format::Zstd, stored: mem::take(taken), data: 0, plain_bytes }))
}

/// A number of at most eight bytes.
fn little_endian(bytes: &[u8]) -> Option<u64> {
    let mut number = [0; 8];
    number.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(number))
}

// ---- The reader -----------------------------------------------------------------------------------------------------

/// The text of gzip members or zstd frames, of which some are unpacked ahead by other threads.
pub(super) struct Blocks {
    format: Format,
    unpackers: Unpackers,
    source: Source,
    /// In their order. Empty unless the source is [`Source::Between`] or [`Source::Rest`].
    ahead: VecDeque<Ahead>,
    /// The block being given, and how much of it was.
    block: Vec<u8>,
    given: usize,
    /// Keeps its room until it is given.
    giving: Option<Ahead>,
    streamed_bytes: u64,
    tools: Tools,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

enum Source {
    /// Inside a member or frame that is unpacked as a stream.
    Inside(Member),
    /// Where one may begin.
    Between(Stored),
    /// What comes behind the blocks that are ahead, and is unpacked as a stream: the end of what was read of it, what
    /// reading on failed with, and more.
    Rest(Vec<u8>, Option<io::Error>, Stored),
    /// All is unpacked as a stream from here on.
    Streamed(Streamed),
}

/// One member or frame.
enum Member {
    Gzip(Box<GzDecoder<Stored>>),
    Zstd(zstd::stream::read::Decoder<'static, Stored>),
}

/// All that there are.
enum Streamed {
    Gzip(Box<GzipMembers>),
    Zstd(zstd::stream::read::Decoder<'static, Stored>),
    Nothing,
}

impl Blocks {
    pub(super) fn new(format: Format, stored: Stored, unpackers: Unpackers) -> Self {
        Self {
            format,
            unpackers,
            source: Source::Between(stored),
            ahead: VecDeque::new(),
            block: Vec::new(),
            given: 0,
            giving: None,
            streamed_bytes: 0,
            tools: Tools::default(),
            spare: Vec::new(),
        }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Whether bytes came behind gzip data that are no gzip.
    pub(super) fn has_trailing_garbage(&self) -> bool {
        matches!(&self.source, Source::Streamed(Streamed::Gzip(members)) if members.has_trailing_garbage())
    }

    /// Gives of the block that is unpacked.
    fn give(&mut self, buffer: &mut [u8]) -> usize {
        let bytes = buffer.len().min(self.block.len() - self.given);
        buffer[..bytes].copy_from_slice(&self.block[self.given..self.given + bytes]);
        self.given += bytes;
        if self.given == self.block.len() && self.giving.take().is_some() {
            let given = mem::take(&mut self.block);
            self.given = 0;
            self.keep(given);
        }
        bytes
    }

    /// Keeps a buffer to be used again, unless it is large: nobody counts what these take.
    fn keep(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() <= MAX_SPARE_BYTES && self.spare.len() < 2 * BLOCKS_AHEAD {
            self.spare.push(buffer);
        }
    }

    /// Hands blocks to other threads.
    fn look_ahead(&mut self) {
        let pool = self.unpackers.pool();
        if self.streamed_bytes < pool.streamed_first_bytes {
            return;
        }
        while self.ahead.len() < BLOCKS_AHEAD * pool.threads
            && pool.has_room()
            && let Source::Between(stored) = &mut self.source
        {
            let mut taken = self.spare.pop().unwrap_or_default();
            let error = match self.format.take_block(stored, &mut taken) {
                Ok(Some(block)) => {
                    let room = self.spare.pop().unwrap_or_default();
                    self.ahead.push_back(pool.submit(block, room));
                    continue;
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            self.replace_source(|source| match source {
                Source::Between(stored) => Source::Rest(taken, error, stored),
                other => other,
            });
            return;
        }
    }

    /// Takes the first block that is ahead.
    fn next_block(&mut self, first: Ahead) {
        let Unpacked { mut stored, plain, is_sound } = first.slot.take(Some(&mut self.tools));
        if is_sound {
            self.keep(stored);
            (self.block, self.given, self.giving) = (plain, 0, Some(first));
            return;
        }
        // What came of it is not to be used: it is unpacked again with all that follows, as it would have been on one
        // thread.
        for ahead in self.ahead.drain(..) {
            stored.extend(ahead.slot.take(None).stored);
        }
        self.replace_source(|source| match source {
            Source::Between(behind) => Source::Rest(stored, None, behind),
            Source::Rest(before, error, behind) => {
                stored.extend(before);
                Source::Rest(stored, error, behind)
            }
            other => other,
        });
    }

    fn replace_source(&mut self, change: impl FnOnce(Source) -> Source) {
        let source = mem::replace(&mut self.source, Source::Streamed(Streamed::Nothing));
        self.source = change(source);
    }

    /// Reads where nothing is ahead. `None`: the source has changed.
    fn stream(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let next = match &mut self.source {
            Source::Streamed(streamed) => {
                return match streamed {
                    Streamed::Gzip(members) => members.read(buffer),
                    Streamed::Zstd(frames) => frames.read(buffer),
                    Streamed::Nothing => Ok(0),
                }
                .map(Some);
            }
            Source::Inside(member) => {
                let bytes = match member {
                    Member::Gzip(member) => member.read(buffer),
                    Member::Zstd(frame) => frame.read(buffer),
                }?;
                if bytes > 0 {
                    self.streamed_bytes += bytes as u64;
                    return Ok(Some(bytes));
                }
                false
            }
            // A call of the system that is interrupted is made again, so nothing may be lost of the source before.
            Source::Between(stored) => match (self.format, stored.fill_buf()?) {
                (_, []) => false,
                (Format::Gzip, beginning) => beginning.starts_with(&[0x1f, 0x8b]),
                (Format::Zstd, _) => true,
            },
            Source::Rest(..) => false,
        };
        let mut failure = None;
        let format = self.format;
        self.replace_source(|source| {
            let changed = match source {
                Source::Inside(Member::Gzip(member)) => Ok(Source::Between(member.into_inner())),
                Source::Inside(Member::Zstd(frame)) => Ok(Source::Between(frame.finish())),
                Source::Between(stored) if next => Member::open(format, stored).map(Source::Inside),
                Source::Between(stored) => Streamed::open(format, stored).map(Source::Streamed),
                Source::Rest(before, error, stored) => {
                    Streamed::open(format, joined(before, error, stored)).map(Source::Streamed)
                }
                streamed @ Source::Streamed(_) => Ok(streamed),
            };
            changed.unwrap_or_else(|error| {
                failure = Some(error);
                Source::Streamed(Streamed::Nothing)
            })
        });
        failure.map_or(Ok(None), Err)
    }
}

impl Member {
    fn open(format: Format, stored: Stored) -> io::Result<Self> {
        Ok(match format {
            Format::Gzip => Self::Gzip(Box::new(GzDecoder::new(stored))),
            Format::Zstd => Self::Zstd(zstd::stream::read::Decoder::with_buffer(stored)?.single_frame()),
        })
    }
}

impl Streamed {
    fn open(format: Format, mut stored: Stored) -> io::Result<Self> {
        // Behind the last frame there is none that could be incomplete.
        Ok(match format {
            Format::Gzip => Self::Gzip(Box::new(GzipMembers::behind_a_member(stored))),
            Format::Zstd => loop {
                match stored.fill_buf() {
                    Ok([]) => break Self::Nothing,
                    Ok(_) => break Self::Zstd(zstd::stream::read::Decoder::with_buffer(stored)?),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            },
        })
    }
}

/// What was read of stored data, then what reading it failed with, then the rest.
fn joined(before: Vec<u8>, error: Option<io::Error>, stored: Stored) -> Stored {
    if before.is_empty() && error.is_none() {
        return stored;
    }
    let failing = Failing(error);
    let joined: Box<dyn Read + Send> = Box::new(Cursor::new(before).chain(failing).chain(stored));
    BufReader::with_capacity(STORED_BUFFER_BYTES, joined)
}

/// Fails once, if at all.
struct Failing(Option<io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            filled += self.give(&mut buffer[filled..]);
            if filled == buffer.len() {
                return Ok(filled);
            }
            self.look_ahead();
            match self.ahead.pop_front() {
                // Rather now than more.
                Some(first) if filled > 0 && !first.slot.is_done() => {
                    self.ahead.push_front(first);
                    return Ok(filled);
                }
                Some(first) => self.next_block(first),
                None if filled > 0 => return Ok(filled),
                None => {
                    if let Some(bytes) = self.stream(buffer)? {
                        return Ok(bytes);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::source::SourceError;
    use crate::source::content::Content;

    fn text(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let lines = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("!AIVDM,1,1,,A,{:016x},0*{:02X}\n", state, state >> 56)
        });
        lines.flat_map(String::into_bytes).take(bytes).collect()
    }

    fn member(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// With another subfield before the one that matters where `extra` is not empty.
    fn bgzf_block(text: &[u8], extra: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        if !extra.is_empty() {
            field.extend([b'x', b'y', extra.len() as u8, 0]);
            field.extend(extra);
        }
        field.extend([b'B', b'C', 2, 0, 0, 0]);
        let place = 12 + field.len() - 2;
        let mut encoder = flate2::GzBuilder::new().extra(field).write(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        let mut block = encoder.finish().unwrap();
        let size = (block.len() - 1) as u16;
        block[place..place + 2].copy_from_slice(&size.to_le_bytes());
        block
    }

    fn bgzf(text: &[u8], block_bytes: usize) -> Vec<u8> {
        let mut blocks: Vec<Vec<u8>> = text.chunks(block_bytes).map(|text| bgzf_block(text, b"")).collect();
        blocks.push(bgzf_block(b"", b""));
        blocks.concat()
    }

    fn frame(text: &[u8], checksum: bool, content_size: bool) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.include_checksum(checksum).unwrap();
        encoder.set_pledged_src_size(content_size.then_some(text.len() as u64)).unwrap();
        encoder.include_contentsize(content_size).unwrap();
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn skippable(bytes: usize) -> Vec<u8> {
        [&[0x5a, 0x2a, 0x4d, 0x18][..], &(bytes as u32).to_le_bytes(), &vec![7; bytes]].concat()
    }

    /// What an input came to: its text as far as it came, the warning or the error, the digest.
    #[derive(Debug, PartialEq)]
    struct Came {
        text: Vec<u8>,
        end: Result<(Option<String>, Option<String>), String>,
    }

    fn read(stored: impl Read + Send + 'static, unpackers: Option<Unpackers>, at_once: usize) -> Came {
        let mut text = Vec::new();
        let digest = Some([1, 5_000].into());
        let mut content = match Content::open_with("x".to_owned(), stored, digest, unpackers) {
            Ok(content) => content,
            Err(error) => return Came { text, end: Err(error.to_string()) },
        };
        let mut buffer = vec![0; at_once];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => return Came { text, end: Ok((content.warning(), content.digest())) },
                Ok(bytes) => text.extend_from_slice(&buffer[..bytes]),
                Err(error) => {
                    let (SourceError::Broken { bytes, .. } | SourceError::Read { bytes, .. }) = &error else {
                        panic!("{error}")
                    };
                    assert_eq!(*bytes, text.len() as u64);
                    return Came { text, end: Err(error.to_string()) };
                }
            }
        }
    }

    /// Reads it in many ways, and compares them with the way of one thread.
    fn assert_same(what: &str, stored: &[u8]) -> Came {
        let pools = [
            Unpackers::starting_after(1, 0),
            Unpackers::starting_after(3, 0),
            Unpackers::starting_after(2, 9_000),
            Unpackers::within(2, 1, 20_000),
            Unpackers::new(2),
        ];
        // How much comes before an error depends on how much is asked for at once.
        for at_once in [777, 64 * 1024, 1 << 20] {
            let mut alone = read(Cursor::new(stored.to_vec()), None, at_once);
            for (number, pool) in pools.iter().enumerate() {
                let mut came = read(Cursor::new(stored.to_vec()), Some(pool.clone()), at_once);
                if alone.end.is_err() {
                    let shorter = alone.text.len().min(came.text.len());
                    assert_eq!(alone.text[..shorter], came.text[..shorter], "{what}");
                    // A decompressor keeps back what it unpacked in the call that fails.
                    assert!(alone.text.len().abs_diff(came.text.len()) <= at_once, "{what}");
                    let without_length = |came: &Came| {
                        came.end.as_ref().unwrap_err().replace(&format!(" {} bytes", came.text.len()), "")
                    };
                    assert!(came.end.is_err(), "{what}, {number}, {at_once}");
                    assert_eq!(without_length(&alone), without_length(&came), "{what}");
                } else {
                    assert!(alone == came, "{what}, {number}, {at_once}: {:?} {:?}", alone.end, came.end);
                }
                came.text.clear();
            }
            if at_once == 1 << 20 {
                return alone;
            }
            alone.text.clear();
        }
        unreachable!()
    }

    #[test]
    fn bgzf_blocks_of_any_size_are_one_text() {
        let text = text(150_000);
        for block_bytes in [1_000, 4_096, 65_280] {
            let came = assert_same("BGZF", &bgzf(&text, block_bytes));
            assert!(came.text == text);
            assert!(matches!(came.end, Ok((None, Some(_)))));
        }
        let mut sizes = [5_000, 1, 0, 65_535, 2, 0, 30_000].into_iter();
        let (mut stored, mut rest) = (Vec::new(), &text[..]);
        for size in sizes.by_ref() {
            let (block, behind) = rest.split_at(size);
            stored.extend(bgzf_block(block, b"other"));
            rest = behind;
        }
        assert!(assert_same("many sizes", &stored).text == text[..text.len() - rest.len()]);
    }

    #[test]
    fn damaged_gzip_is_told_as_on_one_thread() {
        let text = text(60_000);
        let blocks: Vec<Vec<u8>> = text.chunks(7_000).map(|text| bgzf_block(text, b"")).collect();
        let whole = blocks.concat();
        let sixth: usize = blocks[..6].iter().map(Vec::len).sum();
        for cut in [sixth, sixth + 1, sixth + 2, sixth + 11, sixth + 12, sixth + 17, sixth + 18, sixth + 100]
            .into_iter()
            .chain((1..=9).map(|bytes| sixth + blocks[6].len() - bytes))
        {
            let came = assert_same("cut", &whole[..cut]);
            assert_eq!(came.end.is_ok(), cut == sixth);
        }
        let changed = |place: usize, bytes: &[u8]| {
            let mut stored = whole.clone();
            stored[place..place + bytes.len()].copy_from_slice(bytes);
            stored
        };
        let end = sixth + blocks[6].len();
        for (what, place, bytes) in [
            ("mark", sixth + 1, &[0][..]),
            ("method", sixth + 2, &[7]),
            ("flags", sixth + 3, &[0xe4]),
            ("data", sixth + 40, &[0xff; 30]),
            ("checksum", end - 8, &[0]),
            ("length", end - 4, &[0, 0]),
            ("huge length", end - 1, &[0xff]),
        ] {
            assert_same(what, &changed(place, bytes));
        }
        // A wrong size in the extra field breaks no gzip.
        for size in [0_u16, 20, 30, 3_000, 0xffff] {
            let came = assert_same("size", &changed(sixth + 16, &size.to_le_bytes()));
            assert!(came.text == text && came.end.is_ok());
        }
        let came = assert_same("no subfield", &changed(sixth + 12, b"XX"));
        assert!(came.text == text && came.end.is_ok());
    }

    #[test]
    fn what_stands_behind_blocks_is_found() {
        let text = text(50_000);
        let blocks = bgzf(&text, 6_000);
        for (what, behind, more, warns) in [
            ("a member", member(&text), &text[..], false),
            ("a member and blocks", [member(&text), blocks.clone()].concat(), &[&text[..], &text[..]].concat(), false),
            ("zeros", vec![0; 1_000], b"", true),
            ("rubbish", b"rubbish".to_vec(), b"", true),
            ("one byte", b"\x1e".to_vec(), b"", true),
        ] {
            let came = assert_same(what, &[&blocks[..], &behind].concat());
            assert!(came.text == [&text[..], more].concat(), "{what}");
            assert_eq!(came.end.unwrap().0.is_some(), warns, "{what}");
        }
        assert!(assert_same("half a mark", &[&blocks[..], &[0x1f]].concat()).end.is_err());
        assert!(assert_same("a cut member", &[&blocks[..], &member(&text)[..3_000]].concat()).end.is_err());
        let members: Vec<Vec<u8>> = text.chunks(9_000).map(member).collect();
        assert!(assert_same("no BGZF", &members.concat()).text == text);
    }

    #[test]
    fn zstd_frames_are_one_text() {
        let text = text(300_000);
        let parts: Vec<&[u8]> = vec![&text[..9_000], &[], &text[9_000..9_200], &text[9_200..150_000], &text[150_000..]];
        for (checksum, content_size) in [(false, false), (true, false), (false, true), (true, true)] {
            let frames: Vec<Vec<u8>> = parts.iter().map(|text| frame(text, checksum, content_size)).collect();
            assert!(assert_same("frames", &frames.concat()).text == text);
            let skipped: Vec<u8> =
                frames.iter().flat_map(|frame| [skippable(40), skippable(0), frame.clone()].concat()).collect();
            assert!(assert_same("skippable frames", &skipped).text == text);
            assert!(assert_same("skippable at the end", &[&skipped[..], &skippable(5)].concat()).text == text);
            for cut in 1..9 {
                assert!(
                    assert_same("cut skippable", &[&skipped[..], &skippable(9)[..8 + 9 - cut]].concat()).end.is_err()
                );
            }
            assert!(assert_same("rubbish", &[&skipped[..], b"rubbish"].concat()).end.is_err());
        }
        // Blocks that say one byte many times.
        let zeros = vec![0; 300_000];
        let frames = [frame(&text, true, false), frame(&zeros, true, false), frame(&zeros, true, true)].concat();
        assert!(assert_same("zeros", &frames).text == [&text[..], &zeros, &zeros].concat());
    }

    #[test]
    fn damaged_zstd_is_told_as_on_one_thread() {
        let text = text(200_000);
        let first = [frame(&text[..9_000], true, true), frame(&text[9_000..20_000], true, true)].concat();
        let last = frame(&text[20_000..], true, true);
        let whole = [first.clone(), last.clone(), first.clone()].concat();
        for cut in (0..12).chain([500, last.len() - 5, last.len() - 4, last.len() - 1]) {
            assert_eq!(assert_same("cut", &whole[..first.len() + cut]).end.is_ok(), cut == 0);
        }
        for place in [0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 50, last.len() - 4, last.len() - 1] {
            for mask in [1, 8, 0x40, 0xff] {
                let mut stored = whole.clone();
                stored[first.len() + place] ^= mask;
                assert_same("changed", &stored);
            }
        }
        // A reserved type of block, and a window that is refused.
        for header in [[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 7, 0, 0], [0x28, 0xb5, 0x2f, 0xfd, 0, 0xff, 1, 0, 0]] {
            assert!(assert_same("header", &[&first[..], &header[..]].concat()).end.is_err());
        }
    }

    /// Comes in small pieces, and fails where it ends.
    struct Breaking(Cursor<Vec<u8>>);

    impl Read for Breaking {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = buffer.len().min(1_009);
            match self.0.read(&mut buffer[..bytes])? {
                0 => Err(io::Error::from_raw_os_error(5)),
                bytes => Ok(bytes),
            }
        }
    }

    #[test]
    fn a_failure_to_read_comes_behind_the_text_before_it() {
        let text = text(100_000);
        let whole = bgzf(&text, 5_000);
        for cut in [whole.len(), whole.len() - 28, whole.len() - 5_000] {
            let came = |unpackers| read(Breaking(Cursor::new(whole[..cut].to_vec())), unpackers, 1 << 20);
            let (alone, came) = (came(None), came(Some(Unpackers::starting_after(2, 0))));
            assert!(alone.end.as_ref().is_err_and(|error| error.contains("cannot read")), "{:?}", alone.end);
            assert_eq!(alone.end, came.end);
            assert!(alone.text == came.text);
        }
    }

    #[test]
    fn threads_start_late_and_end_with_the_last_reader() {
        let text = text(100_000);
        let stored = bgzf(&text, 4_000);
        let unpackers = Unpackers::new(2);
        assert!(read(Cursor::new(stored.clone()), Some(unpackers.clone()), 4_096).text == text);
        assert!(!unpackers.pool().lock().started, "a small file is not worth their start");
        let unpackers = Unpackers::starting_after(2, 10_000);
        let pool = Arc::clone(unpackers.pool());
        for read in 0..40 {
            let opened = Content::open_with("x".to_owned(), Cursor::new(stored.clone()), None, Some(unpackers.clone()));
            let (mut content, mut buffer) = (opened.unwrap(), vec![0; 700]);
            (0..read).for_each(|_| assert!(content.read(&mut buffer).unwrap() > 0));
        }
        assert_eq!(pool.bytes_ahead.load(Ordering::Relaxed), 0, "whoever leaves gives its room back");
        drop(unpackers);
        let begin = Instant::now();
        while Arc::strong_count(&pool) > 1 && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(Arc::strong_count(&pool), 1, "all threads have ended");
    }
}
