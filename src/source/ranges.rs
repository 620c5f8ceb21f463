//! The bytes of an object in S3: fetched in parts, side by side, and given in order, each byte once.
//!
//! A part is a range of the object that a task fetches whole into memory, from the byte where a body broke off as often as
//! one breaks. So a reader that pauses keeps no connection waiting, and a short body is never taken for the end: that is
//! where the size says. Every request names the ETag that the run began with, so no two versions of an object mix.
//!
//! Memory is bounded. Each open object may have one small part; whatever goes beyond that comes out of one budget that all
//! objects of a run share, and an object that gets nothing of it goes on with small parts.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_s3::types::ChecksumMode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::SourceError;
use super::s3::{ContentRange, Object, status};
use crate::aws::connection;
use crate::aws::trouble::{Trouble, backoff, deepest};
use crate::aws::waits::Spell;

/// Size of an object's first part: a look ahead needs little, and most logs are not much larger.
const FIRST_PART_BYTES: u64 = 512 << 10;

/// Size up to which parts grow.
const LARGEST_PART_BYTES: u64 = 4 << 20;

/// Parts of one object that are fetched or wait to be read, at most.
const PARTS_AHEAD: usize = 6;

/// Bytes that the parts behind the first of all objects of a run may take.
const SHARED_BYTES: u64 = 64 << 20;

/// What the budget is counted in.
const BUDGET_UNIT: u64 = 1 << 10;

/// How many objects behind the one that is opened have their first part fetched.
const OBJECTS_AHEAD: usize = 16;

/// First parts that wait for their object to be opened, at most.
const MOST_WAITING: usize = 2 * OBJECTS_AHEAD;

/// How long a body may give nothing before it is taken for broken.
const STALL: Duration = Duration::from_secs(10);

/// How often a body that does not fit its checksum is fetched anew.
const MOST_MISFITS: u32 = 3;

/// A range of an object, on its way or there.
#[derive(Debug)]
struct Part {
    task: JoinHandle<Result<Vec<u8>, SourceError>>,
    share: Option<OwnedSemaphorePermit>,
}

impl Part {
    fn start(object: &Arc<Object>, range: Range<u64>, share: Option<OwnedSemaphorePermit>) -> io::Result<Self> {
        Ok(Self { task: connection::runtime()?.spawn(fetch(Arc::clone(object), range)), share })
    }

    /// Its bytes, and the share of the budget that they take as long as they are kept.
    fn wait(mut self) -> io::Result<(Vec<u8>, Option<OwnedSemaphorePermit>)> {
        let fetched = connection::runtime()?.block_on(&mut self.task);
        let bytes = fetched.map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok((bytes, self.share.take()))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The objects of a run in their order, and first parts of those that are likely to be opened next: many small objects would
/// else be as slow as the way to the service is long.
#[derive(Debug)]
pub(super) struct Shelf {
    objects: Vec<Arc<Object>>,
    state: Mutex<Ahead>,
    budget: Arc<Semaphore>,
}

/// Objects by place, those that came first in front.
#[derive(Debug, Default)]
struct Ahead {
    /// First parts that were started.
    waiting: VecDeque<(usize, Part)>,
    /// Those that were opened of late: several threads open neighbours in any order.
    opened: VecDeque<usize>,
}

impl Shelf {
    pub(super) fn new(objects: Vec<Arc<Object>>) -> Self {
        let units = (SHARED_BYTES / BUDGET_UNIT) as usize;
        Self { objects, state: Mutex::default(), budget: Arc::new(Semaphore::new(units)) }
    }

    pub(super) fn objects(&self) -> &[Arc<Object>] {
        &self.objects
    }

    /// The first part of an object that is opened; those of the next ones are started.
    fn take(&self, place: usize) -> io::Result<Option<Part>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ahead { waiting, opened } = &mut *state;
        let own = waiting.iter().position(|(of, _)| *of == place).and_then(|at| waiting.remove(at));
        let own = match own {
            Some((_, part)) => Some(part),
            None => self.first_part(place)?,
        };
        for next in (place + 1..self.objects.len()).take(OBJECTS_AHEAD) {
            if opened.contains(&next) || waiting.iter().any(|(of, _)| *of == next) {
                continue;
            }
            if let Some(part) = self.first_part(next)? {
                waiting.push_back((next, part));
            }
        }
        while waiting.len() > MOST_WAITING {
            waiting.pop_front();
        }
        opened.push_back(place);
        if opened.len() > OBJECTS_AHEAD {
            opened.pop_front();
        }
        Ok(own)
    }

    /// None of an object that holds nothing.
    fn first_part(&self, place: usize) -> io::Result<Option<Part>> {
        let object = &self.objects[place];
        let end = object.size.min(FIRST_PART_BYTES);
        (end > 0).then(|| Part::start(object, 0..end, None)).transpose()
    }

    /// So many bytes of the budget, if they are free.
    fn share(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(BUDGET_UNIT)).ok()?;
        Arc::clone(&self.budget).try_acquire_many_owned(units).ok()
    }
}

/// Reads an object from its beginning to its end.
pub(super) struct ObjectReader {
    shelf: Arc<Shelf>,
    place: usize,
    state: State,
}

enum State {
    Closed,
    Open(Open),
}

struct Open {
    /// Parts that follow each other without a gap.
    parts: VecDeque<Part>,
    /// First byte that none of them covers.
    next: u64,
    /// Size of the next part.
    part_bytes: u64,
    /// The part that is read, how far, and its share of the budget.
    current: Vec<u8>,
    given: usize,
    _share: Option<OwnedSemaphorePermit>,
}

impl ObjectReader {
    pub(super) fn new(shelf: Arc<Shelf>, place: usize) -> Self {
        Self { shelf, place, state: State::Closed }
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { shelf, place, state } = self;
        let object = &shelf.objects[*place];
        if let State::Closed = state {
            let parts: VecDeque<Part> = shelf.take(*place)?.into_iter().collect();
            *state = State::Open(Open {
                parts,
                next: object.size.min(FIRST_PART_BYTES),
                part_bytes: FIRST_PART_BYTES,
                current: Vec::new(),
                given: 0,
                _share: None,
            });
        }
        let State::Open(open) = state else { return Ok(0) };
        open.read(object, shelf, buffer)
    }
}

impl Open {
    fn read(&mut self, object: &Arc<Object>, shelf: &Shelf, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.current.len() {
            // Freed before the next one is waited for.
            (self.current, self.given, self._share) = (Vec::new(), 0, None);
            if self.parts.is_empty() && self.next < object.size {
                self.start(object, FIRST_PART_BYTES, None)?;
            }
            let Some(part) = self.parts.pop_front() else { return Ok(0) };
            (self.current, self._share) = part.wait()?;
        }
        let bytes = buffer.len().min(self.current.len() - self.given);
        buffer[..bytes].copy_from_slice(&self.current[self.given..self.given + bytes]);
        self.given += bytes;
        // Not before half of the first part is read: a look ahead mostly ends before.
        if self.given > self.current.len() / 2 {
            self.start_ahead(object, shelf)?;
        }
        Ok(bytes)
    }

    fn start_ahead(&mut self, object: &Arc<Object>, shelf: &Shelf) -> io::Result<()> {
        while self.parts.len() < PARTS_AHEAD && self.next < object.size {
            let Some(share) = shelf.share(self.part_bytes) else { break };
            self.start(object, self.part_bytes, Some(share))?;
            self.part_bytes = (self.part_bytes * 2).min(LARGEST_PART_BYTES);
        }
        Ok(())
    }

    fn start(&mut self, object: &Arc<Object>, bytes: u64, share: Option<OwnedSemaphorePermit>) -> io::Result<()> {
        let end = object.size.min(self.next + bytes);
        self.parts.push_back(Part::start(object, self.next..end, share)?);
        self.next = end;
        Ok(())
    }
}

/// Why a body ended before its time.
enum Cut {
    /// Nothing helps.
    Final(SourceError),
    /// The service or the network, for now.
    Passing(Trouble, SourceError),
    /// All bytes came, and the end said that they are not the right ones.
    Misfit(SourceError),
    /// A clean end too early.
    Short,
}

/// All bytes of a range, which is never empty.
async fn fetch(object: Arc<Object>, range: Range<u64>) -> Result<Vec<u8>, SourceError> {
    // Parts are some MiB at most.
    let wanted = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(wanted);
    let (mut attempt, mut misfits, mut last_progress) = (0, 0, Instant::now());
    let spell = Spell::default();
    loop {
        let before = bytes.len();
        let cut = match fetch_on(&object, &range, &mut bytes).await {
            Ok(()) if bytes.len() == wanted => return Ok(bytes),
            Ok(()) => Cut::Short,
            Err(cut) => cut,
        };
        let (trouble, error) = match cut {
            Cut::Final(error) => return Err(error),
            Cut::Passing(trouble, error) => (trouble, error),
            Cut::Short => (Trouble::Transient, object.failure("the service ends its answers before they are whole")),
            Cut::Misfit(error) => {
                misfits += 1;
                if misfits == MOST_MISFITS {
                    return Err(error);
                }
                bytes.truncate(before);
                continue;
            }
        };
        if bytes.len() > before {
            (attempt, last_progress) = (0, Instant::now());
            spell.over();
        }
        let (waited, patience) = (last_progress.elapsed(), trouble.patience(object.store.has_succeeded()));
        if waited > patience {
            return Err(error);
        }
        object.store.waits.note(&spell, waited, patience, || error.to_string());
        sleep(backoff(attempt)).await;
        attempt += 1;
    }
}

/// Appends what is missing of a range, as far as one answer gives it.
async fn fetch_on(object: &Object, range: &Range<u64>, bytes: &mut Vec<u8>) -> Result<(), Cut> {
    let from = range.start + bytes.len() as u64;
    let missing = (range.end - from) as usize;
    let end = bytes.len() + missing;
    let is_whole = from == 0 && range.end == object.size;
    let request = object.get().if_match(&object.etag);
    let request = match is_whole {
        true => request.checksum_mode(ChecksumMode::Enabled),
        false => request.range(format!("bytes={from}-{}", range.end - 1)),
    };
    let answer = request.send().await.map_err(|error| match status(&error) {
        Some(412 | 416) => Cut::Final(object.changed()),
        _ => match Trouble::of(&error) {
            Trouble::Final => Cut::Final(object.explain(&error)),
            trouble => Cut::Passing(trouble, object.explain(&error)),
        },
    })?;
    object.store.note_success();
    let is_other = answer.e_tag().is_some_and(|etag| etag != object.etag);
    // A service that does not know ranges begins at the beginning.
    let (first, total) = match answer.content_range().map(ContentRange::parse) {
        Some(Some(range)) => (range.first, range.total),
        Some(None) => return Err(Cut::Final(object.failure("the service does not say which bytes it gives"))),
        None => {
            (0, answer.content_length().and_then(|bytes| u64::try_from(bytes).ok()).filter(|all| *all > object.size))
        }
    };
    if is_other || total.is_some_and(|total| total != object.size) {
        return Err(Cut::Final(object.changed()));
    }
    let Some(mut skip) = from.checked_sub(first) else {
        return Err(Cut::Final(object.failure("the service gives other bytes than it was asked for")));
    };
    let mut body = answer.body;
    loop {
        let chunk = match timeout(STALL, body.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => return Ok(()),
            Ok(Some(Err(error))) => {
                let error = object.failure(format_args!("its bytes do not come through ({})", deepest(&error)));
                return Err(if is_whole && bytes.len() == end {
                    Cut::Misfit(error)
                } else {
                    Cut::Passing(Trouble::Transient, error)
                });
            }
            Err(_) => {
                let error = object.failure(format_args!("no byte of it came for {} seconds", STALL.as_secs()));
                return Err(Cut::Passing(Trouble::Transient, error));
            }
        };
        let passed_over = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.len());
        skip -= passed_over as u64;
        let chunk = &chunk[passed_over..];
        let taken = chunk.len().min(end - bytes.len());
        bytes.extend_from_slice(&chunk[..taken]);
        if taken < chunk.len() {
            // More than was asked for: the rest is another part's.
            return if is_whole { Err(Cut::Final(object.changed())) } else { Ok(()) };
        }
    }
}
