//! How a walk that met an object which the set-up has not seen wakes the thread that runs the set-up again.
//!
//! The thread belongs to the set-up object, and exists only where the program has asked for it. The walk stores two
//! words and makes one system call, at most once for each change of what is loaded.

use crate::syscall::{call, nr};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What walks and the thread share.
#[repr(C)]
#[derive(Debug)]
pub struct Due {
    /// Not 0: the set-up is due, or the thread is to look at something else; it waits while this is 0 (futex(2)).
    word: AtomicU32,
    /// The thread's id; 0: there is none.
    thread: AtomicU32,
    /// The loader's counters ([`crate::loads::Loads::now`]) at which a walk asked last.
    asked: AtomicU64,
}

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

impl Due {
    /// Nothing is due, and no thread waits.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Due {
        Due { word: AtomicU32::new(0), thread: AtomicU32::new(0), asked: AtomicU64::new(0) }
    }

    /// A walk has met an object that the set-up has not seen, while the loader's counters were these (`None`: they are
    /// not available, and only the first walk asks). Async-signal-safe.
    pub fn ask(&self, loads: Option<u64>) {
        let loads = loads.unwrap_or(1);
        if self.thread() != 0 && self.asked.load(Ordering::Relaxed) != loads {
            self.asked.store(loads, Ordering::Relaxed);
            self.wake();
        }
    }

    /// Wakes the thread. Async-signal-safe.
    pub fn wake(&self) {
        self.word.store(1, Ordering::Release);
        // SAFETY: wakes one waiter for a word of this process.
        unsafe { call(nr::FUTEX, [self.word.as_ptr() as usize, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]) };
    }

    /// The thread's id, 0 without one: stacks of all threads leave it out. Async-signal-safe.
    pub fn thread(&self) -> u32 {
        self.thread.load(Ordering::Acquire)
    }

    /// The thread with this id waits from now on; 0: none does.
    pub fn set_thread(&self, tid: u32) {
        self.thread.store(tid, Ordering::Release);
    }

    /// Waits until the thread is woken, and takes the word back.
    pub fn wait(&self) {
        while self.word.swap(0, Ordering::Acquire) == 0 {
            // SAFETY: waits while the word is 0; no time limit.
            unsafe { call(nr::FUTEX, [self.word.as_ptr() as usize, FUTEX_WAIT_PRIVATE, 0, 0, 0, 0]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_asks_once_for_each_change_of_what_is_loaded() {
        let due = Due::new();
        let asks = |loads: Option<u64>| {
            due.ask(loads);
            due.word.swap(0, Ordering::Relaxed) != 0
        };
        assert!(!asks(Some(7)), "nobody waits");
        due.set_thread(1);
        assert_eq!([Some(7), Some(7), Some(8), None, None].map(asks), [true, false, true, true, false]);
        due.set_thread(0);
        assert!(!asks(Some(9)));
    }

    #[test]
    fn the_thread_waits_until_it_is_woken() {
        static DUE: Due = Due::new();
        let thread = std::thread::spawn(|| {
            DUE.set_thread(crate::syscall::gettid());
            DUE.wait();
            DUE.wait();
        });
        while DUE.thread() == 0 {
            std::thread::yield_now();
        }
        DUE.ask(Some(1));
        while !thread.is_finished() {
            DUE.wake();
            std::thread::yield_now();
        }
        thread.join().expect("no panic");
    }
}
