//! The log of a process's frees of sampled allocations, after the header of its process block: a ring with many
//! writers, the threads of the process, and one reader, the recorder.
//!
//! A free may come from anywhere: a thread that is not sampled or has ended for the sampler, a handler, a walk of the
//! same thread. So it needs no state of the thread, and takes a place by one compare-and-swap. Nothing is overwritten:
//! where the log is full, the writer waits for the recorder, within a bound, or counts the loss.

use crate::layout::{ProcessBlock, RING_BYTES, RING_OFFSET};
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of an entry: the number of the allocation, and the time.
const ENTRY_BYTES: usize = 16;
/// Number of entries.
pub const FREES: usize = RING_BYTES / ENTRY_BYTES;
/// Attempts to take a place, which other writers may take at the same time.
const ATTEMPTS: u32 = 1 << 20;

/// Offset in the process block of an entry's number of the allocation, 0 while it is not written; the time, in ns of
/// CLOCK_MONOTONIC, follows it.
pub fn offset(entry: u64) -> usize {
    RING_OFFSET + (entry % FREES as u64) as usize * ENTRY_BYTES
}

/// The writing end of a log.
#[derive(Clone, Copy)]
pub struct FreeLog<'a> {
    block: &'a ProcessBlock,
}

impl<'a> FreeLog<'a> {
    /// # Safety
    /// `block` must begin a whole block of the session, which outlives the log.
    pub unsafe fn new(block: &'a ProcessBlock) -> FreeLog<'a> {
        FreeLog { block }
    }

    /// Writes that the allocation with this number, from 1 on, is freed at this time. `wait` is called while the log is
    /// full; false: it waits no longer. Returns false if the entry was not written.
    pub fn put(&self, id: u64, time: u64, mut wait: impl FnMut() -> bool) -> bool {
        for _ in 0..ATTEMPTS {
            let head = self.block.frees_head.load(Ordering::Relaxed);
            let tail = self.block.frees_tail.load(Ordering::Acquire);
            if head.wrapping_sub(tail) >= FREES as u64 {
                if !wait() {
                    return false;
                }
                continue;
            }
            let next = head.wrapping_add(1);
            if self.block.frees_head.compare_exchange(head, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue;
            }
            // SAFETY: the entry lies inside the block, 8-aligned, and words of shared memory are used as atomics only.
            let [number, at] = unsafe {
                let entry = core::ptr::from_ref(self.block).cast::<u8>().add(offset(head)).cast::<AtomicU64>();
                [&*entry, &*entry.add(1)]
            };
            at.store(time, Ordering::Relaxed);
            number.store(id, Ordering::Release);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BLOCK_BYTES;

    #[test]
    fn a_full_log_overwrites_nothing() {
        let mut memory = vec![0u64; BLOCK_BYTES / 8];
        // SAFETY: zeroed memory of a whole block; all-zero is a valid header.
        let block = unsafe { &*memory.as_mut_ptr().cast::<ProcessBlock>() };
        // SAFETY: as above.
        let log = unsafe { FreeLog::new(block) };
        for id in 1..=FREES as u64 {
            assert!(log.put(id, id * 2, || unreachable!("there is room")));
        }
        let mut waits = 0;
        let no_more = || {
            waits += 1;
            waits < 3
        };
        assert!(!log.put(9, 9, no_more));
        assert_eq!(waits, 3);
        // The recorder has read the first one.
        block.frees_tail.store(1, Ordering::Release);
        assert!(log.put(77, 5, || unreachable!("there is room")));
        let word = |offset: usize| memory[offset / 8];
        assert_eq!((word(offset(0)), word(offset(0) + 8)), (77, 5));
        assert_eq!((word(offset(1)), word(offset(FREES as u64 - 1) + 8)), (2, FREES as u64 * 2));
        assert!(offset(u64::MAX) + ENTRY_BYTES <= BLOCK_BYTES);
    }
}
