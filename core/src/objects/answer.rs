//! What an object's file says that a walk did not find out itself: who claims it, with facts, and its rule table.
//!
//! Two sources may have an answer: the recorder, and the process itself (`uu_setup`). Both may give it at the same
//! time, in several threads, and a thread may be stopped anywhere in between. So each source has a place of its own,
//! into which its threads write the same values, since an answer for a file never changes; and one compare-and-swap
//! settles whose place counts.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Who gives an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The recorder.
    Recorder = 0,
    /// The process itself.
    Process = 1,
}

/// Number of sources.
const SOURCES: usize = 2;

#[derive(Debug)]
struct Place {
    bytes: AtomicPtr<u8>,
    len: AtomicUsize,
    plugin: AtomicU32,
    /// Count of what the source has published when it was last asked; 0: never.
    asked: AtomicU32,
    /// The source knows the file, and says that there is nothing.
    nothing: AtomicU32,
}

/// An answer: never freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The facts, or the table; null: none.
    pub bytes: *const u8,
    /// Their length in bytes.
    pub len: usize,
    /// Index of the plugin that claims the object; 0: none.
    pub plugin: u32,
}

impl Answer {
    /// Before anything was found.
    pub const NONE: Answer = Answer { bytes: core::ptr::null(), len: 0, plugin: 0 };
}

/// The answer of the first source that had one.
#[derive(Debug)]
pub struct Settled {
    places: [Place; SOURCES],
    /// 0: none has answered; else the index of the place that counts, plus 1.
    counts: AtomicU32,
}

impl Settled {
    /// Without an answer.
    #[allow(clippy::new_without_default, reason = "made once for each object")]
    pub const fn new() -> Settled {
        Settled {
            places: [const {
                Place {
                    bytes: AtomicPtr::new(core::ptr::null_mut()),
                    len: AtomicUsize::new(0),
                    plugin: AtomicU32::new(0),
                    asked: AtomicU32::new(0),
                    nothing: AtomicU32::new(0),
                }
            }; SOURCES],
            counts: AtomicU32::new(0),
        }
    }

    /// The answer, if there is one. Async-signal-safe.
    #[inline(always)]
    pub fn get(&self) -> Option<Answer> {
        let place = self.places.get((self.counts.load(Ordering::Acquire) as usize).wrapping_sub(1))?;
        Some(Answer {
            bytes: place.bytes.load(Ordering::Relaxed).cast_const(),
            len: place.len.load(Ordering::Relaxed),
            plugin: place.plugin.load(Ordering::Relaxed),
        })
    }

    /// Whether there is an answer, or this source has said that it has none. Async-signal-safe.
    #[inline(always)]
    pub fn is_settled_for(&self, source: Source) -> bool {
        self.counts.load(Ordering::Acquire) != 0 || self.place(source).nothing.load(Ordering::Acquire) != 0
    }

    /// Whether this source has published something since it was last asked: its `count`, not 0, is another one.
    /// Async-signal-safe.
    pub fn may_ask(&self, source: Source, count: u32) -> bool {
        self.place(source).asked.swap(count, Ordering::Relaxed) != count
    }

    /// Settles what this source says, unless there is an answer. A source gives the same answer always.
    /// Async-signal-safe.
    pub fn settle(&self, source: Source, answer: Answer) {
        if self.counts.load(Ordering::Acquire) != 0 {
            return;
        }
        let place = self.place(source);
        place.bytes.store(answer.bytes.cast_mut(), Ordering::Relaxed);
        place.len.store(answer.len, Ordering::Relaxed);
        place.plugin.store(answer.plugin, Ordering::Relaxed);
        let _ = self.counts.compare_exchange(0, source as u32 + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// This source says that there is nothing. The other one may still have an answer. Async-signal-safe.
    pub fn settle_nothing(&self, source: Source) {
        self.place(source).nothing.store(1, Ordering::Release);
    }

    fn place(&self, source: Source) -> &Place {
        let [recorder, process] = &self.places;
        match source {
            Source::Recorder => recorder,
            Source::Process => process,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_counts_whole() {
        let settled = Settled::new();
        let bytes = [[1u8; 8], [2; 8]];
        let answer = |n: usize| Answer { bytes: bytes[n].as_ptr(), len: n + 5, plugin: n as u32 + 1 };
        assert_eq!(settled.get(), None);
        settled.settle(Source::Process, answer(1));
        settled.settle(Source::Recorder, answer(0));
        assert_eq!(settled.get(), Some(answer(1)), "no part of the other one");
        assert!(settled.is_settled_for(Source::Recorder) && settled.is_settled_for(Source::Process));
    }

    #[test]
    fn nothing_by_one_source_settles_nothing_for_the_other() {
        let settled = Settled::new();
        settled.settle_nothing(Source::Process);
        assert!(settled.is_settled_for(Source::Process) && !settled.is_settled_for(Source::Recorder));
        assert!(settled.may_ask(Source::Recorder, 3) && !settled.may_ask(Source::Recorder, 3));
        assert!(settled.may_ask(Source::Process, 3), "each has its own count");
        let answer = Answer { plugin: 2, ..Answer::NONE };
        settled.settle(Source::Recorder, answer);
        assert_eq!(settled.get(), Some(answer));
    }
}
