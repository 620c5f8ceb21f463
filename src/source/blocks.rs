//! Compressed data that other threads unpack ahead of whoever reads it: several blocks side by side where it can be taken
//! apart without being unpacked, a long stream by a thread of its own otherwise. The text comes in order.
//!
//! A BGZF file is gzip, each member of which says how long it is (SAM specification, section 4.1). Any other gzip member
//! is taken to end where the next thing that looks like the header of one begins. A zstd frame's length follows from the
//! headers of its blocks (RFC 8878, section 3.1.1). Whoever reads such data cuts off whole blocks and goes on, while other
//! threads unpack them. A block counts only if it turns out to be one member or frame from its first byte to its last,
//! with the right length and checksum, where the one before it has ended. Where anything is not as it should be (the
//! header of a member in the midst of another, a huge frame, a wrong checksum, the middle of a block as the end of the
//! data), what comes next is unpacked as a stream, by the same code as on one thread: so text, errors and warnings are the
//! same.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use flate2::{Crc, Decompress, FlushDecompress, Status};
use memchr::memmem;

use super::stored::{Format, Stored, Stream};
use super::stream_ahead::{StreamAhead, Text};

/// How much text comes as a stream before other threads help: a look at a file's beginning and small files are not worth
/// their start.
const STREAMED_FIRST_BYTES: u64 = 1 << 20;

/// A larger block, stored and unpacked, is no block: it is unpacked as a stream, in little memory.
const MAX_BLOCK_BYTES: usize = 48 << 20;

/// The largest window that libzstd takes in a stream, unless told otherwise (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`).
const MAX_ZSTD_WINDOW_BYTES: u64 = 1 << 27;

/// The most that a block of a zstd frame holds (RFC 8878, section 3.1.1.2.4).
const MAX_ZSTD_BLOCK_BYTES: usize = 128 << 10;

/// How many blocks of an input may be ahead, for each thread.
const BLOCKS_AHEAD: usize = 8;

/// How much all that is ahead may take, stored and unpacked, for each thread.
const BYTES_AHEAD: usize = 16 << 20;

/// Larger buffers are not kept to be used again.
const MAX_SPARE_BYTES: usize = 256 << 10;

/// Threads that unpack any input. They begin with the first block and end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Unpackers {
    handle: Arc<Handle>,
    /// Whether an input may be read ahead of what is unpacked.
    cut: bool,
}

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
    /// What all that is ahead takes.
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
        let pool = Pool {
            threads,
            streamed_first_bytes,
            max_bytes_ahead,
            queue: Mutex::default(),
            work: Condvar::new(),
            bytes_ahead: AtomicUsize::new(0),
        };
        Self { handle: Arc::new(Handle(Arc::new(pool))), cut: true }
    }

    /// The same for inputs that may be slow to come: what has come is unpacked before more is read.
    #[must_use]
    pub fn of_streams(self) -> Self {
        Self { cut: false, ..self }
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.handle.0
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

    fn take_room(self: &Arc<Self>, bytes: usize) -> Room {
        self.bytes_ahead.fetch_add(bytes, Ordering::Relaxed);
        Room { bytes, pool: Arc::clone(self) }
    }

    /// Two blocks at least are to have room, so that one is unpacked while the other is given.
    fn max_block_bytes(&self) -> usize {
        MAX_BLOCK_BYTES.min(self.max_bytes_ahead / 2)
    }

    fn submit(self: &Arc<Self>, block: Block, buffer: Vec<u8>) -> Ahead {
        let room = self.take_room(block.bytes());
        let slot = Arc::new(Slot { progress: Mutex::new(Progress::Waiting(block, buffer)), done: Condvar::new() });
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
        Ahead { slot, _room: room }
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

impl Block {
    fn bytes(&self) -> usize {
        self.stored.len() + self.plain_bytes
    }
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
            Format::Bzip2 | Format::Xz => false,
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
    _room: Room,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.slot.cancel();
    }
}

/// What something that is ahead takes, until it is dropped.
struct Room {
    bytes: usize,
    pool: Arc<Pool>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.pool.bytes_ahead.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// ---- From stored data to blocks -------------------------------------------------------------------------------------

/// Cuts the next block of at most `max_bytes`, stored and unpacked, off `stored`. Where there is none, what was read is put
/// back, and what reading on failed with.
fn cut_block(format: Format, stored: &mut Stored, max_bytes: usize, mut taken: Vec<u8>) -> Option<Block> {
    taken.clear();
    let cut = match format {
        Format::Gzip => cut_member(stored, max_bytes, &mut taken),
        Format::Zstd => cut_frame(stored, max_bytes, &mut taken),
        Format::Bzip2 | Format::Xz => Ok(None),
    };
    let (taken, error) = match cut {
        Ok(Some(block)) if block.bytes() <= max_bytes => return Some(block),
        Ok(Some(block)) => (block.stored, None),
        Ok(None) => (taken, None),
        Err(error) => (taken, Some(error)),
    };
    stored.put_back(taken, error);
    None
}

/// What a gzip header takes at least (RFC 1952, section 2.3).
const GZIP_HEADER_BYTES: usize = 10;

/// Flags of a gzip header that are understood here (RFC 1952, section 2.3.1); the other legal one is a checksum of the
/// header.
const TEXT: u8 = 1;
const EXTRA_FIELD: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;

/// A longer name is left to the stream, which knows when one is too long.
const MAX_NAME_BYTES: usize = 4096;

/// A member by the length that it says (SAM specification, section 4.1), or else up to the next header.
fn cut_member(stored: &mut Stored, max_bytes: usize, taken: &mut Vec<u8>) -> io::Result<Option<Block>> {
    const FIXED_BYTES: usize = GZIP_HEADER_BYTES + 2;
    if !stored.take_into(taken, FIXED_BYTES)? {
        return Ok(None);
    }
    let [0x1f, 0x8b, 8, flags, .., low, high] = taken[..] else { return Ok(None) };
    if flags & !(TEXT | EXTRA_FIELD | NAME | COMMENT) != 0 {
        return Ok(None);
    }
    let mut length = None;
    if flags == EXTRA_FIELD {
        if !stored.take_into(taken, usize::from(u16::from_le_bytes([low, high])))? {
            return Ok(None);
        }
        length = bgzf_block_bytes(&taken[FIXED_BYTES..]).filter(|length| *length >= taken.len() + 8);
    }
    let is_whole = match length {
        Some(length) => stored.take_into(taken, length - taken.len())?,
        None => take_to_next_header(stored, max_bytes, taken)?,
    };
    let (true, Some(data), Some((_, plain_bytes))) = (is_whole, deflated_data(taken), taken.split_last_chunk::<4>())
    else {
        return Ok(None);
    };
    let plain_bytes = u32::from_le_bytes(*plain_bytes) as usize;
    Ok(Some(Block { format: Format::Gzip, stored: mem::take(taken), data, plain_bytes }))
}

/// Reads on to the next place where a member may begin, or to the end; tells whether that is within `max_bytes`.
fn take_to_next_header(stored: &mut Stored, max_bytes: usize, taken: &mut Vec<u8>) -> io::Result<bool> {
    while taken.len() <= max_bytes {
        let fresh = match stored.fill_buf() {
            Ok([]) => return Ok(true),
            Ok(fresh) => &fresh[..fresh.len().min(max_bytes + 1 - taken.len())],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        // One may begin in what was taken and end in what is fresh.
        let edge = taken.len().saturating_sub(GZIP_HEADER_BYTES - 1);
        let across = [&taken[edge..], &fresh[..fresh.len().min(GZIP_HEADER_BYTES - 1)]].concat();
        if let Some(place) = find_gzip_header(&across) {
            // It is longer than what of `across` is fresh, so it begins before that.
            stored.put_back(taken.split_off(edge + place), None);
            return Ok(true);
        }
        let place = find_gzip_header(fresh);
        let bytes = place.unwrap_or(fresh.len());
        taken.extend_from_slice(&fresh[..bytes]);
        stored.consume(bytes);
        if place.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first place that looks as if a gzip member began there (RFC 1952, sections 2.3 and 2.3.1).
fn find_gzip_header(bytes: &[u8]) -> Option<usize> {
    let looks_right = |place: &usize| match bytes[*place..].first_chunk::<GZIP_HEADER_BYTES>() {
        // Deflated; no reserved flag; a time; how hard it was compressed; the file system.
        Some([_, _, _, flags, _, _, _, _, effort, system]) => {
            flags & 0xe0 == 0 && matches!(effort, 0 | 2 | 4) && matches!(system, 0..=13 | 255)
        }
        None => false,
    };
    memmem::find_iter(bytes, &[0x1f, 0x8b, 8]).find(looks_right)
}

/// Where in a gzip member the deflated data begins.
fn deflated_data(member: &[u8]) -> Option<usize> {
    let flags = member.get(3)?;
    let mut data = GZIP_HEADER_BYTES;
    if flags & EXTRA_FIELD != 0 {
        let [low, high, ..] = member.get(data..)? else { return None };
        data += 2 + usize::from(u16::from_le_bytes([*low, *high]));
    }
    for field in [NAME, COMMENT] {
        if flags & field != 0 {
            data += member.get(data..)?.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0)? + 1;
        }
    }
    Some(data)
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
fn cut_frame(stored: &mut Stored, max_bytes: usize, taken: &mut Vec<u8>) -> io::Result<Option<Block>> {
    while stored.take_into(taken, 4)? {
        match taken[..] {
            [0x28, 0xb5, 0x2f, 0xfd] => return cut_frame_behind_mark(stored, max_bytes, taken),
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
                if !stored.take_into(taken, 4)? {
                    break;
                }
                let Some(bytes) = little_endian(&taken[4..]).filter(|bytes| *bytes <= max_bytes as u64) else {
                    break;
                };
                if !stored.take_into(taken, bytes as usize)? {
                    break;
                }
                taken.clear();
            }
            _ => break,
        }
    }
    Ok(None)
}

fn cut_frame_behind_mark(stored: &mut Stored, max_bytes: usize, taken: &mut Vec<u8>) -> io::Result<Option<Block>> {
    if !stored.take_into(taken, 1)? {
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
    if !stored.take_into(taken, usize::from(!is_single_segment) + content_size_bytes)? {
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
        if !stored.take_into(taken, 3)? {
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
        let plain_by_now = content_size.map_or(plain_bytes, |size| plain_bytes.min(size as usize));
        let is_small = taken.len() + stored_bytes + plain_by_now <= max_bytes;
        if !is_small || !stored.take_into(taken, stored_bytes)? {
            return Ok(None);
        }
        if is_last {
            break;
        }
    }
    if has_checksum && !stored.take_into(taken, 4)? {
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

/// The text of compressed data, some of which other threads unpack ahead.
pub(super) struct Blocks {
    format: Format,
    unpackers: Unpackers,
    source: Source,
    /// In their order. Empty unless the source is [`Source::Between`] or [`Source::Stuck`].
    ahead: VecDeque<Ahead>,
    /// The text being given, and what of it is still to be: it lies within the text.
    text: Vec<u8>,
    rest: Range<usize>,
    /// Keeps the room of a block until it is given.
    giving: Option<Ahead>,
    /// How much came as a stream, since the beginning or the last block that was none, and how much of that before blocks
    /// are looked for.
    streamed_bytes: u64,
    streamed_first_bytes: u64,
    /// How much came of this stream.
    stream_bytes: u64,
    tools: Tools,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

enum Source {
    /// Where a member or frame may begin.
    Between(Stored),
    /// The same, where no block could be cut off.
    Stuck(Stored),
    /// What is unpacked here.
    Stream(Stream),
    /// What another thread unpacks.
    Ahead {
        stream: StreamAhead,
        _room: Room,
    },
    End {
        has_trailing_garbage: bool,
    },
}

impl Blocks {
    pub(super) fn new(format: Format, stored: Stored, unpackers: Unpackers) -> io::Result<Self> {
        let source = match format {
            Format::Gzip | Format::Zstd if unpackers.cut => Source::Between(stored),
            _ => Source::Stream(Stream::of_all(format, stored)?),
        };
        Ok(Self {
            format,
            streamed_first_bytes: unpackers.pool().streamed_first_bytes,
            unpackers,
            source,
            ahead: VecDeque::new(),
            text: Vec::new(),
            rest: 0..0,
            giving: None,
            streamed_bytes: 0,
            stream_bytes: 0,
            tools: Tools::default(),
            spare: Vec::new(),
        })
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Whether bytes came behind gzip data that are no gzip.
    pub(super) fn has_trailing_garbage(&self) -> bool {
        matches!(self.source, Source::End { has_trailing_garbage: true })
    }

    /// Gives of the text that is unpacked.
    fn give(&mut self, buffer: &mut [u8]) -> usize {
        let bytes = buffer.len().min(self.rest.len());
        buffer[..bytes].copy_from_slice(&self.text[self.rest.start..self.rest.start + bytes]);
        self.rest.start += bytes;
        if self.rest.is_empty() {
            let text = mem::take(&mut self.text);
            (self.rest, self.giving) = (0..0, None);
            match &self.source {
                Source::Ahead { stream, .. } if text.capacity() > 0 => stream.give_back(text),
                _ => self.keep(text),
            }
        }
        bytes
    }

    /// Keeps a buffer to be used again, unless it is large: nobody counts what these take.
    fn keep(&mut self, buffer: Vec<u8>) {
        if (1..=MAX_SPARE_BYTES).contains(&buffer.capacity()) && self.spare.len() < 2 * BLOCKS_AHEAD {
            self.spare.push(buffer);
        }
    }

    fn take_source(&mut self) -> Source {
        mem::replace(&mut self.source, END)
    }

    /// Hands blocks to other threads, or a stream that has proved long.
    fn look_ahead(&mut self) {
        let pool = self.unpackers.pool();
        if self.streamed_bytes >= self.streamed_first_bytes {
            while self.ahead.len() < BLOCKS_AHEAD * pool.threads
                && pool.has_room()
                && let Source::Between(stored) = &mut self.source
            {
                let spare = self.spare.pop().unwrap_or_default();
                let Some(block) = cut_block(self.format, stored, pool.max_block_bytes(), spare) else {
                    return self.get_stuck();
                };
                let buffer = self.spare.pop().unwrap_or_default();
                self.ahead.push_back(pool.submit(block, buffer));
            }
        }
        if matches!(self.source, Source::Stream(_)) && self.stream_bytes >= pool.streamed_first_bytes && pool.has_room()
        {
            let pool = Arc::clone(pool);
            self.source = match self.take_source() {
                Source::Stream(stream) => match StreamAhead::start(stream) {
                    Ok(stream) => Source::Ahead { stream, _room: pool.take_room(StreamAhead::BYTES) },
                    Err(stream) => Source::Stream(stream),
                },
                source => source,
            };
        }
    }

    /// Lets what comes next be unpacked as a stream, and then as much as may have been unpacked in vain: however many
    /// blocks turn out to be none, the work stays within a small multiple.
    fn get_stuck(&mut self) {
        self.streamed_bytes = 0;
        self.streamed_first_bytes = self.unpackers.pool().max_bytes_ahead as u64;
        self.source = match self.take_source() {
            Source::Between(stored) => Source::Stuck(stored),
            source => source,
        };
    }

    /// Takes the first block that is ahead.
    fn next_block(&mut self, first: Ahead) {
        let Unpacked { mut stored, plain, is_sound } = first.slot.take(Some(&mut self.tools));
        if is_sound {
            self.keep(stored);
            (self.rest, self.text, self.giving) = (0..plain.len(), plain, Some(first));
            return;
        }
        // What came of it is not to be used: it is unpacked again with all that follows, as it would have been on one
        // thread.
        for ahead in self.ahead.drain(..) {
            stored.extend(ahead.slot.take(None).stored);
        }
        if let Source::Between(behind) | Source::Stuck(behind) = &mut self.source {
            behind.put_back(stored, None);
        }
        self.get_stuck();
    }

    /// Reads where nothing is ahead. `None`: there is a text to give, or the source has changed.
    fn stream(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // A call of the system that is interrupted is made again, so nothing may be lost of the source before.
        match &mut self.source {
            Source::End { .. } => return Ok(Some(0)),
            Source::Stream(stream) => {
                let bytes = stream.read(buffer)?;
                if bytes > 0 {
                    self.streamed_bytes += bytes as u64;
                    self.stream_bytes += bytes as u64;
                    return Ok(Some(bytes));
                }
            }
            Source::Ahead { stream, .. } => {
                if let Some(text) = stream.next() {
                    self.take_text(text);
                    return Ok(None);
                }
            }
            Source::Between(stored) | Source::Stuck(stored) => _ = stored.fill_buf()?,
        }
        self.stream_bytes = 0;
        self.source = match self.take_source() {
            Source::Between(mut stored) | Source::Stuck(mut stored) => match stored.fill_buf()? {
                [] => END,
                _ => Source::Stream(Stream::of_next(self.format, stored)?),
            },
            Source::Stream(stream) => behind(stream),
            Source::Ahead { stream, .. } => stream.end()?.map_or(END, behind),
            end @ Source::End { .. } => end,
        };
        Ok(None)
    }

    fn take_text(&mut self, (text, length): Text) {
        self.streamed_bytes += length as u64;
        (self.text, self.rest) = (text, 0..length);
    }

    /// Takes text of a stream that is there by now; tells whether there was some.
    fn take_text_at_hand(&mut self) -> bool {
        let Source::Ahead { stream, .. } = &self.source else { return false };
        let text = stream.at_hand();
        text.map(|text| self.take_text(text)).is_some()
    }
}

const END: Source = Source::End { has_trailing_garbage: false };

/// Where a stream has ended.
fn behind(stream: Stream) -> Source {
    let has_trailing_garbage = stream.has_trailing_garbage();
    stream.into_stored().map_or(Source::End { has_trailing_garbage }, Source::Between)
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
                None if filled > 0 => {
                    if !self.take_text_at_hand() {
                        return Ok(filled);
                    }
                }
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
    use std::io::{Cursor, Write};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::super::stored::BUFFER_BYTES;
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

    /// A member with these flags, and all that they announce.
    fn member_with(flags: u8, text: &[u8], level: u32) -> Vec<u8> {
        const HEADER_CHECKSUM: u8 = 2;
        let mut stored = vec![0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 0, 3];
        for (flag, field) in
            [(EXTRA_FIELD, &b"\x07\0ab\x03\0xyz"[..]), (NAME, b"log.nmea\0"), (COMMENT, b"\x1f\x8b\x08 of it\0")]
        {
            stored.extend(if flags & flag != 0 { field } else { b"" });
        }
        let mut crc = Crc::new();
        if flags & HEADER_CHECKSUM != 0 {
            crc.update(&stored);
            stored.extend((crc.sum() as u16).to_le_bytes());
            crc.reset();
        }
        let mut encoder = flate2::write::DeflateEncoder::new(stored, flate2::Compression::new(level));
        encoder.write_all(text).unwrap();
        let mut stored = encoder.finish().unwrap();
        crc.update(text);
        stored.extend(crc.sum().to_le_bytes());
        stored.extend((text.len() as u32).to_le_bytes());
        stored
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
                Ok(0) => return Came { text, end: Ok((content.left_out(), content.digest())) },
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
        assert_same_as(what, stored, |stored| Cursor::new(stored.to_vec()))
    }

    fn assert_same_as<S: Read + Send + 'static>(what: &str, stored: &[u8], open: impl Fn(&[u8]) -> S) -> Came {
        let pools = [
            Unpackers::starting_after(1, 0),
            Unpackers::starting_after(3, 0),
            Unpackers::starting_after(2, 9_000),
            Unpackers::within(2, 1, 20_000),
            Unpackers::starting_after(2, 0).of_streams(),
            Unpackers::new(2),
        ];
        // How much comes before an error depends on how much is asked for at once.
        for at_once in [777, 64 * 1024, 1 << 20] {
            let mut alone = read(open(stored), None, at_once);
            for (number, pool) in pools.iter().enumerate() {
                let came = read(open(stored), Some(pool.clone()), at_once);
                if alone.end.is_err() && at_once < BUFFER_BYTES {
                    let shorter = alone.text.len().min(came.text.len());
                    assert!(alone.text[..shorter] == came.text[..shorter], "{what}");
                    // A decompressor keeps back what it unpacked in the call that fails.
                    assert!(alone.text.len().abs_diff(came.text.len()) <= BUFFER_BYTES, "{what}");
                    let without_length = |came: &Came| {
                        came.end.as_ref().unwrap_err().replace(&format!(" {} bytes", came.text.len()), "")
                    };
                    assert!(came.end.is_err(), "{what}, {number}, {at_once}");
                    assert_eq!(without_length(&alone), without_length(&came), "{what}");
                } else {
                    assert!(alone == came, "{what}, {number}, {at_once}: {:?} {:?}", alone.end, came.end);
                }
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
    fn members_of_any_size_and_header_are_one_text() {
        let text = text(250_000);
        let sizes = [1, 0, 4_000, 7, 0, 0, 180_001, 3, 9_000, 1_500, 30_000, 2];
        let flags = [0, TEXT, EXTRA_FIELD, NAME, COMMENT, EXTRA_FIELD | NAME | COMMENT, 2, 2 | NAME | EXTRA_FIELD];
        for shift in [0, 3, 6] {
            let (mut stored, mut given) = (Vec::new(), 0);
            for (number, size) in sizes.iter().enumerate() {
                let flags = flags[(number + shift) % flags.len()];
                stored.extend(member_with(flags, &text[given..given + size], 6));
                given += size;
            }
            let came = assert_same("members", &stored);
            assert!(came.text == text[..given]);
            assert!(matches!(came.end, Ok((None, Some(_)))));
            let garbage = [&stored[..], &[0; 700]].concat();
            assert!(assert_same("zeros behind", &garbage).end.unwrap().0.is_some());
            assert!(assert_same("half a header behind", &[&stored[..], &[0x1f, 0x8b, 8]].concat()).end.is_err());
        }
    }

    #[test]
    fn members_are_unpacked_side_by_side() {
        let text = text(3 << 20);
        let stored: Vec<u8> = text.chunks(200_000).flat_map(|text| member_with(NAME, text, 1)).collect();
        let unpackers = Unpackers::new(2);
        assert!(read(Cursor::new(stored), Some(unpackers.clone()), 1 << 20).text == text);
        assert!(unpackers.pool().lock().started);
        // Cut where they begin, also where a header lies across two reads.
        let members = [member(&text[..9_000]), member_with(NAME, &text[..70_000], 1), member(b"")];
        for piece in [1, 2, 9, 10, 11, 1_000] {
            let mut stored = Stored::new(Pieces(Cursor::new(members.concat()), piece));
            for member in &members {
                let block = cut_block(Format::Gzip, &mut stored, 1 << 20, Vec::new()).unwrap();
                assert!(block.stored == *member);
                assert!(Tools::default().unpack(block, Vec::new()).is_sound);
            }
            assert!(cut_block(Format::Gzip, &mut stored, 1 << 20, Vec::new()).is_none());
        }
    }

    #[test]
    fn what_looks_like_a_member_inside_of_one_is_none() {
        let text = text(40_000);
        let inner = [member(&text[..5_000]), member(b""), member_with(NAME, &text[..300], 9)].concat();
        let look_alikes = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".repeat(50);
        for hidden in [inner, look_alikes, bgzf(&text, 3_000)] {
            let around = [&text[..2_000], &hidden, &text[..100], &hidden].concat();
            let stored: Vec<u8> =
                [&around[..], b"", &around, &text, &hidden].iter().flat_map(|text| member_with(0, text, 0)).collect();
            let came = assert_same("hidden", &stored);
            assert!(came.text == [&around[..], &around, &text, &hidden].concat());
            let many = [stored.clone(), member(&text), stored.clone(), bgzf(&text, 4_000), stored.clone()].concat();
            assert!(assert_same("hidden and others", &many).end.is_ok());
            for cut in (1..stored.len()).step_by(stored.len() / 12) {
                assert_same("cut hidden", &stored[..cut]);
            }
        }
    }

    #[test]
    fn members_cut_anywhere_are_told_as_on_one_thread() {
        let text = text(9_000);
        let parts = [&text[..100], b"", &text[100..4_000], &text[4_000..4_003], &text[4_003..]];
        let members: Vec<Vec<u8>> = (0..).zip(parts).map(|(flags, text)| member_with(flags * 4, text, 6)).collect();
        let ends: Vec<usize> = members.iter().scan(0, |end, member| Some((*end += member.len(), *end).1)).collect();
        let whole = members.concat();
        let near_ends = ends.iter().flat_map(|end| end.saturating_sub(12)..(end + 20).min(whole.len()));
        for cut in (2..whole.len()).step_by(61).chain(near_ends) {
            assert_eq!(assert_same("cut", &whole[..cut]).end.is_ok(), ends.contains(&cut), "{cut}");
        }
        for place in (2..whole.len()).step_by(97) {
            let mut stored = whole.clone();
            stored[place] ^= 0x55;
            assert_same("changed", &stored);
        }
    }

    fn bzip2(text: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn xz(text: &[u8]) -> Vec<u8> {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn long_streams_are_told_as_on_one_thread() {
        let text = text(500_000);
        for (what, stored) in
            [("gzip", member(&text)), ("zstd", frame(&text, true, false)), ("bzip2", bzip2(&text)), ("xz", xz(&text))]
        {
            assert!(assert_same(what, &stored).text == text, "{what}");
            let twice = [&stored[..], &stored].concat();
            assert!(assert_same(what, &twice).text == [&text[..], &text].concat(), "{what}");
            for cut in [3, stored.len() / 3] {
                assert!(assert_same(what, &stored[..stored.len() - cut]).end.is_err(), "{what}");
            }
            assert_same(what, &[&stored[..], b"rubbish"].concat());
            for place in [stored.len() / 2, stored.len() - 6] {
                let mut damaged = twice.clone();
                damaged[place] ^= 0xff;
                assert_same(what, &damaged);
            }
        }
    }

    #[test]
    fn data_in_small_pieces_is_the_same() {
        let text = text(20_000);
        let members: Vec<u8> = text.chunks(3_001).flat_map(|text| member_with(NAME, text, 6)).collect();
        for (what, stored) in [
            ("members", members),
            ("BGZF", bgzf(&text, 4_000)),
            ("zstd", frame(&text, true, true)),
            ("bzip2", bzip2(&text)),
            ("xz", xz(&text)),
        ] {
            for piece in [1, 1_000] {
                let pieces = |stored: &[u8]| Pieces(Cursor::new(stored.to_vec()), piece);
                assert!(assert_same_as(what, &stored, pieces).text == text, "{what}");
                assert!(assert_same_as(what, &stored[..stored.len() / 2], pieces).end.is_err(), "{what}");
            }
        }
    }

    /// Comes when it is sent.
    struct Sent(mpsc::Receiver<Vec<u8>>);

    impl Read for Sent {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Ok(sent) = self.0.recv() else { return Ok(0) };
            buffer[..sent.len()].copy_from_slice(&sent);
            Ok(sent.len())
        }
    }

    #[test]
    fn what_has_come_of_a_slow_stream_is_given_before_more_is_waited_for() {
        let text = text(3_000);
        for stored in [member(&text), frame(&text, false, false), [member(b"line\n"), member(&text)].concat()] {
            let (send, sent) = mpsc::channel();
            send.send(stored).unwrap();
            let unpackers = Some(Unpackers::starting_after(1, 0).of_streams());
            let mut content = Content::open_with("x".to_owned(), Sent(sent), None, unpackers).unwrap();
            let (mut came, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
            while !came.ends_with(&text) {
                let bytes = content.read(&mut buffer).unwrap();
                came.extend_from_slice(&buffer[..bytes]);
            }
            drop(send);
            assert_eq!(content.read(&mut buffer).unwrap(), 0);
        }
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

    /// Comes in pieces of so many bytes.
    struct Pieces(Cursor<Vec<u8>>, usize);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = buffer.len().min(self.1);
            self.0.read(&mut buffer[..bytes])
        }
    }

    /// Fails where it ends.
    struct Breaking(Pieces);

    impl Read for Breaking {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(io::Error::from_raw_os_error(5)),
                bytes => Ok(bytes),
            }
        }
    }

    #[test]
    fn a_failure_to_read_comes_behind_the_text_before_it() {
        let text = text(100_000);
        let members = text.chunks(30_000).flat_map(member).collect();
        for whole in [bgzf(&text, 5_000), members, frame(&text, true, true), bzip2(&text)] {
            for cut in [whole.len(), whole.len() - 28, whole.len() - 5_000] {
                let breaking = |stored: &[u8]| Breaking(Pieces(Cursor::new(stored.to_vec()), 1_009));
                let came = assert_same_as("breaking", &whole[..cut], breaking);
                assert!(came.end.as_ref().is_err_and(|error| error.contains("cannot read")), "{:?}", came.end);
            }
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
            for stored in [stored.clone(), member(&text)] {
                let unpackers = Some(unpackers.clone());
                let opened = Content::open_with("x".to_owned(), Cursor::new(stored), None, unpackers);
                let (mut content, mut buffer) = (opened.unwrap(), vec![0; 700]);
                (0..read).for_each(|_| assert!(content.read(&mut buffer).unwrap() > 0));
            }
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
