//! The replay of a whole stack by words that are loaded in the order in which a walk reads them
//! ([`StackWords::ORDERED`]).
//!
//! A return address, or a saved rbp, is loaded only after all words that it follows from were found unchanged. So its
//! place is that of an active frame of the thread that is walked, and the thread will read it there itself. Where some
//! memory between two frames of a stack was taken away since the stack was cached, no load goes there.

use super::prefix::OWN_BLOCKS;
use super::tail::{Callers, VerifiedTail, BLOCKS, PREFIXES};
use super::STEPS;
use crate::cache::query::At;
use crate::frame::user_word;
use crate::memory::guarded::Words;
use crate::memory::StackWords;
use crate::stop_reason::StopReason;
use core::ops::Range;

/// Frames that are compared and copied in one turn of a loop, one after the other.
const TOGETHER: usize = 4;

/// Writes the frame words of these return addresses to `to`, each once it was found below its address in `above`.
/// False: one has changed.
///
/// # Safety
/// All three must have these indices; others may write the first two meanwhile. [`StackWords::reaches`] must be true of
/// the addresses.
// A function of its own, which has all registers for itself.
#[inline(never)]
unsafe fn copy_same(
    above: *const u64,
    pcs: *const u64,
    to: *mut u64,
    indices: Range<usize>,
    stack: impl StackWords,
) -> bool {
    let Range { start: mut index, end } = indices;
    // SAFETY: the caller guarantees the indices and the addresses.
    unsafe {
        let same = |at: usize| {
            let pc = pcs.add(at).read_volatile();
            let is_same = stack.word_within(above.add(at).read_volatile()) == pc;
            if is_same {
                to.add(at).write(user_word(pc));
            }
            is_same
        };
        while index + TOGETHER <= end {
            if !same(index) || !same(index + 1) || !same(index + 2) || !same(index + 3) {
                return false;
            }
            index += TOGETHER;
        }
        while index < end {
            if !same(index) {
                return false;
            }
            index += 1;
        }
    }
    true
}

/// Whether the input at this index is unchanged.
///
/// # Safety
/// `blocks` must have it; others may write it meanwhile.
#[inline(always)]
unsafe fn input_is_same(blocks: *const Words, index: usize, stack: impl StackWords) -> bool {
    // SAFETY: the caller guarantees the block.
    let (above, was) = unsafe {
        let block = blocks.add(index / Words::COUNT);
        let (above, was) = ((&raw const (*block).above).cast::<u64>(), (&raw const (*block).was).cast::<u64>());
        (above.add(index % Words::COUNT).read_volatile(), was.add(index % Words::COUNT).read_volatile())
    };
    stack.word_just_below(above) == was
}

impl VerifiedTail {
    /// As [`VerifiedTail::replay_from_top`], by any prefix of this top. `stamp`: the current validity epoch, which is
    /// compared in place of the words that it follows from, as these are not the stack's. `top`: keyed, with its rbp.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(super) unsafe fn replay_in_order(
        tail: *const VerifiedTail,
        stamp: u64,
        (top, fp): (At, u64),
        stack: impl StackWords,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        // SAFETY: the caller guarantees the structure; each index is below PREFIXES.
        unsafe {
            if (&raw const (*tail).stamp).read_volatile() != stamp {
                return None;
            }
            let place = |index: usize| (&raw const (*tail).tops).cast::<At>().add(index).read_volatile();
            let mut indices = (0..PREFIXES).filter(|index| place(*index) == top);
            indices.find_map(|index| VerifiedTail::replay_prefix_in_order(tail, index, fp, stack, words))
        }
    }

    /// The same, by the prefix at this index.
    ///
    /// # Safety
    /// As [`VerifiedTail::replay_in_order`]; there must be such a prefix.
    #[inline(always)]
    unsafe fn replay_prefix_in_order(
        tail: *const VerifiedTail,
        index: usize,
        fp: u64,
        stack: impl StackWords,
        words: &mut [u64],
    ) -> Option<(usize, StopReason)> {
        // SAFETY: as in `replay_prefix`; the number of inputs is limited by their room.
        unsafe {
            let (prefix, reply) = VerifiedTail::reply_of(tail, index, fp, words)?;
            let inputs = (&raw const (*prefix).input_count).read_volatile().min(OWN_BLOCKS * Words::COUNT);
            let blocks = (&raw const (*prefix).inputs).cast::<Words>();
            if !(0..inputs).all(|index| input_is_same(blocks, index, stack)) {
                return None;
            }
            let (callers, to) = VerifiedTail::write_own_words(tail, prefix, reply, words);
            VerifiedTail::copy_in_order(tail, callers, !reply.ends(), stack, to).then(|| reply.answer())
        }
    }

    /// Writes the frame words of the first `count` callers of the tail's first frame to `to`, and with `further`
    /// compares one caller more. False: an input of theirs has changed.
    ///
    /// # Safety
    /// `tail` must point to one, which others may write meanwhile; there must be room for the words, and `count` must
    /// be at most STEPS, less one with `further`.
    #[inline(always)]
    pub(super) unsafe fn copy_in_order(
        tail: *const VerifiedTail,
        count: usize,
        further: bool,
        stack: impl StackWords,
        to: *mut u64,
    ) -> bool {
        // SAFETY: the caller guarantees the structure and the room; the number of inputs is limited by their room. All
        // words lie within the tail's reach; where a handler's capture has replaced the tail since that was read, they
        // are words of this thread's own stack that was captured then, or of the older tail: both are still mapped.
        unsafe {
            let reach = (&raw const (*tail).reach).read_volatile();
            if !stack.reaches(reach.lowest, reach.highest) {
                return false;
            }
            let callers = &raw const (*tail).callers;
            let (above, pcs) = ((&raw const (*callers).above).cast::<u64>(), (&raw const (*callers).pcs).cast::<u64>());
            let is_same = |index: usize| {
                let pc = pcs.add(index).read_volatile();
                (stack.word_within(above.add(index).read_volatile()) == pc).then_some(pc)
            };
            let blocks = (&raw const (*tail).blocks).cast::<Words>();
            let first_steps = (&raw const (*tail).first_steps).cast::<u16>();
            let last = count.wrapping_sub(usize::from(!further)).min(STEPS - 1);
            let upto = usize::from((&raw const (*tail).upto).cast::<u16>().add(last).read_volatile());
            let inputs = (&raw const (*tail).of_epoch).read_volatile()..upto.min(BLOCKS * Words::COUNT);
            let mut index = 0;
            for input in inputs {
                let next = usize::from(first_steps.add(input).read_volatile()).min(count);
                if index < next && !copy_same(above, pcs, to, index..next, stack) {
                    return false;
                }
                index = index.max(next);
                if !input_is_same(blocks, input, stack) {
                    return false;
                }
            }
            if index < count && !copy_same(above, pcs, to, index..count, stack) {
                return false;
            }
            if further && is_same(count).is_none() {
                return false;
            }
            Callers::mark_interrupted(callers, count, to);
            true
        }
    }
}
