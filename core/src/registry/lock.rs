//! The writers' lock: one word that holds its owner and whether a thread waits, with a futex in its lower half. It is
//! taken and marked with its owner in one step, so a handler that interrupted the owner at any instruction is refused
//! instead of waiting for its own thread. It has no state beyond its word, so the child of a fork can reset it.

use crate::syscall::{call, nr, thread_pointer};
use core::sync::atomic::{AtomicU64, Ordering};

const FREE: u64 = 0;
/// A thread waits. The rest of the word is the owner's thread pointer, which is a multiple of 64.
const CONTENDED: u64 = 1;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

/// The lock. Not for handlers: one may wait for the thread that it interrupted, unless that thread owns the lock.
pub struct Lock(AtomicU64);

impl Lock {
    /// A lock without an owner.
    pub const fn new() -> Lock {
        Lock(AtomicU64::new(FREE))
    }

    /// Runs `f` with the lock held. `None` if the calling thread holds it already.
    pub fn with<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        if !self.acquire() {
            return None;
        }
        let result = f();
        self.release();
        Some(result)
    }

    /// Whether the calling thread holds it. The owner's thread pointer is the same after a fork.
    pub fn is_mine(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !CONTENDED == thread_pointer()
    }

    /// Takes the lock. False if the calling thread holds it already.
    pub fn acquire(&self) -> bool {
        // Only this thread ever stores its own thread pointer there.
        if self.is_mine() {
            return false;
        }
        let mut own = thread_pointer();
        loop {
            match self.0.compare_exchange(FREE, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(holder) => {
                    let contended = holder | CONTENDED;
                    let marked = holder == contended
                        || self.0.compare_exchange(holder, contended, Ordering::Relaxed, Ordering::Relaxed).is_ok();
                    if marked {
                        // SAFETY: waits while the word's lower half (little-endian) has the value that was read.
                        unsafe {
                            call(nr::FUTEX, [self.futex(), FUTEX_WAIT_PRIVATE, contended as u32 as usize, 0, 0, 0])
                        };
                    }
                    // Other threads may be waiting: the next owner must wake one.
                    own |= CONTENDED;
                }
            }
        }
    }

    /// Gives the lock back.
    pub fn release(&self) {
        if self.0.swap(FREE, Ordering::Release) & CONTENDED != 0 {
            // SAFETY: wakes one waiter.
            unsafe { call(nr::FUTEX, [self.futex(), FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]) };
        }
    }

    fn futex(&self) -> usize {
        core::ptr::from_ref(&self.0) as usize
    }

    /// To be called in the child of a fork: whether a thread that does not exist here held the lock. Then it is free
    /// now, and what it protects may be unfinished.
    pub fn was_lost(&self) -> bool {
        let lost = self.0.load(Ordering::Relaxed) != FREE && !self.is_mine();
        if lost {
            self.0.store(FREE, Ordering::Relaxed);
        }
        lost
    }
}

impl Default for Lock {
    fn default() -> Self {
        Lock::new()
    }
}

/// Sleeps briefly, longer with each round: walks take microseconds. `round` counts from 0.
pub(super) fn pause(round: u32) {
    if round < 64 {
        core::hint::spin_loop();
        return;
    }
    let time = [0i64, if round < 256 { 20_000 } else { 1_000_000 }];
    // SAFETY: reads one timespec.
    unsafe { call(nr::NANOSLEEP, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_holds_it_and_is_refused_a_second_time() {
        let (lock, mut count) = (Lock::new(), 0u64);
        let at = core::ptr::from_mut(&mut count) as usize;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        // SAFETY: one thread at a time, which is what is tested.
                        let add = || unsafe { *(at as *mut u64) += 1 };
                        assert!(lock.with(add).is_some());
                    }
                });
            }
        });
        assert_eq!(count, 80_000);
        assert_eq!(lock.with(|| (lock.is_mine(), lock.with(|| ()))), Some((true, None)));
        assert!(!lock.is_mine() && !lock.was_lost());
    }
}
