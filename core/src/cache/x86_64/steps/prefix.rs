//! Verified prefixes: the innermost frames of a stack, which lead to the verified tail; stored when a stack with the
//! same top has led there for the second time.
//!
//! Why a replay is exact: as in `tail.rs`, by induction from the top, whose pc and sp are the key, and whose rbp is
//! compared where a step counts from it. The words of the validity epoch need not be among the inputs: a prefix is used
//! only together with the tail, which compares them, and is forgotten with it. Where the tail's first frame depends on
//! rbp, the prefix's steps must yield the same rbp there, which is one of its inputs (`fp_there`).

use super::dependencies::{put, Dependencies};
use super::Step;
use crate::memory::guarded::Words;
use crate::memory::StackWords;
use crate::stop_reason::StopReason;
use core::sync::atomic::{compiler_fence, Ordering};

/// Limit of the number of frames of a prefix.
pub(super) const PREFIX_FRAMES: usize = 8;

/// Blocks of inputs: a frame with a frame pointer depends on two words, one of a signal or one that aligned its stack
/// on three.
pub(super) const OWN_BLOCKS: usize = 6;
/// The same, with those of the tail that are compared with them.
const BLOCKS: usize = OWN_BLOCKS + 2;

/// What a replay writes, and what it has to compare, in one word: who reads it while it is replaced gets one reply or
/// the other, and never a mixture.
///
/// ```text
/// bits 0..16   number of frame words; 0: there is no reply
/// bits 16..24  those that the prefix has
/// bits 24..32  blocks of the prefix's inputs
/// bits 32..40  blocks of the tail's inputs
/// bit 63       the frame words end with the outermost frame; otherwise they end because the buffer does
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply(u64);

impl Reply {
    const NONE: Reply = Reply(0);
    const ENDS: u64 = 1 << 63;

    /// Whether it is what a buffer of `capacity` words gets.
    #[inline(always)]
    pub(super) fn serves(self, capacity: usize) -> bool {
        let words = self.words();
        words != 0 && (words == capacity || self.ends() && words < capacity)
    }

    #[inline(always)]
    pub(super) fn words(self) -> usize {
        usize::from(self.0 as u16)
    }

    #[inline(always)]
    pub(super) fn own(self) -> usize {
        usize::from((self.0 >> 16) as u8)
    }

    #[inline(always)]
    pub(super) fn blocks(self) -> usize {
        usize::from((self.0 >> 24) as u8)
    }

    #[inline(always)]
    pub(super) fn tail_blocks(self) -> usize {
        usize::from((self.0 >> 32) as u8)
    }

    #[inline(always)]
    pub(super) fn ends(self) -> bool {
        self.0 & Reply::ENDS != 0
    }

    /// The number of frame words, and why there are no more.
    #[inline(always)]
    pub(super) fn answer(self) -> (usize, StopReason) {
        (self.words(), if self.ends() { StopReason::Complete } else { StopReason::BufferFull })
    }
}

/// The part of a reply that the tail gives.
pub(super) struct FromTail<'t> {
    /// Number of callers of its first frame.
    pub(super) callers: usize,
    /// Whether these end with the outermost frame.
    pub(super) ends: bool,
    /// The input that shows that there is one more frame, if they do not: as in [`Words`].
    pub(super) further: Option<(u64, u64)>,
    /// The other inputs.
    pub(super) blocks: &'t [Words],
}

/// A verified prefix: the frame words of up to [`PREFIX_FRAMES`] innermost frames that lead to the verified tail, the
/// words that they depend on, and the precomputed reply.
#[repr(C, align(64))]
pub(super) struct VerifiedPrefix {
    /// rbp of the innermost frame; 0: no step depends on it.
    pub(super) fp: u64,
    /// The reply for the capacity that was asked for last.
    pub(super) reply: Reply,
    /// Number of its frame words.
    pub(super) count: usize,
    /// Number of words in `inputs` that its frames depend on.
    pub(super) input_count: usize,
    /// The frame words.
    pub(super) words: [u64; PREFIX_FRAMES],
    /// The words of memory that the frames depend on, and those of the reply.
    pub(super) inputs: [Words; BLOCKS],
}

impl VerifiedPrefix {
    pub(super) const NONE: VerifiedPrefix = VerifiedPrefix {
        fp: 0,
        reply: Reply::NONE,
        count: 0,
        input_count: 0,
        words: [0; PREFIX_FRAMES],
        inputs: [Words { above: [0; Words::COUNT], was: [0; Words::COUNT] }; BLOCKS],
    };

    /// Whether the inputs are unchanged, so that these frames lead to the tail again. `fp`: rbp of the innermost frame.
    pub(super) fn holds(&self, fp: u64, bare: impl StackWords) -> bool {
        let inputs = self.inputs.iter().flat_map(|block| block.above.iter().zip(&block.was));
        (self.fp == 0 || self.fp == fp)
            && inputs.take(self.input_count).all(|(above, was)| bare.word_just_below(*above) == *was)
    }

    /// Stores the frames with these words and steps. `fp`: rbp of the innermost frame; `fp_there`: rbp of the tail's
    /// first frame, or 0 if the tail does not depend on it. `None`: they have too many inputs.
    pub(super) fn store(&mut self, fp: u64, words: &[u64], steps: &[Step], fp_there: u64) -> Option<()> {
        let mut depends = Dependencies::new(self.inputs.get_mut(..OWN_BLOCKS)?, Some(fp));
        for step in steps {
            depends.on_step(step)?;
        }
        if fp_there != 0 {
            depends.on_rbp(fp_there)?;
        }
        (self.fp, self.input_count, self.count, self.reply) = (depends.fp(), depends.count(), steps.len(), Reply::NONE);
        self.words.get_mut(..steps.len())?.copy_from_slice(words.get(..steps.len())?);
        Some(())
    }

    /// Makes the reply that consists of the frames of this prefix, the tail's first one, and these callers of it.
    pub(super) fn prepare(&mut self, tail: &FromTail<'_>) -> Option<()> {
        // No reply meanwhile: this call may be abandoned at any instruction.
        self.reply = Reply::NONE;
        compiler_fence(Ordering::SeqCst);
        let mut count = self.input_count;
        if let Some(further) = tail.further {
            put(&mut self.inputs, count, further)?;
            count += 1;
        }
        // One comparison of both the prefix's inputs and the tail's, if these are few. The rest of a block repeats its
        // last word.
        let mut last = None;
        let words = tail.blocks.iter().flat_map(|block| block.above.into_iter().zip(block.was));
        let all = words.filter(|word| last.replace(*word) != Some(*word)).try_fold(count, |count, word| {
            put(&mut self.inputs, count, word)?;
            Some(count + 1)
        });
        let (count, tail_blocks) = all.map_or((count, tail.blocks.len()), |all| (all, 0));
        let numbers = [self.count + 1 + tail.callers, self.count, count.div_ceil(Words::COUNT), tail_blocks];
        let reply = numbers.into_iter().zip([0, 16, 24, 32]).fold(0, |reply, (n, at)| reply | (n as u64) << at);
        compiler_fence(Ordering::SeqCst);
        self.reply = Reply(reply | if tail.ends { Reply::ENDS } else { 0 });
        Some(())
    }
}
