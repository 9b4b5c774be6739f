//! The writers' lock: one word that tells who holds it and whether somebody waits, with a futex in its lower half. Taken and
//! named in one step, so that a handler that interrupted the holder at any instruction is refused instead of waiting for
//! itself. It has no memory beyond its word, so the child of a fork can reset it.

use crate::syscall::{call, nr, thread_pointer};
use core::sync::atomic::{AtomicU64, Ordering};

const FREE: u64 = 0;
/// Somebody waits. The rest of the word is the holder's thread pointer, which is a multiple of 64.
const CONTENDED: u64 = 1;
const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

/// The lock. Not for handlers, which may wait for the thread that they interrupted only if that is not a holder.
pub struct Lock(AtomicU64);

impl Lock {
    /// Free.
    pub const fn new() -> Lock {
        Lock(AtomicU64::new(FREE))
    }

    /// Runs `f` with the lock held. `None`: the calling thread holds it already.
    pub fn with<T>(&self, f: impl FnOnce() -> T) -> Option<T> {
        if !self.acquire() {
            return None;
        }
        let result = f();
        self.release();
        Some(result)
    }

    /// Whether the calling thread holds it. The holder's thread pointer stays the same over a fork.
    pub fn is_mine(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !CONTENDED == thread_pointer()
    }

    /// Takes the lock. False: the calling thread holds it already.
    pub fn acquire(&self) -> bool {
        // Only this thread ever writes its own thread pointer there.
        if self.is_mine() {
            return false;
        }
        let mut own = thread_pointer();
        loop {
            match self.0.compare_exchange(FREE, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(holder) => {
                    let contended = holder | CONTENDED;
                    let told = holder == contended
                        || self.0.compare_exchange(holder, contended, Ordering::Relaxed, Ordering::Relaxed).is_ok();
                    if told {
                        // SAFETY: waits while the word's lower half (little-endian) is as it was seen.
                        unsafe {
                            call(nr::FUTEX, [self.futex(), FUTEX_WAIT_PRIVATE, contended as u32 as usize, 0, 0, 0])
                        };
                    }
                    // Others may be waiting, too: whoever holds it next must wake one.
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

    /// In the child of a fork: whether a thread that is not here held it. Then it is free now, and what it guards may be
    /// half done.
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

/// Waits a little, the longer the more often: walks take microseconds. `round` counts from 0.
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
    fn one_holds_it_and_is_refused_a_second_time() {
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
