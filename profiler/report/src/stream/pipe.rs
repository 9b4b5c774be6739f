//! A bounded queue of text, which a thread of its own writes: the reader may be slow, or go away, or never come.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uunwind_clock::Bell;

/// Bytes that wait for the reader, at most.
const WAITING: usize = 4 << 20;
/// At the end, the reader is waited for as long as it takes something within this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// What became of the lines.
#[derive(Debug, Default)]
pub struct Delivery {
    /// Why nothing more was written.
    pub error: Option<io::Error>,
    /// The reader did not take the last lines.
    pub is_stuck: bool,
    /// Samples that were handed to the writing thread, and those that found no room.
    pub samples: u64,
    /// Samples that found no room.
    pub dropped: u64,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// The thread is writing what it has taken out.
    writing: bool,
    /// Bytes written.
    written: u64,
    closed: bool,
    delivery: Delivery,
}

/// The end into which lines are put.
#[derive(Clone)]
pub struct Pipe(Arc<(Mutex<State>, Bell)>);

impl Pipe {
    /// Begins to write to this file. A FIFO is opened by the thread, since that waits for its reader.
    pub fn to(path: &Path) -> io::Result<Pipe> {
        let is_fifo = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
        let open = move |path: &Path| OpenOptions::new().write(true).create(!is_fifo).truncate(!is_fifo).open(path);
        let opened = if is_fifo { None } else { Some(open(path)?) };
        let (pipe, path) = (Pipe(Arc::default()), path.to_owned());
        let other = pipe.clone();
        let work = move || match opened.map_or_else(|| open(&path), Ok) {
            Ok(file) => other.write(file),
            Err(error) => other.fail(error),
        };
        std::thread::Builder::new().name("stream".to_owned()).spawn(work)?;
        Ok(pipe)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0 .0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, but not longer than [`PATIENCE`]; whether it has.
    fn wait<'p>(&'p self, state: MutexGuard<'p, State>) -> (MutexGuard<'p, State>, bool) {
        // Under the lock: what is changed after it is rung for after it.
        let mark = self.0 .1.mark();
        drop(state);
        let is_rung = self.0 .1.wait(mark, PATIENCE);
        (self.state(), is_rung)
    }

    fn fail(&self, error: io::Error) {
        let mut state = self.state();
        state.writing = false;
        state.waiting = Vec::new();
        state.delivery.error = Some(error);
        self.0 .1.ring();
    }

    fn write(&self, mut file: File) {
        loop {
            let mut state = self.state();
            state.writing = false;
            self.0 .1.ring();
            while state.waiting.is_empty() {
                if state.closed {
                    return;
                }
                state = self.wait(state).0;
            }
            state.writing = true;
            let text = std::mem::take(&mut state.waiting);
            drop(state);
            // In parts, so that one can see that a slow reader goes on.
            for part in text.chunks(1 << 16) {
                if let Err(error) = file.write_all(part) {
                    return self.fail(error);
                }
                self.state().written += part.len() as u64;
                self.0 .1.ring();
            }
        }
    }

    /// Adds text. False, and nothing is added: too much is waiting already, or nothing can be written any more.
    pub(super) fn push(&self, text: String) -> bool {
        let mut state = self.state();
        if state.delivery.error.is_some() || state.waiting.len() + text.len() > WAITING {
            return false;
        }
        state.waiting.extend_from_slice(text.as_bytes());
        self.0 .1.ring();
        true
    }

    /// Adds the last lines, for which there is always room. Waits until everything is written, or the reader takes
    /// nothing any more.
    pub(super) fn close(&self, last: &str, samples: u64, dropped: u64) {
        let mut state = self.state();
        if state.delivery.error.is_none() {
            state.waiting.extend_from_slice(last.as_bytes());
        }
        (state.delivery.samples, state.delivery.dropped) = (samples, dropped);
        state.closed = true;
        self.0 .1.ring();
        while state.delivery.error.is_none() && (state.writing || !state.waiting.is_empty()) {
            let before = state.written;
            let (now, is_rung) = self.wait(state);
            state = now;
            if !is_rung && state.written == before {
                state.delivery.is_stuck = true;
                return;
            }
        }
    }

    /// What became of the lines so far.
    pub fn delivery(&self) -> Delivery {
        let mut state = self.state();
        Delivery { error: state.delivery.error.take(), ..Delivery { error: None, ..state.delivery } }
    }
}
