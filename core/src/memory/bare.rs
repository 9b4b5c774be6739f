//! Reads of single words of a stack without a reader, for loops that a reader would slow down: guarded ones, and those
//! of the thread's own stack ([`OwnStack`]), which needs no guard.

use super::guarded::{self, Words};
use super::{OwnStack, Reader, USER_END};

/// How words of a stack are loaded without a reader. A word that is unreadable is 0, which no frame needs: it is no
/// return address and no saved frame pointer.
pub trait StackWords: Copy {
    /// Words are loaded in the order in which a walk reads them, and each only after those before it were found to be
    /// the same as when they were cached. So all of them are words that the frames on the stack hold, which its thread
    /// itself will read when it returns through them. Else the addresses of cached words may be loaded in any order:
    /// loads do not wait for each other then.
    const ORDERED: bool;

    /// [`StackWords::ORDERED`], of a value.
    #[inline(always)]
    fn are_ordered(self) -> bool {
        Self::ORDERED
    }

    /// The word that ends at `base` + 8 * `words`, not logged; 0 if it is unreadable.
    fn word_below(self, base: u64, words: u64) -> u64;

    /// The word that ends at an address, where a word was read before; 0 if it is unreadable now.
    fn word_just_below(self, address: u64) -> u64;

    /// Whether all words of a stack just below addresses from `lowest` to `highest` can be loaded by
    /// [`StackWords::word_within`].
    fn reaches(self, lowest: u64, highest: u64) -> bool;

    /// As [`StackWords::word_just_below`], between two addresses that it reaches.
    ///
    /// # Safety
    /// [`StackWords::reaches`] must be true of addresses around this one.
    unsafe fn word_within(self, address: u64) -> u64;

    /// Whether one of `count` structures of words has changed, or is unreadable now; addresses as for
    /// [`StackWords::word_just_below`].
    ///
    /// # Safety
    /// There must be `count` structures from `words` on, which others may write meanwhile.
    unsafe fn any_changed_from(self, words: *const Words, count: usize) -> bool;

    /// Copies `count` words from `was` to `to` with `bits` set in each, if each stands in memory, just below its
    /// address in `above` ([`StackWords::word_just_below`]). False: one does not; then an undefined number of words was
    /// copied. Each word is read once, so that it is the one that was compared.
    ///
    /// # Safety
    /// There must be `count` words in all three places; others may write those of the first two meanwhile.
    unsafe fn copy_same(self, above: *const u64, was: *const u64, to: *mut u64, count: usize, bits: u64) -> bool;

    /// Prefetches entries of the table at `base`, which has `WORDS`, two an entry: those that eight words of the stack
    /// select by their lower bits. These are every second one from `AHEAD` bytes above the return address at `returns`
    /// on, since a stack is aligned to two words at each call. Only if they lie in one page with it: beyond a stack
    /// nothing may be mapped, and faults are expensive.
    fn prefetch_by_words<const WORDS: usize, const AHEAD: u64>(self, returns: u64, base: *const u8);

    /// Passes the words of the stack at `sp`, those before the process address `from` left out and at most `most` from
    /// sp on, to `each`: those that lie in one page with the word below them, which is the stack's: beyond a stack
    /// nothing may be mapped, and faults are expensive. Returns the address after the last.
    #[inline(always)]
    fn words_ahead(self, sp: u64, from: u64, most: u64, mut each: impl FnMut(u64)) -> u64 {
        let page_end = (sp.wrapping_sub(8) | 0xfff).wrapping_add(1);
        let end = page_end.min(sp.wrapping_add(8 * most));
        let mut at = from.max(sp);
        while at < end {
            at = at.wrapping_add(8);
            each(self.word_just_below(at));
        }
        at
    }
}

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
}

impl StackWords for Bare {
    const ORDERED: bool = false;

    #[inline(always)]
    fn word_below(self, base: u64, words: u64) -> u64 {
        if base.wrapping_add(words.wrapping_mul(8)) > USER_END {
            return 0;
        }
        guarded::load_below(base, words)
    }

    #[inline(always)]
    fn word_just_below(self, address: u64) -> u64 {
        guarded::load_just_below(address)
    }

    #[inline(always)]
    fn reaches(self, _: u64, _: u64) -> bool {
        true
    }

    #[inline(always)]
    unsafe fn word_within(self, address: u64) -> u64 {
        guarded::load_just_below(address)
    }

    #[inline(always)]
    unsafe fn any_changed_from(self, words: *const Words, count: usize) -> bool {
        // SAFETY: passed on.
        unsafe { guarded::any_changed(words, count) }
    }

    #[inline(always)]
    unsafe fn copy_same(self, above: *const u64, was: *const u64, to: *mut u64, count: usize, bits: u64) -> bool {
        // SAFETY: passed on.
        unsafe {
            if count >= 8 {
                return guarded::copy_same(above, was, to, count, bits);
            }
            copy_same_in_order(self, above, was, to, count, bits)
        }
    }

    #[inline(always)]
    fn prefetch_by_words<const WORDS: usize, const AHEAD: u64>(self, returns: u64, base: *const u8) {
        if candidates_lie_in_page::<AHEAD>(returns) {
            guarded::prefetch_by_words::<WORDS>(returns.wrapping_add(AHEAD), base);
        }
    }
}

impl StackWords for OwnStack {
    const ORDERED: bool = true;

    #[inline(always)]
    fn word_below(self, base: u64, words: u64) -> u64 {
        self.word_just_below(base.wrapping_add(words.wrapping_mul(8)))
    }

    #[inline(always)]
    fn word_just_below(self, address: u64) -> u64 {
        self.word(address.wrapping_sub(8)).unwrap_or(0)
    }

    #[inline(always)]
    fn reaches(self, lowest: u64, highest: u64) -> bool {
        self.holds(lowest.wrapping_sub(8)) && self.holds(highest.wrapping_sub(8))
    }

    #[inline(always)]
    unsafe fn word_within(self, address: u64) -> u64 {
        // SAFETY: it lies between two words of memory that is readable, by the promise of whoever made this.
        unsafe { (address.wrapping_sub(8) as *const u64).read_unaligned() }
    }

    #[inline(always)]
    unsafe fn any_changed_from(self, words: *const Words, count: usize) -> bool {
        (0..count).any(|index| {
            // SAFETY: the caller guarantees the structure.
            let Words { above, was } = unsafe { words.add(index).read_volatile() };
            above.iter().zip(was).any(|(above, was)| self.word_just_below(*above) != was)
        })
    }

    #[inline(always)]
    unsafe fn copy_same(self, above: *const u64, was: *const u64, to: *mut u64, count: usize, bits: u64) -> bool {
        // SAFETY: passed on.
        unsafe { copy_same_in_order(self, above, was, to, count, bits) }
    }

    #[inline(always)]
    fn prefetch_by_words<const WORDS: usize, const AHEAD: u64>(self, returns: u64, base: *const u8) {
        if candidates_lie_in_page::<AHEAD>(returns) && self.holds(returns) {
            guarded::prefetch_by_words::<WORDS>(returns.wrapping_add(AHEAD), base);
        }
    }
}

/// Whether the words of [`StackWords::prefetch_by_words`] lie in one page with the return address.
#[inline(always)]
fn candidates_lie_in_page<const AHEAD: u64>(returns: u64) -> bool {
    const PAGE: u64 = 4096;
    returns % PAGE <= PAGE - (AHEAD + guarded::CANDIDATES_BYTES)
}

/// As [`StackWords::copy_same`], word by word, up to the first difference.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn copy_same_in_order(
    stack: impl StackWords,
    above: *const u64,
    was: *const u64,
    to: *mut u64,
    count: usize,
    bits: u64,
) -> bool {
    (0..count).all(|index| {
        // SAFETY: passed on.
        let (above, was) = unsafe { (above.add(index).read_volatile(), was.add(index).read_volatile()) };
        // SAFETY: passed on.
        unsafe { to.add(index).write(was | bits) };
        stack.word_just_below(above) == was
    })
}

impl Reader<'_> {
    /// The proof, if this reader's reads are guarded. It is valid as long as the reader.
    #[inline(always)]
    pub fn bare(&self) -> Option<Bare> {
        self.is_guarded().then_some(Bare(()))
    }
}
