//! A stream that a thread of its own unpacks, ahead of whoever wants the text.

use std::io::{self, Read};
use std::panic;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{self, JoinHandle};

use super::stored::{BUFFER_BYTES, Stream};

/// How many texts may wait to be taken.
const TEXTS_AHEAD: usize = 6;

/// Some text, and how long it is; what lies behind it means nothing.
pub(super) type Text = (Vec<u8>, usize);

/// A stream that is being unpacked. The thread ends with the stream, or once nobody wants its text any more.
pub(super) struct StreamAhead {
    texts: Receiver<Text>,
    /// Buffers to be used again.
    spare: Sender<Vec<u8>>,
    /// Gives the stream back, and what it failed with. Not joined before its end: it may wait for an input that says
    /// nothing.
    thread: JoinHandle<Option<(Stream, io::Result<()>)>>,
}

impl StreamAhead {
    /// How much it takes: the texts that wait, the one that is filled and the one that is given.
    pub(super) const BYTES: usize = BUFFER_BYTES * (TEXTS_AHEAD + 2);

    /// Goes on with a stream; gives it back where the system has no thread to spare.
    pub(super) fn start(stream: Stream) -> Result<Self, Stream> {
        // Handed over once the thread is there, since a thread that cannot be started takes along what it was given.
        let (hand_over, handed_over) = mpsc::sync_channel::<Stream>(1);
        let (give, texts) = mpsc::sync_channel(TEXTS_AHEAD);
        let (spare, used) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            let mut stream = handed_over.recv().ok()?;
            let end = unpack(&mut stream, &give, &used);
            Some((stream, end))
        });
        match thread {
            Ok(thread) => hand_over.send(stream).map_err(|error| error.0).map(|()| Self { texts, spare, thread }),
            Err(_) => Err(stream),
        }
    }

    /// The next text; `None` at the end.
    pub(super) fn next(&self) -> Option<Text> {
        self.texts.recv().ok()
    }

    /// The next text, if it is there by now.
    pub(super) fn at_hand(&self) -> Option<Text> {
        self.texts.try_recv().ok()
    }

    /// Takes back the buffer of a text.
    pub(super) fn give_back(&self, buffer: Vec<u8>) {
        // A thread that has ended needs none.
        let _ = self.spare.send(buffer);
    }

    /// The stream at its end, where there is no text any more.
    ///
    /// # Errors
    ///
    /// Where it has ended because it could not be unpacked.
    pub(super) fn end(self) -> io::Result<Option<Stream>> {
        match self.thread.join() {
            Ok(Some((stream, end))) => end.map(|()| Some(stream)),
            Ok(None) => Ok(None),
            Err(panicked) => panic::resume_unwind(panicked),
        }
    }
}

fn unpack(stream: &mut Stream, give: &SyncSender<Text>, used: &Receiver<Vec<u8>>) -> io::Result<()> {
    loop {
        let mut text = used.try_recv().unwrap_or_default();
        text.resize(BUFFER_BYTES, 0);
        // A call of the system that is interrupted is made again.
        let length = loop {
            match stream.read(&mut text) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        if length == 0 || give.send((text, length)).is_err() {
            return Ok(());
        }
    }
}
