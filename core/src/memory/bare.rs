//! Guarded reads of single words, without a reader: for loops that cannot wait for one.

use super::guarded::{self, Words};
use super::{Reader, USER_END};

/// Shows that reads of a walk may be guarded, for those that cannot wait.
#[derive(Clone, Copy, Debug)]
pub struct Bare(());

impl Bare {
    /// Leave to read so, if faults of this thread's are handled.
    ///
    /// # Safety
    /// If they are, as [`Reader::new`] in guarded mode, for as long as this or a copy is used.
    #[inline(always)]
    pub unsafe fn new(handled: bool) -> Option<Bare> {
        handled.then_some(Bare(()))
    }

    /// The word below `base` + 8 * `words`, not written down; 0 if it cannot be read.
    #[inline(always)]
    pub fn word_below(self, base: u64, words: u64) -> u64 {
        if base.wrapping_add(words.wrapping_mul(8)) > USER_END {
            return 0;
        }
        guarded::load_below(base, words)
    }

    /// The word just below an address that a word was read below before; 0 if it cannot be read now.
    #[inline(always)]
    pub(crate) fn word_just_below(self, address: u64) -> u64 {
        guarded::load_just_below(address)
    }

    /// Asks for what the eight words of the stack at `sp` lead to in a table at `base`, by their bits in `mask`, to be fetched into the processor's caches. Only
    /// where they lie in one page with the word below them, which is the stack's: nothing may be mapped behind a stack, and faults are dear.
    #[inline(always)]
    pub(crate) fn prefetch_by_words(self, sp: u64, mask: u32, base: *const u8) {
        const PAGE: u64 = 4096;
        if sp.wrapping_sub(8) % PAGE <= PAGE - 72 {
            guarded::prefetch_by_words(sp, mask, base);
        }
    }

    /// Whether one of these is not what it was any more, or cannot be read now; addresses as for [`Bare::word_just_below`].
    #[inline(always)]
    pub(crate) fn any_changed(self, words: &[Words]) -> bool {
        guarded::any_changed(words)
    }
}

impl Reader<'_> {
    /// Leave to read without this reader, if its reads are guarded. It lasts as long as the reader does.
    #[inline(always)]
    pub fn bare(&self) -> Option<Bare> {
        self.is_guarded().then_some(Bare(()))
    }
}
