//! The writers' lock: a futex word with three states (U. Drepper, "Futexes Are Tricky", mutex2). It has no memory beyond
//! its word, so the child of a fork can reset it.

use crate::syscall::{call, nr};
use core::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

/// The lock. Not for handlers.
pub struct Lock(AtomicU32);

impl Lock {
    /// Free.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// Runs `f` with the lock held.
    pub fn with<T>(&self, f: impl FnOnce() -> T) -> T {
        if self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
                let word = core::ptr::from_ref(&self.0) as usize;
                // SAFETY: waits while the word is CONTENDED.
                unsafe { call(nr::FUTEX, [word, FUTEX_WAIT_PRIVATE, CONTENDED as usize, 0, 0, 0]) };
            }
        }
        let result = f();
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            let word = core::ptr::from_ref(&self.0) as usize;
            // SAFETY: wakes one waiter.
            unsafe { call(nr::FUTEX, [word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]) };
        }
        result
    }

    /// In the child of a fork: free, whoever held it.
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }
}

impl Default for Lock {
    fn default() -> Self {
        Lock::new()
    }
}

/// Sleeps a little (20 us): walks take microseconds.
pub(super) fn pause() {
    const NANOSLEEP: usize = 35;
    let time = [0i64, 20_000];
    // SAFETY: reads one timespec.
    unsafe { call(NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}
