//! Threads that read and decode ahead of the one that counts, and finish windows behind it.
//!
//! An input is read in order, by one thread at a time; whoever has a chunk of it hands the reader on before decoding the
//! chunk. So chunks of one large input are decoded at the same time as well as those of many. Each has its place in a
//! queue from the moment it is read, and the thread that counts takes them from there in that order: which thread did
//! what leaves no trace. Windows that are due go the same way, to come back as rows. Where nothing is ready for it, the
//! thread that counts does a worker's work instead of waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::batch::{Batch, Judgement};
use super::{Finished, Finisher, Plan};
use crate::source::blocks::Unpackers;
use crate::source::{Input, ReadOptions, ReadOutcome, Reader, SourceError};
use crate::spill::SpillError;
use crate::spill::windows::Due;

/// How many chunks may wait to be counted, per thread and in all.
const CHUNKS_AHEAD: usize = 4;

/// What an input gives next.
pub(super) enum Given {
    /// Lines, decoded as far as that can be done anywhere.
    Lines(Batch),
    /// Its reader, since it gives records, which are read in turn.
    Records(Box<Reader>),
    /// The end, with the bytes read as stored.
    End(ReadOutcome, u64),
    /// It broke off.
    Failed(SourceError),
}

/// Threads that read and decode ahead.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    judgement: Judgement,
    read: ReadOptions,
    finisher: Arc<Finisher>,
    queues: Mutex<Queues>,
    /// Told when there may be something to do.
    work: Condvar,
    /// Told when something is done.
    done: Condvar,
}

struct Queues {
    /// By place of the input.
    of_inputs: BTreeMap<usize, Queue>,
    chunks_ahead: usize,
    windows: VecDeque<Window>,
    /// Number of the first of them.
    first_window: u64,
    /// Batches to be used again.
    spare: Vec<Batch>,
    /// How many workers have nothing to do, and whether the thread that counts waits: only they need to be told.
    idle: usize,
    counting_waits: bool,
    /// Nobody wants anything any more.
    stopped: bool,
    /// A worker panicked, so that something will never be done.
    broken: bool,
}

/// A window on its way to its rows.
enum Window {
    Due(Due),
    WorkedOn,
    Finished(Result<Finished, SpillError>),
}

/// Chunks of one input.
struct Queue {
    /// `None` while a thread reads, and at the end.
    source: Option<Source>,
    /// Whether the input may keep its reader waiting.
    may_wait: bool,
    /// Whether it is being counted. One that is not has its first chunk read, and no more.
    counted: bool,
    /// Number of the first in `chunks`.
    first: u64,
    /// Chunks that are read, in their order; `None` while one is worked on.
    chunks: VecDeque<Option<Given>>,
}

enum Source {
    Closed(Input),
    Open(Box<Reader>),
}

enum Job {
    Window(u64, Due),
    Chunk(ChunkJob),
}

/// A chunk to be read and decoded.
struct ChunkJob {
    place: usize,
    number: u64,
    source: Source,
    batch: Batch,
}

impl Queues {
    /// How many chunks of an input that is counted may be ahead.
    fn share(&self) -> usize {
        let counted = self.of_inputs.values().filter(|queue| queue.counted).count();
        (self.chunks_ahead / counted.max(1)).max(1)
    }

    /// The job that is wanted first: a window, which the thread that counts waits for; then a chunk of the input with the
    /// fewest chunks ahead, if it is counted.
    fn any_job(&mut self) -> Option<Job> {
        self.window_job().or_else(|| self.any_chunk_job().map(Job::Chunk))
    }

    fn window_job(&mut self) -> Option<Job> {
        let place = self.windows.iter().position(|window| matches!(window, Window::Due(_)))?;
        match std::mem::replace(&mut self.windows[place], Window::WorkedOn) {
            Window::Due(window) => Some(Job::Window(self.first_window + place as u64, window)),
            Window::WorkedOn | Window::Finished(_) => None,
        }
    }

    fn any_chunk_job(&mut self) -> Option<ChunkJob> {
        let share = self.share();
        let open = self.of_inputs.iter().filter(|(_, queue)| queue.has_job(share));
        let (place, _) = open.min_by_key(|(_, queue)| (!queue.counted, queue.chunks.len()))?;
        let place = *place;
        self.chunk_job(place, share)
    }

    fn chunk_job(&mut self, place: usize, share: usize) -> Option<ChunkJob> {
        let queue = self.of_inputs.get_mut(&place).filter(|queue| queue.has_job(share))?;
        let source = queue.source.take()?;
        let number = queue.first + queue.chunks.len() as u64;
        queue.chunks.push_back(None);
        Some(ChunkJob { place, number, source, batch: self.spare.pop().unwrap_or_default() })
    }
}

impl Queue {
    fn has_job(&self, share: usize) -> bool {
        self.source.is_some() && self.chunks.len() < if self.counted { share } else { 1 }
    }
}

impl Workers {
    /// `threads`, at least 2: this one and others.
    pub(super) fn start(plan: &Plan, finisher: Arc<Finisher>) -> Self {
        let queues = Queues {
            of_inputs: BTreeMap::new(),
            chunks_ahead: CHUNKS_AHEAD * plan.threads,
            windows: VecDeque::new(),
            first_window: 0,
            spare: Vec::new(),
            idle: 0,
            counting_waits: false,
            stopped: false,
            broken: false,
        };
        let shared = Arc::new(Shared {
            judgement: Judgement::of(plan),
            read: ReadOptions { unpackers: Some(Unpackers::new(plan.threads)), ..plan.read.clone() },
            finisher,
            queues: Mutex::new(queues),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        for _ in 1..plan.threads {
            let shared = Arc::clone(&shared);
            // Not joined: it may wait for an input that says nothing when there is no more to do.
            thread::spawn(move || shared.work_on());
        }
        Self { shared }
    }

    /// Lets an input be opened and the first of it be read, unless it is already.
    pub(super) fn prepare(&self, place: usize, input: &Input) {
        let mut queues = self.shared.lock();
        queues.of_inputs.entry(place).or_insert_with(|| Queue {
            source: Some(Source::Closed(input.clone())),
            may_wait: !input.can_be_read_twice(),
            counted: false,
            first: 0,
            chunks: VecDeque::new(),
        });
        self.shared.tell_workers(&queues);
    }

    /// What an input that was prepared gives next; after records, the end and a failure there is nothing more.
    pub(super) fn next(&self, place: usize) -> Given {
        let mut queues = self.shared.lock();
        loop {
            assert!(!queues.broken, "a worker panicked");
            let share = queues.share();
            let Some(queue) = queues.of_inputs.get_mut(&place) else { return Given::End(ReadOutcome::default(), 0) };
            queue.counted = true;
            if let Some(given) = queue.chunks.front_mut().and_then(Option::take) {
                queue.chunks.pop_front();
                queue.first += 1;
                if !matches!(given, Given::Lines(_)) {
                    queues.of_inputs.remove(&place);
                }
                self.shared.tell_workers(&queues);
                return given;
            }
            // What this thread counts next may be done while an input keeps it waiting.
            let may_help = !queue.may_wait || queue.chunks.is_empty();
            let job = if may_help { queues.chunk_job(place, share) } else { None };
            queues = self.shared.help(queues, job.map(Job::Chunk));
        }
    }

    /// Takes a window to finish. Their rows come back in the order in which they were given.
    pub(super) fn finish(&self, window: Due) {
        let mut queues = self.shared.lock();
        queues.windows.push_back(Window::Due(window));
        self.shared.tell_workers(&queues);
    }

    /// The rows of the first window that was given and has not come back.
    ///
    /// # Errors
    ///
    /// Where what they are counted in does not fit on disk.
    pub(super) fn next_rows(&self) -> Result<Option<Finished>, SpillError> {
        let mut queues = self.shared.lock();
        loop {
            assert!(!queues.broken, "a worker panicked");
            match queues.windows.pop_front() {
                Some(Window::Finished(finished)) => {
                    queues.first_window += 1;
                    return finished.map(Some);
                }
                Some(other) => queues.windows.push_front(other),
                None => return Ok(None),
            }
            let job = queues.window_job();
            queues = self.shared.help(queues, job);
        }
    }

    /// Takes back a batch that is counted.
    pub(super) fn give_back(&self, batch: Batch) {
        self.shared.lock().spare.push(batch);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until nobody wants anything any more.
    fn work_on(&self) {
        let _guard = TellsOfPanic(self);
        let mut queues = self.lock();
        while !queues.stopped {
            queues = match queues.any_job() {
                Some(job) => {
                    drop(queues);
                    self.work_at(job);
                    self.lock()
                }
                None => {
                    queues.idle += 1;
                    let mut queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
                    queues.idle -= 1;
                    queues
                }
            };
        }
    }

    /// Wakes a worker if there is one to wake: a call that wakes nobody costs as much.
    fn tell_workers(&self, queues: &Queues) {
        if queues.idle > 0 {
            self.work.notify_one();
        }
    }

    /// Lets the thread that counts look again.
    fn tell_counting(&self, queues: &Queues) {
        if queues.counting_waits {
            self.done.notify_one();
        }
    }

    /// Does a job for the thread that counts; waits where there is none.
    fn help<'q>(&'q self, queues: MutexGuard<'q, Queues>, job: Option<Job>) -> MutexGuard<'q, Queues> {
        match job {
            Some(job) => {
                drop(queues);
                self.work_at(job);
                self.lock()
            }
            None => self.wait(queues),
        }
    }

    fn wait<'q>(&'q self, mut queues: MutexGuard<'q, Queues>) -> MutexGuard<'q, Queues> {
        queues.counting_waits = true;
        let mut queues = self.done.wait(queues).unwrap_or_else(PoisonError::into_inner);
        queues.counting_waits = false;
        queues
    }

    fn work_at(&self, job: Job) {
        match job {
            Job::Window(number, window) => {
                let finished = self.finisher.finish(&window);
                let mut queues = self.lock();
                // Windows are taken from the front once they are finished, and this one was not.
                let place = (number - queues.first_window) as usize;
                queues.windows[place] = Window::Finished(finished);
                self.tell_counting(&queues);
            }
            Job::Chunk(job) => self.read_and_decode(job),
        }
    }

    fn read_and_decode(&self, job: ChunkJob) {
        let ChunkJob { place, number, source, mut batch } = job;
        let last = match self.read(source, &mut batch) {
            Err(error) => Some(Given::Failed(error)),
            Ok(reader) if reader.gives_records() => Some(Given::Records(reader)),
            Ok(reader) if batch.length == 0 => Some(Given::End(reader.outcome(), reader.stored_bytes())),
            Ok(reader) => {
                let mut queues = self.lock();
                if let Some(queue) = queues.of_inputs.get_mut(&place) {
                    queue.source = Some(Source::Open(reader));
                }
                self.tell_workers(&queues);
                drop(queues);
                batch.decode(&self.judgement);
                None
            }
        };
        let mut queues = self.lock();
        let given = match last {
            None => Given::Lines(batch),
            Some(last) => {
                queues.spare.push(batch);
                last
            }
        };
        if let Some(queue) = queues.of_inputs.get_mut(&place) {
            // Chunks are taken from the front once they are done, and this one was not.
            queue.chunks[(number - queue.first) as usize] = Some(given);
        }
        self.tell_counting(&queues);
    }

    fn read(&self, source: Source, batch: &mut Batch) -> Result<Box<Reader>, SourceError> {
        let mut reader = match source {
            Source::Open(reader) => reader,
            Source::Closed(input) => Box::new(input.open(self.read.clone())?),
        };
        if !reader.gives_records() {
            batch.length = reader.take_lines(&mut batch.room)?;
            batch.stored_bytes = reader.stored_bytes();
        }
        Ok(reader)
    }
}

/// Lets the thread that counts fail too, rather than wait for ever.
struct TellsOfPanic<'s>(&'s Shared);

impl Drop for TellsOfPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().broken = true;
            self.0.done.notify_all();
        }
    }
}
