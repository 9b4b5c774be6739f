//! The writers' lock: a futex word with three states (U. Drepper, "Futexes Are Tricky", mutex2), and its holder. It has no
//! memory beyond these words, so the child of a fork can reset it.

use crate::syscall::{call, nr, thread_pointer};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

/// The lock. Not for handlers: but a handler that interrupted the holder is refused, and does not hang.
pub struct Lock {
    word: AtomicU32,
    /// Thread pointer of the holder; it stays the same over a fork. 0: none.
    holder: AtomicU64,
}

impl Lock {
    /// Free.
    pub const fn new() -> Lock {
        Lock { word: AtomicU32::new(FREE), holder: AtomicU64::new(0) }
    }

    /// Runs `f` with the lock held. `None`: the calling thread holds it already (a handler interrupted a writer).
    pub fn with<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        if !self.acquire() {
            return None;
        }
        let result = f();
        self.release();
        Some(result)
    }

    /// Whether the calling thread holds it.
    pub fn is_mine(&self) -> bool {
        // Only this thread ever writes its own thread pointer there.
        self.holder.load(Ordering::Relaxed) == thread_pointer()
    }

    /// Takes the lock. False: the calling thread holds it already.
    pub fn acquire(&self) -> bool {
        if self.is_mine() {
            return false;
        }
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
                let word = core::ptr::from_ref(&self.word) as usize;
                // SAFETY: waits while the word is CONTENDED.
                unsafe { call(nr::FUTEX, [word, FUTEX_WAIT_PRIVATE, CONTENDED as usize, 0, 0, 0]) };
            }
        }
        self.holder.store(thread_pointer(), Ordering::Relaxed);
        true
    }

    /// Gives the lock back.
    pub fn release(&self) {
        self.holder.store(0, Ordering::Relaxed);
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            let word = core::ptr::from_ref(&self.word) as usize;
            // SAFETY: wakes one waiter.
            unsafe { call(nr::FUTEX, [word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]) };
        }
    }

    /// In the child of a fork: whether a thread that is not here held it. Then it is free now, and what it guards may be
    /// half done.
    pub fn was_lost(&self) -> bool {
        if self.word.load(Ordering::Relaxed) == FREE || self.is_mine() {
            return false;
        }
        self.holder.store(0, Ordering::Relaxed);
        self.word.store(FREE, Ordering::Relaxed);
        true
    }
}

impl Default for Lock {
    fn default() -> Self {
        Lock::new()
    }
}

/// Waits a little, the longer the more often: walks take microseconds. `round` counts from 0.
pub(super) fn pause(round: u32) {
    const NANOSLEEP: usize = 35;
    if round < 64 {
        core::hint::spin_loop();
        return;
    }
    let time = [0i64, if round < 256 { 20_000 } else { 1_000_000 }];
    // SAFETY: reads one timespec.
    unsafe { call(NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}
