//! Threads that wait: their timers stand still, so another part of uu watches them, and passes on what it has seen.

use std::sync::Arc;
use uunwind_recording::{Name, Object, Wait};

/// A thread that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its index in the recording.
    pub thread: u32,
    /// Its process's index in the recording.
    pub process: u32,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// When it was first sampled, at its begin mostly (CLOCK_MONOTONIC, ns).
    pub began: u64,
    /// CPU time that it had used by then, in ns; 0: not known.
    pub cpu: u64,
}

/// Something that was seen.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A name that frames of the samples after it refer to.
    Name(Name),
    /// An object that the process has mapped: threads that only wait report none themselves.
    Object(Object),
    /// A thread's name, by its index in the recording.
    ThreadName(u32, String),
    /// A thread waited.
    Sample {
        /// Its index in the recording.
        thread: u32,
        /// When (CLOCK_MONOTONIC, ns).
        time: u64,
        /// Number of periods for which it has waited since its last sample.
        weight: u32,
        /// Its frame words, leaf first.
        words: Arc<[u64]>,
        /// Number of the walk's stop reason.
        stop: u16,
        /// `SAMPLE_*`.
        flags: u8,
    },
    /// Single waits that have ended.
    Waits(Vec<Wait>),
    /// A line for people.
    Note(String),
}

/// Watches threads that wait, without ever holding up the recorder.
pub trait Watcher: Send {
    /// What was seen since the last call. `threads`: those that are recorded from now on, if they are others.
    fn pass(&mut self, threads: Option<Vec<Watched>>) -> Vec<Seen>;
    /// The recording is over: what was seen since the last call, and until now.
    fn end(&mut self) -> Vec<Seen>;
}
