//! The log of a process's frees of sampled allocations, and of what it maps and unmaps, after the header of its process
//! block: a ring with many writers, the threads of the process, and one reader, the recorder.
//!
//! A free may come from anywhere: a thread that is not sampled or has ended for the sampler, a handler, a walk of the
//! same thread. So it needs no state of the thread, and takes its places by one compare-and-swap. Nothing is
//! overwritten: where the log is full, the writer waits for the recorder, within a bound, or counts the loss.
//!
//! The order of the log is one in which the calls may have happened: what leaves is written before the call, and what
//! comes after it. So the recorder follows which mapping lies where by the log alone, and nothing of this is kept in
//! the process.

use crate::layout::{ProcessBlock, RING_BYTES, RING_OFFSET};
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a place of the log: two words. The first place of an entry has its kind and number, and the time.
const PLACE_BYTES: usize = 16;
/// Number of places.
pub const FREES: usize = RING_BYTES / PLACE_BYTES;
/// Attempts to take a place, which other writers may take at the same time.
const ATTEMPTS: u32 = 1 << 20;

/// Offset in the process block of a place. The first word of an entry's first place is 0 while the entry is not
/// written; the time, in ns of CLOCK_MONOTONIC, follows it.
pub fn offset(place: u64) -> usize {
    RING_OFFSET + (place % FREES as u64) as usize * PLACE_BYTES
}

/// Process addresses from `start` on, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first address.
    pub start: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// What the log says. Numbers are unique in the process, those of calls and of allocations together, and below 2^56.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The allocation with this number is freed.
    Free {
        /// Number of the allocation.
        id: u64,
        /// By the thread that has made it, which has made no other one since.
        is_temporary: bool,
    },
    /// These addresses are about to be unmapped, or moved.
    Leaves {
        /// Number of the call.
        call: u64,
        /// What it unmaps.
        span: Span,
        /// Number of the calling thread's last allocation, if that was sampled; otherwise 0.
        last: u64,
    },
    /// The call with this number has failed: what it would have unmapped stays.
    Stays {
        /// Number of the call.
        call: u64,
    },
    /// Anonymous memory was mapped.
    Comes {
        /// Number of the sampled allocation; 0: it was not sampled.
        id: u64,
        /// Where.
        span: Span,
        /// Number of the call that has moved it; 0: none has. If nothing that the recorder knows has left by that call,
        /// this is no anonymous memory, and the sample is of nothing.
        moved_by: u64,
    },
}

/// Bits of a number, below those of an entry's kind.
const NUMBER_BITS: u32 = 56;
/// Places of the longest entry.
const LONGEST: usize = 3;

impl Entry {
    const FREE: u64 = 0;
    const LEAVES: u64 = 1;
    const STAYS: u64 = 2;
    const COMES: u64 = 3;
    const TEMPORARY: u64 = 4;

    /// Number of places of the entry whose first word is this; `None`: there is no such kind.
    pub fn places(first: u64) -> Option<usize> {
        match first >> NUMBER_BITS {
            Entry::FREE | Entry::STAYS | Entry::TEMPORARY => Some(1),
            Entry::LEAVES | Entry::COMES => Some(3),
            _ => None,
        }
    }

    /// The entry of these words, without its time: of its first place the first word, of the others both. `None`: there
    /// is no such kind.
    pub fn of(first: u64, [start, bytes, other, _]: [u64; 4]) -> Option<Entry> {
        let (number, span) = (first & ((1 << NUMBER_BITS) - 1), Span { start, bytes });
        match first >> NUMBER_BITS {
            Entry::FREE => Some(Entry::Free { id: number, is_temporary: false }),
            Entry::TEMPORARY => Some(Entry::Free { id: number, is_temporary: true }),
            Entry::LEAVES => Some(Entry::Leaves { call: number, span, last: other }),
            Entry::STAYS => Some(Entry::Stays { call: number }),
            Entry::COMES => Some(Entry::Comes { id: number, span, moved_by: other }),
            _ => None,
        }
    }

    /// The reverse of [`Entry::of`].
    fn words(self) -> (u64, [u64; 4]) {
        let (kind, number, Span { start, bytes }, other) = match self {
            Entry::Free { id, is_temporary: false } => (Entry::FREE, id, Span::default(), 0),
            Entry::Free { id, is_temporary: true } => (Entry::TEMPORARY, id, Span::default(), 0),
            Entry::Leaves { call, span, last } => (Entry::LEAVES, call, span, last),
            Entry::Stays { call } => (Entry::STAYS, call, Span::default(), 0),
            Entry::Comes { id, span, moved_by } => (Entry::COMES, id, span, moved_by),
        };
        (kind << NUMBER_BITS | number, [start, bytes, other, 0])
    }
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

    /// Writes an entry of this time. `wait` is called while the log is full; false: it waits no longer. Returns false
    /// if the entry was not written.
    pub fn put(&self, entry: Entry, time: u64, mut wait: impl FnMut() -> bool) -> bool {
        let (first, rest) = entry.words();
        let places = Entry::places(first).unwrap_or(LONGEST) as u64;
        for _ in 0..ATTEMPTS {
            let head = self.block.frees_head.load(Ordering::Relaxed);
            let tail = self.block.frees_tail.load(Ordering::Acquire);
            if head.wrapping_sub(tail) > FREES as u64 - places {
                if !wait() {
                    return false;
                }
                continue;
            }
            let next = head.wrapping_add(places);
            if self.block.frees_head.compare_exchange(head, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue;
            }
            for (more, words) in (1..places).zip(rest.chunks_exact(2)) {
                for (place, word) in self.place(head.wrapping_add(more)).into_iter().zip(words) {
                    place.store(*word, Ordering::Relaxed);
                }
            }
            let [number, at] = self.place(head);
            at.store(time, Ordering::Relaxed);
            number.store(first, Ordering::Release);
            return true;
        }
        false
    }

    /// The two words of a place.
    fn place(&self, place: u64) -> [&'a AtomicU64; 2] {
        // SAFETY: the place lies inside the block, 8-aligned, and words of shared memory are used as atomics only.
        unsafe {
            let first = core::ptr::from_ref(self.block).cast::<u8>().add(offset(place)).cast::<AtomicU64>();
            [&*first, &*first.add(1)]
        }
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
            assert!(log.put(Entry::Free { id, is_temporary: false }, id * 2, || unreachable!("there is room")));
        }
        let mut waits = 0;
        let no_more = || {
            waits += 1;
            waits < 3
        };
        assert!(!log.put(Entry::Free { id: 9, is_temporary: false }, 9, no_more));
        assert_eq!(waits, 3);
        // The recorder has read the first one.
        block.frees_tail.store(1, Ordering::Release);
        assert!(log.put(Entry::Free { id: 77, is_temporary: false }, 5, || unreachable!("there is room")));
        // One place is not enough for two.
        block.frees_tail.store(2, Ordering::Release);
        assert!(!log.put(Entry::Leaves { call: 9, span: Span::default(), last: 0 }, 9, || false));
        let word = |offset: usize| memory[offset / 8];
        assert_eq!((word(offset(0)), word(offset(0) + 8)), (77, 5));
        assert_eq!((word(offset(1)), word(offset(FREES as u64 - 1) + 8)), (2, FREES as u64 * 2));
        assert!(offset(u64::MAX) + PLACE_BYTES <= BLOCK_BYTES);
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let span = Span { start: 0x7f00_0000_1000, bytes: 5 << 40 };
        for entry in [
            Entry::Free { id: 1, is_temporary: false },
            Entry::Free { id: 1, is_temporary: true },
            Entry::Leaves { call: (1 << NUMBER_BITS) - 1, span, last: 8 },
            Entry::Stays { call: 7 },
            Entry::Comes { id: 0, span, moved_by: 9 },
        ] {
            let (first, rest) = entry.words();
            let places = Entry::places(first).expect("a kind");
            assert!(first != 0 && rest[(places - 1) * 2..].iter().all(|word| *word == 0) || places == LONGEST);
            assert_eq!(Entry::of(first, rest), Some(entry));
        }
        assert_eq!((Entry::places(9 << NUMBER_BITS), Entry::of(9 << NUMBER_BITS, [0; 4])), (None, None));
    }
}
