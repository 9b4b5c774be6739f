//! Stacks of more than [`MAX_FRAMES`] frames: their innermost part is kept, and their outermost [`OUTERMOST`] frames,
//! with one frame between them that says how many were left out.
//!
//! ```text
//! buffer:  | innermost MAX_FRAMES frames | the last frames that were met ...      |
//!          0                             leaf_words                               capacity
//! ```
//! The walk continues as usual after `leaf_words`. When the buffer is full there, all but the last [`OUTERMOST`] frames
//! of that part are dropped and counted, so a frame costs the same wherever it lies. The sampler and `uu_walk` request
//! this ([`super::Setting::keep_outermost`]), captures do not, since the buffer must be larger than the result. Until
//! the walk is over, the frames after the innermost part are not reported as progress: a walk that is abandoned keeps
//! the innermost part, with its reason.

use super::{Env, Walk, MAX_FRAMES};
use crate::frame::{frame_words, omitted_word};
use crate::stop_reason::StopReason;

/// Number of outermost frames of a deep stack that are kept.
pub const OUTERMOST: usize = 64;
/// A walk of more frames than this ends: it bounds every loop over the frames of a stack.
pub const DEEPEST: u32 = 1 << 20;
/// Limit of the words of a walk's result: frames of two words each, and the word that counts those left out.
pub const MAX_WORDS: usize = 2 * (MAX_FRAMES as usize + OUTERMOST) + 1;
/// Words of a buffer for [`super::Setting::keep_outermost`]. What exceeds [`MAX_WORDS`] makes dropping frames rare.
pub const DEEP_WORDS: usize = 2 * MAX_FRAMES as usize + 1024;

/// Where a deep stack's parts lie in the walk's buffer.
#[derive(Clone, Copy, Default)]
pub(super) struct Deep {
    /// Words of the innermost part; 0: the stack is not deep, or its outermost part is not requested.
    leaf_words: usize,
    /// Number of frames that were left out.
    omitted: u32,
}

impl Deep {
    /// Whether frames beyond the innermost part were met.
    pub(super) fn is_deep(self) -> bool {
        self.leaf_words != 0
    }
}

/// The state of a walk's output at some time, for [`Walk::take_back`].
#[derive(Clone, Copy)]
pub(super) struct Written {
    words: usize,
    count: u32,
    omitted: u32,
}

impl<E: Env> Walk<'_, '_, E> {
    /// Makes room for a frame of `words` words where the limit of frames, or the end of the buffer, is reached. The
    /// error is the reason why the walk ends here.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(&mut self, words: usize) -> Result<(), StopReason> {
        self.cut = true;
        if !self.keep_outermost {
            let too_many = self.count >= MAX_FRAMES;
            return Err(if too_many { StopReason::TooManyFrames } else { StopReason::BufferFull });
        }
        if self.count >= DEEPEST {
            return Err(StopReason::TooManyFrames);
        }
        if !self.deep.is_deep() {
            // Of a buffer that cannot take the outermost part with its count, the innermost part is all that is kept.
            let outermost_fits = self.frames.len().saturating_sub(self.words) > 2 * OUTERMOST + 1;
            if self.count < MAX_FRAMES {
                return Err(StopReason::BufferFull);
            }
            if !outermost_fits {
                return Err(StopReason::TooManyFrames);
            }
            self.deep.leaf_words = self.words;
            self.limit = DEEPEST;
        }
        if self.words + words > self.frames.len() {
            self.drop_all_but(OUTERMOST);
        }
        if self.words + words > self.frames.len() {
            return Err(StopReason::BufferFull);
        }
        Ok(())
    }

    /// Keeps the last `kept` frames of those after the innermost part.
    fn drop_all_but(&mut self, kept: usize) {
        let leaf = self.deep.leaf_words;
        let outer = self.frames.get(leaf..self.words).unwrap_or_default();
        let dropped = frame_lengths(outer).count().saturating_sub(kept);
        let begin: usize = leaf + frame_lengths(outer).take(dropped).sum::<usize>();
        let left = self.words.saturating_sub(begin);
        for nth in 0..left {
            self.move_word(begin + nth, leaf + nth);
        }
        self.words = leaf + left;
        self.deep.omitted += dropped as u32;
    }

    fn move_word(&mut self, from: usize, to: usize) {
        let word = self.frames.get(from).copied();
        if let (Some(word), Some(place)) = (word, self.frames.get_mut(to)) {
            *place = word;
        }
    }

    /// The plugin that is being called has `left` more frames to emit. Returns how many of the next ones it must leave
    /// out, because they will lie neither in the innermost nor in the outermost part.
    pub(super) fn omit(&mut self, left: u32) -> u32 {
        let omitted = left.saturating_sub(OUTERMOST as u32).min(DEEPEST.saturating_sub(self.count));
        if !self.deep.is_deep() || omitted == 0 || self.tail.is_some() {
            return 0;
        }
        self.drop_all_but(0);
        self.deep.omitted += omitted;
        self.count += omitted;
        omitted
    }

    /// The walk is over: leaves the innermost part, the count of the frames left out, and the outermost part.
    #[cold]
    #[inline(never)]
    pub(super) fn finish_deep(&mut self) {
        self.drop_all_but(OUTERMOST);
        let (leaf, end) = (self.deep.leaf_words, self.words);
        if self.deep.omitted == 0 {
            return;
        }
        // `make_room` left space for one more word.
        for word in (leaf..end).rev() {
            self.move_word(word, word + 1);
        }
        if let Some(first) = self.frames.get_mut(leaf) {
            *first = omitted_word(self.deep.omitted);
            self.words = end + 1;
        }
    }

    /// The present state of the output.
    pub(super) fn written(&self) -> Written {
        Written { words: self.words, count: self.count, omitted: self.deep.omitted }
    }

    /// Removes the frames that were emitted after `to`.
    pub(super) fn take_back(&mut self, to: Written) {
        if self.deep.is_deep() && to.words <= self.deep.leaf_words && to.omitted == 0 {
            self.deep = Deep::default();
            self.limit = MAX_FRAMES;
        }
        if self.deep.omitted == to.omitted {
            self.words = to.words;
        } else {
            // Frames from before `to` have been dropped meanwhile, or moved among those that are removed now: all of
            // them count as left out.
            self.words = self.deep.leaf_words;
            self.deep.omitted = to.count.saturating_sub(MAX_FRAMES);
        }
        self.count = to.count;
        self.report_progress();
    }
}

/// The length of each frame, in words.
fn frame_lengths(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let length = frame_words(*words.get(at)?);
        at += length;
        Some(length)
    })
}
