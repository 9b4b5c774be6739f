//! The thread's own stack: memory that is believed to be readable without a question to the kernel.
//!
//! What is believed is that the stack on which a thread was started is readable from the thread's stack pointer to its
//! end, as long as the thread runs on it. Whoever makes a value has asked the kernel once for each page of it
//! (`uunwind_live::own_stack`). `docs/design/caches.md` says what ends the belief.

use crate::span::Span;

/// Bytes of a word.
const WORD: u64 = 8;

/// The part of the thread's own stack that its walk may read without asking: whole pages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OwnStack {
    /// Its first address (process address).
    start: u64,
    /// Number of addresses, from `start` on, at which a word can be loaded.
    words: u64,
}

impl OwnStack {
    /// No part of it.
    pub const NONE: OwnStack = OwnStack { start: 0, words: 0 };

    /// The pages in `span`.
    ///
    /// # Safety
    /// All of them must be readable for as long as this value or a copy is used.
    #[inline(always)]
    pub const unsafe fn new(span: Span) -> OwnStack {
        OwnStack { start: span.start, words: span.len().saturating_sub(WORD - 1) }
    }

    /// Whether there is any.
    #[inline(always)]
    pub const fn is_some(self) -> bool {
        self.words != 0
    }

    /// Whether a word at this process address lies in it.
    #[inline(always)]
    pub const fn holds(self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.words
    }

    /// The word at a process address, at any alignment; `None`: it does not lie in this memory.
    #[inline(always)]
    pub fn word(self, address: u64) -> Option<u64> {
        // SAFETY: it lies in memory that is readable, by the promise of whoever made this.
        self.holds(address).then(|| unsafe { (address as *const u64).read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_loaded_inside_only() {
        let words = [1u64, 2, 3];
        let start = words.as_ptr() as u64;
        // SAFETY: the array outlives it.
        let stack = unsafe { OwnStack::new(Span::new(start, start + 24)) };
        let read = |offset: i64| stack.word(start.wrapping_add_signed(offset));
        assert_eq!([0, 8, 16].map(read), [Some(1), Some(2), Some(3)]);
        assert_eq!([-8, -1, 17, 24, i64::MAX].map(read), [None; 5]);
        assert_eq!(read(9), Some(3 << 56));
        assert_eq!((OwnStack::NONE.word(0), OwnStack::NONE.is_some()), (None, false));
    }
}
