//! Guarded reads of single words without a reader, for loops that a reader would slow down.

use super::guarded::{self, Words};
use super::{Reader, USER_END};

/// Proof that the reads of a walk may be guarded.
#[derive(Clone, Copy, Debug)]
pub struct Bare(());

impl Bare {
    /// The proof, if faults of this thread are handled.
    ///
    /// # Safety
    /// `handled` may be true only if they are handled as [`Reader::new`] demands in guarded mode, for as long as this
    /// value or a copy is used.
    #[inline(always)]
    pub unsafe fn new(handled: bool) -> Option<Bare> {
        handled.then_some(Bare(()))
    }

    /// The word that ends at `base` + 8 * `words`, not logged; 0 if it is unreadable.
    #[inline(always)]
    pub fn word_below(self, base: u64, words: u64) -> u64 {
        if base.wrapping_add(words.wrapping_mul(8)) > USER_END {
            return 0;
        }
        guarded::load_below(base, words)
    }

    /// The word that ends at an address, where a word was read before; 0 if it is unreadable now.
    #[inline(always)]
    pub(crate) fn word_just_below(self, address: u64) -> u64 {
        guarded::load_just_below(address)
    }

    /// Passes the words of the stack at `sp`, those before the process address `from` left out and at most `most` from
    /// sp on, to `each`: those that lie in one page with the word below them, which is the stack's: beyond a stack
    /// nothing may be mapped, and faults are expensive. Returns the address after the last.
    #[inline(always)]
    pub fn words_ahead(self, sp: u64, from: u64, most: u64, mut each: impl FnMut(u64)) -> u64 {
        let page_end = (sp.wrapping_sub(8) | 0xfff).wrapping_add(1);
        let end = page_end.min(sp.wrapping_add(8 * most));
        let mut at = from.max(sp);
        while at < end {
            at = at.wrapping_add(8);
            each(self.word_just_below(at));
        }
        at
    }

    /// Prefetches the table entries at `base` that the eight words of the stack at `sp` select, by their bits in
    /// `mask`. Only if these words lie in one page with the word below them, which is the stack's: beyond a stack
    /// nothing may be mapped, and faults are expensive.
    #[inline(always)]
    pub(crate) fn prefetch_by_words(self, sp: u64, mask: u32, base: *const u8) {
        const PAGE: u64 = 4096;
        if sp.wrapping_sub(8) % PAGE <= PAGE - 72 {
            guarded::prefetch_by_words(sp, mask, base);
        }
    }

    /// Whether one of these words changed, or is unreadable now; addresses as for [`Bare::word_just_below`].
    #[inline(always)]
    pub(crate) fn any_changed(self, words: &[Words]) -> bool {
        // SAFETY: a slice's elements are there.
        unsafe { guarded::any_changed(words.as_ptr(), words.len()) }
    }

    /// As [`Bare::any_changed`], of structures that others may write meanwhile.
    ///
    /// # Safety
    /// There must be `count` structures from `words` on.
    #[inline(always)]
    pub(crate) unsafe fn any_changed_from(self, words: *const Words, count: usize) -> bool {
        // SAFETY: passed on.
        unsafe { guarded::any_changed(words, count) }
    }

    /// Copies `count` words from `was` to `to` with `bits` set in each, if each stands in memory, just below its
    /// address in `above` ([`Bare::word_just_below`]). False: one does not; then an undefined number of words was
    /// copied. Each word is read once, so that it is the one that was compared.
    ///
    /// # Safety
    /// There must be `count` words in all three places; others may write those of the first two meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn copy_same(
        self,
        above: *const u64,
        was: *const u64,
        to: *mut u64,
        count: usize,
        bits: u64,
    ) -> bool {
        if count >= 8 {
            // SAFETY: passed on.
            return unsafe { guarded::copy_same(above, was, to, count, bits) };
        }
        (0..count).all(|index| {
            // SAFETY: passed on.
            let (above, was) = unsafe { (above.add(index).read_volatile(), was.add(index).read_volatile()) };
            // SAFETY: passed on.
            unsafe { to.add(index).write(was | bits) };
            self.word_just_below(above) == was
        })
    }
}

impl Reader<'_> {
    /// The proof, if this reader's reads are guarded. It is valid as long as the reader.
    #[inline(always)]
    pub fn bare(&self) -> Option<Bare> {
        self.is_guarded().then_some(Bare(()))
    }
}
