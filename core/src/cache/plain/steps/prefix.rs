//! Verified prefixes: the innermost frames of a stack, which lead to the verified tail; stored when a stack with the
//! same top has led there for the second time.
//!
//! Why a replay is exact: as in `tail.rs`, by induction from the top, whose pc and sp are the key, and whose rbp is
//! compared where a step counts from it. The words of the validity epoch need not be among the inputs: a prefix is used
//! only together with the tail, which compares them, and is forgotten with it. Where the tail's first frame depends on
//! rbp, the prefix's steps must yield the same rbp there, which is one of its inputs (`fp_there`).

use super::dependencies::Dependencies;
use super::Step;
use crate::memory::guarded::Words;
use crate::memory::Bare;

/// Limit of the number of frames of a prefix.
pub(super) const PREFIX_FRAMES: usize = 8;

/// Blocks of inputs: a frame with a frame pointer depends on two words, one of a signal or one that aligned its stack
/// on three.
const BLOCKS: usize = 6;

/// A verified prefix: the frame words of up to [`PREFIX_FRAMES`] innermost frames that lead to the verified tail, the
/// words that they depend on, and the precomputed size of the reply.
#[repr(C, align(64))]
pub(super) struct VerifiedPrefix {
    /// rbp of the innermost frame; 0: no step depends on it.
    pub(super) fp: u64,
    /// Number of its frame words.
    pub(super) count: usize,
    /// The caller's capacity, in words, for which the next three fields were computed; 0: none.
    pub(super) reply_for_capacity: usize,
    /// Number of callers of the tail's first frame that follow it.
    pub(super) tail_callers: usize,
    /// Number of the tail's blocks of inputs that these depend on.
    pub(super) tail_blocks: usize,
    /// Whether the reply then ends with the outermost frame.
    pub(super) ends: bool,
    /// Number of words in `inputs`.
    pub(super) input_count: u8,
    /// The frame words.
    pub(super) words: [u64; PREFIX_FRAMES],
    /// The words of memory that the frames depend on.
    pub(super) inputs: [Words; BLOCKS],
}

impl VerifiedPrefix {
    pub(super) const NONE: VerifiedPrefix = VerifiedPrefix {
        fp: 0,
        count: 0,
        reply_for_capacity: 0,
        tail_callers: 0,
        tail_blocks: 0,
        ends: false,
        input_count: 0,
        words: [0; PREFIX_FRAMES],
        inputs: [Words { above: [0; Words::COUNT], was: [0; Words::COUNT] }; BLOCKS],
    };

    /// Whether the inputs are unchanged, so that these frames lead to the tail again. `fp`: rbp of the innermost frame.
    ///
    /// # Safety
    /// `prefix` must point to one, which others may write meanwhile.
    #[inline(always)]
    pub(super) unsafe fn holds(prefix: *const VerifiedPrefix, fp: u64, bare: Bare) -> bool {
        // SAFETY: the caller guarantees the structure; each index is below Words::COUNT, and each block one of BLOCKS.
        unsafe {
            let was = (&raw const (*prefix).fp).read_volatile();
            let count = usize::from((&raw const (*prefix).input_count).read_volatile()).min(BLOCKS * Words::COUNT);
            let first = (&raw const (*prefix).inputs).cast::<Words>();
            let (above, words) = (&raw const (*first).above, &raw const (*first).was);
            (was == 0 || was == fp)
                && (0..count.min(Words::COUNT)).all(|index| {
                    let above = above.cast::<u64>().add(index).read_volatile();
                    bare.word_just_below(above) == words.cast::<u64>().add(index).read_volatile()
                })
                // Those of most have one block, of which a part is used.
                && (count <= Words::COUNT
                    || !bare.any_changed_from(first.add(1), count.div_ceil(Words::COUNT) - 1))
        }
    }

    /// Stores the frames with these words and steps. `fp`: rbp of the innermost frame; `fp_there`: rbp of the tail's
    /// first frame, or 0 if the tail does not depend on it. `None`: they have too many inputs.
    pub(super) fn store(&mut self, fp: u64, words: &[u64], steps: &[Step], fp_there: u64) -> Option<()> {
        let mut depends = Dependencies::new(&mut self.inputs, Some(fp));
        for step in steps {
            depends.on_step(step)?;
        }
        if fp_there != 0 {
            depends.on_rbp(fp_there)?;
        }
        (self.fp, self.input_count, self.count, self.reply_for_capacity) =
            (depends.fp(), depends.count() as u8, steps.len(), 0);
        self.words.get_mut(..steps.len())?.copy_from_slice(words.get(..steps.len())?);
        Some(())
    }
}
