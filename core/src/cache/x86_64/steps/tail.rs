//! The verified tail: the outer part of a stack that was captured twice, as the words of memory that it depends on,
//! with their values, and the frame words to copy.
//!
//! All inputs are compared by independent loads with few branches. Nearly all of them are return addresses, of which
//! frame words are made; so these are copied as they are compared. Rules, and the places of rbp, were evaluated when
//! the list was made. The validity epoch follows from words too, which are among the inputs. So a stack whose innermost
//! frames have a [`VerifiedPrefix`] is replayed without any lookup.
//!
//! Why a replay is exact: the rule of a frame is a function of its pc and the validity epoch; its CFA, and the place of
//! its return address, of the rule, sp and rbp. Step by step, `callers` has the return address, which is the next pc.
//! `blocks` has the other inputs: the words of the epoch come first, so that any number of blocks compared from the
//! start includes them; then, step by step, the saved rbp wherever a later CFA counts from it, and the word below rbp
//! where it is the CFA, of a frame that has aligned its stack. If all are unchanged, so is each frame, by induction
//! from the first. If only some steps are compared, because the buffer is short, one step more than it can hold is
//! among them: that there is a further frame is a part of the answer. A change writes `stamp` and the keys of `tops`
//! last, after it has cleared them first: a capture that finds it abandoned finds no tail.

use super::dependencies::{Dependencies, Reach};
use super::prefix::{FromTail, Reply, VerifiedPrefix, PREFIX_FRAMES};
use super::{Step, STEPS};
use crate::cache::query::{At, Validity, EXACT_KEY};
use crate::frame::{user_word, FLAG_EXACT};
use crate::memory::guarded::Words;
use crate::memory::StackWords;
use crate::stop_reason::StopReason;
use core::arch::x86_64::{_mm_loadu_si128, _mm_storeu_si128};
use core::sync::atomic::{compiler_fence, Ordering};

/// Limit of blocks of inputs besides return addresses. A step depends on a word if its CFA counts from a saved rbp, and
/// on another one if its frame has aligned the stack; all depend on the words of the validity epoch. There is room for
/// one word a step; a tail that has more is not kept.
pub(super) const BLOCKS: usize = STEPS / Words::COUNT + 2;
// A reply has 8 bits for the number of blocks, and 16 for that of frame words.
const _: () = assert!(BLOCKS < 1 << 8 && STEPS + PREFIX_FRAMES < 1 << 16);
/// Number of signal frames; a tail that has more is not kept.
const SIGNALS: usize = 4;
/// Number of verified prefixes.
pub(super) const PREFIXES: usize = 4;
/// Number of words that a replay copies at once.
const AT_ONCE: usize = PREFIX_FRAMES;

/// The verified tail. It does not depend on the cached steps: a stack that reaches its first frame goes on as stored if
/// all inputs are unchanged.
#[repr(C, align(64))]
pub(super) struct VerifiedTail {
    /// Keys of `prefixes`: the innermost frame, as [`Top::keyed`](crate::cache::query::Top::keyed); [`At::NOWHERE`]:
    /// none. Several may have the same: a handler of signals begins where the kernel puts it, whatever was interrupted.
    /// Apart from the prefixes, so that they are compared together. What a key refers to is not modified before
    /// the key is cleared.
    pub(super) tops: [At; PREFIXES],
    pub(super) prefixes: [VerifiedPrefix; PREFIXES],
    /// Tops that led to the tail without a prefix, and how often they did.
    seen: [(At, u32); PREFIXES],
    /// Index in `seen` of the entry to be replaced next.
    next: usize,
    /// The validity epoch; 0: there is no tail.
    pub(super) stamp: u64,
    /// The innermost frame of the tail.
    first: At,
    /// Its frame word.
    pub(super) word: u64,
    /// rbp of the first frame; 0: no step depends on it.
    fp: u64,
    /// The frame from which on the cached steps were valid at the last capture ([`VerifiedTail::observe`]).
    observed: At,
    /// Number of steps from `first` towards the root to the end of what is stored.
    steps: usize,
    /// The last step leads to the outermost frame.
    ends: bool,
    /// For each step, the number of inputs in `blocks` of the steps up to it.
    pub(super) upto: [u16; STEPS],
    /// Number of inputs in `blocks` that do not lie on the stack: those of the validity epoch, which come first.
    pub(super) of_epoch: usize,
    /// For each other input, the index of the first step that depends on it.
    pub(super) first_steps: [u16; BLOCKS * Words::COUNT],
    /// How far the words of the stack among the inputs and the callers lie apart.
    pub(super) reach: Reach,
    /// The steps' callers.
    pub(super) callers: Callers,
    /// The other inputs, in the order of the steps.
    pub(super) blocks: [Words; BLOCKS],
}

/// The callers to which the steps of a tail lead.
#[repr(C)]
pub(super) struct Callers {
    /// The addresses just below which their pcs stand, return addresses mostly.
    pub(super) above: [u64; STEPS],
    /// These pcs.
    pub(super) pcs: [u64; STEPS],
    /// Indices of those that a signal has interrupted.
    interrupted: [u16; SIGNALS],
    /// Number of these indices.
    signals: usize,
}

impl Callers {
    /// Writes the frame words of the first `count` callers to `words`, and with `further` compares one caller more.
    /// False: a pc is another one in memory now.
    ///
    /// # Safety
    /// `callers` must point to some, which others may write meanwhile; there must be room for the words, and `count`
    /// must be at most STEPS, less one with `further`.
    #[inline(always)]
    unsafe fn copy(
        callers: *const Callers,
        count: usize,
        further: bool,
        bare: impl StackWords,
        words: *mut u64,
    ) -> bool {
        // SAFETY: the caller guarantees the structure and the room; each index is read once, and compared.
        unsafe {
            let (above, pcs) = ((&raw const (*callers).above).cast::<u64>(), (&raw const (*callers).pcs).cast::<u64>());
            if further && bare.word_just_below(above.add(count).read_volatile()) != pcs.add(count).read_volatile() {
                return false;
            }
            if !bare.copy_same(above, pcs, words, count, user_word(0)) {
                return false;
            }
            Callers::mark_interrupted(callers, count, words);
            true
        }
    }

    /// Marks the words of those among the first `count` callers that a signal has interrupted.
    ///
    /// # Safety
    /// As [`Callers::copy`].
    #[inline(always)]
    pub(super) unsafe fn mark_interrupted(callers: *const Callers, count: usize, words: *mut u64) {
        // SAFETY: the caller guarantees the structure and the words.
        unsafe {
            let signals = (&raw const (*callers).signals).read_volatile();
            if signals == 0 {
                return;
            }
            let indices = (&raw const (*callers).interrupted).cast::<u16>();
            for number in 0..signals.min(SIGNALS) {
                let index = usize::from(indices.add(number).read_volatile());
                if index < count {
                    *words.add(index) |= FLAG_EXACT;
                }
            }
        }
    }
}

/// Copies [`AT_ONCE`] words.
///
/// # Safety
/// They must be readable and writable. Others may write those at `from`.
#[inline(always)]
unsafe fn copy_at_once(from: *const u64, to: *mut u64) {
    const { assert!(AT_ONCE == 8) };
    // SAFETY: passed on.
    unsafe {
        let load = |index: usize| _mm_loadu_si128(from.add(index).cast());
        let (a, b, c, d) = (load(0), load(2), load(4), load(6));
        for (index, words) in [(0, a), (2, b), (4, c), (6, d)] {
            _mm_storeu_si128(to.add(index).cast(), words);
        }
    }
}

impl VerifiedTail {
    pub(super) const fn new() -> VerifiedTail {
        VerifiedTail {
            tops: [At::NOWHERE; PREFIXES],
            prefixes: [VerifiedPrefix::NONE; PREFIXES],
            seen: [(At::NOWHERE, 0); PREFIXES],
            next: 0,
            stamp: 0,
            first: At::NOWHERE,
            word: 0,
            fp: 0,
            observed: At::NOWHERE,
            steps: 0,
            ends: false,
            upto: [0; STEPS],
            of_epoch: 0,
            first_steps: [0; BLOCKS * Words::COUNT],
            reach: Reach { lowest: 0, highest: 0 },
            callers: Callers { above: [0; STEPS], pcs: [0; STEPS], interrupted: [0; SIGNALS], signals: 0 },
            blocks: [Words { above: [0; Words::COUNT], was: [0; Words::COUNT] }; BLOCKS],
        }
    }

    /// The first frame, if there is a tail in this validity epoch.
    #[inline(always)]
    pub(super) fn first(&self, stamp: u64) -> Option<At> {
        (self.stamp == stamp).then_some(self.first)
    }

    /// Drops the tail and its prefixes.
    pub(super) fn forget(&mut self) {
        self.stamp = 0;
        self.tops = [At::NOWHERE; PREFIXES];
        self.seen = [(At::NOWHERE, 0); PREFIXES];
    }

    /// The whole stack from `top` (keyed) with rbp `fp`: the number of words and the reason why they end. `None`: there
    /// is no valid prefix for this top, or no precomputed reply for this capacity; without `ANY` only the first prefix
    /// for this top is looked at, which takes least time where it is the only one. If someone has written the tail
    /// meanwhile, the answer is void.
    ///
    /// # Safety
    /// `tail` must point to one, which others may write meanwhile.
    #[inline(always)]
    pub(super) unsafe fn replay_from_top<const ANY: bool>(
        tail: *const VerifiedTail,
        top: At,
        fp: u64,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        // SAFETY: the caller guarantees the structure; each index is below PREFIXES.
        unsafe {
            let place = |index: usize| (&raw const (*tail).tops).cast::<At>().add(index).read_volatile();
            let mut indices = (0..PREFIXES).filter(|index| place(*index) == top);
            if ANY {
                indices.find_map(|index| VerifiedTail::replay_prefix(tail, index, fp, bare, words))
            } else {
                indices.next().and_then(|index| VerifiedTail::replay_prefix(tail, index, fp, bare, words))
            }
        }
    }

    /// The same, by the prefix at this index.
    ///
    /// # Safety
    /// As [`VerifiedTail::replay_from_top`]; there must be such a prefix.
    #[inline(always)]
    unsafe fn replay_prefix(
        tail: *const VerifiedTail,
        index: usize,
        fp: u64,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        // SAFETY: the caller guarantees the structure. Each of the reply's numbers of blocks is at most what is there.
        unsafe {
            let (prefix, reply) = VerifiedTail::reply_of(tail, index, fp, words)?;
            if bare.any_changed_from((&raw const (*prefix).inputs).cast(), reply.blocks())
                || bare.any_changed_from((&raw const (*tail).blocks).cast(), reply.tail_blocks())
            {
                return None;
            }
            let (callers, to) = VerifiedTail::write_own_words(tail, prefix, reply, words);
            Callers::copy(&raw const (*tail).callers, callers, false, bare, to).then(|| reply.answer())
        }
    }

    /// The prefix at this index and its reply, if the reply serves the buffer and rbp is the prefix's own. The reply is
    /// read once, so that all its numbers are those that were stored together: [`VerifiedTail::prepare_for_capacity`]
    /// has checked them.
    ///
    /// # Safety
    /// As [`VerifiedTail::replay_from_top`]; there must be such a prefix.
    #[inline(always)]
    pub(super) unsafe fn reply_of(
        tail: *const VerifiedTail,
        index: usize,
        fp: u64,
        words: &[u64],
    ) -> Option<(*const VerifiedPrefix, Reply)> {
        // SAFETY: the caller guarantees the structure, and that the index is one of its prefixes.
        unsafe {
            let prefix = (&raw const (*tail).prefixes).cast::<VerifiedPrefix>().add(index);
            let reply = (&raw const (*prefix).reply).read_volatile();
            let was = (&raw const (*prefix).fp).read_volatile();
            (reply.serves(words.len()) && (was == 0 || was == fp)).then_some((prefix, reply))
        }
    }

    /// Writes the frame words of a reply down to the tail's first frame. Returns the number of that frame's callers,
    /// and where their frame words belong.
    ///
    /// # Safety
    /// As [`VerifiedTail::replay_from_top`]; [`VerifiedTail::reply_of`] must have returned prefix and reply for
    /// `words`.
    #[inline(always)]
    pub(super) unsafe fn write_own_words(
        tail: *const VerifiedTail,
        prefix: *const VerifiedPrefix,
        reply: Reply,
        words: &mut [u64],
    ) -> (usize, *mut u64) {
        // SAFETY: the caller guarantees the structure. A reply that serves the buffer has at most its words, at least
        // AT_ONCE of which are callers, and at most STEPS.
        unsafe {
            // Copies a constant number of words, which may be more than the prefix has; the tail's words overwrite the
            // rest. There are at least as many of those.
            copy_at_once((&raw const (*prefix).words).cast(), words.as_mut_ptr());
            let first = words.as_mut_ptr().add(reply.own());
            first.write((&raw const (*tail).word).read_volatile());
            let callers = reply.words().wrapping_sub(reply.own() + 1);
            core::hint::assert_unchecked(callers >= AT_ONCE);
            (callers, first.add(1))
        }
    }

    /// For `capacity` words: the number of callers of the first frame that fit, the number of blocks of their inputs,
    /// and the reason why they end.
    #[inline(always)]
    fn within(&self, capacity: usize) -> Option<(usize, usize, StopReason)> {
        // If not all fit, the step after the last one must hold too: it shows that there is one more frame.
        let (count, last, stop) = if self.ends && capacity >= self.steps {
            (self.steps, self.steps.checked_sub(1)?, StopReason::Complete)
        } else {
            (capacity, capacity, StopReason::BufferFull)
        };
        let upto = self.upto.get(..self.steps)?.get(last)?;
        Some((count, usize::from(*upto).div_ceil(Words::COUNT), stop))
    }

    /// Replays the callers of the first frame, whose rbp is `fp()`, up to the end of the stack or of `words`: the
    /// number of words and the reason why they end. `None`: an input has changed.
    #[inline(always)]
    pub(super) fn replay(
        &self,
        fp: impl FnOnce() -> Option<u64>,
        bare: impl StackWords,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        let (count, blocks, stop) = self.within(words.len())?;
        if self.fp != 0 && fp() != Some(self.fp) {
            return None;
        }
        let (room, further) = (words.get_mut(..count)?, stop != StopReason::Complete);
        if count + usize::from(further) > STEPS {
            return None;
        }
        let (blocks, to) = (self.blocks.get(..blocks)?, room.as_mut_ptr());
        // SAFETY: the room was just taken; a slice's elements are there.
        let same = unsafe {
            if bare.are_ordered() {
                VerifiedTail::copy_in_order(self, count, further, bare, to)
            } else {
                !bare.any_changed_from(blocks.as_ptr(), blocks.len())
                    && Callers::copy(&self.callers, count, further, bare, to)
            }
        };
        same.then_some((count, stop))
    }

    /// Counts a capture that reached the tail from `top` without a prefix. Returns the index for a new prefix, if one
    /// should be made: from the second time on.
    #[inline(always)]
    pub(super) fn count_approach(&mut self, top: At) -> Option<usize> {
        let Some(at) = self.seen.iter().position(|(seen, _)| *seen == top) else {
            let at = self.next % PREFIXES;
            self.next = at + 1;
            *self.seen.get_mut(at)? = (top, 1);
            return None;
        };
        let (_, times) = self.seen.get_mut(at)?;
        *times = times.saturating_add(1);
        // If that failed, it is tried again at growing intervals.
        let times = Some(*times).filter(|times| times.is_power_of_two())?;
        // What is there under this key may hold again. If all are such, one of them is replaced.
        let mut places = (0..PREFIXES).map(|further| (at + further) % PREFIXES);
        places.find(|at| self.tops.get(*at) != Some(&top)).or(Some(times.trailing_zeros() as usize % PREFIXES))
    }

    /// Stores a prefix at index `at`: from `top`, with rbp `fp`, these steps lead to the first frame. `words`: their
    /// frame words.
    pub(super) fn store_prefix(&mut self, at: usize, top: At, fp: u64, words: &[u64], steps: &[Step]) {
        let (Some(place), Some(prefix)) = (self.tops.get_mut(at), self.prefixes.get_mut(at)) else { return };
        *place = At::NOWHERE;
        compiler_fence(Ordering::SeqCst);
        if prefix.store(fp, words, steps, self.fp).is_some() {
            compiler_fence(Ordering::SeqCst);
            *place = top;
        }
    }

    /// Precomputes the reply for a buffer of `capacity` words and this top (keyed) with rbp `fp`, if a verified prefix
    /// leads from it and the buffer is large enough.
    #[inline(always)]
    pub(super) fn prepare_for_capacity(
        &mut self,
        top: At,
        fp: u64,
        bare: impl StackWords,
        capacity: usize,
    ) -> Option<()> {
        let mut both = self.tops.iter().zip(&self.prefixes);
        let at = both.position(|(place, prefix)| *place == top && prefix.holds(fp, bare))?;
        let own = self.prefixes.get(at).filter(|prefix| !prefix.reply.serves(capacity))?.count;
        let (callers, blocks, stop) = self.within(capacity.checked_sub(own + 1)?)?;
        if !(AT_ONCE..=STEPS).contains(&callers) {
            return None;
        }
        let ends = stop == StopReason::Complete;
        let further =
            if ends { None } else { Some((*self.callers.above.get(callers)?, *self.callers.pcs.get(callers)?)) };
        let blocks = self.blocks.get(..blocks)?;
        self.prefixes.get_mut(at)?.prepare(&FromTail { callers, ends, further, blocks })
    }

    /// Reports that these steps were valid from the frame `at`, whose rbp is `fp()`. `ends`: the stack ends
    /// after them. If two captures in a row report the same frame, the steps become the verified tail.
    #[inline(never)]
    pub(super) fn observe(
        &mut self,
        (stamp, validity): (u64, &dyn Validity),
        at: At,
        steps: &[Step],
        fp: impl FnOnce() -> Option<u64>,
        ends: bool,
    ) {
        let again = self.observed == at;
        self.observed = at;
        // A frame with an exact pc has another word, and no frame leads to it but the signal's.
        if !again || steps.is_empty() || at.pc & EXACT_KEY != 0 {
            return;
        }
        self.forget();
        compiler_fence(Ordering::SeqCst);
        if self.store(validity, steps, fp()) == Some(stamp) {
            (self.first, self.word, self.steps, self.ends) = (at, user_word(at.pc), steps.len(), ends);
            compiler_fence(Ordering::SeqCst);
            self.stamp = stamp;
        }
    }

    /// Stores the inputs and words of these steps. Returns the validity epoch that follows from the stored words.
    /// `None`: they do not fit, or there is no epoch.
    fn store(&mut self, validity: &dyn Validity, steps: &[Step], fp: Option<u64>) -> Option<u64> {
        let mut depends = Dependencies::new(&mut self.blocks, fp);
        let mut fits = true;
        let stamp = validity.words(&mut |address, is| fits &= depends.on(address.wrapping_add(8), is).is_some())?;
        self.of_epoch = depends.count();
        depends.reach = Reach::NONE;
        let callers = &mut self.callers;
        callers.signals = 0;
        let (mut before, mut reach) = (depends.count(), Reach::NONE);
        let places = callers.above.iter_mut().zip(&mut callers.pcs).zip(&mut self.upto);
        for ((index, step), ((above, pc), upto)) in (0..).zip(steps).zip(places) {
            depends.on_step_but_caller(step)?;
            *upto = depends.count() as u16;
            (*above, *pc) = step.input();
            self.first_steps.get_mut(before..depends.count())?.fill(index);
            before = depends.count();
            reach.add(*above);
            if step.rule.is_signal() {
                *callers.interrupted.get_mut(callers.signals)? = index;
                callers.signals += 1;
            }
        }
        self.fp = depends.fp();
        self.reach = reach.and(depends.reach);
        fits.then_some(stamp)
    }
}
